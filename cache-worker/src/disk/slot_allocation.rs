//! Chooses the place for the next page, and what is evicted for it: free slots, new files, cold
//! pages, cold segments, in this order.
//!
//! Decides over the index; does no I/O. It returns the disk work that must come first as a
//! `SlotAllocationStep`.

use super::disk_headers::PageHeader;
use super::folder_index::{FolderIndex, SlotWidthClass, blank_entry, entry_of, grow_entries};
use super::segment_layout::{SegmentLayout, width_for};
use super::slot_table::DiskSlot;
use crate::digest::PageKey;
use crate::tenants::{AccountSet, EvictionRights, TenantAccount, TenantTier};

/// The next step before a page can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotAllocationStep {
    /// No further step: write the page there.
    Write(ReservedSlot),
    /// Cut this segment into slots of this layout.
    Cut {
        segment: u32,
        layout: SegmentLayout,
    },
    /// Create a file of this many bytes.
    Grow {
        segment: u32,
        bytes: u64,
    },
    Refused(DiskSlotRefusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReservedSlot {
    pub(super) place: DiskSlot,
    pub(super) layout: SegmentLayout,
    pub(super) era: u32,
    /// The slot's header may still name another page. Clear it before the bytes are written.
    pub(super) stale: bool,
}

/// The reason why a page gets no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskSlotRefusal {
    /// The page is here already.
    Known,
    /// The volume has used up its quota.
    Quota,
    /// Every page that could be evicted is pinned, or there are no segments at all.
    NoRoom,
}

/// The inputs of an eviction besides the index.
pub(super) struct EvictionContext<'a> {
    pub(super) now_s: u32,
    pub(super) may_grow: bool,
    /// Whether memory holds the page. Reads from memory leave the page looking unused here, but it
    /// is just what a restart has to find.
    pub(super) resident: &'a dyn Fn(PageKey) -> bool,
}

/// Slots that one search looks at. After that, the first page that may be evicted goes.
const STEPS_MAX: usize = 256;

/// Slots of accounts that must not lose any which a search passes over besides.
const PASSED_OVER_MAX: usize = 8192;

/// Which segment of another width is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentWish {
    /// The width has none, or its pages would never get their share: the coldest one, in any case.
    Any,
    /// One that is colder than the width's own.
    Colder,
    /// The width's own pages must stay: one whose pages need not.
    Spare,
}

/// Slots that a search looks at for a volume over its quota, whose pages may be few among many.
const QUOTA_STEPS_MAX: usize = 8192;

impl FolderIndex {
    /// Takes one step towards a slot for the page. Call it again after each step is done.
    pub(super) fn reserve_slot(
        &mut self,
        header: &PageHeader,
        judge: &EvictionContext<'_>,
    ) -> SlotAllocationStep {
        let width = width_for(header.length);
        let version = crate::digest::VersionDigest::from_stored(header.version);
        if self
            .find_page(version.page_key(verbs3_protocol::BlockIndex(header.block), header.page))
            .is_some()
        {
            return SlotAllocationStep::Refused(DiskSlotRefusal::Known);
        }
        let account = self.tenants.account_of_hash(header.tenant);
        if !self.keep_quota(header.volume, width, judge, account) {
            return SlotAllocationStep::Refused(DiskSlotRefusal::Quota);
        }
        if self.held.pages >= self.pages_max && !self.give_up_any(width, judge, account) {
            return SlotAllocationStep::Refused(DiskSlotRefusal::NoRoom);
        }
        if let Some(reserved) = self.take_open(width) {
            self.fill_slot(reserved.place, header);
            return SlotAllocationStep::Write(reserved);
        }
        if let Some(step) = self.blank.last().and_then(|&segment| self.to_cut(segment, width)) {
            return step;
        }
        if judge.may_grow && self.can_grow() {
            return SlotAllocationStep::Grow {
                segment: self.next_segment(),
                bytes: self.segment_bytes,
            };
        }
        self.give_up_for(width, header, judge, account)
    }

    /// Returns whether a page of this length would find a slot without an eviction.
    pub(super) fn has_room(&self, length: u32, may_grow: bool) -> bool {
        let open = |class: &SlotWidthClass| {
            class.open.iter().any(|&segment| {
                self.cut_of(segment).is_some_and(super::folder_index::SegmentSlotTable::has_room)
            })
        };
        let place = !self.blank.is_empty()
            || (may_grow && self.can_grow())
            || self.classes.get(&width_for(length)).is_some_and(open);
        place && self.held.pages < self.pages_max
    }

    /// Drops expired pages among the next `steps` slots. Returns how many.
    pub(super) fn sweep_expired(&mut self, now_s: u32, steps: usize) -> u64 {
        let mut expired = 0;
        let (mut segment, mut slot) = self.sweep_at;
        for _ in 0..steps.min(self.segments.len() + self.held.pages as usize * 2) {
            let Some(cut) = self.cut_of(segment as u32).filter(|cut| slot < cut.entries.len())
            else {
                (segment, slot) = ((segment + 1) % self.segments.len().max(1), 0);
                continue;
            };
            let entry = &cut.entries[slot];
            if entry.is_live() && self.is_expired(entry, now_s) {
                self.free_slot(DiskSlot { segment: segment as u32, slot: slot as u32 });
                expired += 1;
            }
            slot += 1;
        }
        self.sweep_at = (segment, slot);
        expired
    }

    fn can_grow(&self) -> bool {
        self.held.file_bytes + self.segment_bytes <= self.capacity_bytes
    }

    fn next_segment(&self) -> u32 {
        self.segments.iter().position(Option::is_none).unwrap_or(self.segments.len()) as u32
    }

    fn to_cut(&self, segment: u32, width: u32) -> Option<SlotAllocationStep> {
        let bytes = self.segments.get(segment as usize)?.as_ref()?.bytes;
        Some(SlotAllocationStep::Cut { segment, layout: SegmentLayout::new(bytes, width)? })
    }

    /// Takes a free slot of this width.
    fn take_open(&mut self, width: u32) -> Option<ReservedSlot> {
        let class = self.classes.get_mut(&width)?;
        while let Some(&segment) = class.open.last() {
            let Some(Some(found)) = self.segments.get_mut(segment as usize) else {
                class.open.pop();
                continue;
            };
            let Some(cut) = found.cut.as_mut() else {
                class.open.pop();
                continue;
            };
            let (slot, stale) = match cut.free.pop() {
                Some(slot) => (slot, true),
                None if cut.entries.len() < cut.layout.slots as usize => {
                    grow_entries(&mut cut.entries);
                    cut.entries.push(blank_entry());
                    (cut.entries.len() as u32 - 1, false)
                }
                None => {
                    cut.open = false;
                    class.open.pop();
                    continue;
                }
            };
            return Some(ReservedSlot {
                place: DiskSlot { segment, slot },
                layout: cut.layout,
                era: cut.era,
                stale,
            });
        }
        None
    }

    fn give_up_for(
        &mut self,
        width: u32,
        header: &PageHeader,
        judge: &EvictionContext<'_>,
        account: TenantAccount,
    ) -> SlotAllocationStep {
        let has_segments = self.classes.get(&width).is_some_and(|class| !class.segments.is_empty());
        // A width without segments takes the coldest segment of all. A width that keeps evicting
        // looks for a segment that is colder than its own pages.
        let wish = if has_segments { SegmentWish::Colder } else { SegmentWish::Any };
        let compare = !has_segments || self.is_due(width);
        if compare && let Some(step) = self.steal_segment(width, wish, judge.now_s, account) {
            return step;
        }
        let rights = self.eviction_rights(width, account);
        let mut found = self.find_coldest_slot(width, judge, rights.first_sets());
        if found.is_none() && rights != EvictionRights::ANY {
            let wishes =
                [Some(SegmentWish::Spare), rights.breaks_up_shares().then_some(SegmentWish::Any)];
            let steal = |wish| self.steal_segment(width, wish, judge.now_s, account);
            if let Some(step) = wishes.into_iter().flatten().find_map(steal) {
                return step;
            }
            found = self.find_coldest_slot(width, judge, rights.sets());
        }
        let Some(place) = found else {
            return SlotAllocationStep::Refused(DiskSlotRefusal::NoRoom);
        };
        self.evict_slot(place);
        if let Some(class) = self.classes.get_mut(&width) {
            class.evicted_bytes += u64::from(width);
        }
        match self.take_open(width) {
            Some(reserved) => {
                self.fill_slot(reserved.place, header);
                SlotAllocationStep::Write(reserved)
            }
            None => SlotAllocationStep::Refused(DiskSlotRefusal::NoRoom),
        }
    }

    /// Evicts a page, of this width if there is one. Returns false if there is none.
    fn give_up_any(
        &mut self,
        width: u32,
        judge: &EvictionContext<'_>,
        account: TenantAccount,
    ) -> bool {
        let mut widths: Vec<u32> =
            self.classes.keys().copied().filter(|&other| other != width).collect();
        widths.insert(0, width);
        let coldest = |width| {
            let rights = self.eviction_rights(width, account);
            // Shares are of bytes: of small pages, others may have all within theirs.
            let all = rights.breaks_up_shares().then_some(AccountSet::ALL);
            self.find_coldest_slot(width, judge, rights.sets().chain(all))
        };
        let Some(place) = widths.into_iter().find_map(coldest) else { return false };
        self.evict_slot(place);
        true
    }

    /// Returns whether the width has evicted a segment's worth since it was last compared with
    /// others.
    fn is_due(&mut self, width: u32) -> bool {
        let segment_bytes = self.segment_bytes;
        let Some(class) = self.classes.get_mut(&width) else { return false };
        let due = class.evicted_bytes >= segment_bytes;
        if due {
            class.evicted_bytes = 0;
        }
        due
    }

    /// Empties the segment of another width that was unused for longest, of those that the wish is
    /// for and whose pages need not stay.
    fn steal_segment(
        &mut self,
        width: u32,
        wish: SegmentWish,
        now_s: u32,
        account: TenantAccount,
    ) -> Option<SlotAllocationStep> {
        let touched = |segment: u32| self.cut_of(segment).map(|cut| (cut.touched_s, segment));
        let others = self
            .classes
            .iter()
            .filter(|(other, _)| **other != width)
            .flat_map(|(_, class)| &class.segments);
        let is_free = |segment: u32| {
            let pinned = |cut: &super::folder_index::SegmentSlotTable| {
                cut.entries.iter().any(|entry| entry.writing || entry.pinned_until_s > now_s)
            };
            self.cut_of(segment).is_some_and(|cut| !pinned(cut))
        };
        let mut candidates: Vec<(u32, u32)> =
            others.filter_map(|&segment| touched(segment)).collect();
        candidates.sort_unstable();
        if wish == SegmentWish::Colder {
            let own = self
                .classes
                .get(&width)?
                .segments
                .iter()
                .filter_map(|&segment| touched(segment))
                .min()?;
            candidates.retain(|other| other.0 < own.0);
        }
        let rights = self.eviction_rights(width, account);
        let loss = |segment: u32| self.protected_bytes(segment, rights, account);
        let segments = || candidates.iter().map(|&(_, segment)| segment);
        let spare = segments().find(|&segment| loss(segment) == 0 && is_free(segment));
        // Otherwise pages of a width could be kept out for good, by one page in each segment that
        // must stay.
        let any = || match wish {
            SegmentWish::Any => {
                segments().filter(|&segment| is_free(segment)).min_by_key(|&segment| loss(segment))
            }
            SegmentWish::Colder | SegmentWish::Spare => None,
        };
        let segment = spare.or_else(any)?;
        self.make_blank(segment);
        self.to_cut(segment, width)
    }

    /// Returns the bytes in a segment of accounts that would fall below their share without them.
    fn protected_bytes(&self, segment: u32, rights: EvictionRights, evictor: TenantAccount) -> u64 {
        let Some(cut) = self.cut_of(segment).filter(|_| rights != EvictionRights::ANY) else {
            return 0;
        };
        let bytes = |(account, slots): (TenantAccount, u64)| {
            let bytes = slots * u64::from(cut.layout.width);
            let may_lose =
                account == evictor || self.tenants.can_lose(TenantTier::Disk, account, bytes);
            if may_lose { 0 } else { bytes }
        };
        cut.holders.iter().map(bytes).sum()
    }

    fn eviction_rights(&self, width: u32, evictor: TenantAccount) -> EvictionRights {
        self.tenants.eviction_rights(TenantTier::Disk, width.into(), evictor)
    }

    /// Evicts a page for another one.
    fn evict_slot(&mut self, place: DiskSlot) {
        let account = entry_of(&self.segments, place).account;
        self.free_slot(place);
        self.given_up += 1;
        self.tenants.count_evictions(TenantTier::Disk, account, 1);
    }

    /// Forgets all pages of a segment, and takes it from its width.
    pub(super) fn make_blank(&mut self, segment: u32) {
        let Some(cut) = self.cut_of(segment) else { return };
        let (width, slots) = (cut.layout.width, cut.entries.len() as u32);
        let before = self.held.pages;
        for (account, slots) in cut.holders.iter() {
            self.tenants.count_evictions(TenantTier::Disk, account, slots);
        }
        for slot in 0..slots {
            self.free_slot(DiskSlot { segment, slot });
        }
        self.given_up += before - self.held.pages;
        if let Some(Some(found)) = self.segments.get_mut(segment as usize) {
            found.cut = None;
        }
        if let Some(class) = self.classes.get_mut(&width) {
            class.segments.retain(|&other| other != segment);
            class.open.retain(|&other| other != segment);
            class.hand = (0, 0);
        }
        self.blank.push(segment);
    }

    /// Finds the page of this width to evict: of the first of these sets that has one.
    fn find_coldest_slot(
        &mut self,
        width: u32,
        judge: &EvictionContext<'_>,
        mut sets: impl Iterator<Item = AccountSet>,
    ) -> Option<DiskSlot> {
        sets.find_map(|allowed| self.find_coldest_of(width, judge, allowed))
    }

    /// Finds the coldest page of these accounts: a clock over the width's slots. Used ones are passed
    /// over, once for each use.
    fn find_coldest_of(
        &mut self,
        width: u32,
        judge: &EvictionContext<'_>,
        allowed: AccountSet,
    ) -> Option<DiskSlot> {
        let mut last_resort = None;
        let (mut steps, mut passed_over) = (0, 0);
        while steps < STEPS_MAX && passed_over < PASSED_OVER_MAX {
            let place = self.next_of(width)?;
            let entry = entry_of(&self.segments, place);
            if !entry.is_live() || entry.pinned_until_s > judge.now_s {
                steps += 1;
                continue;
            }
            if self.is_expired(entry, judge.now_s) {
                return Some(place);
            }
            if !allowed.contains(entry.account) {
                passed_over += 1;
                continue;
            }
            steps += 1;
            last_resort = last_resort.or(Some(place));
            let (uses, key) = (entry.uses, entry.page_key());
            if uses > 0 {
                if let Some(cut) = self.cut_mut(place.segment) {
                    cut.entries[place.slot as usize].uses = uses - 1;
                }
            } else if !(judge.resident)(key) {
                return Some(place);
            }
        }
        last_resort
    }

    /// Returns the next slot under the width's hand.
    fn next_of(&mut self, width: u32) -> Option<DiskSlot> {
        let class = self.classes.get(&width)?;
        let (mut at, mut slot) = class.hand;
        // At most one round: segments without a used slot are skipped.
        for _ in 0..=class.segments.len() {
            let segment = *class.segments.get(at % class.segments.len().max(1))?;
            if self.cut_of(segment).is_some_and(|cut| (slot as usize) < cut.entries.len()) {
                let next = (at % class.segments.len(), slot + 1);
                self.classes.get_mut(&width)?.hand = next;
                return Some(DiskSlot { segment, slot });
            }
            (at, slot) = (at + 1, 0);
        }
        None
    }

    /// Evicts a volume's own pages until one more slot fits its quota, but none of an account that
    /// would fall below its share. Returns false if that is impossible.
    fn keep_quota(
        &mut self,
        volume: u64,
        width: u32,
        judge: &EvictionContext<'_>,
        account: TenantAccount,
    ) -> bool {
        let number = self.volume_number(volume);
        let used = |index: &Self| index.volumes[usize::from(number)].slot_bytes;
        let Some(max) = self.volumes[usize::from(number)].rule.bytes_max else { return true };
        if used(self) + u64::from(width) <= max {
            return true;
        }
        if u64::from(width) > max {
            return false;
        }
        let allowed = self.eviction_rights(width, account).widest_set();
        let (mut last_resort, mut within_shares) = (None, None);
        for _ in 0..QUOTA_STEPS_MAX {
            let Some(place) = self.next_slot(number) else { return false };
            let entry = entry_of(&self.segments, place);
            if !entry.is_live() || entry.volume != number || entry.pinned_until_s > judge.now_s {
                continue;
            }
            if !allowed.contains(entry.account) {
                within_shares.get_or_insert(place);
                continue;
            }
            if entry.uses == 0 {
                self.evict_slot(place);
                if used(self) + u64::from(width) <= max {
                    return true;
                }
            } else if let Some(cut) = self.cut_mut(place.segment) {
                cut.entries[place.slot as usize].uses -= 1;
                last_resort = last_resort.or(Some(place));
            }
        }
        // The volume's pages are few among many. A page in use is then evicted, if it is still
        // there; or one of somebody within its share of the tier, since a quota is within a volume.
        let is_there = |place: &DiskSlot| {
            let entry = entry_of(&self.segments, *place);
            entry.is_live() && entry.volume == number
        };
        let found = last_resort.filter(is_there).or_else(|| within_shares.filter(is_there));
        if let Some(place) = found {
            self.evict_slot(place);
        }
        used(self) + u64::from(width) <= max
    }

    /// Returns the next slot under a volume's hand, in all segments. `None`: there are no slots at
    /// all.
    fn next_slot(&mut self, volume: u16) -> Option<DiskSlot> {
        let (mut segment, mut slot) = self.volumes[usize::from(volume)].hand;
        for _ in 0..=self.segments.len() {
            if self.cut_of(segment).is_some_and(|cut| (slot as usize) < cut.entries.len()) {
                self.volumes[usize::from(volume)].hand = (segment, slot + 1);
                return Some(DiskSlot { segment, slot });
            }
            (segment, slot) = ((segment + 1) % (self.segments.len().max(1) as u32), 0);
        }
        None
    }
}

//! Chooses the pages and segments that are evicted for another page: expired ones, cold ones, and
//! those of accounts that hold more than their share.

use super::folder_index::{FolderIndex, entry_of};
use super::segment_slots::SegmentSlotTable;
use super::slot_table::DiskSlot;
use crate::digest::PageKey;
use crate::tenants::{AccountSet, EvictionRights, TenantAccount, TenantTier};

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
pub(super) enum SegmentWish {
    /// The width has none, or its pages would never get their share: the coldest one, in any case.
    Any,
    /// One that is colder than the width's own.
    Colder,
    /// The width's own pages must stay: one whose pages need not.
    Spare,
}

impl FolderIndex {
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

    /// Evicts a page, of this width if there is one. Returns false if there is none.
    pub(super) fn give_up_any(
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
    pub(super) fn is_due(&mut self, width: u32) -> bool {
        let segment_bytes = self.segment_bytes;
        let Some(class) = self.classes.get_mut(&width) else { return false };
        let due = class.evicted_bytes >= segment_bytes;
        if due {
            class.evicted_bytes = 0;
        }
        due
    }

    /// Empties the segment of another width that was unused for longest, of those that the wish is
    /// for and whose pages need not stay. Returns it.
    pub(super) fn steal_segment(
        &mut self,
        width: u32,
        wish: SegmentWish,
        now_s: u32,
        account: TenantAccount,
    ) -> Option<u32> {
        let touched = |segment: u32| self.cut_of(segment).map(|cut| (cut.touched_s, segment));
        let others = self
            .classes
            .iter()
            .filter(|(other, _)| **other != width)
            .flat_map(|(_, class)| &class.segments);
        let is_free = |segment: u32| {
            let pinned = |cut: &SegmentSlotTable| {
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
        Some(segment)
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

    pub(super) fn eviction_rights(&self, width: u32, evictor: TenantAccount) -> EvictionRights {
        self.tenants.eviction_rights(TenantTier::Disk, width.into(), evictor)
    }

    /// Evicts a page for another one.
    pub(super) fn evict_slot(&mut self, place: DiskSlot) {
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
    pub(super) fn find_coldest_slot(
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
}

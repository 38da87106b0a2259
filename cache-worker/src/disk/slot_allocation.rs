//! Chooses the place for the next page: free slots, new files, the place of cold pages or of a cold
//! segment, in this order. `slot_eviction` knows which are cold.
//!
//! Decides over the index; does no I/O. It returns the disk work that must come first as a
//! `SlotAllocationStep`.

use super::disk_headers::PageHeader;
use super::folder_index::{FolderIndex, SlotWidthClass};
use super::segment_layout::{SegmentLayout, width_for};
use super::segment_slots::{DiskSlotEntry, SegmentSlotTable, grow_entries};
use super::slot_eviction::{EvictionContext, SegmentWish};
use super::slot_table::DiskSlot;
use crate::tenants::{EvictionRights, TenantAccount};

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

impl FolderIndex {
    /// Takes one step towards a slot for the page. Call it again after each step is done.
    pub(super) fn reserve_slot(
        &mut self,
        header: &PageHeader,
        judge: &EvictionContext<'_>,
    ) -> SlotAllocationStep {
        let width = width_for(header.length);
        if self.find_page(header.page_key()).is_some() {
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
            class
                .open
                .iter()
                .any(|&segment| self.cut_of(segment).is_some_and(SegmentSlotTable::has_room))
        };
        let place = !self.blank.is_empty()
            || (may_grow && self.can_grow())
            || self.classes.get(&width_for(length)).is_some_and(open);
        place && self.held.pages < self.pages_max
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
                    cut.entries.push(DiskSlotEntry::new_free());
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
        let steal = |index: &mut Self, wish| {
            let segment = index.steal_segment(width, wish, judge.now_s, account)?;
            index.to_cut(segment, width)
        };
        if compare && let Some(step) = steal(self, wish) {
            return step;
        }
        let rights = self.eviction_rights(width, account);
        let mut found = self.find_coldest_slot(width, judge, rights.first_sets());
        if found.is_none() && rights != EvictionRights::ANY {
            let wishes =
                [Some(SegmentWish::Spare), rights.breaks_up_shares().then_some(SegmentWish::Any)];
            let mut wished = wishes.into_iter().flatten();
            if let Some(step) = wished.find_map(|wish| steal(self, wish)) {
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
}

//! The index of a folder: every slot of every segment. Pages are found by key; pages of first
//! blocks are also found by object.
//!
//! Bookkeeping over numbers: no I/O, no clock; its owner holds a lock around it. `slot_allocation`
//! decides which page is evicted for another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::disk_headers::PageHeader;
use super::segment_layout::SegmentLayout;
use super::segment_slots::{
    DiskSlotEntry, IndexedSegment, SegmentSlotTable, USES_MAX, grow_entries, object_hash, page_hash,
};
use super::slot_table::{DiskSlot, DiskSlotTable};
use super::volume_quota::{VolumeQuotaRule, VolumeUse};
use crate::digest::PageKey;
use crate::memory::PageHeat;
use crate::tenants::{AccountHoldings, TenantAccount, TenantAccounts, TenantTier};

/// The segments of one width.
#[derive(Default)]
pub(super) struct SlotWidthClass {
    pub(super) segments: Vec<u32>,
    pub(super) open: Vec<u32>,
    /// Where the search for a page to evict continues: place in `segments`, slot.
    pub(super) hand: (usize, u32),
    /// Bytes evicted since the width was last compared with others.
    pub(super) evicted_bytes: u64,
}

/// The location of a page on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskPageLocation {
    pub(super) place: DiskSlot,
    pub(super) at: u64,
    pub(super) length: u32,
    pub(super) checksum: u64,
    pub(super) stamp: u32,
}

/// The usage of a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FolderUsage {
    pub(super) pages: u64,
    pub(super) bytes: u64,
    /// Bytes of all segment files.
    pub(super) file_bytes: u64,
    pub(super) pinned_pages: u64,
}

pub(super) struct FolderIndex {
    /// Segments by number; `None`: no such file.
    pub(super) segments: Vec<Option<IndexedSegment>>,
    pub(super) classes: HashMap<u32, SlotWidthClass>,
    /// Segments that belong to no width.
    pub(super) blank: Vec<u32>,
    pages: DiskSlotTable,
    objects: DiskSlotTable,
    pub(super) volumes: Vec<VolumeUse>,
    volume_numbers: HashMap<u64, u16>,
    pub(super) rules: HashMap<u64, VolumeQuotaRule>,
    pub(super) default_rule: VolumeQuotaRule,
    pub(super) held: FolderUsage,
    pub(super) capacity_bytes: u64,
    pub(super) pages_max: u64,
    /// Size of segments that are created from now on.
    pub(super) segment_bytes: u64,
    /// Where the search for expired pages continues.
    pub(super) sweep_at: (usize, usize),
    /// Pages evicted for others since this was last taken.
    pub(super) given_up: u64,
    /// Count the bytes of slots, as wide as they are.
    pub(super) tenants: Arc<TenantAccounts>,
}

/// Volumes that are kept apart. Further volumes share the last number and its quota. Bounds the
/// list, whatever garbage is on a disk.
const VOLUMES_MAX: usize = 4096;

impl FolderIndex {
    pub(super) fn new(
        capacity_bytes: u64,
        segment_bytes: u64,
        default_rule: VolumeQuotaRule,
        rules: HashMap<u64, VolumeQuotaRule>,
    ) -> Self {
        Self {
            segments: Vec::new(),
            classes: HashMap::new(),
            blank: Vec::new(),
            pages: DiskSlotTable::default(),
            objects: DiskSlotTable::default(),
            volumes: Vec::new(),
            volume_numbers: HashMap::new(),
            rules,
            default_rule,
            held: FolderUsage::default(),
            capacity_bytes,
            pages_max: u64::MAX,
            segment_bytes,
            sweep_at: (0, 0),
            given_up: 0,
            tenants: Arc::default(),
        }
    }

    /// Adds an empty file.
    pub(super) fn add_segment(&mut self, segment: u32, bytes: u64) {
        let at = segment as usize;
        if self.segments.len() <= at {
            self.segments.resize_with(at + 1, || None);
        }
        self.segments[at] = Some(IndexedSegment { bytes, cut: None });
        self.held.file_bytes += bytes;
        self.blank.push(segment);
    }

    /// Assigns a blank segment to a width.
    pub(super) fn cut_segment(
        &mut self,
        segment: u32,
        layout: SegmentLayout,
        era: u32,
        now_s: u32,
    ) {
        self.blank.retain(|&blank| blank != segment);
        let Some(Some(found)) = self.segments.get_mut(segment as usize) else { return };
        let cut = SegmentSlotTable {
            layout,
            era,
            entries: Vec::new(),
            free: Vec::new(),
            open: true,
            touched_s: now_s,
            holders: AccountHoldings::default(),
        };
        found.cut = Some(cut);
        let class = self.classes.entry(layout.width).or_default();
        class.segments.push(segment);
        class.open.push(segment);
    }

    /// Adds a page that was found at startup. Of two copies, the one that was written last is kept.
    pub(super) fn restore_page(&mut self, segment: u32, slot: u32, header: &PageHeader) {
        let place = DiskSlot { segment, slot };
        let Some(cut) = self.cut_mut(segment) else { return };
        while cut.entries.len() <= slot as usize {
            if (cut.entries.len() as u32) < slot {
                cut.free.push(cut.entries.len() as u32);
            }
            grow_entries(&mut cut.entries);
            cut.entries.push(DiskSlotEntry::new_free());
        }
        if let Some(found) = self.find_page(header.page_key()) {
            // Wrapping: sequence numbers of one page are never 2³¹ apart in practice, and either
            // copy has the right bytes.
            if (header.sequence as u32).wrapping_sub(found.stamp) as i32 <= 0 {
                if let Some(cut) = self.cut_mut(segment) {
                    cut.free.push(slot);
                }
                return;
            }
            self.free_slot(found.place);
        }
        if self.held.pages >= self.pages_max {
            if let Some(cut) = self.cut_mut(segment) {
                cut.free.push(slot);
            }
            return;
        }
        self.fill_slot(place, header);
        self.commit_page(place, header);
    }

    /// Fills in a slot that is about to be written.
    pub(super) fn fill_slot(&mut self, place: DiskSlot, header: &PageHeader) {
        let volume = self.volume_number(header.volume);
        let account = self.tenants.account_of_hash(header.tenant);
        let Some(cut) = self.cut_mut(place.segment) else { return };
        let width = u64::from(cut.layout.width);
        let Some(entry) = cut.entries.get_mut(place.slot as usize) else { return };
        *entry = DiskSlotEntry {
            version: [header.version as u64, (header.version >> 64) as u64],
            object: header.object,
            checksum: header.checksum,
            block: header.block,
            length: header.length,
            stamp: header.sequence as u32,
            written_s: header.written_s,
            used_s: header.written_s,
            pinned_until_s: header.pinned_until_s,
            page: header.page,
            volume,
            uses: 0,
            writing: true,
            account,
        };
        cut.holders.add_amount(account, 1);
        self.volumes[usize::from(volume)].slot_bytes += width;
        self.tenants.add_held(TenantTier::Disk, account, width);
    }

    /// Makes the page findable.
    pub(super) fn commit_page(&mut self, place: DiskSlot, header: &PageHeader) {
        let Some(cut) = self.cut_mut(place.segment) else { return };
        cut.touched_s = cut.touched_s.max(header.written_s);
        let Some(entry) = cut.entries.get_mut(place.slot as usize) else { return };
        entry.writing = false;
        let (key, object) = (entry.page_key(), entry.object_hash());
        self.held.pages += 1;
        self.held.bytes += u64::from(header.length);
        self.held.pinned_pages += u64::from(header.pinned_until_s > 0);
        let segments = &self.segments;
        self.pages
            .insert(page_hash(key), place, |place| page_hash(entry_of(segments, place).page_key()));
        if let Some(hash) = object {
            self.objects.insert(hash, place, |place| {
                entry_of(segments, place).object_hash().unwrap_or_default()
            });
        }
    }

    pub(super) fn find_page(&self, key: PageKey) -> Option<DiskPageLocation> {
        let place = self
            .pages
            .find_slot(page_hash(key), |place| entry_of(&self.segments, place).page_key() == key)?;
        let cut = self.cut_of(place.segment)?;
        let entry = cut.entries.get(place.slot as usize)?;
        Some(DiskPageLocation {
            place,
            at: cut.layout.data_at(place.slot),
            length: entry.length,
            checksum: entry.checksum,
            stamp: entry.stamp,
        })
    }

    /// Finds a page as `find_page` does, unless it has expired.
    pub(super) fn find_fresh(&self, key: PageKey, now_s: u32) -> Option<DiskPageLocation> {
        self.find_page(key)
            .filter(|found| !self.is_expired(entry_of(&self.segments, found.place), now_s))
    }

    /// Returns how hot an unexpired page is, and whether it is pinned.
    pub(super) fn page_heat(&self, key: PageKey, now_s: u32) -> Option<(PageHeat, bool)> {
        let entry = entry_of(&self.segments, self.find_fresh(key, now_s)?.place);
        let heat = PageHeat { uses: entry.uses, idle_s: now_s.saturating_sub(entry.used_s) };
        Some((heat, entry.pinned_until_s > now_s))
    }

    /// Returns whether some version of the object has this page of its first block here.
    pub(super) fn knows_object_page(&self, object: u64, page: u16) -> bool {
        let is = |entry: &DiskSlotEntry| {
            entry.object == object && entry.page == page && entry.block == 0
        };
        self.objects
            .find_slot(object_hash(object, page), |place| is(entry_of(&self.segments, place)))
            .is_some()
    }

    /// Counts a use by that account.
    pub(super) fn touch_page(&mut self, place: DiskSlot, now_s: u32, user: TenantAccount) {
        let tenants = self.tenants.clone();
        let Some(cut) = self.cut_mut(place.segment) else { return };
        cut.touched_s = cut.touched_s.max(now_s);
        let width = u64::from(cut.layout.width);
        let Some(entry) = cut.entries.get_mut(place.slot as usize) else { return };
        entry.uses = (entry.uses + 1).min(USES_MAX);
        entry.used_s = now_s;
        let owner = entry.account;
        if entry.length > 0 && tenants.passes_to(TenantTier::Disk, owner, user, width) {
            entry.account = user;
            cut.holders.remove_amount(owner, 1);
            cut.holders.add_amount(user, 1);
            tenants.take_held(TenantTier::Disk, owner, width);
            tenants.add_held(TenantTier::Disk, user, width);
        }
    }

    /// Forgets a page, if it is still the one in `found`. Returns false if the slot now holds
    /// another page, or none.
    pub(super) fn remove_if_still(&mut self, found: DiskPageLocation) -> bool {
        let entry = self
            .cut_of(found.place.segment)
            .and_then(|cut| cut.entries.get(found.place.slot as usize));
        let still = entry.is_some_and(|entry| entry.is_live() && entry.stamp == found.stamp);
        if still {
            self.free_slot(found.place);
        }
        still
    }

    /// Forgets the page in a slot, and frees the slot.
    pub(super) fn free_slot(&mut self, place: DiskSlot) {
        let entry = entry_of(&self.segments, place);
        if entry.length == 0 {
            return;
        }
        if !entry.writing {
            let (key, object) = (entry.page_key(), entry.object_hash());
            self.held.pages -= 1;
            self.held.bytes -= u64::from(entry.length);
            self.held.pinned_pages -= u64::from(entry.pinned_until_s > 0);
            self.pages.remove(page_hash(key), place);
            if let Some(hash) = object {
                self.objects.remove(hash, place);
            }
        }
        let (volume, account) = (usize::from(entry.volume), entry.account);
        let Some(cut) = self.cut_mut(place.segment) else { return };
        let width = cut.layout.width;
        cut.entries[place.slot as usize] = DiskSlotEntry::new_free();
        cut.holders.remove_amount(account, 1);
        cut.free.push(place.slot);
        let opens = !std::mem::replace(&mut cut.open, true);
        self.volumes[volume].slot_bytes -= u64::from(width);
        self.tenants.take_held(TenantTier::Disk, account, width.into());
        if opens && let Some(class) = self.classes.get_mut(&width) {
            class.open.push(place.segment);
        }
    }

    /// Pins a page until that time, or later if an earlier call asked for that; 0 unpins it.
    pub(super) fn pin_page(&mut self, place: DiskSlot, until_s: u32) {
        let Some(cut) = self.cut_mut(place.segment) else { return };
        let Some(entry) = cut.entries.get_mut(place.slot as usize) else { return };
        let before = entry.pinned_until_s;
        entry.pinned_until_s = if until_s == 0 { 0 } else { until_s.max(before) };
        self.held.pinned_pages -= u64::from(before > 0);
        self.held.pinned_pages += u64::from(until_s > 0);
    }

    /// Builds the header of a page that is here, under a new sequence number.
    pub(super) fn renew_header(&mut self, place: DiskSlot, sequence: u64) -> Option<PageHeader> {
        let DiskSlotEntry { volume, account, .. } = *entry_of(&self.segments, place);
        let volume = self.volumes[usize::from(volume)].hash;
        let tenant = self.tenants.stored_hash(account);
        let entry = self.cut_mut(place.segment)?.entries.get_mut(place.slot as usize)?;
        entry.stamp = sequence as u32;
        Some(PageHeader {
            version: entry.version(),
            object: entry.object,
            volume,
            block: entry.block,
            page: entry.page,
            length: entry.length,
            checksum: entry.checksum,
            sequence,
            written_s: entry.written_s,
            pinned_until_s: entry.pinned_until_s,
            tenant,
        })
    }

    pub(super) fn is_expired(&self, entry: &DiskSlotEntry, now_s: u32) -> bool {
        let rule = &self.volumes[usize::from(entry.volume)].rule;
        let max = rule.age_max.or(self.default_rule.age_max);
        let age = Duration::from_secs(u64::from(now_s.saturating_sub(entry.written_s)));
        entry.pinned_until_s <= now_s && max.is_some_and(|max| age > max)
    }

    pub(super) fn cut_of(&self, segment: u32) -> Option<&SegmentSlotTable> {
        self.segments.get(segment as usize)?.as_ref()?.cut.as_ref()
    }

    pub(super) fn cut_mut(&mut self, segment: u32) -> Option<&mut SegmentSlotTable> {
        self.segments.get_mut(segment as usize)?.as_mut()?.cut.as_mut()
    }

    /// Returns the number of a volume. A new volume gets one.
    pub(super) fn volume_number(&mut self, hash: u64) -> u16 {
        if let Some(&number) = self.volume_numbers.get(&hash) {
            return number;
        }
        if self.volumes.len() >= VOLUMES_MAX {
            return (self.volumes.len() - 1) as u16;
        }
        let rule = self.rules.get(&hash).copied().unwrap_or_default();
        self.volumes.push(VolumeUse { hash, rule, slot_bytes: 0, hand: (0, 0) });
        let number = (self.volumes.len() - 1) as u16;
        self.volume_numbers.insert(hash, number);
        number
    }

    /// Returns the memory that the index takes.
    pub(super) fn index_bytes(&self) -> u64 {
        let cut = |cut: &SegmentSlotTable| {
            cut.entries.capacity() * size_of::<DiskSlotEntry>() + cut.free.capacity() * 4
        };
        let slots: usize = self
            .segments
            .iter()
            .flatten()
            .filter_map(|segment| segment.cut.as_ref())
            .map(cut)
            .sum();
        let volumes = self.volumes.capacity() * size_of::<VolumeUse>();
        (slots + volumes + self.pages.allocated_bytes() + self.objects.allocated_bytes()) as u64
    }
}

/// Returns the entry that a table's place points to. A place is in a table only while its slot
/// exists.
pub(super) fn entry_of(segments: &[Option<IndexedSegment>], place: DiskSlot) -> &DiskSlotEntry {
    let cut = segments[place.segment as usize].as_ref().and_then(|segment| segment.cut.as_ref());
    &cut.expect("a place that is known lies in a segment that is cut").entries[place.slot as usize]
}

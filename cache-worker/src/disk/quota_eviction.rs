//! Chooses what is evicted of a volume that has used up its bytes.

use super::folder_index::{FolderIndex, entry_of};
use super::slot_eviction::EvictionContext;
use super::slot_table::DiskSlot;
use crate::tenants::TenantAccount;

/// Slots that a search looks at for a volume over its quota, whose pages may be few among many.
const QUOTA_STEPS_MAX: usize = 8192;

impl FolderIndex {
    /// Evicts a volume's own pages until one more slot fits its quota, but none of an account that
    /// would fall below its share. Returns false if that is impossible.
    pub(super) fn keep_quota(
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

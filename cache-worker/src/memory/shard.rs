//! One shard of the index: finds pages, and evicts the coldest by S3-FIFO (Yang et al., SOSP 2023).
//!
//! New pages enter a small list, a tenth of the bytes. Used pages move on to the main list; the
//! others leave first. A scan of a large data set therefore passes through without evicting pages
//! that are read again. A page that a reader holds is skipped: its eviction would free no memory
//! now.

use hashbrown::HashTable;
use verbs3_rdma::arena::{CellReader, ExtentId};

use super::ghost_fingerprints::GhostFingerprints;
use super::page_list::ShardPageList;
use super::slab::{EvictionQueue, MemoryPageEntry, NONE, PageEntrySlab, split_key};
use super::{CachedPage, DemotionEvidence, PageHeat};
use crate::digest::PageKey;

/// The outcome of a search for a page to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictionOutcome {
    Page,
    Nothing,
}

/// Entries that one search looks at. After that, the first page that can be freed goes, however
/// often it was used.
const STEPS_MAX: usize = 64;

/// The small list's share of the bytes: 1 in 10, as in the paper.
const SMALL_SHARE: u64 = 10;

const USES_MAX: u8 = 3;

pub(super) struct MemoryTierShard {
    table: HashTable<u32>,
    slab: PageEntrySlab,
    small: ShardPageList,
    main: ShardPageList,
    ghosts: GhostFingerprints,
    /// The first entry of each extent's list.
    extents: Vec<u32>,
    /// Where the search for idle pages continues.
    sweep_at: u32,
}

impl MemoryTierShard {
    pub(super) fn new(ghosts: usize) -> Self {
        Self {
            table: HashTable::new(),
            slab: PageEntrySlab::default(),
            small: ShardPageList::default(),
            main: ShardPageList::default(),
            ghosts: GhostFingerprints::new(ghosts),
            extents: Vec::new(),
            sweep_at: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.small.total_bytes() + self.main.total_bytes()
    }

    pub(super) fn get(
        &mut self,
        key: PageKey,
        now_s: u32,
    ) -> Option<(CachedPage, Option<DemotionEvidence>)> {
        let slot = self.find_entry(key)?;
        let entry = self.slab.get_mut(slot);
        entry.uses = (entry.uses + 1).min(USES_MAX);
        entry.used_s = now_s;
        let cell = entry.cell.clone()?;
        let unsaved = (!entry.saved).then_some(DemotionEvidence {
            uses: entry.uses,
            returned: entry.queue == EvictionQueue::Main,
        });
        Some((CachedPage { cell, bytes: entry.bytes, checksum: entry.checksum }, unsaved))
    }

    pub(super) fn peek_page(&self, key: PageKey) -> Option<CachedPage> {
        let entry = self.slab.get(self.find_entry(key)?);
        let cell = entry.cell.clone()?;
        Some(CachedPage { cell, bytes: entry.bytes, checksum: entry.checksum })
    }

    pub(super) fn mark_saved(&mut self, key: PageKey) {
        if let Some(slot) = self.find_entry(key) {
            self.slab.get_mut(slot).saved = true;
        }
    }

    pub(super) fn holds_page(&self, key: PageKey) -> bool {
        self.find_entry(key).is_some()
    }

    pub(super) fn page_heat(&self, key: PageKey, now_s: u32) -> Option<PageHeat> {
        let entry = self.slab.get(self.find_entry(key)?);
        Some(PageHeat { uses: entry.uses, idle_s: now_s.saturating_sub(entry.used_s) })
    }

    /// Drops a page, and returns whether it was there.
    pub(super) fn drop_page(&mut self, key: PageKey) -> bool {
        let found = self.find_entry(key);
        found.inspect(|&slot| self.remove_entry(slot)).is_some()
    }

    /// Inserts a page, and returns whether it was here before, not long ago.
    pub(super) fn insert_page(&mut self, key: PageKey, page: CachedPage, now_s: u32) -> bool {
        if self.holds_page(key) {
            return false;
        }
        let key = split_key(key.0);
        let queue =
            if self.ghosts.recall_page(key) { EvictionQueue::Main } else { EvictionQueue::Small };
        let extent = page.cell.extent_id();
        let slot = self.slab.insert(MemoryPageEntry {
            key,
            cell: Some(page.cell),
            checksum: page.checksum,
            bytes: page.bytes,
            used_s: now_s,
            newer: NONE,
            older: NONE,
            extent_next: NONE,
            extent_previous: NONE,
            queue,
            uses: 0,
            saved: false,
        });
        let (list, slab) = self.select_list(queue);
        list.push(slab, slot);
        self.link_extent(slot, extent);
        let Self { table, slab, .. } = self;
        table.insert_unique(key[0], slot, |&slot| slab.get(slot).key[0]);
        queue == EvictionQueue::Main
    }

    /// Evicts one page.
    pub(super) fn evict_coldest(&mut self) -> EvictionOutcome {
        let mut last_resort = None;
        for _ in 0..STEPS_MAX.min(2 * self.len()) {
            let Some(slot) = self.next_candidate() else { return EvictionOutcome::Nothing };
            let entry = self.slab.get_mut(slot);
            let (queue, uses) = (entry.queue, entry.uses);
            if entry.cell.as_ref().is_some_and(CellReader::is_shared) {
                self.requeue_entry(slot, queue);
                continue;
            }
            if uses == 0 {
                self.give_up(slot, queue);
                return EvictionOutcome::Page;
            }
            entry.uses = if queue == EvictionQueue::Small { 0 } else { uses - 1 };
            last_resort.get_or_insert(slot);
            self.requeue_entry(slot, EvictionQueue::Main);
        }
        // Every entry in reach is used again and again, so the oldest goes.
        match last_resort {
            Some(slot) if !self.is_held_by_reader(slot) => {
                let queue = self.slab.get_mut(slot).queue;
                self.give_up(slot, queue);
                EvictionOutcome::Page
            }
            _ => EvictionOutcome::Nothing,
        }
    }

    /// Evicts every page of an extent that no reader holds.
    pub(super) fn empty_extent(&mut self, extent: ExtentId) -> usize {
        let mut slot = self.extents.get(extent.0 as usize).copied().unwrap_or(NONE);
        let mut evicted = 0;
        while slot != NONE {
            let next = self.slab.get_mut(slot).extent_next;
            if !self.is_held_by_reader(slot) {
                self.remove_entry(slot);
                evicted += 1;
            }
            slot = next;
        }
        evicted
    }

    /// Evicts pages among the next `steps` entries that were not used since `cutoff_s`.
    pub(super) fn sweep_idle(&mut self, cutoff_s: u32, steps: usize) -> usize {
        let mut evicted = 0;
        for _ in 0..steps.min(self.slab.end_index() as usize) {
            let slot = self.sweep_at;
            self.sweep_at = (slot + 1) % self.slab.end_index();
            let entry = self.slab.get_mut(slot);
            if entry.cell.is_some() && entry.used_s < cutoff_s && !self.is_held_by_reader(slot) {
                self.remove_entry(slot);
                evicted += 1;
            }
        }
        evicted
    }

    fn find_entry(&self, key: PageKey) -> Option<u32> {
        let key = split_key(key.0);
        self.table.find(key[0], |&slot| self.slab.get(slot).key == key).copied()
    }

    fn is_held_by_reader(&self, slot: u32) -> bool {
        self.slab.get(slot).cell.as_ref().is_some_and(CellReader::is_shared)
    }

    fn next_candidate(&self) -> Option<u32> {
        let small_is_large = self.small.total_bytes() * SMALL_SHARE > self.total_bytes();
        let (first, second) =
            if small_is_large { (&self.small, &self.main) } else { (&self.main, &self.small) };
        first.oldest_entry().or_else(|| second.oldest_entry())
    }

    fn requeue_entry(&mut self, slot: u32, to: EvictionQueue) {
        let from = self.slab.get_mut(slot).queue;
        let (list, slab) = self.select_list(from);
        list.unlink_entry(slab, slot);
        self.slab.get_mut(slot).queue = to;
        let (list, slab) = self.select_list(to);
        list.push(slab, slot);
    }

    fn give_up(&mut self, slot: u32, queue: EvictionQueue) {
        if queue == EvictionQueue::Small {
            let key = self.slab.get_mut(slot).key;
            self.ghosts.remember_page(key);
        }
        self.remove_entry(slot);
    }

    fn remove_entry(&mut self, slot: u32) {
        let entry = self.slab.get_mut(slot);
        let (queue, hash) = (entry.queue, entry.key[0]);
        let (list, slab) = self.select_list(queue);
        list.unlink_entry(slab, slot);
        self.unlink_extent(slot);
        if let Ok(found) = self.table.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        drop(self.slab.remove(slot));
    }

    fn select_list(&mut self, queue: EvictionQueue) -> (&mut ShardPageList, &mut PageEntrySlab) {
        match queue {
            EvictionQueue::Small => (&mut self.small, &mut self.slab),
            EvictionQueue::Main => (&mut self.main, &mut self.slab),
        }
    }

    fn link_extent(&mut self, slot: u32, extent: ExtentId) {
        let extent = extent.0 as usize;
        if self.extents.len() <= extent {
            self.extents.resize(extent + 1, NONE);
        }
        let head = std::mem::replace(&mut self.extents[extent], slot);
        self.slab.get_mut(slot).extent_next = head;
        if head != NONE {
            self.slab.get_mut(head).extent_previous = slot;
        }
    }

    fn unlink_extent(&mut self, slot: u32) {
        let entry = self.slab.get_mut(slot);
        let (previous, next) = (entry.extent_previous, entry.extent_next);
        let extent = entry.cell.as_ref().map(|cell| cell.extent_id().0 as usize);
        if next != NONE {
            self.slab.get_mut(next).extent_previous = previous;
        }
        if previous != NONE {
            self.slab.get_mut(previous).extent_next = next;
        } else if let Some(extent) = extent {
            self.extents[extent] = next;
        }
    }

    #[cfg(test)]
    pub(super) fn index_bytes(&self) -> usize {
        self.slab.allocated_bytes() + self.table.allocation_size() + self.extents.capacity() * 4
    }
}

//! One shard of the index: finds pages, and gives up the coldest by S3-FIFO (Yang et al., SOSP
//! 2023).
//!
//! New pages enter a small list, a tenth of the bytes; used ones move on to the main list, the
//! others leave first, so that a scan of a large data set passes by without driving out what is
//! read again. A page that a reader holds is skipped: giving it up would free no memory now.

use hashbrown::HashTable;
use verbs3_rdma::arena::{CellReader, ExtentId};

use super::ghost::Ghosts;
use super::queue::List;
use super::slab::{Entry, NONE, Queue, Slab, halves};
use super::{Heat, Page, Unsaved};
use crate::digest::PageKey;

/// What a search for a page to give up came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evicted {
    Page,
    Nothing,
}

/// Entries looked at in one search. After as many, the first page that can be freed goes, however
/// often it was used.
const STEPS_MAX: usize = 64;

/// The small list's share of the bytes: 1 in 10, as the paper has it.
const SMALL_SHARE: u64 = 10;

const USES_MAX: u8 = 3;

pub(super) struct Shard {
    table: HashTable<u32>,
    slab: Slab,
    small: List,
    main: List,
    ghosts: Ghosts,
    /// First entry of each extent's list.
    extents: Vec<u32>,
    /// Where the search for idle pages goes on.
    sweep_at: u32,
}

impl Shard {
    pub(super) fn new(ghosts: usize) -> Self {
        Self {
            table: HashTable::new(),
            slab: Slab::default(),
            small: List::default(),
            main: List::default(),
            ghosts: Ghosts::new(ghosts),
            extents: Vec::new(),
            sweep_at: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.small.bytes() + self.main.bytes()
    }

    pub(super) fn get(&mut self, key: PageKey, now_s: u32) -> Option<(Page, Option<Unsaved>)> {
        let slot = self.find(key)?;
        let entry = self.slab.at(slot);
        entry.uses = (entry.uses + 1).min(USES_MAX);
        entry.used_s = now_s;
        let cell = entry.cell.clone()?;
        let unsaved = (!entry.saved)
            .then_some(Unsaved { uses: entry.uses, returned: entry.queue == Queue::Main });
        Some((Page { cell, bytes: entry.bytes, checksum: entry.checksum }, unsaved))
    }

    pub(super) fn peek(&self, key: PageKey) -> Option<Page> {
        let entry = self.slab.get(self.find(key)?);
        let cell = entry.cell.clone()?;
        Some(Page { cell, bytes: entry.bytes, checksum: entry.checksum })
    }

    pub(super) fn saved(&mut self, key: PageKey) {
        if let Some(slot) = self.find(key) {
            self.slab.at(slot).saved = true;
        }
    }

    pub(super) fn holds(&self, key: PageKey) -> bool {
        self.find(key).is_some()
    }

    pub(super) fn heat(&self, key: PageKey, now_s: u32) -> Option<Heat> {
        let entry = self.slab.get(self.find(key)?);
        Some(Heat { uses: entry.uses, idle_s: now_s.saturating_sub(entry.used_s) })
    }

    /// Whether it was there.
    pub(super) fn drop_page(&mut self, key: PageKey) -> bool {
        let found = self.find(key);
        found.inspect(|&slot| self.remove(slot)).is_some()
    }

    /// Whether the page was here before, not long ago.
    pub(super) fn insert(&mut self, key: PageKey, page: Page, now_s: u32) -> bool {
        if self.holds(key) {
            return false;
        }
        let key = halves(key.0);
        let queue = if self.ghosts.recall(key) { Queue::Main } else { Queue::Small };
        let extent = page.cell.extent();
        let slot = self.slab.add(Entry {
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
        let (list, slab) = self.list(queue);
        list.push(slab, slot);
        self.link_extent(slot, extent);
        let Self { table, slab, .. } = self;
        table.insert_unique(key[0], slot, |&slot| slab.get(slot).key[0]);
        queue == Queue::Main
    }

    /// Gives up one page.
    pub(super) fn evict(&mut self) -> Evicted {
        let mut last_resort = None;
        for _ in 0..STEPS_MAX.min(2 * self.len()) {
            let Some(slot) = self.next_candidate() else { return Evicted::Nothing };
            let entry = self.slab.at(slot);
            let (queue, uses) = (entry.queue, entry.uses);
            if entry.cell.as_ref().is_some_and(CellReader::is_shared) {
                self.requeue(slot, queue);
                continue;
            }
            if uses == 0 {
                self.give_up(slot, queue);
                return Evicted::Page;
            }
            entry.uses = if queue == Queue::Small { 0 } else { uses - 1 };
            last_resort.get_or_insert(slot);
            self.requeue(slot, Queue::Main);
        }
        // Every entry in reach is in use again and again: age, then, decides.
        match last_resort {
            Some(slot) if !self.is_held_by_reader(slot) => {
                let queue = self.slab.at(slot).queue;
                self.give_up(slot, queue);
                Evicted::Page
            }
            _ => Evicted::Nothing,
        }
    }

    /// Gives up every page of an extent that no reader holds.
    pub(super) fn empty(&mut self, extent: ExtentId) -> usize {
        let mut slot = self.extents.get(extent.0 as usize).copied().unwrap_or(NONE);
        let mut evicted = 0;
        while slot != NONE {
            let next = self.slab.at(slot).extent_next;
            if !self.is_held_by_reader(slot) {
                self.remove(slot);
                evicted += 1;
            }
            slot = next;
        }
        evicted
    }

    /// Looks at the next `steps` entries for pages that were not used since `cutoff_s`.
    pub(super) fn sweep_idle(&mut self, cutoff_s: u32, steps: usize) -> usize {
        let mut evicted = 0;
        for _ in 0..steps.min(self.slab.end() as usize) {
            let slot = self.sweep_at;
            self.sweep_at = (slot + 1) % self.slab.end();
            let entry = self.slab.at(slot);
            if entry.cell.is_some() && entry.used_s < cutoff_s && !self.is_held_by_reader(slot) {
                self.remove(slot);
                evicted += 1;
            }
        }
        evicted
    }

    fn find(&self, key: PageKey) -> Option<u32> {
        let key = halves(key.0);
        self.table.find(key[0], |&slot| self.slab.get(slot).key == key).copied()
    }

    fn is_held_by_reader(&self, slot: u32) -> bool {
        self.slab.get(slot).cell.as_ref().is_some_and(CellReader::is_shared)
    }

    fn next_candidate(&self) -> Option<u32> {
        let small_is_large = self.small.bytes() * SMALL_SHARE > self.bytes();
        let (first, second) =
            if small_is_large { (&self.small, &self.main) } else { (&self.main, &self.small) };
        first.oldest().or_else(|| second.oldest())
    }

    fn requeue(&mut self, slot: u32, to: Queue) {
        let from = self.slab.at(slot).queue;
        let (list, slab) = self.list(from);
        list.unlink(slab, slot);
        self.slab.at(slot).queue = to;
        let (list, slab) = self.list(to);
        list.push(slab, slot);
    }

    fn give_up(&mut self, slot: u32, queue: Queue) {
        if queue == Queue::Small {
            let key = self.slab.at(slot).key;
            self.ghosts.remember(key);
        }
        self.remove(slot);
    }

    fn remove(&mut self, slot: u32) {
        let entry = self.slab.at(slot);
        let (queue, hash) = (entry.queue, entry.key[0]);
        let (list, slab) = self.list(queue);
        list.unlink(slab, slot);
        self.unlink_extent(slot);
        if let Ok(found) = self.table.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        drop(self.slab.remove(slot));
    }

    fn list(&mut self, queue: Queue) -> (&mut List, &mut Slab) {
        match queue {
            Queue::Small => (&mut self.small, &mut self.slab),
            Queue::Main => (&mut self.main, &mut self.slab),
        }
    }

    fn link_extent(&mut self, slot: u32, extent: ExtentId) {
        let extent = extent.0 as usize;
        if self.extents.len() <= extent {
            self.extents.resize(extent + 1, NONE);
        }
        let head = std::mem::replace(&mut self.extents[extent], slot);
        self.slab.at(slot).extent_next = head;
        if head != NONE {
            self.slab.at(head).extent_previous = slot;
        }
    }

    fn unlink_extent(&mut self, slot: u32) {
        let entry = self.slab.at(slot);
        let (previous, next) = (entry.extent_previous, entry.extent_next);
        let extent = entry.cell.as_ref().map(|cell| cell.extent().0 as usize);
        if next != NONE {
            self.slab.at(next).extent_previous = previous;
        }
        if previous != NONE {
            self.slab.at(previous).extent_next = next;
        } else if let Some(extent) = extent {
            self.extents[extent] = next;
        }
    }

    #[cfg(test)]
    pub(super) fn index_bytes(&self) -> usize {
        self.slab.allocated_bytes() + self.table.allocation_size() + self.extents.capacity() * 4
    }
}

//! One shard of the index: finds pages, and evicts the coldest by S3-FIFO (Yang et al., SOSP 2023).
//!
//! New pages enter a small list, a tenth of the bytes. Used pages move on to the main list; the
//! others leave first. A scan of a large data set therefore passes through without evicting pages
//! that are read again. A page that a reader holds is skipped: its eviction would free no memory
//! now.
//!
//! Each account has lists of its own, so that pages of an account that must not lose any are passed
//! over at once. A count of the moves puts all lists into one order: with all accounts allowed, it
//! is the order of one list.

use std::sync::Arc;

use hashbrown::HashTable;
use verbs3_rdma::arena::{Arena, CellReader, ExtentId};

use super::ghost_fingerprints::GhostFingerprints;
use super::page_list::ShardPageList;
use super::slab::{DiskStanding, EvictionQueue, MemoryPageEntry, NONE, PageEntrySlab, split_key};
use super::{CachedPage, PageHeat, SaveEvidence};
use crate::digest::PageKey;
use crate::tenants::{AccountHoldings, AccountSet, TenantAccount, TenantAccounts, TenantTier};

/// The two lists of an account.
#[derive(Default)]
struct AccountPageLists {
    small: ShardPageList,
    main: ShardPageList,
}

impl AccountPageLists {
    fn list(&self, queue: EvictionQueue) -> &ShardPageList {
        match queue {
            EvictionQueue::Small => &self.small,
            EvictionQueue::Main => &self.main,
        }
    }

    fn list_mut(&mut self, queue: EvictionQueue) -> &mut ShardPageList {
        match queue {
            EvictionQueue::Small => &mut self.small,
            EvictionQueue::Main => &mut self.main,
        }
    }
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
    /// By account, up to the last one that has had a page here.
    lists: Vec<AccountPageLists>,
    /// Moves into a list so far.
    moves: u32,
    tenants: Arc<TenantAccounts>,
    /// Says how wide the cell of a page is. An account pays for the cell.
    arena: Arena,
    ghosts: GhostFingerprints,
    /// The first entry of each extent's list.
    extents: Vec<u32>,
    /// Where the search for idle pages continues.
    sweep_at: u32,
    /// Entries that are parts of pages, and their bytes.
    parts: u64,
    part_bytes: u64,
}

/// How a page comes into the index.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageArrival {
    pub(super) now_s: u32,
    pub(super) account: TenantAccount,
    pub(super) standing: DiskStanding,
}

impl MemoryTierShard {
    pub(super) fn new(ghosts: usize, arena: Arena, tenants: Arc<TenantAccounts>) -> Self {
        Self {
            table: HashTable::new(),
            slab: PageEntrySlab::default(),
            lists: Vec::new(),
            moves: 0,
            tenants,
            arena,
            ghosts: GhostFingerprints::new(ghosts),
            extents: Vec::new(),
            sweep_at: 0,
            parts: 0,
            part_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns how many entries are parts of pages, and their bytes.
    pub(super) fn part_totals(&self) -> (u64, u64) {
        (self.parts, self.part_bytes)
    }

    pub(super) fn total_bytes(&self) -> u64 {
        let bytes = |lists: &AccountPageLists| lists.small.total_bytes() + lists.main.total_bytes();
        self.lists.iter().map(bytes).sum()
    }

    pub(super) fn use_page(
        &mut self,
        key: PageKey,
        now_s: u32,
        user: TenantAccount,
    ) -> Option<(CachedPage, Option<SaveEvidence>)> {
        let slot = self.find_entry(key)?;
        let (owner, bytes) = (self.slab.get(slot).account, self.slab.get(slot).bytes);
        let width = self.cell_width(bytes);
        if owner != user && self.tenants.passes_to(TenantTier::Memory, owner, user, width) {
            self.pass_entry(slot, user);
        }
        let entry = self.slab.get_mut(slot);
        entry.uses = (entry.uses + 1).min(USES_MAX);
        entry.used_s = now_s;
        let cell = entry.cell.clone()?;
        let unsaved = (entry.standing == DiskStanding::Unsaved).then_some(SaveEvidence {
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
            self.slab.get_mut(slot).standing = DiskStanding::Saved;
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
    pub(super) fn insert_page(
        &mut self,
        key: PageKey,
        page: CachedPage,
        arrival: PageArrival,
    ) -> bool {
        let PageArrival { now_s, account, standing } = arrival;
        if self.holds_page(key) {
            return false;
        }
        if standing == DiskStanding::Part {
            self.parts += 1;
            self.part_bytes += u64::from(page.bytes);
        }
        let key = split_key(key.0);
        let queue =
            if self.ghosts.recall_page(key) { EvictionQueue::Main } else { EvictionQueue::Small };
        let (extent, width) = (page.cell.extent_id(), self.cell_width(page.bytes));
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
            queued_at: 0,
            queue,
            account,
            uses: 0,
            standing,
        });
        self.push_entry(slot);
        self.tenants.add_held(TenantTier::Memory, account, width);
        self.link_extent(slot, extent);
        let Self { table, slab, .. } = self;
        table.insert_unique(key[0], slot, |&slot| slab.get(slot).key[0]);
        queue == EvictionQueue::Main
    }

    /// Evicts one page of the accounts that may lose one, and returns whose it was.
    pub(super) fn evict_coldest(&mut self, allowed: AccountSet) -> Option<TenantAccount> {
        let mut last_resort = None;
        for _ in 0..STEPS_MAX.min(2 * self.len()) {
            let slot = self.next_candidate(allowed)?;
            let entry = self.slab.get_mut(slot);
            let (queue, uses) = (entry.queue, entry.uses);
            if entry.cell.as_ref().is_some_and(CellReader::is_shared) {
                self.requeue_entry(slot, queue);
                continue;
            }
            if uses == 0 {
                return Some(self.give_up(slot));
            }
            entry.uses = if queue == EvictionQueue::Small { 0 } else { uses - 1 };
            last_resort.get_or_insert(slot);
            self.requeue_entry(slot, EvictionQueue::Main);
        }
        // Every entry in reach is used again and again, so the oldest goes.
        let slot = last_resort.filter(|&slot| !self.is_held_by_reader(slot))?;
        Some(self.give_up(slot))
    }

    /// Returns the number of the last extent that has had a page here, plus one.
    pub(super) fn extents_end(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Adds what each account holds of an extent. Returns false if a reader holds a page of it.
    pub(super) fn add_extent_holdings(&self, extent: ExtentId, held: &mut AccountHoldings) -> bool {
        let mut slot = self.extents.get(extent.0 as usize).copied().unwrap_or(NONE);
        while slot != NONE {
            let entry = self.slab.get(slot);
            if self.is_held_by_reader(slot) {
                return false;
            }
            held.add_amount(entry.account, self.cell_width(entry.bytes));
            slot = entry.extent_next;
        }
        true
    }

    /// Evicts every page of an extent that no reader holds and whose account may lose pages.
    pub(super) fn empty_extent(&mut self, extent: ExtentId, allowed: AccountSet) -> usize {
        let mut slot = self.extents.get(extent.0 as usize).copied().unwrap_or(NONE);
        let mut evicted = 0;
        while slot != NONE {
            let (next, account) = (self.slab.get(slot).extent_next, self.slab.get(slot).account);
            if allowed.contains(account) && !self.is_held_by_reader(slot) {
                self.tenants.count_evictions(TenantTier::Memory, account, 1);
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

    fn cell_width(&self, page_bytes: u32) -> u64 {
        self.arena.class_bytes(page_bytes as usize) as u64
    }

    fn is_held_by_reader(&self, slot: u32) -> bool {
        self.slab.get(slot).cell.as_ref().is_some_and(CellReader::is_shared)
    }

    fn next_candidate(&self, allowed: AccountSet) -> Option<u32> {
        let may_lose = |(index, _): &(usize, &AccountPageLists)| allowed.contains_index(*index);
        let lists = || self.lists.iter().enumerate().filter(may_lose).map(|(_, lists)| lists);
        let (mut small, mut main) = (0, 0);
        for lists in lists() {
            small += lists.small.total_bytes();
            main += lists.main.total_bytes();
        }
        let oldest = |queue: EvictionQueue| {
            let age = |slot: &u32| self.moves.wrapping_sub(self.slab.get(*slot).queued_at);
            lists().filter_map(|lists| lists.list(queue).oldest_entry()).max_by_key(age)
        };
        let (first, second) = match small * SMALL_SHARE > small + main {
            true => (EvictionQueue::Small, EvictionQueue::Main),
            false => (EvictionQueue::Main, EvictionQueue::Small),
        };
        oldest(first).or_else(|| oldest(second))
    }

    fn requeue_entry(&mut self, slot: u32, to: EvictionQueue) {
        self.unlink_entry(slot);
        self.slab.get_mut(slot).queue = to;
        self.push_entry(slot);
    }

    /// Has a page count for another account from now on.
    fn pass_entry(&mut self, slot: u32, to: TenantAccount) {
        self.unlink_entry(slot);
        let entry = self.slab.get_mut(slot);
        let (from, bytes) = (std::mem::replace(&mut entry.account, to), entry.bytes);
        self.push_entry(slot);
        let width = self.cell_width(bytes);
        self.tenants.take_held(TenantTier::Memory, from, width);
        self.tenants.add_held(TenantTier::Memory, to, width);
    }

    fn give_up(&mut self, slot: u32) -> TenantAccount {
        let MemoryPageEntry { queue, key, account, .. } = *self.slab.get(slot);
        if queue == EvictionQueue::Small {
            self.ghosts.remember_page(key);
        }
        self.remove_entry(slot);
        account
    }

    fn remove_entry(&mut self, slot: u32) {
        let entry = self.slab.get(slot);
        let (hash, account, bytes) = (entry.key[0], entry.account, entry.bytes);
        if entry.standing == DiskStanding::Part {
            self.parts -= 1;
            self.part_bytes -= u64::from(bytes);
        }
        self.tenants.take_held(TenantTier::Memory, account, self.cell_width(bytes));
        self.unlink_entry(slot);
        self.unlink_extent(slot);
        if let Ok(found) = self.table.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        drop(self.slab.remove(slot));
    }

    /// Puts an entry into its list, as the newest.
    fn push_entry(&mut self, slot: u32) {
        self.moves = self.moves.wrapping_add(1);
        let entry = self.slab.get_mut(slot);
        entry.queued_at = self.moves;
        let (queue, index) = (entry.queue, entry.account.index());
        if self.lists.len() <= index {
            self.lists.resize_with(index + 1, AccountPageLists::default);
        }
        self.lists[index].list_mut(queue).push(&mut self.slab, slot);
    }

    fn unlink_entry(&mut self, slot: u32) {
        let MemoryPageEntry { queue, account, .. } = *self.slab.get(slot);
        self.lists[account.index()].list_mut(queue).unlink_entry(&mut self.slab, slot);
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

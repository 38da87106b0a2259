//! The memory tier: the pages that this worker holds in memory, and the eviction that makes room.
//!
//! Owns the index of pages over the arena and the eviction order. Does not know what a page means.
//! Reads come here by `fill/page_claim`. Never waits: when there is no memory, it says so.

mod ghost_fingerprints;
mod page_list;
mod shard;
mod slab;
mod staged_pages;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use verbs3_rdma::arena::{Arena, ArenaCell, CellReader, ExtentId};

use crate::digest::PageKey;
use crate::metrics::{EvictionReason, WorkerMetrics};
use crate::settings::WorkerPopulateSettings;
use crate::tenants::{
    AccountHoldings, AccountSet, EvictionRights, TenantAccount, TenantAccounts, TenantTier,
};
pub(crate) use ghost_fingerprints::GhostFingerprints;
use shard::{MemoryTierShard, PageArrival};
use slab::DiskStanding;
pub(crate) use staged_pages::{
    ComingPages, StageError, StageOwner, StageReservation, StagedPage, StagedPageTable, StagedWrite,
};

/// A complete page, with the checksum that it got when it was filled.
#[derive(Clone)]
pub(crate) struct CachedPage {
    pub(crate) cell: CellReader,
    pub(crate) bytes: u32,
    /// CRC64NVME.
    pub(crate) checksum: u64,
}

/// The evidence for writing a page to disk, if it isn't there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SaveEvidence {
    /// Up to 3.
    pub(crate) uses: u8,
    /// The page has proved before that it is read again.
    pub(crate) returned: bool,
}

/// How often and how recently a page is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageHeat {
    /// Uses since the page arrived or was last passed over, up to 3.
    pub(crate) uses: u8,
    pub(crate) idle_s: u32,
}

/// The urgency of a request for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryUrgency {
    /// A reader waits.
    Demand,
    /// Nobody waits: the request may use only what the reserve leaves.
    Ahead,
    /// The same, for what is being written: as many colder pages go for it as it needs. Others that
    /// are on their way here take some of the reserve meanwhile.
    Staged,
}

/// Locks of the index. Enough that two cores rarely meet in one; few enough that most have pages
/// even in a small arena.
const SHARDS: usize = 16;

/// Pages evicted for one allocation before a whole extent is emptied. Pages of one age mostly lie
/// in one extent, so this many pages of 256 KiB empty two or more extents of 2 MiB.
const EVICTIONS_PER_ALLOCATION_MAX: usize = 24;

/// The same for a page of a write: a page of 256 KiB takes the place of 64 of 4 KiB, and others are
/// on their way beside it.
const STAGED_EVICTIONS_MAX: usize = 256;

/// Extents emptied for one allocation. More than one only where a page that a reader holds keeps
/// the first from being free.
const EVACUATIONS_PER_ALLOCATION_MAX: usize = 2;
/// Most staged writes that are given up for one cell.
const GIVEN_UP_PER_ALLOCATION_MAX: usize = 4;

/// Extents looked at for one that can be emptied, where the sparsest has pages that must stay.
const EXTENTS_LOOKED_AT_MAX: u32 = 256;

/// Pages evicted after an insertion to restore the reserve. More than one page's worth, so that the
/// reserve grows back.
const EVICTIONS_PER_TRIM_MAX: usize = 4;

/// The page index and its arena.
pub(crate) struct MemoryTier {
    arena: Arena,
    shards: Vec<Mutex<MemoryTierShard>>,
    /// The shard where the next search for a page to evict begins.
    hand: AtomicUsize,
    /// Where the next search for an extent to empty begins.
    extent_hand: AtomicU32,
    /// Allocated bytes above which cached pages are evicted.
    allocated_bytes_target: u64,
    /// Pages that no version has yet. They are the first to go where no memory is left.
    staged: Arc<StagedPageTable>,
    tenants: Arc<TenantAccounts>,
    metrics: WorkerMetrics,
}

impl MemoryTier {
    pub(crate) fn new(
        arena: Arena,
        fill_reserve: f64,
        populate: &WorkerPopulateSettings,
        tenants: Arc<TenantAccounts>,
        metrics: WorkerMetrics,
    ) -> Self {
        let capacity_bytes = arena.arena_usage().capacity_bytes;
        // One ghost for each 64 KiB. That is as many as the pages held where objects are small, and
        // four times the number of full pages.
        let ghosts = (capacity_bytes / (64 << 10)) as usize / SHARDS;
        let shard = |_| Mutex::new(MemoryTierShard::new(ghosts, arena.clone(), tenants.clone()));
        let shards = (0..SHARDS).map(shard).collect();
        let allocated_bytes_target = (capacity_bytes as f64 * (1.0 - fill_reserve)) as u64;
        tenants.set_capacity(TenantTier::Memory, allocated_bytes_target, 0);
        let (hand, extent_hand) = (AtomicUsize::new(0), AtomicU32::new(0));
        let staged = StagedPageTable::new(populate, tenants.clone(), metrics.clone());
        Self { arena, shards, hand, extent_hand, allocated_bytes_target, staged, tenants, metrics }
    }

    pub(crate) fn page_arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn staged_pages(&self) -> &Arc<StagedPageTable> {
        &self.staged
    }

    /// Returns the page, if it is held. Counts as a use.
    #[cfg(test)]
    pub(crate) fn get(&self, key: PageKey, now_s: u32) -> Option<CachedPage> {
        self.use_page(key, now_s, TenantAccount::NOBODY).map(|(page, _)| page)
    }

    /// Returns the page, if it is held, and the evidence for writing it to disk, if it isn't there.
    /// Counts as a use by that account.
    pub(crate) fn use_page(
        &self,
        key: PageKey,
        now_s: u32,
        user: TenantAccount,
    ) -> Option<(CachedPage, Option<SaveEvidence>)> {
        self.page_shard(key).lock().use_page(key, now_s, user)
    }

    /// Returns the page, if it is held, without counting a use: for a worker that takes it over,
    /// and for the reader of a fill.
    pub(crate) fn peek_page(&self, key: PageKey) -> Option<CachedPage> {
        self.page_shard(key).lock().peek_page(key)
    }

    /// Marks the page as on disk, or on its way there.
    pub(crate) fn mark_saved(&self, key: PageKey) {
        self.page_shard(key).lock().mark_saved(key);
    }

    /// Returns whether the page is held. Does not count as a use.
    pub(crate) fn holds_page(&self, key: PageKey) -> bool {
        self.page_shard(key).lock().holds_page(key)
    }

    /// Returns how hot the page is, if it is held. Does not count as a use.
    pub(crate) fn page_heat(&self, key: PageKey, now_s: u32) -> Option<PageHeat> {
        self.page_shard(key).lock().page_heat(key, now_s)
    }

    /// Evicts a page even if it is being read: its readers keep their reference.
    pub(crate) fn give_up(&self, key: PageKey) {
        if self.page_shard(key).lock().drop_page(key) {
            self.metrics.evictions[EvictionReason::Asked].inc();
        }
    }

    /// Keeps a page, which counts for that account. A page that is held already stays as it is.
    /// Returns whether the page was here before, not long ago.
    pub(crate) fn insert_page(
        &self,
        key: PageKey,
        page: CachedPage,
        now_s: u32,
        owner: TenantAccount,
    ) -> bool {
        let arrival = PageArrival { now_s, account: owner, standing: DiskStanding::Unsaved };
        self.insert_entry(key, page, arrival)
    }

    /// Keeps a part of a page in the same way. It has a key of its own, and never goes to disk.
    pub(crate) fn insert_part(
        &self,
        key: PageKey,
        part: CachedPage,
        now_s: u32,
        owner: TenantAccount,
    ) {
        let arrival = PageArrival { now_s, account: owner, standing: DiskStanding::Part };
        self.insert_entry(key, part, arrival);
    }

    /// Drops a part of a page, if it is held. It is no eviction: its page is here.
    pub(crate) fn drop_part(&self, key: PageKey) {
        self.page_shard(key).lock().drop_page(key);
    }

    fn insert_entry(&self, key: PageKey, page: CachedPage, arrival: PageArrival) -> bool {
        let returned = self.page_shard(key).lock().insert_page(key, page, arrival);
        for _ in 0..EVICTIONS_PER_TRIM_MAX {
            if self.arena.arena_usage().loaned_bytes <= self.allocated_bytes_target
                || !self.evict_coldest(arrival.account)
            {
                break;
            }
        }
        returned
    }

    /// Allocates memory for a page of `bytes` of that account, evicting colder pages if necessary.
    /// Returns `None` if there is no memory now.
    pub(crate) fn allocate_cell(
        &self,
        bytes: usize,
        urgency: MemoryUrgency,
        owner: TenantAccount,
    ) -> Option<ArenaCell> {
        if urgency != MemoryUrgency::Demand {
            let width = self.arena.class_bytes(bytes) as u64;
            let fits = |memory: &Self| {
                memory.arena.arena_usage().loaned_bytes + width <= memory.allocated_bytes_target
            };
            let is_staged = urgency == MemoryUrgency::Staged;
            let mut evictions = if is_staged { STAGED_EVICTIONS_MAX } else { 1 };
            while !fits(self) {
                if evictions == 0 || !self.evict_coldest(owner) {
                    return None;
                }
                evictions -= 1;
            }
        }
        if let Some(cell) = self.arena.allocate_cell(bytes) {
            return Some(cell);
        }
        if self.break_up_extent(owner)
            && let Some(cell) = self.arena.allocate_cell(bytes)
        {
            return Some(cell);
        }
        for _ in 0..EVICTIONS_PER_ALLOCATION_MAX {
            if !self.evict_coldest(owner) {
                break;
            }
            if let Some(cell) = self.arena.allocate_cell(bytes) {
                return Some(cell);
            }
        }
        for _ in 0..EVACUATIONS_PER_ALLOCATION_MAX {
            if !self.evacuate_extent(owner) {
                break;
            }
            if let Some(cell) = self.arena.allocate_cell(bytes) {
                return Some(cell);
            }
        }
        // Last: a staged write that is given up is read from the store as a whole. What is only
        // read ahead, or staged itself, is not worth that.
        for _ in 0..GIVEN_UP_PER_ALLOCATION_MAX {
            if urgency != MemoryUrgency::Demand || !self.staged.give_up_oldest() {
                break;
            }
            if let Some(cell) = self.arena.allocate_cell(bytes) {
                return Some(cell);
            }
        }
        None
    }

    /// Evicts pages that were not used since `cutoff_s`. Looks at `steps` pages of each shard.
    pub(crate) fn sweep_idle(&self, cutoff_s: u32, steps: usize) {
        for shard in &self.shards {
            let evicted = shard.lock().sweep_idle(cutoff_s, steps);
            self.metrics.evictions[EvictionReason::Idle].inc_by(evicted as u64);
        }
    }

    /// Returns the number of pages held, and their bytes. Parts of pages are none.
    pub(crate) fn held_totals(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(pages, bytes), shard| {
            let shard = shard.lock();
            let (parts, part_bytes) = shard.part_totals();
            (pages + shard.len() as u64 - parts, bytes + shard.total_bytes() - part_bytes)
        })
    }

    /// Returns the number of parts of pages held, and their bytes.
    pub(crate) fn part_totals(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(parts, bytes), shard| {
            let (more, more_bytes) = shard.lock().part_totals();
            (parts + more, bytes + more_bytes)
        })
    }

    /// Evicts a page for one of `evictor`: the coldest of the next shard that has one to evict.
    fn evict_coldest(&self, evictor: TenantAccount) -> bool {
        let first = self.hand.fetch_add(1, Ordering::Relaxed);
        for allowed in self.eviction_rights(evictor).sets() {
            for at in 0..SHARDS {
                let evicted = self.shards[(first + at) % SHARDS].lock().evict_coldest(allowed);
                if let Some(account) = evicted {
                    self.metrics.evictions[EvictionReason::Room].inc();
                    self.tenants.count_evictions(TenantTier::Memory, account, 1);
                    return true;
                }
            }
        }
        false
    }

    /// Evicts the pages of the extent with the fewest allocated cells, or of another one if those
    /// must stay or readers keep them. Returns false if none could be evicted.
    fn evacuate_extent(&self, evictor: TenantAccount) -> bool {
        let Some(sparsest) = self.arena.sparsest_extent() else { return false };
        let rights = self.eviction_rights(evictor);
        let is_free = rights == EvictionRights::ANY || self.may_empty(sparsest, evictor);
        let others = std::iter::once_with(|| self.find_extent_to_empty(evictor)).flatten();
        let mut extents = is_free.then_some(sparsest).into_iter().chain(others);
        extents.any(|extent| {
            let evicted = self.empty_extent(extent, rights.widest_set());
            self.metrics.evictions[EvictionReason::Evacuation].inc_by(evicted as u64);
            self.metrics.evacuations.inc_by(u64::from(evicted > 0));
            evicted > 0
        })
    }

    /// Empties an extent in which the evictor has nothing, where that is its last way to its share.
    /// Of those looked at, the one with the fewest bytes.
    fn break_up_extent(&self, evictor: TenantAccount) -> bool {
        if !self.eviction_rights(evictor).breaks_up_shares() {
            return false;
        }
        let others_bytes = |extent: &ExtentId| {
            let held = self.extent_holdings(*extent)?;
            let is_others = held.iter().all(|(account, _)| account != evictor);
            (!held.is_empty() && is_others)
                .then(|| held.iter().map(|(_, bytes)| bytes).sum::<u64>())
        };
        let cheapest = self
            .next_extents()
            .filter_map(|extent| others_bytes(&extent).map(|bytes| (bytes, extent)))
            .min_by_key(|&(bytes, _)| bytes);
        let Some((_, extent)) = cheapest else { return false };
        let evicted = self.empty_extent(extent, AccountSet::ALL);
        self.metrics.evictions[EvictionReason::Evacuation].inc_by(evicted as u64);
        self.metrics.evacuations.inc_by(u64::from(evicted > 0));
        evicted > 0
    }

    fn eviction_rights(&self, evictor: TenantAccount) -> EvictionRights {
        // The page may be as large as any.
        let bytes = self.arena.cell_bytes_max() as u64;
        self.tenants.eviction_rights(TenantTier::Memory, bytes, evictor)
    }

    /// Finds an extent with pages, all of which may be evicted.
    fn find_extent_to_empty(&self, evictor: TenantAccount) -> Option<ExtentId> {
        self.next_extents().find(|&extent| self.may_empty(extent, evictor))
    }

    /// Returns the extents that the next search looks at.
    fn next_extents(&self) -> impl Iterator<Item = ExtentId> + use<> {
        let end = self.shards.iter().map(|shard| shard.lock().extents_end()).max().unwrap_or(0);
        let first = self.extent_hand.fetch_add(EXTENTS_LOOKED_AT_MAX, Ordering::Relaxed);
        (0..EXTENTS_LOOKED_AT_MAX.min(end)).map(move |at| ExtentId(first.wrapping_add(at) % end))
    }

    /// Returns whether the extent has pages, none of them is held by a reader, and nobody but
    /// `evictor` would fall below its share without them.
    fn may_empty(&self, extent: ExtentId, evictor: TenantAccount) -> bool {
        let may_lose = |(account, bytes): (TenantAccount, u64)| {
            account == evictor || self.tenants.can_lose(TenantTier::Memory, account, bytes)
        };
        self.extent_holdings(extent)
            .is_some_and(|held| !held.is_empty() && held.iter().all(may_lose))
    }

    /// Returns what accounts hold of an extent; `None` if a reader holds a page of it.
    fn extent_holdings(&self, extent: ExtentId) -> Option<AccountHoldings> {
        let mut held = AccountHoldings::default();
        let add =
            |shard: &Mutex<MemoryTierShard>| shard.lock().add_extent_holdings(extent, &mut held);
        self.shards.iter().all(add).then_some(held)
    }

    fn empty_extent(&self, extent: ExtentId, allowed: AccountSet) -> usize {
        self.shards.iter().map(|shard| shard.lock().empty_extent(extent, allowed)).sum()
    }

    fn page_shard(&self, key: PageKey) -> &Mutex<MemoryTierShard> {
        // The table inside uses the low bits; the shard is chosen by the highest.
        &self.shards[(key.0 >> 124) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests;

//! Finds each page of a read, hits too (`page_claim`), and brings what is missing from disk, other
//! workers or the UFS. All readers share one fill per page (single-flight). Adjacent missing pages
//! get one request, over the borders of blocks too.
//!
//! Owns which readers wait for which page, the filling tasks, and their bounds. `memory` decides
//! which pages are kept and for how long; `attributes` decides whether a version is current.

mod body_writer;
mod disk_offers;
mod disk_reads;
mod fill_error;
mod fill_run;
mod fill_task;
mod fill_unit;
mod following_runs;
mod neighbour_pages;
mod page_claim;
mod page_install;
mod part_grid;
mod partial_pages;
mod request_extent;
mod run_completion;
mod store_stream;
mod store_turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio_util::sync::CancellationToken;
use verbs3_doors::{FairPermit, FairPlaces, FairRates, FairRefusal};
use verbs3_protocol::{BlockGeometry, BlockIndex, ContentVersion, ObjectKey};
use verbs3_ufs::Ufs;

use crate::clock::WorkerClock;
use crate::digest::{DigestState, KeyedDigester, PageKey, VersionDigest};
use crate::disk::DiskTier;
use crate::former_owners::FormerOwners;
use crate::memory::{CachedPage, MemoryTier, SaveEvidence};
use crate::metrics::{BusyReason, WorkerMetrics};
use crate::settings::WorkerSettings;
use crate::tasks::{WorkerRuntime, WorkerTaskSet};
use crate::tenants::{TenantAccount, TenantAccounts};

pub(crate) use fill_error::{PageFillError, to_ufs_answer};
pub(crate) use fill_run::{PageFillRun, PageFillState, RunInterest};
pub(crate) use fill_unit::{FillUnit, FillUnitKind};
pub(crate) use page_claim::{ClaimedUnit, PageClaim, PageClaimRequest, PageSource};
pub(crate) use part_grid::PartGrid;
pub(crate) use request_extent::RequestExtent;
use store_turns::{StoreTurns, TurnRules};

/// The UFS and bucket that a volume's objects come from.
pub(crate) struct VolumeSource {
    pub(crate) ufs: Ufs,
    pub(crate) bucket: String,
}

/// The object version that pages are filled from.
#[derive(Clone)]
pub(crate) struct FillTarget {
    pub(crate) source: Arc<VolumeSource>,
    pub(crate) object: ObjectKey,
    pub(crate) version: ContentVersion,
    pub(crate) digest: VersionDigest,
    /// For whom it is filled and read.
    pub(crate) account: TenantAccount,
}

/// A page that is being filled: its run, and its index in the run.
struct PageInFlight {
    run: Arc<PageFillRun>,
    index: usize,
}

/// Locks of the pages in flight. All pages of a block share one lock.
const SHARDS: usize = 64;

type FlightMap = HashMap<PageKey, PageInFlight, DigestState>;
type FlightMapShard = Mutex<FlightMap>;

/// The tiers that keep pages, and the hasher of their keys.
pub(crate) struct WorkerCacheTiers {
    pub(crate) memory: Arc<MemoryTier>,
    pub(crate) disk: Option<Arc<DiskTier>>,
    pub(crate) digests: KeyedDigester,
    /// Who shares them.
    pub(crate) tenants: Arc<TenantAccounts>,
}

/// The owner of the page fills in flight, one per page for all readers.
pub(crate) struct PageFiller {
    memory: Arc<MemoryTier>,
    disk: Option<Arc<DiskTier>>,
    digests: KeyedDigester,
    former: Arc<FormerOwners>,
    /// Versions of which pages of the first block came before anybody asked for the object here, by
    /// the object's hash: taken over from a former owner, or written through a gateway.
    unasked_versions: quick_cache::sync::Cache<u64, VersionDigest>,
    geometry: BlockGeometry,
    /// How pages are cut into parts; `None`: they are not.
    pub(crate) parts: Option<PartGrid>,
    flights: Box<[FlightMapShard]>,
    /// Requests under way to each store, of fills and of checks.
    store_turns: StoreTurns,
    /// Places of UFS reads under way.
    turns: Arc<FairPlaces>,
    /// The bytes of the UFS reads under way, in KiB.
    kibibytes: Arc<FairPlaces>,
    /// Bytes a second of each store.
    rates: FairRates,
    tenants: Arc<TenantAccounts>,
    queued: AtomicUsize,
    bounds: PageFillBounds,
    pub(crate) extent: RequestExtent,
    clock: Arc<dyn WorkerClock>,
    tasks: WorkerTaskSet,
    stop: CancellationToken,
    metrics: WorkerMetrics,
}

struct PageFillBounds {
    queued_max: usize,
    wait_max: Duration,
    unwanted_max: Duration,
    request_pause_max: Duration,
    pages_per_run_max: usize,
    ahead_bytes_max: u32,
}

/// The bytes that a request for them has to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreReadBytes {
    /// Those that the store's rate is asked for at the beginning. Where a request goes on to another
    /// block, it asks for the bytes of that one then.
    pub(crate) first: u64,
    /// The most that are under way at once.
    pub(crate) at_once: u64,
}

impl From<u64> for StoreReadBytes {
    fn from(bytes: u64) -> Self {
        Self { first: bytes, at_once: bytes }
    }
}

/// The permit for one check under way that reads no pages.
pub(crate) struct CheckPermit {
    _store_turn: FairPermit,
}

/// The permit for one UFS read under way.
pub(crate) struct UfsReadPermit {
    _store_turn: FairPermit,
    _turn: FairPermit,
    _bytes: FairPermit,
    in_flight: IntGauge,
}

impl Drop for UfsReadPermit {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}

impl PageFiller {
    pub(crate) fn new(
        settings: &WorkerSettings,
        geometry: BlockGeometry,
        tiers: WorkerCacheTiers,
        former: Arc<FormerOwners>,
        runtime: WorkerRuntime,
    ) -> Self {
        let WorkerCacheTiers { memory, disk, digests, tenants } = tiers;
        let WorkerRuntime { clock, tasks, stop, metrics } = runtime;
        // A request never asks for more bytes than the total bound, or it would wait for ever.
        let block_bytes = u64::from(geometry.block_bytes);
        let fill = &settings.fill;
        let in_flight_bytes = fill.bytes_in_flight_max.0.max(block_bytes);
        let pages_per_run_max = (fill.request_max.as_u32() / geometry.page_bytes).max(1) as usize;
        let rules = TurnRules::new(tenants.rules(), fill);
        Self {
            memory,
            disk,
            digests,
            former,
            unasked_versions: quick_cache::sync::Cache::new(
                settings.neighbours.hot_blocks_max as usize,
            ),
            geometry,
            parts: PartGrid::new(geometry, fill.part),
            flights: (0..SHARDS).map(|_| Mutex::default()).collect(),
            store_turns: StoreTurns::new(rules),
            turns: rules.share_places(fill.in_flight_max.into()),
            kibibytes: rules.share_places(in_flight_bytes >> 10),
            rates: FairRates::new(fill.store_rate_max.0),
            tenants,
            queued: AtomicUsize::new(0),
            bounds: PageFillBounds {
                queued_max: fill.queued_max as usize,
                wait_max: fill.wait_max.0,
                unwanted_max: fill.unwanted_max.0,
                request_pause_max: fill.request_pause_max.0,
                pages_per_run_max,
                ahead_bytes_max: fill.read_ahead_max.as_u32(),
            },
            extent: RequestExtent::new(geometry, fill),
            clock,
            tasks,
            stop,
            metrics,
        }
    }

    pub(crate) fn memory_tier(&self) -> &MemoryTier {
        &self.memory
    }

    /// Returns the length of a block.
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.geometry.block_bytes)
    }

    pub(crate) fn disk_tier(&self) -> Option<&Arc<DiskTier>> {
        self.disk.as_ref()
    }

    /// Returns whether a read that begins at this byte of block 0 would find it here, in a page or in
    /// a part of one.
    pub(crate) fn holds_first_byte(&self, digest: VersionDigest, first_byte: u64) -> bool {
        let page = (first_byte / u64::from(self.geometry.page_bytes)) as u16;
        self.holds_first_page(digest, page) || self.holds_first_part(digest, first_byte)
    }

    /// Returns whether this page of block 0 is here.
    pub(crate) fn holds_first_page(&self, digest: VersionDigest, page: u16) -> bool {
        let key = digest.page_key(BlockIndex(0), page);
        self.memory.holds_page(key) || self.is_on_disk(key)
    }

    /// Returns whether some version of the object has this page of block 0 on disk, or came
    /// unasked. Pages in memory can't be found by object. Few of them outlive their version's
    /// attributes for long.
    pub(crate) fn may_hold(&self, object: &ObjectKey, page: u16) -> bool {
        let object = self.digests.any_version(object);
        self.disk.as_ref().is_some_and(|disk| disk.knows_object_page(object, page))
            || self
                .unasked_versions
                .get(&object)
                .is_some_and(|version| self.holds_first_page(version, page))
    }

    pub(crate) fn is_on_disk(&self, key: PageKey) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.holds_page(key))
    }

    /// Keeps a completed page of a run: in memory, and on disk if it is worth it. A part of a page is
    /// kept in memory alone.
    fn keep_page(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        index: usize,
        checksum: u64,
    ) {
        let page = &run.pages[index];
        let Some(cell) = run.page_cell(index) else { return };
        let kept = CachedPage { cell, bytes: page.bytes, checksum };
        if run.is_of_parts() {
            return self.keep_part(target, block, run, index, kept);
        }
        let now_s = self.clock.now().as_secs();
        let returned = self.memory.insert_page(page.key, kept.clone(), now_s, target.account);
        // The page leaves the table only once it can be found in memory. Otherwise a reader in
        // between would start a second fill.
        run.take_page_out_of(&mut self.flights_of(target.digest.block_spread(block)).lock(), index);
        run.mark_kept(index);
        let number = self.page_at(run.page_start(index));
        self.offer_to_disk(target, block, number, &kept, SaveEvidence { uses: 0, returned });
        self.drop_parts(target.digest, block, number);
    }

    /// Waits for the permit to send a request for `bytes` to a UFS. The wait is bounded in time, and
    /// the queue in length. What becomes free goes to the tenant that has least under way for its
    /// weight.
    pub(crate) async fn acquire_read_permit(
        &self,
        ufs: &Ufs,
        bytes: impl Into<StoreReadBytes>,
        account: TenantAccount,
    ) -> Result<UfsReadPermit, PageFillError> {
        let StoreReadBytes { first, at_once } = bytes.into();
        let _queued = self.enter_queue(account)?;
        let (party, began) = (self.tenants.party_of(account), Instant::now());
        let kibibytes = at_once.div_ceil(1 << 10);
        let all = async {
            // First what comes with time alone: whoever waits for it holds nothing.
            let has_waited = match self.rates.find_rate(ufs.ufs_name()) {
                Some(rate) => rate.take_bytes(party, first).await,
                None => false,
            };
            // A fixed order, so there is no deadlock. The store's turn comes last: checks of an
            // idle store must not wait for fills of a slow one.
            let turn = self.turns.take_permit(party, 1, began).await?;
            let bytes = self.kibibytes.take_permit(party, kibibytes, began).await?;
            let store_turns = self.store_turns.turns_of(ufs);
            let store_turn = store_turns.take_permit(party, 1, began).await?;
            let waited = [&store_turn, &turn, &bytes].map(FairPermit::has_waited);
            Ok::<_, FairRefusal>((has_waited || waited.contains(&true), store_turn, turn, bytes))
        };
        let got = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(PageFillError::Stopping),
            got = tokio::time::timeout(self.bounds.wait_max, all) => got,
        };
        match got {
            Ok(Ok((has_waited, store_turn, turn, held))) => {
                let metrics = self.tenants.metrics_of(account);
                metrics.fill_waits.inc_by(has_waited.into());
                metrics.store_bytes.inc_by(first);
                let in_flight = self.metrics.fills_in_flight.clone();
                in_flight.inc();
                Ok(UfsReadPermit { _store_turn: store_turn, _turn: turn, _bytes: held, in_flight })
            }
            Ok(Err(_)) | Err(_) => {
                self.tenants.metrics_of(account).fill_refusals.inc();
                self.metrics.busy[BusyReason::FillWait].inc();
                Err(PageFillError::Busy(
                    "no fill ended in time, or others have fewer under way; raise \
                     worker.fill.in_flight_max, store_rate_max or wait_max, or \
                     limits.requests_in_flight_max of the ufs",
                ))
            }
        }
    }

    /// Waits for the permit to ask a UFS for attributes alone. Call it only while holding none:
    /// both kinds take turns of the store.
    pub(crate) async fn acquire_check_permit(
        &self,
        ufs: &Ufs,
        account: TenantAccount,
    ) -> Result<CheckPermit, PageFillError> {
        let _queued = self.enter_queue(account)?;
        let (party, store_turns) = (self.tenants.party_of(account), self.store_turns.turns_of(ufs));
        let turn = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(PageFillError::Stopping),
            turn = store_turns.take_permit(party, 1, Instant::now()) => turn,
        };
        let metrics = self.tenants.metrics_of(account);
        match turn {
            Ok(turn) => {
                metrics.fill_waits.inc_by(turn.has_waited().into());
                Ok(CheckPermit { _store_turn: turn })
            }
            Err(FairRefusal { .. }) => {
                metrics.fill_refusals.inc();
                self.metrics.busy[BusyReason::FillWait].inc();
                Err(PageFillError::Busy(
                    "no request to the store ended in time, or others have fewer under way; raise \
                     ufs.limits.requests_in_flight_max, or worker.fill.wait_max",
                ))
            }
        }
    }

    /// Takes the permit to ask a UFS for attributes, if it is free now and nobody else's turn.
    pub(crate) fn try_check_permit(
        &self,
        ufs: &Ufs,
        account: TenantAccount,
    ) -> Option<CheckPermit> {
        let party = self.tenants.party_of(account);
        let turn = self.store_turns.turns_of(ufs).try_take_permit(party, 1, Instant::now())?;
        Some(CheckPermit { _store_turn: turn })
    }

    /// Returns whether fills are queued because the bound on UFS reads is met.
    pub(crate) fn reads_wait(&self) -> bool {
        self.turns_wait() || self.rates.waiting_count() > 0
    }

    /// Returns whether requests wait for what others under way hold.
    pub(crate) fn turns_wait(&self) -> bool {
        self.store_turns.waiting_count() > 0
            || self.turns.waiting_count() > 0
            || self.kibibytes.waiting_count() > 0
    }

    fn enter_queue(&self, account: TenantAccount) -> Result<FillQueueGuard<'_>, PageFillError> {
        self.check_queue(account)?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.tenants.join_queue(account);
        self.metrics.fills_queued.inc();
        Ok(FillQueueGuard { filler: self, account })
    }

    /// Checks that another fill may wait. Where as many wait as may, tenants with fewer than their
    /// part of the queue still may.
    fn check_queue(&self, account: TenantAccount) -> Result<(), PageFillError> {
        let queued_max = self.bounds.queued_max;
        if self.queued.load(Ordering::Relaxed) < queued_max
            || self.tenants.is_below_part(account, queued_max)
        {
            return Ok(());
        }
        self.metrics.busy[BusyReason::FillsQueued].inc();
        Err(PageFillError::Busy("too many fills wait for their turn; raise worker.fill.queued_max"))
    }

    fn flights_of(&self, spread: usize) -> &FlightMapShard {
        &self.flights[spread % SHARDS]
    }

    #[cfg(test)]
    pub(crate) fn pages_in_flight(&self) -> usize {
        self.flights.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// A place in the queue of fills, freed on drop.
struct FillQueueGuard<'a> {
    filler: &'a PageFiller,
    account: TenantAccount,
}

impl Drop for FillQueueGuard<'_> {
    fn drop(&mut self) {
        self.filler.queued.fetch_sub(1, Ordering::Relaxed);
        self.filler.tenants.leave_queue(self.account);
        self.filler.metrics.fills_queued.dec();
    }
}

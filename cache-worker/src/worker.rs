//! Owns a worker: its tables, its tasks, and their shutdown.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use verbs3_client::NeighbourClient;
use verbs3_protocol::{BlockGeometry, BlockIndex, ContentVersion, Epoch, LEASE_MS_MAX, ObjectKey};
use verbs3_rdma::arena::Arena;
use verbs3_telemetry::RequestTracer;

use crate::attributes::{
    AttributeCache, AttributeCheckTable, AttributeFetcher, CoherenceTable, DoubtOptions,
    GrantOptions, KeyReadCounter, LeaseGrantTable, ObjectSizeGuess,
};
use crate::block_heat::BlockHeatTable;
use crate::call_trace::WorkerCallTracer;
use crate::clock::{SystemClock, WorkerClock};
use crate::digest::{DigestSecret, KeyedDigester};
use crate::disk::{DiskError, DiskTierBuilder, WorkerDiskSettings};
use crate::fill::{PageFiller, WorkerCacheTiers};
use crate::former_owners::FormerOwners;
use crate::home::{AttributeHome, LeaseGrantPolicy};
use crate::invalidations::InvalidationList;
use crate::memory::MemoryTier;
use crate::metrics::WorkerMetrics;
use crate::pages::PageServer;
use crate::question_checks::QuestionChecks;
use crate::settings::WorkerSettings;
use crate::standing::WorkerStanding;
use crate::tasks::{WorkerRuntime, WorkerTaskSet};
use crate::tenants::{TenantAccounts, TenantRules};
use crate::volumes::WorkerVolumes;
use crate::warmup_limiter::WarmupLimiter;
use crate::worker_drain::{WorkerDrainProgress, WorkerDrainer};

/// How often open writes and idle pages are checked and gauges are set. Correctness does not depend
/// on it.
const TICK: Duration = Duration::from_secs(1);

/// Entries of each index shard that one tick checks for idle pages.
const IDLE_STEPS: usize = 4096;

/// The reasons why a worker could not be created.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(
        "the arena's largest cell of {cell_bytes} bytes holds no page of {page_bytes} bytes; map \
        the arena with cell_bytes_max = page size"
    )]
    Cell { cell_bytes: usize, page_bytes: u32 },
    #[error("the worker's metrics are registered already: one worker a registry")]
    Metrics(#[source] prometheus::Error),
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// What a worker is made of, besides its settings.
pub struct WorkerComponents {
    /// Block and page size; the same in the whole cluster.
    pub geometry: BlockGeometry,
    pub askers: WorkerAskers,
    /// Memory for pages; its cells are at least as large as a page.
    pub arena: Arena,
    pub volumes: WorkerVolumes,
}

/// Whose requests about attributes and writes a worker answers.
#[derive(Debug, Clone, Copy, Default)]
pub enum WorkerAskers {
    /// Any: there is one asker, in this process.
    #[default]
    Any,
    /// Those who know the placement map of this epoch, which never changes.
    OfEpoch(Epoch),
    /// Those who know the coordinators' map; none before [`CacheWorker::activate_map`].
    Coordinated,
}

/// Opens the disk tier, if there is one, and reads its index. Memory and disk use the same hashes
/// for pages.
fn open_tiers(
    settings: &WorkerDiskSettings,
    geometry: BlockGeometry,
    memory: Arc<MemoryTier>,
    tenants: Arc<TenantAccounts>,
    registry: &Registry,
) -> Result<WorkerCacheTiers, DiskError> {
    if settings.folders.is_empty() {
        return Ok(WorkerCacheTiers {
            memory,
            disk: None,
            digests: KeyedDigester::new(DigestSecret(rand::random(), rand::random())),
            tenants,
        });
    }
    let opening = DiskTierBuilder::lock_folders(settings.clone(), registry)?;
    let digests = opening.create_digester(geometry);
    let arena_bytes = memory.page_arena().arena_usage().capacity_bytes;
    let resident = memory.clone();
    let resident = Arc::new(move |key| resident.holds_page(key));
    let disk = opening.start_tier(&digests, arena_bytes, resident, tenants.clone())?;
    Ok(WorkerCacheTiers { memory, disk: Some(Arc::new(disk)), digests, tenants })
}

/// A cache worker: serves blocks from its arena and fills them from UFSs. Answers calls as
/// [`verbs3_rdma::transport::CallService`].
pub struct CacheWorker {
    pub(crate) home: AttributeHome,
    pub(crate) pages: PageServer,
    pub(crate) checks: Arc<QuestionChecks>,
    pub(crate) tenants: Arc<TenantAccounts>,
    pub(crate) leaver: Arc<WorkerDrainer>,
    pub(crate) clock: Arc<dyn WorkerClock>,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) tracing: WorkerCallTracer,
    page_idle_max: Option<Duration>,
    tasks: WorkerTaskSet,
    stop: CancellationToken,
}

impl CacheWorker {
    /// Creates a worker. Must be called within a tokio runtime. The ranges of the settings are the
    /// caller's to check.
    pub fn new(
        settings: &WorkerSettings,
        components: WorkerComponents,
        registry: &Registry,
    ) -> Result<Arc<Self>, WorkerError> {
        Self::with_clock(settings, components, registry, Arc::new(SystemClock::default()))
    }

    /// Creates a worker as [`CacheWorker::new`] does, with the caller's clock for ages and the ends
    /// of uncertain writes.
    pub fn with_clock(
        settings: &WorkerSettings,
        components: WorkerComponents,
        registry: &Registry,
        clock: Arc<dyn WorkerClock>,
    ) -> Result<Arc<Self>, WorkerError> {
        let WorkerSettings { fill, disk, index, writes, leases, neighbours, populate, .. } =
            settings;
        let WorkerComponents { geometry, askers, arena, volumes } = components;
        let (cell_bytes, page_bytes) = (arena.cell_bytes_max(), geometry.page_bytes);
        if cell_bytes < page_bytes as usize {
            return Err(WorkerError::Cell { cell_bytes, page_bytes });
        }
        let metrics = WorkerMetrics::new(registry).map_err(WorkerError::Metrics)?;
        let (tasks, stop) = (WorkerTaskSet::on_current_runtime(), CancellationToken::new());
        let capacity_bytes = arena.arena_usage().capacity_bytes;
        let warming = WarmupLimiter::new(fill, geometry, capacity_bytes, metrics.clone());
        let rules = TenantRules::from_settings(&settings.tenants);
        let tenants = Arc::new(TenantAccounts::new(rules, metrics.tenants.clone()));
        let memory =
            MemoryTier::new(arena, fill.reserve, populate, tenants.clone(), metrics.clone());
        let tiers = open_tiers(disk, geometry, Arc::new(memory), tenants.clone(), registry)?;
        let digests = tiers.digests.clone();
        let runtime = WorkerRuntime {
            clock: clock.clone(),
            tasks: tasks.clone(),
            stop: stop.clone(),
            metrics: metrics.clone(),
        };
        let former = Arc::new(FormerOwners::new(neighbours.asked_for.0));
        let filler = PageFiller::new(settings, geometry, tiers, former.clone(), runtime.clone());
        let filler = Arc::new(filler);
        let heat = Arc::new(BlockHeatTable::new(neighbours.hot_blocks_max as usize));
        let leaver = WorkerDrainer::new(
            neighbours,
            geometry,
            heat.clone(),
            former.clone(),
            filler.clone(),
            runtime.clone(),
        );
        let bounds = GrantOptions {
            grants_max: leases.leases_max as usize,
            holders_max: leases.holders_max as usize,
        };
        let grants = Arc::new(LeaseGrantTable::new(bounds, metrics.clone()));
        let doubts = DoubtOptions {
            length: writes.doubt_for.0,
            age_max: writes.doubt_age_max.0,
            // As many writes as can be lost at once.
            keys_max: writes.open_max as usize,
        };
        let coherence = CoherenceTable::new(
            index.generation_slots as usize,
            writes.open_max as usize,
            doubts,
            grants.clone(),
            tenants.clone(),
        );
        let coherence = Arc::new(coherence);
        let attributes = Arc::new(AttributeCache::new(index.attributes_max as usize));
        let fetcher = Arc::new(AttributeFetcher {
            coherence: coherence.clone(),
            cache: attributes.clone(),
            checks: AttributeCheckTable::new(index.checks_in_flight_max as usize, tenants.clone()),
            tenants: tenants.clone(),
            grants: grants.clone(),
            filler: filler.clone(),
            digests: digests.clone(),
            sizes: ObjectSizeGuess::new([filler.block_bytes(), filler.extent.object_bytes_max()]),
            clock: clock.clone(),
            tasks: tasks.clone(),
            stop: stop.clone(),
            metrics: metrics.clone(),
        });
        let checks = Arc::new(QuestionChecks {
            geometry,
            volumes,
            keys_per_message_max: writes.keys_per_message_max as usize,
        });
        let home = AttributeHome {
            standing: match askers {
                WorkerAskers::Any => WorkerStanding::Fixed(None),
                WorkerAskers::OfEpoch(epoch) => WorkerStanding::Fixed(Some(epoch)),
                WorkerAskers::Coordinated => WorkerStanding::new_coordinated(),
            },
            uncertain_max: writes.uncertain_for_max.0,
            checks: checks.clone(),
            tenants: tenants.clone(),
            digests: digests.clone(),
            coherence,
            grants,
            reads: KeyReadCounter::new(),
            leases: LeaseGrantPolicy {
                // A worker waits no longer for its predecessor's.
                length: leases.length.0.min(Duration::from_millis(LEASE_MS_MAX.into())),
                reads_min: leases.reads_min,
                quiet: leases.quiet_for.0,
            },
            attributes,
            fetcher,
            voids: InvalidationList::default(),
            life: rand::random(),
            clock: clock.clone(),
            metrics: metrics.clone(),
        };
        let pages = PageServer {
            checks: checks.clone(),
            digests,
            filler,
            former,
            heat,
            warming,
            clock: clock.clone(),
            metrics: metrics.clone(),
        };
        let worker = Arc::new(Self {
            home,
            pages,
            checks,
            tenants,
            leaver,
            clock,
            metrics,
            tracing: WorkerCallTracer::default(),
            page_idle_max: fill.page_idle_max.unless_zero(),
            tasks,
            stop,
        });
        worker.tasks.spawn(run_ticks(Arc::downgrade(&worker), worker.stop.clone()));
        Ok(worker)
    }

    /// Records the spans of calls that are part of a trace. The first tracer stays.
    pub fn trace_with(&self, tracer: Arc<RequestTracer>) {
        self.tracing.set_tracer(tracer);
    }

    /// Makes fills ask the former owners of a slot for pages before the UFS. Call it once, before
    /// the first map.
    pub fn set_neighbours(&self, neighbours: Arc<NeighbourClient>) {
        self.pages.former.set_neighbours(neighbours);
    }

    /// Returns how far this worker has handed over its hot blocks; `None`: it does not drain.
    pub fn handing_over(&self) -> Option<WorkerDrainProgress> {
        self.leaver.drain_progress()
    }

    /// Ends fills and checks, notifies their waiters, and waits until all tasks have ended. Later
    /// calls are answered from memory, or refused.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.join_all().await;
        if let Some(disk) = self.pages.filler.disk_tier().cloned() {
            // An error means that the runtime has ended, and the flush with it.
            let _ = tokio::task::spawn_blocking(move || disk.shutdown()).await;
        }
    }

    /// Pins the pages of a version that are on this worker's disk until that time; `None` unpins
    /// them. A pin survives restarts once it is written. Returns the number of those pages.
    pub fn pin_version(
        &self,
        object: &ObjectKey,
        version: &ContentVersion,
        until: Option<SystemTime>,
    ) -> u64 {
        let Some(disk) = self.pages.filler.disk_tier() else { return 0 };
        let digest = self.pages.digests.digest_version(object, version);
        let (block_bytes, page_bytes) = (
            u64::from(self.checks.geometry.block_bytes),
            u64::from(self.checks.geometry.page_bytes),
        );
        let pages = (0..version.bytes.div_ceil(page_bytes)).filter_map(|number| {
            let at = number * page_bytes;
            let block = BlockIndex(u32::try_from(at / block_bytes).ok()?);
            Some(digest.page_key(block, (at % block_bytes / page_bytes) as u16))
        });
        disk.pin_pages(pages, until).accepted_pages()
    }

    /// Simulates a killed worker: its tasks end, and nothing more is written.
    #[cfg(test)]
    pub(crate) fn stop_without_a_word(&self) {
        self.stop.cancel();
        if let Some(disk) = self.pages.filler.disk_tier() {
            disk.abandon();
        }
    }

    fn look_over(&self) {
        let now = self.clock.now();
        self.home.coherence.sweep_expired(now);
        // Anew: the sweep takes time, in which more may be recorded.
        self.home.end_prefix_doubts(self.clock.now());
        self.home.grants.sweep_expired(now);
        self.pages.filler.memory_tier().staged_pages().sweep_expired(now);
        let (leases, holders) = self.home.grants.lease_and_holder_counts();
        self.metrics.leases_held.set(leases as i64);
        self.metrics.lease_holders.set(holders as i64);
        if let Some(idle) = self.page_idle_max {
            let idle_s = u32::try_from(idle.as_secs()).unwrap_or(u32::MAX);
            self.pages
                .filler
                .memory_tier()
                .sweep_idle(now.as_secs().saturating_sub(idle_s), IDLE_STEPS);
        }
        let expired = self.home.coherence.take_expired();
        if expired > 0 {
            tracing::warn!(
                writes = expired,
                "announced writes were never reported; their keys are asked at the ufs again"
            );
            self.metrics.writes_expired.inc_by(expired);
        }
        self.metrics.leased.set(i64::from(self.home.standing.is_leased(self.clock.read_times())));
        let left = self.leaver.drain_progress().map_or(0, |progress| progress.blocks_left);
        self.metrics.hand_overs_left.set(left as i64);
        let (pages, bytes) = self.pages.filler.memory_tier().held_totals();
        self.metrics.held_pages.set(pages as i64);
        self.metrics.held_bytes.set(bytes as i64);
        let (parts, bytes) = self.pages.filler.memory_tier().part_totals();
        self.metrics.held_parts.set(parts as i64);
        self.metrics.held_part_bytes.set(bytes as i64);
        self.tenants.look_over(now.as_secs());
        self.metrics.attributes_entries.set(self.home.attributes.len() as i64);
        self.metrics.open_writes.set(self.home.coherence.open_writes() as i64);
        self.metrics.doubts.set(self.home.coherence.doubt_count() as i64);
        if let Some(disk) = self.pages.filler.disk_tier() {
            disk.look_over();
        }
    }
}

/// Runs until the worker stops or is dropped. May be cancelled at any time.
async fn run_ticks(worker: std::sync::Weak<CacheWorker>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(worker) = worker.upgrade() else { return };
        worker.look_over();
    }
}

#[cfg(test)]
mod tests;

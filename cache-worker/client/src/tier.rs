//! Owns the client of the cache tier: the map, the memory for landings, and the tasks that outlive
//! a request.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use verbs3_metrics::MetricLabel;
use verbs3_protocol::{
    BlockSpan, ContentVersion, Epoch, ObjectKey, ObjectVolume, PlacementMap, TraceContext,
    WorkerId, WorkerRequest,
};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::peer::TransportPeer;
use verbs3_rdma::transport::TransportError;

use crate::attempt::AttemptError;
use crate::bypass_reason::BypassReason;
use crate::hot_blocks::{HotBlockReplicas, HotBlockSpread};
use crate::lease_table::{self, TierBootClock, TierLeaseTable};
use crate::map_agreement::InVain;
use crate::metrics::{CallKind, CallOutcome, LeasedOpen, SpreadTarget, TierMetrics};
use crate::options::{TierOptions, TierOptionsError};
use crate::relay_fallback::RelayFallback;
use crate::span_read::SpanRead;
use crate::worker_map::{HotBlockDraw, TierWorker, TierWorkerMap};

/// Reason why the tier's client can't be made.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    #[error(
        "worker {0} is in the placement map, but there is no way to reach it; give its address"
    )]
    NoPeer(WorkerId),
    #[error(transparent)]
    Options(#[from] TierOptionsError),
    #[error(
        "the arena's largest cell of {cell_bytes} bytes holds no page of {page_bytes} bytes; map \
        the arena with cell_bytes_max = page size"
    )]
    Cell { cell_bytes: usize, page_bytes: u32 },
    #[error("can't register the client's metrics")]
    Metrics(#[from] prometheus::Error),
}

/// One span of one object version, to be read from the tier.
#[derive(Debug, Clone)]
pub struct SpanRequest {
    pub object: Arc<ObjectKey>,
    pub version: Arc<ContentVersion>,
    pub span: BlockSpan,
    /// Bytes after the span, in its block, that the reader is likely to want next.
    pub ahead_bytes: u32,
    /// Trace context of the client's request, where it is traced.
    pub trace: Option<TraceContext>,
}

/// The client of the cache tier. One per process.
pub struct CacheTierClient {
    pub(crate) options: TierOptions,
    pub(crate) arena: Arena,
    pub(crate) metrics: TierMetrics,
    pub(crate) map: ArcSwap<TierWorkerMap>,
    /// The hot blocks, whatever the map is. Locked while another map or another list is installed.
    pub(crate) hot: Mutex<HotBlockReplicas>,
    /// Epoch of the map, for callers that wait for another one.
    pub(crate) epochs: watch::Sender<Epoch>,
    pub(crate) in_vain: InVain,
    /// Number of this process among all writers of the cluster.
    pub(crate) gateway: u64,
    pub(crate) writes: std::sync::atomic::AtomicU64,
    /// Leases on attributes that this process may answer with.
    pub(crate) leases: TierLeaseTable,
    /// The relay to homes that can't be reached from here.
    pub(crate) relaying: OnceLock<RelayFallback>,
    /// Reports, renewals and invalidations that outlive the request which caused them.
    pub(crate) tasks: TaskTracker,
}

impl CacheTierClient {
    /// Makes a client. `peers` must reach every member of `placement`; landings are lent from
    /// `arena`.
    pub fn new(
        options: TierOptions,
        placement: PlacementMap,
        peers: HashMap<WorkerId, Arc<TransportPeer>>,
        arena: Arena,
        registry: &Registry,
    ) -> Result<Arc<Self>, TierError> {
        Self::with_clock(
            options,
            placement,
            peers,
            arena,
            registry,
            Arc::new(lease_table::since_boot),
        )
    }

    /// Makes a client whose leases on attributes end by the caller's clock. Otherwise like
    /// [`CacheTierClient::new`].
    pub fn with_clock(
        options: TierOptions,
        placement: PlacementMap,
        peers: HashMap<WorkerId, Arc<TransportPeer>>,
        arena: Arena,
        registry: &Registry,
        clock: TierBootClock,
    ) -> Result<Arc<Self>, TierError> {
        if let Some(problem) = options.find_problems().into_iter().next() {
            return Err(problem.into());
        }
        let (cell_bytes, page_bytes) = (arena.cell_bytes_max(), options.geometry.page_bytes);
        if cell_bytes < page_bytes as usize {
            return Err(TierError::Cell { cell_bytes, page_bytes });
        }
        let workers = join_peers(&placement, &peers)?;
        let map = TierWorkerMap {
            placement: Arc::new(placement),
            workers,
            spread: HotBlockSpread::default(),
        };
        let gateway = rand::random();
        // Without coordinators homes grant no leases.
        let leases_max = if options.coordinated { options.leases_max } else { 0 };
        let leases = TierLeaseTable::new(gateway, leases_max, clock);
        Ok(Arc::new(Self {
            options,
            arena,
            metrics: TierMetrics::new(registry)?,
            epochs: watch::channel(map.placement.map_epoch()).0,
            map: ArcSwap::from_pointee(map),
            in_vain: InVain::default(),
            hot: Mutex::default(),
            gateway,
            leases,
            writes: std::sync::atomic::AtomicU64::new(0),
            relaying: OnceLock::new(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Replaces the map. Workers that both maps have under the same peer keep their state, health
    /// included. Calls under way to others end by themselves.
    pub fn adopt_map(
        &self,
        placement: PlacementMap,
        peers: &HashMap<WorkerId, Arc<TransportPeer>>,
    ) -> Result<(), TierError> {
        let mut workers = join_peers(&placement, peers)?;
        let hot = self.hot.lock();
        let before = self.map.load_full();
        for worker in &mut workers {
            let known = before.workers.iter().find(|known| known.id == worker.id);
            if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.peer, &worker.peer)) {
                *worker = known.clone();
            }
        }
        let epoch = placement.map_epoch();
        self.install_map(Arc::new(placement), workers, &hot);
        self.epochs.send_replace(epoch);
        Ok(())
    }

    /// Stores a map with its spread of hot blocks. `hot` is [`CacheTierClient::hot`], locked.
    pub(crate) fn install_map(
        &self,
        placement: Arc<PlacementMap>,
        workers: Vec<Arc<TierWorker>>,
        hot: &HotBlockReplicas,
    ) {
        let spread = HotBlockSpread::new(hot, &placement);
        self.metrics.hot_blocks.set(spread.len() as i64);
        self.map.store(Arc::new(TierWorkerMap { placement, workers, spread }));
    }

    /// Returns the options this client was made with. They never change.
    pub fn tier_options(&self) -> &TierOptions {
        &self.options
    }

    /// Returns how many opens a lease on attributes has answered.
    pub fn leased_opens_count(&self) -> u64 {
        self.metrics.leased[LeasedOpen::Head].get() + self.metrics.leased[LeasedOpen::Read].get()
    }

    /// Returns how many leases homes have recalled, all at once or one by one.
    pub fn leases_recalled(&self) -> u64 {
        self.metrics.leases_recalled()
    }

    /// Returns the number of workers that are not resting, and of all workers. For readiness.
    pub fn workers_up(&self) -> (usize, usize) {
        let map = self.map.load();
        (map.workers.iter().filter(|worker| worker.health.is_up()).count(), map.workers.len())
    }

    /// Prepares the read of one span. Nothing is asked before the first poll or
    /// [`SpanRead::start`].
    pub fn read_span(self: &Arc<Self>, request: SpanRequest) -> SpanRead {
        let map = self.map.load();
        let drawn = map.draw_worker(&request.object, request.span.block);
        self.read_span_at(request, &map, drawn)
    }

    /// Prepares the read of one span by `map`, which also gave `drawn`.
    pub(crate) fn read_span_at(
        self: &Arc<Self>,
        request: SpanRequest,
        map: &TierWorkerMap,
        drawn: Option<HotBlockDraw>,
    ) -> SpanRead {
        let mut candidates = map.block_candidates(request.object.block_hash(request.span.block));
        match drawn {
            Some(HotBlockDraw::Replica(replica)) => {
                self.metrics.spread[SpreadTarget::Replica].inc();
                candidates.replica = Some(replica);
            }
            Some(HotBlockDraw::Owner) => self.metrics.spread[SpreadTarget::Owner].inc(),
            None => {}
        }
        SpanRead::new(self.clone(), request, candidates)
    }

    /// Has the homes drop what they hold of `keys`. Best effort, in the background: correctness
    /// must not depend on it.
    pub fn forget_keys(self: &Arc<Self>, volume: &ObjectVolume, keys: Vec<String>) {
        self.drop_leases(volume, &keys);
        for (worker, keys) in self.map.load_full().by_home(volume, keys) {
            self.forget_at(worker, volume.clone(), keys);
        }
    }

    /// Waits for reports, renewals and invalidations under way.
    pub async fn shutdown(&self) {
        self.leases.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Drops this process's leases on these keys.
    pub(crate) fn drop_leases(&self, volume: &ObjectVolume, keys: &[String]) {
        if self.leases.are_wanted() {
            let hash = |key: &String| ObjectKey { volume: volume.clone(), key: key.clone() }.hash();
            self.leases.drop_keys(keys.iter().map(hash));
        }
    }

    pub(crate) fn forget_at(
        self: &Arc<Self>,
        worker: Arc<TierWorker>,
        volume: ObjectVolume,
        keys: Vec<String>,
    ) {
        let tier = self.clone();
        // May be cancelled at any time: this kind of invalidation is best effort.
        self.tasks.spawn(async move {
            let message =
                WorkerRequest::Forget(verbs3_protocol::ForgetMessage { volume, keys }).encode();
            let until = Instant::now() + tier.options.announce_deadline;
            if let Err(error) =
                tier.tell_worker(CallKind::Forget, &worker, message, until, None).await
            {
                tracing::warn!(worker = %worker.id, %error, "could not have a worker forget keys");
            }
        });
    }

    pub(crate) fn count_bypass(&self, reason: BypassReason) -> BypassReason {
        self.metrics.bypasses[reason].inc();
        reason
    }

    /// Notes that a worker failed a call, and logs it once. If the bytes were corrupt, has the
    /// worker drop what it holds of the object.
    pub(crate) fn note_call_failure(
        self: &Arc<Self>,
        kind: CallKind,
        worker: &Arc<TierWorker>,
        object: &ObjectKey,
        error: &AttemptError,
    ) {
        self.metrics.count_call(kind, CallOutcome::Failed);
        let rest = if error.blames_worker() { self.note_failure(worker) } else { None };
        tracing::warn!(
            worker = %worker.id, %object, kind = kind.label_text(), %error,
            rest_ms = rest.map(|rest| rest.as_millis() as u64),
            "a call to a worker failed"
        );
        if let AttemptError::Corrupt { .. } = error {
            self.metrics.checksum_failures.inc();
            self.forget_at(worker.clone(), object.volume.clone(), vec![object.key.clone()]);
        }
    }

    /// Notes that a question is repeated to the same worker. The peer logs why its connection
    /// broke.
    pub(crate) fn note_repeat(&self, kind: CallKind, worker: &TierWorker, error: &TransportError) {
        self.metrics.repeats[kind].inc();
        tracing::debug!(
            worker = %worker.id, kind = kind.label_text(), %error,
            "asking a worker again over another connection"
        );
    }

    pub(crate) fn note_failure(&self, worker: &TierWorker) -> Option<std::time::Duration> {
        let rest = worker.health.note_failure(Instant::now(), &self.options.health);
        if rest.is_some() {
            self.metrics.rests.inc();
        }
        rest
    }
}

fn join_peers(
    placement: &PlacementMap,
    peers: &HashMap<WorkerId, Arc<TransportPeer>>,
) -> Result<Vec<Arc<TierWorker>>, TierError> {
    let workers = placement.map_members().iter().map(|member| {
        let peer =
            peers.get(&member.id).ok_or_else(|| TierError::NoPeer(member.id.clone()))?.clone();
        Ok(Arc::new(TierWorker::new(member.id.clone(), peer)))
    });
    workers.collect()
}

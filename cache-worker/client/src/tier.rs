//! The door of the cache tier's client: holds the stages, and says what each does for a gateway.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use verbs3_protocol::{
    BlockIndex, ContentVersion, ListedEntry, LookedFor, ObjectKey, ObjectVolume, PlacementMap,
    TenantTag, TendAct, TendedBlock, WarmTier, WorkerId, WriteOutcome,
};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::peer::TransportPeer;

use crate::asking::current_map::{MissingPeer, TierPlacement};
use crate::asking::hot_blocks::HotBlockReplicas;
use crate::asking::single_answer::QuestionError;
use crate::asking::worker_asker::WorkerAsker;
use crate::metrics::{LeasedOpenKind, TierMetrics};
use crate::options::{TierOptions, TierOptionsError};
use crate::reading::head_list::HeadListRequest;
use crate::reading::kept_pages::{KeptPageBounds, KeptPages};
use crate::reading::lease_table::{self, TierBootClock, TierLeaseTable};
use crate::reading::map_agreement::MapAgreement;
use crate::reading::memory_wait::MemoryShortage;
use crate::reading::open::ObjectOpener;
use crate::reading::open_request::OpenRequest;
use crate::reading::opened_object::OpenOutcome;
use crate::reading::recalls::RecallFollower;
use crate::reading::small_objects::{SmallObjectBounds, SmallObjectMemory};
use crate::reading::span_read::SpanRead;
use crate::reading::span_reader::SpanReader;
use crate::reading::span_request::SpanRequest;
use crate::upkeep::block_tending::{BlockTender, InvalidObjects, TendError};
use crate::upkeep::gone_version::GoneVersionReporter;
use crate::upkeep::listing_report::ListingReporter;
use crate::upkeep::object_look::{ObjectLookOutcome, ObjectLooker};
use crate::upkeep::page_warming::{PageWarmer, WarmOutcome, WarmRequest};
use crate::writing::coherence_error::CoherenceError;
use crate::writing::page_staging::{PageStager, SettleRequest, StageRequest};
use crate::writing::relay_fallback::NoticeRelay;
use crate::writing::write_announcement::{TierWriteGuard, WriteAnnouncer};

/// Reason why the tier's client can't be made.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    #[error(transparent)]
    NoPeer(#[from] MissingPeer),
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

/// The client of the cache tier. One per process.
pub struct CacheTierClient {
    pub(crate) asker: Arc<WorkerAsker>,
    /// Leases on attributes that this process may answer with.
    leases: Arc<TierLeaseTable>,
    pub(crate) spans: Arc<SpanReader>,
    opener: ObjectOpener,
    pub(crate) announcer: Arc<WriteAnnouncer>,
    stager: PageStager,
    warmer: PageWarmer,
    looker: ObjectLooker,
    tender: BlockTender,
    listings: ListingReporter,
    gone_versions: GoneVersionReporter,
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
        let clock = Arc::new(lease_table::since_boot);
        Self::with_clock(options, placement, peers, arena, registry, clock)
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
        let gateway = rand::random();
        let metrics = Arc::new(TierMetrics::new(registry)?);
        // Workers of a list grant no leases.
        let leases_max =
            if options.coordinated || options.in_process { options.settings.leases_max } else { 0 };
        let bounds = SmallObjectBounds {
            object_bytes_max: options.settings.small_object_max.0,
            memory_bytes_max: options.settings.small_memory_max.0,
        };
        let small_objects = SmallObjectMemory::new(bounds, &metrics);
        let leases =
            Arc::new(TierLeaseTable::new(gateway, leases_max as usize, clock, small_objects));
        let placement = TierPlacement::new(placement, &peers, metrics.hot_blocks.clone())?;
        let tasks = TaskTracker::new();
        let asker = Arc::new(WorkerAsker { options, metrics, placement, tasks });
        let shortage = MemoryShortage::new(
            asker.options.settings.memory_wait.0,
            asker.metrics.memory_waits.clone(),
        );
        let bounds = KeptPageBounds {
            bytes_max: asker.options.settings.kept_pages_max.0,
            kept_for: asker.options.settings.kept_pages_for.0,
            geometry: asker.options.geometry,
        };
        let kept_pages = KeptPages::new(bounds, asker.metrics.clone());
        let spans = Arc::new(SpanReader {
            asker: asker.clone(),
            leases: leases.clone(),
            arena,
            shortage,
            kept_pages,
        });
        let opener = ObjectOpener {
            asker: asker.clone(),
            spans: spans.clone(),
            leases: leases.clone(),
            recalls: Arc::new(RecallFollower { asker: asker.clone(), leases: leases.clone() }),
            agreement: MapAgreement::new(asker.clone()),
        };
        let announcer = Arc::new(WriteAnnouncer::new(asker.clone(), leases.clone(), gateway));
        Ok(Arc::new(Self {
            opener,
            announcer,
            stager: PageStager { asker: asker.clone() },
            warmer: PageWarmer { asker: asker.clone() },
            looker: ObjectLooker { asker: asker.clone() },
            tender: BlockTender { asker: asker.clone() },
            listings: ListingReporter { asker: asker.clone() },
            gone_versions: GoneVersionReporter { asker: asker.clone(), leases: leases.clone() },
            asker,
            leases,
            spans,
        }))
    }

    /// Replaces the map. Workers that both maps have under the same peer keep their state, health
    /// included. Calls under way to others end by themselves.
    pub fn adopt_map(
        &self,
        placement: PlacementMap,
        peers: &HashMap<WorkerId, Arc<TransportPeer>>,
    ) -> Result<(), TierError> {
        Ok(self.asker.placement.adopt_map(placement, peers)?)
    }

    /// Replaces the list of hot blocks and spreads their reads over as many workers. Takes some
    /// milliseconds for hundreds of blocks and a thousand workers.
    pub fn adopt_hot(&self, hot: HotBlockReplicas) {
        self.asker.placement.adopt_hot(hot);
    }

    /// Has the coordinators relay notices to homes that can't be reached. Call it once. Has an
    /// effect only where the map comes from coordinators.
    pub fn relay_with(&self, relay: Arc<dyn NoticeRelay>) {
        self.announcer.courier.relay_with(relay);
    }

    /// Returns the options this client was made with. They never change.
    pub fn tier_options(&self) -> &TierOptions {
        &self.asker.options
    }

    /// Returns how many opens a lease has answered.
    pub fn leased_opens_count(&self) -> u64 {
        let leased = &self.asker.metrics.leased;
        let found = leased[LeasedOpenKind::Head].get() + leased[LeasedOpenKind::Read].get();
        found + self.leased_absences_count()
    }

    /// Returns how many of them found no object.
    pub fn leased_absences_count(&self) -> u64 {
        self.asker.metrics.leased[LeasedOpenKind::Absence].get()
    }

    /// Returns how many opens were answered with bytes that were held beside a lease.
    pub fn held_reads_count(&self) -> u64 {
        self.asker.metrics.small_object_reads.get()
    }

    /// Returns how many leases homes have recalled, all at once or one by one.
    pub fn leases_recalled(&self) -> u64 {
        self.asker.metrics.leases_recalled()
    }

    /// Returns the number of workers that are not resting, and of all workers. For readiness.
    pub fn workers_up(&self) -> (usize, usize) {
        let map = self.asker.placement.load_map();
        (map.workers.iter().filter(|worker| worker.health.is_up()).count(), map.workers.len())
    }

    /// Returns how many blocks have their reads spread.
    pub fn hot_blocks(&self) -> usize {
        self.asker.placement.load_map().spread.len()
    }

    /// Opens an object at its home, or by a lease on its attributes.
    pub async fn open_object(&self, request: &OpenRequest) -> OpenOutcome {
        self.opener.open_object(request).await
    }

    /// Opens objects for their attributes, by leases and by one message to each home. Returns the
    /// outcomes in the order of the keys. `None`: nothing is known without the UFS; open the object.
    pub async fn open_heads(&self, request: &HeadListRequest) -> Vec<Option<OpenOutcome>> {
        self.opener.open_heads(request).await
    }

    /// Prepares the read of one span. Nothing is asked before the first poll or
    /// [`SpanRead::start`].
    pub fn read_span(&self, request: SpanRequest) -> SpanRead {
        self.spans.read_span(request)
    }

    /// Prepares the read of one span by the workers alone, whatever of it is kept here.
    pub fn ask_span(&self, request: SpanRequest) -> SpanRead {
        self.spans.ask_span(request)
    }

    /// Tells the home of each key that a write is about to become visible. All have to acknowledge.
    pub async fn announce_write(
        &self,
        volume: &ObjectVolume,
        keys: &[String],
    ) -> Result<TierWriteGuard, CoherenceError> {
        self.announce_write_for(volume, keys, None).await
    }

    /// Announces a write for a tenant. Homes count it for that one, until it is reported and, if it
    /// is lost sight of, until it can no longer complete.
    pub async fn announce_write_for(
        &self,
        volume: &ObjectVolume,
        keys: &[String],
        tenant: Option<TenantTag>,
    ) -> Result<TierWriteGuard, CoherenceError> {
        self.announcer.announce_write(volume, keys, tenant).await
    }

    /// Tells the homes that a write is over. Goes on in the background if the caller goes away.
    pub async fn report_write(
        &self,
        announced: TierWriteGuard,
        outcome: WriteOutcome,
    ) -> Result<(), CoherenceError> {
        self.announcer.report_write(announced, outcome).await
    }

    /// Tells the homes that a batch is over. The outcome of the `unknown` keys is unknown; the
    /// others are done.
    pub async fn report_batch(
        &self,
        announced: TierWriteGuard,
        unknown: &[String],
    ) -> Result<(), CoherenceError> {
        self.announcer.report_batch(announced, unknown).await
    }

    /// Returns who would keep pages of a block that is being written: its owner, unless it rests
    /// after failures.
    pub fn stage_owner(&self, object: &ObjectKey, block: BlockIndex) -> Option<WorkerId> {
        self.stager.stage_owner(object, block)
    }

    /// Pushes pages of an object that is being written to the owner of their block. `Ok`: it keeps
    /// them, out of everybody's sight, until they are settled or their time is over.
    pub async fn stage_pages(
        &self,
        worker: &WorkerId,
        request: StageRequest,
        until: Instant,
    ) -> Result<(), QuestionError> {
        self.stager.stage_pages(worker, request, until).await
    }

    /// Makes staged pages those of a version, or gives them up. Returns how many belong to the
    /// version now.
    pub async fn settle_pages(
        &self,
        request: &SettleRequest,
        until: Instant,
    ) -> Result<u64, QuestionError> {
        self.stager.settle_pages(request, until).await
    }

    /// Has each home check what it knows of these keys against what a listing showed of them. See
    /// `upkeep::listing_report`.
    pub async fn report_listing(&self, volume: &ObjectVolume, entries: Vec<ListedEntry>) {
        self.listings.report_listing(volume, entries).await;
    }

    /// Has the home drop what it knows of this version, which the UFS no longer has. Also drops
    /// this process's leases on the object.
    pub async fn tell_version_gone(&self, object: &ObjectKey, version: &ContentVersion) {
        self.gone_versions.tell_version_gone(object, version).await;
    }

    /// Has the homes drop what they hold of `keys`. Best effort, in the background: correctness
    /// must not depend on it.
    pub fn forget_keys(&self, volume: &ObjectVolume, keys: Vec<String>) {
        self.leases.drop_objects(volume, &keys);
        for (worker, keys) in self.asker.placement.current_map().by_home(volume, keys) {
            self.asker.forget_at(worker, volume.clone(), keys);
        }
    }

    /// Returns how many workers the map gives a block.
    pub fn owners_count(&self, object: &ObjectKey, block: BlockIndex) -> usize {
        self.warmer.owners_count(object, block)
    }

    /// Returns the workers that the map gives a block, its owner first.
    pub fn owner_ids(&self, object: &ObjectKey, block: BlockIndex) -> Vec<WorkerId> {
        self.tender.owner_ids(object, block)
    }

    /// Has one owner of a block load pages of it.
    pub async fn warm_pages(&self, request: &WarmRequest) -> WarmOutcome {
        self.warmer.warm_pages(request).await
    }

    /// Asks the homes of these objects what they have of them. Returns the outcomes in the same
    /// order.
    pub async fn look_up_objects(
        &self,
        volume: &ObjectVolume,
        attributes_age_ms_max: u64,
        tier: WarmTier,
        objects: Vec<LookedFor>,
    ) -> Vec<ObjectLookOutcome> {
        self.looker.look_up_objects(volume, attributes_age_ms_max, tier, objects).await
    }

    /// Has the homes ask the UFS before they answer for these objects again. After `Ok`, every read
    /// that begins sees what the UFS has now, or later. Tries for `patience`, also across a change
    /// of the map.
    pub async fn invalidate_objects(
        &self,
        volume: &ObjectVolume,
        invalid: &InvalidObjects,
        patience: Duration,
    ) -> Result<(), TendError> {
        self.tender.invalidate_objects(volume, invalid, patience).await
    }

    /// Applies `act` to up to [`verbs3_protocol::TENDED_BLOCKS_MAX`] blocks of a version at one
    /// worker, and returns what it has of them. The map need not give it these blocks.
    pub async fn tend_blocks(
        &self,
        worker: &WorkerId,
        object: &ObjectKey,
        version: &ContentVersion,
        first_block: BlockIndex,
        blocks: u16,
        act: TendAct,
    ) -> Result<Vec<TendedBlock>, TendError> {
        self.tender.tend_blocks(worker, object, version, first_block, blocks, act).await
    }

    /// Waits for reports, renewals and invalidations under way.
    pub async fn shutdown(&self) {
        self.leases.stop.cancel();
        self.asker.tasks.close();
        self.asker.tasks.wait().await;
    }
}

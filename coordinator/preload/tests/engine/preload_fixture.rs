//! Workers over a store, and an engine over both.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::task::JoinHandle;
use verbs3_cache_worker::{
    CacheWorker, MapActivation, WorkerAskers, WorkerComponents, WorkerSettings, WorkerVolumes,
};
use verbs3_client::{
    CacheTierClient, NeighbourClient, NeighbourSettings, OpenOutcome, OpenRequest, SpanItem,
    SpanRequest, TierOptions, TierSettings,
};
use verbs3_pacing::GrowingPause;
use verbs3_preload::api::{JobView, PreloadJobSpec};
use verbs3_preload::metrics::PreloadMetrics;
use verbs3_preload::{
    CoordinatorPreloadSettings, JobStore, PreloadEngine, PreloadMount, PreloadMountTable,
    PreloadOptions,
};
use verbs3_protocol::{
    BlockGeometry, ByteRange, CacheVerdict, Epoch, ObjectKey, ObjectVolume, PlacementMap,
    PlacementMember, WorkerId,
};
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::inprocess::{FaultHandle, InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::peer::{PeerOptions, TransportPeer};
use verbs3_rdma::transport::{CallService, IncomingCall, PeerAddress, ReplySender};
use verbs3_settings::{ByteSize, TimePeriod};
use verbs3_ufs::{Ufs, UfsSettings};

use crate::counting_store::CountingStore;

pub const GEOMETRY: BlockGeometry = BlockGeometry { block_bytes: 1 << 20, page_bytes: 64 << 10 };

/// Host of a worker, which can be restarted.
struct Host {
    worker: Mutex<Arc<CacheWorker>>,
    ufs: Ufs,
    memory: usize,
}

impl Host {
    fn worker(ufs: &Ufs, memory: usize) -> Arc<CacheWorker> {
        let components = WorkerComponents {
            geometry: GEOMETRY,
            askers: WorkerAskers::OfEpoch(Epoch(3)),
            arena: arena(memory),
            volumes: WorkerVolumes::of_stores([ufs.clone()]),
        };
        CacheWorker::new(&WorkerSettings::default(), components, &Registry::new()).unwrap()
    }
}

#[async_trait]
impl CallService for Host {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let worker = self.worker.lock().clone();
        worker.serve_call(request, reply).await;
    }
}

pub struct PreloadFixture {
    pub store: Arc<CountingStore>,
    pub tier: Arc<CacheTierClient>,
    pub faults: Vec<FaultHandle>,
    hosts: Vec<Arc<Host>>,
    peers: HashMap<WorkerId, Arc<TransportPeer>>,
    placement: PlacementMap,
    pub mounts: Arc<PreloadMountTable>,
    registry: Registry,
    pub folder: tempfile::TempDir,
}

pub fn arena(bytes: usize) -> Arena {
    let cell_bytes_max = GEOMETRY.page_bytes as usize;
    Arena::map_memory(ArenaOptions { capacity_bytes: bytes, cell_bytes_max, populate: false })
        .unwrap()
}

impl PreloadFixture {
    pub fn new(workers: usize) -> Self {
        Self::with(workers, 64 << 20)
    }

    /// Creates workers with this much memory each.
    pub fn with(count: usize, memory: usize) -> Self {
        let store = Arc::new(CountingStore::default());
        Self::of(count, (memory, 64 << 20), (store.clone(), store))
    }

    /// `memory`: of each worker, and of the reader. The stores: the coordinator's, and the one that
    /// the workers reach.
    pub fn of(
        count: usize,
        memory: (usize, usize),
        (store, of_workers): (Arc<CountingStore>, Arc<CountingStore>),
    ) -> Self {
        let (memory, reading) = memory;
        let mut settings = UfsSettings::with_name("main");
        settings.retries.attempts_max = 1;
        // A request that stalls is given up soon.
        settings.deadlines.first_byte = TimePeriod::from_millis(300);
        let ufs = Ufs::new(store.clone(), settings.clone());
        let of_workers = Ufs::new(of_workers, settings);
        let (mut hosts, mut faults, mut peers, mut members) =
            (Vec::new(), Vec::new(), HashMap::new(), Vec::new());
        for number in 0..count {
            let id = WorkerId(format!("worker-{number}"));
            let worker = Mutex::new(Host::worker(&of_workers, memory));
            let host = Arc::new(Host { worker, ufs: of_workers.clone(), memory });
            let fault = InProcessFaults::without_faults();
            faults.push(fault.fault_handle());
            let transport = InProcess::make_transport(host.clone(), InProcessMode::Copy(fault));
            let address = PeerAddress::from(SocketAddr::from(([127, 0, 0, 1], 1)));
            peers.insert(
                id.clone(),
                Arc::new(TransportPeer::new(
                    &id.0,
                    address,
                    vec![transport],
                    PeerOptions::default(),
                )),
            );
            members.push(PlacementMember::new(id, 1.0));
            hosts.push(host);
        }
        let placement = PlacementMap::new(Epoch(3), members, 2.min(count)).unwrap();
        let open_landing = ByteSize(GEOMETRY.page_bytes.into());
        // A job waits for memory by itself, by putting again what found none.
        let memory_wait = TimePeriod(Duration::ZERO);
        let settings = TierSettings { open_landing, memory_wait, ..TierSettings::default() };
        let options =
            TierOptions { settings, geometry: GEOMETRY, coordinated: false, in_process: false };
        let (all, map) = (peers.clone(), placement.clone());
        let registry = Registry::new();
        let tier = CacheTierClient::new(options, map, all, arena(reading), &registry).unwrap();
        let mount = PreloadMount {
            name: "train".into(),
            ufs,
            bucket: "bucket".into(),
            prefix: "below/".into(),
            attributes_age_ms_max: 3_600_000,
            cached: true,
        };
        let named = BTreeMap::from([("train".to_owned(), Arc::new(mount))]);
        let mounts = Arc::new(PreloadMountTable { named, whole: None });
        Self {
            store,
            tier,
            faults,
            hosts,
            peers,
            placement,
            mounts,
            registry,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Gives workers the map and a way to each other, with this much memory for received bytes. A
    /// copy of a block comes from its owner.
    pub fn reach_each_other(&self, memory: usize) {
        for (number, host) in self.hosts.iter().enumerate() {
            let me = WorkerId(format!("worker-{number}"));
            let settings = NeighbourSettings {
                wait_max: TimePeriod(Duration::ZERO),
                silence_max: TimePeriod::from_seconds(10),
                deadline: TimePeriod::from_seconds(20),
                ..NeighbourSettings::default()
            };
            let neighbours = NeighbourClient::new(settings, GEOMETRY, arena(memory));
            neighbours.adopt_peers(&self.peers);
            let worker = host.worker.lock();
            worker.set_neighbours(neighbours);
            let (former, handed_over, open_writes, resumes) =
                (None, HashSet::new(), Vec::new(), None);
            let (map, uncertain, restarted) = (&self.placement, Duration::ZERO, false);
            let me = &me;
            worker.activate_map(MapActivation {
                map,
                me,
                former,
                handed_over,
                open_writes,
                resumes,
                uncertain,
                restarted,
            });
        }
    }

    /// Returns the workers' calls so far, by kind.
    pub fn calls(&self, kind: &str) -> f64 {
        let families = self.registry.gather();
        let calls = families.iter().filter(|family| family.name() == "verbs3_client_calls_total");
        let of_kind = calls
            .flat_map(|family| family.get_metric())
            .filter(|metric| metric.get_label().iter().any(|label| label.value() == kind));
        of_kind.map(|metric| metric.get_counter().get_value()).sum()
    }

    pub fn put(&self, key: &str, bytes: u64) {
        self.store.objects.lock().insert(format!("below/{key}"), bytes);
    }

    /// Puts objects of some sizes. Returns their total bytes.
    pub fn put_some(&self, count: u64) -> u64 {
        let sizes = [1, 4096, 70_000, (1 << 20) + 5, 0, (2 << 20) + 70_000];
        let size = |number: u64| sizes[(number % 6) as usize];
        (0..count).for_each(|number| self.put(&format!("k{number:04}"), size(number)));
        (0..count).map(size).sum()
    }

    pub fn options(&self) -> PreloadOptions {
        let settings = CoordinatorPreloadSettings {
            patience: TimePeriod::from_seconds(120),
            failures: self.folder.path().join("failures"),
            ..CoordinatorPreloadSettings::default()
        };
        PreloadOptions {
            page_keys: 7,
            pauses: GrowingPause::new(Duration::from_millis(1), Duration::from_millis(50)),
            ..PreloadOptions::new(settings)
        }
    }

    pub async fn engine(&self, jobs: Arc<dyn JobStore>) -> (Arc<PreloadEngine>, JoinHandle<()>) {
        self.engine_with(self.options(), jobs).await
    }

    pub async fn engine_with(
        &self,
        options: PreloadOptions,
        jobs: Arc<dyn JobStore>,
    ) -> (Arc<PreloadEngine>, JoinHandle<()>) {
        let metrics = PreloadMetrics::new(&Registry::new()).unwrap();
        let engine = PreloadEngine::load_from_store(
            options,
            self.tier.clone(),
            self.mounts.clone(),
            jobs,
            metrics,
        )
        .await
        .unwrap();
        let running = tokio::spawn(engine.clone().run());
        (engine, running)
    }

    /// Reads every object through the tier. Fails unless all bytes are right and were there.
    pub async fn assert_hot(&self) {
        let asked = self.store.asked();
        let keys: Vec<String> = self.store.objects.lock().keys().cloned().collect();
        for key in keys {
            let content = self.store.content(&key).unwrap();
            let object = Arc::new(ObjectKey {
                volume: ObjectVolume::new("main", "bucket"),
                key: key.clone(),
            });
            let open = OpenRequest {
                object: object.clone(),
                version_id: None,
                attributes_age_ms_max: 3_600_000,
                absence_age_ms_max: 0,
                checksums: false,
                want: Some(ByteRange::All),
                silence: None,
                trace: None,
                tenant: None,
                place: None,
            };
            let OpenOutcome::Found(found) = self.tier.open_object(&open).await else {
                panic!("{key} was not found")
            };
            assert_eq!(found.cache_verdict(), CacheVerdict::Hit, "{key}");
            let version = Arc::new(found.reply.attributes.version.clone());
            let mut bytes = Vec::new();
            for span in GEOMETRY.cut_spans(0..version.bytes) {
                let (object, version) = (object.clone(), version.clone());
                let request = SpanRequest {
                    object,
                    version,
                    span,
                    ahead_bytes: 0,
                    request_range: 0..0,
                    trace: None,
                    tenant: None,
                    place: None,
                };
                let mut read = self.tier.read_span(request);
                loop {
                    match read.next().await {
                        SpanItem::Bytes(data) => {
                            data.iter().for_each(|data| bytes.extend_from_slice(data))
                        }
                        SpanItem::End => break,
                        other => panic!("{key}: {other:?}"),
                    }
                }
                assert!(
                    matches!(read.bytes_origin(), None | Some((CacheVerdict::Hit, _))),
                    "{key}"
                );
            }
            assert!(bytes == content, "{key} has other bytes");
        }
        assert_eq!(self.store.asked(), asked, "reads went to the store");
    }

    pub async fn end(self) {
        self.tier.shutdown().await;
        for host in self.hosts {
            let worker = host.worker.lock().clone();
            worker.shutdown().await;
        }
    }

    /// Restarts a worker, which loses its memory.
    pub async fn restart(&self, number: usize) {
        let host = &self.hosts[number];
        let fresh = Host::worker(&host.ufs, host.memory);
        let former = std::mem::replace(&mut *host.worker.lock(), fresh);
        former.shutdown().await;
    }
}

pub fn below(prefix: &str) -> PreloadJobSpec {
    PreloadJobSpec { prefixes: vec![format!("s3://train/{prefix}")], ..PreloadJobSpec::default() }
}

/// Waits until the job is over.
pub async fn over(engine: &PreloadEngine, id: &str) -> JobView {
    let mut news = None;
    loop {
        let view = engine.get(id, news, Duration::from_secs(60)).await.unwrap();
        if view.state.is_over() {
            return view;
        }
        news = Some(view.news);
    }
}

pub async fn run(engine: &Arc<PreloadEngine>, spec: PreloadJobSpec) -> JobView {
    let (view, is_new) = engine.create_job(spec).await.unwrap();
    assert!(is_new);
    over(engine, &view.id).await
}

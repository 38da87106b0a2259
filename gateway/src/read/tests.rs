//! The read path end to end in one process: reader, tier's client, in-process transport, real
//! workers, local store.
#![allow(clippy::unwrap_used)]

mod answering;
mod bytes_right;
mod coherence;
mod head_list;
mod keeping;
mod resuming;
mod trouble;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::StreamExt;
use http::HeaderMap;
use s3s::dto::{
    ChecksumMode, CreateBucketInput, DeleteObjectInput, ETag, ETagCondition, GetObjectInput,
    GetObjectOutput, HeadObjectInput, HeadObjectOutput, Metadata, PutObjectInput, StreamingBlob,
};
use s3s::{S3, S3Request, S3Response, S3Result, StdError};
use tempfile::TempDir;
use verbs3_cache_worker::{CacheWorker, WorkerAskers, WorkerComponents, WorkerSettings};
use verbs3_client::{TierOptions, TierSettings};
use verbs3_protocol::{Epoch, ObjectVolume, PlacementMap, PlacementMember, WorkerId};
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::inprocess::{FaultHandle, InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::peer::{PeerOptions, TransportPeer};
use verbs3_rdma::transport::PeerAddress;
use verbs3_ufs::local::{LocalOptions, LocalStore};
use verbs3_ufs::{Ufs, UfsSettings};

use verbs3_settings::ByteSize;

use super::*;
use crate::mount::WriteCoherence;
use crate::request_context::RequestId;

const BLOCK: usize = 1 << 20;
const PAGE: usize = 64 << 10;
const GEOMETRY: BlockGeometry =
    BlockGeometry { block_bytes: BLOCK as u32, page_bytes: PAGE as u32 };

/// How gateway and workers of a fixture are joined.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Join {
    Share,
    Copy,
}

/// A store, workers before it, and a reader before those.
struct ReadFixture {
    reader: ObjectReader,
    tier: Arc<CacheTierClient>,
    mount: Arc<MountedBucket>,
    store: Arc<FailingStore>,
    faults: Vec<FaultHandle>,
    workers: Vec<Arc<CacheWorker>>,
    _dir: TempDir,
}

/// What a fixture is made with.
struct ReadSetup {
    join: Join,
    workers: usize,
    attributes: AttributeFreshness,
    reader: GatewayReadSettings,
    /// Bytes a second of the store; 0: any.
    store_rate: u64,
    landings: usize,
}

impl Default for ReadSetup {
    fn default() -> Self {
        Self {
            join: Join::Copy,
            workers: 1,
            attributes: AttributeFreshness::Immutable,
            store_rate: 0,
            reader: GatewayReadSettings {
                window: ByteSize(4 * BLOCK as u64),
                ..GatewayReadSettings::default()
            },
            landings: 32 << 20,
        }
    }
}

impl ReadSetup {
    async fn start_fixture(self) -> ReadFixture {
        let dir = tempfile::tempdir().unwrap();
        let local =
            LocalStore::open_store(LocalOptions { sync: false, ..LocalOptions::new(dir.path()) })
                .unwrap();
        let store = Arc::new(FailingStore {
            store: Arc::new(local),
            gets: AtomicU64::default(),
            heads: AtomicU64::default(),
            bytes: AtomicU64::default(),
            version_id: Mutex::default(),
            refusals: AtomicU64::default(),
            breaks: Mutex::default(),
            ignores_range: AtomicBool::default(),
        });
        let create = CreateBucketInput { bucket: "train".into(), ..Default::default() };
        store.store.create_bucket(plain(create)).await.unwrap();
        let ufs = Ufs::new(store.clone(), UfsSettings::with_name("store"));
        let volume = ObjectVolume::new("store", "train");
        let (mut peers, mut members, mut faults, mut workers) =
            (HashMap::new(), vec![], vec![], vec![]);
        for n in 0..self.workers {
            let id = WorkerId(format!("w{n}"));
            let volumes = HashMap::from([(volume.clone(), (ufs.clone(), "train".to_owned()))]);
            let mut settings = WorkerSettings::default();
            // Each request ends with its block, so that much can happen between two of them.
            settings.fill.request_max = ByteSize(BLOCK as u64);
            settings.fill.whole_request_max = ByteSize(BLOCK as u64);
            let components = WorkerComponents {
                geometry: GEOMETRY,
                askers: WorkerAskers::Any,
                arena: arena(48 << 20),
                volumes: volumes.into(),
            };
            let worker = CacheWorker::new(&settings, components, &Registry::new()).unwrap();
            let fault = InProcessFaults::without_faults();
            faults.push(fault.fault_handle());
            let peer = match self.join {
                Join::Share => TransportPeer::for_local_connection(InProcess::open_connection(
                    worker.clone(),
                    InProcessMode::Share,
                )),
                Join::Copy => {
                    let transport =
                        InProcess::make_transport(worker.clone(), InProcessMode::Copy(fault));
                    let address = PeerAddress::from(SocketAddr::from(([127, 0, 0, 1], 1)));
                    // A fault cuts one connection: a worker that is gone has no other.
                    let mut options = PeerOptions::default();
                    options.settings.connections_max = 1;
                    TransportPeer::new(id.0.clone(), address, vec![transport], options)
                }
            };
            peers.insert(id.clone(), Arc::new(peer));
            members.push(PlacementMember::new(id, 1.0));
            workers.push(worker);
        }
        let placement = PlacementMap::new(Epoch(1), members, self.workers).unwrap();
        let settings =
            TierSettings { open_landing: ByteSize(4 * PAGE as u64), ..TierSettings::default() };
        let options =
            TierOptions { settings, geometry: GEOMETRY, coordinated: false, in_process: false };
        let registry = Registry::new();
        let tier = CacheTierClient::new(options, placement, peers, arena(self.landings), &registry)
            .unwrap();
        let mut settings = GatewaySettings { read: self.reader, ..GatewaySettings::default() };
        settings.limits.store_rate_max = ByteSize(self.store_rate);
        let reader = ObjectReader::new(&settings, tier.clone(), &registry).unwrap();
        let mount = Arc::new(MountedBucket {
            name: "train".into(),
            volume,
            ufs,
            bucket: "train".into(),
            prefix: String::new(),
            attributes: self.attributes,
            absence_ttl: Duration::from_secs(60),
            coherence: WriteCoherence::Strict,
            read_only: false,
            cached: true,
            populate_bytes_max: None,
        });
        ReadFixture { reader, tier, mount, store, faults, workers, _dir: dir }
    }
}

fn arena(bytes: usize) -> Arena {
    Arena::map_memory(ArenaOptions { capacity_bytes: bytes, cell_bytes_max: PAGE, populate: false })
        .unwrap()
}

/// What a client got.
struct Got {
    cx: Arc<RequestContext>,
    status: u16,
    headers: HeaderMap,
    output: GetObjectOutput,
}

impl Got {
    /// The body, and the error that cut it.
    async fn body(&mut self) -> (Vec<u8>, Option<StdError>) {
        let mut bytes = Vec::new();
        let Some(mut body) = self.output.body.take() else { return (bytes, None) };
        while let Some(item) = body.next().await {
            match item {
                Ok(data) => bytes.extend_from_slice(&data),
                Err(error) => return (bytes, Some(error)),
            }
        }
        (bytes, None)
    }

    fn verdict(&self) -> (&'static str, &'static str) {
        (self.cx.cache_verdict().unwrap().as_str(), self.cx.bytes_origin().unwrap().as_str())
    }
}

impl ReadFixture {
    async fn put(&self, key: &str, bytes: &[u8]) {
        let input = PutObjectInput {
            bucket: "train".into(),
            key: key.into(),
            body: Some(StreamingBlob::from(s3s::Body::from(bytes.to_vec()))),
            content_length: Some(bytes.len() as i64),
            content_type: Some("text/x-test".into()),
            metadata: Some(Metadata::from_iter([("colour".to_owned(), "blue".to_owned())])),
            ..Default::default()
        };
        self.store.store.put_object(plain(input)).await.unwrap();
    }

    /// A write as the gateway's write path does it.
    async fn write(&self, key: &str, bytes: &[u8]) {
        let announced =
            self.tier.announce_write(&self.mount.volume, &[key.to_owned()]).await.unwrap();
        self.put(key, bytes).await;
        self.tier.report_write(announced, verbs3_protocol::WriteOutcome::Done).await.unwrap();
    }

    async fn try_get(
        &self,
        input: GetObjectInput,
    ) -> (Arc<RequestContext>, S3Result<S3Response<GetObjectOutput>>) {
        let cx = Arc::new(RequestContext::new(RequestId::generate(), Instant::now()));
        let result = self.reader.get(&cx, &self.mount, input, None).await;
        (cx, result)
    }

    async fn get(&self, input: GetObjectInput) -> Got {
        let (cx, result) = self.try_get(input).await;
        let response = result.unwrap();
        let part = response.output.content_range.is_some();
        Got {
            cx,
            status: if part { 206 } else { 200 },
            headers: response.headers,
            output: response.output,
        }
    }

    async fn head(&self, input: HeadObjectInput) -> S3Result<S3Response<HeadObjectOutput>> {
        let cx = Arc::new(RequestContext::new(RequestId::generate(), Instant::now()));
        self.reader.head_object(&cx, &self.mount, input).await
    }

    /// The whole body of a whole object.
    async fn read(&self, key: &str) -> Vec<u8> {
        let (bytes, error) = self.get(of(key)).await.body().await;
        assert!(error.is_none(), "{error:?}");
        bytes
    }
}

fn of(key: &str) -> GetObjectInput {
    GetObjectInput { bucket: "train".into(), key: key.into(), ..Default::default() }
}

fn ranged(key: &str, first: u64, last: u64) -> GetObjectInput {
    GetObjectInput { range: Some(s3s::dto::Range::Int { first, last: Some(last) }), ..of(key) }
}

/// Bytes that differ from place to place and from seed to seed.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

fn plain<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: http::Method::GET,
        uri: http::Uri::from_static("/"),
        headers: HeaderMap::new(),
        extensions: http::Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

/// Counts what reaches the store, and goes wrong where a test says so.
struct FailingStore {
    store: Arc<LocalStore>,
    gets: AtomicU64,
    heads: AtomicU64,
    /// Bytes of bodies that were asked for.
    bytes: AtomicU64,
    /// Of each object, where set; who names it is refused.
    version_id: Mutex<Option<String>>,
    /// Next GETs that are told to slow down.
    refusals: AtomicU64,
    /// The next GETs' bodies break off after so many bytes.
    breaks: Mutex<VecDeque<usize>>,
    ignores_range: AtomicBool,
}

impl FailingStore {
    fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    fn heads(&self) -> u64 {
        self.heads.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The first bytes of a body, and then an error.
fn broken(body: StreamingBlob, bytes: usize) -> StreamingBlob {
    let beginning = body.scan(bytes, |left, item| {
        let cut = item.map(|mut data| {
            data.truncate(*left);
            *left -= data.len();
            data
        });
        std::future::ready(Some(cut).filter(|cut| cut.as_ref().is_ok_and(|data| !data.is_empty())))
    });
    let end = futures::stream::iter([Err(StdError::from("the connection broke"))]);
    StreamingBlob::wrap(beginning.chain(end).map(|item| item.map_err(std::io::Error::other)))
}

#[async_trait]
impl S3 for FailingStore {
    async fn get_object(
        &self,
        mut request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let version_id = self.version_id.lock().clone();
        if version_id.is_some() && request.input.version_id.is_some() {
            return Err(s3s::S3ErrorCode::AccessDenied.into());
        }
        let less = |refusals: u64| refusals.checked_sub(1);
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Err(s3s::S3ErrorCode::SlowDown.into());
        }
        if self.ignores_range.load(Ordering::Relaxed) {
            request.input.range = None;
        }
        let mut response = self.store.get_object(request).await?;
        response.output.version_id = version_id.or(response.output.version_id);
        let bytes = response.output.content_length.unwrap_or(0);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let breaks = self.breaks.lock().pop_front();
        if let Some(after) = breaks {
            response.output.body = response.output.body.map(|body| broken(body, after));
        }
        Ok(response)
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        self.heads.fetch_add(1, Ordering::Relaxed);
        let version_id = self.version_id.lock().clone();
        let mut response = self.store.head_object(request).await?;
        response.output.version_id = version_id.or(response.output.version_id);
        Ok(response)
    }
}

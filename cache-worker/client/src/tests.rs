//! The tier's client against scripted workers, over the copying in-process transport with faults.
#![allow(clippy::unwrap_used)]

mod absent_leasing;
mod between;
mod following;
mod holding;
mod keeping;
mod leasing;
mod opening;
mod placing;
mod reading;
mod relaying;
mod spreading;
mod ways;
mod writing;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus::Registry;
use verbs3_protocol::{
    BlockGeometry, BlockIndex, BlockPiece, CacheVerdict, ContentVersion, Epoch, ObjectKey,
    ObjectVolume, PlacementMap, PlacementMember, RefusalKind, RequestEnvelope, TenantTag, WorkerId,
    WorkerRefusal, WorkerReply, WorkerRequest, WriteLeaseState,
};
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::inprocess::{FaultHandle, InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::peer::{PeerOptions, TransportPeer, TransportWays};
use verbs3_rdma::transport::{self, CallService, IncomingCall, PeerAddress, TransportKind};
use verbs3_settings::{ByteSize, TimePeriod};

use crate::{CacheTierClient, SpanItem, SpanRead, TierOptions, TierSettings};

const GEOMETRY: BlockGeometry = BlockGeometry { block_bytes: 1 << 20, page_bytes: 64 << 10 };
const PAGE: u32 = 64 << 10;

/// What a scripted worker does with a request.
type Script =
    Box<dyn Fn(WorkerRequest, transport::ReplySender) -> BoxFuture<'static, ()> + Send + Sync>;

struct Scripted {
    asked: Arc<Mutex<Vec<WorkerRequest>>>,
    tenants: Arc<Mutex<Vec<Option<TenantTag>>>>,
    script: Script,
}

#[async_trait]
impl CallService for Scripted {
    async fn serve_call(&self, request: IncomingCall, reply: transport::ReplySender) {
        let RequestEnvelope { tenant, question, .. } =
            RequestEnvelope::decode(&request.message).unwrap();
        self.tenants.lock().push(tenant);
        self.asked.lock().push(question.clone());
        (self.script)(question, reply).await;
    }
}

/// A worker of a test.
struct TestWorker {
    id: WorkerId,
    asked: Arc<Mutex<Vec<WorkerRequest>>>,
    /// For whom each was asked.
    tenants: Arc<Mutex<Vec<Option<TenantTag>>>>,
    faults: FaultHandle,
    peer: Arc<TransportPeer>,
}

impl TestWorker {
    fn new(id: &str, script: Script) -> Self {
        Self::with_faults(id, InProcessFaults::without_faults(), script)
    }

    fn with_faults(id: &str, faults: InProcessFaults, script: Script) -> Self {
        let (asked, tenants) = (Arc::default(), Arc::default());
        let service =
            Arc::new(Scripted { asked: Arc::clone(&asked), tenants: Arc::clone(&tenants), script });
        let handle = faults.fault_handle();
        let transport = InProcess::make_transport(service, InProcessMode::Copy(faults));
        let address = PeerAddress::from(SocketAddr::from(([127, 0, 0, 1], 1)));
        let peer =
            Arc::new(TransportPeer::new(id, address, vec![transport], PeerOptions::default()));
        Self { id: WorkerId(id.into()), asked, tenants, faults: handle, peer }
    }

    /// One of this process, whose memory itself is handed over.
    fn sharing_memory(id: &str, script: Script) -> Self {
        let (asked, tenants) = (Arc::default(), Arc::default());
        let service =
            Arc::new(Scripted { asked: Arc::clone(&asked), tenants: Arc::clone(&tenants), script });
        let connection = InProcess::open_connection(service, InProcessMode::Share);
        let peer = Arc::new(TransportPeer::for_local_connection(connection));
        let faults = InProcessFaults::without_faults().fault_handle();
        Self { id: WorkerId(id.into()), asked, tenants, faults, peer }
    }

    /// One whose answers are held until the test lets them go, also when nobody wants them any more.
    fn answering_late(id: &str) -> Self {
        let faults = InProcessFaults::without_faults().hold_deliveries().late_replies();
        Self::with_faults(id, faults, honest())
    }

    /// One that is reached over verbs, with faults, or else over tcp.
    fn with_ways(id: &str, verbs: InProcessFaults, tcp: InProcessFaults, script: Script) -> Self {
        let (asked, tenants) = (Arc::default(), Arc::default());
        let service =
            Arc::new(Scripted { asked: Arc::clone(&asked), tenants: Arc::clone(&tenants), script });
        let faults = verbs.fault_handle();
        let rails = vec![Some(([10, 0, 0, 7], 9403).into())];
        let posing = |kind, ways, faults| {
            InProcess::posing_as(kind, ways, service.clone(), InProcessMode::Copy(faults))
        };
        let transports = vec![
            posing(TransportKind::Tcp, TransportWays::over_rails(rails), tcp),
            posing(TransportKind::Verbs, TransportWays::default(), verbs),
        ];
        let address = PeerAddress::from(SocketAddr::from(([127, 0, 0, 1], 1)));
        let peer = Arc::new(TransportPeer::new(id, address, transports, PeerOptions::default()));
        Self { id: WorkerId(id.into()), asked, tenants, faults, peer }
    }

    fn asked(&self) -> Vec<WorkerRequest> {
        self.asked.lock().clone()
    }

    /// Waits for a connection. The first call would not know what its landing is for.
    async fn connect(&self) {
        while !self.peer.is_connected() {
            let _ = self.peer.call_with(|_| Err::<_, ()>(()));
            tokio::task::yield_now().await;
        }
    }
}

fn options() -> TierOptions {
    let settings = TierSettings {
        open_landing: ByteSize(4 * u64::from(PAGE)),
        failures_max: 2,
        announce_deadline: TimePeriod::from_seconds(5),
        ..TierSettings::default()
    };
    TierOptions { settings, geometry: GEOMETRY, coordinated: false, in_process: false }
}

fn arena(bytes: usize) -> Arena {
    Arena::map_memory(ArenaOptions {
        capacity_bytes: bytes,
        cell_bytes_max: PAGE as usize,
        populate: false,
    })
    .unwrap()
}

fn tier(workers: &[&TestWorker]) -> Arc<CacheTierClient> {
    tier_in(workers, arena(16 << 20))
}

fn tier_in(workers: &[&TestWorker], arena: Arena) -> Arc<CacheTierClient> {
    tier_of(workers, options(), arena)
}

fn tier_of(workers: &[&TestWorker], options: TierOptions, arena: Arena) -> Arc<CacheTierClient> {
    let members =
        workers.iter().map(|worker| PlacementMember::new(worker.id.clone(), 1.0)).collect();
    let placement = PlacementMap::new(Epoch(1), members, workers.len()).unwrap();
    let peers = workers.iter().map(|worker| (worker.id.clone(), worker.peer.clone()));
    CacheTierClient::new(
        options,
        placement,
        peers.collect::<HashMap<_, _>>(),
        arena,
        &Registry::new(),
    )
    .unwrap()
}

/// An object whose home, and whose owner of `block`, is the worker with this id.
fn object_of(tier: &CacheTierClient, id: &str, block: u32) -> Arc<ObjectKey> {
    (0..1000)
        .map(|n| ObjectKey { volume: ObjectVolume::new("store", "train"), key: format!("key-{n}") })
        .find(|object| {
            let map = tier.asker.placement.load_map();
            map.placement.first_owner(object.block_slot(BlockIndex(block))).id.0 == id
                && map.home_worker(object).unwrap().id.0 == id
        })
        .map(Arc::new)
        .unwrap()
}

fn version(bytes: u64) -> Arc<ContentVersion> {
    Arc::new(ContentVersion { etag: "\"v1\"".into(), bytes, version_id: None })
}

/// Bytes of every test's block.
fn content(start: u32, end: u32) -> Vec<u8> {
    (start..end).map(|at| ((u64::from(at) * 2_654_435_761) >> 13) as u8).collect()
}

fn piece(start: u32, end: u32) -> (BlockPiece, Vec<Bytes>) {
    piece_of(start, content(start, end))
}

fn piece_of(start: u32, data: Vec<u8>) -> (BlockPiece, Vec<Bytes>) {
    let end = start + data.len() as u32;
    let (mut at, range) = (0, start..end);
    let checksums = GEOMETRY.page_cuts(&range).map(|length| {
        at += length;
        crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &data[at - length..at])
    });
    let checksums = checksums.collect();
    let piece = BlockPiece {
        block: BlockIndex(0),
        start,
        length: end - start,
        checksums,
        verdict: CacheVerdict::Hit,
    };
    (piece, vec![Bytes::from(data)])
}

/// Sends `start..end` of a read that began at `from`.
async fn send(reply: &mut transport::ReplySender, from: u32, start: u32, end: u32) {
    let (piece, data) = piece(start, end);
    reply
        .send_part(WorkerReply::Data(piece).encode(), u64::from(start - from), data)
        .await
        .unwrap();
}

/// Sends the rest of a read, page by page.
async fn send_all(mut reply: transport::ReplySender, start: u32, end: u32) {
    let mut at = start;
    while at + PAGE < end {
        send(&mut reply, start, at, at + PAGE).await;
        at += PAGE;
    }
    let (piece, data) = piece(at, end);
    let _ = reply.send_last(WorkerReply::Data(piece).encode(), u64::from(at - start), data).await;
}

fn read_of(request: WorkerRequest) -> (u32, u32) {
    match request {
        WorkerRequest::Read(read) => (read.start, read.end),
        other => panic!("expected a read, got {other:?}"),
    }
}

fn acknowledged(hold: WriteLeaseState) -> WorkerReply {
    let generation = verbs3_protocol::KeyGeneration(1);
    WorkerReply::Acknowledged(verbs3_protocol::HomeAcknowledgement { generation, hold })
}

/// Answers every read in full.
fn honest() -> Script {
    Box::new(|request, reply| {
        Box::pin(async move {
            if let WorkerRequest::Read(_) = &request {
                let (start, end) = read_of(request);
                send_all(reply, start, end).await;
            } else {
                let done = acknowledged(WriteLeaseState::Leased);
                let _ = reply.send_last(done.encode(), 0, vec![]).await;
            }
        })
    })
}

fn refuses(kind: RefusalKind) -> Script {
    Box::new(move |_, reply| {
        let refused =
            WorkerReply::Refused(WorkerRefusal { kind: kind.clone(), reason: "test".into() });
        Box::pin(async move {
            let _ = reply.send_last(refused.encode(), 0, vec![]).await;
        })
    })
}

/// Never answers.
fn silent() -> Script {
    Box::new(|_, reply| {
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(reply);
        })
    })
}

/// Reads a span to its end: the bytes, and how it ended.
async fn drain(read: &mut SpanRead) -> (Vec<u8>, SpanItem) {
    let mut bytes = Vec::new();
    loop {
        match read.next().await {
            SpanItem::Bytes(data) => data.iter().for_each(|data| bytes.extend_from_slice(data)),
            end => return (bytes, end),
        }
    }
}

/// Runs everything that can run without time going on.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

const SECOND: Duration = Duration::from_secs(1);

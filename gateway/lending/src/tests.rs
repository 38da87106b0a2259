//! A server over a socket in a folder, with a host that answers by key, and clients of both kinds:
//! honest ones (`verbs3_lending_client`) and hostile ones, which write the protocol by hand.

#![allow(clippy::unwrap_used)]

mod honest;
mod hostile;
mod pages;
mod raw_client;
mod writes;

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_doors::WaitingGuest;
use verbs3_lending_client::{ClientLendingError, LendingClient, LendingClientOptions};
use verbs3_lending_protocol::{
    IdentityClaim, LendingRefusal, LentHeadList, LentReadMethod, LentReadRequest, LentWriteRequest,
};

use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::foreign_memory::BodyPlace;

use crate::{
    HeadListSink, LendingGuest, LendingHost, LendingLimits, LendingListener, LendingMetrics,
    LendingServer, LendingSocketOptions, LendingStop, LentSource, SocketAccess,
};

/// The key that the host knows.
const KEY: &str = "AKLENDER";
const MIB: u64 = 1 << 20;

/// Bounds of a server.
const LIMITS: LendingLimits = LendingLimits {
    strangers_max: 8,
    handshake_max: Duration::from_secs(60),
    memory_bytes_max: 64 * MIB,
    reads_in_flight_max: 16,
};

/// Memory of a worker.
const ARENA: ArenaOptions =
    ArenaOptions { capacity_bytes: 16 << 20, cell_bytes_max: 256 << 10, populate: false };

/// What the test and the host share.
struct HostState {
    /// Nonces that were proven with.
    nonces: Mutex<HashSet<[u8; 32]>>,
    is_welcome: AtomicBool,
    /// Bytes that may still be lent.
    memory: AtomicI64,
    /// Bytes that clients may still keep in pages.
    pages: AtomicI64,
    /// A worker's memory, which answers to `pages/N` lie in.
    arena: Arena,
    /// Nobody gets one once it is closed.
    mapping_turns: Arc<Semaphore>,
    /// Reads of `hang` wait for a permit.
    gate: Semaphore,
    /// Reads of `hang` under way.
    hanging: AtomicI64,
    /// Writes, with their bodies.
    written: Mutex<Vec<(LentWriteRequest, Vec<u8>)>>,
    /// What is left of a write's body.
    kept: Mutex<Option<LentSource>>,
}

struct TestHost(Arc<HostState>);
struct TestGuest(Arc<HostState>);

struct MemoryPlaceOfTest {
    state: Arc<HostState>,
    bytes: i64,
    is_pages: bool,
}

impl Drop for MemoryPlaceOfTest {
    fn drop(&mut self) {
        let bound = if self.is_pages { &self.state.pages } else { &self.state.memory };
        bound.fetch_add(self.bytes, Ordering::SeqCst);
    }
}

impl LendingHost for TestHost {
    type Guest = TestGuest;

    fn prove_identity(
        &self,
        claim: &IdentityClaim,
        nonce: &[u8; 32],
        stranger: WaitingGuest,
    ) -> Result<TestGuest, LendingRefusal> {
        assert!(self.0.nonces.lock().insert(*nonce), "a nonce is tried once");
        if claim.access_key != KEY {
            return Err(LendingRefusal::UnknownKey);
        }
        stranger.let_in();
        Ok(TestGuest(self.0.clone()))
    }
}

impl LendingGuest for TestGuest {
    type Body = TestBody;
    type MemoryPlace = MemoryPlaceOfTest;
    type MappingTurn = OwnedSemaphorePermit;

    fn take_memory(&self, bytes: u64) -> Option<MemoryPlaceOfTest> {
        let bytes = bytes as i64;
        let before = self.0.memory.fetch_sub(bytes, Ordering::SeqCst);
        let place = MemoryPlaceOfTest { state: self.0.clone(), bytes, is_pages: false };
        (before >= bytes).then_some(place)
    }

    fn take_pages(&self, bytes: u64) -> Option<MemoryPlaceOfTest> {
        let bytes = bytes as i64;
        let before = self.0.pages.fetch_sub(bytes, Ordering::SeqCst);
        let place = MemoryPlaceOfTest { state: self.0.clone(), bytes, is_pages: true };
        (before >= bytes).then_some(place)
    }

    async fn take_mapping_turn(&self) -> Option<OwnedSemaphorePermit> {
        self.0.mapping_turns.clone().acquire_owned().await.ok()
    }

    fn is_welcome(&self) -> bool {
        self.0.is_welcome.load(Ordering::SeqCst)
    }

    /// `bytes/N`: N bytes. `pages/N`: the same, in cells of the arena. `mixed/N`: every other one is
    /// elsewhere. `cut/N`: one less than promised. `hang`: waits. `panic`: does.
    async fn answer_read(
        &self,
        request: LentReadRequest,
        _place: Option<Arc<BodyPlace>>,
    ) -> Response<TestBody> {
        let (kind, bytes) = request.key.split_once('/').unwrap_or((&request.key, "100"));
        let bytes: usize = bytes.parse().unwrap();
        let mut body = TestBody { left: bytes, promised: bytes, ..TestBody::default() };
        match kind {
            "pages" | "mixed" => body.cells = self.0.fill_cells(bytes, kind == "mixed"),
            "cut" => body.left -= 1,
            "hang" => {
                struct Hanging(Arc<HostState>);
                impl Drop for Hanging {
                    fn drop(&mut self) {
                        self.0.hanging.fetch_sub(1, Ordering::SeqCst);
                    }
                }
                self.0.hanging.fetch_add(1, Ordering::SeqCst);
                let _hanging = Hanging(self.0.clone());
                self.0.gate.acquire().await.unwrap().forget();
            }
            "panic" => panic!("a read of the test breaks down"),
            _ => {}
        }
        if request.method == LentReadMethod::Head {
            body = TestBody::default();
        }
        Response::builder().status(200).header("x-key", &request.key).body(body).unwrap()
    }

    /// Notes what was written. `refused`: 403 before its body. `hang`: waits after a piece. `panic`:
    /// breaks down after one. They leave the rest of the body with somebody else, as a client of a
    /// store may.
    async fn answer_write(
        &self,
        request: LentWriteRequest,
        mut source: LentSource,
    ) -> Response<TestBody> {
        let mut status = 200;
        let mut written = Vec::new();
        if matches!(request.key.as_str(), "refused" | "hang" | "panic") {
            if request.key != "refused" {
                written.extend(source.frame().await.unwrap().unwrap().into_data().unwrap());
            }
            *self.0.kept.lock() = Some(source);
            status = 403;
        } else {
            while let Some(piece) = source.frame().await {
                written.extend(piece.unwrap().into_data().unwrap());
            }
        }
        match request.key.as_str() {
            "hang" => self.0.gate.acquire().await.unwrap().forget(),
            "panic" => panic!("a write of the test breaks down"),
            _ => {}
        }
        self.0.written.lock().push((request, written));
        let body = TestBody::default();
        Response::builder().status(status).header("etag", "e").body(body).unwrap()
    }

    /// `missing/…`: 404. `short`: one answer too few.
    async fn answer_heads(
        &self,
        list: LentHeadList,
        sink: &mut (dyn HeadListSink<TestBody> + Send),
    ) {
        let answer = |key: &String| {
            let status = if key.starts_with("missing/") { 404 } else { 200 };
            let body = TestBody::default();
            let answer = Response::builder().status(status).header("x-bucket", &list.bucket);
            answer.header("x-key", key).body(body).unwrap()
        };
        let is_short = list.keys.iter().any(|key| key == "short");
        // From the last to the first.
        for (index, key) in list.keys.iter().enumerate().skip(usize::from(is_short)).rev() {
            sink.take_head(index, answer(key));
        }
    }
}

/// Bytes whose value says where they are.
#[derive(Default)]
struct TestBody {
    left: usize,
    promised: usize,
    at: usize,
    /// The bytes, where they are in an arena.
    cells: VecDeque<Bytes>,
}

impl HostState {
    /// Lays the bytes of an object into cells of the arena. `mixed`: every other one elsewhere.
    fn fill_cells(&self, bytes: usize, mixed: bool) -> VecDeque<Bytes> {
        let bytes = pattern(bytes);
        let pieces = bytes.chunks(ARENA.cell_bytes_max).enumerate();
        pieces
            .map(|(index, piece)| {
                if mixed && index % 2 == 1 {
                    return Bytes::copy_from_slice(piece);
                }
                let cell = self.arena.allocate_cell(piece.len()).unwrap();
                let (mut writer, reader) = cell.split_writer_reader();
                writer.spare_bytes()[..piece.len()].copy_from_slice(piece);
                writer.publish_bytes(piece.len());
                reader.pinned_bytes(0..piece.len()).unwrap()
            })
            .collect()
    }
}

/// The bytes of a test's object.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(cell) = self.cells.pop_front() {
            self.at += cell.len();
            self.left -= cell.len();
            return Poll::Ready(Some(Ok(Frame::data(cell))));
        }
        let next = self.left.min(100_000);
        if next == 0 {
            return Poll::Ready(None);
        }
        let data = (self.at..self.at + next).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        self.at += next;
        self.left -= next;
        Poll::Ready(Some(Ok(Frame::data(data.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.promised - self.at) as u64)
    }
}

/// A server under test.
struct TestServer {
    socket: PathBuf,
    state: Arc<HostState>,
    metrics: LendingMetrics,
    stop: LendingStop,
    tasks: TaskTracker,
    _folder: tempfile::TempDir,
}

impl TestServer {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl FnOnce(&mut LendingLimits)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut limits = LIMITS;
        change(&mut limits);
        let state = HostState {
            nonces: Mutex::default(),
            is_welcome: AtomicBool::new(true),
            memory: AtomicI64::new(256 << 20),
            pages: AtomicI64::new(64 << 20),
            arena: Arena::map_memory(ARENA).unwrap(),
            mapping_turns: Arc::new(Semaphore::new(4)),
            gate: Semaphore::new(0),
            hanging: AtomicI64::new(0),
            written: Mutex::default(),
            kept: Mutex::default(),
        };
        let stop = LendingStop { stop: CancellationToken::new(), cut: CancellationToken::new() };
        let server = Self {
            socket: folder.path().join("lend.sock"),
            state: Arc::new(state),
            metrics: LendingMetrics::new(&Registry::new()).unwrap(),
            stop,
            tasks: TaskTracker::new(),
            _folder: folder,
        };
        server.serve(limits, server.stop.clone());
        server
    }

    fn serve(&self, limits: LendingLimits, stop: LendingStop) {
        let path = self.socket.clone();
        let options =
            LendingSocketOptions { path, access: SocketAccess::Owner, owner: None, group: None };
        let listener = LendingListener::open_socket(&options, false).unwrap();
        let host = Arc::new(TestHost(self.state.clone()));
        let (metrics, tasks) = (self.metrics.clone(), self.tasks.clone());
        LendingServer::new(host, limits, metrics, stop, tasks).serve_socket(listener);
    }

    fn options(&self) -> LendingClientOptions {
        LendingClientOptions {
            socket: self.socket.clone(),
            access_key: KEY.to_owned(),
            secret_key: "a-secret-that-is-long-enough-to-be-one".to_owned(),
            region: "us-east-1".to_owned(),
            memory_bytes: 8 * MIB,
            reads_max: 8,
            page_loans: 8,
            poll_for: Duration::from_micros(100),
            reconnect_for: Duration::from_secs(30),
            read_for: Duration::from_secs(60),
            pinner: None,
        }
    }

    /// Connects an honest client, on a thread that may block.
    async fn connect(&self) -> Arc<LendingClient> {
        let options = self.options();
        blocking(move || LendingClient::connect(options)).await.unwrap()
    }

    /// Waits for what happens by itself.
    async fn until(&self, condition: impl Fn(&Self) -> bool) {
        for _ in 0..6000 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("did not come true within 60 s");
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn get(key: &str) -> LentReadRequest {
    LentReadRequest {
        method: LentReadMethod::Get,
        bucket: "train".to_owned(),
        key: key.to_owned(),
        headers: Vec::new(),
    }
}

/// Goes on for ever.
fn go_on() -> Result<(), ClientLendingError> {
    Ok(())
}

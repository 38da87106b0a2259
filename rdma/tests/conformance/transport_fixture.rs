//! What a case runs over: a connected pair, an arena, handlers from closures, and bytes that tell
//! their place.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::calls::{CallOptions, HandshakeSecret};
use verbs3_rdma::inprocess::{InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::landing::Landing;
use verbs3_rdma::settings::FeatureSwitch;
use verbs3_rdma::shm::ShmServer;
use verbs3_rdma::tcp::{TcpOptions, TcpServer, TcpServerOptions, TcpTransport};
use verbs3_rdma::transport::{
    CallEvent, CallService, IncomingCall, OutgoingCall, PeerAddress, PeerConnection, PeerTransport,
    ReplySender, TransportError, WayTerms,
};
use verbs3_rdma::verbs::{VerbsOptions, VerbsServer, VerbsServerOptions, VerbsTransport};
use verbs3_settings::TimePeriod;

use crate::placed::Placed;
use crate::shm_pair::shm_pair;
use crate::tcp_threads::Threads;
use crate::tls::{TestIssuer, node_tls};

/// Deadline of a case. Under emulation, some good cases take most of a minute.
pub const DEADLINE: Duration = Duration::from_secs(300);
pub const PAGE: usize = 256 << 10;
/// Few, so that a test can use them all.
pub const CREDITS: u32 = 8;

pub async fn within_deadline(case: impl Future<Output = ()>) {
    tokio::time::timeout(DEADLINE, case).await.expect("the case hangs");
}

/// Waits for a condition that another task brings about.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(100), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

pub fn arena(extents: usize) -> Arena {
    Arena::map_memory(ArenaOptions {
        capacity_bytes: extents * (2 << 20),
        cell_bytes_max: PAGE,
        populate: false,
    })
    .unwrap()
}

/// Makes a landing of `bytes`, in pages and a rest.
pub fn landing(arena: &Arena, bytes: usize) -> Option<Landing> {
    let mut segments = vec![PAGE; bytes / PAGE];
    segments.push(bytes % PAGE);
    Landing::allocate_segments(arena, &segments)
}

/// Bytes that differ from place to place and from call to call.
pub fn pattern(seed: u64, offset: u64, bytes: usize) -> Bytes {
    (offset..offset + bytes as u64)
        .map(|at| (at.wrapping_mul(0x9E37_79B9).wrapping_add(seed * 131) >> 7) as u8)
        .collect()
}

type Handler =
    dyn Fn(IncomingCall, ReplySender) -> futures::future::BoxFuture<'static, ()> + Send + Sync;

struct Closure(Box<Handler>);

#[async_trait]
impl CallService for Closure {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        (self.0)(request, reply).await;
    }
}

pub fn service<F, R>(handler: F) -> Arc<dyn CallService>
where
    F: Fn(IncomingCall, ReplySender) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    Arc::new(Closure(Box::new(move |request, reply| Box::pin(handler(request, reply)))))
}

/// Forwards to a service that the case installs once it knows what it needs.
#[derive(Default)]
pub struct Installed(OnceLock<Arc<dyn CallService>>);

#[async_trait]
impl CallService for Installed {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let service = self.0.get().expect("a service is installed").clone();
        service.serve_call(request, reply).await;
    }
}

/// The listening half of a connected pair.
pub enum Server {
    Tcp(TcpServer),
    Verbs(VerbsServer),
    Shm(ShmServer, tempfile::TempDir),
}

impl Server {
    pub async fn shutdown(self) {
        match self {
            Self::Tcp(server) => server.shutdown().await,
            Self::Verbs(server) => server.shutdown().await,
            Self::Shm(server, _room) => server.shutdown().await,
        }
    }
}

/// A connected pair.
pub struct TransportFixture {
    pub connection: Arc<dyn PeerConnection>,
    pub arena: Arena,
    pub server: Option<Server>,
    service: Arc<Installed>,
    /// Runtimes of the server's connections, if they have any. They end after the server, like a
    /// worker's.
    _threads: Option<Threads>,
}

impl TransportFixture {
    pub fn share() -> Self {
        Self::in_process(InProcessMode::Share)
    }

    pub fn copy() -> Self {
        let seed = rand::random();
        println!("SEED={seed}");
        Self::in_process(InProcessMode::Copy(InProcessFaults::from_seed(seed)))
    }

    fn in_process(mode: InProcessMode) -> Self {
        let service = Arc::new(Installed::default());
        Self {
            connection: InProcess::open_connection(service.clone(), mode),
            arena: arena(16),
            server: None,
            service,
            _threads: None,
        }
    }

    pub async fn tcp() -> Self {
        Self::over_tcp(None, options(), options()).await
    }

    /// The server's connections have threads of their own.
    pub async fn tcp_on_threads() -> Self {
        Self::over_tcp(Some(Threads::start(2)), options(), options()).await
    }

    pub async fn tcp_over_tls() -> Self {
        let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
        let with = |name| {
            let tls = Some(node_tls(&issuer, folder.path(), name));
            TcpOptions { tls, ..options() }
        };
        Self::over_tcp(None, with("worker/w"), with("gateway/g")).await
    }

    async fn over_tcp(threads: Option<Threads>, served: TcpOptions, dialled: TcpOptions) -> Self {
        let service = Arc::new(Installed::default());
        let runtimes = threads.as_ref().map(Threads::handles).unwrap_or_default();
        let server =
            serve(service.clone(), TcpServerOptions { runtimes, ..TcpServerOptions::new(served) })
                .await;
        let transport = TcpTransport::new(dialled);
        let address = PeerAddress::from(server.local_addr());
        Self {
            connection: transport.connect(&address).await.unwrap(),
            arena: arena(16),
            server: Some(Server::Tcp(server)),
            service,
            _threads: threads,
        }
    }

    /// Replies are on the heap, so they ride in the stream.
    pub async fn verbs() -> Self {
        Self::over_verbs(|service, _| service).await
    }

    /// Replies lie in the server's arena, so they are written.
    pub async fn verbs_by_write() -> Self {
        Self::over_verbs(Placed::service).await
    }

    async fn over_verbs(
        wrap: impl Fn(Arc<dyn CallService>, Arena) -> Arc<dyn CallService>,
    ) -> Self {
        let service = Arc::new(Installed::default());
        let (owner, arena) = (self::arena(64), arena(16));
        // So long that a drain which waits for it fails its case.
        let drain_deadline = Duration::from_secs(3600);
        let options =
            VerbsServerOptions { drain_deadline, ..VerbsServerOptions::new(verbs_options()) };
        let served = wrap(service.clone(), owner.clone());
        let server = VerbsServer::bind(listen_address(), options, owner, served)
            .await
            .expect("an RDMA device");
        let transport =
            VerbsTransport::new(listen_address().ip(), verbs_options(), arena.clone()).unwrap();
        let connection = transport
            .connect_to(server.local_addr().unwrap(), &WayTerms::with_name("conformance"))
            .await
            .unwrap();
        Self { connection, arena, server: Some(Server::Verbs(server)), service, _threads: None }
    }

    /// Replies are on the heap, so they are copied.
    pub async fn shm() -> Self {
        Self::over_shm(|service, _| service).await
    }

    /// Replies are handed over in the server's arena, whatever their length.
    pub async fn shm_by_reference() -> Self {
        Self::over_shm(Placed::service).await
    }

    async fn over_shm(wrap: impl Fn(Arc<dyn CallService>, Arena) -> Arc<dyn CallService>) -> Self {
        let service = Arc::new(Installed::default());
        let room = tempfile::tempdir().unwrap();
        let owner = self::arena(64);
        let (server, connection) =
            shm_pair(&room, wrap(service.clone(), owner.clone()), owner).await;
        Self {
            connection,
            arena: arena(16),
            server: Some(Server::Shm(server, room)),
            service,
            _threads: None,
        }
    }

    pub fn serve(&self, service: Arc<dyn CallService>) {
        assert!(self.service.0.set(service).is_ok(), "one service a fixture");
    }

    /// Starts a call with a landing of `bytes`, where the transport wants one.
    pub fn call(&self, message: impl Into<Bytes>, bytes: usize) -> OutgoingCall {
        let landing = self
            .connection
            .landing_use()
            .wants_landing()
            .then(|| landing(&self.arena, bytes).expect("room for a landing"));
        self.connection.start_call(message.into(), landing)
    }

    pub async fn all_memory_is_back(&self) {
        let arena = self.arena.clone();
        eventually("every landing is back", || arena.arena_usage().loaned_bytes == 0).await;
    }
}

pub fn options() -> TcpOptions {
    TcpOptions { calls: call_options(), ..TcpOptions::new(HandshakeSecret::new("")) }
}

pub fn call_options() -> CallOptions {
    let mut options = CallOptions::new(HandshakeSecret::new("the cluster's secret"));
    options.name = "conformance".into();
    options.settings.calls_in_flight_max = CREDITS;
    // Generous, for an emulated guest that shares its CPUs, and for a machine that stands still.
    options.settings.connect_deadline = TimePeriod::from_seconds(60);
    options.settings.cancel_ack_deadline = TimePeriod::from_seconds(60);
    options
}

pub fn verbs_options() -> VerbsOptions {
    // Devices that lack something are met by doing without it.
    let is_set = |name| std::env::var(name).is_ok_and(|value| value == "1");
    let switch = |on| if on { FeatureSwitch::Auto } else { FeatureSwitch::Off };
    let mut options = VerbsOptions::new(HandshakeSecret::new(""));
    options.calls = call_options();
    options.settings.shared_receive = switch(!is_set("VERBS3_TEST_PLAIN"));
    options.settings.windows = switch(is_set("VERBS3_TEST_WINDOWS"));
    options.settings.data_tags = is_set("VERBS3_TEST_TAGS");
    if is_set("VERBS3_TEST_POLL") {
        options.settings.busy_poll = TimePeriod(Duration::from_micros(200));
    }
    options
}

pub fn server_options() -> TcpServerOptions {
    TcpServerOptions::new(options())
}

pub fn listen_address() -> SocketAddr {
    let ip: IpAddr = match std::env::var("VERBS3_TEST_ADDRESS") {
        Ok(text) => text.parse().expect("VERBS3_TEST_ADDRESS is an IP address"),
        Err(_) => IpAddr::from([127, 0, 0, 1]),
    };
    SocketAddr::new(ip, 0)
}

pub async fn serve(service: Arc<dyn CallService>, options: TcpServerOptions) -> TcpServer {
    TcpServer::bind(listen_address(), options, service).await.unwrap()
}

/// A whole reply: its messages in order, and its bytes by offset.
#[derive(Debug, Default)]
pub struct Answer {
    pub messages: Vec<Bytes>,
    parts: BTreeMap<u64, Vec<Bytes>>,
}

impl Answer {
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for (offset, pieces) in &self.parts {
            assert_eq!(*offset, all.len() as u64, "a hole in the reply");
            pieces.iter().for_each(|piece| all.extend_from_slice(piece));
        }
        all
    }
}

pub async fn collect(call: &mut OutgoingCall) -> Result<Answer, TransportError> {
    let mut answer = Answer::default();
    loop {
        match call.next().await? {
            CallEvent::Part(part) => {
                answer.messages.push(part.message.clone());
                if part.data_bytes() > 0 {
                    let before = answer.parts.insert(part.offset, part.data);
                    assert!(before.is_none(), "two parts at one offset");
                }
                if part.last {
                    return Ok(answer);
                }
            }
            CallEvent::Wanted { .. } => panic!("nothing to push in this case"),
        }
    }
}

/// Answers with the request's message.
pub fn echo() -> Arc<dyn CallService> {
    service(|request, reply| async move {
        let _ = reply.send_last(request.message, 0, vec![]).await;
    })
}

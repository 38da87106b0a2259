//! A peer over in-process transports that can be cut, refused and slowed down, one by one.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Id as RuntimeId;

use super::super::*;
use super::{Shm, Tcp, Verbs};
use crate::calls::HandshakeError;
use crate::inprocess::{FaultHandle, InProcess, InProcessFaults, InProcessMode};
use crate::metrics::{PeerTrouble, transport_metrics};
use crate::transport::{CallEvent, CallService, IncomingCall, ReplySender};

pub const SECOND: Duration = Duration::from_secs(1);

/// One way, and the handle on it.
pub struct Line {
    pub faults: FaultHandle,
    watch: Arc<Watch>,
}

#[derive(Default)]
struct Watch {
    asked: Mutex<Vec<TransportWays>>,
    /// The runtime of each attempt.
    opened_on: Mutex<Vec<RuntimeId>>,
    delay: Mutex<Duration>,
    served: AtomicUsize,
    away: AtomicBool,
    refuses_tickets: AtomicBool,
    full: AtomicBool,
    far: AtomicBool,
    /// Takes the place of the transport.
    instead: Mutex<Option<Arc<dyn PeerTransport>>>,
}

impl Line {
    pub fn slow(&self, by: Duration) {
        *self.watch.delay.lock() = by;
    }

    /// Refuses connects, and breaks what is connected at the next call.
    pub fn down(&self) {
        self.faults.refuse_connects(u32::MAX);
        self.cut();
    }

    pub fn up(&self) {
        self.faults.refuse_connects(0);
        self.faults.drop_at_event(u64::MAX / 2);
    }

    /// Breaks a connection in the middle of the next reply.
    pub fn cut(&self) {
        self.faults.drop_at_event(1);
    }

    /// The device of the rail goes away, or returns; what is connected breaks at the next call.
    pub fn away(&self, away: bool) {
        self.watch.away.store(away, Ordering::SeqCst);
        if away { self.cut() } else { self.up() }
    }

    /// Refuses connects because of their tickets, or no longer.
    pub fn refuses_tickets(&self, refuses: bool) {
        self.watch.refuses_tickets.store(refuses, Ordering::SeqCst);
    }

    /// Refuses connects because it is full, or no longer.
    pub fn full(&self, full: bool) {
        self.watch.full.store(full, Ordering::SeqCst);
    }

    /// Puts the rail at another socket, for connections made from now on.
    pub fn far(&self) {
        self.watch.far.store(true, Ordering::SeqCst);
    }

    /// Makes tcp connections tell these ways from now on.
    pub fn tells(&self, ways: TransportWays) {
        let echo = Arc::new(Echo(self.watch.clone()));
        *self.watch.instead.lock() = Some(InProcess::posing_as(
            Tcp,
            ways,
            echo,
            InProcessMode::Copy(InProcessFaults::without_faults()),
        ));
    }

    pub fn asked(&self) -> Vec<TransportWays> {
        self.watch.asked.lock().clone()
    }

    pub fn opened_on(&self) -> Vec<RuntimeId> {
        self.watch.opened_on.lock().clone()
    }

    pub fn connects(&self) -> usize {
        self.watch.asked.lock().len()
    }

    pub fn served(&self) -> usize {
        self.watch.served.load(Ordering::SeqCst)
    }
}

struct Fake {
    inner: Arc<dyn PeerTransport>,
    watch: Arc<Watch>,
}

#[async_trait]
impl PeerTransport for Fake {
    fn transport_kind(&self) -> TransportKind {
        self.inner.transport_kind()
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError> {
        self.watch.asked.lock().push(peer.ways.clone());
        self.watch.opened_on.lock().push(Handle::current().id());
        let delay = *self.watch.delay.lock();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.watch.refuses_tickets.load(Ordering::SeqCst) {
            let (peer, cause) = (String::new(), Arc::new(HandshakeError::Ticket));
            return Err(TransportError::Handshake { peer, cause });
        }
        if self.watch.full.load(Ordering::SeqCst) {
            let (peer, cause) = (String::new(), Arc::new(HandshakeError::Full));
            return Err(TransportError::Handshake { peer, cause });
        }
        let instead = self.watch.instead.lock().clone();
        instead.as_ref().unwrap_or(&self.inner).connect(peer).await
    }

    fn is_up(&self) -> bool {
        !self.watch.away.load(Ordering::SeqCst)
    }

    fn is_near(&self) -> bool {
        !self.watch.far.load(Ordering::SeqCst)
    }
}

struct Echo(Arc<Watch>);

#[async_trait]
impl CallService for Echo {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        self.0.served.fetch_add(1, Ordering::SeqCst);
        let _ = reply.send_last(request.message, 0, vec![]).await;
    }
}

pub struct PeerFixture {
    pub peer: TransportPeer,
    pub tcp: Line,
    pub shm: Line,
    pub rails: Vec<Line>,
    socket: PathBuf,
    _listener: UnixListener,
}

impl Drop for PeerFixture {
    fn drop(&mut self) {
        self.remove_socket();
    }
}

impl PeerFixture {
    /// A peer that has as many rails as this host.
    pub fn new(rails: usize, shm: bool, options: PeerOptions) -> Self {
        Self::with_peer_rails(rails, rails, shm, options)
    }

    pub fn with_peer_rails(
        rails: usize,
        peer_rails: usize,
        shm: bool,
        options: PeerOptions,
    ) -> Self {
        static SOCKETS: AtomicUsize = AtomicUsize::new(0);
        let nth = SOCKETS.fetch_add(1, Ordering::SeqCst);
        let socket =
            std::env::temp_dir().join(format!("verbs3-peer-{}-{nth}.sock", std::process::id()));
        let listener = UnixListener::bind(&socket).unwrap();
        let way = shm.then(|| ShmWay::of_this_host(&socket).unwrap());
        let ways = TransportWays {
            shm: way,
            rails: (0..peer_rails).map(|nth| Some(Self::rail_address(nth))).collect(),
            ticket: None,
        };
        let (tcp, tcp_line) = fake(Tcp, ways);
        let (shared, shm_line) = fake(Shm, TransportWays::default());
        let (verbs, lines): (Vec<_>, Vec<_>) =
            (0..rails).map(|_| fake(Verbs, TransportWays::default())).unzip();
        // In no particular order: the kind decides.
        let transports = [vec![tcp], verbs, vec![shared]].concat();
        let address = PeerAddress::with_name("192.0.2.1:9400".parse().unwrap(), "gpu-07");
        let peer = TransportPeer::new("gpu-07", address, transports, options);
        Self { peer, tcp: tcp_line, shm: shm_line, rails: lines, socket, _listener: listener }
    }

    pub fn rail_address(nth: usize) -> std::net::SocketAddr {
        ([10, nth as u8, 0, 7], 9403).into()
    }

    pub fn remove_socket(&self) {
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Makes one call. Returns its transport.
    pub async fn ask(&self) -> Result<TransportKind, TransportError> {
        let mut call = self.peer.start_call("hello".into(), None);
        match call.next().await? {
            CallEvent::Part(part) => {
                assert_eq!((&part.message[..], part.last), (&b"hello"[..], true))
            }
            other => panic!("{other:?}"),
        }
        Ok(call.transport_kind().unwrap())
    }

    /// Makes a call like the tier's client does for repeatable requests: after a broken connection
    /// it tries again.
    pub async fn ask_surely(&self) -> Result<TransportKind, TransportError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.ask().await {
                Err(TransportError::Lost { .. }) if tries < 8 => {}
                Err(TransportError::Unreachable { .. })
                    if tries < 8 && self.peer.is_connected() => {}
                result => return result,
            }
        }
    }

    /// Attempts over tcp, shm, and each rail.
    pub fn connects(&self) -> (usize, usize, Vec<usize>) {
        (self.tcp.connects(), self.shm.connects(), self.rails.iter().map(Line::connects).collect())
    }
}

fn fake(kind: TransportKind, ways: TransportWays) -> (Arc<dyn PeerTransport>, Line) {
    let (faults, watch) = (InProcessFaults::without_faults(), Arc::new(Watch::default()));
    let line = Line { faults: faults.fault_handle(), watch: watch.clone() };
    let mode = if kind == Shm { InProcessMode::Share } else { InProcessMode::Copy(faults) };
    let inner = InProcess::posing_as(kind, ways, Arc::new(Echo(watch.clone())), mode);
    (Arc::new(Fake { inner, watch }), line)
}

/// Reads a metric of the whole process. Tests that compare it are the only ones with their labels.
pub fn fallbacks(from: TransportKind, to: TransportKind, reason: PeerTrouble) -> u64 {
    transport_metrics().fallbacks[(from, to, reason)].get()
}

/// Runs everything that can run without time going on.
pub async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

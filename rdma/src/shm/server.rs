//! Owns the listening side of shm: the listener, the caps on connections and the tasks of all
//! sessions.
//!
//! It accepts, admits requesters that know the secret, passes the arena, and drains at the end.
//! `calls` knows what a session does.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle as Runtime;
use tokio::sync::OwnedSemaphorePermit;
use verbs3_doors::WaitingGuest;

use super::PinQuota;
use super::arena_offer::{self, ShmArenaOffer};
use super::owner_halves::{FromBorrower, ShmOwnerOutlet};
use super::pin_registry::{self, ShmPinRegistry};
use super::socket::{self, ShmBindError, SocketFile};
use crate::arena::Arena;
use crate::calls::{
    self, AdmissionGate, CallOptions, ConnectionTasks, GateCloser, GateLimits, HandshakeAgreement,
    HandshakeError, HandshakeTerms, ServerSession, controls_max,
};
use crate::settings::ShmSettings;
use crate::stream::{FrameIntake, FrameOutbox};
use crate::transport::CallService;

/// Pause after a failed accept. Without descriptors, trying again at once would only burn CPU.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Bounds of a listening shm server: connections, handshakes, pinned memory, and the time to drain.
#[derive(Debug, Clone)]
pub struct ShmServerOptions {
    pub calls: CallOptions,
    pub settings: ShmSettings,
    /// The other ways to this host, told to every requester that proved the secret.
    pub ways: String,
    /// Most connections that have not proved the secret yet. Beyond it the oldest gives way.
    pub handshakes_max: usize,
    /// Longest time that [`ShmServer::shutdown`] waits for calls in flight.
    pub drain_deadline: Duration,
}

impl ShmServerOptions {
    /// Takes the default settings, 16 handshakes, and 30 s to drain. It tells of no other ways.
    pub fn new(calls: CallOptions) -> Self {
        Self {
            calls,
            settings: ShmSettings::default(),
            ways: String::new(),
            handshakes_max: 16,
            drain_deadline: Duration::from_secs(30),
        }
    }
}

/// A listening server. Dropping it ends every connection at once; [`ShmServer::shutdown`] drains
/// first. Neither ends a pin: memory that a requester still looks at stays loaned.
pub struct ShmServer {
    file: SocketFile,
    closer: GateCloser,
}

impl ShmServer {
    /// Listens on `path` until shut down or dropped. Hands over replies that lie in `arena`.
    pub async fn bind(
        path: &Path,
        options: ShmServerOptions,
        arena: Arena,
        service: Arc<dyn CallService>,
    ) -> Result<Self, ShmBindError> {
        let (listener, file) = socket::listen_on(path)?;
        // All peers are processes of this host and of this user.
        let gate = AdmissionGate::new(GateLimits {
            connections_max: options.settings.connections_max as usize,
            handshakes_max: options.handshakes_max,
            handshakes_per_address_max: options.handshakes_max,
        });
        let closer = gate.make_closer(options.drain_deadline);
        let door = Arc::new(ShmAcceptor { gate, options, arena, service });
        // Ends at shutdown or drop, by the `drain` token.
        door.gate.tasks.spawn(door.clone().accept_connections(listener));
        Ok(Self { file, closer })
    }

    /// Returns the path that the server listens on. The file is removed when the server is dropped,
    /// unless another socket has taken its place.
    pub fn socket_path(&self) -> &Path {
        self.file.socket_path()
    }

    /// Takes no new connection and no new call. Lets calls in flight finish, and waits for every
    /// session.
    pub async fn shutdown(self) {
        self.closer.shutdown().await;
    }
}

/// The state that every accepted connection needs.
struct ShmAcceptor {
    options: ShmServerOptions,
    arena: Arena,
    service: Arc<dyn CallService>,
    gate: AdmissionGate,
}

/// A requester that has proved the secret and has the arena.
struct AdmittedRequester {
    agreed: HandshakeAgreement,
    place: Arc<OwnedSemaphorePermit>,
    pins: Arc<ShmPinRegistry>,
    lifeline: pipe::Sender,
}

impl ShmAcceptor {
    async fn accept_connections(self: Arc<Self>, listener: UnixListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.gate.drain.cancelled() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "can't accept connections; raise the limit of open files"
                    );
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let address = describe_credentials(&stream);
            if let Some(turn) = self.gate.admit_handshake(&address, None) {
                // Ends with its connection, at the latest when `kill` is cancelled.
                self.gate.tasks.spawn(self.clone().serve_connection(stream, address, turn));
            }
        }
    }

    async fn serve_connection(
        self: Arc<Self>,
        mut stream: UnixStream,
        address: String,
        turn: WaitingGuest,
    ) {
        let deadline = self.options.calls.settings.connect_deadline.0;
        let guest = self
            .gate
            .run_handshake(deadline, &address, turn, self.run_handshake(&mut stream))
            .await;
        let Some(guest) = guest else {
            return;
        };
        let AdmittedRequester { agreed, place, pins, lifeline } = guest;
        tracing::debug!(address, peer = agreed.peer_name, "a requester of this host has the arena");
        // Not one of the server's tasks: pins outlive it. Ends when the requester has unmapped the
        // arena.
        tokio::spawn(pin_registry::watch_lifeline(lifeline, pins.clone(), place.clone()));
        let stream = Arc::new(stream);
        let queue_bytes_max = self.options.calls.settings.write_queue_max.as_usize();
        let outlet = ShmOwnerOutlet {
            outbox: FrameOutbox::new(
                stream.clone(),
                queue_bytes_max,
                controls_max(agreed.calls_in_flight_max),
            ),
            pins: pins.clone(),
            arena: self.arena.clone(),
            copy_bytes_max: self.options.settings.copy_max.as_usize(),
        };
        let inlet = FromBorrower { intake: FrameIntake::new(stream, agreed.frame_bytes_max), pins };
        let on = ConnectionTasks { runtime: &Runtime::current(), tasks: &self.gate.tasks };
        let session = ServerSession::new(outlet, &agreed, &address, self.service.clone(), on);
        calls::serve_session(session, inlet, &self.gate.drain, &self.gate.kill).await;
        drop(place);
    }

    async fn run_handshake(
        &self,
        stream: &mut UnixStream,
    ) -> Result<AdmittedRequester, HandshakeError> {
        let terms = self.options.calls.ticketed_terms(None);
        let (agreed, place) = self
            .gate
            .accept_peer(stream, &HandshakeTerms { ways: &self.options.ways, ..terms })
            .await?;
        let place = Arc::new(place);
        let pins = ShmPinRegistry::new(PinQuota::from_settings(&self.options.settings));
        let (lifeline, theirs) = pipe::pipe()?;
        let theirs = theirs.into_nonblocking_fd()?;
        let offer = ShmArenaOffer {
            arena_bytes: self.arena.mapped_range().1 as u64,
            quota: pins.pin_quota(),
            memory: self.arena.memory_fd(),
            lifeline: theirs.as_fd(),
        };
        arena_offer::send_offer(stream, offer).await?;
        // `theirs` closes here. The only other descriptor is the one that the message carries to
        // the requester.
        Ok(AdmittedRequester { agreed, place, pins, lifeline })
    }
}

/// Describes the connected process by the kernel's credentials, for logs.
fn describe_credentials(stream: &UnixStream) -> String {
    match stream.peer_cred() {
        Ok(peer) => format!("pid {}, uid {}", peer.pid().unwrap_or(0), peer.uid()),
        Err(_) => "a process of this host".into(),
    }
}

//! The listening side: accepts, lets in who knows the secret, passes the arena, and drains at the end.
//!
//! Owns the listener, the caps on connections and the tasks of all sessions. What a session does is `calls`'.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle as Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::owner::{FromBorrower, Owner};
use super::pass::{self, Offer};
use super::pins::{self, Pins};
use super::socket::{self, BindError, SocketFile};
use super::{PinQuota, ShmOptions};
use crate::arena::Arena;
use crate::calls::{self, Agreed, HandshakeError, Session, controls_max};
use crate::metrics::metrics;
use crate::stream::{Intake, Outbox};
use crate::transport::Service;

/// Pause after a failed accept: out of descriptors, trying again at once would only burn CPU.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct ShmServerOptions {
    pub shm: ShmOptions,
    /// Told to every requester that proved the secret: in which other ways this host can be reached.
    pub ways: String,
    /// Established connections in all, and those that have ended and whose requester still looks at the arena. With the
    /// quota it bounds what all requesters can keep pinned.
    pub connections_max: usize,
    /// Connections that have not proved the secret yet; more are closed at once.
    pub handshakes_max: usize,
    /// Longest time that [`ShmServer::shutdown`] waits for calls under way.
    pub drain_deadline: Duration,
    /// What one connection may keep pinned; replies beyond it are copied.
    pub quota: PinQuota,
    /// Parts up to this length are copied: a copy of 16 KiB costs less than a release.
    pub copy_bytes_max: usize,
}

impl ShmServerOptions {
    pub fn new(shm: ShmOptions) -> Self {
        Self {
            shm,
            ways: String::new(),
            connections_max: 64,
            handshakes_max: 16,
            drain_deadline: Duration::from_secs(30),
            quota: PinQuota::default(),
            copy_bytes_max: 16 << 10,
        }
    }
}

/// A listening server. Dropping it ends every connection at once; [`ShmServer::shutdown`] drains first. Neither ends a pin:
/// memory that a requester still looks at stays leased.
pub struct ShmServer {
    file: SocketFile,
    drain_deadline: Duration,
    drain: CancellationToken,
    kill: CancellationToken,
    tasks: TaskTracker,
}

impl ShmServer {
    /// Listens on `path` and hands replies over that lie in `arena`, until shut down or dropped.
    pub async fn bind(
        path: &Path,
        options: ShmServerOptions,
        arena: Arena,
        service: Arc<dyn Service>,
    ) -> Result<Self, BindError> {
        let (listener, file) = socket::listen(path)?;
        let drain_deadline = options.drain_deadline;
        let door = Arc::new(Door {
            connections: Arc::new(Semaphore::new(options.connections_max)),
            handshakes: Arc::new(Semaphore::new(options.handshakes_max)),
            options,
            arena,
            service,
            drain: CancellationToken::new(),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        // Ends at shutdown or drop, by the `drain` token.
        door.tasks.spawn(door.clone().accept(listener));
        Ok(Self { file, drain_deadline, drain: door.drain.clone(), kill: door.kill.clone(), tasks: door.tasks.clone() })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Takes no new connection and no new call, lets those under way finish, and waits for every session.
    pub async fn shutdown(self) {
        self.drain.cancel();
        self.tasks.close();
        let drained = tokio::time::timeout(self.drain_deadline, self.tasks.wait()).await;
        if drained.is_err() {
            tracing::warn!(deadline = ?self.drain_deadline, "calls were cut off at shutdown");
            self.kill.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for ShmServer {
    fn drop(&mut self) {
        self.drain.cancel();
        self.kill.cancel();
    }
}

/// What every accepted connection needs.
struct Door {
    options: ShmServerOptions,
    arena: Arena,
    service: Arc<dyn Service>,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    drain: CancellationToken,
    kill: CancellationToken,
    tasks: TaskTracker,
}

/// A requester that has proved the secret and has the arena.
struct Guest {
    agreed: Agreed,
    place: Arc<OwnedSemaphorePermit>,
    pins: Arc<Pins>,
    lifeline: pipe::Sender,
}

impl Door {
    async fn accept(self: Arc<Self>, listener: UnixListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.drain.cancelled() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "can't accept connections; raise the limit of open files");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let address = credentials(&stream);
            match self.handshakes.clone().try_acquire_owned() {
                // Ends with its connection, at the latest when `kill` is cancelled.
                Ok(turn) => drop(self.tasks.spawn(self.clone().welcome(stream, address, turn))),
                Err(_) => failed(&address, &HandshakeError::Full),
            }
        }
    }

    async fn welcome(self: Arc<Self>, mut stream: UnixStream, address: String, turn: OwnedSemaphorePermit) {
        let shake = self.shake(&mut stream);
        let limited = tokio::time::timeout(self.options.shm.calls.connect_deadline, shake);
        let result = tokio::select! {
            result = limited => result.unwrap_or(Err(HandshakeError::Deadline)),
            () = self.drain.cancelled() => Err(HandshakeError::Draining),
        };
        drop(turn);
        let guest = match result {
            Ok(guest) => guest,
            Err(error) => return failed(&address, &error),
        };
        let Guest { agreed, place, pins, lifeline } = guest;
        tracing::debug!(address, peer = agreed.peer_name, "a requester of this host has the arena");
        // Not of the server's tasks: pins outlive it. Ends when the requester has unmapped the arena.
        tokio::spawn(pins::watch(lifeline, pins.clone(), place.clone()));
        let stream = Arc::new(stream);
        let queue_bytes_max = self.options.shm.calls.write_queue_bytes_max;
        let outlet = Owner {
            outbox: Outbox::new(stream.clone(), queue_bytes_max, controls_max(agreed.calls_in_flight_max)),
            pins: pins.clone(),
            arena: self.arena.clone(),
            copy_bytes_max: self.options.copy_bytes_max,
        };
        let inlet = FromBorrower { intake: Intake::new(stream, agreed.frame_bytes_max), pins };
        let on = (&Runtime::current(), &self.tasks);
        let session = Session::new(outlet, &agreed, &address, self.service.clone(), on);
        calls::serve(session, inlet, &self.drain, &self.kill).await;
        drop(place);
    }

    async fn shake(&self, stream: &mut UnixStream) -> Result<Guest, HandshakeError> {
        let mut place = None;
        let agreed = calls::accept(stream, &self.options.shm.calls.terms(&self.options.ways), || {
            place = self.connections.clone().try_acquire_owned().ok();
            place.as_ref().map(|_| ()).ok_or(HandshakeError::Full)
        })
        .await?;
        let place = Arc::new(place.ok_or(HandshakeError::Full)?);
        let pins = Pins::new(self.options.quota);
        let (lifeline, theirs) = pipe::pipe()?;
        let theirs = theirs.into_nonblocking_fd()?;
        let offer = Offer {
            arena_bytes: self.arena.base().1 as u64,
            quota: pins.quota(),
            memory: self.arena.fd(),
            lifeline: theirs.as_fd(),
        };
        pass::send(stream, offer).await?;
        // `theirs` closes here: the requester's descriptor, which the message carries, is the only one that is left.
        Ok(Guest { agreed, place, pins, lifeline })
    }
}

/// Who connected, as the kernel says; for logs.
fn credentials(stream: &UnixStream) -> String {
    match stream.peer_cred() {
        Ok(peer) => format!("pid {}, uid {}", peer.pid().unwrap_or(0), peer.uid()),
        Err(_) => "a process of this host".into(),
    }
}

fn failed(address: &str, error: &HandshakeError) {
    metrics().handshakes_failed.with_label_values(&[error.label()]).inc();
    match error {
        // Somebody looked whether anybody listens.
        HandshakeError::Lost(_) | HandshakeError::Draining => {
            tracing::debug!(address, %error, "a handshake ended early");
        }
        _ => tracing::warn!(address, %error, "a handshake failed"),
    }
}

//! The accepting side of one rail.
//!
//! Owns the listener, the caps and the tasks of its sessions. What a session does is `calls`'.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::VerbsOptions;
use super::client::{connect_options, expect};
use super::line::{WireInlet, WireOutlet};
use super::rail::{OpenRail, Rail, Use};
use super::sys::{CmEvent, CmId, EventChannel, EventKind};
use super::terms::QueueTerms;
use super::wire::{Readable, Wire, next_event, watch};
use crate::arena::Arena;
use crate::calls::{self, Agreed, HandshakeError, Session};
use crate::metrics::metrics;
use crate::transport::Service;

/// Connect requests that may wait to be looked at.
const BACKLOG: i32 = 128;

#[derive(Debug, Clone)]
pub struct VerbsServerOptions {
    pub verbs: VerbsOptions,
    /// Queue pairs in all; over it requesters are refused, and use tcp.
    pub connections_max: usize,
    /// Connections that have not proved the secret yet; more are refused at once.
    pub handshakes_max: usize,
    /// Longest time that [`VerbsServer::shutdown`] waits for calls under way.
    pub drain_deadline: Duration,
}

impl VerbsServerOptions {
    pub fn new(verbs: VerbsOptions) -> Self {
        Self { verbs, connections_max: 1024, handshakes_max: 64, drain_deadline: Duration::from_secs(30) }
    }
}

/// A listening rail. Dropping it ends every connection at once; [`VerbsServer::shutdown`] drains first.
pub struct VerbsServer {
    local_addr: SocketAddr,
    rail: Rail,
    drain_deadline: Duration,
    drain: CancellationToken,
    kill: CancellationToken,
    tasks: TaskTracker,
}

impl VerbsServer {
    /// Listens on the rail that has `address` (port 0 takes a free one), and registers `arena`, from which replies are
    /// written, without any remote right.
    pub async fn bind(
        address: SocketAddr,
        options: VerbsServerOptions,
        arena: Arena,
        service: Arc<dyn Service>,
    ) -> io::Result<Self> {
        let rail = OpenRail::open(address.ip(), arena, Use::Blocks)?;
        let channel = EventChannel::new()?;
        let listener = CmId::new(&channel)?;
        listener.bind(address)?;
        listener.listen(BACKLOG)?;
        let local_addr = SocketAddr::new(address.ip(), listener.local_port());
        let events = watch(channel)?;
        let drain_deadline = options.drain_deadline;
        let door = Arc::new(Door {
            connections: Arc::new(Semaphore::new(options.connections_max)),
            handshakes: Arc::new(Semaphore::new(options.handshakes_max)),
            options,
            rail: rail.clone(),
            service,
            drain: CancellationToken::new(),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        // Ends at shutdown or drop, by the `drain` token.
        door.tasks.spawn(door.clone().accept(listener, events));
        Ok(Self {
            local_addr,
            rail: rail.rail.clone(),
            drain_deadline,
            drain: door.drain.clone(),
            kill: door.kill.clone(),
            tasks: door.tasks.clone(),
        })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub fn rail(&self) -> &Rail {
        &self.rail
    }

    /// Takes no new connection and no new call, lets those under way finish, and waits for every task.
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

impl Drop for VerbsServer {
    fn drop(&mut self) {
        self.drain.cancel();
        self.kill.cancel();
    }
}

struct Door {
    options: VerbsServerOptions,
    rail: Arc<OpenRail>,
    service: Arc<dyn Service>,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    drain: CancellationToken,
    kill: CancellationToken,
    tasks: TaskTracker,
}

impl Door {
    async fn accept(self: Arc<Self>, listener: CmId, events: AsyncFd<Readable<EventChannel>>) {
        loop {
            let event = tokio::select! {
                event = next_event(&events) => event,
                () = self.drain.cancelled() => break,
            };
            match event {
                Ok(event) if event.kind == EventKind::DeviceRemoved => {
                    tracing::error!(
                        rail = self.rail.rail.label(),
                        "the device was removed; its peers use other rails or tcp, and it is not used again until this worker restarts"
                    );
                    break;
                }
                Ok(event) => self.requested(event),
                Err(error) => {
                    tracing::error!(rail = self.rail.rail.label(), %error, "can't take connections any more");
                    break;
                }
            }
        }
        drop(listener);
    }

    fn requested(self: &Arc<Self>, event: CmEvent) {
        let Some(id) = event.request else {
            return;
        };
        let Ok(turn) = self.handshakes.clone().try_acquire_owned() else {
            id.reject();
            return failed("a peer", &HandshakeError::Full);
        };
        // Ends with its connection, at the latest when `kill` is cancelled.
        self.tasks.spawn(self.clone().welcome(id, event.private, turn));
    }

    async fn welcome(
        self: Arc<Self>,
        id: CmId,
        private: [u8; super::sys::PRIVATE_BYTES_MAX],
        turn: OwnedSemaphorePermit,
    ) {
        let limited = tokio::time::timeout(self.options.verbs.calls.connect_deadline, self.shake(id, &private));
        let result = tokio::select! {
            result = limited => result.unwrap_or(Err(HandshakeError::Deadline)),
            () = self.drain.cancelled() => Err(HandshakeError::Draining),
        };
        drop(turn);
        let peer = format!("over {}", self.rail.rail.label());
        let (wire, inlet, agreed, _place) = match result {
            Ok(welcome) => welcome,
            Err(error) => return failed(&peer, &error),
        };
        let inlet = inlet.bounded(agreed.frame_bytes_max);
        let on = (&Runtime::current(), &self.tasks);
        let session = Session::new(WireOutlet(wire), &agreed, &peer, self.service.clone(), on);
        calls::serve(session, inlet, &self.drain, &self.kill).await;
    }

    async fn shake(
        &self,
        mut id: CmId,
        private: &[u8],
    ) -> Result<(Arc<Wire>, WireInlet, Agreed, OwnedSemaphorePermit), HandshakeError> {
        let options = &self.options.verbs;
        let theirs = QueueTerms::decode(private)?;
        let channel = EventChannel::new()?;
        id.migrate(&channel)?;
        let events = watch(channel)?;
        let wire = Wire::new(id, events, self.rail.clone(), options)?;
        let mine = QueueTerms::of(options);
        wire.agree(mine, theirs);
        wire.with_id(|id| id.accept(&mine.encode(), connect_options(options)))?;
        expect(&wire.event().await?, EventKind::Established)?;
        let mut inlet = WireInlet::new(wire.clone());
        let mut place = None;
        let agreed = calls::accept(&mut inlet, &options.calls.terms(""), || {
            place = self.connections.clone().try_acquire_owned().ok();
            place.as_ref().map(|_| ()).ok_or(HandshakeError::Full)
        })
        .await?;
        let place = place.ok_or(HandshakeError::Full)?;
        Ok((wire, inlet, agreed, place))
    }
}

fn failed(peer: &str, error: &HandshakeError) {
    metrics().handshakes_failed.with_label_values(&[error.label()]).inc();
    match error {
        HandshakeError::Lost(_) | HandshakeError::Draining => {
            tracing::debug!(peer, %error, "a handshake ended early");
        }
        _ => tracing::warn!(peer, %error, "a handshake failed"),
    }
}

//! Owns the connecting side of one rail: the watch over its device, and connection attempts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::VerbsOptions;
use super::queue_pair_wire::QueuePairWire;
use super::queue_terms::QueueTerms;
use super::rail::{ArenaPurpose, OpenRail, RailIdentity};
use super::rail_presence::{RailPlace, RailPresence};
use super::readable_source::{next_event, watch_readable};
use super::sys::{CmEvent, CmId, ConnectOptions, EventChannel, EventKind};
use super::wire_halves::{WireInlet, WireOutlet};
use crate::arena::Arena;
use crate::calls::{self, ConnectionTasks, HandshakeError};
use crate::metrics::{ConnectionSide, transport_metrics};
use crate::transport::{
    PeerAddress, PeerConnection, PeerTransport, TransportError, TransportKind, UnreachableCause,
    WayTerms,
};

/// A transport that connects to `VerbsServer`s over one rail, which may come and go.
pub struct VerbsTransport {
    dialer: Arc<RailConnector>,
}

impl Drop for VerbsTransport {
    fn drop(&mut self) {
        self.dialer.over.cancel();
    }
}

struct RailConnector {
    options: VerbsOptions,
    place: RailPlace,
    arena: Arena,
    /// `None` while the rail's device is away, or can't be opened.
    rail: Mutex<Option<Arc<OpenRail>>>,
    /// Label of the rail when it was last there; the place's name before that.
    label: Mutex<String>,
    /// Ends the watch over the device.
    over: CancellationToken,
    tasks: TaskTracker,
}

/// A rail, and the channel that reports the end of its device.
type RailWithEvents = (Arc<OpenRail>, Arc<EventChannel>);

impl VerbsTransport {
    /// Opens the rail at `place`, which must be there. Registers `arena`, so that peers can write
    /// to it. The landings of all calls must lie in it.
    pub fn new(
        place: impl Into<RailPlace>,
        options: VerbsOptions,
        arena: Arena,
    ) -> io::Result<Self> {
        let (transport, error) = Self::start(place, options, arena);
        error.map_or(Ok(transport), Err)
    }

    /// Starts like `new`, but the rail may be away. It is used as soon as it is there. The returned
    /// error is that of the first attempt.
    pub fn start(
        place: impl Into<RailPlace>,
        options: VerbsOptions,
        arena: Arena,
    ) -> (Self, Option<io::Error>) {
        let place = place.into();
        let runtime = options.runtime_handle();
        let mut presence = RailPresence::new(place.clone(), options.reopen_max);
        let rail = Mutex::new(None);
        let (over, tasks) = (CancellationToken::new(), TaskTracker::new());
        let label = Mutex::new(place.rail_name().to_owned());
        let dialer = Arc::new(RailConnector { options, place, arena, rail, label, over, tasks });
        let (opened, error) = match dialer.open_rail() {
            Ok(opened) => {
                dialer.install_rail(&mut presence, &opened);
                (Some(opened.1), None)
            }
            Err(error) => {
                presence.record_failure(&error);
                (None, Some(error))
            }
        };
        // Ends with the transport, by `over`.
        dialer.tasks.spawn_on(dialer.clone().maintain_rail(presence, opened), &runtime);
        (Self { dialer }, error)
    }

    /// Returns the rail, while it is there.
    pub fn current_rail(&self) -> Option<RailIdentity> {
        self.dialer.rail.lock().as_ref().map(|open| open.rail.clone())
    }

    #[cfg(test)]
    pub(super) fn has_windows(&self) -> bool {
        self.dialer.rail.lock().as_ref().is_some_and(|rail| rail.windows.is_some())
    }

    #[cfg(test)]
    pub(super) fn shared_ring(&self) -> Option<Arc<super::receive_buffers::SharedRing>> {
        self.dialer.rail.lock().as_ref().and_then(|rail| rail.shared.clone())
    }

    /// Makes a queue pair that nobody drives, and on which no handshake was done.
    #[cfg(test)]
    pub(super) async fn wire_to(&self, to: SocketAddr) -> Arc<QueuePairWire> {
        self.dialer.establish_wire(to).await.expect("a server listens there")
    }

    /// Waits until the tasks of every connection have ended. Drop the connections and their calls
    /// first.
    pub async fn shutdown(&self) {
        self.dialer.over.cancel();
        self.dialer.tasks.close();
        self.dialer.tasks.wait().await;
    }

    /// Connects to the rail at `to`.
    pub async fn connect_to(
        &self,
        to: SocketAddr,
        terms: &WayTerms,
    ) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let (dialer, terms) = (self.dialer.clone(), terms.clone());
        // The attempt runs in a task of the runtime that will drive the connection. It has its own
        // deadline.
        let attempt = self
            .dialer
            .options
            .runtime_handle()
            .spawn(async move { dialer.connect_to_peer(to, &terms).await });
        attempt.await.unwrap_or_else(|_| {
            let cause = UnreachableCause::GivenUp;
            Err(TransportError::Unreachable { peer: to.to_string(), cause })
        })
    }
}

impl RailConnector {
    async fn connect_to_peer(
        self: &Arc<Self>,
        to: SocketAddr,
        way: &WayTerms,
    ) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let peer = || format!("{to} from rail {}", self.place.rail_name());
        let deadline = Instant::now() + self.options.calls.connect_deadline;
        let unreachable = |cause| TransportError::Unreachable { peer: peer(), cause };
        let wire = match tokio::time::timeout_at(deadline, self.establish_wire(to)).await {
            Ok(Ok(wire)) => wire,
            Ok(Err(error)) => return Err(unreachable(error.into())),
            Err(_) => {
                let deadline = self.options.calls.connect_deadline;
                return Err(unreachable(UnreachableCause::Deadline(deadline)));
            }
        };
        let mut inlet = WireInlet::new(wire.clone());
        let terms = self.options.calls.ticketed_terms(way.ticket.as_ref());
        let shake = calls::request_handshake(&mut inlet, &terms);
        let result = match tokio::time::timeout_at(deadline, shake).await {
            Ok(result) => result.and_then(|agreed| calls::check_name(agreed, way.name.as_deref())),
            Err(_) => Err(HandshakeError::Deadline),
        };
        match result {
            Ok(agreed) => {
                let inlet = inlet.with_message_bound(agreed.frame_bytes_max);
                let on = ConnectionTasks { runtime: &Runtime::current(), tasks: &self.tasks };
                Ok(calls::start_connection(
                    WireOutlet(wire),
                    inlet,
                    &agreed,
                    &peer(),
                    &self.options.calls,
                    on,
                ))
            }
            Err(error) => {
                wire.close();
                transport_metrics().handshakes_failed[error.handshake_failure()].inc();
                Err(TransportError::Handshake { peer: peer(), cause: Arc::new(error) })
            }
        }
    }

    /// Opens the rail where it is now. This is slow: registering pins all of the arena.
    fn open_rail(&self) -> io::Result<RailWithEvents> {
        OpenRail::open_device(
            self.place.find_address()?,
            self.arena.clone(),
            ArenaPurpose::Landings,
            &self.options,
        )
    }

    fn install_rail(&self, presence: &mut RailPresence, (rail, _): &RailWithEvents) {
        presence.record_open(&rail.rail);
        *self.label.lock() = rail.rail.metric_label();
        *self.rail.lock() = Some(rail.clone());
    }

    /// Keeps the rail open while its device is there. Drops the rail when the device is removed,
    /// since the removal waits for that. Opens it again when the device is back.
    async fn maintain_rail(
        self: Arc<Self>,
        mut presence: RailPresence,
        mut told: Option<Arc<EventChannel>>,
    ) {
        let keep = async {
            loop {
                if let Some(told) = told.take() {
                    if let Err(error) = device_removed(told).await {
                        tracing::error!(
                            rail = self.place.rail_name(), %error,
                            "can't hear of the end of a rail's device"
                        );
                    }
                    *self.rail.lock() = None;
                    presence.record_removal();
                }
                presence.wait_for_retry().await;
                let dialer = self.clone();
                let opened = tokio::task::spawn_blocking(move || dialer.open_rail()).await;
                match opened.map_err(io::Error::other).flatten() {
                    Ok(opened) => {
                        self.install_rail(&mut presence, &opened);
                        told = Some(opened.1);
                    }
                    Err(error) => presence.record_failure(&error),
                }
            }
        };
        self.over.run_until_cancelled(keep).await;
    }

    async fn establish_wire(&self, to: SocketAddr) -> io::Result<Arc<QueuePairWire>> {
        match self.request_wire(to, self.options.path_mtu_max).await? {
            WireRequestOutcome::Yes(wire) => Ok(wire),
            WireRequestOutcome::SmallerPackets(path_mtu_max) => {
                match self.request_wire(to, Some(path_mtu_max)).await? {
                    WireRequestOutcome::Yes(wire) => Ok(wire),
                    WireRequestOutcome::SmallerPackets(_) => {
                        Err(io::Error::other("it wants packets that are smaller still"))
                    }
                }
            }
        }
    }

    async fn request_wire(
        &self,
        to: SocketAddr,
        path_mtu_max: Option<u16>,
    ) -> io::Result<WireRequestOutcome> {
        let rail = self.rail.lock().clone();
        let rail =
            rail.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the rail is down"))?;
        let channel = EventChannel::new()?;
        let mut id = CmId::new(&channel)?;
        let events = watch_readable(channel)?;
        let within = self.options.calls.connect_deadline.max(Duration::from_millis(1));
        id.resolve_address(rail.rail.address, to, within)?;
        expect_event(&next_event(&events).await?, EventKind::AddressResolved)?;
        if let Some(tos) = self.options.tos {
            id.set_tos(tos)?;
        }
        id.set_ack_timeout(self.options.ack_timeout)?;
        id.resolve_route(within)?;
        expect_event(&next_event(&events).await?, EventKind::RouteResolved)?;
        let path_mtu_max = path_mtu_max.filter(|_| !id.is_iwarp());
        if path_mtu_max.is_some() {
            id.move_states();
        }
        let wire = QueuePairWire::new(id, events, rail, &self.options)?;
        let mine = QueueTerms { path_mtu_max, ..wire.queue_terms(&self.options) };
        wire.with_pair(|pair| pair.connect(&mine.encode(), connect_options(&self.options)))?;
        let answer = wire.next_cm_event().await?;
        let theirs = QueueTerms::decode(&answer.private);
        match theirs.as_ref().map(|theirs| theirs.path_mtu_max) {
            Ok(Some(wanted)) if answer.kind == EventKind::Refused && path_mtu_max.is_none() => {
                return Ok(WireRequestOutcome::SmallerPackets(wanted));
            }
            _ if path_mtu_max.is_some() => expect_event(&answer, EventKind::Accepted)?,
            _ => expect_event(&answer, EventKind::Established)?,
        }
        let theirs = theirs?;
        if let Some(path_mtu_max) = path_mtu_max.and_then(|_| mine.path_mtu_max(theirs)) {
            wire.with_pair(|pair| {
                pair.get_ready(path_mtu_max).and_then(|()| pair.establish_connection())
            })?;
        }
        wire.tell_path_mtu(ConnectionSide::Requester);
        wire.set_peer_terms(mine, theirs);
        Ok(WireRequestOutcome::Yes(wire))
    }
}

/// Outcome of a connect request.
enum WireRequestOutcome {
    Yes(Arc<QueuePairWire>),
    /// The peer has a bound on the path MTU, but this request did not offer to keep one.
    SmallerPackets(u16),
}

/// Ends when the device of a rail is removed.
async fn device_removed(told: Arc<EventChannel>) -> io::Result<()> {
    let events = watch_readable(told)?;
    while next_event(&events).await?.kind != EventKind::DeviceRemoved {}
    Ok(())
}

pub(super) fn connect_options(options: &VerbsOptions) -> ConnectOptions {
    ConnectOptions { retry_count: options.retry_count, rnr_retry: options.rnr_retry }
}

pub(super) fn expect_event(event: &CmEvent, kind: EventKind) -> io::Result<()> {
    match event.kind {
        found if found == kind => Ok(()),
        EventKind::Refused => {
            let reason = "it refuses: nobody listens there, or it is full";
            Err(io::Error::new(io::ErrorKind::ConnectionRefused, reason))
        }
        EventKind::Failed(reason) => {
            let code = event.status;
            let reason = if code < 0 {
                format!("{reason}: {}", io::Error::from_raw_os_error(code.saturating_neg()))
            } else {
                reason.to_owned()
            };
            Err(io::Error::new(io::ErrorKind::ConnectionRefused, reason))
        }
        found => Err(io::Error::other(format!("{found:?} where {kind:?} was due"))),
    }
}

#[async_trait]
impl PeerTransport for VerbsTransport {
    fn transport_kind(&self) -> TransportKind {
        TransportKind::Verbs
    }

    fn rail_label(&self) -> Option<String> {
        Some(self.dialer.label.lock().clone())
    }

    fn is_up(&self) -> bool {
        self.dialer.rail.lock().is_some()
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let Some(to) = peer.ways.rails.first().copied().flatten() else {
            let cause = UnreachableCause::NoRail;
            return Err(TransportError::Unreachable { peer: peer.tcp.to_string(), cause });
        };
        self.connect_to(to, &peer.way_terms()).await
    }
}

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
use super::queue_terms::{CROWDED, QueueTerms};
use super::rail::{ArenaPurpose, OpenRail, RailIdentity};
use super::rail_keeper::{FirstAttempt, RailChange, RailKeeper};
use super::rail_opener::RailOpener;
use super::rail_presence::{RailPlace, RailPresence};
use super::readable_source::{next_event, watch_readable_on};
use super::setup_runtime::{run_aside, wait_within};
use super::sys::{CmEvent, CmId, ConnectOptions, EventChannel, EventKind};
use super::wire_halves::{WireInlet, WireOutlet};
use crate::arena::Arena;
use crate::calls::{self, ConnectionTasks, HandshakeError};
use crate::metrics::{ConnectionSide, transport_metrics};
use crate::rails::RailSubnet;
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
    name: Arc<str>,
    /// `None` while the rail is down: its device is away, or its port, or it can't be opened.
    rail: Mutex<Option<Arc<OpenRail>>>,
    /// Label of the rail when it was last there; the place's name before that.
    label: Mutex<String>,
    /// Ends the watch over the device.
    over: CancellationToken,
    tasks: TaskTracker,
}

impl VerbsTransport {
    /// Opens the rail at `place`, which must be there. Registers `arena`, so that peers can write
    /// to it. The landings of all calls must lie in it.
    pub fn new(
        place: impl Into<RailPlace>,
        options: VerbsOptions,
        arena: Arena,
    ) -> io::Result<Self> {
        let (transport, mut keeper) = Self::prepare_rail(place.into(), options, arena);
        let opened = keeper.open_now()?;
        transport.dialer.install_rail(opened);
        transport.spawn_keeper(keeper);
        Ok(transport)
    }

    /// Starts like `new`, but at once: the rail is opened in the background, may be away, and is
    /// used as soon as it is there.
    pub fn start(
        place: impl Into<RailPlace>,
        options: VerbsOptions,
        arena: Arena,
    ) -> (Self, FirstAttempt) {
        let (transport, mut keeper) = Self::prepare_rail(place.into(), options, arena);
        let attempt = keeper.start_opening();
        transport.spawn_keeper(keeper);
        (transport, attempt)
    }

    fn prepare_rail(place: RailPlace, options: VerbsOptions, arena: Arena) -> (Self, RailKeeper) {
        let name: Arc<str> = place.rail_name().into();
        let presence = RailPresence::new(place.clone(), options.settings.reopen_max.0);
        let opener = RailOpener::new(place, arena, ArenaPurpose::Landings, &options);
        let (over, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (rail, label) = (Mutex::new(None), Mutex::new((*name).to_owned()));
        let dialer = Arc::new(RailConnector { options, name, rail, label, over, tasks });
        (Self { dialer }, RailKeeper::new(presence, opener))
    }

    /// Follows the rail on this runtime: a driver's threads drive connections alone.
    fn spawn_keeper(&self, keeper: RailKeeper) {
        // Ends with the transport, by `over`.
        self.dialer.tasks.spawn(self.dialer.clone().follow_rail(keeper));
    }

    /// Returns the rail, while it is there.
    pub fn current_rail(&self) -> Option<RailIdentity> {
        self.dialer.rail.lock().as_ref().map(|open| open.rail.clone())
    }

    #[cfg(test)]
    pub(super) fn rail_device(&self) -> Option<Arc<super::rail::RailDevice>> {
        self.dialer.rail.lock().as_ref().map(|open| open.device.clone())
    }

    #[cfg(test)]
    pub(super) fn has_windows(&self) -> bool {
        self.dialer.rail.lock().as_ref().is_some_and(|rail| rail.device.windows.is_some())
    }

    #[cfg(test)]
    pub(super) fn shared_ring(&self) -> Option<Arc<super::receive_buffers::SharedRing>> {
        self.dialer.rail.lock().as_ref().and_then(|rail| rail.device.shared.clone())
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
        way_terms: &WayTerms,
    ) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let peer = || format!("{to} from rail {}", self.name);
        let deadline = Instant::now() + self.options.calls.settings.connect_deadline.0;
        let unreachable = |cause| TransportError::Unreachable { peer: peer(), cause };
        let wire = match tokio::time::timeout_at(deadline, self.establish_wire(to)).await {
            Ok(Ok(wire)) => wire,
            Ok(Err(cause)) => return Err(unreachable(cause)),
            Err(_) => {
                let deadline = self.options.calls.settings.connect_deadline.0;
                return Err(unreachable(UnreachableCause::Deadline(deadline)));
            }
        };
        let mut inlet = WireInlet::new(wire.clone());
        let terms = self.options.calls.ticketed_terms(way_terms.ticket.as_ref());
        let shake = calls::request_handshake(&mut inlet, &terms);
        let result = match tokio::time::timeout_at(deadline, shake).await {
            Ok(result) => {
                result.and_then(|agreed| calls::check_name(agreed, way_terms.name.as_deref()))
            }
            Err(_) => Err(HandshakeError::Deadline),
        };
        match result {
            Ok(agreed) => {
                let inlet = inlet.with_session(agreed.frame_bytes_max);
                let on = ConnectionTasks { runtime: &Runtime::current(), tasks: &self.tasks };
                Ok(calls::start_connection(
                    WireOutlet::new(wire, &self.tasks),
                    inlet,
                    &agreed,
                    &peer(),
                    &self.options.calls,
                    on,
                ))
            }
            Err(error) => {
                wire.close_aside(&self.tasks).await;
                transport_metrics().handshakes_failed[error.handshake_failure()].inc();
                Err(TransportError::Handshake { peer: peer(), cause: Arc::new(error) })
            }
        }
    }

    fn install_rail(&self, rail: Arc<OpenRail>) {
        *self.label.lock() = rail.rail.metric_label();
        self.replace_rail(Some(rail));
    }

    fn replace_rail(&self, rail: Option<Arc<OpenRail>>) {
        let before = std::mem::replace(&mut *self.rail.lock(), rail);
        // Behind the lock, which every call takes: it may be the last one.
        drop(before);
    }

    /// Has the rail while it can be used. Drops it when its device is removed, since the removal
    /// waits for that.
    async fn follow_rail(self: Arc<Self>, mut keeper: RailKeeper) {
        let keep = async {
            loop {
                match keeper.next_change().await {
                    RailChange::Up(rail) => self.install_rail(rail),
                    RailChange::Out => self.replace_rail(None),
                }
            }
        };
        let _: Option<()> = self.over.run_until_cancelled(keep).await;
    }

    async fn establish_wire(
        self: &Arc<Self>,
        to: SocketAddr,
    ) -> Result<Arc<QueuePairWire>, UnreachableCause> {
        let (dialer, driver) = (self.clone(), Runtime::current());
        let request = async move {
            let bound = dialer.options.settings.path_mtu_max;
            let outcome = dialer.request_wire(to, bound, &driver).await?;
            let WireRequestOutcome::SmallerPackets(path_mtu_max) = outcome else {
                return Ok(outcome);
            };
            dialer.request_wire(to, Some(path_mtu_max), &driver).await
        };
        match run_aside(&self.tasks, request).await?? {
            WireRequestOutcome::Yes(wire) => Ok(wire),
            WireRequestOutcome::Crowded => Err(UnreachableCause::Crowded),
            WireRequestOutcome::SmallerPackets(_) => {
                Err(io::Error::other("it wants packets that are smaller still").into())
            }
        }
    }

    /// Asks for a connection. Much of this blocks.
    async fn request_wire(
        &self,
        to: SocketAddr,
        path_mtu_max: Option<u16>,
        driver: &Runtime,
    ) -> io::Result<WireRequestOutcome> {
        let rail = self.rail.lock().clone();
        let rail =
            rail.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the rail is down"))?;
        let channel = EventChannel::new()?;
        let mut id = CmId::new(&channel)?;
        // These threads may block. The driver's hear of the events of all its connections in time.
        let events = watch_readable_on(driver, channel)?;
        let within = self.options.calls.settings.connect_deadline.0.max(Duration::from_millis(1));
        id.resolve_address(rail.rail.address, to, within)?;
        expect_event(&next_event(&events).await?, EventKind::AddressResolved)?;
        if let Some(tos) = self.options.settings.tos {
            id.set_tos(tos)?;
        }
        id.set_ack_timeout(self.options.settings.ack_timeout)?;
        wait_within(|| id.resolve_route(within)).await?;
        expect_event(&next_event(&events).await?, EventKind::RouteResolved)?;
        let path_mtu_max = path_mtu_max.filter(|_| !id.is_iwarp());
        if path_mtu_max.is_some() {
            id.move_states();
        }
        let wire = QueuePairWire::new(id, events, rail, &self.options, driver)?;
        let mine = QueueTerms { path_mtu_max, ..wire.queue_terms(&self.options) };
        wire.with_pair(|pair| pair.connect(&mine.encode(), connect_options(&self.options)))?;
        let answer = wire.next_cm_event().await?;
        if answer.kind == EventKind::Refused && answer.private.starts_with(&CROWDED) {
            return Ok(WireRequestOutcome::Crowded);
        }
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
        wire.tune_connected();
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
    /// The peer has no room for one more handshake now.
    Crowded,
}

pub(super) fn connect_options(options: &VerbsOptions) -> ConnectOptions {
    ConnectOptions {
        retry_count: options.settings.retry_count,
        rnr_retry: options.settings.rnr_retry,
    }
}

pub(super) fn expect_event(event: &CmEvent, kind: EventKind) -> io::Result<()> {
    match event.kind {
        found if found == kind => Ok(()),
        EventKind::Refused => {
            let code = event.status;
            let reason = format!("it refuses (reason {code}): nobody listens there, or it is full");
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

    fn rail_subnet(&self) -> Option<RailSubnet> {
        self.dialer.rail.lock().as_ref().and_then(|open| open.subnet)
    }

    fn is_up(&self) -> bool {
        self.dialer.rail.lock().is_some()
    }

    fn is_near(&self) -> bool {
        self.dialer.rail.lock().as_ref().is_none_or(|open| open.device.is_near)
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let Some(to) = peer.ways.rails.first().copied().flatten() else {
            let cause = UnreachableCause::NoRail;
            return Err(TransportError::Unreachable { peer: peer.tcp.to_string(), cause });
        };
        self.connect_to(to, &peer.way_terms()).await
    }
}

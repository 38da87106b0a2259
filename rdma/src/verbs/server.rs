//! Owns the accepting side of one rail: the listener, the caps and the tasks of its sessions.
//! `calls` knows what a session does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle as Runtime;
use tokio::sync::OwnedSemaphorePermit;
use verbs3_doors::WaitingGuest;

use super::VerbsOptions;
use super::queue_pair_wire::QueuePairWire;
use super::queue_terms::{CROWDED, QueueTerms};
use super::rail::{ArenaPurpose, OpenRail};
use super::rail_connector::{connect_options, expect_event};
use super::rail_keeper::{FirstAttempt, RailChange, RailKeeper};
use super::rail_opener::RailOpener;
use super::rail_presence::{RailPlace, RailPresence};
use super::readable_source::{ReadableSource, next_event, watch_readable, watch_readable_on};
use super::setup_runtime::run_aside;
use super::sys::{CmEvent, CmId, EventChannel, EventKind, PRIVATE_BYTES_MAX};
use super::wire_halves::{WireInlet, WireOutlet};
use crate::arena::Arena;
use crate::calls::{
    self, AdmissionGate, ConnectionTasks, GateCloser, GateLimits, HandshakeAgreement,
    HandshakeError, ServerSession,
};
use crate::metrics::ConnectionSide;
use crate::transport::CallService;

/// Connect requests that may wait for acceptance.
const BACKLOG: i32 = 128;

/// Time that a refused requester has to read the reason and hang up.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Options of a [`VerbsServer`] beyond those of both sides: its bounds, and its deadline for the
/// drain.
#[derive(Debug, Clone)]
pub struct VerbsServerOptions {
    pub verbs: VerbsOptions,
    /// Most queue pairs. Beyond it requesters are refused, and use tcp.
    pub connections_max: usize,
    /// Longest time that [`VerbsServer::shutdown`] waits for calls in flight.
    pub drain_deadline: Duration,
}

impl VerbsServerOptions {
    /// Takes 1,024 connections. The drain may take 30 s.
    pub fn new(verbs: VerbsOptions) -> Self {
        Self { verbs, connections_max: 1024, drain_deadline: Duration::from_secs(30) }
    }
}

/// The address of a rail: `None` while its device is away, or can't be opened.
#[derive(Debug, Clone, Default)]
pub struct RailAddress(Arc<Mutex<Option<SocketAddr>>>);

impl RailAddress {
    /// Returns the address now. It changes when the rail goes or returns, so do not keep it.
    pub fn get(&self) -> Option<SocketAddr> {
        *self.0.lock()
    }
}

/// A rail that listens while it is there. Dropping it ends every connection at once;
/// [`VerbsServer::shutdown`] drains first.
pub struct VerbsServer {
    address: RailAddress,
    closer: GateCloser,
}

impl VerbsServer {
    /// Listens on the rail that has `address` (port 0 takes a free one). Registers `arena`, from
    /// which replies are written, without any remote right.
    pub async fn bind(
        address: SocketAddr,
        options: VerbsServerOptions,
        arena: Arena,
        service: Arc<dyn CallService>,
    ) -> io::Result<Self> {
        let (server, door, mut keeper) =
            Self::prepare_rail(address.ip().into(), options, arena, service);
        let listener = RailListener::listen_on(keeper.open_now()?, address.port())?;
        door.publish_listener(&listener);
        door.spawn_keeper(keeper, Some(listener), address.port());
        Ok(server)
    }

    /// Starts a server like `bind`, but at once: the rail is opened in the background, may be away,
    /// and is listened on as soon as it is there.
    pub fn start(
        place: RailPlace,
        port: u16,
        options: VerbsServerOptions,
        arena: Arena,
        service: Arc<dyn CallService>,
    ) -> (Self, FirstAttempt) {
        let (server, door, mut keeper) = Self::prepare_rail(place, options, arena, service);
        let attempt = keeper.start_opening();
        door.spawn_keeper(keeper, None, port);
        (server, attempt)
    }

    fn prepare_rail(
        place: RailPlace,
        options: VerbsServerOptions,
        arena: Arena,
        service: Arc<dyn CallService>,
    ) -> (Self, Arc<RailAcceptor>, RailKeeper) {
        let presence = RailPresence::new(place.clone(), options.verbs.settings.reopen_max.0);
        let opener = RailOpener::new(place, arena, ArenaPurpose::Blocks, &options.verbs);
        let limits = GateLimits {
            connections_max: options.connections_max,
            handshakes_max: options.verbs.settings.handshakes_max as usize,
            handshakes_per_address_max: options.verbs.settings.handshakes_per_address_max as usize,
        };
        let (address, gate) = (RailAddress::default(), AdmissionGate::new(limits));
        let closer = gate.make_closer(options.drain_deadline);
        let door = RailAcceptor { gate, options, service, address: address.clone() };
        (Self { address, closer }, Arc::new(door), RailKeeper::new(presence, opener))
    }

    /// Returns the listening address; `None` while the rail is away.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address.get()
    }

    /// Returns a handle on the address that `local_addr` reports, for code that tells peers.
    pub fn rail_address(&self) -> RailAddress {
        self.address.clone()
    }

    /// Takes no new connection and no new call. Lets calls in flight finish, and waits for every
    /// task.
    pub async fn shutdown(self) {
        self.closer.shutdown().await;
    }
}

/// An id that listens on an open rail.
struct RailListener {
    rail: Arc<OpenRail>,
    events: AsyncFd<ReadableSource<EventChannel>>,
    id: CmId,
}

impl RailListener {
    /// Listens on an open rail. Needs a runtime.
    fn listen_on(rail: Arc<OpenRail>, port: u16) -> io::Result<Self> {
        let channel = EventChannel::new()?;
        let id = CmId::new(&channel)?;
        id.bind(SocketAddr::new(rail.rail.address, port))?;
        id.start_listening(BACKLOG)?;
        Ok(Self { rail, events: watch_readable(channel)?, id })
    }

    fn local_address(&self) -> SocketAddr {
        SocketAddr::new(self.rail.rail.address, self.id.local_port())
    }
}

/// Waits for the next event of a listener, if there is one.
async fn next_listener_event(listener: &mut Option<RailListener>) -> io::Result<CmEvent> {
    match listener {
        Some(listener) => next_event(&listener.events).await,
        None => std::future::pending().await,
    }
}

struct RailAcceptor {
    options: VerbsServerOptions,
    service: Arc<dyn CallService>,
    gate: AdmissionGate,
    address: RailAddress,
}

impl RailAcceptor {
    fn publish_listener(&self, listener: &RailListener) {
        *self.address.0.lock() = Some(listener.local_address());
    }

    fn spawn_keeper(
        self: &Arc<Self>,
        keeper: RailKeeper,
        listener: Option<RailListener>,
        port: u16,
    ) {
        // Ends at shutdown or drop, by the `drain` token.
        self.gate.tasks.spawn(self.clone().keep_listening(keeper, listener, port));
    }

    /// Accepts while the rail can be used.
    async fn keep_listening(
        self: Arc<Self>,
        mut keeper: RailKeeper,
        mut listener: Option<RailListener>,
        mut port: u16,
    ) {
        loop {
            let change = tokio::select! {
                change = keeper.next_change() => change,
                event = next_listener_event(&mut listener) => {
                    match (event, &listener) {
                        (Ok(event), Some(listener)) => {
                            if event.kind == EventKind::AddressChanged {
                                keeper.look_again();
                            }
                            self.handle_request(event, &listener.rail);
                        }
                        (Err(error), Some(listener)) => {
                            tracing::error!(
                                rail = listener.rail.rail.metric_label(), %error,
                                "can't take connections; listens anew"
                            );
                            keeper.look_again();
                        }
                        (_, None) => {}
                    }
                    continue;
                }
                () = self.gate.drain.cancelled() => return,
            };
            // Keep the port for the rail's return, where any was asked for. The old listener ends
            // before the next one begins, which may have the same address.
            if let Some(listener) = listener.take() {
                port = listener.local_address().port();
            }
            *self.address.0.lock() = None;
            let RailChange::Up(rail) = change else {
                continue;
            };
            match RailListener::listen_on(rail, port) {
                Ok(opened) => {
                    self.publish_listener(&opened);
                    listener = Some(opened);
                }
                Err(error) => keeper.record_failure(&error),
            }
        }
    }

    fn handle_request(self: &Arc<Self>, event: CmEvent, rail: &Arc<OpenRail>) {
        let Some(id) = event.request else {
            return;
        };
        let Some(turn) = self.gate.admit_handshake("a peer", id.peer_ip()) else {
            return id.reject_request(&CROWDED);
        };
        // Ends with its connection, at the latest when `kill` is cancelled.
        let serve = self.clone().serve_connection(id, event.private, rail.clone(), turn);
        self.gate.tasks.spawn_on(serve, &self.options.verbs.runtime_handle());
    }

    async fn serve_connection(
        self: Arc<Self>,
        id: CmId,
        private: [u8; PRIVATE_BYTES_MAX],
        rail: Arc<OpenRail>,
        turn: WaitingGuest,
    ) {
        let peer = format!("over {}", rail.rail.metric_label());
        let deadline = self.options.verbs.calls.settings.connect_deadline.0;
        let welcome = self
            .gate
            .run_handshake(deadline, &peer, turn, self.perform_handshake(id, private, rail))
            .await;
        let Some(Some((wire, inlet, agreed, _place))) = welcome else {
            return;
        };
        let inlet = inlet.with_session(agreed.frame_bytes_max);
        let on = ConnectionTasks { runtime: &Runtime::current(), tasks: &self.gate.tasks };
        let session = ServerSession::new(
            WireOutlet::new(wire, &self.gate.tasks),
            &agreed,
            &peer,
            self.service.clone(),
            on,
        );
        calls::serve_session(session, inlet, &self.gate.drain, &self.gate.kill).await;
    }

    /// Performs the handshake. Returns `None` when the requester was told to ask in another way.
    async fn perform_handshake(
        self: &Arc<Self>,
        id: CmId,
        private: [u8; PRIVATE_BYTES_MAX],
        rail: Arc<OpenRail>,
    ) -> Result<
        Option<(Arc<QueuePairWire>, WireInlet, HandshakeAgreement, OwnedSemaphorePermit)>,
        HandshakeError,
    > {
        let (door, driver) = (self.clone(), Runtime::current());
        let accept = async move { door.accept_wire(id, &private, rail, &driver).await };
        let Some(wire) = run_aside(&self.gate.tasks, accept).await?? else {
            return Ok(None);
        };
        let mut inlet = WireInlet::new(wire.clone());
        let terms = self.options.verbs.calls.ticketed_terms(None);
        let admitted = self.gate.accept_peer(&mut inlet, &terms).await;
        if admitted.is_err() {
            // The requester was told the reason. Destroying the queue pair at once would lose that
            // message.
            wire.ended_within(REFUSED_FOR).await;
            wire.close_aside(&self.gate.tasks).await;
        }
        let (agreed, place) = admitted?;
        Ok(Some((wire, inlet, agreed, place)))
    }

    /// Makes the queue pair of a request and connects it. Much of this blocks.
    async fn accept_wire(
        &self,
        mut id: CmId,
        private: &[u8],
        rail: Arc<OpenRail>,
        driver: &Runtime,
    ) -> io::Result<Option<Arc<QueuePairWire>>> {
        let options = &self.options.verbs;
        let theirs = QueueTerms::decode(private)?;
        let channel = EventChannel::new()?;
        id.move_to_channel(&channel)?;
        let events = watch_readable_on(driver, channel)?;
        if let Some(tos) = options.settings.tos {
            id.set_tos(tos)?;
        }
        id.set_ack_timeout(options.settings.ack_timeout)?;
        let mut mine = QueueTerms::from_options(options);
        mine.path_mtu_max = mine.path_mtu_max.filter(|_| !id.is_iwarp());
        if theirs.path_mtu_max.is_some() {
            id.move_states();
        } else if mine.path_mtu_max.is_some() {
            // The requester asks again, and then can keep the bound.
            id.reject_request(&mine.encode());
            return Ok(None);
        }
        let wire = QueuePairWire::new(id, events, rail, options, driver)?;
        mine.receive_first = wire.queue_terms(options).receive_first;
        wire.set_peer_terms(mine, theirs);
        wire.with_pair(|pair| {
            if let Some(path_mtu_max) = mine.path_mtu_max(theirs).filter(|_| pair.moves_states()) {
                pair.get_ready(path_mtu_max)?;
            }
            pair.accept(&mine.encode(), connect_options(options))
        })?;
        expect_event(&wire.next_cm_event().await?, EventKind::Established)?;
        wire.tune_connected();
        wire.tell_path_mtu(ConnectionSide::Server);
        Ok(Some(wire))
    }
}

//! The connecting side of one rail.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::VerbsOptions;
use super::line::{WireInlet, WireOutlet};
use super::rail::{OpenRail, Rail, Use};
use super::sys::{CmEvent, CmId, ConnectOptions, EventChannel, EventKind};
use super::terms::QueueTerms;
use super::wire::{Wire, next_event, watch};
use crate::arena::Arena;
use crate::calls::{self, HandshakeError};
use crate::metrics::metrics;
use crate::transport::{Connection, PeerAddress, Transport, TransportError, TransportKind};

/// Connects to `VerbsServer`s over one rail.
pub struct VerbsTransport {
    dialer: Arc<Dialer>,
    rail: Rail,
}

impl Drop for VerbsTransport {
    fn drop(&mut self) {
        self.dialer.over.cancel();
    }
}

struct Dialer {
    options: VerbsOptions,
    address: IpAddr,
    arena: Arena,
    /// `None` after its device was removed, until a connection finds it back.
    rail: Mutex<Option<Arc<OpenRail>>>,
    /// Ends the watch over the device.
    over: CancellationToken,
    tasks: TaskTracker,
}

impl VerbsTransport {
    /// Over the rail that has `address`. Registers `arena`, in which the landings of all calls must lie, for peers to
    /// write to.
    pub fn new(address: IpAddr, options: VerbsOptions, arena: Arena) -> io::Result<Self> {
        let (open, told) = OpenRail::open(address, arena.clone(), Use::Landings)?;
        let rail = open.rail.clone();
        let runtime = options.runtime();
        let _on = runtime.enter();
        let held = Mutex::new(Some(open));
        let dialer = Arc::new(Dialer {
            options,
            address,
            arena,
            rail: held,
            over: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        dialer.watch(told)?;
        Ok(Self { dialer, rail })
    }

    pub fn rail(&self) -> &Rail {
        &self.rail
    }

    /// Waits until the tasks of every connection have ended. Drop the connections and their calls first.
    pub async fn shutdown(&self) {
        self.dialer.over.cancel();
        self.dialer.tasks.close();
        self.dialer.tasks.wait().await;
    }

    /// Connects to the rail at `to`.
    pub async fn connect_to(&self, to: SocketAddr, name: Option<&str>) -> Result<Arc<dyn Connection>, TransportError> {
        let (dialer, name) = (self.dialer.clone(), name.map(str::to_owned));
        // In a task of the runtime that will drive the connection. It has a deadline of its own.
        let attempt = self.dialer.options.runtime().spawn(async move { dialer.connect(to, name.as_deref()).await });
        attempt.await.unwrap_or_else(|_| {
            let reason = "the attempt was given up".to_owned();
            Err(TransportError::Unreachable { peer: to.to_string(), reason })
        })
    }
}

impl Dialer {
    async fn connect(
        self: &Arc<Self>,
        to: SocketAddr,
        name: Option<&str>,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let peer = || format!("{to} from {}", self.address);
        let deadline = Instant::now() + self.options.calls.connect_deadline;
        let unreachable = |reason: String| TransportError::Unreachable { peer: peer(), reason };
        let wire = match tokio::time::timeout_at(deadline, self.establish(to)).await {
            Ok(Ok(wire)) => wire,
            Ok(Err(error)) => return Err(unreachable(error.to_string())),
            Err(_) => return Err(unreachable(format!("no answer in {:?}", self.options.calls.connect_deadline))),
        };
        let mut inlet = WireInlet::new(wire.clone());
        let terms = self.options.calls.terms("");
        let shake = calls::request(&mut inlet, &terms);
        let result = match tokio::time::timeout_at(deadline, shake).await {
            Ok(result) => result.and_then(|agreed| calls::check_name(agreed, name)),
            Err(_) => Err(HandshakeError::Deadline),
        };
        match result {
            Ok(agreed) => {
                let inlet = inlet.bounded(agreed.frame_bytes_max);
                let on = (&Runtime::current(), &self.tasks);
                Ok(calls::connect(WireOutlet(wire), inlet, &agreed, &peer(), &self.options.calls, on))
            }
            Err(error) => {
                wire.close();
                metrics().handshakes_failed.with_label_values(&[error.label()]).inc();
                Err(TransportError::Handshake { peer: peer(), reason: error.to_string() })
            }
        }
    }

    /// Lets go of the rail when its device is removed, since the device waits for that.
    fn watch(self: &Arc<Self>, told: Arc<EventChannel>) -> io::Result<()> {
        let (events, dialer) = (watch(told)?, self.clone());
        // Ends with the device, or with the transport. May be cancelled at any await.
        self.tasks.spawn_on(
            async move {
                let removed = async {
                    loop {
                        match next_event(&events).await {
                            Ok(event) if event.kind != EventKind::DeviceRemoved => {}
                            _ => break,
                        }
                    }
                };
                if dialer.over.run_until_cancelled(removed).await.is_some() {
                    tracing::warn!(rail = %dialer.address, "the rail's device was removed; other ways are used until it is back");
                    *dialer.rail.lock() = None;
                }
            },
            &self.options.runtime(),
        );
        Ok(())
    }

    /// The rail, opened anew where its device was removed.
    async fn open_rail(self: &Arc<Self>) -> io::Result<Arc<OpenRail>> {
        if let Some(rail) = self.rail.lock().clone() {
            return Ok(rail);
        }
        let (address, arena) = (self.address, self.arena.clone());
        // Registering pins all of the arena, which takes its time.
        let opened = tokio::task::spawn_blocking(move || OpenRail::open(address, arena, Use::Landings)).await;
        let (rail, told) = opened.map_err(io::Error::other).flatten()?;
        let mut held = self.rail.lock();
        if let Some(other) = held.clone() {
            return Ok(other);
        }
        tracing::info!(rail = rail.rail.label(), "the rail's device is back");
        *held = Some(rail.clone());
        drop(held);
        self.watch(told)?;
        Ok(rail)
    }

    async fn establish(self: &Arc<Self>, to: SocketAddr) -> io::Result<Arc<Wire>> {
        let rail = self.open_rail().await?;
        let channel = EventChannel::new()?;
        let id = CmId::new(&channel)?;
        let events = watch(channel)?;
        let within = self.options.calls.connect_deadline.max(Duration::from_millis(1));
        id.resolve_address(rail.rail.address, to, within)?;
        expect(&next_event(&events).await?, EventKind::AddressResolved)?;
        if let Some(tos) = self.options.tos {
            id.set_tos(tos)?;
        }
        id.set_ack_timeout(self.options.ack_timeout)?;
        id.resolve_route(within)?;
        expect(&next_event(&events).await?, EventKind::RouteResolved)?;
        let wire = Wire::new(id, events, rail, &self.options)?;
        let mine = QueueTerms::of(&self.options);
        wire.with_id(|id| id.connect(&mine.encode(), connect_options(&self.options)))?;
        let established = wire.event().await?;
        expect(&established, EventKind::Established)?;
        let theirs = QueueTerms::decode(&established.private)?;
        wire.agree(mine, theirs);
        Ok(wire)
    }
}

pub(super) fn connect_options(options: &VerbsOptions) -> ConnectOptions {
    ConnectOptions { retry_count: options.retry_count, rnr_retry: options.rnr_retry }
}

pub(super) fn expect(event: &CmEvent, kind: EventKind) -> io::Result<()> {
    match event.kind {
        found if found == kind => Ok(()),
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
impl Transport for VerbsTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Verbs
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn Connection>, TransportError> {
        let Some(to) = peer.ways.rails.first() else {
            let reason = "it has no rail".to_owned();
            return Err(TransportError::Unreachable { peer: peer.tcp.to_string(), reason });
        };
        self.connect_to(*to, peer.name.as_deref()).await
    }
}

//! Owns the interface between "what is asked" and "how bytes move", shaped like verbs.
//!
//! A requester lends a [`Landing`] with its request. The owner of the data *pushes* into that
//! landing and then sends a message that vouches for what it pushed. A reply may come in parts.
//! Nobody ever receives freshly allocated bytes.
//!
//! This file owns the vocabulary. It does not choose a transport (`peer`), and it does not know
//! what the messages mean.
//!
//! # Who may touch a landing, and when
//! From [`PeerConnection::start_call`] on, the landing belongs to the peer. The bytes that a
//! [`CallEvent::Part`] vouches for may be read; the rest may not. The memory goes back to the arena
//! when *both* hold: every piece handed out is dropped, and the call is *settled*. A call is
//! settled when its last part arrived, when its cancel was acknowledged, or when the connection
//! that could still write to the landing is gone. Dropping an [`OutgoingCall`] cancels it; the
//! landing stays in quarantine until it is settled.

mod transport_error;

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use verbs3_certificates::NodeRole;
use verbs3_metrics::MetricLabel;

pub use transport_error::{
    CallRefusal, LossCause, NoReplyCause, ProtocolBreach, TransportError, UnreachableCause,
};

use crate::landing::Landing;
use crate::peer::TransportWays;
use crate::rails::RailSubnet;
use crate::way_ticket::WayTicket;

/// The carrier over which bytes reached this host. Every answer reports it, so that a silent
/// fallback can't exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, MetricLabel)]
pub enum TransportKind {
    /// Within one process or one host. The owner's memory itself is handed over, pinned until
    /// dropped.
    // Between processes a landing is lent as well: what can't be handed over (few bytes, or too many
    // pins) is copied into it.
    Shm,
    /// RDMA reliable connection (InfiniBand, RoCE, iWARP).
    Verbs,
    /// Frames over TCP (Ethernet, IPoIB).
    Tcp,
}

impl TransportKind {
    /// Returns the value of the `transport` metric label and of the `x-verbs3-transport` header.
    pub fn as_str(self) -> &'static str {
        self.label_text()
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The address of a peer. Each transport takes its own part: `tcp` takes the first, `shm` and
/// `verbs` theirs of `ways`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// Data address of the peer's TCP transport, the way that every peer has.
    pub tcp: SocketAddr,
    /// Name that the peer must call itself. Another host with the address (and the secret) is then
    /// not taken for it. `None` accepts any peer.
    pub name: Option<String>,
    /// The other ways, as far as they are known. A transport of a rail finds exactly one rail here:
    /// the one that `peer` has chosen for it.
    pub ways: TransportWays,
}

impl PeerAddress {
    /// Makes the address of the peer with this name.
    pub fn with_name(tcp: SocketAddr, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::from(tcp) }
    }

    /// Returns what a connection over one of the other ways needs besides its place.
    pub fn way_terms(&self) -> WayTerms {
        WayTerms { name: self.name.clone(), ticket: self.ways.ticket.clone() }
    }
}

/// The name that the peer must have, and the ticket that lets us in.
#[derive(Debug, Clone, Default)]
pub struct WayTerms {
    /// Name that the peer must call itself; `None` accepts any.
    pub name: Option<String>,
    /// Ticket that the peer has given over TLS.
    pub ticket: Option<WayTicket>,
}

impl WayTerms {
    /// Makes the terms of a peer that must call itself `name`, and wants no ticket.
    pub fn with_name(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ticket: None }
    }
}

impl From<SocketAddr> for PeerAddress {
    /// Makes the address of whichever peer answers there.
    fn from(tcp: SocketAddr) -> Self {
        Self { tcp, name: None, ways: TransportWays::default() }
    }
}

/// An event of a call, as its requester sees it.
#[derive(Debug)]
pub enum CallEvent {
    /// A part of the reply. `data` was pushed since the previous part, in order, and is vouched
    /// for.
    Part(ReplyPart),
    /// The peer wants `bytes` pushed to it; answer with [`OutgoingCall::push_data`].
    Wanted { message: Bytes, bytes: u64 },
}

/// A vouched-for part of a reply.
#[derive(Debug)]
pub struct ReplyPart {
    /// The serving side's message; opaque here.
    pub message: Bytes,
    /// Offset in the landing of the first byte of `data`.
    pub offset: u64,
    /// The pushed bytes, in order, cut where landing segments (or the owner's pages) are cut. They
    /// pin their memory.
    pub data: Vec<Bytes>,
    /// Nothing follows: the call is settled.
    pub last: bool,
}

impl ReplyPart {
    /// Returns the length of all of `data`.
    pub fn data_bytes(&self) -> u64 {
        self.data.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// The requesting side of one call, as a transport implements it. Dropping it cancels the call.
pub trait CallDriver: Send {
    /// Polls the next event. Do not poll again after a last part or an error.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallEvent, TransportError>>;
    /// Pushes `data` into the landing that the peer offered in the last [`CallEvent::Wanted`].
    fn poll_push(
        &mut self,
        cx: &mut Context<'_>,
        data: &[Bytes],
    ) -> Poll<Result<(), TransportError>>;
    /// Returns the call's connection, where the driver learns it only in the course of the call.
    fn call_connection(&self) -> Option<&CallConnection> {
        None
    }
}

/// The connection of a call, and how much had been heard over it when the call began.
pub struct CallConnection {
    pub(crate) connection: Arc<dyn PeerConnection>,
    heard: u64,
}

impl CallConnection {
    /// Returns true if nothing at all has come over the connection since the call began.
    pub(crate) fn is_silent(&self) -> bool {
        self.connection.frames_received() == self.heard
    }
}

/// One request in flight. Dropping it cancels it.
pub struct OutgoingCall {
    driver: Box<dyn CallDriver>,
    connection: Option<CallConnection>,
}

impl OutgoingCall {
    /// Makes a call that `driver` carries out. It knows no connection, so `transport_kind` returns
    /// `None` unless the driver knows one.
    pub fn new(driver: Box<dyn CallDriver>) -> Self {
        Self { driver, connection: None }
    }

    /// Sets the connection of the call.
    pub(crate) fn with_connection(mut self, connection: Arc<dyn PeerConnection>) -> Self {
        let heard = connection.frames_received();
        self.connection = Some(CallConnection { connection, heard });
        self
    }

    pub(crate) fn call_connection(&self) -> Option<&CallConnection> {
        self.connection.as_ref().or_else(|| self.driver.call_connection())
    }

    /// Returns the call's transport. Returns `None` while that is not decided, and for calls that
    /// were not made through a `TransportPeer`.
    pub fn transport_kind(&self) -> Option<TransportKind> {
        self.call_connection().map(|call| call.connection.transport_kind())
    }

    /// Waits for the next event of this call.
    pub async fn next(&mut self) -> Result<CallEvent, TransportError> {
        poll_fn(|cx| self.driver.poll_event(cx)).await
    }

    /// Polls like [`OutgoingCall::next`], for hand-written futures.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallEvent, TransportError>> {
        self.driver.poll_event(cx)
    }

    /// Polls like [`OutgoingCall::push_data`], for hand-written futures. Poll again with the same
    /// data until it is ready.
    pub fn poll_push(
        &mut self,
        cx: &mut Context<'_>,
        data: &[Bytes],
    ) -> Poll<Result<(), TransportError>> {
        self.driver.poll_push(cx, data)
    }

    /// Answers a [`CallEvent::Wanted`]: pushes `data` to the peer. The sum of lengths must be what
    /// was wanted.
    pub async fn push_data(&mut self, data: &[Bytes]) -> Result<(), TransportError> {
        poll_fn(|cx| self.driver.poll_push(cx, data)).await
    }
}

/// What a connection has to do still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallLoad {
    /// Unsettled calls.
    pub calls: usize,
    /// Bytes of their landings.
    pub landing_bytes: u64,
    /// The next call has to wait for another one's end.
    pub is_full: bool,
}

impl CallLoad {
    /// Bytes that take as long as a small call, about.
    const BYTES_OF_A_CALL: u64 = 128 << 10;

    /// Returns the load in calls. Bytes count as well.
    pub fn weigh_calls(self) -> usize {
        self.calls + (self.landing_bytes / Self::BYTES_OF_A_CALL) as usize
    }
}

/// What a connection does with the landing of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandingUse {
    /// Nothing: the owner's memory is handed over.
    Unused,
    /// Parts that are not handed over are received there.
    Partly,
    /// All data of a reply is received there. Only such a landing may lie in memory of another
    /// process: who copies parts there would wait for other parts that only it could take.
    Wholly,
}

impl LandingUse {
    /// Returns whether a call needs one.
    pub fn wants_landing(self) -> bool {
        self != Self::Unused
    }
}

/// An established, authenticated connection (or bundle of them) to one peer.
pub trait PeerConnection: Send + Sync {
    fn transport_kind(&self) -> TransportKind;
    /// Returns what becomes of the landings of calls.
    fn landing_use(&self) -> LandingUse;
    /// Starts a call. `message` is at most the configured frame bound. The call itself waits for a
    /// credit; this function never does.
    fn start_call(&self, message: Bytes, landing: Option<Landing>) -> OutgoingCall;
    /// Returns the reason, once the connection can't take calls any more.
    fn broken_reason(&self) -> Option<TransportError>;
    /// Returns how many frames have come from the peer so far. If nothing comes, the path between
    /// may be at fault. The value never changes where that can't happen.
    fn frames_received(&self) -> u64 {
        0
    }
    /// Returns what is unsettled, to choose the least loaded of several connections.
    fn call_load(&self) -> CallLoad {
        CallLoad::default()
    }
    /// Returns the other ways that the peer announces. Only tcp knows them.
    fn peer_ways(&self) -> &TransportWays {
        TransportWays::NONE
    }
}

/// A transport that connects to peers.
#[async_trait]
pub trait PeerTransport: Send + Sync {
    fn transport_kind(&self) -> TransportKind;
    /// Returns true if connecting can succeed at all now: the device of a rail may be away.
    fn is_up(&self) -> bool {
        true
    }
    /// Returns the rail's name in metrics, for transports that are one rail.
    fn rail_label(&self) -> Option<String> {
        None
    }
    /// Returns the subnet of the rail, for transports that are one rail, while it is up.
    fn rail_subnet(&self) -> Option<RailSubnet> {
        None
    }
    /// Returns false for a rail whose NIC is at another socket than all CPUs of this process.
    fn is_near(&self) -> bool {
        true
    }
    /// Connects and authenticates. Bounded by the transport's own connect deadline.
    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError>;
}

/// A request as the serving side sees it.
#[derive(Debug)]
pub struct IncomingCall {
    pub message: Bytes,
    /// Bytes of the landing that came with the request; `u64::MAX` where memory is handed over
    /// instead.
    pub landing_bytes: u64,
    /// Name of the requesting peer, for logs.
    pub peer: Arc<str>,
    /// Role of the requesting peer, by its certificate. `None`: it has shown none, and the cluster's
    /// secret alone let it in.
    pub role: Option<NodeRole>,
}

impl IncomingCall {
    /// Returns the name that the requesting peer calls itself, without the address that follows it
    /// in [`IncomingCall::peer`]: the same over every connection and every transport.
    pub fn peer_name(&self) -> &str {
        self.peer.rsplit_once(" (").map_or(&*self.peer, |(name, _)| name)
    }
}

/// The serving side of one call, as a transport implements it.
#[async_trait]
pub trait ReplyDriver: Send {
    /// Pushes `data` into the requester's landing at `offset`, then sends `message`, which vouches
    /// for it. A last part settles the call. `data` stays alive inside until the transport no
    /// longer reads from it.
    async fn send_part(
        &mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
        last: bool,
    ) -> Result<(), TransportError>;
    /// Lends `landing` to the requester and waits until it has pushed all of it. Returns the pushed
    /// bytes.
    async fn pull_data(
        &mut self,
        message: Bytes,
        landing: Landing,
    ) -> Result<Vec<Bytes>, TransportError>;
}

/// The serving side of one call. Dropping it before the last part tells the requester that the call
/// failed.
///
/// Nothing can follow the last part:
///
/// ```compile_fail,E0382
/// async fn talks_on(mut reply: verbs3_rdma::transport::ReplySender) {
///     let _ = reply.send_last("end".into(), 0, vec![]).await;
///     let _ = reply.send_part("more".into(), 0, vec![]).await;
/// }
/// ```
pub struct ReplySender {
    driver: Box<dyn ReplyDriver>,
}

impl ReplySender {
    /// Makes a reply that `driver` sends. A driver that is dropped before a last part must settle
    /// the call as failed.
    pub fn new(driver: Box<dyn ReplyDriver>) -> Self {
        Self { driver }
    }

    /// Sends a part after which more follows.
    pub async fn send_part(
        &mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
    ) -> Result<(), TransportError> {
        self.driver.send_part(message, offset, data, false).await
    }

    /// Sends the last part, which settles the call.
    pub async fn send_last(
        mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
    ) -> Result<(), TransportError> {
        self.driver.send_part(message, offset, data, true).await
    }

    /// Takes bytes from the requester into `landing` (populate on write).
    pub async fn pull_data(
        &mut self,
        message: Bytes,
        landing: Landing,
    ) -> Result<Vec<Bytes>, TransportError> {
        self.driver.pull_data(message, landing).await
    }
}

/// A service that answers calls. A cancelled call drops the future at its next await. Anything that
/// must outlive one requester (a fill that others wait for) belongs in a task of its own.
#[async_trait]
pub trait CallService: Send + Sync + 'static {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender);
}

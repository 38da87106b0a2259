//! Owns the current state of the ways to one peer: the connections of each, whether it rests, and
//! which connection is the best.
//!
//! Decides under the peer's lock. `connect_attempts` makes the attempts.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::backoff::ReconnectBackoff;
use super::connect_attempts::ConnectAttempt;
use super::route_monitor::{RouteMonitor, fell_back, reason_of};
use super::transport_ways::TransportWays;
use super::way_rest::WayRestTracker;
use crate::metrics::{GaugeGuard, transport_metrics};
use crate::transport::{PeerAddress, PeerConnection, PeerTransport, TransportError, TransportKind};

pub(super) struct PeerConnectionState {
    /// Tcp connections. Every peer has tcp; it takes calls that nothing better takes.
    pub(super) tcp: Vec<PooledConnection>,
    /// Ways better than tcp, best first: shared memory, then the rails of this host in their order.
    pub(super) lanes: Vec<TransportLane>,
    /// The peer's latest ways. Its socket is among them only where this process sees it.
    pub(super) ways: TransportWays,
    /// The attempt for the first connection, or for one more of tcp.
    pub(super) attempt: Option<ConnectAttempt>,
    pub(super) backoff: ReconnectBackoff,
    pub(super) last_error: Option<TransportError>,
    /// Count of connections that broke and have not been replaced.
    pub(super) lost: usize,
    pub(super) kept_up: bool,
    /// Time when the peer last told its ways.
    pub(super) learned: Instant,
    /// True while the peer is asked again.
    pub(super) learning: bool,
    pub(super) route: RouteMonitor,
    /// Turn among rails with equally many calls.
    turn: usize,
}

/// Trouble of a way over which nothing comes.
const SILENT: &str = "silent";

/// One way that is better than tcp.
pub(super) struct TransportLane {
    pub(super) kind: TransportKind,
    pub(super) transport: Arc<dyn PeerTransport>,
    /// Index of this host's rail.
    rail: usize,
    pub(super) held: Vec<PooledConnection>,
    pub(super) attempt: Option<ConnectAttempt>,
    pub(super) rest: WayRestTracker,
    /// Last trouble of the way; `None` once it works.
    pub(super) trouble: Option<&'static str>,
    resting: Option<GaugeGuard>,
    /// True if a connection broke and none was made in its place.
    lost: bool,
}

pub(super) struct PooledConnection {
    pub(super) connection: Arc<dyn PeerConnection>,
    pub(super) since: Instant,
    pub(super) used: Instant,
    /// The connection's place under the cap on verbs connections.
    pub(super) _place: Option<OwnedSemaphorePermit>,
}

/// The connection for a call.
pub(super) struct ConnectionPick {
    pub(super) connection: Arc<dyn PeerConnection>,
    pub(super) kind: TransportKind,
    pub(super) in_flight: usize,
}

impl TransportLane {
    pub(super) fn new(
        transport: Arc<dyn PeerTransport>,
        rail: usize,
        rest: WayRestTracker,
    ) -> Self {
        Self {
            kind: transport.transport_kind(),
            transport,
            rail,
            held: Vec::new(),
            attempt: None,
            rest,
            trouble: None,
            resting: None,
            lost: false,
        }
    }

    /// Returns the address to connect to, where the peer has this way.
    pub(super) fn peer_address(
        &self,
        peer: &PeerAddress,
        ways: &TransportWays,
    ) -> Option<PeerAddress> {
        let ways = match self.kind {
            TransportKind::Shm => TransportWays { shm: Some(ways.shm.clone()?), rails: Vec::new() },
            TransportKind::Verbs => {
                let rail = self.counterpart_rail(ways)??;
                TransportWays { shm: None, rails: vec![Some(rail)] }
            }
            TransportKind::Tcp => return None,
        };
        Some(PeerAddress { ways, ..peer.clone() })
    }

    /// Returns the peer's rail that this one connects to; `Some(None)` while it is down there.
    fn counterpart_rail(&self, ways: &TransportWays) -> Option<Option<SocketAddr>> {
        ways.rails.get(self.rail % ways.rails.len().max(1)).copied()
    }

    /// Returns true if the peer has this way, but says that it is down.
    pub(super) fn is_down_there(&self, ways: &TransportWays) -> bool {
        self.kind == TransportKind::Verbs && self.counterpart_rail(ways) == Some(None)
    }

    /// Returns true if both hosts have this way, whether or not it works now.
    pub(super) fn is_usable(&self, ways: &TransportWays) -> bool {
        match self.kind {
            TransportKind::Shm => ways.shm.is_some(),
            TransportKind::Verbs => !ways.rails.is_empty(),
            TransportKind::Tcp => false,
        }
    }

    /// Records a successful attempt.
    pub(super) fn add_connection(&mut self, peer: &str, now: Instant, held: PooledConnection) {
        let again = std::mem::take(&mut self.lost);
        self.count_connect(if again { "again" } else { "made" });
        if self.rest.record_success(now) {
            tracing::info!(
                peer, transport = %self.kind, rail = self.rail,
                "a way that rested works again"
            );
            self.resting = None;
        }
        self.trouble = None;
        self.held.push(held);
    }

    /// Records a failed attempt.
    pub(super) fn record_failure(&mut self, peer: &str, now: Instant, error: &TransportError) {
        self.count_connect("failed");
        self.trouble = Some(reason_of(error));
        let rest = self.rest.record_failure(now, rand::random());
        self.begin_rest(peer, rest, error);
    }

    fn count_connect(&self, outcome: &str) {
        if let Some(rail) = self.transport.rail_label() {
            transport_metrics().rail_connects.with_label_values(&[rail.as_str(), outcome]).inc();
        }
    }

    fn begin_rest(
        &mut self,
        peer: &str,
        rest: Option<std::time::Duration>,
        error: &TransportError,
    ) {
        let Some(rest) = rest else { return };
        // Calls in flight keep their connection.
        self.held.clear();
        if self.resting.is_none() {
            let gauge = transport_metrics().ways_resting.with_label_values(&[self.kind.as_str()]);
            self.resting = Some(GaugeGuard::add_to(&gauge, 1));
            tracing::warn!(
                peer, transport = %self.kind, rail = self.rail, rest_s = rest.as_secs(), %error,
                "a way to a peer failed too often and rests; its traffic goes another way"
            );
        }
    }

    /// Drops a connection over which nothing comes, if it belongs to this way. Calls in flight on
    /// it keep it open.
    fn drop_silent(
        &mut self,
        peer: &str,
        connection: &Arc<dyn PeerConnection>,
        now: Instant,
    ) -> bool {
        let same = |held: &PooledConnection| {
            Arc::as_ptr(&held.connection).cast::<()>() == Arc::as_ptr(connection).cast::<()>()
        };
        let Some(at) = self.held.iter().position(same) else { return false };
        let since = self.held.swap_remove(at).since;
        tracing::warn!(
            peer, transport = %self.kind, rail = self.rail,
            "nothing comes over a way to a peer; calls go another way"
        );
        self.was_lost(SILENT);
        let rest = self.rest.record_silence(since, now, rand::random());
        self.begin_rest(
            peer,
            rest,
            &TransportError::Lost { peer: peer.to_owned(), reason: "nothing came over it".into() },
        );
        true
    }

    fn was_lost(&mut self, reason: &'static str) {
        self.trouble = Some(reason);
        self.lost = true;
        if let Some(rail) = self.transport.rail_label() {
            transport_metrics().rail_lost.with_label_values(&[rail.as_str(), reason]).inc();
        }
    }

    /// Drops connections that take no more calls. Returns how many there were.
    fn drop_broken(&mut self, peer: &str, now: Instant) -> usize {
        let before = self.held.len();
        for (since, error) in take_broken(&mut self.held) {
            self.was_lost(reason_of(&error));
            let rest = self.rest.record_loss(since, now, rand::random());
            self.begin_rest(peer, rest, &error);
        }
        before - self.held.len()
    }
}

fn take_broken(held: &mut Vec<PooledConnection>) -> Vec<(Instant, TransportError)> {
    let mut broken = Vec::new();
    held.retain(|held| match held.connection.broken_reason() {
        Some(error) => {
            broken.push((held.since, error));
            false
        }
        None => true,
    });
    broken
}

impl PeerConnectionState {
    pub(super) fn new(
        lanes: Vec<TransportLane>,
        ways: TransportWays,
        backoff: ReconnectBackoff,
    ) -> Self {
        let mut state = Self {
            tcp: Vec::new(),
            lanes,
            ways: TransportWays::default(),
            attempt: None,
            backoff,
            last_error: None,
            lost: 0,
            kept_up: false,
            learned: Instant::now(),
            learning: false,
            route: RouteMonitor::default(),
            turn: 0,
        };
        state.learn_ways(ways);
        state
    }

    /// Takes over the ways that the peer tells.
    pub(super) fn learn_ways(&mut self, mut ways: TransportWays) {
        ways.shm = ways.shm.filter(super::ShmWay::is_here);
        let best = self.lanes.iter().find(|lane| lane.is_usable(&ways)).map(|lane| lane.kind);
        self.route.set_best_kind(best.unwrap_or(TransportKind::Tcp));
        self.ways = ways;
        self.learned = Instant::now();
    }

    /// Returns true if some rail of this host has a counterpart that was down in the peer's latest
    /// ways.
    pub(super) fn may_learn(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_down_there(&self.ways))
    }

    /// Returns the least loaded connection of the best way that has one.
    pub(super) fn pick_connection(&mut self, now: Instant) -> Option<ConnectionPick> {
        let kind = self.lanes.iter().find(|lane| !lane.held.is_empty()).map(|lane| lane.kind);
        let Some(kind) = kind else {
            return take_least(self.tcp.iter_mut().enumerate(), now);
        };
        // Takes rails of equal load in turn. Otherwise calls that come one by one would all use the
        // first.
        let count = self.lanes.iter().filter(|lane| lane.kind == kind).count();
        let turn = self.turn % count;
        self.turn = turn + 1;
        let lanes = self.lanes.iter_mut().filter(|lane| lane.kind == kind);
        let held = lanes.flat_map(|lane| {
            let order = (lane.rail + count - turn) % count;
            lane.held.iter_mut().map(move |held| (order, held))
        });
        take_least(held, now)
    }

    /// Drops connections that take no more calls. Calls in flight on them keep them open.
    pub(super) fn drop_broken(&mut self, peer: &str, now: Instant) {
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            let lost = lane.drop_broken(peer, now);
            self.lost += lost;
            if lost > 0 {
                self.record_rail_fallback(at);
            }
        }
        for (since, error) in take_broken(&mut self.tcp) {
            self.backoff.record_loss(since, now, rand::random());
            self.last_error = Some(error);
            self.lost += 1;
        }
    }

    /// Drops a connection over which nothing comes.
    pub(super) fn drop_silent(
        &mut self,
        peer: &str,
        connection: &Arc<dyn PeerConnection>,
        now: Instant,
    ) {
        for at in 0..self.lanes.len() {
            if self.lanes[at].drop_silent(peer, connection, now) {
                self.lost += 1;
                self.record_rail_fallback(at);
            }
        }
    }

    /// Records that another rail takes over from a way that lost connections. `route_monitor`
    /// reports a change of the transport.
    fn record_rail_fallback(&self, at: usize) {
        let lane = &self.lanes[at];
        let other =
            self.lanes.iter().any(|other| other.kind == lane.kind && !other.held.is_empty());
        if lane.held.is_empty() && other {
            fell_back(lane.kind, lane.kind, lane.trouble.unwrap_or("lost"));
        }
    }

    /// Records the transport of a call.
    pub(super) fn record_route(&mut self, peer: &str, kind: TransportKind) {
        if self.route.is_unchanged(kind) {
            return;
        }
        let lanes = &self.lanes;
        self.route.record_change(peer, kind, |from| {
            let mut of = lanes.iter().filter(|lane| lane.kind == from);
            let trouble = of.clone().find_map(|lane| lane.trouble);
            let slow = of.any(|lane| lane.attempt.is_some());
            trouble.unwrap_or(if slow { "slow" } else { "unreachable" })
        });
    }

    pub(super) fn all_connections(&self) -> impl Iterator<Item = &PooledConnection> {
        self.lanes.iter().flat_map(|lane| &lane.held).chain(&self.tcp)
    }

    pub(super) fn connections_of(&self, kind: TransportKind) -> usize {
        self.lanes.iter().filter(|lane| lane.kind == kind).map(|lane| lane.held.len()).sum()
    }

    /// Counts a connection that was made in place of a broken one, if one was.
    pub(super) fn count_replacement(&mut self) {
        if self.lost > 0 {
            self.lost -= 1;
            transport_metrics().reconnects.inc();
        }
    }

    pub(super) fn may_try(&self, now: Instant) -> bool {
        self.attempt.is_none() && self.backoff.may_try(now)
    }

    /// Keeps only the connections that `keep` accepts.
    pub(super) fn retain_connections(
        &mut self,
        mut keep: impl FnMut(&mut PooledConnection) -> bool,
    ) {
        self.tcp.retain_mut(&mut keep);
        for lane in &mut self.lanes {
            lane.held.retain_mut(&mut keep);
        }
    }
}

fn take_least<'a>(
    held: impl Iterator<Item = (usize, &'a mut PooledConnection)>,
    now: Instant,
) -> Option<ConnectionPick> {
    let (in_flight, _, held) = held
        .map(|(order, held)| (held.connection.in_flight(), order, held))
        .min_by_key(|(in_flight, order, _)| (*in_flight, *order))?;
    held.used = now;
    Some(ConnectionPick {
        connection: held.connection.clone(),
        kind: held.connection.transport_kind(),
        in_flight,
    })
}

//! Owns the choice of a way to one peer: of its connections over tcp and over each better way, it
//! picks the one for a call.
//!
//! Decides under the peer's lock. `peer_tasks` makes the connections.

use std::sync::Arc;

use tokio::time::Instant;

use super::backoff::ReconnectBackoff;
use super::connect_attempt::ConnectAttempt;
use super::route_monitor::{RouteMonitor, fell_back};
use super::transport_lane::{PooledConnection, TransportLane, take_broken};
use super::transport_ways::TransportWays;
use crate::metrics::{PeerTrouble, transport_metrics};
use crate::transport::{CallLoad, PeerConnection, TransportError, TransportKind};

/// The ways to one peer, and the connections over them.
pub(super) struct WayChoice {
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

/// The connection for a call.
pub(super) struct ConnectionPick {
    pub(super) connection: Arc<dyn PeerConnection>,
    pub(super) kind: TransportKind,
    pub(super) load: CallLoad,
    /// Of the connection that has the fewest.
    pub(super) calls_min: usize,
}

impl WayChoice {
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
    /// ways, or a way was refused for want of a ticket.
    pub(super) fn may_learn(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_down_there(&self.ways) || lane.needs_ticket)
    }

    /// Returns the least loaded connection of the best way that has one.
    pub(super) fn pick_connection(&mut self, now: Instant) -> Option<ConnectionPick> {
        let kind = self.lanes.iter().find(|lane| !lane.held.is_empty()).map(|lane| lane.kind);
        let Some(kind) = kind else {
            return take_least(self.tcp.iter_mut().enumerate(), now);
        };
        // Takes rails of equal load in turn, near ones first. Otherwise calls that come one by one
        // would all use the first.
        let count_of = |is_far| {
            let lanes = self.lanes.iter().filter(|lane| lane.kind == kind);
            lanes.filter(|lane| lane.is_far == is_far).count()
        };
        let counts = [count_of(false), count_of(true)];
        let (turn, mut places) = (self.turn, [0; 2]);
        self.turn = turn.wrapping_add(1);
        let lanes = self.lanes.iter_mut().filter(|lane| lane.kind == kind);
        let held = lanes.flat_map(|lane| {
            let (group, before) = if lane.is_far { (1, counts[0]) } else { (0, 0) };
            let (place, count) = (places[group], counts[group]);
            places[group] += 1;
            let order = before + (place + count - turn % count) % count;
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
            fell_back(lane.kind, lane.kind, lane.trouble.unwrap_or(PeerTrouble::Lost));
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
            trouble.unwrap_or(if slow { PeerTrouble::Slow } else { PeerTrouble::Unreachable })
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
    let mut calls_min = usize::MAX;
    let loaded = held.map(|(order, held)| {
        let load = held.connection.call_load();
        calls_min = calls_min.min(load.calls);
        (load, order, held)
    });
    let (load, _, held) =
        loaded.min_by_key(|(load, order, _)| (load.is_full, load.weigh_calls(), *order))?;
    held.used = now;
    Some(ConnectionPick {
        connection: held.connection.clone(),
        kind: held.connection.transport_kind(),
        load,
        calls_min,
    })
}

//! Owns a lane: what this host keeps of one way to a peer that is better than tcp. That is its
//! connections, its last trouble, and whether it rests.
//!
//! Decides what an outcome of the way means for it, under the peer's lock. Connects nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::connect_attempt::ConnectAttempt;
use super::rail_pairing::pair_rail;
use super::route_monitor::reason_of;
use super::transport_ways::TransportWays;
use super::way_rest::WayRestTracker;
use crate::metrics::{
    GaugeGuard, PeerTrouble, RailConnectOutcome, rail_metrics, transport_metrics,
};
use crate::transport::{
    LossCause, PeerAddress, PeerConnection, PeerTransport, TransportError, TransportKind,
};

/// One way that is better than tcp, as this host uses it.
pub(super) struct TransportLane {
    pub(super) kind: TransportKind,
    pub(super) transport: Arc<dyn PeerTransport>,
    /// Index of this host's rail.
    pub(super) rail: usize,
    pub(super) held: Vec<PooledConnection>,
    pub(super) attempt: Option<ConnectAttempt>,
    pub(super) rest: WayRestTracker,
    /// Last trouble of the way; `None` once it works.
    pub(super) trouble: Option<PeerTrouble>,
    /// Whether the last attempt failed for want of a ticket that holds.
    pub(super) needs_ticket: bool,
    /// The rail is at another socket than this process.
    pub(super) is_far: bool,
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
            needs_ticket: false,
            is_far: false,
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
        let ticket = ways.ticket.clone();
        let ways = match self.kind {
            TransportKind::Shm => {
                TransportWays { shm: Some(ways.shm.clone()?), rails: Vec::new(), ticket }
            }
            TransportKind::Verbs => {
                let rail = self.counterpart_rail(ways)??;
                TransportWays { shm: None, rails: vec![Some(rail)], ticket }
            }
            TransportKind::Tcp => return None,
        };
        Some(PeerAddress { ways, ..peer.clone() })
    }

    /// Returns the peer's rail that this one connects to; `Some(None)` while it is down there.
    fn counterpart_rail(&self, ways: &TransportWays) -> Option<Option<SocketAddr>> {
        pair_rail(self.rail, self.transport.rail_subnet(), &ways.rails)
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
        let outcome = if again { RailConnectOutcome::Again } else { RailConnectOutcome::Made };
        self.count_connect(outcome);
        if self.rest.record_success(now) {
            tracing::info!(
                peer, transport = %self.kind, rail = self.rail,
                "a way that rested works again"
            );
            self.resting = None;
        }
        (self.trouble, self.needs_ticket) = (None, false);
        self.is_far = !self.transport.is_near();
        self.held.push(held);
    }

    /// Records a failed attempt.
    pub(super) fn record_failure(&mut self, peer: &str, now: Instant, error: &TransportError) {
        self.count_connect(RailConnectOutcome::Failed);
        self.trouble = Some(reason_of(error));
        self.needs_ticket = error.is_about_ticket();
        if error.is_about_room() {
            if self.rest.record_full(now, rand::random()) {
                tracing::warn!(
                    peer, transport = %self.kind, rail = self.rail, %error,
                    "a peer has no room for a connection by this way, try after try"
                );
            }
            return;
        }
        let rest = self.rest.record_failure(now, rand::random());
        self.begin_rest(peer, rest, error);
    }

    fn count_connect(&self, outcome: RailConnectOutcome) {
        if let Some(rail) = self.transport.rail_label() {
            rail_metrics(&rail).connects[outcome].inc();
        }
    }

    fn begin_rest(&mut self, peer: &str, rest: Option<Duration>, error: &TransportError) {
        let Some(rest) = rest else { return };
        // Calls in flight keep their connection.
        self.held.clear();
        if self.resting.is_none() {
            let gauge = &transport_metrics().ways_resting[self.kind];
            self.resting = Some(GaugeGuard::add_to(gauge, 1));
            tracing::warn!(
                peer, transport = %self.kind, rail = self.rail, rest_s = rest.as_secs(), %error,
                "a way to a peer failed too often and rests; its traffic goes another way"
            );
        }
    }

    /// Drops a connection over which nothing comes, if it belongs to this way. Calls in flight on
    /// it keep it open.
    pub(super) fn drop_silent(
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
        self.was_lost(PeerTrouble::Silent);
        let rest = self.rest.record_silence(since, now, rand::random());
        self.begin_rest(
            peer,
            rest,
            &TransportError::Lost { peer: peer.to_owned(), cause: LossCause::Silent },
        );
        true
    }

    fn was_lost(&mut self, reason: PeerTrouble) {
        self.trouble = Some(reason);
        self.lost = true;
        if let Some(rail) = self.transport.rail_label() {
            rail_metrics(&rail).lost[reason].inc();
        }
    }

    /// Drops connections that take no more calls. Returns how many there were.
    pub(super) fn drop_broken(&mut self, peer: &str, now: Instant) -> usize {
        let before = self.held.len();
        for (since, error) in take_broken(&mut self.held) {
            self.was_lost(reason_of(&error));
            let rest = self.rest.record_loss(since, now, rand::random());
            self.begin_rest(peer, rest, &error);
        }
        before - self.held.len()
    }
}

/// Takes out the connections that take no more calls. Returns since when each was open, and why it
/// broke.
pub(super) fn take_broken(held: &mut Vec<PooledConnection>) -> Vec<(Instant, TransportError)> {
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

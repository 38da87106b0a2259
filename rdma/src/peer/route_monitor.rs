//! Owns the comparison of the transport of calls to one peer with the best one. No change for the
//! worse is silent, and none is reported twice.
//!
//! Owns the counter of fallbacks and the log lines. Chooses nothing.

use verbs3_metrics::MetricLabel;

use crate::metrics::{PeerTrouble, transport_metrics};
use crate::transport::{TransportError, TransportKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RouteObservation {
    kind: TransportKind,
    best: TransportKind,
}

/// A memory of the last call's transport.
#[derive(Debug)]
pub(super) struct RouteMonitor {
    /// The best way that both hosts have.
    best: TransportKind,
    last: Option<RouteObservation>,
}

impl Default for RouteMonitor {
    fn default() -> Self {
        Self { best: TransportKind::Tcp, last: None }
    }
}

/// Returns the rank of a transport. Smaller is better.
fn transport_rank(kind: TransportKind) -> u8 {
    match kind {
        TransportKind::Shm => 0,
        TransportKind::Verbs => 1,
        TransportKind::Tcp => 2,
    }
}

impl RouteMonitor {
    pub(super) fn set_best_kind(&mut self, best: TransportKind) {
        self.best = best;
    }

    /// Returns the transport of the last call.
    pub(super) fn last_kind(&self) -> Option<TransportKind> {
        self.last.map(|seen| seen.kind)
    }

    /// Returns true if a call over `kind` is nothing new.
    pub(super) fn is_unchanged(&self, kind: TransportKind) -> bool {
        self.last == Some(RouteObservation { kind, best: self.best })
    }

    /// Records that calls go over `kind` from now on. `why` returns the trouble of the way that
    /// they don't take.
    pub(super) fn record_change(
        &mut self,
        peer: &str,
        kind: TransportKind,
        why: impl FnOnce(TransportKind) -> PeerTrouble,
    ) -> Option<PeerTrouble> {
        let seen = RouteObservation { kind, best: self.best };
        let before = self.last.replace(seen);
        if before.is_some_and(|before| transport_rank(before.kind) > transport_rank(kind)) {
            tracing::info!(peer, transport = %kind, "calls to a peer go a better way again");
            return None;
        }
        // The previous way, where it was a better one.
        let from = before
            .map(|before| before.kind)
            .filter(|from| transport_rank(*from) < transport_rank(kind))
            .unwrap_or(self.best);
        if transport_rank(from) >= transport_rank(kind) {
            return None;
        }
        let reason = why(from);
        tracing::warn!(
            peer, %from, to = %kind, reason = reason.label_text(),
            "calls to a peer fall back to a slower transport"
        );
        fell_back(from, kind, reason);
        Some(reason)
    }
}

/// Counts a change for the worse, or from one rail to another.
pub(super) fn fell_back(from: TransportKind, to: TransportKind, reason: PeerTrouble) {
    transport_metrics().fallbacks[(from, to, reason)].inc();
}

/// Returns what the counters call an error.
pub(super) fn reason_of(error: &TransportError) -> PeerTrouble {
    match error {
        _ if error.is_about_room() => PeerTrouble::Full,
        TransportError::Unreachable { .. } => PeerTrouble::Unreachable,
        TransportError::Handshake { .. } => PeerTrouble::Handshake,
        TransportError::Lost { .. } => PeerTrouble::Lost,
        TransportError::Protocol { .. } => PeerTrouble::Protocol,
        TransportError::Failed { .. }
        | TransportError::Bound { .. }
        | TransportError::Cancelled => PeerTrouble::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::TransportKind::{Shm, Tcp, Verbs};
    use super::*;

    /// Returns which way is reported to be left when calls go over `kind`.
    fn told(route: &mut RouteMonitor, kind: TransportKind) -> Option<TransportKind> {
        if route.is_unchanged(kind) {
            return None;
        }
        let mut left = None;
        route.record_change("peer", kind, |from| {
            left = Some(from);
            PeerTrouble::Lost
        })?;
        left
    }

    #[test]
    fn a_change_for_the_worse_is_told_once_and_names_the_way_left() {
        let mut route = RouteMonitor::default();
        route.set_best_kind(Shm);
        assert_eq!(told(&mut route, Shm), None);
        assert_eq!(told(&mut route, Verbs), Some(Shm));
        assert_eq!(told(&mut route, Verbs), None);
        assert_eq!(told(&mut route, Tcp), Some(Verbs));
        assert_eq!(
            (told(&mut route, Tcp), told(&mut route, Verbs), told(&mut route, Shm)),
            (None, None, None)
        );
        assert_eq!(told(&mut route, Tcp), Some(Shm));
    }

    #[test]
    fn the_first_call_over_less_than_both_sides_have_is_told() {
        let mut route = RouteMonitor::default();
        route.set_best_kind(Verbs);
        assert_eq!(told(&mut route, Tcp), Some(Verbs));
        assert_eq!(told(&mut route, Tcp), None);
    }

    #[test]
    fn tcp_between_hosts_that_have_nothing_else_is_no_fallback() {
        let mut route = RouteMonitor::default();
        assert_eq!(told(&mut route, Tcp), None);
        // The peer was restarted with rails, and they don't work.
        route.set_best_kind(Verbs);
        assert_eq!(told(&mut route, Tcp), Some(Verbs));
        // It was restarted without.
        route.set_best_kind(Tcp);
        assert_eq!(told(&mut route, Tcp), None);
    }
}

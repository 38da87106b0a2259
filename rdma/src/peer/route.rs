//! What calls to one peer go over, against what they could: no change for the worse is silent, and
//! none is told twice.
//!
//! Owns the counter of fallbacks and the log lines. Chooses nothing.

use crate::metrics::metrics;
use crate::transport::{TransportError, TransportKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    kind: TransportKind,
    best: TransportKind,
}

/// Remembers what the last call went over.
#[derive(Debug)]
pub(super) struct Route {
    /// The best way that both hosts have.
    best: TransportKind,
    last: Option<Seen>,
}

impl Default for Route {
    fn default() -> Self {
        Self { best: TransportKind::Tcp, last: None }
    }
}

/// Smaller is better.
fn rank(kind: TransportKind) -> u8 {
    match kind {
        TransportKind::Shm => 0,
        TransportKind::Verbs => 1,
        TransportKind::Tcp => 2,
    }
}

impl Route {
    pub(super) fn expect(&mut self, best: TransportKind) {
        self.best = best;
    }

    /// What calls went over last.
    pub(super) fn kind(&self) -> Option<TransportKind> {
        self.last.map(|seen| seen.kind)
    }

    /// Whether a call over `kind` is nothing new.
    pub(super) fn is(&self, kind: TransportKind) -> bool {
        self.last == Some(Seen { kind, best: self.best })
    }

    /// Calls go over `kind` from now on; `why` knows what is wrong with the way that they don't go.
    pub(super) fn change(
        &mut self,
        peer: &str,
        kind: TransportKind,
        why: impl FnOnce(TransportKind) -> &'static str,
    ) -> Option<&'static str> {
        let seen = Seen { kind, best: self.best };
        let before = self.last.replace(seen);
        if before.is_some_and(|before| rank(before.kind) > rank(kind)) {
            tracing::info!(peer, transport = %kind, "calls to a peer go a better way again");
            return None;
        }
        // The way that they went until now, where that was a better one.
        let from = before
            .map(|before| before.kind)
            .filter(|from| rank(*from) < rank(kind))
            .unwrap_or(self.best);
        if rank(from) >= rank(kind) {
            return None;
        }
        let reason = why(from);
        tracing::warn!(
            peer, %from, to = %kind, reason,
            "calls to a peer fall back to a slower transport"
        );
        fell_back(from, kind, reason);
        Some(reason)
    }
}

/// Counts a change for the worse, or from one rail to another.
pub(super) fn fell_back(from: TransportKind, to: TransportKind, reason: &str) {
    metrics().fallbacks.with_label_values(&[from.as_str(), to.as_str(), reason]).inc();
}

/// The value of the counter's label.
pub(super) fn reason_of(error: &TransportError) -> &'static str {
    match error {
        TransportError::Unreachable { .. } => "unreachable",
        TransportError::Handshake { .. } => "handshake",
        TransportError::Lost { .. } => "lost",
        TransportError::Protocol { .. } => "protocol",
        TransportError::Failed { .. }
        | TransportError::Bound { .. }
        | TransportError::Cancelled => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::TransportKind::{Shm, Tcp, Verbs};
    use super::*;

    /// What is told when calls go over `kind`.
    fn told(route: &mut Route, kind: TransportKind) -> Option<&'static str> {
        if route.is(kind) {
            return None;
        }
        route.change("peer", kind, |from| from.as_str())
    }

    #[test]
    fn a_change_for_the_worse_is_told_once_and_names_the_way_that_was_left() {
        let mut route = Route::default();
        route.expect(Shm);
        assert_eq!(told(&mut route, Shm), None);
        assert_eq!(told(&mut route, Verbs), Some("shm"));
        assert_eq!(told(&mut route, Verbs), None);
        assert_eq!(told(&mut route, Tcp), Some("verbs"));
        assert_eq!(
            (told(&mut route, Tcp), told(&mut route, Verbs), told(&mut route, Shm)),
            (None, None, None)
        );
        assert_eq!(told(&mut route, Tcp), Some("shm"));
    }

    #[test]
    fn a_peer_that_is_reached_over_less_than_both_have_is_told_at_the_first_call() {
        let mut route = Route::default();
        route.expect(Verbs);
        assert_eq!(told(&mut route, Tcp), Some("verbs"));
        assert_eq!(told(&mut route, Tcp), None);
    }

    #[test]
    fn tcp_between_hosts_that_have_nothing_else_is_no_fallback() {
        let mut route = Route::default();
        assert_eq!(told(&mut route, Tcp), None);
        // The peer was restarted with rails, and they don't work.
        route.expect(Verbs);
        assert_eq!(told(&mut route, Tcp), Some("verbs"));
        // It was restarted without.
        route.expect(Tcp);
        assert_eq!(told(&mut route, Tcp), None);
    }
}

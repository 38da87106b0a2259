//! Owns the admission of every listening side: caps on connections and handshakes, the tasks, and
//! the two ways to end them (drain and kill).
//!
//! Does not accept connections. A peer that has not yet proved the secret gives way to a newer one
//! after a grace period.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_doors::{RareWarning, RoomLimits, WaitingGuest, WaitingRoom};

use super::handshake::{
    self, HandshakeAgreement, HandshakeChannel, HandshakeError, HandshakeTerms,
};
use crate::metrics::transport_metrics;

/// Grace period before a handshake may be displaced. An honest handshake takes a few round trips.
const GRACE: Duration = Duration::from_secs(1);

/// Bounds of a listening side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GateLimits {
    /// Peers that have proved the secret.
    pub(crate) connections_max: usize,
    /// Peers that have not proved it.
    pub(crate) handshakes_max: usize,
    /// Peers of one address that have not proved it.
    pub(crate) handshakes_per_address_max: usize,
}

/// The admission gate; the accepting task and every session hold it.
pub(crate) struct AdmissionGate {
    connections: Arc<Semaphore>,
    handshakes: Arc<WaitingRoom>,
    /// Stops new connections and new calls.
    pub(crate) drain: CancellationToken,
    /// Stops calls in flight, too.
    pub(crate) kill: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// The server's handle on the gate. Dropping it ends every connection at once.
pub(crate) struct GateCloser {
    drain_deadline: Duration,
    drain: CancellationToken,
    kill: CancellationToken,
    tasks: TaskTracker,
}

impl AdmissionGate {
    pub(crate) fn new(limits: GateLimits) -> Self {
        let GateLimits { connections_max, handshakes_max, handshakes_per_address_max } = limits;
        let limits = RoomLimits {
            places_max: handshakes_max,
            per_address_max: handshakes_per_address_max,
            grace: GRACE,
        };
        Self {
            connections: Arc::new(Semaphore::new(connections_max)),
            handshakes: WaitingRoom::new(limits),
            drain: CancellationToken::new(),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    pub(crate) fn make_closer(&self, drain_deadline: Duration) -> GateCloser {
        let (drain, kill, tasks) = (self.drain.clone(), self.kill.clone(), self.tasks.clone());
        GateCloser { drain_deadline, drain, kill, tasks }
    }

    /// Returns the right to one handshake. When none is left, logs that `address` was refused. `ip`
    /// is `None` where it is not known.
    pub(crate) fn admit_handshake(
        &self,
        address: &str,
        ip: Option<IpAddr>,
    ) -> Option<WaitingGuest> {
        let turn = self.handshakes.admit_guest(ip.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        if turn.is_none() {
            log_refusal(address, &HandshakeError::Full);
        }
        turn
    }

    /// Runs a handshake until it ends, reaches its deadline, is drained, or is displaced by a newer
    /// peer. Logs a failure.
    pub(crate) async fn run_handshake<T>(
        &self,
        deadline: Duration,
        address: &str,
        turn: WaitingGuest,
        shake: impl Future<Output = Result<T, HandshakeError>>,
    ) -> Option<T> {
        let limited = tokio::time::timeout(deadline, shake);
        let result = tokio::select! {
            result = limited => result.unwrap_or(Err(HandshakeError::Deadline)),
            () = self.drain.cancelled() => Err(HandshakeError::Draining),
            () = turn.wait_for_displacement() => Err(HandshakeError::Displaced),
        };
        result.inspect_err(|error| log_refusal(address, error)).ok()
    }

    /// Runs the accepting side of the handshake. Reserves a connection for a peer that proved the
    /// secret.
    pub(crate) async fn accept_peer(
        &self,
        line: &mut impl HandshakeChannel,
        terms: &HandshakeTerms<'_>,
    ) -> Result<(HandshakeAgreement, OwnedSemaphorePermit), HandshakeError> {
        let mut place = None;
        let agreed = handshake::accept_handshake(line, terms, || {
            place = self.connections.clone().try_acquire_owned().ok();
            place.as_ref().map(|_| ()).ok_or(HandshakeError::Full)
        })
        .await?;
        place.map(|place| (agreed, place)).ok_or(HandshakeError::Full)
    }
}

impl GateCloser {
    /// Lets calls in flight finish until the drain deadline. Waits for every task.
    pub(crate) async fn shutdown(self) {
        self.drain.cancel();
        self.tasks.close();
        let drained = tokio::time::timeout(self.drain_deadline, self.tasks.wait()).await;
        if drained.is_err() {
            tracing::warn!(deadline = ?self.drain_deadline, "calls were cut off at shutdown");
            self.kill.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for GateCloser {
    fn drop(&mut self) {
        self.drain.cancel();
        self.kill.cancel();
    }
}

/// Anybody can fail at a handshake as often as they like. The metric counts all of them.
static FAILED_HANDSHAKE: RareWarning = RareWarning::new();

fn log_refusal(address: &str, error: &HandshakeError) {
    transport_metrics().handshakes_failed[error.handshake_failure()].inc();
    match error {
        // A port check: the peer only looked whether anything listens.
        HandshakeError::Lost(_) | HandshakeError::Draining => {
            tracing::debug!(address, %error, "a handshake ended early");
        }
        _ => {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            if FAILED_HANDSHAKE.may_warn(Instant::now()) {
                tracing::warn!(address, %error, cause, "a handshake failed");
            } else {
                tracing::debug!(address, %error, cause, "a handshake failed");
            }
        }
    }
}

//! What every listening side has, whatever it listens on: caps on who is let in, and an end that
//! drains.
//!
//! Owns the places, the tasks and the two ways to end them. Accepts nothing itself. Who has not
//! proved the secret gives way to who comes later, once it has had time to.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_doors::{RoomLimits, WaitingGuest, WaitingRoom};

use super::handshake::{
    self, HandshakeAgreement, HandshakeChannel, HandshakeError, HandshakeTerms,
};
use crate::metrics::transport_metrics;

/// An honest handshake is some round trips. Who came less than this ago gives way to nobody.
const GRACE: Duration = Duration::from_secs(1);

/// Bounds of a listening side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GateLimits {
    /// Of those who have proved the secret.
    pub(crate) connections_max: usize,
    /// Of those who have not.
    pub(crate) handshakes_max: usize,
    /// The same of one address.
    pub(crate) handshakes_per_address_max: usize,
}

/// Held by the accepting task and by every session.
pub(crate) struct AdmissionGate {
    connections: Arc<Semaphore>,
    handshakes: Arc<WaitingRoom>,
    /// No new connection and no new call.
    pub(crate) drain: CancellationToken,
    /// Not even those under way.
    pub(crate) kill: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// Held by the server. Dropping it ends every connection at once.
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

    /// The right to one handshake; where there is none left, `address` is refused and that is told.
    /// `ip`: where it is known.
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

    /// Runs a handshake to its end, its deadline, the drain, or the moment at which it has to give
    /// way. How it failed has been told.
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

    /// The accepting side of the handshake, and a place for the one who proved the secret.
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
    /// Lets calls under way finish, and waits for every task.
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

fn log_refusal(address: &str, error: &HandshakeError) {
    transport_metrics().handshakes_failed.with_label_values(&[error.metric_label()]).inc();
    match error {
        // Somebody looked whether anybody listens.
        HandshakeError::Lost(_) | HandshakeError::Draining => {
            tracing::debug!(address, %error, "a handshake ended early");
        }
        _ => tracing::warn!(address, %error, "a handshake failed"),
    }
}

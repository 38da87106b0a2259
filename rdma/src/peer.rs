//! Owns the connections to one peer, another host. It connects on first use, takes the best working
//! way that both hosts have, spreads calls over its connections, and reconnects with backoff.
//!
//! It does not repeat calls: the caller knows what a second try may do. While the peer rests after
//! a failure, calls fail at once with the reason, so that their callers can go elsewhere.
//!
//! Tcp comes first: it proves the peer's identity, and its welcome names the other ways
//! ([`TransportWays`]). Shared memory is better than verbs, and verbs better than tcp. Rail i of
//! this host connects to rail i of the peer. A way that fails too often rests and is retried by
//! itself. Every fallback in the meantime is reported (`route_monitor`).

mod backoff;
mod connect_attempt;
mod connecting_call;
mod peer_tasks;
mod queue_pairs;
mod rail_pairing;
mod route_monitor;
mod transport_lane;
mod transport_ways;
mod way_choice;
mod way_rest;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use backoff::{BackoffOptions, ReconnectBackoff};
pub use queue_pairs::QueuePairs;
pub use transport_ways::{RAILS_MAX, ShmWay, TransportWays, WaysError, WaysProvider};

use crate::landing::Landing;
use crate::settings::PeerSettings;
use crate::transport::{
    LandingUse, OutgoingCall, PeerAddress, PeerConnection, PeerTransport, TransportError,
    TransportKind, UnreachableCause,
};
use connect_attempt::ConnectAttempt;
use connecting_call::ConnectingCall;
use transport_lane::TransportLane;
use way_choice::{ConnectionPick, WayChoice};
use way_rest::WayRestTracker;

/// Bounds on the connections to one peer, and on how long each way to it rests after failures.
#[derive(Debug, Clone, Default)]
pub struct PeerOptions {
    pub settings: PeerSettings,
    /// Places for verbs connections; one cap for all peers of a process.
    pub queue_pairs: QueuePairs,
}

/// The connections to one other host. Dropping it lets calls in flight finish, and closes the rest.
pub struct TransportPeer {
    inner: Arc<TransportPeerInner>,
    /// A connection within this process, which is never remade.
    local: Option<Arc<dyn PeerConnection>>,
}

struct TransportPeerInner {
    name: String,
    address: Option<PeerAddress>,
    tcp: Vec<Arc<dyn PeerTransport>>,
    options: PeerOptions,
    state: Mutex<WayChoice>,
    /// Notified when a way has failed or come back, because the upkeep may have to wake at another
    /// time.
    changed: Notify,
    tasks: TaskTracker,
    /// Where the peer was made; `None` outside of any runtime.
    runtime: Option<Handle>,
    over: CancellationToken,
}

enum ConnectionChoice {
    Use(ConnectionPick),
    Wait(ConnectAttempt),
    Refuse(TransportError),
}

impl TransportPeer {
    /// Makes a peer that is reached by the best working one of `transports` that it has, too. One
    /// of them is tcp. Each one of kind verbs is one rail of this host, in the order of the rails.
    /// Connects on first use, not here, on the runtime where it was made.
    pub fn new(
        name: impl Into<String>,
        address: PeerAddress,
        transports: Vec<Arc<dyn PeerTransport>>,
        options: PeerOptions,
    ) -> Self {
        Self {
            inner: TransportPeerInner::new(name.into(), Some(address), transports, options),
            local: None,
        }
    }

    /// Makes a peer within this process: `connection` is used as it is.
    pub fn for_local_connection(connection: Arc<dyn PeerConnection>) -> Self {
        let inner = TransportPeerInner::new(
            "this process".into(),
            None,
            Vec::new(),
            PeerOptions::default(),
        );
        Self { inner, local: Some(connection) }
    }

    /// Returns the peer's name in logs and errors; "this process" for a local peer.
    pub fn peer_name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the transport of calls now; `None` while nothing is connected.
    pub fn transport_kind(&self) -> Option<TransportKind> {
        if let Some(connection) = &self.local {
            return Some(connection.transport_kind());
        }
        let state = self.inner.state.lock();
        state.all_connections().next().and_then(|_| state.route.last_kind())
    }

    /// Returns the count of established connections.
    pub fn connection_count(&self) -> usize {
        match &self.local {
            Some(_) => 1,
            None => self.inner.state.lock().all_connections().count(),
        }
    }

    /// Returns true if a call made now goes out at once, because some connection takes calls.
    pub fn is_connected(&self) -> bool {
        self.local.is_some()
            || self
                .inner
                .state
                .lock()
                .all_connections()
                .any(|held| held.connection.broken_reason().is_none())
    }

    /// Starts a call on the least loaded connection. Connects first where there is none. Needs a
    /// tokio runtime.
    pub fn start_call(&self, message: Bytes, landing: Option<Landing>) -> OutgoingCall {
        let made: Result<OutgoingCall, Infallible> = self.call_with(|_| Ok((message, landing)));
        match made {
            Ok(call) => call,
            Err(never) => match never {},
        }
    }

    /// Starts a call like [`TransportPeer::start_call`], for callers that lend memory only where it
    /// is needed. `request` is told what the chosen connection does with a landing. A separate
    /// question could be answered about another connection than the one used.
    pub fn call_with<E>(
        &self,
        request: impl FnOnce(LandingUse) -> Result<(Bytes, Option<Landing>), E>,
    ) -> Result<OutgoingCall, E> {
        let connection = match &self.local {
            Some(connection) => connection.clone(),
            None => match self.inner.choose_connection(Instant::now()) {
                ConnectionChoice::Use(pick) => pick.connection,
                ConnectionChoice::Wait(attempt) => {
                    // The attempt's outcome is still open. A connection that needs no landing
                    // ignores it.
                    let request = Some(request(LandingUse::Partly)?);
                    return Ok(OutgoingCall::new(Box::new(ConnectingCall::Waiting {
                        attempt,
                        request,
                    })));
                }
                ConnectionChoice::Refuse(error) => {
                    return Ok(OutgoingCall::new(Box::new(ConnectingCall::Refused(Some(error)))));
                }
            },
        };
        let (message, landing) = request(connection.landing_use())?;
        Ok(connection.start_call(message, landing).with_connection(connection))
    }

    /// Reports a call of `start_call` that got no frame in its caller's wait. Returns `true` when
    /// nothing at all came over the call's connection, and that is not the last way to this peer.
    /// Calls go another way from now on. Returns `false` when the silence says something of the
    /// peer itself.
    pub fn blames_way(&self, call: &OutgoingCall) -> bool {
        let Some(way) =
            call.call_connection().filter(|way| self.local.is_none() && way.is_silent())
        else {
            return false;
        };
        if way.connection.transport_kind() == TransportKind::Tcp {
            return false;
        }
        self.inner.state.lock().drop_silent(&self.inner.name, &way.connection, Instant::now());
        self.inner.changed.notify_one();
        true
    }

    /// Closes idle connections and waits for the tasks of this peer. Calls in flight keep theirs.
    pub async fn shutdown(&self) {
        self.inner.over.cancel();
        self.inner.state.lock().retain_connections(|_| false);
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

impl Drop for TransportPeer {
    fn drop(&mut self) {
        self.inner.over.cancel();
    }
}

impl TransportPeerInner {
    fn new(
        name: String,
        address: Option<PeerAddress>,
        transports: Vec<Arc<dyn PeerTransport>>,
        options: PeerOptions,
    ) -> Arc<Self> {
        let of = |kind| {
            transports.iter().filter(move |transport| transport.transport_kind() == kind).cloned()
        };
        let lane = |(rail, transport)| {
            TransportLane::new(transport, rail, WayRestTracker::new(options.settings))
        };
        let lanes = of(TransportKind::Shm).take(1).enumerate().map(lane);
        let lanes = lanes.chain(of(TransportKind::Verbs).enumerate().map(lane)).collect();
        let ways = address.as_ref().map(|address| address.ways.clone()).unwrap_or_default();
        let PeerSettings { pause_min, pause_max, stable_after, .. } = options.settings;
        let backoff = ReconnectBackoff::new(BackoffOptions {
            pause_min: pause_min.0,
            pause_max: pause_max.0,
            stable_after: stable_after.0,
        });
        let state = WayChoice::new(lanes, ways, backoff);
        Arc::new(Self {
            name,
            address,
            tcp: of(TransportKind::Tcp).collect(),
            options,
            state: Mutex::new(state),
            changed: Notify::new(),
            tasks: TaskTracker::new(),
            runtime: Handle::try_current().ok(),
            over: CancellationToken::new(),
        })
    }

    fn choose_connection(self: &Arc<Self>, now: Instant) -> ConnectionChoice {
        let mut state = self.state.lock();
        state.drop_broken(&self.name, now);
        match state.pick_connection(now) {
            Some(pick) => {
                self.widen_connections(&mut state, &pick, now);
                state.record_route(&self.name, pick.kind);
                ConnectionChoice::Use(pick)
            }
            None => self.wait_or_refuse(state, now),
        }
    }

    /// Starts more connections where they are worth it: over ways at least as good as the chosen
    /// one that have none, and beside crowded ones.
    fn widen_connections(
        self: &Arc<Self>,
        state: &mut WayChoice,
        pick: &ConnectionPick,
        now: Instant,
    ) {
        let crowd = self.options.settings.calls_per_connection as usize;
        let crowded = pick.calls_min >= crowd;
        if pick.kind == TransportKind::Tcp
            && pick.load.weigh_calls() >= crowd
            && state.tcp.len() < self.options.settings.connections_max as usize
            && state.may_try(now)
        {
            state.attempt = Some(self.one_more());
        }
        for at in 0..state.lanes.len() {
            // Lanes are in the order of preference.
            if pick.kind == TransportKind::Shm && state.lanes[at].kind != TransportKind::Shm {
                break;
            }
            if state.lanes[at].held.is_empty() {
                self.start_attempt(state, at, now);
            }
        }
        if crowded
            && pick.kind != TransportKind::Tcp
            && state.connections_of(pick.kind) < self.options.settings.connections_max as usize
        {
            let of_kind = (0..state.lanes.len()).filter(|&at| state.lanes[at].kind == pick.kind);
            let fewest = of_kind
                .filter(|&at| !state.lanes[at].held.is_empty())
                .min_by_key(|&at| state.lanes[at].held.len());
            if let Some(at) = fewest {
                self.start_attempt(state, at, now);
            }
        }
    }

    fn wait_or_refuse(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, WayChoice>,
        now: Instant,
    ) -> ConnectionChoice {
        if let Some(attempt) = &state.attempt {
            return ConnectionChoice::Wait(attempt.clone());
        }
        if !self.over.is_cancelled() && state.backoff.may_try(now) {
            let attempt = self.connect_first();
            state.attempt = Some(attempt.clone());
            return ConnectionChoice::Wait(attempt);
        }
        // Tcp rests, or this side is shutting down. Another way may still be known from before.
        for at in 0..state.lanes.len() {
            if let Some(attempt) = self.start_attempt(&mut state, at, now) {
                return ConnectionChoice::Wait(attempt);
            }
        }
        // Nothing was sent for this call, whatever error the peer rests for.
        ConnectionChoice::Refuse(match &state.last_error {
            Some(error @ TransportError::Lost { .. }) => {
                self.unreachable_error(UnreachableCause::Resting(Arc::new(error.clone())))
            }
            Some(error) => error.clone(),
            None => self.unreachable_error(UnreachableCause::Closed),
        })
    }

    /// Returns the runtime of this peer's tasks and connections: the one where the peer was made,
    /// and only without one the caller's. The runtime that opens a connection drives it, and a
    /// caller's may be one thread's, or end before the peer.
    fn task_runtime(&self) -> Handle {
        self.runtime.clone().unwrap_or_else(Handle::current)
    }

    fn unreachable_error(&self, cause: UnreachableCause) -> TransportError {
        TransportError::Unreachable { peer: self.name.clone(), cause }
    }
}

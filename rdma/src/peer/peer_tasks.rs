//! Owns the tasks of a peer: attempts to connect, and the upkeep of connections.
//!
//! An attempt connects tcp first, which tells the other ways to the peer, and then the best of
//! those. `transport_lane` decides what an outcome means for its way.

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::select_ok;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

use super::TransportPeerInner;
use super::connect_attempt::{ConnectAttempt, ConnectResult};
use super::transport_lane::PooledConnection;
use super::way_choice::WayChoice;
use crate::metrics::{PeerTrouble, transport_metrics};
use crate::transport::{PeerConnection, TransportKind, UnreachableCause};

impl TransportPeerInner {
    /// Makes the first connection: over tcp, and then over the best way that both hosts have. Calls
    /// wait for it.
    pub(super) fn connect_first(self: &Arc<Self>) -> ConnectAttempt {
        let inner = self.clone();
        // Ends with its attempts, whose transports have deadlines, or when the peer is dropped.
        self.spawn_attempt(async move {
            let tcp = inner.over_tcp().await;
            if let Ok(connection) = &tcp {
                inner.state.lock().learn_ways(connection.peer_ways().clone());
            }
            // Slower attempts go on by themselves, and calls use their connections later.
            let better = timeout(inner.options.settings.upgrade_wait.0, inner.upgrade_transport())
                .await
                .unwrap_or_default();
            inner.record_connection(tcp, better)
        })
    }

    /// Makes one more connection over tcp.
    pub(super) fn one_more(self: &Arc<Self>) -> ConnectAttempt {
        let inner = self.clone();
        // Ends like `connect_first`.
        self.spawn_attempt(async move {
            let tcp = inner.over_tcp().await;
            inner.record_connection(tcp, None)
        })
    }

    /// Spawns a task, so that an attempt outlives the call that needed it first.
    fn spawn_attempt(
        self: &Arc<Self>,
        attempt: impl Future<Output = ConnectResult> + Send + 'static,
    ) -> ConnectAttempt {
        let task = self.tasks.spawn_on(attempt, &self.task_runtime());
        let panicked = self.unreachable_error(UnreachableCause::Panicked);
        async move { task.await.unwrap_or(Err(panicked)) }.boxed().shared()
    }

    async fn over_tcp(&self) -> ConnectResult {
        let mut error = self.unreachable_error(UnreachableCause::NoTcp);
        let Some(address) = &self.address else {
            return Err(error);
        };
        for transport in &self.tcp {
            let made = self.over.run_until_cancelled(transport.connect(address)).await;
            match made.unwrap_or_else(|| Err(self.unreachable_error(UnreachableCause::Closed))) {
                Ok(connection) => return Ok(connection),
                Err(failed) => {
                    if !self.over.is_cancelled() {
                        tracing::warn!(
                            peer = self.name,
                            transport = %transport.transport_kind(),
                            error = %failed,
                            "can't connect"
                        );
                    }
                    transport_metrics().connects_failed.inc();
                    error = failed;
                }
            }
        }
        Err(error)
    }

    /// Makes the first connection over the best working way.
    async fn upgrade_transport(self: &Arc<Self>) -> Option<Arc<dyn PeerConnection>> {
        for kind in [TransportKind::Shm, TransportKind::Verbs] {
            // Every rail at once: a body's spans are to be spread over them from the start.
            let attempts = self.start_all(kind, Instant::now());
            if attempts.is_empty() {
                continue;
            }
            if let Ok((connection, _)) = select_ok(attempts).await {
                return Some(connection);
            }
        }
        None
    }

    fn start_all(self: &Arc<Self>, kind: TransportKind, now: Instant) -> Vec<ConnectAttempt> {
        let mut state = self.state.lock();
        let lanes: Vec<usize> =
            (0..state.lanes.len()).filter(|&at| state.lanes[at].kind == kind).collect();
        lanes.into_iter().filter_map(|at| self.start_attempt(&mut state, at, now)).collect()
    }

    /// Starts an attempt of one way, or joins the one in progress. Returns `None` if the peer does
    /// not have the way, if it rests, or if the cap on verbs connections is reached.
    pub(super) fn start_attempt(
        self: &Arc<Self>,
        state: &mut WayChoice,
        at: usize,
        now: Instant,
    ) -> Option<ConnectAttempt> {
        let WayChoice { lanes, ways, .. } = state;
        let lane = &mut lanes[at];
        if let Some(attempt) = &lane.attempt {
            return Some(attempt.clone());
        }
        if self.over.is_cancelled() || !lane.rest.may_try(now) {
            return None;
        }
        if lane.is_down_there(ways) || !lane.transport.is_up() {
            // The trouble by which it was lost is the better reason.
            lane.trouble.get_or_insert(PeerTrouble::RailDown);
            return None;
        }
        let address = lane.peer_address(self.address.as_ref()?, ways)?;
        let mut place = None;
        if lane.kind == TransportKind::Verbs {
            place = self.options.queue_pairs.take_place();
            if place.is_none() {
                lane.trouble = Some(PeerTrouble::Cap);
                return None;
            }
        }
        let (inner, transport) = (self.clone(), lane.transport.clone());
        // Ends like `connect_first`.
        let attempt = self.spawn_attempt(async move {
            let made = inner.over.run_until_cancelled(transport.connect(&address)).await;
            let made =
                made.unwrap_or_else(|| Err(inner.unreachable_error(UnreachableCause::Closed)));
            inner.lane_connected(at, made, place)
        });
        lane.attempt = Some(attempt.clone());
        Some(attempt)
    }

    /// Asks the peer again for its ways: one of its rails may be back. The connection for that is
    /// not kept.
    fn learn_anew(self: &Arc<Self>, state: &mut WayChoice) {
        state.learning = true;
        let inner = self.clone();
        // Ends like `connect_first`.
        let learn = async move {
            let told = inner.over_tcp().await;
            let mut state = inner.state.lock();
            state.learning = false;
            match told {
                Ok(connection) => state.learn_ways(connection.peer_ways().clone()),
                // Tcp has its own pauses for calls that need it. This question can wait for a whole
                // period again.
                Err(_) => state.learned = Instant::now(),
            }
            drop(state);
            inner.changed.notify_one();
        };
        self.tasks.spawn_on(learn, &self.task_runtime());
    }

    fn lane_connected(
        self: &Arc<Self>,
        at: usize,
        made: ConnectResult,
        place: Option<OwnedSemaphorePermit>,
    ) -> ConnectResult {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.lanes[at].attempt = None;
        match &made {
            _ if self.over.is_cancelled() => {}
            Ok(connection) => {
                state.count_replacement();
                let held = PooledConnection {
                    connection: connection.clone(),
                    since: now,
                    used: now,
                    _place: place,
                };
                state.lanes[at].add_connection(&self.name, now, held);
                self.keep_up(&mut state);
            }
            Err(error) => {
                transport_metrics().connects_failed.inc();
                let lane = &mut state.lanes[at];
                tracing::debug!(peer = self.name, transport = %lane.kind, %error, "can't connect");
                lane.record_failure(&self.name, now, error);
            }
        }
        self.changed.notify_one();
        made
    }

    fn record_connection(
        self: &Arc<Self>,
        tcp: ConnectResult,
        better: Option<Arc<dyn PeerConnection>>,
    ) -> ConnectResult {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.attempt = None;
        match &tcp {
            _ if self.over.is_cancelled() => {}
            Ok(connection) => {
                state.count_replacement();
                state.tcp.push(PooledConnection {
                    connection: connection.clone(),
                    since: now,
                    used: now,
                    _place: None,
                });
                self.keep_up(&mut state);
            }
            Err(error) => {
                state.backoff.record_failure(now, rand::random());
                state.last_error = Some(error.clone());
            }
        }
        let best = better.map_or(tcp, Ok);
        if let Ok(connection) = &best {
            state.record_route(&self.name, connection.transport_kind());
        }
        best
    }

    fn keep_up(self: &Arc<Self>, state: &mut WayChoice) {
        if !std::mem::replace(&mut state.kept_up, true) {
            self.tasks.spawn_on(self.clone().run_upkeep(), &self.task_runtime());
        }
    }

    /// Closes idle connections, and retries failed ways. Ends when no connection is left, so that
    /// an unused peer is left alone. May be cancelled at any time.
    async fn run_upkeep(self: Arc<Self>) {
        let idle_max = self.options.settings.idle_max.0;
        let mut wake = Instant::now() + idle_max / 2;
        loop {
            tokio::select! {
                () = sleep_until(wake) => {}
                () = self.changed.notified() => {}
                () = self.over.cancelled() => {}
            }
            let now = Instant::now();
            let mut state = self.state.lock();
            state.drop_broken(&self.name, now);
            let over = self.over.is_cancelled();
            state.retain_connections(|held| {
                if held.connection.call_load().calls > 0 {
                    held.used = now;
                }
                !over && now.saturating_duration_since(held.used) < idle_max
            });
            if state.all_connections().next().is_none() {
                state.kept_up = false;
                return;
            }
            wake = now + idle_max / 2;
            if state.may_learn() && !state.learning {
                match state.learned + self.options.settings.rest_min.0 {
                    due if due > now => wake = wake.min(due),
                    _ => self.learn_anew(&mut state),
                }
            }
            for at in 0..state.lanes.len() {
                let lane = &state.lanes[at];
                // Only failed ways: an idle way waits for a call.
                if lane.trouble.is_none() || !lane.held.is_empty() {
                    continue;
                }
                match lane.rest.retry_at().filter(|&until| until > now) {
                    Some(until) => wake = wake.min(until),
                    None => drop(self.start_attempt(&mut state, at, now)),
                }
            }
        }
    }
}

//! Attempts: tcp first, which tells in which other ways the peer can be reached, then the best of
//! those; and the task that looks after what was made.
//!
//! Owns the tasks of a peer. What an outcome means for a way is `lanes`' to decide.

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, select_ok};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

use super::Inner;
use super::lanes::{Held, State};
use crate::metrics::metrics;
use crate::transport::{Connection, TransportError, TransportKind};

pub(super) type Attempt = Shared<BoxFuture<'static, Made>>;
type Made = Result<Arc<dyn Connection>, TransportError>;

impl Inner {
    /// Makes the first connection: over tcp, and then over the best way that both hosts have. Calls
    /// wait for it.
    pub(super) fn first(self: &Arc<Self>) -> Attempt {
        let inner = self.clone();
        // Ends with its attempts, whose transports have deadlines, or when the peer is dropped.
        self.spawn(async move {
            let tcp = inner.over_tcp().await;
            if let Ok(connection) = &tcp {
                inner.state.lock().learn(connection.ways().clone());
            }
            // Attempts that take longer go on by themselves, and calls use what comes of them.
            let better =
                timeout(inner.options.upgrade_wait, inner.upgrade()).await.unwrap_or_default();
            inner.connected(tcp, better)
        })
    }

    /// Makes one more connection over tcp.
    pub(super) fn one_more(self: &Arc<Self>) -> Attempt {
        let inner = self.clone();
        // As `first`.
        self.spawn(async move {
            let tcp = inner.over_tcp().await;
            inner.connected(tcp, None)
        })
    }

    /// In a task, so that an attempt outlives the call that needed it first.
    fn spawn(self: &Arc<Self>, attempt: impl Future<Output = Made> + Send + 'static) -> Attempt {
        let task = self.tasks.spawn(attempt);
        let panicked = self.unreachable("the attempt panicked");
        async move { task.await.unwrap_or(Err(panicked)) }.boxed().shared()
    }

    async fn over_tcp(&self) -> Made {
        let mut error = self.unreachable("no tcp transport is configured for it");
        let Some(address) = &self.address else {
            return Err(error);
        };
        for transport in &self.tcp {
            let made = self.over.run_until_cancelled(transport.connect(address)).await;
            match made.unwrap_or_else(|| Err(self.unreachable("it is closed here"))) {
                Ok(connection) => return Ok(connection),
                Err(failed) => {
                    if !self.over.is_cancelled() {
                        tracing::warn!(
                            peer = self.name, transport = %transport.kind(), error = %failed,
                            "can't connect"
                        );
                    }
                    metrics().connects_failed.inc();
                    error = failed;
                }
            }
        }
        Err(error)
    }

    /// The first connection over the best way that works.
    async fn upgrade(self: &Arc<Self>) -> Option<Arc<dyn Connection>> {
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

    fn start_all(self: &Arc<Self>, kind: TransportKind, now: Instant) -> Vec<Attempt> {
        let mut state = self.state.lock();
        let lanes: Vec<usize> =
            (0..state.lanes.len()).filter(|&at| state.lanes[at].kind == kind).collect();
        lanes.into_iter().filter_map(|at| self.start(&mut state, at, now)).collect()
    }

    /// Starts an attempt of one way, or joins the one under way. `None`: the peer does not have it,
    /// it rests, or there are as many verbs connections as there may be.
    pub(super) fn start(
        self: &Arc<Self>,
        state: &mut State,
        at: usize,
        now: Instant,
    ) -> Option<Attempt> {
        let State { lanes, ways, .. } = state;
        let lane = &mut lanes[at];
        if let Some(attempt) = &lane.attempt {
            return Some(attempt.clone());
        }
        if self.over.is_cancelled() || !lane.rest.may_try(now) {
            return None;
        }
        if lane.is_down_there(ways) || !lane.transport.is_up() {
            // What it was lost by is the better reason.
            lane.trouble.get_or_insert("rail_down");
            return None;
        }
        let address = lane.address(self.address.as_ref()?, ways)?;
        let mut place = None;
        if lane.kind == TransportKind::Verbs {
            place = self.options.queue_pairs.take();
            if place.is_none() {
                lane.trouble = Some("cap");
                return None;
            }
        }
        let (inner, transport) = (self.clone(), lane.transport.clone());
        // As `first`.
        let attempt = self.spawn(async move {
            let made = inner.over.run_until_cancelled(transport.connect(&address)).await;
            let made = made.unwrap_or_else(|| Err(inner.unreachable("it is closed here")));
            inner.lane_connected(at, made, place)
        });
        lane.attempt = Some(attempt.clone());
        Some(attempt)
    }

    /// Asks the peer again in which ways it can be reached: a rail of its may be back. The
    /// connection for that is not kept.
    fn learn_anew(self: &Arc<Self>, state: &mut State) {
        state.learning = true;
        let inner = self.clone();
        // As `first`.
        self.tasks.spawn(async move {
            let told = inner.over_tcp().await;
            let mut state = inner.state.lock();
            state.learning = false;
            match told {
                Ok(connection) => state.learn(connection.ways().clone()),
                // Tcp has its own pauses for who needs it; this can wait as long as before.
                Err(_) => state.learned = Instant::now(),
            }
            drop(state);
            inner.changed.notify_one();
        });
    }

    fn lane_connected(
        self: &Arc<Self>,
        at: usize,
        made: Made,
        place: Option<OwnedSemaphorePermit>,
    ) -> Made {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.lanes[at].attempt = None;
        match &made {
            _ if self.over.is_cancelled() => {}
            Ok(connection) => {
                state.replaced();
                let held =
                    Held { connection: connection.clone(), since: now, used: now, _place: place };
                state.lanes[at].made(&self.name, now, held);
                self.keep_up(&mut state);
            }
            Err(error) => {
                metrics().connects_failed.inc();
                let lane = &mut state.lanes[at];
                tracing::debug!(peer = self.name, transport = %lane.kind, %error, "can't connect");
                lane.failed(&self.name, now, error);
            }
        }
        self.changed.notify_one();
        made
    }

    fn connected(self: &Arc<Self>, tcp: Made, better: Option<Arc<dyn Connection>>) -> Made {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.attempt = None;
        match &tcp {
            _ if self.over.is_cancelled() => {}
            Ok(connection) => {
                state.replaced();
                state.tcp.push(Held {
                    connection: connection.clone(),
                    since: now,
                    used: now,
                    _place: None,
                });
                self.keep_up(&mut state);
            }
            Err(error) => {
                state.backoff.failed(now, rand::random());
                state.last_error = Some(error.clone());
            }
        }
        let best = better.map_or(tcp, Ok);
        if let Ok(connection) = &best {
            state.routed(&self.name, connection.kind());
        }
        best
    }

    fn keep_up(self: &Arc<Self>, state: &mut State) {
        if !std::mem::replace(&mut state.kept_up, true) {
            self.tasks.spawn(self.clone().upkeep());
        }
    }

    /// Closes connections that nobody uses, and tries again what failed; ends when no connection is
    /// left, so that a peer that nobody asks is left alone. May be cancelled at any time.
    async fn upkeep(self: Arc<Self>) {
        let idle_max = self.options.idle_max;
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
            state.retain(|held| {
                if held.connection.in_flight() > 0 {
                    held.used = now;
                }
                !over && now.saturating_duration_since(held.used) < idle_max
            });
            if state.all().next().is_none() {
                state.kept_up = false;
                return;
            }
            wake = now + idle_max / 2;
            if state.may_learn() && !state.learning {
                match state.learned + self.options.rest.rest_min {
                    due if due > now => wake = wake.min(due),
                    _ => self.learn_anew(&mut state),
                }
            }
            for at in 0..state.lanes.len() {
                let lane = &state.lanes[at];
                // Only what failed: what is merely idle waits for a call.
                if lane.trouble.is_none() || !lane.held.is_empty() {
                    continue;
                }
                match lane.rest.until().filter(|&until| until > now) {
                    Some(until) => wake = wake.min(until),
                    None => drop(self.start(&mut state, at, now)),
                }
            }
        }
    }
}

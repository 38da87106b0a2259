//! One other host: connects when it is first needed, spreads calls over several connections, and reconnects with patience.
//!
//! Owns the connections to one peer. It does not repeat calls: whoever made one knows what a second try may do. While the
//! peer rests after a failure, calls fail at once with the reason, so that their callers can go elsewhere.

mod backoff;
mod ways;

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use backoff::BackoffOptions;
pub use ways::{RAILS_MAX, ShmWay, Ways, WaysError};

use crate::landing::Landing;
use crate::metrics::metrics;
use crate::transport::{Call, CallDriver, Connection, Event, PeerAddress, Transport, TransportError, TransportKind};
use backoff::Backoff;

#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// Connections to one peer.
    pub connections_max: usize,
    /// Calls in flight on the least loaded connection from which another one is worth its memory.
    pub calls_per_connection: usize,
    /// A connection that carried no call for this long is closed.
    pub idle_max: Duration,
    pub backoff: BackoffOptions,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self {
            connections_max: 4,
            calls_per_connection: 16,
            idle_max: Duration::from_secs(60),
            backoff: BackoffOptions::default(),
        }
    }
}

/// The way to one other host. Dropping it lets calls under way finish, and closes the rest.
pub struct Peer {
    inner: Arc<Inner>,
    /// A connection within this process, which is never remade.
    local: Option<Arc<dyn Connection>>,
}

struct Inner {
    name: String,
    address: Option<PeerAddress>,
    transports: Vec<Arc<dyn Transport>>,
    options: PeerOptions,
    state: Mutex<State>,
    tasks: TaskTracker,
    over: CancellationToken,
}

struct State {
    connections: Vec<Held>,
    attempt: Option<Attempt>,
    backoff: Backoff,
    last_error: Option<TransportError>,
    /// Connections that broke and have not been replaced.
    lost: usize,
    reaping: bool,
}

struct Held {
    connection: Arc<dyn Connection>,
    since: Instant,
    used: Instant,
}

type Attempt = Shared<BoxFuture<'static, Result<Arc<dyn Connection>, TransportError>>>;

impl Peer {
    /// A peer that is reached by the first of `transports` that works. Connects on first use, not here.
    pub fn new(
        name: impl Into<String>,
        address: PeerAddress,
        transports: Vec<Arc<dyn Transport>>,
        options: PeerOptions,
    ) -> Self {
        Self { inner: Inner::new(name.into(), Some(address), transports, options), local: None }
    }

    /// A peer within this process: `connection` is used as it is.
    pub fn local(connection: Arc<dyn Connection>) -> Self {
        let inner = Inner::new("this process".into(), None, Vec::new(), PeerOptions::default());
        Self { inner, local: Some(connection) }
    }

    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Whether calls need a landing: whenever the transport that will be used may be one that writes into it.
    pub fn wants_landing(&self) -> bool {
        match &self.local {
            Some(connection) => connection.wants_landing(),
            None => self.inner.transports.iter().any(|transport| transport.kind() != TransportKind::Shm),
        }
    }

    /// What calls go over now; `None` while nothing is connected.
    pub fn kind(&self) -> Option<TransportKind> {
        if let Some(connection) = &self.local {
            return Some(connection.kind());
        }
        self.inner.state.lock().connections.first().map(|held| held.connection.kind())
    }

    /// Established connections.
    pub fn connections(&self) -> usize {
        match &self.local {
            Some(_) => 1,
            None => self.inner.state.lock().connections.len(),
        }
    }

    /// Starts a call on the least loaded connection; connects first where there is none. Needs a tokio runtime.
    pub fn call(&self, message: Bytes, landing: Option<Landing>) -> Call {
        if let Some(connection) = &self.local {
            return connection.call(message, landing);
        }
        match self.inner.choose(Instant::now()) {
            Choice::Use(connection) => connection.call(message, landing),
            Choice::Wait(attempt) => {
                Call::new(Box::new(Connecting::Waiting { attempt, request: Some((message, landing)) }))
            }
            Choice::Refuse(error) => Call::new(Box::new(Connecting::Refused(Some(error)))),
        }
    }

    /// Closes idle connections and waits for the tasks of this peer. Calls under way keep theirs.
    pub async fn shutdown(&self) {
        self.inner.over.cancel();
        self.inner.state.lock().connections.clear();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.inner.over.cancel();
    }
}

enum Choice {
    Use(Arc<dyn Connection>),
    Wait(Attempt),
    Refuse(TransportError),
}

impl Inner {
    fn new(
        name: String,
        address: Option<PeerAddress>,
        transports: Vec<Arc<dyn Transport>>,
        options: PeerOptions,
    ) -> Arc<Self> {
        let backoff = Backoff::new(options.backoff.clone());
        Arc::new(Self {
            name,
            address,
            transports,
            options,
            state: Mutex::new(State {
                connections: Vec::new(),
                attempt: None,
                backoff,
                last_error: None,
                lost: 0,
                reaping: false,
            }),
            tasks: TaskTracker::new(),
            over: CancellationToken::new(),
        })
    }

    fn choose(self: &Arc<Self>, now: Instant) -> Choice {
        let mut state = self.state.lock();
        state.drop_broken(now);
        let best = state.connections.iter_mut().min_by_key(|held| held.connection.in_flight());
        if let Some(best) = best {
            best.used = now;
            let connection = best.connection.clone();
            let crowded = connection.in_flight() >= self.options.calls_per_connection;
            if crowded && state.connections.len() < self.options.connections_max && state.may_try(now) {
                state.attempt = Some(self.attempt());
            }
            return Choice::Use(connection);
        }
        if let Some(attempt) = &state.attempt {
            return Choice::Wait(attempt.clone());
        }
        if self.over.is_cancelled() || !state.backoff.may_try(now) {
            // Nothing was sent for this call, whatever the error was that the peer rests for.
            return Choice::Refuse(match &state.last_error {
                Some(error @ TransportError::Lost { .. }) => self.unreachable(&format!("resting: {error}")),
                Some(error) => error.clone(),
                None => self.unreachable("it is closed here"),
            });
        }
        let attempt = self.attempt();
        state.attempt = Some(attempt.clone());
        Choice::Wait(attempt)
    }

    /// Connects in a task, so that the attempt outlives the call that needed it first.
    fn attempt(self: &Arc<Self>) -> Attempt {
        let inner = self.clone();
        // Ends with its attempt, whose transports have deadlines, or when the peer is dropped.
        let task = self.tasks.spawn(async move {
            let over = inner.over.clone();
            match over.run_until_cancelled(inner.connect()).await {
                Some(result) => inner.connected(result),
                None => inner.connected(Err(inner.unreachable("it is closed here"))),
            }
        });
        let panicked = self.unreachable("the attempt panicked");
        async move { task.await.unwrap_or(Err(panicked)) }.boxed().shared()
    }

    async fn connect(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let mut error = self.unreachable("no transport is configured for it");
        let Some(address) = &self.address else {
            return Err(error);
        };
        for transport in &self.transports {
            match transport.connect(address).await {
                Ok(connection) => return Ok(connection),
                Err(failed) => {
                    tracing::warn!(peer = self.name, transport = %transport.kind(), error = %failed, "can't connect");
                    metrics().connects_failed.inc();
                    error = failed;
                }
            }
        }
        Err(error)
    }

    fn connected(
        self: &Arc<Self>,
        result: Result<Arc<dyn Connection>, TransportError>,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.attempt = None;
        match &result {
            Ok(connection) if !self.over.is_cancelled() => {
                if state.lost > 0 {
                    state.lost -= 1;
                    metrics().reconnects.inc();
                }
                state.connections.push(Held { connection: connection.clone(), since: now, used: now });
                if !std::mem::replace(&mut state.reaping, true) {
                    self.tasks.spawn(self.clone().reap());
                }
            }
            Ok(_) => {}
            Err(error) => {
                state.backoff.failed(now, rand::random());
                state.last_error = Some(error.clone());
            }
        }
        result
    }

    /// Closes connections that nobody uses; ends when none is left. May be cancelled at any time.
    async fn reap(self: Arc<Self>) {
        loop {
            let slept = self.over.run_until_cancelled(tokio::time::sleep(self.options.idle_max / 2)).await;
            let now = Instant::now();
            let mut state = self.state.lock();
            state.drop_broken(now);
            let idle_max = self.options.idle_max;
            state.connections.retain_mut(|held| {
                if held.connection.in_flight() > 0 {
                    held.used = now;
                }
                slept.is_some() && now.saturating_duration_since(held.used) < idle_max
            });
            if state.connections.is_empty() {
                state.reaping = false;
                return;
            }
        }
    }

    fn unreachable(&self, reason: &str) -> TransportError {
        TransportError::Unreachable { peer: self.name.clone(), reason: reason.into() }
    }
}

impl State {
    fn may_try(&self, now: Instant) -> bool {
        self.attempt.is_none() && self.backoff.may_try(now)
    }

    /// Lets go of connections that take no more calls. Calls under way on them keep them open.
    fn drop_broken(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.connections.len() {
            let Some(error) = self.connections[at].connection.broken() else {
                at += 1;
                continue;
            };
            let held = self.connections.swap_remove(at);
            self.backoff.lost(held.since, now, rand::random());
            self.last_error = Some(error);
            self.lost += 1;
        }
    }
}

/// A call whose connection is being made, or can't be.
enum Connecting {
    Waiting { attempt: Attempt, request: Option<(Bytes, Option<Landing>)> },
    Made(Call),
    Refused(Option<TransportError>),
}

impl CallDriver for Connecting {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, TransportError>> {
        loop {
            let next = match self {
                Self::Made(call) => return call.poll_next(cx),
                Self::Refused(error) => {
                    let again = || TransportError::Bound { reason: "the call was polled after its end".into() };
                    return Poll::Ready(Err(error.take().unwrap_or_else(again)));
                }
                Self::Waiting { attempt, request } => match (ready!(attempt.poll_unpin(cx)), request.take()) {
                    (Ok(connection), Some((message, landing))) => Self::Made(connection.call(message, landing)),
                    (Ok(_), None) => Self::Refused(None),
                    (Err(error), _) => Self::Refused(Some(error)),
                },
            };
            *self = next;
        }
    }

    fn poll_push(&mut self, cx: &mut Context<'_>, data: &[Bytes]) -> Poll<Result<(), TransportError>> {
        match self {
            Self::Made(call) => call.poll_push(cx, data),
            _ => Poll::Ready(Err(TransportError::Bound { reason: "the peer wants nothing pushed".into() })),
        }
    }
}

//! One served connection: reads calls, runs handlers, and keeps what a requester may still push
//! into.
//!
//! Owns the table of calls being served. A call is in it until its last frame is queued; after that
//! no part of it can follow. That order is what makes a `CancelAck` true: nothing for that call
//! comes behind it.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::nudge::nudged;
use super::{Agreed, Header, Inlet, InletError, Kind, Outgoing, Outlet, Segment};
use crate::landing::{Fill, Landing};
use crate::metrics::{GaugeGuard, Traffic, metrics};
use crate::transport::{Incoming, Reply, ReplyDriver, Service, TransportError};

pub(crate) struct Session<O: Outlet> {
    /// First, so that even a session that is merely dropped closes before the landings of its pulls
    /// go.
    outlet: O,
    peer: Arc<str>,
    message_bytes_max: u32,
    calls_max: usize,
    service: Arc<dyn Service>,
    calls: Mutex<Calls>,
    /// Notified whenever the table becomes empty.
    idle: Notify,
    /// Cancelled when the connection is gone; handlers end with it.
    gone: CancellationToken,
    runtime: Runtime,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Calls {
    newest: u64,
    /// Calls that are not answered. The others in the table wait for the requester to say that no
    /// push follows.
    unanswered: usize,
    open: HashMap<u64, Serving>,
    draining: bool,
    closed: bool,
}

struct Serving {
    answered: bool,
    handler: Option<AbortHandle>,
    pull: Option<Pull>,
    _gauge: GaugeGuard,
}

/// Memory that is lent to the requester for a push.
struct Pull {
    landing: Landing,
    done: oneshot::Sender<Vec<Bytes>>,
}

impl<O: Outlet> Session<O> {
    /// A session whose handshake is done. Its handlers run on `runtime` and are of `tasks`.
    pub(crate) fn new(
        outlet: O,
        agreed: &Agreed,
        address: &str,
        service: Arc<dyn Service>,
        (runtime, tasks): (&Runtime, &TaskTracker),
    ) -> Arc<Self> {
        Arc::new(Self {
            outlet,
            peer: format!("{} ({address})", agreed.peer_name).into(),
            message_bytes_max: agreed.frame_bytes_max,
            calls_max: agreed.calls_in_flight_max as usize,
            service,
            calls: Mutex::new(Calls::default()),
            idle: Notify::new(),
            gone: CancellationToken::new(),
            runtime: runtime.clone(),
            tasks: tasks.clone(),
        })
    }
}

/// Serves until the connection ends, `drain` has let every call finish, or `kill` doesn't wait for
/// that.
pub(crate) async fn serve<O: Outlet>(
    session: Arc<Session<O>>,
    inlet: impl Inlet,
    drain: &CancellationToken,
    kill: &CancellationToken,
) {
    nudged(serve_halves(session, inlet, drain, kill)).await;
}

async fn serve_halves<O: Outlet>(
    session: Arc<Session<O>>,
    mut inlet: impl Inlet,
    drain: &CancellationToken,
    kill: &CancellationToken,
) {
    let all = metrics();
    let _open =
        GaugeGuard::add(&all.connections.with_label_values(&[O::KIND.as_str(), "server"]), 1);
    let mut read = pin!(session.read(&mut inlet));
    let mut write = pin!(session.outlet.run());
    let mut drained = pin!(session.drained(drain));
    let (mut writing, mut open) = (true, true);
    let error = loop {
        tokio::select! {
            error = &mut read => break error,
            written = &mut write, if writing => match written {
                // The requester reads to the end and closes; closing first could cost it what it
                // has not read.
                Ok(()) => { writing = false; session.outlet.shut_write(); }
                Err(error) => break session.lost(error.to_string()),
            },
            () = &mut drained, if open => open = false,
            () = kill.cancelled() => break session.lost("closed here".into()),
        }
    };
    if let TransportError::Protocol { peer, reason } = &error {
        all.protocol_violations.with_label_values(&["server"]).inc();
        tracing::warn!(peer, reason, "cut a connection whose peer broke the protocol");
    } else {
        tracing::debug!(%error, "a connection ended");
    }
    session.end();
}

impl<O: Outlet> Session<O> {
    async fn read(self: &Arc<Self>, inlet: &mut impl Inlet) -> TransportError {
        loop {
            let header = match inlet.header().await {
                Ok(Some(header)) => header,
                Ok(None) => return self.lost("the requester closed it".into()),
                Err(error) => return self.unreadable(error),
            };
            let handled = match header.kind {
                Kind::Call => self.called(&header, inlet).await,
                Kind::Push => self.pushed(&header, inlet).await,
                Kind::Cancel => self.cancelled(header.call).await,
                Kind::CancelAck => self.push_declined(header.call),
                kind => Err(self.violation(format!("{kind:?} frame to a server"))),
            };
            if let Err(error) = handled {
                return error;
            }
        }
    }

    async fn called(
        self: &Arc<Self>,
        header: &Header,
        inlet: &mut impl Inlet,
    ) -> Result<(), TransportError> {
        self.outlet.control_room().await;
        let body = inlet
            .body(header, &mut Fill::default())
            .await
            .map_err(|error| self.unreadable(error))?;
        if self.admit(header.call)? {
            let target = if body.target.is_empty() { Arc::default() } else { body.target.into() };
            self.serve(header, body.message, target);
        } else {
            self.outlet.push(Outgoing::new(
                Header::new(Kind::Fail, header.call),
                Bytes::from_static(b"it is shutting down"),
                Vec::new(),
            ));
            self.outlet.flush();
        }
        Ok(())
    }

    /// Enters a call in the table; `false` while draining.
    fn admit(&self, call: u64) -> Result<bool, TransportError> {
        let mut calls = self.calls.lock();
        if call <= calls.newest {
            let newest = calls.newest;
            return Err(self.violation(format!("call {call} after call {newest}")));
        }
        calls.newest = call;
        if calls.draining {
            return Ok(false);
        }
        if calls.unanswered >= self.calls_max || calls.open.len() >= 2 * self.calls_max {
            let reason = format!("more than {} calls in flight", self.calls_max);
            return Err(self.violation(reason));
        }
        calls.unanswered += 1;
        let serving = Serving {
            answered: false,
            handler: None,
            pull: None,
            _gauge: GaugeGuard::add(&metrics().serving, 1),
        };
        calls.open.insert(call, serving);
        Ok(true)
    }

    /// Runs the handler: at once and in this task as far as it gets, which is all the way for a hit
    /// in memory; what has to wait goes on in a task of its own.
    fn serve(self: &Arc<Self>, header: &Header, message: Bytes, target: Arc<[Segment]>) {
        let call = header.call;
        let reply = Reply::new(Box::new(Answering {
            session: self.clone(),
            call,
            target,
            landing_bytes: header.lent_bytes,
            answered: false,
        }));
        let incoming =
            Incoming { message, landing_bytes: header.lent_bytes, peer: self.peer.clone() };
        let service = self.service.clone();
        let mut handler = Box::pin(async move {
            let serve = AssertUnwindSafe(service.serve(incoming, reply));
            if serve.catch_unwind().await.is_err() {
                tracing::error!("a handler panicked; its requester was told that it failed");
            }
        });
        if poll_once(handler.as_mut()) {
            return;
        }
        let gone = self.gone.clone();
        // May be aborted at any await, by a cancel or by the end of the connection. Joined at the
        // server's shutdown.
        let task = self.tasks.spawn_on(
            async move {
                gone.run_until_cancelled(handler).await;
            },
            &self.runtime,
        );
        if let Some(serving) = self.calls.lock().open.get_mut(&call) {
            serving.handler = Some(task.abort_handle());
        }
    }

    async fn pushed(&self, header: &Header, inlet: &mut impl Inlet) -> Result<(), TransportError> {
        let pull = {
            let mut calls = self.calls.lock();
            calls.open.get_mut(&header.call).and_then(|serving| serving.pull.take())
        };
        let Some(mut pull) = pull else {
            return Err(self.violation(format!("push for call {}, unasked", header.call)));
        };
        if header.data_bytes != pull.landing.bytes() {
            let (wanted, got) = (pull.landing.bytes(), header.data_bytes);
            return Err(self.violation(format!("push of {got} bytes where {wanted} were wanted")));
        }
        let mut fill = pull
            .landing
            .claim(0, header.data_bytes)
            .map_err(|error| self.violation(error.to_string()))?;
        let body = inlet.body(header, &mut fill).await.map_err(|error| self.unreadable(error))?;
        Traffic::of(O::KIND).bytes_in.inc_by(header.data_bytes);
        // The handler may have given up meanwhile; then nobody needs the bytes.
        let _ = pull.done.send(body.data.unwrap_or_else(|| fill.vouch()));
        Ok(())
    }

    async fn cancelled(&self, call: u64) -> Result<(), TransportError> {
        self.outlet.control_room().await;
        let serving = {
            let mut calls = self.calls.lock();
            if call > calls.newest {
                drop(calls);
                return Err(self.violation(format!("cancel of call {call}, which was never made")));
            }
            calls.remove(call)
        };
        // Answered meanwhile: the answer settles the call. What was lent for a push comes back
        // here, because the requester sends nothing for this call behind its cancel.
        if let Some(serving) = serving
            && !serving.answered
        {
            if let Some(handler) = &serving.handler {
                handler.abort();
            }
            self.outlet.abandon(call);
            self.outlet.push(Outgoing::control(Kind::CancelAck, call));
            self.outlet.flush();
        }
        self.tell_if_idle();
        Ok(())
    }

    /// The requester has seen the end of a call that lent it memory, and won't push.
    fn push_declined(&self, call: u64) -> Result<(), TransportError> {
        let mut calls = self.calls.lock();
        match calls.open.get(&call) {
            Some(serving) if serving.answered => {}
            _ => {
                drop(calls);
                return Err(self.violation(format!("acknowledged no end of call {call}")));
            }
        }
        let serving = calls.remove(call);
        drop(calls);
        drop(serving);
        self.tell_if_idle();
        Ok(())
    }

    /// Queues a call's last frame and takes it out of the table, or leaves what the requester may
    /// still push into.
    fn answer(&self, call: u64, frame: impl FnOnce(bool) -> Outgoing) -> bool {
        let serving = {
            let mut calls = self.calls.lock();
            let Some(serving) = calls.open.get_mut(&call).filter(|serving| !serving.answered)
            else {
                return false;
            };
            let pull_open = serving.pull.is_some();
            self.outlet.push(frame(pull_open));
            if pull_open {
                serving.answered = true;
                calls.unanswered -= 1;
                None
            } else {
                calls.remove(call)
            }
        };
        drop(serving);
        self.outlet.flush();
        self.tell_if_idle();
        true
    }

    async fn drained(&self, drain: &CancellationToken) {
        drain.cancelled().await;
        self.calls.lock().draining = true;
        self.outlet.push(Outgoing::control(Kind::Goodbye, 0));
        self.outlet.flush();
        loop {
            let idle = self.idle.notified();
            if self.calls.lock().open.is_empty() {
                break;
            }
            idle.await;
        }
        self.outlet.finish();
    }

    fn tell_if_idle(&self) {
        if self.calls.lock().open.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// The connection is gone: so are its handlers, and nobody can push into what was lent.
    fn end(&self) {
        // Out of the table before a handler hears of it: one that is dropped must not say in the
        // last moment that it failed.
        let open = {
            let mut calls = self.calls.lock();
            calls.closed = true;
            calls.unanswered = 0;
            std::mem::take(&mut calls.open)
        };
        self.outlet.close();
        self.gone.cancel();
        for serving in open.values() {
            if let Some(handler) = &serving.handler {
                handler.abort();
            }
        }
    }

    fn gone(&self) -> TransportError {
        if self.calls.lock().closed {
            self.lost("it closed".into())
        } else {
            TransportError::Cancelled
        }
    }

    fn lost(&self, reason: String) -> TransportError {
        TransportError::Lost { peer: self.peer.to_string(), reason }
    }

    fn violation(&self, reason: String) -> TransportError {
        TransportError::Protocol { peer: self.peer.to_string(), reason }
    }

    fn unreadable(&self, error: InletError) -> TransportError {
        match error {
            error @ (InletError::Frame(_) | InletError::Rules(_)) => {
                self.violation(error.to_string())
            }
            error => self.lost(error.to_string()),
        }
    }
}

impl Calls {
    fn remove(&mut self, call: u64) -> Option<Serving> {
        let serving = self.open.remove(&call)?;
        if !serving.answered {
            self.unanswered -= 1;
        }
        Some(serving)
    }
}

/// Polls with a waker that does nothing: whoever gets `false` must poll again, which a spawned task
/// does at once.
fn poll_once(handler: Pin<&mut (impl Future<Output = ()> + ?Sized)>) -> bool {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    matches!(handler.poll(&mut cx), Poll::Ready(()))
}

struct Answering<O: Outlet> {
    session: Arc<Session<O>>,
    call: u64,
    /// Where the requester lets this side write.
    target: Arc<[Segment]>,
    landing_bytes: u64,
    answered: bool,
}

impl<O: Outlet> Answering<O> {
    fn check(&self, message: &Bytes, offset: u64, bytes: u64) -> Result<(), TransportError> {
        let bound = self.session.message_bytes_max as usize;
        if message.len() > bound {
            let reason = format!("message of {} bytes; the bound is {bound}", message.len());
            return Err(TransportError::Bound { reason });
        }
        let end = offset.saturating_add(bytes);
        if end > self.landing_bytes {
            let lent = self.landing_bytes;
            let reason = format!(
                "reply bytes {offset} to {end} lie outside the requester's landing of {lent} bytes"
            );
            return Err(TransportError::Bound { reason });
        }
        Ok(())
    }
}

#[async_trait]
impl<O: Outlet> ReplyDriver for Answering<O> {
    async fn part(
        &mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
        last: bool,
    ) -> Result<(), TransportError> {
        let bytes = data.iter().map(|piece| piece.len() as u64).sum();
        self.check(&message, offset, bytes)?;
        let session = &self.session;
        let queued = bytes + message.len() as u64;
        let room = session.outlet.room(queued).await.ok_or_else(|| session.gone())?;
        let header = Header { last, offset, ..Header::new(Kind::Part, self.call) };
        let target = self.target.clone();
        let frame = |header| Outgoing::new(header, message, data).within(room).aimed(target);
        if last {
            let answered =
                session.answer(self.call, |pull_open| frame(Header { pull_open, ..header }));
            self.answered = true;
            if !answered {
                return Err(session.gone());
            }
        } else {
            {
                let calls = session.calls.lock();
                if calls.open.get(&self.call).is_none_or(|serving| serving.answered) {
                    drop(calls);
                    return Err(session.gone());
                }
                // Under the lock: a cancel that comes now is acknowledged behind this part.
                session.outlet.push(frame(header));
            }
            session.outlet.flush();
        }
        Traffic::of(O::KIND).bytes_out.inc_by(bytes);
        Ok(())
    }

    async fn pull(
        &mut self,
        message: Bytes,
        mut landing: Landing,
    ) -> Result<Vec<Bytes>, TransportError> {
        self.check(&message, 0, 0)?;
        let session = &self.session;
        let (done, pushed) = oneshot::channel();
        {
            let mut calls = session.calls.lock();
            let Some(serving) = calls.open.get_mut(&self.call) else {
                drop(calls);
                return Err(session.gone());
            };
            if serving.pull.is_some() {
                let reason = "memory lent for an earlier push is still with the requester".into();
                return Err(TransportError::Bound { reason });
            }
            let header =
                Header { lent_bytes: landing.bytes(), ..Header::new(Kind::Wanted, self.call) };
            let lent = session.outlet.lend(&mut landing);
            serving.pull = Some(Pull { landing, done });
            session.outlet.push(Outgoing::new(header, message, Vec::new()).lending(&lent));
        }
        session.outlet.flush();
        pushed.await.map_err(|_| session.gone())
    }
}

impl<O: Outlet> Drop for Answering<O> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let reason: &[u8] = if std::thread::panicking() {
            b"its handler panicked"
        } else {
            b"its handler ended before the last part"
        };
        self.session.answer(self.call, |pull_open| {
            let header = Header { pull_open, ..Header::new(Kind::Fail, self.call) };
            Outgoing::new(header, Bytes::from_static(reason), Vec::new())
        });
    }
}

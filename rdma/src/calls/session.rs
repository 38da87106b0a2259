//! Owns one served connection: reads calls, runs handlers, and keeps the memory that a requester
//! may still push into.
//!
//! A call stays in the table until its last frame is queued; no part of it can follow after that.
//! That order makes a `CancelAck` true: nothing for that call comes behind it.

mod reply_driver;

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_certificates::NodeRole;

use super::ConnectionTasks;
use super::coalescing_waker::coalesce_wakes;
use super::{
    FrameHeader, FrameInlet, FrameKind, FrameOutlet, HandshakeAgreement, MemorySegment,
    OutgoingFrame,
};
use crate::landing::{Landing, LandingFill};
use crate::metrics::{ConnectionSide, GaugeGuard, transport_metrics};
use crate::transport::{
    CallService, IncomingCall, LossCause, ProtocolBreach, ReplySender, TransportError,
};
use reply_driver::SessionReplyDriver;

pub(crate) struct ServerSession<O: FrameOutlet> {
    /// Declared first: even a session that is merely dropped closes before the landings of its
    /// pulls go.
    outlet: O,
    peer: Arc<str>,
    role: Option<NodeRole>,
    message_bytes_max: u32,
    calls_max: usize,
    service: Arc<dyn CallService>,
    calls: Mutex<SessionCallTable>,
    /// Notified whenever the table becomes empty.
    idle: Notify,
    /// Cancelled when the connection is gone; this ends its handlers.
    gone: CancellationToken,
    runtime: Runtime,
    tasks: TaskTracker,
}

#[derive(Default)]
struct SessionCallTable {
    newest: u64,
    /// Calls that are not answered yet. The other calls in the table wait until the requester says
    /// that no push follows.
    unanswered: usize,
    open: HashMap<u64, ServedCallEntry>,
    draining: bool,
    closed: bool,
}

struct ServedCallEntry {
    answered: bool,
    handler: Option<AbortHandle>,
    pull: Option<PushLanding>,
    _gauge: GaugeGuard,
}

/// Memory lent to the requester for a push.
struct PushLanding {
    landing: Landing,
    done: oneshot::Sender<Vec<Bytes>>,
}

impl<O: FrameOutlet> ServerSession<O> {
    /// Makes a session whose handshake is done. Its handlers run on `runtime` and belong to
    /// `tasks`.
    pub(crate) fn new(
        outlet: O,
        agreed: &HandshakeAgreement,
        address: &str,
        service: Arc<dyn CallService>,
        runs_on: ConnectionTasks<'_>,
    ) -> Arc<Self> {
        let ConnectionTasks { runtime, tasks } = runs_on;
        Arc::new(Self {
            outlet,
            peer: format!("{} ({address})", agreed.peer_name).into(),
            role: agreed.requester_role,
            message_bytes_max: agreed.frame_bytes_max,
            calls_max: agreed.calls_in_flight_max as usize,
            service,
            calls: Mutex::new(SessionCallTable::default()),
            idle: Notify::new(),
            gone: CancellationToken::new(),
            runtime: runtime.clone(),
            tasks: tasks.clone(),
        })
    }
}

/// Serves until the connection ends, `drain` has let every call finish, or `kill` is cancelled.
pub(crate) async fn serve_session<O: FrameOutlet>(
    session: Arc<ServerSession<O>>,
    inlet: impl FrameInlet,
    drain: &CancellationToken,
    kill: &CancellationToken,
) {
    coalesce_wakes(serve_halves(session, inlet, drain, kill)).await;
}

async fn serve_halves<O: FrameOutlet>(
    session: Arc<ServerSession<O>>,
    mut inlet: impl FrameInlet,
    drain: &CancellationToken,
    kill: &CancellationToken,
) {
    let all = transport_metrics();
    let _open = GaugeGuard::add_to(&all.connections[(O::KIND, ConnectionSide::Server)], 1);
    let mut read = pin!(session.read(&mut inlet));
    let mut write = pin!(session.outlet.run());
    let mut drained = pin!(session.drain_calls(drain));
    let (mut writing, mut open) = (true, true);
    let error = loop {
        tokio::select! {
            error = &mut read => break error,
            written = &mut write, if writing => match written {
                // The requester reads to the end and then closes. If this side closed first, the
                // requester could lose unread data.
                Ok(()) => { writing = false; session.outlet.shut_write(); }
                Err(error) => break session.lost_error(error.into()),
            },
            () = &mut drained, if open => open = false,
            () = kill.cancelled() => break session.lost_error(LossCause::ClosedHere),
        }
    };
    if let TransportError::Protocol { peer, breach } = &error {
        all.protocol_violations[ConnectionSide::Server].inc();
        tracing::warn!(peer, reason = %breach, "cut a connection whose peer broke the protocol");
    } else {
        tracing::debug!(%error, "a connection ended");
    }
    session.outlet.prepare_close().await;
    session.close_session();
}

impl<O: FrameOutlet> ServerSession<O> {
    async fn read(self: &Arc<Self>, inlet: &mut impl FrameInlet) -> TransportError {
        loop {
            let header = match inlet.next_header().await {
                Ok(Some(header)) => header,
                Ok(None) => return self.lost_error(LossCause::ClosedByPeer),
                Err(error) => return error.into_transport_error(self.peer.to_string()),
            };
            let handled = match header.kind {
                FrameKind::Call => self.handle_call(&header, inlet).await,
                FrameKind::Push => self.handle_push(&header, inlet).await,
                FrameKind::Cancel => self.handle_cancel(header.call).await,
                FrameKind::CancelAck => self.push_declined(header.call),
                kind => {
                    let to = "server";
                    Err(self.protocol_error(ProtocolBreach::WrongSide { kind, to }))
                }
            };
            if let Err(error) = handled {
                return error;
            }
        }
    }

    async fn handle_call(
        self: &Arc<Self>,
        header: &FrameHeader,
        inlet: &mut impl FrameInlet,
    ) -> Result<(), TransportError> {
        self.outlet.control_room().await;
        let body = inlet
            .receive_body(header, &mut LandingFill::default())
            .await
            .map_err(|error| error.into_transport_error(self.peer.to_string()))?;
        if self.admit_call(header.call)? {
            let target = if body.target.is_empty() { Arc::default() } else { body.target.into() };
            self.run_handler(header, body.message, target);
        } else {
            self.outlet.push_frame(OutgoingFrame::new(
                FrameHeader::new(FrameKind::Fail, header.call),
                Bytes::from_static(b"it is shutting down"),
                Vec::new(),
            ));
            self.outlet.flush_frames();
        }
        Ok(())
    }

    /// Enters a call in the table. Returns `false` while draining.
    fn admit_call(&self, call: u64) -> Result<bool, TransportError> {
        let mut calls = self.calls.lock();
        if call <= calls.newest {
            let newest = calls.newest;
            return Err(self.protocol_error(ProtocolBreach::CallOrder { call, newest }));
        }
        calls.newest = call;
        if calls.draining {
            return Ok(false);
        }
        if calls.unanswered >= self.calls_max || calls.open.len() >= 2 * self.calls_max {
            let calls_max = self.calls_max;
            return Err(self.protocol_error(ProtocolBreach::TooManyCalls { calls_max }));
        }
        calls.unanswered += 1;
        let serving = ServedCallEntry {
            answered: false,
            handler: None,
            pull: None,
            _gauge: GaugeGuard::add_to(&transport_metrics().serving, 1),
        };
        calls.open.insert(call, serving);
        Ok(true)
    }

    /// Runs the handler in this task, at once and as far as it gets; a memory hit finishes here. A
    /// handler that has to wait goes on in a task of its own.
    fn run_handler(
        self: &Arc<Self>,
        header: &FrameHeader,
        message: Bytes,
        target: Arc<[MemorySegment]>,
    ) {
        let call = header.call;
        let reply = ReplySender::new(Box::new(SessionReplyDriver {
            session: self.clone(),
            call,
            target,
            landing_bytes: header.lent_bytes,
            answered: false,
        }));
        let incoming = IncomingCall {
            message,
            landing_bytes: header.lent_bytes,
            peer: self.peer.clone(),
            role: self.role,
        };
        let service = self.service.clone();
        let mut handler = Box::pin(async move {
            let serve = AssertUnwindSafe(service.serve_call(incoming, reply));
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

    async fn handle_push(
        &self,
        header: &FrameHeader,
        inlet: &mut impl FrameInlet,
    ) -> Result<(), TransportError> {
        let pull = {
            let mut calls = self.calls.lock();
            calls.open.get_mut(&header.call).and_then(|serving| serving.pull.take())
        };
        let Some(mut pull) = pull else {
            return Err(self.protocol_error(ProtocolBreach::UnaskedPush { call: header.call }));
        };
        if header.data_bytes != pull.landing.total_bytes() {
            let (wanted, got) = (pull.landing.total_bytes(), header.data_bytes);
            return Err(self.protocol_error(ProtocolBreach::PushBytes { got, wanted }));
        }
        let mut fill = pull
            .landing
            .claim_range(0, header.data_bytes)
            .map_err(|error| self.protocol_error(error.into()))?;
        let body = inlet
            .receive_body(header, &mut fill)
            .await
            .map_err(|error| error.into_transport_error(self.peer.to_string()))?;
        transport_metrics().bytes_in[O::KIND].inc_by(header.data_bytes);
        // The handler may have given up meanwhile; then nobody needs the bytes.
        let _ = pull.done.send(body.data.unwrap_or_else(|| fill.into_vouched_bytes()));
        Ok(())
    }

    async fn handle_cancel(&self, call: u64) -> Result<(), TransportError> {
        self.outlet.control_room().await;
        let serving = {
            let mut calls = self.calls.lock();
            if call > calls.newest {
                drop(calls);
                return Err(self.protocol_error(ProtocolBreach::NeverMade { call }));
            }
            calls.remove(call)
        };
        // If the call was answered meanwhile, the answer settles it. Memory lent for a push comes
        // back here, because the requester sends nothing for this call behind its cancel.
        if let Some(serving) = serving
            && !serving.answered
        {
            if let Some(handler) = &serving.handler {
                handler.abort();
            }
            self.outlet.abandon_call(call);
            self.outlet.push_frame(OutgoingFrame::control_frame(FrameKind::CancelAck, call));
            self.outlet.flush_frames();
        }
        self.tell_if_idle();
        Ok(())
    }

    /// Takes back the memory of a call that is over. The requester has seen the call end and will
    /// not push into the memory lent to it.
    fn push_declined(&self, call: u64) -> Result<(), TransportError> {
        let mut calls = self.calls.lock();
        match calls.open.get(&call) {
            Some(serving) if serving.answered => {}
            _ => {
                drop(calls);
                return Err(self.protocol_error(ProtocolBreach::NoEnd { call }));
            }
        }
        let serving = calls.remove(call);
        drop(calls);
        drop(serving);
        self.tell_if_idle();
        Ok(())
    }

    /// Queues a call's last frame. Takes the call out of the table, unless the requester may still
    /// push into its memory.
    fn finish_call(&self, call: u64, frame: impl FnOnce(bool) -> OutgoingFrame) -> bool {
        let serving = {
            let mut calls = self.calls.lock();
            let Some(serving) = calls.open.get_mut(&call).filter(|serving| !serving.answered)
            else {
                return false;
            };
            let pull_open = serving.pull.is_some();
            self.outlet.push_frame(frame(pull_open));
            if pull_open {
                serving.answered = true;
                calls.unanswered -= 1;
                None
            } else {
                calls.remove(call)
            }
        };
        drop(serving);
        self.outlet.flush_frames();
        self.tell_if_idle();
        true
    }

    async fn drain_calls(&self, drain: &CancellationToken) {
        drain.cancelled().await;
        self.calls.lock().draining = true;
        self.outlet.push_frame(OutgoingFrame::control_frame(FrameKind::Goodbye, 0));
        self.outlet.flush_frames();
        loop {
            let idle = self.idle.notified();
            if self.calls.lock().open.is_empty() {
                break;
            }
            idle.await;
        }
        self.outlet.finish_writes();
    }

    fn tell_if_idle(&self) {
        if self.calls.lock().open.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// Ends the handlers. The connection is gone, so nobody can push into lent memory.
    fn close_session(&self) {
        // Empty the table before a handler learns of it. A handler dropped at the last moment must
        // not report a failure.
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

    fn call_gone_error(&self) -> TransportError {
        if self.calls.lock().closed {
            self.lost_error(LossCause::Closed)
        } else {
            TransportError::Cancelled
        }
    }

    fn lost_error(&self, cause: LossCause) -> TransportError {
        TransportError::Lost { peer: self.peer.to_string(), cause }
    }

    fn protocol_error(&self, breach: ProtocolBreach) -> TransportError {
        TransportError::Protocol { peer: self.peer.to_string(), breach }
    }
}

impl SessionCallTable {
    fn remove(&mut self, call: u64) -> Option<ServedCallEntry> {
        let serving = self.open.remove(&call)?;
        if !serving.answered {
            self.unanswered -= 1;
        }
        Some(serving)
    }
}

/// Polls with a waker that does nothing. A caller that gets `false` must poll again; a spawned task
/// does so at once.
fn poll_once(handler: Pin<&mut (impl Future<Output = ()> + ?Sized)>) -> bool {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    matches!(handler.poll(&mut cx), Poll::Ready(()))
}

//! Owns connections that hand memory over: the handler's future is polled inside the requester's
//! own poll.
//!
//! **Nothing of a call happens before its first poll**. Between polls, only tasks that the handler
//! has spawned run. A requester that wants several calls to advance together polls all of them (as
//! `FuturesUnordered` does).
//!
//! A hit costs the boxes of the driver and of the future, and one small queue: no task, no channel,
//! no copy. After its last part, a handler runs only up to its next await.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::calls::{InProcessPull, PendingCall};
use crate::landing::Landing;
use crate::metrics::transport_metrics;
use crate::transport::{
    CallDriver, CallEvent, CallService, IncomingCall, LandingUse, NoReplyCause, OutgoingCall,
    PeerConnection, ReplyDriver, ReplyPart, ReplySender, TransportError, TransportKind,
};

/// Parts that a handler may be ahead of its requester; each pins the owner's memory.
const PARTS_AHEAD_MAX: usize = 8;

const PEER: &str = "this process";

pub(super) fn open_share_connection(service: Arc<dyn CallService>) -> Arc<dyn PeerConnection> {
    Arc::new(ShareConnection { service, peer: PEER.into() })
}

struct ShareConnection {
    service: Arc<dyn CallService>,
    peer: Arc<str>,
}

impl PeerConnection for ShareConnection {
    fn transport_kind(&self) -> TransportKind {
        TransportKind::Shm
    }

    fn landing_use(&self) -> LandingUse {
        LandingUse::Unused
    }

    fn start_call(&self, message: Bytes, landing: Option<Landing>) -> OutgoingCall {
        // Nothing is written to a landing here, so one that came along goes back at once.
        drop(landing);
        let pending = Arc::new(PendingCall::new(TransportKind::Shm, None, None));
        let reply = ReplySender::new(Box::new(ShareReply { pending: pending.clone() }));
        let incoming =
            IncomingCall { message, landing_bytes: u64::MAX, peer: self.peer.clone(), role: None };
        OutgoingCall::new(Box::new(ShareCall {
            handler: Some(PolledHandler::start(self.service.clone(), incoming, reply)),
            pending,
        }))
    }

    fn broken_reason(&self) -> Option<TransportError> {
        None
    }
}

type ServeFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A handler's future beside the service that it borrows. The order of the fields drops the future
/// first.
struct PolledHandler {
    future: ServeFuture<'static>,
    _service: Arc<dyn CallService>,
}

impl PolledHandler {
    fn start(service: Arc<dyn CallService>, incoming: IncomingCall, reply: ReplySender) -> Self {
        let future: ServeFuture<'_> = service.serve_call(incoming, reply);
        // SAFETY: the future borrows `*service` only, which the Arc beside it keeps alive and in
        // place for as long as the future exists; neither field ever leaves this struct.
        let future =
            unsafe { std::mem::transmute::<ServeFuture<'_>, ServeFuture<'static>>(future) };
        Self { future, _service: service }
    }
}

struct ShareCall {
    handler: Option<PolledHandler>,
    pending: Arc<PendingCall>,
}

impl CallDriver for ShareCall {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallEvent, TransportError>> {
        if let Some(event) = self.pending.pop_event() {
            return Poll::Ready(event);
        }
        if let Some(handler) = &mut self.handler {
            match catch_unwind(AssertUnwindSafe(|| handler.future.as_mut().poll(cx))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(())) => self.handler = None,
                Err(panic) => {
                    self.pending.settle_with_error(panic_error(PEER, &*panic));
                    self.handler = None;
                }
            }
        }
        self.pending.poll_pop(cx)
    }

    fn poll_push(
        &mut self,
        _cx: &mut Context<'_>,
        data: &[Bytes],
    ) -> Poll<Result<(), TransportError>> {
        Poll::Ready(push_by_copy(&self.pending, data))
    }
}

impl Drop for ShareCall {
    fn drop(&mut self) {
        self.pending.cancel_call();
        self.handler = None;
        // The handler is gone, so nobody can answer any more.
        self.pending.settle_with_error(TransportError::Cancelled);
    }
}

/// Copies data into the memory that the serving side lent for it. What that side keeps must lie in
/// its own arena, not in the requester's request body.
pub(super) fn push_by_copy(pending: &PendingCall, data: &[Bytes]) -> Result<(), TransportError> {
    pending.answer_wanted(data)?;
    let Some(mut pull) = pending.take_pull() else {
        return Err(TransportError::Failed {
            peer: PEER.into(),
            cause: NoReplyCause::PushNotAwaited,
        });
    };
    for piece in data {
        pull.fill.copy_from(piece);
    }
    // The handler may have given up waiting; then nobody needs the bytes.
    let _ = pull.done.send(pull.fill.into_vouched_bytes());
    Ok(())
}

/// Serves [`push_by_copy`].
pub(super) async fn pull_by_copy(
    pending: &PendingCall,
    mut landing: Landing,
    want: impl FnOnce(u64) -> Result<(), TransportError>,
) -> Result<Vec<Bytes>, TransportError> {
    let bytes = landing.total_bytes();
    let fill = landing
        .claim_range(0, bytes)
        .map_err(|error| TransportError::Bound { cause: error.into() })?;
    let (done, pushed) = oneshot::channel();
    pending.offer_pull(InProcessPull { fill, done });
    want(bytes)?;
    pushed.await.map_err(|_| TransportError::Cancelled)
}

pub(super) fn panic_error(peer: &str, panic: &(dyn Any + Send)) -> TransportError {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    tracing::error!(panic = %text, "a handler panicked");
    TransportError::Failed { peer: peer.into(), cause: NoReplyCause::Panicked { message: text } }
}

pub(super) fn no_reply(peer: &str) -> TransportError {
    TransportError::Failed {
        peer: peer.into(),
        cause: if std::thread::panicking() {
            NoReplyCause::Unwound
        } else {
            NoReplyCause::HandlerEnded
        },
    }
}

struct ShareReply {
    pending: Arc<PendingCall>,
}

#[async_trait]
impl ReplyDriver for ShareReply {
    async fn send_part(
        &mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
        last: bool,
    ) -> Result<(), TransportError> {
        poll_fn(|cx| self.pending.poll_room(cx, PARTS_AHEAD_MAX)).await;
        if self.pending.is_cancelled() {
            return Err(TransportError::Cancelled);
        }
        let bytes: usize = data.iter().map(Bytes::len).sum();
        transport_metrics().bytes_out[TransportKind::Shm].inc_by(bytes as u64);
        self.pending.deliver_event(CallEvent::Part(ReplyPart { message, offset, data, last }));
        Ok(())
    }

    async fn pull_data(
        &mut self,
        message: Bytes,
        landing: Landing,
    ) -> Result<Vec<Bytes>, TransportError> {
        let pending = self.pending.clone();
        pull_by_copy(&self.pending, landing, move |bytes| {
            pending.deliver_event(CallEvent::Wanted { message, bytes });
            Ok(())
        })
        .await
    }
}

impl Drop for ShareReply {
    fn drop(&mut self) {
        self.pending.settle_with_error(no_reply(PEER));
    }
}

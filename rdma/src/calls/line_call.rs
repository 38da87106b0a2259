//! Owns one call of the requesting side: it waits for a credit, is sent, takes events, pushes data,
//! and cancels on drop.
//!
//! Implements `CallDriver` and `PeerConnection` over a line. `requester` owns the table of open
//! calls and settles them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::call_credits::{CreditPermit, CreditRequest};
use super::pending_call::CountedCredit;
use super::requester::RequesterLine;
use super::{FrameHeader, FrameKind, FrameOutlet, OutgoingFrame, PendingCall};
use crate::landing::Landing;
use crate::peer::TransportWays;
use crate::transport::{
    CallDriver, CallEvent, CallLoad, CallRefusal, LandingUse, NoReplyCause, OutgoingCall,
    PeerConnection, TransportError, TransportKind,
};

/// A requester's handle on its line. The connection and its last call drop it; then the tasks end.
pub(super) struct RequesterLineHandle<O: FrameOutlet> {
    pub(super) line: Arc<RequesterLine<O>>,
    pub(super) hung_up: CancellationToken,
}

impl<O: FrameOutlet> Drop for RequesterLineHandle<O> {
    fn drop(&mut self) {
        self.hung_up.cancel();
    }
}

pub(super) struct LineConnection<O: FrameOutlet> {
    pub(super) handle: Arc<RequesterLineHandle<O>>,
    pub(super) ways: TransportWays,
}

impl<O: FrameOutlet> PeerConnection for LineConnection<O> {
    fn transport_kind(&self) -> TransportKind {
        O::KIND
    }

    fn landing_use(&self) -> LandingUse {
        match O::KIND {
            TransportKind::Shm => LandingUse::Partly,
            TransportKind::Tcp | TransportKind::Verbs => LandingUse::Wholly,
        }
    }

    fn start_call(&self, message: Bytes, landing: Option<Landing>) -> OutgoingCall {
        let line = &self.handle.line;
        let bound = line.message_bytes_max as usize;
        let state = if message.len() > bound {
            let cause = CallRefusal::MessageBytes { bytes: message.len(), bytes_max: bound };
            LineCallState::Refused(Some(TransportError::Bound { cause }))
        } else {
            match line.credits.try_take() {
                Some(permit) => self.handle.send_call(permit, message, landing),
                None => LineCallState::Waiting {
                    wish: line.credits.request_credit(),
                    request: Some((message, landing)),
                },
            }
        };
        OutgoingCall::new(Box::new(LineCallDriver {
            handle: self.handle.clone(),
            state,
            push: None,
        }))
    }

    fn broken_reason(&self) -> Option<TransportError> {
        // Read before every call, so the usual answer takes no lock.
        if !self.handle.line.is_broken.load(Ordering::Acquire) {
            return None;
        }
        self.handle.line.calls.lock().broken.clone()
    }

    fn call_load(&self) -> CallLoad {
        self.handle.line.credits.call_load()
    }

    fn frames_received(&self) -> u64 {
        self.handle.line.heard.load(Ordering::Relaxed)
    }

    fn peer_ways(&self) -> &TransportWays {
        &self.ways
    }
}

impl<O: FrameOutlet> RequesterLineHandle<O> {
    fn send_call(
        &self,
        permit: CreditPermit,
        message: Bytes,
        mut landing: Option<Landing>,
    ) -> LineCallState {
        let lent_bytes = landing.as_ref().map_or(0, Landing::total_bytes);
        let lent = landing
            .as_mut()
            .map(|landing| self.line.outlet.lend_landing(landing))
            .unwrap_or_default();
        let credit = Some(CountedCredit::new(permit.carry_bytes(lent_bytes)));
        let pending = Arc::new(
            PendingCall::new(O::KIND, landing, credit)
                .mark_described(!lent.is_empty())
                .timed_by(self.line.outlet.rail_histogram()),
        );
        let mut calls = self.line.calls.lock();
        if let Some(error) = calls.broken.clone() {
            drop(calls);
            return LineCallState::Refused(Some(self.line.unreachable_error(error)));
        }
        calls.next += 1;
        let id = calls.next;
        calls.open.insert(id, pending.clone());
        let header = FrameHeader { lent_bytes, ..FrameHeader::new(FrameKind::Call, id) };
        // Push under the lock, so that calls go out in the order of their ids. The server relies on
        // that order.
        self.line
            .outlet
            .push_frame(OutgoingFrame::new(header, message, Vec::new()).with_segments(&lent));
        drop(calls);
        self.line.outlet.flush_frames();
        LineCallState::Sent { id, pending }
    }
}

type PushFuture = Pin<Box<dyn Future<Output = Result<(), TransportError>> + Send>>;

enum LineCallState {
    /// Every credit is in use. Nothing has been sent.
    Waiting {
        wish: CreditRequest,
        request: Option<(Bytes, Option<Landing>)>,
    },
    Sent {
        id: u64,
        pending: Arc<PendingCall>,
    },
    Refused(Option<TransportError>),
}

struct LineCallDriver<O: FrameOutlet> {
    handle: Arc<RequesterLineHandle<O>>,
    state: LineCallState,
    push: Option<PushFuture>,
}

impl<O: FrameOutlet> CallDriver for LineCallDriver<O> {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallEvent, TransportError>> {
        loop {
            let next = match &mut self.state {
                LineCallState::Sent { pending, .. } => return pending.poll_pop(cx),
                LineCallState::Refused(error) => {
                    let again = || TransportError::Bound { cause: CallRefusal::PolledAfterEnd };
                    return Poll::Ready(Err(error.take().unwrap_or_else(again)));
                }
                LineCallState::Waiting { wish, request } => {
                    match (std::task::ready!(wish.poll(cx)), request.take()) {
                        (Ok(permit), Some((message, landing))) => {
                            self.handle.send_call(permit, message, landing)
                        }
                        _ => LineCallState::Refused(Some(
                            self.handle.line.unreachable_error(self.handle.line.broken_error()),
                        )),
                    }
                }
            };
            self.state = next;
        }
    }

    fn poll_push(
        &mut self,
        cx: &mut Context<'_>,
        data: &[Bytes],
    ) -> Poll<Result<(), TransportError>> {
        let LineCallState::Sent { id, pending } = &self.state else {
            return Poll::Ready(Err(TransportError::Bound { cause: CallRefusal::NothingWanted }));
        };
        if self.push.is_none() {
            let bytes = pending.answer_wanted(data)?;
            let push = send_push(self.handle.line.clone(), *id, data.to_vec(), bytes);
            self.push = Some(Box::pin(push));
        }
        let Some(push) = &mut self.push else {
            return Poll::Pending;
        };
        let result = std::task::ready!(push.as_mut().poll(cx));
        self.push = None;
        Poll::Ready(result)
    }
}

async fn send_push<O: FrameOutlet>(
    line: Arc<RequesterLine<O>>,
    id: u64,
    data: Vec<Bytes>,
    bytes: u64,
) -> Result<(), TransportError> {
    let room = line.outlet.reserve_bytes(bytes).await.ok_or_else(|| line.broken_error())?;
    let frame = OutgoingFrame::new(FrameHeader::new(FrameKind::Push, id), Bytes::new(), data)
        .with_permit(room);
    {
        // Once the call is out of the table, the peer may already know that no push follows.
        let calls = line.calls.lock();
        if !calls.open.contains_key(&id) {
            return Err(TransportError::Failed {
                peer: line.peer.clone(),
                cause: NoReplyCause::EndedBeforePush,
            });
        }
        line.outlet.push_frame(frame);
    }
    line.outlet.flush_frames();
    Ok(())
}

impl<O: FrameOutlet> Drop for LineCallDriver<O> {
    fn drop(&mut self) {
        if let LineCallState::Sent { id, pending } = &self.state {
            self.handle.line.cancel_call(*id, pending);
        }
    }
}

//! Owns the in-process stand-in for a network, with faults: it copies memory into landings, as a
//! NIC would.
//!
//! Owns the event orders of a network: parts in flight, cancels that cross replies, connections
//! that break in the middle of a part. For tests of every crate; not a product path.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::faults::{FaultState, InProcessFaults};
use super::share_connection::{no_reply, panic_error, pull_by_copy, push_by_copy};
use crate::calls::PendingCall;
use crate::landing::Landing;
use crate::metrics::transport_metrics;
use crate::transport::{
    CallDriver, CallEvent, CallLoad, CallRefusal, CallService, IncomingCall, LandingUse, LossCause,
    OutgoingCall, PeerConnection, ReplyDriver, ReplyPart, ReplySender, TransportError,
    TransportKind, UnreachableCause,
};

const PEER: &str = "in-process peer";

pub(super) fn open_copy_connection(
    service: Arc<dyn CallService>,
    faults: InProcessFaults,
) -> Arc<dyn PeerConnection> {
    Arc::new(CopyConnection {
        service,
        wire: Arc::new(InProcessWire {
            faults: faults.fault_state().clone(),
            calls: Mutex::new(CopyCallTable::default()),
        }),
    })
}

struct CopyConnection {
    service: Arc<dyn CallService>,
    wire: Arc<InProcessWire>,
}

/// State that both sides of the connection share.
struct InProcessWire {
    faults: Arc<FaultState>,
    calls: Mutex<CopyCallTable>,
}

#[derive(Default)]
struct CopyCallTable {
    next: u64,
    open: HashMap<u64, CopyCallEntry>,
    broken: Option<TransportError>,
}

struct CopyCallEntry {
    pending: Arc<PendingCall>,
    landing_bytes: u64,
    handler: Option<AbortHandle>,
}

impl PeerConnection for CopyConnection {
    fn transport_kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn landing_use(&self) -> LandingUse {
        LandingUse::Wholly
    }

    fn start_call(&self, message: Bytes, landing: Option<Landing>) -> OutgoingCall {
        let landing_bytes = landing.as_ref().map_or(0, Landing::total_bytes);
        let pending = Arc::new(PendingCall::new(TransportKind::Tcp, landing, None));
        let mut calls = self.wire.calls.lock();
        calls.next += 1;
        let id = calls.next;
        if let Some(error) = calls.broken.clone() {
            drop(calls);
            pending.settle_with_error(TransportError::Unreachable {
                peer: PEER.into(),
                cause: UnreachableCause::Broken(Arc::new(error)),
            });
        } else {
            let open = CopyCallEntry { pending: pending.clone(), landing_bytes, handler: None };
            calls.open.insert(id, open);
            drop(calls);
            self.spawn_handler(id, message, landing_bytes, pending.clone());
        }
        OutgoingCall::new(Box::new(CopyCall { id, pending, wire: self.wire.clone() }))
    }

    fn broken_reason(&self) -> Option<TransportError> {
        self.wire.calls.lock().broken.clone()
    }

    fn call_load(&self) -> CallLoad {
        let calls = self.wire.calls.lock();
        let landing_bytes = calls.open.values().map(|call| call.landing_bytes).sum();
        CallLoad { calls: calls.open.len(), landing_bytes, is_full: false }
    }
}

impl CopyConnection {
    fn spawn_handler(
        &self,
        id: u64,
        message: Bytes,
        landing_bytes: u64,
        pending: Arc<PendingCall>,
    ) {
        let reply = ReplySender::new(Box::new(CopyReply {
            id,
            landing_bytes,
            answered: false,
            pending: pending.clone(),
            wire: self.wire.clone(),
        }));
        let incoming = IncomingCall { message, landing_bytes, peer: PEER.into(), role: None };
        let service = self.service.clone();
        // May be aborted at any await; a cancel reaches the handler in that way. Ends with its call
        // or its connection.
        let task = tokio::spawn(async move {
            let serve = service.serve_call(incoming, reply);
            if let Err(panic) = AssertUnwindSafe(serve).catch_unwind().await {
                pending.settle_with_error(panic_error(PEER, &*panic));
            }
        });
        if let Some(open) = self.wire.calls.lock().open.get_mut(&id) {
            open.handler = Some(task.abort_handle());
        }
    }
}

impl InProcessWire {
    /// Applies a delivery to its call, unless the connection breaks instead.
    fn apply_delivery(&self, id: u64, delivery: CopyDelivery) {
        let Some(pending) = self.calls.lock().open.get(&id).map(|o| o.pending.clone()) else {
            return;
        };
        if self.faults.breaks_now() {
            if let CopyDelivery::Part(part) = &delivery {
                // Half of the bytes are there already: a requester must never see them.
                write(&pending, part, part.data_bytes() / 2);
            }
            self.break_down();
            return;
        }
        let settled = delivery.settles_call();
        match delivery {
            CopyDelivery::Part(part) => {
                if let Some(data) = write(&pending, &part, part.data_bytes()) {
                    pending.deliver_event(CallEvent::Part(ReplyPart { data, ..part }));
                }
            }
            CopyDelivery::Wanted { message, bytes } => {
                pending.deliver_event(CallEvent::Wanted { message, bytes });
            }
            CopyDelivery::End(error) => pending.settle_with_error(error),
        }
        if settled {
            self.calls.lock().open.remove(&id);
        }
    }

    fn break_down(&self) {
        let error = TransportError::Lost { peer: PEER.into(), cause: LossCause::Injected };
        let mut calls = self.calls.lock();
        calls.broken = Some(error.clone());
        let open = std::mem::take(&mut calls.open);
        drop(calls);
        for (_, call) in open {
            call.pending.settle_with_error(error.clone());
            if let Some(handler) = call.handler {
                handler.abort();
            }
        }
    }

    fn send_delivery(self: &Arc<Self>, id: u64, delivery: CopyDelivery) {
        let wire = self.clone();
        self.faults.run_or_hold(id, move || wire.apply_delivery(id, delivery));
    }
}

/// Writes the first `bytes` of a part into the landing. Returns the pieces when that is all of it.
fn write(pending: &PendingCall, part: &ReplyPart, bytes: u64) -> Option<Vec<Bytes>> {
    let mut fill = match pending.claim_range(part.offset, part.data_bytes()) {
        Ok(fill) => fill,
        Err(error) => {
            pending.settle_with_error(TransportError::Protocol {
                peer: PEER.into(),
                breach: error.into(),
            });
            return None;
        }
    };
    let mut left = bytes as usize;
    for piece in &part.data {
        let now = piece.len().min(left);
        fill.copy_from(&piece[..now]);
        left -= now;
    }
    (fill.missing_bytes() == 0).then(|| fill.into_vouched_bytes())
}

enum CopyDelivery {
    Part(ReplyPart),
    Wanted { message: Bytes, bytes: u64 },
    End(TransportError),
}

impl CopyDelivery {
    fn settles_call(&self) -> bool {
        match self {
            Self::Part(part) => part.last,
            Self::Wanted { .. } => false,
            Self::End(_) => true,
        }
    }
}

struct CopyCall {
    id: u64,
    pending: Arc<PendingCall>,
    wire: Arc<InProcessWire>,
}

impl CallDriver for CopyCall {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallEvent, TransportError>> {
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

impl Drop for CopyCall {
    fn drop(&mut self) {
        if !self.pending.cancel_call() {
            return;
        }
        if self.wire.faults.late_replies() {
            // The handler's own last part, or its end, settles the call.
            return;
        }
        let handler =
            self.wire.calls.lock().open.get_mut(&self.id).and_then(|open| open.handler.take());
        if let Some(handler) = handler {
            handler.abort();
        }
        // The acknowledgement queues up behind the parts that are still in flight.
        self.wire.send_delivery(self.id, CopyDelivery::End(TransportError::Cancelled));
    }
}

struct CopyReply {
    id: u64,
    landing_bytes: u64,
    answered: bool,
    pending: Arc<PendingCall>,
    wire: Arc<InProcessWire>,
}

#[async_trait]
impl ReplyDriver for CopyReply {
    async fn send_part(
        &mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
        last: bool,
    ) -> Result<(), TransportError> {
        self.wire.faults.reorder_calls().await;
        let part = ReplyPart { message, offset, data, last };
        check_part(&part, self.landing_bytes)?;
        self.check_open()?;
        transport_metrics().bytes_out[TransportKind::Tcp].inc_by(part.data_bytes());
        self.answered = part.last;
        self.wire.send_delivery(self.id, CopyDelivery::Part(part));
        Ok(())
    }

    async fn pull_data(
        &mut self,
        message: Bytes,
        landing: Landing,
    ) -> Result<Vec<Bytes>, TransportError> {
        self.check_open()?;
        let (wire, id) = (self.wire.clone(), self.id);
        pull_by_copy(&self.pending, landing, move |bytes| {
            wire.send_delivery(id, CopyDelivery::Wanted { message, bytes });
            Ok(())
        })
        .await
    }
}

impl CopyReply {
    fn check_open(&self) -> Result<(), TransportError> {
        if let Some(error) = self.wire.calls.lock().broken.clone() {
            return Err(error);
        }
        if self.pending.is_cancelled() && !self.wire.faults.late_replies() {
            return Err(TransportError::Cancelled);
        }
        Ok(())
    }
}

impl Drop for CopyReply {
    fn drop(&mut self) {
        if !self.answered {
            self.wire.send_delivery(self.id, CopyDelivery::End(no_reply(PEER)));
        }
    }
}

/// Refuses a part here for which the requester would have to cut the connection.
pub(crate) fn check_part(part: &ReplyPart, landing_bytes: u64) -> Result<(), TransportError> {
    let end = part.offset.saturating_add(part.data_bytes());
    if end > landing_bytes {
        let offset = part.offset;
        let cause = CallRefusal::OutsideLanding { offset, end, landing_bytes };
        return Err(TransportError::Bound { cause });
    }
    Ok(())
}

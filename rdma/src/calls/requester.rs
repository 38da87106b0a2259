//! Owns the requesting side of a connection: the table of open calls and the connection's task.
//!
//! Keeps every landing until its call is settled. Only that task settles calls, once nothing can
//! write to their landings any more.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call_credits::CallCredits;
use super::{
    CallOptions, FrameBody, FrameHeader, FrameInlet, FrameKind, FrameOutlet, HandshakeAgreement,
    OutgoingFrame, PendingCall,
};
use crate::landing::LandingFill;
use crate::metrics::{ConnectionSide, GaugeGuard, transport_metrics};
use crate::transport::{
    CallEvent, LossCause, NoReplyCause, ProtocolBreach, ReplyPart, TransportError, UnreachableCause,
};

/// Runs the reader, the writer and the cancel watchdog of one connection in one task.
pub(super) async fn run_connection<O: FrameOutlet>(
    line: Arc<RequesterLine<O>>,
    mut inlet: impl FrameInlet,
    hung_up: CancellationToken,
) {
    let all = transport_metrics();
    let _open = GaugeGuard::add_to(&all.connections[(O::KIND, ConnectionSide::Requester)], 1);
    let error = tokio::select! {
        error = line.read(&mut inlet) => error,
        written = line.outlet.run() => match written {
            Ok(()) => line.lost_error(LossCause::ClosedHere),
            Err(error) => line.lost_error(error.into()),
        },
        waited = line.wait_for_overdue_cancel() => {
            line.lost_error(LossCause::CancelOverdue(waited))
        }
        () = hung_up.cancelled() => line.lost_error(LossCause::ClosedHere),
    };
    if let TransportError::Protocol { peer, breach } = &error {
        all.protocol_violations[ConnectionSide::Requester].inc();
        tracing::warn!(peer, reason = %breach, "cut a connection whose peer broke the protocol");
    }
    line.break_off(&error);
    line.outlet.prepare_close().await;
    line.settle_all(error);
}

/// State that the handle, the calls and the tasks of one connection share.
pub(super) struct RequesterLine<O: FrameOutlet> {
    /// Declared first: even a line that is merely dropped closes before the landings of its calls
    /// go.
    pub(super) outlet: O,
    pub(super) peer: String,
    pub(super) message_bytes_max: u32,
    cancel_ack_deadline: Duration,
    /// The same for a call that lends another process's memory, while its read waits for it.
    lending_cancel_ack_deadline: Duration,
    pub(super) credits: Arc<CallCredits>,
    /// Count of frames received.
    pub(super) heard: AtomicU64,
    /// Set after `calls.broken`, for readers that need no reason.
    pub(super) is_broken: AtomicBool,
    pub(super) calls: Mutex<RequesterCallTable>,
    /// Cancels that may lack an acknowledgement, each with its deadline, the next one first.
    cancels: Mutex<VecDeque<UnheardCancel>>,
    cancelled: Notify,
}

/// A cancel that may lack its acknowledgement.
#[derive(Clone, Copy)]
struct UnheardCancel {
    call: u64,
    began: Instant,
    /// When it is looked at.
    until: Instant,
    patience: Duration,
}

impl UnheardCancel {
    fn new(call: u64, patience: Duration) -> Self {
        let began = Instant::now();
        Self { call, began, until: began + patience, patience }
    }
}

/// Puts a cancel where its deadline belongs.
fn watch_cancel(cancels: &mut VecDeque<UnheardCancel>, cancel: UnheardCancel) {
    let at = cancels.partition_point(|other| other.until <= cancel.until);
    cancels.insert(at, cancel);
}

/// A look this much after a deadline means that this thread was away, not that the peer is silent.
const LATE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct RequesterCallTable {
    pub(super) next: u64,
    pub(super) open: HashMap<u64, Arc<PendingCall>>,
    pub(super) broken: Option<TransportError>,
}

impl<O: FrameOutlet> RequesterLine<O> {
    /// Makes the line to `peer`, with what the handshake agreed on and no call yet.
    pub(super) fn new(
        outlet: O,
        peer: String,
        agreed: &HandshakeAgreement,
        options: &CallOptions,
    ) -> Self {
        Self {
            outlet,
            peer,
            message_bytes_max: agreed.frame_bytes_max,
            cancel_ack_deadline: options.settings.cancel_ack_deadline.0,
            lending_cancel_ack_deadline: options.settings.lending_cancel_ack_deadline.0,
            credits: CallCredits::new(agreed.calls_in_flight_max as usize),
            heard: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            calls: Mutex::new(RequesterCallTable::default()),
            cancels: Mutex::new(VecDeque::new()),
            cancelled: Notify::new(),
        }
    }

    async fn read(&self, inlet: &mut impl FrameInlet) -> TransportError {
        loop {
            let header = match inlet.next_header().await {
                Ok(Some(header)) => header,
                Ok(None) => return self.lost_error(LossCause::ClosedByPeer),
                Err(error) => return error.into_transport_error(self.peer.clone()),
            };
            self.heard.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = self.handle_frame(&header, inlet).await {
                return error;
            }
        }
    }

    async fn handle_frame(
        &self,
        header: &FrameHeader,
        inlet: &mut impl FrameInlet,
    ) -> Result<(), TransportError> {
        match header.kind {
            FrameKind::Part | FrameKind::Wanted | FrameKind::Fail => {}
            FrameKind::CancelAck => return self.settle_cancelled(header.call),
            FrameKind::Goodbye => {
                let goodbye = self.lost_error(LossCause::ShuttingDown);
                // Calls in flight go on; new calls go elsewhere.
                self.calls.lock().broken.get_or_insert(goodbye);
                self.is_broken.store(true, Ordering::Release);
                return Ok(());
            }
            kind => {
                let to = "requester";
                return Err(self.protocol_error(ProtocolBreach::WrongSide { kind, to }));
            }
        }
        let pending = self.calls.lock().open.get(&header.call).cloned();
        let Some(pending) = pending else {
            let (kind, call) = (header.kind, header.call);
            return Err(self.protocol_error(ProtocolBreach::NotOpen { kind, call }));
        };
        let mut fill = pending
            .claim_range(header.offset, header.data_bytes)
            .map_err(|error| self.protocol_error(error.into()))?;
        let body = inlet
            .receive_body(header, &mut fill)
            .await
            .map_err(|error| error.into_transport_error(self.peer.clone()))?;
        self.deliver_body(header, &pending, body, fill)
    }

    fn deliver_body(
        &self,
        header: &FrameHeader,
        pending: &PendingCall,
        body: FrameBody,
        fill: LandingFill,
    ) -> Result<(), TransportError> {
        let FrameBody { message, data, .. } = body;
        if header.placed && data.is_none() && !pending.is_described() {
            // The landing would still show an earlier call's data.
            return Err(self.protocol_error(ProtocolBreach::UndescribedLanding));
        }
        if header.last || header.kind == FrameKind::Fail {
            self.close_call(header);
        }
        let event = match header.kind {
            FrameKind::Fail => {
                pending.settle_with_error(TransportError::Failed {
                    peer: self.peer.clone(),
                    cause: NoReplyCause::Told(String::from_utf8_lossy(&message).into_owned()),
                });
                return Ok(());
            }
            FrameKind::Wanted => CallEvent::Wanted { message, bytes: header.lent_bytes },
            _ => CallEvent::Part(ReplyPart {
                message,
                offset: header.offset,
                data: data.unwrap_or_else(|| fill.into_vouched_bytes()),
                last: header.last,
            }),
        };
        if pending.deliver_event(event) {
            Ok(())
        } else {
            Err(self.protocol_error(ProtocolBreach::TooManyParts))
        }
    }

    /// Takes a settled call out of the table. If the peer lent memory for a push, tells it that no
    /// push follows.
    fn close_call(&self, header: &FrameHeader) {
        let acknowledge = {
            let mut calls = self.calls.lock();
            let pending = calls.open.remove(&header.call);
            // A cancel in flight says the same.
            let cancelled = pending.is_some_and(|pending| pending.is_cancelled());
            header.pull_open && !cancelled
        };
        if acknowledge {
            self.outlet.push_frame(OutgoingFrame::control_frame(FrameKind::CancelAck, header.call));
            self.outlet.flush_frames();
        }
    }

    fn settle_cancelled(&self, call: u64) -> Result<(), TransportError> {
        let mut calls = self.calls.lock();
        match calls.open.get(&call) {
            Some(pending) if pending.is_cancelled() => {}
            _ => {
                drop(calls);
                return Err(self.protocol_error(ProtocolBreach::NoCancel { call }));
            }
        }
        let pending = calls.open.remove(&call);
        drop(calls);
        if let Some(pending) = pending {
            pending.settle_with_error(TransportError::Cancelled);
        }
        Ok(())
    }

    pub(super) fn cancel_call(&self, id: u64, pending: &PendingCall) {
        let tell = {
            let calls = self.calls.lock();
            let tell = pending.cancel_call() && calls.open.contains_key(&id);
            if tell {
                self.outlet.push_frame(OutgoingFrame::control_frame(FrameKind::Cancel, id));
            }
            tell
        };
        if tell {
            self.outlet.flush_frames();
            let mut cancels = self.cancels.lock();
            let calls = self.calls.lock();
            while cancels.front().is_some_and(|next| !calls.open.contains_key(&next.call)) {
                cancels.pop_front();
            }
            drop(calls);
            let is_foreign = pending.foreign_place().is_some();
            let patience = if is_foreign {
                self.lending_cancel_ack_deadline.min(self.cancel_ack_deadline)
            } else {
                self.cancel_ack_deadline
            };
            watch_cancel(&mut cancels, UnheardCancel::new(id, patience));
            drop(cancels);
            self.cancelled.notify_one();
        }
    }

    /// Ends when a cancel has waited too long for its acknowledgement. Returns how long.
    async fn wait_for_overdue_cancel(&self) -> Duration {
        loop {
            let next = self.cancels.lock().front().copied();
            let Some(cancel) = next else {
                self.cancelled.notified().await;
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until(cancel.until) => {}
                // It may have to be answered sooner.
                () = self.cancelled.notified() => continue,
            }
            let pending = self.calls.lock().open.get(&cancel.call).cloned();
            let mut cancels = self.cancels.lock();
            cancels.retain(|other| other.call != cancel.call);
            let Some(pending) = pending else { continue };
            let now = Instant::now();
            // A thread that was away may not have read what came meanwhile.
            let is_late = now > cancel.until + LATE;
            let is_waited_for = pending.foreign_place().is_some_and(|place| place.is_waited_for());
            if !is_late && is_waited_for {
                return cancel.patience;
            }
            if !is_late && now - cancel.began >= self.cancel_ack_deadline {
                return self.cancel_ack_deadline;
            }
            let until = now + cancel.patience.min(self.cancel_ack_deadline);
            watch_cancel(&mut cancels, UnheardCancel { until, ..cancel });
        }
    }

    /// Takes no more calls.
    fn break_off(&self, error: &TransportError) {
        self.calls.lock().broken = Some(error.clone());
        self.is_broken.store(true, Ordering::Release);
    }

    /// Settles every call. The reader is gone, so nothing can write to a landing any more.
    fn settle_all(&self, error: TransportError) {
        let open = std::mem::take(&mut self.calls.lock().open);
        self.outlet.close();
        self.credits.close();
        for pending in open.into_values() {
            pending.settle_with_error(error.clone());
        }
    }

    pub(super) fn broken_error(&self) -> TransportError {
        let broken = self.calls.lock().broken.clone();
        broken.unwrap_or_else(|| self.lost_error(LossCause::Closed))
    }

    /// Returns the error of a call that was never sent because the connection is over.
    pub(super) fn unreachable_error(&self, broken: TransportError) -> TransportError {
        let cause = UnreachableCause::Broken(Arc::new(broken));
        TransportError::Unreachable { peer: self.peer.clone(), cause }
    }

    fn lost_error(&self, cause: LossCause) -> TransportError {
        TransportError::Lost { peer: self.peer.clone(), cause }
    }

    fn protocol_error(&self, breach: ProtocolBreach) -> TransportError {
        TransportError::Protocol { peer: self.peer.clone(), breach }
    }
}

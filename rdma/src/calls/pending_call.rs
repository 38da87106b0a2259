//! Owns one call of a transport's requesting side: its landing, its events, and whether it is
//! settled.
//!
//! Owns the rule of quarantine: the landing stays here until the call is settled, even if nobody
//! wants the call any more. Does not move bytes and sends nothing; a transport asks it what to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::Histogram;
use tokio::sync::oneshot;

use super::call_credits::CreditPermit;
use crate::foreign_memory::BodyPlace;
use crate::landing::{Landing, LandingClaimError, LandingFill};
use crate::metrics::{GaugeGuard, SettledOutcome, transport_metrics};
use crate::transport::{CallEvent, CallRefusal, TransportError, TransportKind};

/// Most events that a call may hold before its requester takes them. A landing of 16 MiB in pages
/// of 4 KiB has as many parts. A peer that sends more floods a requester that can't make it stop.
pub(crate) const EVENTS_QUEUED_MAX: usize = 4096;

/// Most message bytes that a call may hold before its requester takes them. No landing bounds the
/// messages of a flood. Real messages have some hundred bytes.
pub(crate) const MESSAGE_BYTES_QUEUED_MAX: usize = 4 << 20;

/// The right to one call in flight on a connection.
pub(crate) struct CountedCredit {
    _permit: CreditPermit,
    _gauge: GaugeGuard,
}

impl CountedCredit {
    pub(crate) fn new(permit: CreditPermit) -> Self {
        Self { _permit: permit, _gauge: GaugeGuard::add_to(&transport_metrics().credits_in_use, 1) }
    }
}

type CallEventResult = Result<CallEvent, TransportError>;

/// A requester's push that a task in this process waits for (in-process transports only).
pub(crate) struct InProcessPull {
    pub(crate) fill: LandingFill,
    pub(crate) done: oneshot::Sender<Vec<Bytes>>,
}

pub(crate) struct PendingCall {
    kind: TransportKind,
    /// True if the peer knows where the landing is, so that it can place data there by itself.
    described: bool,
    begun: Instant,
    /// Histogram of the call's rail, where it has one.
    rail_seconds: Option<Histogram>,
    state: Mutex<PendingCallState>,
}

struct PendingCallState {
    landing: Option<Landing>,
    events: VecDeque<CallEventResult>,
    /// Length of all messages in `events`.
    message_bytes: usize,
    requester: Option<Waker>,
    server: Option<Waker>,
    /// Bytes of the last unanswered `Wanted`.
    wanted: Option<u64>,
    pull: Option<InProcessPull>,
    cancelled: bool,
    settled: bool,
    quarantine: Option<LandingQuarantine>,
    /// Given back when the call is settled, not when it is cancelled: a cancelled call still costs
    /// the peer.
    credit: Option<CountedCredit>,
}

/// The parts that a settled call lets go of.
type SettledRemains =
    (Option<Landing>, Option<LandingQuarantine>, Option<CountedCredit>, Option<InProcessPull>);

/// A guard that shows a landing in the metrics while it is in quarantine.
struct LandingQuarantine {
    _count: GaugeGuard,
    _bytes: GaugeGuard,
}

impl PendingCallState {
    fn pop_event(&mut self) -> Option<CallEventResult> {
        let event = self.events.pop_front()?;
        if let Ok(event) = &event {
            self.message_bytes -= message_bytes(event);
        }
        Some(event)
    }
}

fn message_bytes(event: &CallEvent) -> usize {
    match event {
        CallEvent::Part(part) => part.message.len(),
        CallEvent::Wanted { message, .. } => message.len(),
    }
}

impl PendingCall {
    pub(crate) fn new(
        kind: TransportKind,
        landing: Option<Landing>,
        credit: Option<CountedCredit>,
    ) -> Self {
        Self {
            kind,
            described: false,
            begun: Instant::now(),
            rail_seconds: None,
            state: Mutex::new(PendingCallState {
                landing,
                events: VecDeque::new(),
                message_bytes: 0,
                requester: None,
                server: None,
                wanted: None,
                pull: None,
                cancelled: false,
                settled: false,
                quarantine: None,
                credit,
            }),
        }
    }

    /// Records whether the peer was told where the landing is.
    pub(crate) fn mark_described(mut self, described: bool) -> Self {
        self.described = described;
        self
    }

    /// Counts the call's seconds for a rail, too.
    pub(crate) fn timed_by(mut self, rail_seconds: Option<Histogram>) -> Self {
        self.rail_seconds = rail_seconds;
        self
    }

    pub(crate) fn is_described(&self) -> bool {
        self.described
    }

    /// Takes a range of the landing out to be written. Works for a cancelled call as well, which
    /// still owns its memory.
    pub(crate) fn claim_range(
        &self,
        offset: u64,
        bytes: u64,
    ) -> Result<LandingFill, LandingClaimError> {
        match &mut self.state.lock().landing {
            Some(landing) => landing.claim_range(offset, bytes),
            None if bytes == 0 => Ok(LandingFill::default()),
            None => Err(LandingClaimError::Outside {
                offset,
                end: offset.saturating_add(bytes),
                landing_bytes: 0,
            }),
        }
    }

    /// Gives the requester an event. Returns `false` when its queue is over the bound. A cancelled
    /// call drops the event.
    pub(crate) fn deliver_event(&self, event: CallEvent) -> bool {
        let mut state = self.state.lock();
        if state.settled {
            return true;
        }
        match &event {
            CallEvent::Part(part) => {
                let bytes: usize = part.data.iter().map(Bytes::len).sum();
                transport_metrics().bytes_in[self.kind].inc_by(bytes as u64);
                if part.last {
                    // Dropped at once: a requester that sees the last part may rely on the memory
                    // and the credit being back.
                    drop(self.settle_locked(&mut state, SettledOutcome::Done));
                }
            }
            CallEvent::Wanted { bytes, .. } => state.wanted = Some(*bytes),
        }
        let room = state.events.len() < EVENTS_QUEUED_MAX
            && state.message_bytes < MESSAGE_BYTES_QUEUED_MAX;
        let wake = if state.cancelled {
            None
        } else {
            state.message_bytes += message_bytes(&event);
            state.events.push_back(Ok(event));
            state.requester.take()
        };
        drop(state);
        if let Some(waker) = wake {
            waker.wake();
        }
        room
    }

    /// Ends the call with an error. The peer must be unable to write to the landing from now on.
    pub(crate) fn settle_with_error(&self, error: TransportError) {
        let mut state = self.state.lock();
        if state.settled {
            return;
        }
        let outcome = match &error {
            TransportError::Failed { .. } => SettledOutcome::Failed,
            _ => SettledOutcome::Lost,
        };
        drop(self.settle_locked(&mut state, outcome));
        if !state.cancelled {
            state.events.push_back(Err(error));
        }
        let wake = state.requester.take();
        drop(state);
        if let Some(waker) = wake {
            waker.wake();
        }
    }

    /// Cancels the call for its requester. Returns `true` if the peer has to be told; the landing
    /// is in quarantine until it has answered.
    pub(crate) fn cancel_call(&self) -> bool {
        let mut state = self.state.lock();
        let events = std::mem::take(&mut state.events);
        state.message_bytes = 0;
        let (pull, server) = (state.pull.take(), state.server.take());
        state.requester = None;
        let tell = !state.settled && !state.cancelled;
        if tell {
            state.cancelled = true;
            let metrics = transport_metrics();
            state.quarantine = state.landing.as_ref().map(|landing| LandingQuarantine {
                _count: GaugeGuard::add_to(&metrics.quarantined, 1),
                _bytes: GaugeGuard::add_to(&metrics.quarantined_bytes, landing.total_bytes()),
            });
        }
        drop(state);
        drop((events, pull));
        if let Some(waker) = server {
            waker.wake();
        }
        tell
    }

    /// Returns the place in another process's memory that its landing lies in.
    pub(crate) fn foreign_place(&self) -> Option<Arc<BodyPlace>> {
        self.state.lock().landing.as_ref().and_then(Landing::foreign_place).cloned()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.lock().cancelled
    }

    /// Takes the next event, if there is one.
    pub(crate) fn pop_event(&self) -> Option<CallEventResult> {
        let mut state = self.state.lock();
        let event = state.pop_event()?;
        let server = state.server.take();
        drop(state);
        if let Some(waker) = server {
            waker.wake();
        }
        Some(event)
    }

    pub(crate) fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<CallEventResult> {
        if let Some(event) = self.pop_event() {
            return Poll::Ready(event);
        }
        let mut state = self.state.lock();
        // An event may have come between the two locks.
        if let Some(event) = state.pop_event() {
            return Poll::Ready(event);
        }
        if state.settled {
            return Poll::Ready(Err(TransportError::Bound { cause: CallRefusal::PolledAfterEnd }));
        }
        match &mut state.requester {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            waker => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Waits until fewer than `events_max` events are queued. For transports that can make the
    /// serving side wait.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, events_max: usize) -> Poll<()> {
        let mut state = self.state.lock();
        if state.events.len() < events_max {
            return Poll::Ready(());
        }
        state.server = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Records the waiter for the requester's push. At most one pull waits at a time.
    pub(crate) fn offer_pull(&self, pull: InProcessPull) {
        self.state.lock().pull = Some(pull);
    }

    pub(crate) fn take_pull(&self) -> Option<InProcessPull> {
        self.state.lock().pull.take()
    }

    /// Checks a push against the last `Wanted`, which it answers.
    pub(crate) fn answer_wanted(&self, data: &[Bytes]) -> Result<u64, TransportError> {
        let bytes: u64 = data.iter().map(|piece| piece.len() as u64).sum();
        let mut state = self.state.lock();
        match state.wanted {
            Some(wanted) if wanted == bytes => {
                state.wanted = None;
                transport_metrics().bytes_out[self.kind].inc_by(bytes);
                Ok(bytes)
            }
            Some(wanted) => Err(TransportError::Bound {
                cause: CallRefusal::PushBytes { wanted, pushed: bytes },
            }),
            None => Err(TransportError::Bound { cause: CallRefusal::NothingWanted }),
        }
    }

    fn settle_locked(
        &self,
        state: &mut PendingCallState,
        outcome: SettledOutcome,
    ) -> SettledRemains {
        let outcome = if state.cancelled { SettledOutcome::Cancelled } else { outcome };
        let metrics = transport_metrics();
        metrics.calls[(self.kind, outcome)].inc();
        let seconds = self.begun.elapsed().as_secs_f64();
        metrics.call_seconds[self.kind].observe(seconds);
        if let Some(rail) = &self.rail_seconds {
            rail.observe(seconds);
        }
        state.settled = true;
        (state.landing.take(), state.quarantine.take(), state.credit.take(), state.pull.take())
    }
}

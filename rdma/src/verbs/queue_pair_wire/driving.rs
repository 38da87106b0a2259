//! Owns the turns of the task that drives a queue pair: it takes completions, polls for the next
//! ones while they are soon to come, and sleeps until the NIC's event, so an idle connection costs
//! nothing.
//!
//! `poll_budget` decides when polling is worth it.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use super::heartbeat::HeartbeatTimer;
use super::{QueuePairWire, QueuePairWireState};
use crate::calls::{FrameHeader, FrameKind};
use crate::metrics::DriverWait;
use crate::verbs::sys::NotifyEvent;

/// Times that the thread's other tasks may run before this one waits for the NIC's event. The wait
/// costs three system calls, and the other tasks' work often makes the next completion.
const YIELDS_MAX: u32 = 1;

/// Looks at the completion queue before the thread's other tasks have their turn. A look costs some
/// 0.1 µs; a turn costs a system call, since the runtime then looks at its descriptors.
const LOOKS_MAX: u32 = 32;

impl QueuePairWireState {
    /// Returns true while something waits for the completions of what this side has sent.
    fn needs_completions(&self) -> bool {
        // A grant that could not be sent waits for its slot.
        self.sender.needs_completions() || self.credits.must_grant()
    }
}

impl QueuePairWire {
    /// Drives the queue pair until `over`, which is called whenever something has happened.
    pub(in crate::verbs) async fn drive_until(
        &self,
        over: &mut (dyn FnMut(&mut QueuePairWireState) -> bool + Send),
    ) -> io::Result<()> {
        let mut yields = 0;
        let timer = pin!(tokio::time::sleep(self.heartbeat));
        let mut beat = HeartbeatTimer::new(timer);
        loop {
            // What has just arrived is read before anything else is waited for.
            let moved = self.look_for_completions(if yields > 0 { LOOKS_MAX } else { 1 })?;
            if over(&mut self.state.lock()) {
                return Ok(());
            }
            if moved {
                if yields > YIELDS_MAX {
                    self.metrics.rail.waits[DriverWait::Polled].inc();
                }
                yields = 0;
                beat.note_completion();
                tokio::task::consume_budget().await;
                continue;
            }
            if yields < YIELDS_MAX || !self.try_sleep() {
                yields += 1;
                tokio::task::yield_now().await;
                continue;
            }
            self.arm_notify(beat.is_active())?;
            // A completion from before the arming gives no event.
            if !self.poll_completions()? {
                self.metrics.rail.waits[DriverWait::Slept].inc();
                self.wait_for_event(&mut beat).await?;
            }
            self.wake_up();
        }
    }

    /// Has the next completion wake the driver, or, where nothing needs those of what this side
    /// sends, the next message. Only a connection that `is_active` sleeps so, and not for long: what
    /// a device does not tell of is found then.
    fn arm_notify(&self, is_active: bool) -> io::Result<()> {
        let mut state = self.state.lock();
        state.awaits_messages = is_active
            && state.proven
            && state.peer_marks
            && !state.finishing
            && !state.ended
            && !state.needs_completions()
            && self.rail.device.message_events.may_be_used();
        let event =
            if state.awaits_messages { NotifyEvent::Message } else { NotifyEvent::Completion };
        drop(state);
        self.completions.get_ref().0.arm_notify(event)
    }

    /// Wakes a driver that sleeps for messages alone, where something needs the completions of what
    /// was sent.
    pub(super) fn reconsider_sleep(&self, state: &mut QueuePairWireState) {
        if state.awaits_messages && state.needs_completions() {
            state.awaits_messages = false;
            self.work.notify_one();
        }
    }

    /// Sends what is queued until the peer hangs up, for `limit` at most.
    pub(in crate::verbs) async fn ended_within(&self, limit: Duration) {
        let ended = &mut |state: &mut QueuePairWireState| state.ended || state.closed;
        // A broken line has ended as well.
        let _ = tokio::time::timeout(limit, self.drive_until(ended)).await;
    }

    /// Takes completions, by `looks` while polling is worth it.
    fn look_for_completions(&self, looks: u32) -> io::Result<bool> {
        for _ in 1..looks {
            if self.poll_completions()? {
                return Ok(true);
            }
            if !self.may_poll() {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
        self.poll_completions()
    }

    fn may_poll(&self) -> bool {
        self.polls.as_ref().is_some_and(|polls| polls.lock().may_poll(Instant::now()))
    }

    /// Returns true if the driver is to sleep now. From then on `wake_poller` wakes it.
    fn try_sleep(&self) -> bool {
        self.polls.as_ref().is_none_or(|polls| polls.lock().try_sleep(Instant::now()))
    }

    fn wake_up(&self) {
        self.state.lock().awaits_messages = false;
        if let Some(polls) = &self.polls {
            polls.lock().wake_up();
        }
    }

    /// Wakes the driver if it sleeps and what was sent is worth polling for.
    pub(in crate::verbs) fn wake_poller(&self) {
        if let Some(polls) = &self.polls
            && polls.lock().must_wake(Instant::now())
        {
            self.work.notify_one();
        }
    }

    /// Notes a frame that is about to be sent.
    pub(in crate::verbs) fn note_sent_frame(&self, header: &FrameHeader) {
        let Some(polls) = &self.polls else { return };
        let now = Instant::now();
        match header.kind {
            FrameKind::Call => polls.lock().record_call(now),
            FrameKind::Part if !header.last => {}
            FrameKind::Part | FrameKind::Fail | FrameKind::Wanted | FrameKind::Push => {
                polls.lock().record_answer(now);
            }
            _ => {}
        }
    }

    /// Notes a frame that came.
    pub(in crate::verbs) fn note_frame(&self, header: &FrameHeader) {
        let Some(polls) = &self.polls else { return };
        let settles = match header.kind {
            FrameKind::Part => header.last,
            FrameKind::Fail | FrameKind::CancelAck => true,
            _ => false,
        };
        polls.lock().record_arrival(settles, Instant::now());
    }
}

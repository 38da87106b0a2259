//! Owns the waits of one queue pair: its timer, what is sent when that fires, and who else wakes
//! the driver.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::{QueuePairWire, QueuePairWireState};
use crate::verbs::chunk::ChunkHeader;
use crate::verbs::message_events::MESSAGE_SLEEP_MAX;

/// Time that windows have to close before the device is nudged. Soft-RoCE (Linux 6.1) may forget an
/// invalidation that waits for the requests before it, until something else is posted.
const NUDGE_AFTER: Duration = Duration::from_millis(250);

/// The heartbeat's timer: it fires after a whole period without a completion. One timer serves all
/// waits, since making one costs more than most of them.
pub(super) struct HeartbeatTimer<'a> {
    timer: Pin<&'a mut Sleep>,
    silent: bool,
}

impl<'a> HeartbeatTimer<'a> {
    /// Begins a period, which `timer` ends.
    pub(super) fn new(timer: Pin<&'a mut Sleep>) -> Self {
        Self { timer, silent: true }
    }

    /// Has the timer fire within `limit`.
    fn fire_within(&mut self, limit: Duration) {
        let soon = Instant::now() + limit;
        if self.timer.deadline() > soon {
            self.timer.as_mut().reset(soon);
        }
    }

    /// Returns true if something has happened in this period.
    pub(super) fn is_active(&self) -> bool {
        !self.silent
    }

    /// Notes that something has happened in this period.
    pub(super) fn note_completion(&mut self) {
        self.silent = false;
    }
}

impl QueuePairWire {
    /// Waits until there may be something to do.
    pub(super) async fn wait_for_event(&self, beat: &mut HeartbeatTimer<'_>) -> io::Result<()> {
        let (awaits_messages, messages, is_closing) = {
            let state = self.state.lock();
            (state.awaits_messages, state.messages, state.sender.is_closing())
        };
        if awaits_messages {
            beat.fire_within(MESSAGE_SLEEP_MAX);
        } else if is_closing {
            beat.fire_within(NUDGE_AFTER);
        }
        tokio::select! {
            ready = self.completions.readable() => {
                ready?.clear_ready();
                self.completions.get_ref().0.take_event();
                if awaits_messages {
                    self.rail.device.message_events.record_event();
                }
            }
            event = self.next_cm_event() => self.handle_cm_event(&event?),
            () = self.watch.await_failure() => self.record_device_error(),
            () = self.work.notified() => {}
            () = beat.timer.as_mut() => {
                let moved = awaits_messages && self.look_for_missed(messages)?;
                self.send_heartbeat(beat.silent && !moved);
                beat.silent = true;
                beat.timer.as_mut().reset(Instant::now() + self.heartbeat);
            }
        }
        Ok(())
    }

    /// Looks for messages that came without an event since there were `messages`. Returns `true`
    /// when there were completions.
    fn look_for_missed(&self, messages: u64) -> io::Result<bool> {
        let moved = self.poll_completions()?;
        let was_missed =
            self.state.lock().messages > messages && !self.completions.get_ref().0.take_event();
        if was_missed && self.rail.device.message_events.record_miss() {
            tracing::warn!(
                rail = self.rail.rail.metric_label(),
                "a device does not tell of messages that are marked; its connections are woken by \
                every completion (verbs.message_events)"
            );
        }
        Ok(moved)
    }

    fn send_heartbeat(&self, silent: bool) {
        let mut state = self.state.lock();
        if state.sender.is_closing() {
            let QueuePairWireState { pair: Some(pair), sender, .. } = &mut *state else {
                return;
            };
            // The next poll shows an error, see `send_bare`.
            let _ = self.post_work(pair, sender.make_nudge());
        } else if silent && state.sender.is_idle() {
            drop(state);
            // A missing acknowledgement of this heartbeat reveals a dead peer.
            self.send_bare(ChunkHeader::default());
        }
    }

    /// Sends a chunk without a frame, where there is a credit for it.
    fn send_bare(&self, header: ChunkHeader) {
        let mut state = self.state.lock();
        let QueuePairWireState { pair: Some(pair), sender, credits, .. } = &mut *state else {
            return;
        };
        let works = sender.make_bare_chunk(credits, &self.slots, header);
        // A queue pair that takes nothing shows the error at the next poll.
        let _ = self.post_work(pair, works);
    }
}

//! Owns the waits of one queue pair: its timer, what is sent when that fires, and who else wakes
//! the driver.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::{QueuePairWire, QueuePairWireState};
use crate::verbs::chunk::ChunkHeader;

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

    /// Notes that something has happened in this period.
    pub(super) fn note_completion(&mut self) {
        self.silent = false;
    }
}

impl QueuePairWire {
    /// Waits until there may be something to do.
    pub(super) async fn wait_for_event(&self, beat: &mut HeartbeatTimer<'_>) -> io::Result<()> {
        let soon = Instant::now() + NUDGE_AFTER;
        if self.rail.device.windows.is_some()
            && beat.timer.deadline() > soon
            && self.state.lock().sender.is_closing()
        {
            beat.timer.as_mut().reset(soon);
        }
        tokio::select! {
            ready = self.completions.readable() => {
                ready?.clear_ready();
                self.completions.get_ref().0.take_event();
            }
            event = self.next_cm_event() => self.handle_cm_event(&event?),
            () = self.watch.await_failure() => self.record_device_error(),
            () = self.work.notified() => {}
            () = beat.timer.as_mut() => {
                self.send_heartbeat(beat.silent);
                beat.silent = true;
                beat.timer.as_mut().reset(Instant::now() + self.heartbeat);
            }
        }
        Ok(())
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

//! Owns a requester's list of pins to release, and the bound on all its pins.
//!
//! Dropping a piece only adds to the list: it sends nothing, waits for nothing and takes no other
//! lock. The list goes out ahead of the next frame, or after a moment by itself.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::PinQuota;
use crate::calls::{FrameKind, FrameOutlet, OutgoingFrame};
use crate::stream::FrameOutbox;

/// Longest wait of a release for a frame to go with; a connection in use sends one long before.
/// Each wake-up for a release alone costs the worker as much as a small call.
const RELEASE_WAIT: Duration = Duration::from_millis(5);

/// Divisor of the quota: the part that may wait in the list. More goes out at once.
const WAITING_SHARE: u64 = 4;

pub(super) struct PinReleases {
    quota: PinQuota,
    state: Mutex<PinReleaseState>,
    /// Notified when the list is no longer empty, or is long.
    work: Notify,
}

#[derive(Default)]
struct PinReleaseState {
    /// Count of pins that arrived and have not been given to the outbox.
    pins: u32,
    waiting: Vec<u32>,
    waiting_bytes: u64,
}

impl PinReleases {
    /// Makes an empty list. The worker told its `quota` at the start.
    pub(super) fn new(quota: PinQuota) -> Self {
        Self { quota, state: Mutex::new(PinReleaseState::default()), work: Notify::new() }
    }

    /// Admits a pin that arrives. Returns `false` when the worker hands over more than it
    /// announced. Without this bound a worker could make the list and its frames grow for ever.
    pub(super) fn admit_pin(&self) -> bool {
        let mut state = self.state.lock();
        if state.pins >= self.quota.pins_max {
            return false;
        }
        state.pins += 1;
        true
    }

    /// Puts a pin on the list.
    pub(super) fn queue_release(&self, pin: u32, bytes: u64) {
        let mut state = self.state.lock();
        state.waiting.push(pin);
        state.waiting_bytes += bytes;
        let tell = state.waiting.len() == 1 || self.is_urgent(&state);
        drop(state);
        if tell {
            self.work.notify_one();
        }
    }

    /// Queues the release of the listed pins. The queue is bounded, even for a worker that reads
    /// nothing.
    pub(super) fn push_to(&self, outbox: &FrameOutbox<UnixStream>) {
        let mut state = self.state.lock();
        if state.waiting.is_empty() || !outbox.has_control_room() {
            return;
        }
        state.pins -= state.waiting.len() as u32;
        state.waiting_bytes = 0;
        for pin in state.waiting.drain(..) {
            outbox.push_frame(OutgoingFrame::control_frame(FrameKind::Release, u64::from(pin)));
        }
    }

    /// Sends releases that no frame has taken along. Never ends; may be dropped at any await.
    pub(super) async fn send_releases(&self, outbox: &FrameOutbox<UnixStream>) -> ! {
        loop {
            let urgent = {
                let state = self.state.lock();
                (!state.waiting.is_empty()).then(|| self.is_urgent(&state))
            };
            match urgent {
                None => self.work.notified().await,
                Some(true) if outbox.has_control_room() => {
                    self.push_to(outbox);
                    outbox.flush_frames();
                }
                Some(_) => {
                    tokio::select! {
                        () = self.work.notified() => {}
                        () = tokio::time::sleep(RELEASE_WAIT) => {
                            self.push_to(outbox);
                            outbox.flush_frames();
                        }
                    }
                }
            }
        }
    }

    fn is_urgent(&self, state: &PinReleaseState) -> bool {
        state.waiting.len() as u64 >= (u64::from(self.quota.pins_max) / WAITING_SHARE).max(1)
            || state.waiting_bytes >= self.quota.bytes_max / WAITING_SHARE
    }
}

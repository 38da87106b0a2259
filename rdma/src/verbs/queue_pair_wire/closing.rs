//! Owns the end of a queue pair, and of the windows that landings are lent through: what must be
//! closed before which memory goes back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::buffer_ledger::BufferDoubt;
use super::super::sys::{BEACON, CmQueuePair, WorkCompletion};
use super::super::window_pool::{BoundWindows, ClosingWindows};
use super::{POLL_MAX, QueuePairWire, RECEIVE};
use crate::arena::CellHold;
use crate::calls::MemorySegment;
use crate::landing::{Landing, TakeBack};

/// Longest wait for the completions of a queue pair that ends. Devices need microseconds; one that
/// is gone says nothing.
const DRAIN_MAX: Duration = Duration::from_millis(50);

/// Wait for the buffer of a message that was half here, behind the beacon.
const LINGER: Duration = Duration::from_millis(5);

/// Pause between two looks at the completions.
const DRAIN_PAUSE: Duration = Duration::from_micros(50);

/// The windows of a landing that is lent through them.
struct LandingWindows {
    wire: Arc<QueuePairWire>,
    number: u64,
}

impl TakeBack for LandingWindows {
    fn take_back(self: Box<Self>, held: Vec<CellHold>) {
        self.wire.close_windows(self.number, held);
    }
}

impl QueuePairWire {
    /// Opens a landing to the peer of this queue pair alone. Returns the segments to tell the peer.
    pub(in crate::verbs) fn open_windows(
        self: &Arc<Self>,
        landing: &mut Landing,
        places: &[(usize, usize)],
    ) -> Vec<MemorySegment> {
        let device = &self.rail.device;
        let Some((bound, ops, segments)) = device
            .windows
            .as_ref()
            .and_then(|windows| windows.bind_windows(&device.regions, places))
        else {
            return Vec::new();
        };
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return Vec::new();
        }
        state.lent += 1;
        let number = state.lent;
        state.bound.insert(number, bound);
        state.sender.open_windows(ops);
        drop(state);
        landing.taken_back_by(Box::new(LandingWindows { wire: self.clone(), number }));
        segments
    }

    /// Closes the windows over a landing. Drops `held` once no peer can write to it any more.
    pub(in crate::verbs) fn close_windows(&self, number: u64, held: Vec<CellHold>) {
        let mut state = self.state.lock();
        if let Some(bound) = state.bound.remove(&number) {
            state.sender.close_windows(ClosingWindows { bound, held });
            self.pump_locked(&mut state);
            let copied = state.sender.take_copied();
            drop(state);
            drop(copied);
        } else {
            // The end of the queue pair has closed them.
            drop(state);
            drop(held);
        }
    }

    pub(super) fn recycle_windows(&self, closed: Vec<ClosingWindows>) {
        for ClosingWindows { bound, held } in closed {
            drop(held);
            if let Some(windows) = &self.rail.device.windows {
                windows.put_back(bound);
            }
        }
    }

    /// Destroys the queue pair, and then frees what it could touch.
    pub(in crate::verbs) fn close(&self) {
        let (pair, unread, bound, closing) = {
            let mut state = self.state.lock();
            state.closed = true;
            state.ended = true;
            let (unread, bound) =
                (std::mem::take(&mut state.received), std::mem::take(&mut state.bound));
            (state.pair.take(), unread, bound, state.sender.take_closing())
        };
        unread.into_iter().for_each(|(buffer, _)| self.receives.give_back(buffer));
        let (mut windows, held): (Vec<_>, Vec<_>) =
            closing.into_iter().map(|closing| (closing.bound, closing.held)).unzip();
        windows.extend(bound.into_values());
        if let Some(pair) = pair {
            self.destroy_queue_pair(pair, windows);
        }
        drop(held);
        let held = self.state.lock().sender.clear();
        drop(held);
        self.rooms.close();
        self.work.notify_one();
        self.arrived.notify_one();
        self.written.notify_waiters();
        self.driven.store(false, Ordering::Release);
    }
}

impl QueuePairWire {
    /// Destroys the queue pair behind `windows`, and takes back the shared buffers that it had
    /// taken.
    fn destroy_queue_pair(&self, pair: CmQueuePair, windows: Vec<BoundWindows>) {
        // Windows refer to the queue pair; some devices can't destroy it while they are bound.
        pair.stop_traffic();
        drop(windows);
        if self.receives.shared_queue().is_none() {
            return drop(pair);
        }
        let (doubtful, proven) = {
            let state = self.state.lock();
            let unheard = !state.said_end && state.agreed;
            (if unheard { state.credits.arriving_max() } else { 0 }, state.proven)
        };
        // Take completions before the destruction: some devices then forget those that were not
        // taken (SPDK issue 1697).
        let lingers = self.rail.device.is_soft_roce && doubtful > 0 && proven;
        self.drain_completions(&pair, lingers);
        drop(pair);
        self.take_back();
        self.receives.leave_doubt(BufferDoubt { buffers: doubtful, proven });
    }

    /// Takes completions until the device is done with the queue pair, for a bounded time. With
    /// `lingers`, waits a moment longer for the buffer of a message that was half here: Linux's
    /// soft-RoCE loses one that a destruction meets.
    fn drain_completions(&self, pair: &CmQueuePair, lingers: bool) {
        // A device that has failed completes nothing.
        if self.rail.device.health.is_fatal() || pair.post_beacon().is_err() {
            self.take_back();
            return;
        }
        let began = Instant::now();
        let mut done = None;
        loop {
            if self.take_back() {
                done = Some(Instant::now());
            }
            let linger = if lingers { LINGER } else { Duration::ZERO };
            if done.is_some_and(|done| done.elapsed() >= linger) || began.elapsed() > DRAIN_MAX {
                return;
            }
            std::thread::sleep(DRAIN_PAUSE);
        }
    }

    /// Takes completions and gives their buffers back. Returns `true` when the beacon was among
    /// them.
    fn take_back(&self) -> bool {
        let mut polled = [WorkCompletion::NONE; POLL_MAX];
        let mut is_done = false;
        while let Ok(count @ 1..) = self.completions.get_ref().0.poll(&mut polled) {
            for completion in &polled[..count] {
                if completion.id & RECEIVE != 0 {
                    let buffer = (completion.id & !RECEIVE) as u16;
                    self.receives.record_completion(buffer);
                    self.receives.give_back(buffer);
                }
                is_done |= completion.id == BEACON;
            }
        }
        is_done
    }
}

impl Drop for QueuePairWire {
    fn drop(&mut self) {
        self.close();
    }
}

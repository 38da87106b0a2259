//! Owns the end of a queue pair, and of the windows that landings are lent through: what must be
//! closed before which memory goes back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::buffer_ledger::BufferDoubt;
use super::super::sys::{CmQueuePair, WorkCompletion};
use super::super::window_pool::{BoundWindows, ClosingWindows};
use super::{POLL_MAX, QueuePairWire, RECEIVE};
use crate::arena::CellHold;
use crate::calls::MemorySegment;
use crate::landing::{Landing, TakeBack};

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
        let Some((bound, ops, segments)) = self
            .rail
            .windows
            .as_ref()
            .and_then(|windows| windows.bind_windows(&self.rail.region, places))
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
            if let Some(windows) = &self.rail.windows {
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
        if self.receives.shared_queue().is_some() {
            // Take them before the destruction: some devices then forget completions that were not
            // taken.
            self.take_back();
        }
        drop(pair);
        if self.receives.shared_queue().is_some() {
            self.take_back();
            let state = self.state.lock();
            let buffers =
                if state.said_end || !state.agreed { 0 } else { state.credits.arriving_max() };
            self.receives.leave_doubt(BufferDoubt { buffers, proven: state.proven });
        }
    }

    fn take_back(&self) {
        let mut polled = [WorkCompletion::NONE; POLL_MAX];
        while let Ok(1..) = self.completions.get_ref().0.poll(&mut polled).inspect(|&count| {
            for completion in
                polled[..count].iter().filter(|completion| completion.id & RECEIVE != 0)
            {
                let buffer = (completion.id & !RECEIVE) as u16;
                self.receives.record_completion(buffer);
                self.receives.give_back(buffer);
            }
        }) {}
    }
}

impl Drop for QueuePairWire {
    fn drop(&mut self) {
        self.close();
    }
}

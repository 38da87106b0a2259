//! Owns the end of a queue pair, and of the windows that landings are lent through: what must be
//! closed before which memory goes back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::buffer_ledger::BufferDoubt;
use super::super::foreign_regions::LandingRegions;
use super::super::setup_runtime::run_blocking_aside;
use super::super::sys::{BEACON, CmQueuePair, WorkCompletion};
use super::super::window_pool::{BoundWindows, ClosingWindows};
use super::{POLL_MAX, QueuePairWire, RECEIVE};
use tokio_util::task::TaskTracker;

use crate::calls::MemorySegment;
use crate::landing::{Landing, TakeBack};
use crate::memory_span::MemoryHold;

/// Longest wait for the completions of a queue pair that ends. Devices need microseconds; one that
/// is gone says nothing.
pub(in crate::verbs) const DRAIN_MAX: Duration = Duration::from_millis(50);

/// Wait for the buffer of a message that was half here, behind the beacon.
const LINGER: Duration = Duration::from_millis(5);

/// Pause between two looks at the completions.
const DRAIN_PAUSE: Duration = Duration::from_micros(50);

/// How far the end of a queue pair has come.
#[derive(Default)]
pub(super) enum QueuePairEnd {
    #[default]
    NotBegun,
    /// Its completions are taken; the result is that of stopping it.
    Drained(io::Result<()>),
    Over,
    /// It could be neither stopped nor destroyed: its device may still write to what was lent over
    /// it.
    Survived,
}

/// The wait for the completions of a queue pair that is stopped.
struct DrainWatch {
    began: Instant,
    /// When the beacon came.
    done: Option<Instant>,
    /// Longer wait for the buffer of a message that was half here: Linux's soft-RoCE loses one that
    /// a destruction meets.
    linger: Duration,
}

/// The windows of a landing that is lent through them.
struct LandingWindows {
    wire: Arc<QueuePairWire>,
    number: u64,
}

impl TakeBack for LandingWindows {
    fn take_back(self: Box<Self>, held: Vec<MemoryHold>) {
        self.wire.close_windows(self.number, held);
    }
}

/// A landing that the key of its region opens, until its call is settled.
struct KeyedLanding {
    wire: Arc<QueuePairWire>,
}

impl TakeBack for KeyedLanding {
    fn take_back(self: Box<Self>, held: Vec<MemoryHold>) {
        self.wire.release_memory(held);
    }
}

impl QueuePairWire {
    /// Keeps the memory of a landing that was told to the peer, should the queue pair survive.
    pub(in crate::verbs) fn guard_landing(self: &Arc<Self>, landing: &mut Landing) {
        landing.taken_back_by(Box::new(KeyedLanding { wire: self.clone() }));
    }

    /// Opens a landing to the peer of this queue pair alone. Returns the segments to tell the peer.
    pub(in crate::verbs) fn open_windows(
        self: &Arc<Self>,
        landing: &mut Landing,
        regions: &LandingRegions<'_>,
        places: &[(usize, usize)],
    ) -> Vec<MemorySegment> {
        let Some((bound, ops, segments)) = self
            .rail
            .device
            .windows
            .as_ref()
            .and_then(|windows| windows.bind_windows(regions, places))
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
    pub(in crate::verbs) fn close_windows(&self, number: u64, held: Vec<MemoryHold>) {
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
            self.release_memory(held);
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

    /// Destroys the queue pair, and then frees what it could touch. Where another thread is at it,
    /// waits until that is done.
    pub(in crate::verbs) fn close(&self) {
        let _ending = self.ending.lock();
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
            let end = self.destroy_queue_pair(pair, windows);
            self.state.lock().end = end;
        }
        self.release_memory(held);
        let frames = self.state.lock().sender.clear();
        // What counts the queue's bytes goes in any case.
        let pages = frames.into_iter().map(|frame| (frame.message, frame.data));
        self.release_memory(pages.collect::<Vec<_>>());
        self.rooms.close();
        self.work.notify_one();
        self.arrived.notify_one();
        self.written.notify_waiters();
        self.driven.store(false, Ordering::Release);
    }
}

impl QueuePairWire {
    /// Gives memory back that the queue pair could touch. A queue pair that survives keeps it: lent
    /// again, it would be written to in the middle of somebody else's data.
    fn release_memory<T>(&self, memory: T) {
        if matches!(self.state.lock().end, QueuePairEnd::Survived) {
            std::mem::forget(memory);
        }
    }

    /// Does what `close` would wait for on its thread, as far as it can be done beforehand: stops the
    /// queue pair and takes its completions. May be cancelled; `close` then begins again.
    async fn prepare_close(self: &Arc<Self>, tasks: &TaskTracker) {
        if self.receives.shared_queue().is_none() {
            return;
        }
        let wire = self.clone();
        let stopping = run_blocking_aside(tasks, move || wire.stop_early()).await;
        let Ok(Some((stopped, mut watch))) = stopping else { return };
        while watch.as_mut().is_some_and(|watch| !self.is_drained(watch)) {
            tokio::time::sleep(DRAIN_PAUSE).await;
        }
        let mut state = self.state.lock();
        if state.pair.is_some() {
            state.end = QueuePairEnd::Drained(stopped);
        }
    }

    /// Closes on a thread that serves no data. May be cancelled; `close` then waits for what has
    /// begun.
    pub(in crate::verbs) async fn close_aside(self: &Arc<Self>, tasks: &TaskTracker) {
        self.prepare_close(tasks).await;
        let wire = self.clone();
        // `close` follows where this could not be run.
        let _ = run_blocking_aside(tasks, move || wire.close()).await;
        self.close();
    }

    /// Stops a queue pair that takes shared buffers: a command to the firmware. Meanwhile the wire
    /// has no queue pair, as after its end, and nobody waits for its state.
    fn stop_early(&self) -> Option<(io::Result<()>, Option<DrainWatch>)> {
        let _ending = self.ending.lock();
        let lingers = self.lingers();
        let pair = {
            let mut state = self.state.lock();
            let pair = state.pair.take()?;
            // Nothing is posted behind the beacon.
            state.failure.get_or_insert_with(|| "the connection is being closed".to_owned());
            pair
        };
        let stopped = pair.stop_traffic();
        let watch = stopped.is_ok().then(|| self.begin_drain(&pair, lingers)).flatten();
        self.state.lock().pair = Some(pair);
        Some((stopped, watch))
    }

    /// Destroys the queue pair behind `windows`, and takes back the shared buffers that it had
    /// taken.
    fn destroy_queue_pair(&self, pair: CmQueuePair, windows: Vec<BoundWindows>) -> QueuePairEnd {
        // Windows refer to the queue pair; some devices can't destroy it while they are bound.
        let early = std::mem::take(&mut self.state.lock().end);
        let (stopped, is_drained) = match early {
            QueuePairEnd::Drained(stopped) => (stopped, true),
            _ => (pair.stop_traffic(), false),
        };
        drop(windows);
        if self.receives.shared_queue().is_none() {
            return self.judge_end(stopped, pair.destroy());
        }
        // Take completions before the destruction: some devices then forget those that were not
        // taken (SPDK issue 1697).
        if stopped.is_ok() && !is_drained {
            let mut watch = self.begin_drain(&pair, self.lingers());
            while watch.as_mut().is_some_and(|watch| !self.is_drained(watch)) {
                std::thread::sleep(DRAIN_PAUSE);
            }
        }
        let end = self.judge_end(stopped, pair.destroy());
        self.take_back();
        self.receives.leave_doubt(self.buffer_doubt());
        end
    }

    /// Returns how many shared buffers the device may have taken unseen.
    fn buffer_doubt(&self) -> BufferDoubt {
        let state = self.state.lock();
        let unheard = !state.said_end && state.agreed;
        let buffers = if unheard { state.credits.arriving_max() } else { 0 };
        BufferDoubt { buffers, proven: state.proven }
    }

    fn lingers(&self) -> bool {
        let doubt = self.buffer_doubt();
        self.rail.device.is_soft_roce && doubt.buffers > 0 && doubt.proven
    }

    /// Judges by the results of both steps whether the queue pair has ended.
    fn judge_end(&self, stopped: io::Result<()>, destroyed: io::Result<()>) -> QueuePairEnd {
        let Err(error) = destroyed else { return QueuePairEnd::Over };
        let rail = self.rail.rail.metric_label();
        let Err(not_stopped) = stopped else {
            tracing::warn!(
                rail, %error,
                "a queue pair stays with its device; it is stopped, so its memory is used again"
            );
            return QueuePairEnd::Over;
        };
        if self.rail.device.domain.is_disassociated() {
            tracing::warn!(rail, "a queue pair has ended with its device");
            return QueuePairEnd::Over;
        }
        self.metrics.rail.queue_pairs_surviving.inc();
        tracing::error!(
            rail, %error, %not_stopped,
            "a queue pair can be neither stopped nor destroyed; the memory that its device may \
            write to is not used again until this process is restarted"
        );
        QueuePairEnd::Survived
    }

    /// Posts the beacon. Returns `None` where the device has failed and completes nothing.
    fn begin_drain(&self, pair: &CmQueuePair, lingers: bool) -> Option<DrainWatch> {
        if self.rail.device.health.is_fatal() || pair.post_beacon().is_err() {
            self.take_back();
            return None;
        }
        let linger = if lingers { LINGER } else { Duration::ZERO };
        Some(DrainWatch { began: Instant::now(), done: None, linger })
    }

    /// Takes completions. Returns true once the device is done with the queue pair, or the wait has
    /// been long enough.
    fn is_drained(&self, watch: &mut DrainWatch) -> bool {
        if self.take_back() {
            watch.done = Some(Instant::now());
        }
        watch.done.is_some_and(|done| done.elapsed() >= watch.linger)
            || watch.began.elapsed() > DRAIN_MAX
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

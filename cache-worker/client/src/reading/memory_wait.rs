//! Owns how a read waits where its process has no memory for what it asks a worker: other reads give
//! theirs back soon, and past the cache the store would send what workers hold.
//!
//! A lasting shortage is known to all: while one read has waited in vain, others do not wait.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::time::{Instant, Sleep, sleep};

/// Pauses between two looks: the first, and the longest. Each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// What reads of a process know of its memory.
pub(crate) struct MemoryShortage {
    wait_max: Duration,
    waits: IntCounter,
    /// When a read gave up, if none has found memory since.
    given_up: Mutex<Option<Instant>>,
}

impl MemoryShortage {
    pub(crate) fn new(wait_max: Duration, waits: IntCounter) -> Self {
        Self { wait_max, waits, given_up: Mutex::default() }
    }

    fn is_lasting(&self) -> bool {
        self.given_up.lock().is_some_and(|at| at.elapsed() < self.wait_max)
    }
}

/// The wait of one read for memory.
#[derive(Default)]
pub(crate) struct MemoryWait {
    began: Option<Instant>,
    pause: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

/// What a read that found no memory does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryVerdict {
    LookAgain,
    /// It has waited for as long as it may.
    GiveUp,
}

impl MemoryWait {
    /// Waits until memory is looked for again. A wait that begins is counted.
    pub(crate) fn poll_pause(
        &mut self,
        cx: &mut Context<'_>,
        shortage: &MemoryShortage,
    ) -> Poll<MemoryVerdict> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            None => {
                let Some(pause) = self.next_pause(shortage) else {
                    return Poll::Ready(MemoryVerdict::GiveUp);
                };
                self.timer.insert(Box::pin(sleep(pause)))
            }
        };
        ready!(timer.as_mut().poll(cx));
        self.timer = None;
        Poll::Ready(MemoryVerdict::LookAgain)
    }

    /// Returns how long to wait before the next look. `None`: no longer.
    fn next_pause(&mut self, shortage: &MemoryShortage) -> Option<Duration> {
        let began = match self.began {
            Some(began) => began,
            None if shortage.is_lasting() || shortage.wait_max.is_zero() => return None,
            None => {
                shortage.waits.inc();
                *self.began.insert(Instant::now())
            }
        };
        let left = shortage.wait_max.saturating_sub(began.elapsed());
        if left.is_zero() {
            *shortage.given_up.lock() = Some(Instant::now());
            return None;
        }
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        Some(self.pause.min(left))
    }

    /// Waits for [`MemoryWait::poll_pause`].
    pub(crate) async fn pause(&mut self, shortage: &MemoryShortage) -> MemoryVerdict {
        poll_fn(|cx| self.poll_pause(cx, shortage)).await
    }

    /// Ends the wait: memory was found.
    pub(crate) fn end(&mut self, shortage: &MemoryShortage) {
        if self.began.is_some() {
            *self = Self::default();
            *shortage.given_up.lock() = None;
        }
    }
}

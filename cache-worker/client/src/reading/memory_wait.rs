//! Owns how a read waits where its process has no memory for what it asks a worker: other reads give
//! theirs back soon, and past the cache the store would send what workers hold.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::time::{Instant, Sleep, sleep};

/// Pauses between two looks: the first, and the longest. Each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// The wait of one read for memory.
#[derive(Default)]
pub(crate) struct MemoryWait {
    began: Option<Instant>,
    pause: Option<(Duration, Pin<Box<Sleep>>)>,
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
        wait_max: Duration,
        waits: &IntCounter,
    ) -> Poll<MemoryVerdict> {
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.pause.is_none() && began.elapsed() >= wait_max {
            return Poll::Ready(MemoryVerdict::GiveUp);
        }
        let (_, timer) = self.pause.get_or_insert_with(|| {
            waits.inc();
            (PAUSE_MIN, Box::pin(sleep(PAUSE_MIN)))
        });
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(self.next_pause(began, wait_max))
    }

    /// Waits for [`MemoryWait::poll_pause`].
    pub(crate) async fn pause(&mut self, wait_max: Duration, waits: &IntCounter) -> MemoryVerdict {
        poll_fn(|cx| self.poll_pause(cx, wait_max, waits)).await
    }

    fn next_pause(&mut self, began: Instant, wait_max: Duration) -> MemoryVerdict {
        let Some((pause, timer)) = &mut self.pause else { return MemoryVerdict::GiveUp };
        if began.elapsed() >= wait_max {
            return MemoryVerdict::GiveUp;
        }
        *pause = (*pause * 2).min(PAUSE_MAX);
        timer.as_mut().reset(Instant::now() + *pause);
        MemoryVerdict::LookAgain
    }

    /// Ends the wait: memory was found.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }
}

//! Pins on their way to the headers of their pages, and who waits for them.
//!
//! Owns the count of what became of them. A pin outlives a restart once its page's header says it:
//! that is what is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

#[derive(Default)]
struct PinBatchState {
    /// On their way.
    left: AtomicUsize,
    written: AtomicU64,
    /// None is on its way.
    over: Notify,
}

/// One pin on its way. However it ends, who waits hears of it.
pub(super) struct PinWriteTicket(Arc<PinBatchState>);

impl PinWriteTicket {
    pub(super) fn mark_written(self) {
        self.0.written.fetch_add(1, Ordering::Release);
    }
}

impl Drop for PinWriteTicket {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.over.notify_one();
        }
    }
}

/// Pins that were asked for together.
#[derive(Default)]
pub(crate) struct PendingPins {
    batch: Arc<PinBatchState>,
    taken: u64,
}

impl PendingPins {
    pub(super) fn issue_ticket(&self) -> PinWriteTicket {
        self.batch.left.fetch_add(1, Ordering::AcqRel);
        PinWriteTicket(self.batch.clone())
    }

    pub(super) fn count_accepted(&mut self) {
        self.taken += 1;
    }

    /// Pages that are here, and whose pins are on their way or written.
    pub(crate) fn accepted_pages(&self) -> u64 {
        self.taken
    }

    /// Waits until none is on its way, but no longer than this. How many are written.
    pub(crate) async fn wait_until_written(&self, within: Duration) -> u64 {
        let over = async {
            while self.batch.left.load(Ordering::Acquire) > 0 {
                self.batch.over.notified().await;
            }
        };
        // Late or not: what counts is what is written.
        let _ = tokio::time::timeout(within, over).await;
        self.batch.written.load(Ordering::Acquire)
    }
}

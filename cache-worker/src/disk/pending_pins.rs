//! Pins that are on their way to their pages' headers, and the callers that wait for them.
//!
//! Owns the counts of the outcomes. A pin survives a restart once its page's header contains it, so
//! that is what callers wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

#[derive(Default)]
struct PinBatchState {
    /// Pins on their way.
    left: AtomicUsize,
    written: AtomicU64,
    /// Notifies that no pin is on its way.
    over: Notify,
}

/// One pin on its way. The waiter is notified however the pin ends.
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

/// A batch of pins that were requested together.
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

    /// Returns the number of pages that are here, and whose pins are on their way or written.
    pub(crate) fn accepted_pages(&self) -> u64 {
        self.taken
    }

    /// Waits until no pin is on its way, but not longer than `within`. Returns how many are
    /// written.
    pub(crate) async fn wait_until_written(&self, within: Duration) -> u64 {
        let over = async {
            while self.batch.left.load(Ordering::Acquire) > 0 {
                self.batch.over.notified().await;
            }
        };
        // A timeout changes nothing: only written pins count.
        let _ = tokio::time::timeout(within, over).await;
        self.batch.written.load(Ordering::Acquire)
    }
}

//! Ends a run for its readers, whatever became of the task that filled it.

use verbs3_protocol::BlockIndex;

use super::fill_error::PageFillError;
use super::fill_run::PageFillRun;
use super::{FillTarget, PageFiller};

/// A guard that notifies a run's waiters of its end, also when the task is dropped.
pub(super) struct RunCompletionGuard<'a> {
    filler: &'a PageFiller,
    target: &'a FillTarget,
    pub(super) block: BlockIndex,
    pub(super) run: &'a PageFillRun,
    settled: bool,
}

impl<'a> RunCompletionGuard<'a> {
    pub(super) fn new(
        filler: &'a PageFiller,
        target: &'a FillTarget,
        block: BlockIndex,
        run: &'a PageFillRun,
    ) -> Self {
        Self { filler, target, block, run, settled: false }
    }

    pub(super) fn settle_run(mut self, filled: Result<(), PageFillError>) {
        self.settled = true;
        self.release_pages();
        if self.run.is_of_parts() {
            self.filler.complete_pages(self.target, self.block, self.run);
        }
        if let Err(failure) = filled {
            tracing::debug!(
                object = %self.target.object, block = self.block.0, ?failure,
                "fill ended early"
            );
            self.run.fail_pages(0, failure);
        }
        self.run.release_unfinished();
    }

    /// Pages that were not filled leave the table before anyone is notified. Later readers then
    /// start a new fill.
    fn release_pages(&self) {
        self.filler.take_out(self.target, self.block, self.run, 0);
    }
}

impl Drop for RunCompletionGuard<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.release_pages();
            self.run.fail_pages(0, PageFillError::Stopping);
            self.run.release_unfinished();
        }
    }
}

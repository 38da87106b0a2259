//! The runs of the blocks behind a run, which its request to the UFS fills as well: one after the
//! other, from one body.
//!
//! Their pages are in the table of flights from the beginning, so their readers send nothing. A run
//! gets memory when the body has come to it. Before that, somebody must have asked for its pages.
//! Where the body does not come to a run, its readers claim their pages anew.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs3_protocol::BlockIndex;

use super::body_writer::UnfilledCells;
use super::fill_error::PageFillError;
use super::fill_run::{FillRunOrigin, PageFillRun};
use super::fill_unit::FillUnit;
use super::run_completion::RunCompletionGuard;
use super::store_stream::StoreStream;
use super::{FillTarget, PageFiller};

/// Shortest time between two looks at whether others wait.
const LOOKS_MIN: Duration = Duration::from_millis(1);

/// A registered run that the request for an earlier block fills.
pub(super) struct FollowingRun {
    pub(super) block: BlockIndex,
    pub(super) run: Arc<PageFillRun>,
}

/// The runs that a request has not come to yet. Their readers are notified when this is dropped.
pub(super) struct FollowingRuns<'a> {
    left: VecDeque<RunCompletionGuard<'a>>,
    /// End of the last run, in bytes of the object.
    end: Option<u64>,
    /// The UFS has answered the request.
    answered: bool,
}

impl<'a> FollowingRuns<'a> {
    pub(super) fn new(
        filler: &'a PageFiller,
        target: &'a FillTarget,
        following: &'a [FollowingRun],
    ) -> Self {
        let guard =
            |next: &'a FollowingRun| RunCompletionGuard::new(filler, target, next.block, &next.run);
        let end = following.last().map(|last| {
            u64::from(last.block.0) * filler.block_bytes() + u64::from(last.run.total_bytes())
        });
        Self { left: following.iter().map(guard).collect(), end, answered: false }
    }

    pub(super) fn end(&self) -> Option<u64> {
        self.end
    }

    /// Returns the length of the longest run: a request has no more than one under way at once.
    pub(super) fn longest_bytes(&self) -> u64 {
        self.left.iter().map(|next| u64::from(next.run.total_bytes())).max().unwrap_or(0)
    }

    /// Gives up the runs from the first on that is read though one before it is not: its reader must
    /// not wait for bytes that nobody takes, at the pace of another one.
    fn release_overtaken(&mut self) {
        let mut is_behind_unread = false;
        let overtaken = self.left.iter().position(|next| {
            let is_read = next.run.has_readers_from(0);
            let is_overtaken = is_read && is_behind_unread;
            is_behind_unread |= !is_read;
            is_overtaken
        });
        if let Some(at) = overtaken {
            for next in self.left.split_off(at) {
                next.settle_run(Err(PageFillError::Abandoned));
            }
        }
    }

    /// Notes that the UFS has answered. From then on no failure is that of all runs.
    pub(super) fn note_answered(&mut self) {
        self.answered = true;
    }

    /// Notifies the readers of all runs that are left. If there was no answer, they have the failure
    /// of the request in common. Otherwise they may send one of their own.
    pub(super) fn give_up(self, filled: &Result<(), PageFillError>) {
        let failure = match filled {
            Err(failure) if !self.answered => failure.clone(),
            Err(PageFillError::Stopping) => PageFillError::Stopping,
            Ok(()) | Err(_) => PageFillError::Abandoned,
        };
        for next in self.left {
            next.settle_run(Err(failure.clone()));
        }
    }
}

impl PageFiller {
    /// Registers runs for the absent pages of the blocks behind `first`, up to byte `end` of the
    /// object, and up to the first page that is here or being filled. Call it without a lock on
    /// pages in flight. Empty unless `first` is a run of the UFS that ends with its block.
    pub(super) fn register_following(
        &self,
        target: &FillTarget,
        mut block: BlockIndex,
        first: &PageFillRun,
        end: u64,
    ) -> Vec<FollowingRun> {
        let mut following = Vec::new();
        let (geometry, end) = (self.geometry, end.min(self.extent.find_group_end(block)));
        let block_len = |block| geometry.block_len(target.version.bytes, block);
        let ends_block = first.start + first.total_bytes() == block_len(block);
        let begins = |block: BlockIndex| u64::from(block.0) * self.block_bytes();
        // Where turns are scarce, each request ends with its block.
        if !first.origin.is_ufs() || first.is_of_parts() || !ends_block || self.turns_wait() {
            return following;
        }
        // Former owners are asked for each run by itself.
        let slot = target.object.block_slot(block);
        if !self.former.former_owners(slot, self.clock.now()).is_empty() {
            return following;
        }
        while end > begins(block) + self.block_bytes() {
            block.0 += 1;
            let wanted = (end - begins(block)).min(block_len(block).into());
            let pages = geometry.touched_pages(&(0..wanted as u32));
            let mut flights = self.flights_of(target.digest.block_spread(block)).lock();
            let is_absent =
                |page: &u16| self.is_page_absent(&flights, target.digest.page_key(block, *page));
            let unit = |page| self.unit_of_page(target, block, page);
            let absent: Vec<FillUnit> = pages.take_while(is_absent).map(unit).collect();
            if absent.is_empty() {
                break;
            }
            let run = PageFillRun::new(FillRunOrigin::Ufs, &absent, absent.len());
            let run = Arc::new(run.follow_run(first));
            Self::register_run(&mut flights, &run);
            self.metrics.pages_ahead.inc_by(absent.len() as u64);
            following.push(FollowingRun { block, run });
            if absent.len() < usize::from(geometry.pages_per_block()) {
                break;
            }
        }
        following
    }

    /// Fills runs from what is left of a body, until nobody wants the next one, or it can't be
    /// filled.
    pub(super) async fn fill_following(
        &self,
        target: &FillTarget,
        following: &mut FollowingRuns<'_>,
        stream: &mut StoreStream,
    ) {
        while let Some(run) = following.left.front().map(|next| next.run) {
            let goes_on = self.may_go_on(target, run, following).await;
            let Some(next) = following.left.pop_front() else { return };
            if !goes_on {
                self.metrics.requests_cut.inc();
                return next.settle_run(Err(PageFillError::Abandoned));
            }
            self.metrics.blocks_continued.inc();
            let filled = self.fill_next(target, &next, stream).await;
            let is_whole = filled == Ok(true);
            next.settle_run(match filled {
                Ok(_) => Ok(()),
                Err(PageFillError::Stopping) => Err(PageFillError::Stopping),
                Err(failure) => {
                    tracing::debug!(object = %target.object, ?failure, "a request ended early");
                    Err(PageFillError::Abandoned)
                }
            });
            if !is_whole {
                return;
            }
        }
    }

    /// Fills one run. Returns whether there was memory for all of it.
    async fn fill_next(
        &self,
        target: &FillTarget,
        next: &RunCompletionGuard<'_>,
        stream: &mut StoreStream,
    ) -> Result<bool, PageFillError> {
        let (block, run) = (next.block, next.run);
        let writers = self.memory_for(target, block, run)?;
        let is_whole = writers.len() == run.pages.len();
        let cells = UnfilledCells { first: 0, writers };
        self.copy_body(target, block, run, cells, stream).await?;
        Ok(is_whole)
    }

    /// Waits at the border of a block until somebody wants the next run, and until its bytes may be
    /// taken from the store. Returns `false` if that takes too long, or if other requests wait for
    /// the turn that this one holds.
    async fn may_go_on(
        &self,
        target: &FillTarget,
        run: &PageFillRun,
        following: &mut FollowingRuns<'_>,
    ) -> bool {
        let bytes = u64::from(run.total_bytes());
        let party = self.tenants.party_of(target.account);
        let wanted = async {
            run.wait_for_reader().await;
            if let Some(rate) = self.rates.find_rate(target.source.ufs.ufs_name()) {
                rate.take_bytes(party, bytes).await;
            }
        };
        let mut wanted = pin!(wanted);
        let (began, pause_max) = (Instant::now(), self.bounds.request_pause_max);
        let look = self.bounds.unwanted_max.min(pause_max).max(LOOKS_MIN);
        loop {
            following.release_overtaken();
            // Whoever waits gets this turn. Others must not wait for all of a long body.
            if self.turns_wait() {
                return false;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = wanted.as_mut() => break,
                () = tokio::time::sleep(look) => {}
            }
            if began.elapsed() >= pause_max {
                return false;
            }
        }
        self.tenants.metrics_of(target.account).store_bytes.inc_by(bytes);
        true
    }
}

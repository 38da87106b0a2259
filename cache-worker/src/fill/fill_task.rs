//! The filling tasks: each waits for its permit, takes memory, and sends the request.
//!
//! A fill belongs to the worker, not to the reader that began it. A reader that leaves does not
//! stop the fill for its other waiters.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::JoinHandle;
use verbs3_protocol::BlockIndex;
use verbs3_rdma::arena::CellWriter;
use verbs3_ufs::ObjectStream;

use super::body_writer::UnfilledCells;
use super::fill_error::PageFillError;
use super::fill_run::{FillRunOrigin, PageFillRun, RunInterest, RunPage};
use super::following_runs::{FollowingRun, FollowingRuns};
use super::run_completion::RunCompletionGuard;
use super::store_stream::StoreStream;
use super::{FillTarget, PageFiller, StoreReadBytes, UfsReadPermit};
use crate::memory::MemoryUrgency;
use crate::metrics::BusyReason;

impl PageFiller {
    /// Fills a registered run, and those that its request goes on to, in a task of its own. The task
    /// may be cancelled: its waiters are then notified.
    pub(super) fn start_run(
        self: &Arc<Self>,
        target: Arc<FillTarget>,
        block: BlockIndex,
        run: Arc<PageFillRun>,
        following: Vec<FollowingRun>,
    ) -> JoinHandle<()> {
        let filler = self.clone();
        let task = async move {
            let ending = RunCompletionGuard::new(&filler, &target, block, &run);
            let mut following = FollowingRuns::new(&filler, &target, &following);
            let filled = match run.origin {
                FillRunOrigin::Ufs => filler.fill_run(&target, block, &run, &mut following).await,
                FillRunOrigin::Disk | FillRunOrigin::DiskAlone => {
                    filler.read_run_from_disk(&target, block, &run).await
                }
                FillRunOrigin::Owner => filler.take_from_owner(&target, block, &run).await,
                // Readers that have joined meanwhile ask again, and then get the pages from the
                // UFS.
                FillRunOrigin::Former => {
                    filler.take_over(&target, block, &run).await.and(Err(PageFillError::Abandoned))
                }
            };
            following.give_up(&filled);
            ending.settle_run(filled);
        };
        // A closed tracker still runs what is spawned; the stop token ends it at once.
        self.tasks.spawn(task)
    }

    /// Writes an answered request's body into pages, or into parts of some if it has no whole pages,
    /// in a task of its own. It begins in block 0, and may go on over its border. Returns `None` if
    /// no page of block 0 is missing.
    pub(crate) fn start_answered(
        self: &Arc<Self>,
        target: Arc<FillTarget>,
        stream: ObjectStream,
        turn: UfsReadPermit,
    ) -> Option<RunInterest> {
        let block = BlockIndex(0);
        let range = u32::try_from(stream.range.start).ok()?
            ..stream.range.end.min(self.block_bytes()) as u32;
        let (run, interest) = self.adopt_answer(&target, block, &range)?;
        let following = self.register_following(&target, block, &run, stream.range.end);
        let filler = self.clone();
        let task = async move {
            let ending = RunCompletionGuard::new(&filler, &target, block, &run);
            let mut following = FollowingRuns::new(&filler, &target, &following);
            following.note_answered();
            let fill = async {
                let writers = filler.memory_for(&target, block, &run)?;
                let goes_on = writers.len() == run.pages.len();
                let cells = UnfilledCells { first: 0, writers };
                let mut stream = StoreStream::new(stream);
                filler.copy_body(&target, block, &run, cells, &mut stream).await?;
                if goes_on {
                    filler.fill_following(&target, &mut following, &mut stream).await;
                }
                filler.end_stream(stream).await;
                Ok(())
            };
            let filled = fill.await;
            drop(turn);
            following.give_up(&filled);
            ending.settle_run(filled);
        };
        self.tasks.spawn(task);
        Some(interest)
    }

    pub(super) async fn fill_run(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        following: &mut FollowingRuns<'_>,
    ) -> Result<(), PageFillError> {
        // Other workers are asked for whole pages.
        if !run.is_of_parts() {
            self.take_over(target, block, run).await?;
        }
        let missing = (0..run.pages.len()).filter(|&index| run.is_missing(index));
        let bytes: u64 = missing.map(|index| u64::from(run.pages[index].bytes)).sum();
        if bytes == 0 {
            return Ok(());
        }
        let wanted = StoreReadBytes { first: bytes, at_once: bytes.max(following.longest_bytes()) };
        let take_turn = |account| self.acquire_read_permit(&target.source.ufs, wanted, account);
        let _turn = run.take_any_turn(target.account, take_turn).await?;
        // Memory comes after the permit. A queued fill then holds no memory, and a fill with memory
        // waits only for the UFS.
        let mut cells = self.memory_for(target, block, run)?;
        // One request, unless a former owner had pages in between.
        let mut from = 0;
        while !cells.is_empty() {
            let present = cells.iter().position(Option::is_some).unwrap_or(cells.len());
            cells.drain(..present);
            from += present;
            let rest =
                cells.split_off(cells.iter().position(Option::is_none).unwrap_or(cells.len()));
            let group = std::mem::replace(&mut cells, rest);
            let pages = group.len();
            if pages > 0 {
                let group = UnfilledCells { first: from, writers: group };
                self.fill_from_ufs(target, block, run, group, following).await?;
            }
            from += pages;
        }
        Ok(())
    }

    /// Requests the pages that have cells from the UFS. If the last page of the run is among them,
    /// the request goes on to the runs that follow.
    pub(super) async fn fill_from_ufs(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        cells: UnfilledCells,
        following: &mut FollowingRuns<'_>,
    ) -> Result<(), PageFillError> {
        let pages = cells.first..cells.first + cells.writers.len();
        let base = u64::from(block.0) * self.block_bytes() + u64::from(run.start);
        let first = base + u64::from(run.pages[pages.start].start);
        let own_end =
            base + u64::from(run.pages[..pages.end].last().map_or(0, RunPage::end_offset));
        let goes_on = pages.end == run.pages.len();
        let end = following.end().filter(|_| goes_on).unwrap_or(own_end);
        let mut stream = self.open_ufs_stream(target, first..=end - 1).await?;
        following.note_answered();
        self.copy_body(target, block, run, cells, &mut stream).await?;
        if goes_on {
            self.fill_following(target, following, &mut stream).await;
        }
        self.end_stream(stream).await;
        Ok(())
    }

    /// Allocates memory for as many of the run's first pages as possible. The other pages are
    /// refused at once.
    pub(super) fn memory_for(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
    ) -> Result<VecDeque<Option<CellWriter>>, PageFillError> {
        let mut writers = VecDeque::with_capacity(run.pages.len());
        for (index, page) in run.pages.iter().enumerate() {
            if !run.is_missing(index) {
                writers.push_back(None);
                continue;
            }
            let urgency =
                if run.is_ahead(index) { MemoryUrgency::Ahead } else { MemoryUrgency::Demand };
            let bytes = page.bytes as usize;
            let Some(cell) = self.memory.allocate_cell(bytes, urgency, target.account) else {
                let failure = match urgency {
                    // A reader that joined meanwhile retries, and may then use the reserve.
                    MemoryUrgency::Ahead | MemoryUrgency::Staged => PageFillError::Abandoned,
                    MemoryUrgency::Demand if run.is_following() => PageFillError::Abandoned,
                    MemoryUrgency::Demand => {
                        self.metrics.busy[BusyReason::Memory].inc();
                        PageFillError::Busy("no memory for a page; raise worker.memory.capacity")
                    }
                };
                if writers.iter().all(Option::is_none) {
                    return Err(failure);
                }
                // The pages leave the table first. Later readers then start a fill of their own,
                // and do not join one that failed.
                self.take_out(target, block, run, index);
                run.fail_pages(page.start, failure);
                break;
            };
            let (writer, reader) = cell.split_writer_reader();
            run.set_cell(index, reader);
            writers.push_back(Some(writer));
        }
        Ok(writers)
    }

    /// Removes the run's pages from index `from` on from the table, unless a later run has begun to
    /// fill them.
    pub(super) fn take_out(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        from: usize,
    ) {
        let mut flights = self.flights_of(target.digest.block_spread(block)).lock();
        run.take_out_of(&mut flights, from);
    }
}

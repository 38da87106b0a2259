//! The filling tasks: each waits for its permit, takes memory, and sends the request.
//!
//! A fill belongs to the worker, not to the reader that began it. A reader that leaves does not
//! stop the fill for its other waiters.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use futures::StreamExt;
use tokio::task::JoinHandle;
use verbs3_protocol::BlockIndex;
use verbs3_rdma::arena::CellWriter;
use verbs3_ufs::{ObjectStream, ReadObject, UfsError};

use super::body_writer::{FillBodyWriter, UnfilledCells};
use super::fill_error::{PageFillError, outcome_of};
use super::fill_run::{FillRunOrigin, PageFillRun, RunInterest, RunPage};
use super::{FillTarget, PageFiller, UfsReadPermit};
use crate::call_trace::ask_ufs;
use crate::memory::MemoryUrgency;
use crate::metrics::{BusyReason, UfsRequestKind};

impl PageFiller {
    /// Fills a registered run in a task of its own. The task may be cancelled: its waiters are then
    /// notified.
    pub(super) fn start_run(
        self: &Arc<Self>,
        target: Arc<FillTarget>,
        block: BlockIndex,
        run: Arc<PageFillRun>,
    ) -> JoinHandle<()> {
        let filler = self.clone();
        let task = async move {
            let ending = RunCompletionGuard::new(&filler, &target, block, &run);
            let filled = match run.origin {
                FillRunOrigin::Ufs => filler.fill_run(&target, block, &run).await,
                FillRunOrigin::Disk | FillRunOrigin::DiskAlone => {
                    filler.promote_run(&target, block, &run).await
                }
                FillRunOrigin::Owner => filler.take_from_owner(&target, block, &run).await,
                // Readers that have joined meanwhile ask again, and then get the pages from the
                // UFS.
                FillRunOrigin::Former => {
                    filler.take_over(&target, block, &run).await.and(Err(PageFillError::Abandoned))
                }
            };
            ending.settle_run(filled);
        };
        // A closed tracker still runs what is spawned; the stop token ends it at once.
        self.tasks.spawn(task)
    }

    /// Writes an answered request's body into pages, in a task of its own. Returns `None` if no
    /// page of it is missing.
    pub(crate) fn start_answered(
        self: &Arc<Self>,
        target: Arc<FillTarget>,
        stream: ObjectStream,
        turn: UfsReadPermit,
    ) -> Option<RunInterest> {
        let block = BlockIndex(0);
        let range =
            u32::try_from(stream.range.start).ok()?..u32::try_from(stream.range.end).ok()?;
        let (run, interest) =
            self.adopt_answer(&target, block, self.geometry.touched_pages(&range))?;
        let filler = self.clone();
        let task = async move {
            let ending = RunCompletionGuard::new(&filler, &target, block, &run);
            let filled = match filler.memory_for(&target, block, &run) {
                Ok(cells) => filler.copy_body(&target, block, &run, 0, cells, stream).await,
                Err(failure) => Err(failure),
            };
            drop(turn);
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
    ) -> Result<(), PageFillError> {
        self.take_over(target, block, run).await?;
        let missing = (0..run.pages.len()).filter(|&index| run.is_missing(index));
        let bytes: u64 = missing.map(|index| u64::from(run.pages[index].bytes)).sum();
        if bytes == 0 {
            return Ok(());
        }
        let take_turn = |account| self.acquire_read_permit(&target.source.ufs, bytes, account);
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
                self.fill_from_ufs(target, block, run, from, group).await?;
            }
            from += pages;
        }
        Ok(())
    }

    /// Requests the pages from `from` on that have cells from the UFS.
    pub(super) async fn fill_from_ufs(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        from: usize,
        cells: VecDeque<Option<CellWriter>>,
    ) -> Result<(), PageFillError> {
        let end = run.pages[..from + cells.len()].last().map_or(0, RunPage::end_offset);
        let base = u64::from(block.0) * u64::from(self.geometry.block_bytes)
            + u64::from(run.first_page) * u64::from(self.geometry.page_bytes);
        let first = base + u64::from(run.pages[from].start);
        let stream = self.open_ufs_stream(target, first..=base + u64::from(end) - 1).await?;
        self.copy_body(target, block, run, from, cells, stream).await
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
                    // A reader that joined since asks again, and is then served before the reserve.
                    MemoryUrgency::Ahead => PageFillError::Abandoned,
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
    fn take_out(&self, target: &FillTarget, block: BlockIndex, run: &PageFillRun, from: usize) {
        let mut flights = self.flights_of(target.digest.block_spread(block)).lock();
        run.take_out_of(&mut flights, from);
    }

    /// Requests bytes of the target's version only.
    async fn open_ufs_stream(
        &self,
        target: &FillTarget,
        range: RangeInclusive<u64>,
    ) -> Result<ObjectStream, PageFillError> {
        let version = &target.version;
        let mut read = ReadObject {
            bucket: target.source.bucket.clone(),
            key: target.object.key.clone(),
            version_id: version.version_id.clone(),
            if_match: Some(version.etag.clone()),
            range: Some(range.clone()),
            checksums: false,
        };
        let mut got = self.get(target, read.clone()).await;
        // The right to read the current version does not include the right to name it. The answer's
        // identity is checked anyway.
        if let Ok(Err(UfsError::Answer { answer, .. })) = &got
            && answer.status.as_u16() == 403
            && read.version_id.take().is_some()
        {
            got = self.get(target, read).await;
        }
        let stream = got?.map_err(|error| self.count_failure(&error))?;
        let (etag, bytes) = (stream.head.etag.as_ref(), stream.head.bytes);
        // `null` equals none: the bucket is unversioned, or the object is older than its
        // versioning.
        let version_id = stream.head.version_id.as_ref().filter(|id| *id != "null");
        if etag != Some(&version.etag)
            || bytes != version.bytes
            || version_id != version.version_id.as_ref()
        {
            let reason =
                format!("the ufs has etag {etag:?}, {bytes} bytes, version id {version_id:?} now");
            return Err(PageFillError::VersionGone(reason.into()));
        }
        if stream.range != (*range.start()..range.end() + 1) {
            return Err(PageFillError::Unreachable(
                format!("the ufs answered bytes {:?} for {range:?}", stream.range).into(),
            ));
        }
        Ok(stream)
    }

    async fn get(
        &self,
        target: &FillTarget,
        read: ReadObject,
    ) -> Result<Result<ObjectStream, UfsError>, PageFillError> {
        self.metrics.ufs_requests[UfsRequestKind::Get].inc();
        let ufs = &target.source.ufs;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(PageFillError::Stopping),
            got = ask_ufs(ufs, "GetObject", ufs.read(read)) => Ok(got),
        }
    }

    fn count_failure(&self, error: &UfsError) -> PageFillError {
        self.metrics.fills_failed.inc();
        if matches!(error, UfsError::Throttled { .. }) {
            self.metrics.busy[BusyReason::UfsRequests].inc();
        }
        outcome_of(error)
    }

    async fn copy_body(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        from: usize,
        cells: VecDeque<Option<CellWriter>>,
        mut stream: ObjectStream,
    ) -> Result<(), PageFillError> {
        let end = run.pages[..from + cells.len()].last().map_or(0, RunPage::end_offset);
        let wanted = u64::from(end - run.pages[from].start);
        let cells = UnfilledCells { first: from, writers: cells };
        let mut pump = FillBodyWriter::new(self, target, block, run, cells);
        while !pump.is_done() {
            let chunk = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(PageFillError::Stopping),
                chunk = stream.body.next() => chunk,
            };
            match chunk {
                Some(Ok(chunk)) => {
                    self.metrics.filled_bytes.inc_by(chunk.len() as u64);
                    pump.absorb_chunk(&chunk)?;
                }
                Some(Err(error)) => return Err(self.count_failure(&error)),
                None => {
                    self.metrics.fills_failed.inc();
                    return Err(PageFillError::Unreachable("the ufs's body ended early".into()));
                }
            }
        }
        // A connection whose body was read to its end can be used again. Every reader has been
        // served by now. The UFS client bounds silence, and the rest of a longer body is ignored.
        if wanted == stream.range.end - stream.range.start {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                _ = stream.body.next() => {}
            }
        }
        Ok(())
    }
}

/// A guard that notifies a run's waiters of its end, also when the task is dropped.
struct RunCompletionGuard<'a> {
    filler: &'a PageFiller,
    target: &'a FillTarget,
    block: BlockIndex,
    run: &'a PageFillRun,
    settled: bool,
}

impl<'a> RunCompletionGuard<'a> {
    fn new(
        filler: &'a PageFiller,
        target: &'a FillTarget,
        block: BlockIndex,
        run: &'a PageFillRun,
    ) -> Self {
        Self { filler, target, block, run, settled: false }
    }

    fn settle_run(mut self, filled: Result<(), PageFillError>) {
        self.settled = true;
        self.release_pages();
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

//! Writes a body into the cells of a run. Bytes become readable as they arrive, and pages are kept
//! once they are complete.

use std::collections::VecDeque;

use crc_fast::{CrcAlgorithm, Digest};
use verbs3_protocol::BlockIndex;
use verbs3_rdma::arena::CellWriter;

use super::fill_error::PageFillError;
use super::fill_run::PageFillRun;
use super::{FillTarget, PageFiller};
use crate::clock::WorkerInstant;

/// Cells of a run that are still to be filled. `None`: the page is skipped.
pub(super) struct UnfilledCells {
    /// Index of the first one in the run.
    pub(super) first: usize,
    pub(super) writers: VecDeque<Option<CellWriter>>,
}

pub(super) struct FillBodyWriter<'a> {
    filler: &'a PageFiller,
    target: &'a FillTarget,
    block: BlockIndex,
    run: &'a PageFillRun,
    /// Writers of the page being filled (`index`) and of those after it; `None` for a page that is
    /// skipped.
    writers: VecDeque<Option<CellWriter>>,
    /// The page being filled.
    index: usize,
    /// Bytes of that page that have arrived.
    at: u32,
    digest: Digest,
    /// When it was first found that nobody waits for the remaining pages.
    unwanted_since: Option<WorkerInstant>,
}

impl<'a> FillBodyWriter<'a> {
    pub(super) fn new(
        filler: &'a PageFiller,
        target: &'a FillTarget,
        block: BlockIndex,
        run: &'a PageFillRun,
        cells: UnfilledCells,
    ) -> Self {
        let UnfilledCells { first: index, writers } = cells;
        let digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        Self { filler, target, block, run, writers, index, at: 0, digest, unwanted_since: None }
    }

    pub(super) fn is_done(&self) -> bool {
        self.writers.is_empty()
    }

    /// Copies the chunk, or as much of it as there are cells for, and returns how much that is. This
    /// is the only copy between the UFS's socket and a landing: the client library owns its buffers.
    pub(super) fn absorb_chunk(&mut self, mut chunk: &[u8]) -> Result<usize, PageFillError> {
        let offered = chunk.len();
        while !chunk.is_empty() && !self.is_done() {
            let page = &self.run.pages[self.index];
            let take = chunk.len().min((page.bytes - self.at) as usize);
            if let Some(Some(writer)) = self.writers.front_mut() {
                writer.spare_bytes()[..take].copy_from_slice(&chunk[..take]);
                writer.publish_bytes(take);
                self.digest.update(&chunk[..take]);
            }
            self.at += take as u32;
            chunk = &chunk[take..];
            if self.at == page.bytes {
                self.keep_page();
                self.stop_if_unwanted()?;
            }
        }
        let written = self
            .run
            .pages
            .get(self.index)
            .map_or(self.run.total_bytes(), |page| page.start + self.at);
        self.run.publish_progress(written);
        Ok(offered - chunk.len())
    }

    fn keep_page(&mut self) {
        let checksum = self.digest.finalize_reset();
        if self.writers.pop_front().flatten().is_some() {
            self.filler.keep_page(self.target, self.block, self.run, self.index, checksum);
        }
        (self.index, self.at) = (self.index + 1, 0);
    }

    /// Stops a run at a page border once nobody has waited for it for `unwanted_max`. The delay is
    /// necessary: nobody waits between an open's bytes and the next read. A stop then would request
    /// the next bytes from the UFS again. Decided under the lock that readers join under.
    fn stop_if_unwanted(&mut self) -> Result<(), PageFillError> {
        if self.is_done() {
            return Ok(());
        }
        let mut flights =
            self.filler.flights_of(self.target.digest.block_spread(self.block)).lock();
        if self.run.is_wanted_from(self.index) {
            self.unwanted_since = None;
            return Ok(());
        }
        let now = self.filler.clock.now();
        if now.duration_since(*self.unwanted_since.get_or_insert(now))
            < self.filler.bounds.unwanted_max
        {
            return Ok(());
        }
        let rest = &self.run.pages[self.index..];
        self.run.take_out_of(&mut flights, self.index);
        if !self.run.is_of_parts() {
            self.filler.metrics.pages_abandoned.inc_by(rest.len() as u64);
        }
        Err(PageFillError::Abandoned)
    }
}

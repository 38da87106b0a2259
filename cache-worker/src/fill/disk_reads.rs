//! Reads runs from disk.
//!
//! Pages that the disk can't give come from the UFS, in the same run: readers notice only the
//! delay. Readers of a replica are the exception: they are sent to the owner.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use verbs3_doors::FairPermit;
use verbs3_protocol::BlockIndex;
use verbs3_rdma::arena::CellWriter;

use super::body_writer::UnfilledCells;
use super::fill_error::PageFillError;
use super::fill_run::{FillRunOrigin, PageFillRun};
use super::following_runs::FollowingRuns;
use super::{FillTarget, PageFiller};
use crate::digest::PageKey;
use crate::disk::DiskTier;
use crate::memory::{CachedPage, MemoryUrgency};
use crate::tenants::TenantAccount;

impl PageFiller {
    /// Reads a run from the disk. Pages that the disk can't give come from the UFS, into the same
    /// memory. For a run of the disk alone they fail.
    pub(super) async fn read_run_from_disk(
        self: &Arc<Self>,
        target: &Arc<FillTarget>,
        block: BlockIndex,
        run: &Arc<PageFillRun>,
    ) -> Result<(), PageFillError> {
        // What a disk lacks is requested for the run alone.
        let mut nothing = FollowingRuns::new(self, target, &[]);
        let Some(disk) = self.disk.clone() else {
            return self.fill_run(target, block, run, &mut nothing).await;
        };
        let first = run.pages[0].key;
        let take_turn = |account| self.disk_turn(&disk, first, account);
        let turn = run.take_any_turn(target.account, take_turn).await?;
        let cells = self.memory_for(target, block, run)?;
        let (filler, own_target, own_run) = (self.clone(), target.clone(), run.clone());
        let read_from = disk.clone();
        let reading = tokio::task::spawn_blocking(move || {
            // The permit is held until the device has answered, however long that takes.
            let _turn = turn;
            filler.read_pages(&read_from, &own_target, block, &own_run, cells)
        });
        let Ok(read) = tokio::time::timeout(disk.stall_max(), reading).await else {
            disk.report_stall(first);
            // Readers ask again, and are sent to the UFS. The cells stay with the hanging thread.
            return Err(PageFillError::Abandoned);
        };
        // An error means that the runtime ends, or a bug. The state of the cells is then unknown.
        let (from, cells) =
            read.map_err(|_| PageFillError::Busy("a read from disk was cut off"))?;
        if cells.is_empty() {
            return Ok(());
        }
        if run.origin == FillRunOrigin::DiskAlone {
            return Err(PageFillError::NotHeld);
        }
        // The run waits here while it holds memory. That is safe: no holder of a permit waits for
        // memory.
        let left: u64 =
            run.pages[from..from + cells.len()].iter().map(|page| u64::from(page.bytes)).sum();
        let take_turn = |account| self.acquire_read_permit(&target.source.ufs, left, account);
        let _turn = run.take_any_turn(target.account, take_turn).await?;
        let cells = UnfilledCells { first: from, writers: cells };
        self.fill_from_ufs(target, block, run, cells, &mut nothing).await
    }

    /// Reads a page for another worker, into memory that the reserve leaves. The page is not kept.
    pub(crate) async fn read_from_disk(&self, key: PageKey, bytes: u32) -> Option<CachedPage> {
        let disk = self.disk.clone()?;
        let account = TenantAccount::NOBODY;
        let turn = self.disk_turn(&disk, key, account).await.ok()?;
        let (mut writer, cell) = self
            .memory
            .allocate_cell(bytes as usize, MemoryUrgency::Ahead, account)?
            .split_writer_reader();
        let read_from = disk.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let checksum =
                read_from.read(key, &mut writer.spare_bytes()[..bytes as usize], account)?;
            writer.publish_bytes(bytes as usize);
            Some(checksum)
        });
        match tokio::time::timeout(disk.stall_max(), reading).await {
            Ok(read) => read.ok().flatten().map(|checksum| CachedPage { cell, bytes, checksum }),
            Err(_) => {
                disk.report_stall(key);
                None
            }
        }
    }

    /// Reads the pages of a run that the disk can give. Returns the index of the first page that
    /// the disk could not give, and the cells from there to the last such page. Pages in between
    /// that were read have `None`. Blocks.
    fn read_pages(
        &self,
        disk: &DiskTier,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        mut cells: VecDeque<Option<CellWriter>>,
    ) -> (usize, VecDeque<Option<CellWriter>>) {
        for (index, cell) in cells.iter_mut().enumerate() {
            let page = &run.pages[index];
            let Some(writer) = cell else { continue };
            let bytes = page.bytes as usize;
            // Bytes go straight into the arena, and are published only once the checksum matches.
            let into = writer.spare_bytes().get_mut(..bytes).filter(|_| !self.stop.is_cancelled());
            let Some(checksum) = into.and_then(|into| disk.read(page.key, into, target.account))
            else {
                continue;
            };
            writer.publish_bytes(bytes);
            *cell = None;
            self.keep_page(target, block, run, index, checksum);
            run.publish_progress(page.end_offset());
        }
        while cells.back().is_some_and(Option::is_none) {
            cells.pop_back();
        }
        let first = cells.iter().position(Option::is_some).unwrap_or(cells.len());
        (first, cells.split_off(first))
    }

    /// Waits for the permit to read from disk. Bounded like the permits for a UFS.
    async fn disk_turn(
        &self,
        disk: &DiskTier,
        first: PageKey,
        account: TenantAccount,
    ) -> Result<FairPermit, PageFillError> {
        let _queued = self.enter_queue(account)?;
        let (party, ended) = (self.tenants.party_of(account), disk.reads_ended());
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(PageFillError::Stopping),
            got = disk.read_places().take_permit(party, 1, Instant::now()) => match got {
                Ok(permit) => Ok(permit),
                // No read ended within that time: the device hangs.
                Err(_) if disk.reads_ended() == ended => {
                    disk.report_stall(first);
                    Err(PageFillError::Abandoned)
                }
                Err(_) => Err(PageFillError::Busy(
                    "other reads from disk go first; raise worker.disk.reads_in_flight_max",
                )),
            },
        }
    }
}

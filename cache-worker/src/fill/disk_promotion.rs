//! Runs that are read from disk, and pages that are offered to it.
//!
//! What the disk can't give comes from the UFS, in the same run: who waits notices the time and
//! nothing else. But for a replica's readers: they are sent to the owner.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use verbs3_protocol::BlockIndex;
use verbs3_rdma::arena::CellWriter;

use super::fill_error::PageFillError;
use super::fill_run::{FillRunOrigin, PageFillRun};
use super::{FillTarget, PageFiller};
use crate::digest::PageKey;
use crate::disk::{DemotionOffer, DiskTier};
use crate::memory::{CachedPage, DemotionEvidence, MemoryUrgency};

impl PageFiller {
    /// Offers a page to the disk. Never waits.
    pub(super) fn offer_to_disk(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        page: u16,
        kept: &CachedPage,
        unsaved: DemotionEvidence,
    ) {
        let Some(disk) = &self.disk else { return };
        let offer = DemotionOffer {
            version: target.digest,
            block,
            page,
            object: self.digests.any_version(&target.object),
            volume: self.digests.digest_volume(&target.object.volume),
            cell: &kept.cell,
            length: kept.bytes,
            checksum: kept.checksum,
            uses: unsaved.uses,
            returned: unsaved.returned,
        };
        if disk.offer_page(&offer) {
            self.memory.mark_saved(target.digest.page_key(block, page));
        }
    }

    /// Reads a run from the disk. What the disk can't give is asked of the UFS, into the same
    /// memory; or of nobody.
    pub(super) async fn promote_run(
        self: &Arc<Self>,
        target: &Arc<FillTarget>,
        block: BlockIndex,
        run: &Arc<PageFillRun>,
    ) -> Result<(), PageFillError> {
        let Some(disk) = self.disk.clone() else { return self.fill_run(target, block, run).await };
        let first = run.pages[0].key;
        let turn = self.disk_turn(&disk, first).await?;
        let cells = self.memory_for(target, block, run)?;
        let (filler, own_target, own_run) = (self.clone(), target.clone(), run.clone());
        let read_from = disk.clone();
        let reading = tokio::task::spawn_blocking(move || {
            // Held until the device has answered, however long that takes.
            let _turn = turn;
            filler.read_pages(&read_from, &own_target, block, &own_run, cells)
        });
        let Ok(read) = tokio::time::timeout(disk.stall_max(), reading).await else {
            disk.report_stall(first);
            // Readers ask again, and are sent to the UFS. The cells stay with the thread that
            // hangs.
            return Err(PageFillError::Abandoned);
        };
        // An error: the runtime ends, or a bug; nothing more is known of the cells.
        let (from, cells) =
            read.map_err(|_| PageFillError::Busy("a read from disk was cut off"))?;
        if cells.is_empty() {
            return Ok(());
        }
        if run.origin == FillRunOrigin::DiskAlone {
            return Err(PageFillError::NotHeld);
        }
        // It waits with memory in hand: for a turn that no wait for memory can keep from coming.
        let left =
            run.pages[from..from + cells.len()].iter().map(|page| u64::from(page.bytes)).sum();
        let _turn = self.acquire_read_permit(left).await?;
        self.fill_from_ufs(target, block, run, from, cells).await
    }

    /// A page for another worker: in memory that the reserve leaves, and not kept.
    pub(crate) async fn read_from_disk(&self, key: PageKey, bytes: u32) -> Option<CachedPage> {
        let disk = self.disk.clone()?;
        let turn = self.disk_turn(&disk, key).await.ok()?;
        let (mut writer, cell) =
            self.memory.allocate_cell(bytes as usize, MemoryUrgency::Ahead)?.split_writer_reader();
        let read_from = disk.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let checksum = read_from.read(key, &mut writer.spare_bytes()[..bytes as usize])?;
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

    /// Reads what the disk can give of a run. The first page that it can't, and the cells from
    /// there to the last such page: none for those between that were read. Blocks.
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
            // Straight into the arena; published only once it has proved to be the page.
            let into = writer.spare_bytes().get_mut(..bytes).filter(|_| !self.stop.is_cancelled());
            let Some(checksum) = into.and_then(|into| disk.read(page.key, into)) else { continue };
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

    /// Waits for the right to read from disk. Bounded as the turns at a UFS are.
    async fn disk_turn(
        &self,
        disk: &DiskTier,
        first: PageKey,
    ) -> Result<OwnedSemaphorePermit, PageFillError> {
        let _queued = self.enter_queue()?;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(PageFillError::Stopping),
            got = tokio::time::timeout(disk.stall_max(), disk.read_permits().acquire_owned()) => match got {
                Ok(permit) => permit.map_err(|_| PageFillError::Stopping),
                // So many reads in so long a time: they hang.
                Err(_) => {
                    disk.report_stall(first);
                    Err(PageFillError::Abandoned)
                }
            },
        }
    }
}

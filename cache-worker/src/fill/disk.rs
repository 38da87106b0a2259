//! Runs that are read from disk, and pages that are offered to it.
//!
//! What the disk can't give comes from the UFS, in the same run: who waits notices the time and
//! nothing else. But for a replica's readers: they are sent to the owner.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use verbs3_protocol::BlockIndex;
use verbs3_rdma::arena::CellWriter;

use super::failure::Failure;
use super::run::{Origin, Run};
use super::{Filler, Target};
use crate::digest::PageKey;
use crate::disk::{Disk, Offer};
use crate::memory::{Page, Unsaved, Urgency};

impl Filler {
    /// Offers a page to the disk. Never waits.
    pub(super) fn save(
        &self,
        target: &Target,
        block: BlockIndex,
        page: u16,
        kept: &Page,
        unsaved: Unsaved,
    ) {
        let Some(disk) = &self.disk else { return };
        let offer = Offer {
            version: target.digest,
            block,
            page,
            object: self.digests.any_version(&target.object),
            volume: self.digests.volume(&target.object.volume),
            cell: &kept.cell,
            length: kept.bytes,
            checksum: kept.checksum,
            uses: unsaved.uses,
            returned: unsaved.returned,
        };
        if disk.offer(&offer) {
            self.memory.saved(target.digest.page(block, page));
        }
    }

    /// Reads a run from the disk. What the disk can't give is asked of the UFS, into the same
    /// memory; or of nobody.
    pub(super) async fn promote(
        self: &Arc<Self>,
        target: &Arc<Target>,
        block: BlockIndex,
        run: &Arc<Run>,
    ) -> Result<(), Failure> {
        let Some(disk) = self.disk.clone() else { return self.fill(target, block, run).await };
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
            disk.stalled(first);
            // Readers ask again, and are sent to the UFS. The cells stay with the thread that
            // hangs.
            return Err(Failure::Abandoned);
        };
        // An error: the runtime ends, or a bug; nothing more is known of the cells.
        let (from, cells) = read.map_err(|_| Failure::Busy("a read from disk was cut off"))?;
        if cells.is_empty() {
            return Ok(());
        }
        if run.origin == Origin::DiskAlone {
            return Err(Failure::NotHeld);
        }
        // It waits with memory in hand: for a turn that no wait for memory can keep from coming.
        let left =
            run.pages[from..from + cells.len()].iter().map(|page| u64::from(page.bytes)).sum();
        let _turn = self.turn(left).await?;
        self.ask(target, block, run, (from, cells)).await
    }

    /// A page for another worker: in memory that the reserve leaves, and not kept.
    pub(crate) async fn read_from_disk(&self, key: PageKey, bytes: u32) -> Option<Page> {
        let disk = self.disk.clone()?;
        let turn = self.disk_turn(&disk, key).await.ok()?;
        let (mut writer, cell) = self.memory.lease(bytes as usize, Urgency::Ahead)?.split();
        let read_from = disk.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let checksum = read_from.read(key, &mut writer.spare()[..bytes as usize])?;
            writer.advance(bytes as usize);
            Some(checksum)
        });
        match tokio::time::timeout(disk.stall_max(), reading).await {
            Ok(read) => read.ok().flatten().map(|checksum| Page { cell, bytes, checksum }),
            Err(_) => {
                disk.stalled(key);
                None
            }
        }
    }

    /// Reads what the disk can give of a run. The first page that it can't, and the cells from
    /// there to the last such page: none for those between that were read. Blocks.
    fn read_pages(
        &self,
        disk: &Disk,
        target: &Target,
        block: BlockIndex,
        run: &Run,
        mut cells: VecDeque<Option<CellWriter>>,
    ) -> (usize, VecDeque<Option<CellWriter>>) {
        for (index, cell) in cells.iter_mut().enumerate() {
            let page = &run.pages[index];
            let Some(writer) = cell else { continue };
            let bytes = page.bytes as usize;
            // Straight into the arena; published only once it has proved to be the page.
            let into = writer.spare().get_mut(..bytes).filter(|_| !self.stop.is_cancelled());
            let Some(checksum) = into.and_then(|into| disk.read(page.key, into)) else { continue };
            writer.advance(bytes);
            *cell = None;
            self.keep(target, block, run, (index, checksum));
            run.publish(page.end());
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
        disk: &Disk,
        first: PageKey,
    ) -> Result<OwnedSemaphorePermit, Failure> {
        let _queued = self.queue()?;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Failure::Stopping),
            got = tokio::time::timeout(disk.stall_max(), disk.reads().acquire_owned()) => match got {
                Ok(permit) => permit.map_err(|_| Failure::Stopping),
                // So many reads in so long a time: they hang.
                Err(_) => {
                    disk.stalled(first);
                    Err(Failure::Abandoned)
                }
            },
        }
    }
}

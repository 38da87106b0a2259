//! Takes pages from other workers. From a slot's former owners, a run takes what it can before it
//! asks the UFS for the rest. From the owner of a hot block, a replica takes what there is.
//!
//! A run holds no cache memory while it waits. Received bytes lie in memory of their own
//! (`verbs3_client::NeighbourClient`) until a page's cell is allocated for them, and that does not
//! wait.

use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use verbs3_client::{HeldRequest, NeighbourError};
use verbs3_protocol::{BlockIndex, BlockPiece, PageIndex, WorkerId};

use super::fill_error::PageFillError;
use super::fill_run::{FillRunOrigin, PageFillRun};
use super::{FillTarget, PageFiller};
use crate::attributes::AttributeQuery;
use crate::memory::MemoryUrgency;
use crate::metrics::{FormerResult, OwnerResult, PageDirection};

/// The outcome of the pages of one piece.
enum PieceOutcome {
    All,
    /// There is no memory for more pages.
    NoMemory,
    /// This page does not match its checksum.
    Corrupt(u16),
}

impl PageFiller {
    /// Takes the pages of a run that former owners of the block's slot hold. Bounded in time. Fails
    /// only when the worker stops.
    pub(super) async fn take_over(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
    ) -> Result<(), PageFillError> {
        for id in self.former.former_owners(target.object.block_slot(block), self.clock.now()) {
            let missing = missing_pages(run);
            if missing == 0 {
                break;
            }
            let taken = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(PageFillError::Stopping),
                taken = self.take_over_from(&id, target, block, run) => taken,
            };
            let left = missing_pages(run);
            let metrics = &self.metrics;
            let counter = match &taken {
                Ok(()) if left == 0 => &metrics.former_asked[FormerResult::All],
                Ok(()) if left < missing => &metrics.former_asked[FormerResult::Some],
                Ok(()) => &metrics.former_asked[FormerResult::None],
                Err(NeighbourError::Busy) => &metrics.former_asked[FormerResult::Busy],
                Err(NeighbourError::Resting(_)) => &metrics.former_asked[FormerResult::Resting],
                Err(NeighbourError::Silent(_)) => &metrics.former_asked[FormerResult::Silent],
                Err(
                    NeighbourError::Transport(_)
                    | NeighbourError::Senseless { .. }
                    | NeighbourError::Refused { .. },
                ) => &metrics.former_asked[FormerResult::Failed],
                Err(NeighbourError::Corrupt { .. }) => &metrics.former_asked[FormerResult::Corrupt],
            };
            counter.inc();
        }
        Ok(())
    }

    /// Takes the pages of a run that the owner of the block holds. Pages that it lacks, or does not
    /// give in time, fail.
    pub(super) async fn take_from_owner(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
    ) -> Result<(), PageFillError> {
        let Some(id) = self.former.other_owner(target.object.block_slot(block)) else {
            return Err(PageFillError::NotHeld);
        };
        let (all, metrics) = (run.pages.len(), &self.metrics);
        let taken = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(PageFillError::Stopping),
            taken = self.take_over_from(&id, target, block, run) => taken,
        };
        let missing = missing_pages(run);
        match &taken {
            Ok(()) if missing == 0 => metrics.owner_asked[OwnerResult::All].inc(),
            Ok(()) if missing < all => metrics.owner_asked[OwnerResult::Some].inc(),
            Ok(()) => metrics.owner_asked[OwnerResult::None].inc(),
            Err(_) => metrics.owner_asked[OwnerResult::Failed].inc(),
        }
        match taken {
            _ if missing == 0 => Ok(()),
            Err(
                NeighbourError::Busy
                | NeighbourError::Resting(_)
                | NeighbourError::Silent(_)
                | NeighbourError::Transport(_),
            ) => Err(PageFillError::OwnerSilent),
            // An owner that sent wrong bytes is not asked for them again.
            Ok(())
            | Err(
                NeighbourError::Senseless { .. }
                | NeighbourError::Refused { .. }
                | NeighbourError::Corrupt { .. },
            ) => Err(PageFillError::NotHeld),
        }
    }

    /// Copies a block from its former owners, and returns how many bytes came. Pages that they lack
    /// are left to later readers.
    pub(crate) async fn take_over_block(
        self: &Arc<Self>,
        target: Arc<FillTarget>,
        block: BlockIndex,
    ) -> u64 {
        let mut bytes = 0;
        for run in self.runs_of_absent(&target, block) {
            // An error means that the runtime ends.
            let _ = self.start_run(target.clone(), block, run.clone(), Vec::new()).await;
            let came = run.pages.iter().enumerate().filter(|(index, _)| !run.is_missing(*index));
            bytes += came.map(|(_, page)| u64::from(page.bytes)).sum::<u64>();
        }
        if block.0 == 0 && bytes > 0 {
            // The block's attributes are not known here. A request for them should not bring the
            // bytes again.
            self.unasked_versions.insert(self.digests.any_version(&target.object), target.digest);
        }
        bytes
    }

    /// Returns the bytes of a block that are here, in memory or on disk.
    pub(crate) fn held_bytes(&self, target: &FillTarget, block: BlockIndex) -> u64 {
        let block_len = self.geometry.block_len(target.version.bytes, block);
        let is_held = |page: &u16| {
            let key = target.digest.page_key(block, *page);
            self.memory.holds_page(key) || self.is_on_disk(key)
        };
        let held = self.geometry.touched_pages(&(0..block_len)).filter(is_held);
        held.map(|page| u64::from(self.geometry.page_len(block_len, PageIndex(page)))).sum()
    }

    /// Returns whether a former owner seems to hold the page of block 0 that begins at this byte.
    pub(crate) async fn former_holds(&self, subject: &AttributeQuery, first_byte: u64) -> bool {
        let page = (first_byte / u64::from(self.geometry.page_bytes)) as u16;
        let (object, version_id) = (&subject.object, subject.version_id.as_deref());
        let now = self.clock.now();
        self.former.former_owner_holds(object, version_id, self.geometry, page, now).await
    }

    async fn take_over_from(
        &self,
        id: &WorkerId,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
    ) -> Result<(), NeighbourError> {
        let missing = |index: &usize| run.is_missing(*index);
        let Some(first) = (0..run.pages.len()).find(missing) else { return Ok(()) };
        let last = (first..run.pages.len()).rev().find(missing).unwrap_or(first);
        let range = run.page_start(first)..run.page_start(last) + run.pages[last].bytes;
        let (object, version) = (target.object.clone(), target.version.clone());
        let mut read =
            self.former.read_held(id, HeldRequest { object, version, block, range }).await?;
        while let Some((piece, data)) = read.next().await? {
            match self.take_piece(target, block, run, &piece, &data) {
                PieceOutcome::All => {}
                PieceOutcome::NoMemory => break,
                PieceOutcome::Corrupt(page) => return Err(read.reject_corrupt(page)),
            }
        }
        Ok(())
    }

    /// Copies a piece into cells, and keeps each page that matches its checksum.
    fn take_piece(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        piece: &BlockPiece,
        data: &[Bytes],
    ) -> PieceOutcome {
        let page_of = |byte: u32| (byte / self.geometry.page_bytes) as u16;
        let (first_page, run_first) = (page_of(piece.start), page_of(run.start));
        let mut source = PieceByteCursor { chunks: data, at: 0 };
        for (page, &expected) in (first_page..).zip(&piece.checksums) {
            let index = usize::from(page - run_first);
            let Some(of_run) = run.pages.get(index) else { break };
            let bytes = of_run.bytes as usize;
            if !run.is_missing(index) {
                source.skip_bytes(bytes);
                continue;
            }
            let urgency =
                if run.is_ahead(index) { MemoryUrgency::Ahead } else { MemoryUrgency::Demand };
            let Some(cell) = self.memory.allocate_cell(bytes, urgency, target.account) else {
                return PieceOutcome::NoMemory;
            };
            let (mut writer, reader) = cell.split_writer_reader();
            // The bytes are copied first, and checked where they can't change any more. The sender
            // may still be able to write to its memory.
            let spare = &mut writer.spare_bytes()[..bytes];
            source.copy_to(spare);
            if checksum(CrcAlgorithm::Crc64Nvme, spare) != expected {
                return PieceOutcome::Corrupt(page);
            }
            writer.publish_bytes(bytes);
            run.set_cell(index, reader);
            let taken = if run.origin == FillRunOrigin::Owner {
                &self.metrics.owner_bytes
            } else {
                &self.metrics.former_bytes[PageDirection::Taken]
            };
            taken.inc_by(bytes as u64);
            self.keep_page(target, block, run, index, expected);
            run.publish_progress(of_run.end_offset());
        }
        PieceOutcome::All
    }
}

fn missing_pages(run: &PageFillRun) -> usize {
    (0..run.pages.len()).filter(|&index| run.is_missing(index)).count()
}

/// A cursor over chunks of bytes. The sum of their lengths has been checked.
struct PieceByteCursor<'a> {
    chunks: &'a [Bytes],
    at: usize,
}

impl PieceByteCursor<'_> {
    fn copy_to(&mut self, mut into: &mut [u8]) {
        while !into.is_empty()
            && let Some(chunk) = self.chunks.first()
        {
            let bytes = into.len().min(chunk.len() - self.at);
            let (now, later) = into.split_at_mut(bytes);
            now.copy_from_slice(&chunk[self.at..self.at + bytes]);
            into = later;
            self.advance_chunk(bytes);
        }
    }

    fn skip_bytes(&mut self, mut bytes: usize) {
        while bytes > 0
            && let Some(chunk) = self.chunks.first()
        {
            let step = bytes.min(chunk.len() - self.at);
            bytes -= step;
            self.advance_chunk(step);
        }
    }

    fn advance_chunk(&mut self, bytes: usize) {
        self.at += bytes;
        if self.at == self.chunks[0].len() {
            (self.chunks, self.at) = (&self.chunks[1..], 0);
        }
    }
}

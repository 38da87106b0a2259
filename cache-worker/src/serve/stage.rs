//! Answers `StageMessage`: takes pages of a write from the gateway that sends it to the store,
//! checks them against their checksums, and keeps them where nobody can read them.

use std::ops::Range;

use bytes::{Buf, Bytes};
use crc_fast::CrcAlgorithm;
use tokio::time::timeout;
use verbs3_protocol::{
    BlockGeometry, ObjectKey, PageIndex, STAGED_PAGES_MAX, StageMessage, StagedPages,
};
use verbs3_rdma::arena::{ArenaCell, CellReader};
use verbs3_rdma::landing::Landing;
use verbs3_rdma::transport::ReplySender;

use crate::memory::{
    CachedPage, ComingPages, MemoryTier, MemoryUrgency, StageOwner, StageReservation, StagedPage,
};
use crate::metrics::{BusyReason, CountedRequest, StagedEnd};
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

/// For whom pages are staged, and who pushes them.
pub(super) struct StagingCall {
    pub(super) account: TenantAccount,
    pub(super) peer: Box<str>,
}

impl CacheWorker {
    /// Takes the pages. If the gateway cancels the call or goes away, the future is dropped, and all
    /// that was taken for it goes back.
    pub(super) async fn answer_stage(
        &self,
        stage: StageMessage,
        call: StagingCall,
        reply: &mut ReplySender,
    ) -> Result<StagedPages, ServeRefusal> {
        self.metrics.requests[CountedRequest::Stage].inc();
        let lengths = self.check_stage(&stage)?;
        let memory_tier = self.pages.filler.memory_tier();
        let room = self.take_room(&stage, &lengths, call).inspect_err(|_| {
            self.metrics.busy[BusyReason::Staged].inc();
        })?;
        // A gateway that stands still, or never pushes, gives its room back like one that never
        // settles.
        let staged_for = memory_tier.staged_pages().kept_for();
        let pushed = timeout(staged_for, reply.pull_data(Bytes::new(), room.landing)).await;
        let pushed = pushed.ok().and_then(Result::ok).ok_or(ServeRefusal::NothingPushed)?;
        let pages = self.copy_pages(&stage, room.cells, pushed)?;
        memory_tier.staged_pages().add_pages(pages, self.clock.now(), room.taken)?;
        Ok(StagedPages { bytes: stage.bytes.into() })
    }

    /// Checks everything that can be checked before memory is taken. Returns the pages' lengths.
    fn check_stage(&self, stage: &StageMessage) -> Result<Vec<usize>, ServeRefusal> {
        self.home
            .standing
            .is_at(stage.epoch)
            .map_err(|denied| ServeRefusal::for_denial(denied, stage.epoch))?;
        self.checks.check_geometry(stage.geometry)?;
        self.checks.check_volume(&stage.object.volume)?;
        // Without coordinators nobody tells a worker its map: equal epochs mean equal maps.
        let (former, slot) = (&self.pages.former, stage.object.block_slot(stage.block));
        if former.present_owner(slot).is_some() && !former.is_mine(slot) {
            return Err(ServeRefusal::OtherOwner(stage.block.0));
        }
        let range = staged_range(stage).ok_or(ServeRefusal::StagedRange {
            first_page: stage.first_page,
            pages: stage.checksums.len(),
            bytes: stage.bytes,
        })?;
        Ok(stage.geometry.page_cuts(&range).collect())
    }

    /// Takes memory for pages, and as much to push them into: a gateway can write to the second as
    /// long as the call lasts, so what is kept is a copy that it can't reach.
    fn take_room(
        &self,
        stage: &StageMessage,
        lengths: &[usize],
        call: StagingCall,
    ) -> Result<StageRoom, ServeRefusal> {
        let StagingCall { account, peer } = call;
        let memory = self.pages.filler.memory_tier();
        let arena = memory.page_arena();
        let width = lengths.iter().map(|&bytes| arena.class_bytes(bytes) as u64).sum::<u64>();
        let owner = StageOwner { object: stage.object.clone(), peer };
        let (token, bytes, now) = (stage.token, 2 * width, self.clock.now());
        let coming = ComingPages { token, owner, account, bytes, now };
        let taken = memory.staged_pages().reserve_place(coming)?;
        let cells = lengths
            .iter()
            .map(|&bytes| memory.allocate_cell(bytes, MemoryUrgency::Staged, account))
            .collect::<Option<Vec<_>>>()
            .ok_or(ServeRefusal::NoStageMemory)?;
        let landing = Landing::allocate_segments(arena, lengths);
        Ok(StageRoom { cells, landing: landing.ok_or(ServeRefusal::NoStageMemory)?, taken })
    }

    /// Copies what was pushed into cells of its own, and checks each page against its checksum.
    fn copy_pages(
        &self,
        stage: &StageMessage,
        cells: Vec<ArenaCell>,
        pushed: Vec<Bytes>,
    ) -> Result<Vec<StagedPage>, ServeRefusal> {
        let memory = self.pages.filler.memory_tier();
        let mut pushed = PushedBytes(pushed.into_iter());
        let pages = (stage.first_page..).zip(cells.into_iter().zip(&stage.checksums));
        pages
            .map(|(page, (cell, &checksum))| {
                let width = page_width(memory, &cell);
                let bytes = cell.len() as u32;
                let Some(cell) = pushed.fill_cell(cell, checksum) else {
                    self.metrics.staged_pages[StagedEnd::Corrupt].inc();
                    return Err(ServeRefusal::OtherBytes(page));
                };
                let kept = CachedPage { cell, bytes, checksum };
                Ok(StagedPage { block: stage.block, page, kept, width })
            })
            .collect()
    }
}

fn page_width(memory: &MemoryTier, cell: &ArenaCell) -> u64 {
    memory.page_arena().class_bytes(cell.len()) as u64
}

/// Memory for the pages of one question.
struct StageRoom {
    cells: Vec<ArenaCell>,
    /// Where the gateway pushes to.
    landing: Landing,
    taken: StageReservation,
}

/// The bytes that were pushed, in order, wherever they are cut.
struct PushedBytes(std::vec::IntoIter<Bytes>);

impl PushedBytes {
    /// Copies the next bytes into the cell. `None`: they are not those of the checksum. It is
    /// computed over the copy, which nobody else can write to.
    fn fill_cell(&mut self, cell: ArenaCell, checksum: u64) -> Option<CellReader> {
        let bytes = cell.len();
        let (mut writer, reader) = cell.split_writer_reader();
        let spare = &mut writer.spare_bytes()[..bytes];
        let mut at = 0;
        while at < bytes {
            let mut piece = self.0.next()?;
            // Landings are cut at page borders, and so are the pieces.
            if piece.len() > bytes - at {
                return None;
            }
            let end = at + piece.len();
            piece.copy_to_slice(&mut spare[at..end]);
            at = end;
        }
        if crc_fast::checksum(CrcAlgorithm::Crc64Nvme, spare) != checksum {
            return None;
        }
        writer.publish_bytes(bytes);
        Some(reader)
    }
}

/// Returns the range of the block that the pages cover; `None` if they are not whole pages of one
/// block, of which only the last may be short.
fn staged_range(stage: &StageMessage) -> Option<Range<u32>> {
    let StageMessage { geometry, first_page, bytes, checksums, .. } = stage;
    let BlockGeometry { block_bytes, page_bytes } = *geometry;
    let pages = checksums.len();
    let start = u32::from(PageIndex(*first_page).0).checked_mul(page_bytes)?;
    let end = start.checked_add(*bytes).filter(|&end| end <= block_bytes)?;
    let covered = bytes.div_ceil(page_bytes) as usize;
    let is_whole = (1..=STAGED_PAGES_MAX).contains(&pages)
        && covered == pages
        // Staged pages keep their key.
        && stage.object.key.len() <= ObjectKey::KEY_BYTES_MAX;
    is_whole.then_some(start..end)
}

#[cfg(test)]
mod tests {
    use verbs3_protocol::{BlockIndex, Epoch, ObjectVolume, PopulateToken};

    use super::*;

    #[test]
    fn only_whole_pages_of_one_block_are_taken() {
        let page = BlockGeometry::DEFAULT.page_bytes;
        let range = |first_page: u16, bytes: u32, pages: usize| {
            staged_range(&StageMessage {
                object: ObjectKey { volume: ObjectVolume::new("u", "b"), key: "k".into() },
                epoch: Epoch(1),
                geometry: BlockGeometry::DEFAULT,
                token: PopulateToken(1),
                block: BlockIndex(0),
                first_page,
                bytes,
                checksums: vec![0; pages],
            })
        };
        assert_eq!(range(0, 1, 1), Some(0..1));
        assert_eq!(range(15, page, 1), Some(15 * page..16 * page));
        assert_eq!(range(0, 16 * page, 16), Some(0..16 * page));
        assert_eq!(range(2, page + 1, 2), Some(2 * page..3 * page + 1));
        for (first_page, bytes, pages) in [
            (0, 0, 0),
            (0, 0, 1),
            (0, page, 2),
            (0, page + 1, 1),
            (15, page + 1, 2),
            (16, 1, 1),
            (0, 16 * page + 1, 17),
            (u16::MAX, page, 1),
            (0, u32::MAX, 1),
        ] {
            assert_eq!(range(first_page, bytes, pages), None, "{first_page} {bytes} {pages}");
        }
    }
}

//! Turns the pages of one span into the chunks of a reply. Pages that are here are sent at once,
//! the rest as they come.
//!
//! A waiting reader keeps only the page that it waits for. The pages after it are looked up again
//! when they are reached, and filled again if they were evicted meanwhile.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use verbs3_protocol::{BlockIndex, BlockPiece, CacheVerdict};
use verbs3_rdma::arena::CellReader;

use super::PageServer;
use crate::fill::{
    ClaimedUnit, FillTarget, FillUnit, FillUnitKind, PageClaim, PageClaimRequest, PageFillError,
    PageFillRun, PageFillState, PageSource,
};
use crate::memory::CachedPage;
use crate::metrics::BusyReason;

/// Bytes of a first chunk that is not a whole page. Enough that a chunk's cost is small beside it;
/// few enough that the client's first byte does not wait for a whole page of a slow store.
const FIRST_CHUNK_BYTES: u32 = 32 << 10;

/// How often one read claims evicted pages again. Beyond that, memory is too short for it.
const RECLAIMS_MAX: usize = 8;

/// The reader that turns a span into the chunks of a reply.
pub(crate) struct BlockSpanReader<'a> {
    pages: &'a PageServer,
    target: Arc<FillTarget>,
    claim: PageClaim,
    block: BlockIndex,
    range: Range<u32>,
    /// The first byte within the block that was not sent yet.
    at: u32,
    pub(crate) verdict: CacheVerdict,
    reclaims: usize,
    /// The checksum of what the present chunk has of its last page, where that is not the page's
    /// own.
    digest: Digest,
    /// See [`PageClaimRequest`].
    replica: bool,
    request_range: Range<u64>,
}

/// What a read wants of one block.
pub(crate) struct BlockSpanWant {
    pub(crate) block: BlockIndex,
    /// Bytes within the block.
    pub(crate) range: Range<u32>,
    /// See [`PageClaimRequest`].
    pub(crate) ahead_bytes: u32,
    pub(crate) request_range: Range<u64>,
}

/// The bytes of one message of a reply.
pub(crate) struct SpanReplyChunk {
    pub(crate) piece: BlockPiece,
    /// Offset from the start of the span.
    pub(crate) offset: u64,
    pub(crate) data: Vec<Bytes>,
}

/// What of a page can be sent now.
enum PageAvailability {
    Whole(CachedPage),
    /// It is being filled: its cell, and how many bytes can be read.
    Readable(CellReader, u32),
    Nothing,
    /// The page was evicted.
    Lost,
}

impl<'a> BlockSpanReader<'a> {
    /// Claims the pages that the wanted range of the block touches, and starts the necessary fills.
    pub(crate) fn start_read(
        pages: &'a PageServer,
        target: Arc<FillTarget>,
        want: BlockSpanWant,
    ) -> Result<Self, PageFillError> {
        let reading = Self::claim_span(pages, target, want, false)?;
        reading.note_heat();
        Ok(reading)
    }

    /// Claims pages of a hot block whose owner is another worker. Unlike
    /// [`BlockSpanReader::start_read`], it fills nothing from the UFS.
    pub(crate) fn start_replica(
        pages: &'a PageServer,
        target: Arc<FillTarget>,
        block: BlockIndex,
        range: Range<u32>,
    ) -> Result<Self, PageFillError> {
        let want = BlockSpanWant { block, range, ahead_bytes: 0, request_range: 0..0 };
        Self::claim_span(pages, target, want, true)
    }

    fn claim_span(
        pages: &'a PageServer,
        target: Arc<FillTarget>,
        want: BlockSpanWant,
        replica: bool,
    ) -> Result<Self, PageFillError> {
        let BlockSpanWant { block, range, ahead_bytes, request_range } = want;
        let wanted = PageClaimRequest {
            block,
            pages: pages.checks.geometry.touched_pages(&range),
            bytes: Some(range.clone()),
            ahead_bytes,
            request_range: request_range.clone(),
            replica,
        };
        let claim = pages.filler.claim_pages(&target, &wanted)?;
        let verdict = claim.cache_verdict(None);
        Ok(Self {
            pages,
            target,
            claim,
            block,
            at: range.start,
            range,
            verdict,
            reclaims: 0,
            digest: Digest::new(CrcAlgorithm::Crc64Nvme),
            replica,
            request_range,
        })
    }

    fn note_heat(&self) {
        let now_s = self.pages.clock.now().as_secs();
        self.pages.heat.read(&self.target, self.block, self.range.end - self.range.start, now_s);
    }

    pub(crate) fn page_claim(&self) -> &PageClaim {
        &self.claim
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.range.end
    }

    /// Waits until the UFS has answered for one of the pages that it fills, if there is one. No
    /// bytes have been sent at that point, so a vanished version is detected before its first byte.
    pub(crate) async fn confirm_version(&mut self) -> Result<(), PageFillError> {
        let filling = self.claim.units.iter().find_map(|claimed| match &claimed.source {
            PageSource::Filling { run, index } if run.origin.is_ufs() => {
                Some((run.clone(), *index))
            }
            PageSource::Filling { .. } | PageSource::Held(_) | PageSource::Released => None,
        });
        let Some((run, index)) = filling else { return Ok(()) };
        self.claim.release_pages();
        match run.wait_for_page(index, 1).await {
            Err(PageFillError::VersionGone(reason)) => Err(PageFillError::VersionGone(reason)),
            // Any other failure is reported when the reader reaches these pages.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns the next bytes: every whole page that is there, or the beginning of the first. Waits
    /// until there are some.
    pub(crate) async fn next(&mut self) -> Result<SpanReplyChunk, PageFillError> {
        let chunk = self.wait_for_next().await?;
        // A read that a replica refuses goes to the owner, and is counted there.
        if self.replica && chunk.offset == 0 {
            self.note_heat();
        }
        Ok(chunk)
    }

    async fn wait_for_next(&mut self) -> Result<SpanReplyChunk, PageFillError> {
        loop {
            if let Some(chunk) = self.there_now() {
                return Ok(chunk);
            }
            self.claim.release_pages();
            let (place, bytes) = self.unit_at(self.at);
            let enough = match self.at == self.range.start {
                true => bytes.end.min(bytes.start + FIRST_CHUNK_BYTES),
                false => bytes.end,
            };
            let PageSource::Filling { run, index } = &self.claim.units[place].source else {
                self.reclaim_pages()?;
                continue;
            };
            let (run, index) = (run.clone(), *index);
            if self.claim.units[place].unit.kind == FillUnitKind::Part
                && self.wait_for_parts(place, &run).await.is_ok()
                && let Some(chunk) = self.there_now()
            {
                return Ok(chunk);
            }
            match run.wait_for_page(index, enough).await {
                Err(PageFillError::Abandoned) => self.reclaim_pages()?,
                // This reader joined a replica's run, which asks only the owner. It now starts its
                // own.
                Err(PageFillError::NotHeld | PageFillError::OwnerSilent) if !self.replica => {
                    self.reclaim_pages()?
                }
                Err(failure) => return Err(failure),
                // The bytes come from the awaited cell, which is surely there. A lookup could fail.
                Ok(PageFillState::Readable(cell, there)) => {
                    let end = bytes.end.min(there);
                    let mut chunk = self.begin_chunk();
                    self.push_bytes(&mut chunk, &cell, bytes.start..end, None);
                    return Ok(chunk);
                }
                Ok(PageFillState::Kept) => {
                    if let PageAvailability::Lost = self.page_availability(place) {
                        self.reclaim_pages()?;
                    }
                }
            }
        }
    }

    /// Waits for all wanted parts that a run brings, from the one at `place` on. One message has
    /// them all: there are many small parts, and they come together.
    async fn wait_for_parts(
        &self,
        place: usize,
        run: &Arc<PageFillRun>,
    ) -> Result<(), PageFillError> {
        let is_of_run = |claimed: &&ClaimedUnit| match &claimed.source {
            PageSource::Filling { run: other, .. } => Arc::ptr_eq(run, other),
            PageSource::Held(_) | PageSource::Released => false,
        };
        let last = self.claim.units[place..].iter().take_while(is_of_run).last();
        if let Some(ClaimedUnit { unit, source: PageSource::Filling { index, .. } }) = last {
            run.wait_for_page(*index, unit.bytes).await?;
        }
        Ok(())
    }

    fn there_now(&mut self) -> Option<SpanReplyChunk> {
        let mut chunk = self.begin_chunk();
        while !self.is_done() {
            let (place, bytes) = self.unit_at(self.at);
            match self.page_availability(place) {
                PageAvailability::Whole(page) => {
                    let is_page = self.claim.units[place].unit.kind == FillUnitKind::Page;
                    let whole = is_page && bytes == (0..page.bytes);
                    self.push_bytes(&mut chunk, &page.cell, bytes, whole.then_some(page.checksum));
                }
                PageAvailability::Readable(cell, there) if there >= bytes.end => {
                    self.push_bytes(&mut chunk, &cell, bytes, None)
                }
                PageAvailability::Readable(cell, there) => {
                    if self.at == self.range.start && there >= bytes.start + FIRST_CHUNK_BYTES {
                        self.push_bytes(&mut chunk, &cell, bytes.start..there, None);
                    }
                    break;
                }
                PageAvailability::Nothing | PageAvailability::Lost => break,
            }
        }
        (!chunk.data.is_empty()).then_some(chunk)
    }

    fn page_availability(&self, place: usize) -> PageAvailability {
        let ClaimedUnit { unit: FillUnit { key, .. }, source } = &self.claim.units[place];
        let looked_up = || {
            // The claim has counted this read of the pages that were here. The reader of a filled
            // page is no second use. Otherwise a scan would look as used as pages that are read
            // again.
            self.pages
                .filler
                .memory_tier()
                .peek_page(*key)
                .map_or(PageAvailability::Lost, PageAvailability::Whole)
        };
        match source {
            PageSource::Held(page) => PageAvailability::Whole(page.clone()),
            PageSource::Released => looked_up(),
            PageSource::Filling { run, index } => match run.page_state(*index) {
                Some(PageFillState::Readable(cell, there)) => {
                    PageAvailability::Readable(cell, there)
                }
                Some(PageFillState::Kept) => looked_up(),
                None => PageAvailability::Nothing,
            },
        }
    }

    /// Claims the remaining pages once more.
    fn reclaim_pages(&mut self) -> Result<(), PageFillError> {
        if self.reclaims >= RECLAIMS_MAX {
            self.pages.metrics.busy[BusyReason::Memory].inc();
            return Err(PageFillError::Busy(
                "pages are given up before they can be read; raise worker.memory.capacity",
            ));
        }
        self.reclaims += 1;
        let pages = self.pages.checks.geometry.touched_pages(&(self.at..self.range.end));
        let wanted = PageClaimRequest {
            block: self.block,
            pages,
            bytes: Some(self.at..self.range.end),
            ahead_bytes: 0,
            request_range: self.request_range.clone(),
            replica: self.replica,
        };
        self.claim = self.pages.filler.claim_pages(&self.target, &wanted)?;
        Ok(())
    }

    fn begin_chunk(&self) -> SpanReplyChunk {
        let piece = BlockPiece {
            block: self.block,
            start: self.at,
            length: 0,
            checksums: Vec::new(),
            verdict: self.verdict,
        };
        SpanReplyChunk { piece, offset: u64::from(self.at - self.range.start), data: Vec::new() }
    }

    /// Adds available bytes of the current page. `stored`: their checksum, if they are the whole
    /// page. Bytes of one page that come from several parts get one checksum.
    fn push_bytes(
        &mut self,
        chunk: &mut SpanReplyChunk,
        cell: &CellReader,
        range: Range<u32>,
        stored: Option<u64>,
    ) {
        let Some(bytes) = cell.pinned_bytes(range.start as usize..range.end as usize) else {
            return;
        };
        let is_page_border = self.at.is_multiple_of(self.pages.checks.geometry.page_bytes);
        if chunk.data.is_empty() || is_page_border {
            self.digest.reset();
        } else {
            chunk.piece.checksums.pop();
        }
        let checksum = stored.unwrap_or_else(|| {
            self.digest.update(&bytes);
            self.digest.finalize()
        });
        chunk.piece.checksums.push(checksum);
        chunk.piece.length += range.end - range.start;
        chunk.data.push(bytes);
        self.at += range.end - range.start;
    }

    /// Returns the page that holds the byte at `at`, or the part of one: its place among the claim's
    /// units, and its wanted bytes from `at` on.
    fn unit_at(&self, at: u32) -> (usize, Range<u32>) {
        let units = &self.claim.units;
        let place = units.partition_point(|claimed| claimed.unit.byte_range().end <= at);
        let FillUnit { start, bytes, .. } = units[place].unit;
        (place, at - start..(self.range.end - start).min(bytes))
    }
}

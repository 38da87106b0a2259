//! Turns the pages of one span into parts of a reply: what is there goes out at once, the rest as it comes.

use std::ops::Range;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use verbs3_protocol::{BlockIndex, CacheVerdict, Geometry, Piece};

use crate::fill::{Claim, Failure, PageSource};

/// A first part that is not a whole page is sent once this many bytes are there: enough that a part's cost is small
/// beside it, few enough that the client's first byte does not wait for a page of a slow store.
const FIRST_PART_BYTES: u32 = 32 << 10;

/// The bytes of a span, on their way out.
pub(super) struct Reading {
    claim: Claim,
    geometry: Geometry,
    block: BlockIndex,
    range: Range<u32>,
    /// First byte, within the block, that was not handed out.
    at: u32,
    verdict: CacheVerdict,
}

/// Bytes for one part.
pub(super) struct Chunk {
    pub(super) piece: Piece,
    /// From the start of the span.
    pub(super) offset: u64,
    pub(super) data: Vec<Bytes>,
}

/// A page's part of the span: which page, and which of its bytes.
struct PagePart {
    source: usize,
    base: u32,
    bytes: Range<u32>,
}

impl Reading {
    /// `claim` is of the pages that `range` of the block touches.
    pub(super) fn new(claim: Claim, geometry: Geometry, block: BlockIndex, range: Range<u32>) -> Self {
        let verdict = claim.verdict();
        Self { claim, geometry, block, at: range.start, range, verdict }
    }

    pub(super) fn is_done(&self) -> bool {
        self.at >= self.range.end
    }

    /// The next bytes: every whole page that is there, or the beginning of the first. Waits until there are some.
    pub(super) async fn next(&mut self) -> Result<Chunk, Failure> {
        loop {
            if let Some(chunk) = self.there_now() {
                return Ok(chunk);
            }
            let part = self.part_at(self.at);
            let enough = match self.at == self.range.start {
                true => part.bytes.end.min(part.bytes.start + FIRST_PART_BYTES),
                false => part.bytes.end,
            };
            match &self.claim.sources[part.source] {
                PageSource::Held(_) => return Err(Failure::Busy("a held page is shorter than its version says")),
                PageSource::Filling { run, index } => run.wait(*index, enough).await?,
            }
        }
    }

    fn there_now(&mut self) -> Option<Chunk> {
        let start = self.at;
        let (mut data, mut checksums) = (Vec::new(), Vec::new());
        while !self.is_done() {
            let PagePart { source, base, bytes } = self.part_at(self.at);
            let there = available(&self.claim.sources[source]);
            let first = self.at == self.range.start;
            let end = match there >= bytes.end {
                true => bytes.end,
                false if first && there >= bytes.start + FIRST_PART_BYTES => there,
                false => break,
            };
            let (bytes, checksum) = cut(&self.claim.sources[source], bytes.start..end)?;
            data.push(bytes);
            checksums.push(checksum);
            self.at = base + end;
        }
        if data.is_empty() {
            return None;
        }
        let piece = Piece { block: self.block, start, length: self.at - start, checksums, verdict: self.verdict };
        Some(Chunk { piece, offset: u64::from(start - self.range.start), data })
    }

    fn part_at(&self, at: u32) -> PagePart {
        let page_bytes = self.geometry.page_bytes;
        let page = at / page_bytes;
        let base = page * page_bytes;
        let end = (self.range.end - base).min(page_bytes);
        PagePart { source: page as usize - usize::from(self.claim.first_page), base, bytes: at - base..end }
    }
}

fn available(source: &PageSource) -> u32 {
    match source {
        PageSource::Held(page) => page.bytes,
        PageSource::Filling { run, index } => run.available(*index),
    }
}

/// A view of the page, and its checksum: the stored one of a whole page, else computed.
fn cut(source: &PageSource, range: Range<u32>) -> Option<(Bytes, u64)> {
    let (cell, page_bytes, stored) = match source {
        PageSource::Held(page) => (&page.cell, page.bytes, Some(page.checksum)),
        PageSource::Filling { run, index } => (run.cell(*index)?, run.page_bytes(*index), run.checksum(*index)),
    };
    let whole = range == (0..page_bytes);
    let bytes = cell.bytes(range.start as usize..range.end as usize)?;
    let checksum = match stored {
        Some(stored) if whole => stored,
        _ => checksum(CrcAlgorithm::Crc64Nvme, &bytes),
    };
    Some((bytes, checksum))
}

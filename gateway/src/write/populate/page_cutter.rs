//! Cuts a body into runs of whole pages, as they lie in the object. Copies the bytes: a body's frames
//! are slices of buffers that would stay taken as a whole.

use std::sync::Arc;

use bytes::Bytes;
use verbs3_protocol::{BlockGeometry, BlockIndex, STAGED_PAGES_MAX};

use super::populate_memory::{PageBuffer, PopulateMemory};

/// Bytes of one question to a worker. It takes twice as much memory there until it is answered.
const RUN_BYTES_MAX: u32 = 1 << 20;

/// Adjacent pages of one block.
#[derive(Debug)]
pub(super) struct PageRun {
    pub(super) block: BlockIndex,
    pub(super) first_page: u16,
    pub(super) pages: Vec<Bytes>,
}

/// The memory for pages on their way is used up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

/// Cuts the bytes of one body.
pub(super) struct PageCutter {
    geometry: BlockGeometry,
    memory: Arc<PopulateMemory>,
    /// Offset in the object of the next byte.
    at: u64,
    /// Where the body ends in the object. A page that the end cuts short is taken too: it may be
    /// the object's last.
    end: u64,
    page: Option<PageBuffer>,
    run: Option<PageRun>,
}

impl PageCutter {
    /// Makes a cutter for a body of `bytes` that begins at `offset` of its object.
    pub(super) fn new(
        geometry: BlockGeometry,
        memory: Arc<PopulateMemory>,
        offset: u64,
        bytes: u64,
    ) -> Self {
        let end = offset.saturating_add(bytes);
        Self { geometry, memory, at: offset, end, page: None, run: None }
    }

    /// Takes the next bytes of the body, and hands over the runs that they complete.
    pub(super) fn cut_bytes(
        &mut self,
        mut chunk: &[u8],
        mut hand_over: impl FnMut(PageRun),
    ) -> Result<(), QueueFull> {
        // What comes after the announced end fails the write.
        chunk =
            &chunk[..chunk.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX))];
        while !chunk.is_empty() {
            let taken = match &mut self.page {
                Some(page) => page.copy_from(chunk),
                None => self.begin_page(chunk.len())?,
            };
            self.at += taken as u64;
            chunk = &chunk[taken..];
            if let Some(page) = self.page.take_if(|page| page.missing_bytes() == 0) {
                self.end_page(page);
            }
            if let Some(run) = self.take_complete_run() {
                hand_over(run);
            }
        }
        Ok(())
    }

    /// Returns how many pages of the body have not been handed over.
    pub(super) fn pages_left(&self) -> u64 {
        let page_bytes = u64::from(self.geometry.page_bytes);
        let held = self.run.as_ref().map_or(0, |run| run.pages.len() as u64);
        (self.end - self.at).div_ceil(page_bytes) + held
    }

    /// Begins a page at a page's border. Returns how many of the next bytes lie before one.
    fn begin_page(&mut self, next: usize) -> Result<usize, QueueFull> {
        let page_bytes = u64::from(self.geometry.page_bytes);
        let inside = self.at % page_bytes;
        if inside > 0 {
            return Ok(next.min((page_bytes - inside) as usize));
        }
        let length = page_bytes.min(self.end - self.at) as usize;
        self.page = Some(self.memory.try_take(length).ok_or(QueueFull)?);
        Ok(0)
    }

    fn end_page(&mut self, page: PageBuffer) {
        let BlockGeometry { block_bytes, page_bytes } = self.geometry;
        let start = self.at - page.as_ref().len() as u64;
        let run = self.run.get_or_insert_with(|| PageRun {
            block: BlockIndex((start / u64::from(block_bytes)) as u32),
            first_page: (start % u64::from(block_bytes) / u64::from(page_bytes)) as u16,
            pages: Vec::new(),
        });
        run.pages.push(page.into_page());
    }

    fn take_complete_run(&mut self) -> Option<PageRun> {
        let BlockGeometry { block_bytes, page_bytes } = self.geometry;
        let pages_max = ((RUN_BYTES_MAX / page_bytes).max(1) as usize).min(STAGED_PAGES_MAX);
        let ends = self.at == self.end || self.at.is_multiple_of(u64::from(block_bytes));
        let is_whole = |run: &mut PageRun| ends || run.pages.len() == pages_max;
        self.run.take_if(is_whole)
    }
}

//! One UFS request or pass over the disk under way: consecutive pages of a block, how far they have
//! come, and who still wants them.
//!
//! Owns the state that readers and the filling task share. Does not read from the UFS.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use verbs3_rdma::arena::CellReader;

use super::fill_error::PageFillError;
use super::{FlightMap, PageInFlight};
use crate::digest::PageKey;

/// A page of a run.
pub(crate) struct RunPage {
    pub(super) key: PageKey,
    /// Where it begins, in bytes of the run.
    pub(super) start: u32,
    pub(super) bytes: u32,
    /// Whether this run fills it. A page that is held, or is being filled by another run, is passed
    /// over.
    pub(super) owned: bool,
    slot: Mutex<RunPageMemory>,
}

/// A page's memory while it is filled.
#[derive(Default)]
struct RunPageMemory {
    cell: Option<CellReader>,
    /// Readers that wait for just this page, or are about to take it.
    waiting: u32,
    /// Whole, and kept in memory.
    kept: bool,
}

impl RunPageMemory {
    /// A kept page is found in memory: the run would only keep it from being given up.
    fn release_if_idle(&mut self) {
        if self.kept && self.waiting == 0 {
            self.cell = None;
        }
    }
}

/// What a run has of a page now.
pub(crate) enum PageFillState {
    /// The cell, and how many bytes of it can be read.
    Some(CellReader, u32),
    /// The page was whole and is kept in memory; if it isn't there, it was given up since.
    Kept,
}

impl RunPage {
    pub(super) fn new(key: PageKey, start: u32, bytes: u32) -> Self {
        Self { key, start, bytes, owned: true, slot: Mutex::default() }
    }

    pub(super) fn end_offset(&self) -> u32 {
        self.start + self.bytes
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Default)]
struct FillRunProgress {
    written: u32,
    /// Pages that end beyond this many bytes of the run will not come.
    failed: Option<(u32, PageFillError)>,
}

/// Where a run's bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillRunOrigin {
    Ufs,
    /// What turns out not to be there comes from the UFS after all.
    Disk,
    /// Only from disk, for a reader that may ask no UFS: what turns out not to be there does not
    /// come.
    DiskAlone,
    /// Only from former owners, before anybody has asked: what these don't have does not come.
    Former,
    /// Only from the owner of the block, which is another worker: what it does not hold does not
    /// come.
    Owner,
}

impl FillRunOrigin {
    /// Whether the bytes prove that the UFS has this version now.
    pub(crate) fn is_ufs(self) -> bool {
        self == Self::Ufs
    }

    /// Whether the tier has the pages already: its own disk is where they come from.
    pub(crate) fn is_disk(self) -> bool {
        matches!(self, Self::Disk | Self::DiskAlone)
    }
}

/// Pages that one UFS request brings, or one pass over the disk.
pub(crate) struct PageFillRun {
    pub(crate) origin: FillRunOrigin,
    pub(super) first_page: u16,
    pub(super) pages: Vec<RunPage>,
    /// Pages from this index on are read ahead: filled even if nobody waits for them.
    pub(super) ahead_from: usize,
    progress: watch::Sender<FillRunProgress>,
    /// How many readers want the pages up to each index.
    wanted_to: Mutex<Vec<u32>>,
}

impl PageFillRun {
    pub(super) fn new(
        origin: FillRunOrigin,
        first_page: u16,
        pages: Vec<RunPage>,
        ahead_from: usize,
    ) -> Self {
        let wanted_to = Mutex::new(vec![0; pages.len() + 1]);
        Self {
            origin,
            first_page,
            pages,
            ahead_from,
            progress: watch::Sender::new(FillRunProgress::default()),
            wanted_to,
        }
    }

    pub(super) fn total_bytes(&self) -> u32 {
        self.pages.last().map_or(0, RunPage::end_offset)
    }

    /// What there is of the page; nothing at first.
    pub(crate) fn page_state(&self, index: usize) -> Option<PageFillState> {
        let slot = self.pages[index].slot.lock();
        match &slot.cell {
            Some(cell) => Some(PageFillState::Some(cell.clone(), cell.written_bytes() as u32)),
            None => slot.kept.then_some(PageFillState::Kept),
        }
    }

    /// Waits until the page's first `total_bytes` are there. While a reader waits here, the page can't be
    /// given up; the other pages of the run can, so that readers in a queue hold no memory.
    pub(crate) async fn wait_for_page(
        &self,
        index: usize,
        bytes: u32,
    ) -> Result<PageFillState, PageFillError> {
        let page = &self.pages[index];
        let _waiting = PageWaiterGuard::new(page);
        let enough = || match self.page_state(index) {
            Some(PageFillState::Some(_, there)) if there < bytes => None,
            filled => filled,
        };
        let mut progress = self.progress.subscribe();
        loop {
            {
                let now = progress.borrow_and_update();
                // Looked at after the progress was: what comes later is seen by `changed`.
                if let Some(filled) = enough() {
                    return Ok(filled);
                }
                if let Some((from, failure)) = &now.failed
                    && page.end_offset() > *from
                {
                    return Err(failure.clone());
                }
            }
            // The sender is in `self`: it can't be gone.
            let _ = progress.changed().await;
        }
    }

    pub(super) fn set_cell(&self, index: usize, cell: CellReader) {
        self.pages[index].slot.lock().cell = Some(cell);
    }

    /// The page's cell, to be kept now that it is whole.
    pub(super) fn page_cell(&self, index: usize) -> Option<CellReader> {
        self.pages[index].slot.lock().cell.clone()
    }

    /// The page can be found in memory from now on.
    pub(super) fn mark_kept(&self, index: usize) {
        let mut slot = self.pages[index].slot.lock();
        slot.kept = true;
        slot.release_if_idle();
    }

    /// Whether the run has still to bring the page.
    pub(super) fn is_missing(&self, index: usize) -> bool {
        let page = &self.pages[index];
        page.owned && !page.slot.lock().kept
    }

    /// What was leased for pages that did not become whole goes back.
    pub(super) fn release_unfinished(&self) {
        for page in &self.pages {
            let mut slot = page.slot.lock();
            if !slot.kept {
                slot.cell = None;
            }
        }
    }

    pub(super) fn publish_progress(&self, written: u32) {
        self.progress.send_modify(|progress| progress.written = written);
    }

    /// Pages that end beyond `from` will not come. The earliest such word holds.
    pub(super) fn fail_pages(&self, from: u32, failure: PageFillError) {
        self.progress.send_modify(|progress| match &progress.failed {
            Some((earlier, _)) if *earlier <= from => {}
            _ => progress.failed = Some((from, failure)),
        });
    }

    /// Registers a reader of the pages before `end_offset`. Called under the lock that guards the pages in
    /// flight.
    pub(super) fn register_interest(self: &Arc<Self>, end: usize) -> RunInterest {
        self.wanted_to.lock()[end] += 1;
        RunInterest { run: self.clone(), end }
    }

    /// Whether the page at `index`, or one after it, is to be filled.
    pub(super) fn is_wanted_from(&self, index: usize) -> bool {
        index >= self.ahead_from || self.has_readers_from(index)
    }

    /// Whether the page at `index` is filled though no reader has asked for it yet.
    pub(super) fn is_ahead(&self, index: usize) -> bool {
        index >= self.ahead_from && !self.has_readers_from(index)
    }

    /// Takes the pages from index `from` on out of the table. Not the flight of a later run, which
    /// may have begun when this one gave the page up.
    pub(super) fn take_out_of(&self, flights: &mut FlightMap, from: usize) {
        for index in from..self.pages.len() {
            self.take_page_out_of(flights, index);
        }
    }

    /// The same of one page.
    pub(super) fn take_page_out_of(&self, flights: &mut FlightMap, index: usize) {
        let is_own = |flight: &PageInFlight| std::ptr::eq(&*flight.run, self);
        let page = &self.pages[index];
        if page.owned && flights.get(&page.key).is_some_and(is_own) {
            flights.remove(&page.key);
        }
    }

    fn has_readers_from(&self, index: usize) -> bool {
        self.wanted_to.lock()[index + 1..].iter().any(|&readers| readers > 0)
    }
}

/// A reader that waits for one page.
struct PageWaiterGuard<'a> {
    page: &'a RunPage,
}

impl<'a> PageWaiterGuard<'a> {
    fn new(page: &'a RunPage) -> Self {
        page.slot.lock().waiting += 1;
        Self { page }
    }
}

impl Drop for PageWaiterGuard<'_> {
    fn drop(&mut self) {
        let mut slot = self.page.slot.lock();
        slot.waiting -= 1;
        slot.release_if_idle();
    }
}

/// A reader's wish for the pages of a run. Dropping it lets the run stop, if it was the last.
pub(crate) struct RunInterest {
    run: Arc<PageFillRun>,
    end: usize,
}

impl RunInterest {
    /// Whether the run fills this page of its block.
    pub(crate) fn fills_page(&self, page: u16) -> bool {
        let index = page.checked_sub(self.run.first_page).map(usize::from);
        index.and_then(|index| self.run.pages.get(index)).is_some_and(|page| page.owned)
    }
}

impl Drop for RunInterest {
    fn drop(&mut self) {
        self.run.wanted_to.lock()[self.end] -= 1;
    }
}

//! One UFS request or disk read under way: consecutive pages of a block, or consecutive parts of
//! pages, their progress, and the readers that still want them.
//!
//! Owns the state that readers and the filling task share. Does not read from the UFS.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use verbs3_rdma::arena::CellReader;

use super::fill_error::PageFillError;
use super::fill_unit::{FillUnit, FillUnitKind};
use super::{FlightMap, PageInFlight};
use crate::digest::PageKey;
use crate::tenants::{TenantAccount, WaitingAccounts};

/// A page of a run, or a part of one.
pub(crate) struct RunPage {
    pub(super) key: PageKey,
    /// Offset of the page in bytes of the run.
    pub(super) start: u32,
    pub(super) bytes: u32,
    /// Whether this run fills the page. A page that is held, or that another run fills, is skipped.
    pub(super) owned: bool,
    slot: Mutex<RunPageMemory>,
}

/// The memory of a page while it is filled.
#[derive(Default)]
struct RunPageMemory {
    cell: Option<CellReader>,
    /// Readers that wait for just this page, or are about to take it.
    waiting: u32,
    /// The page is complete, and kept in memory.
    kept: bool,
}

impl RunPageMemory {
    /// Releases a kept page that nobody waits for. Readers find it in memory; the run would only
    /// keep it from being evicted.
    fn release_if_idle(&mut self) {
        if self.kept && self.waiting == 0 {
            self.cell = None;
        }
    }
}

/// The present state of a page in a run.
pub(crate) enum PageFillState {
    /// It is being filled: its cell, and how many bytes can be read.
    Readable(CellReader, u32),
    /// The page was completed and kept in memory. If it is not there, it was evicted since.
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

/// The progress of a run.
#[derive(Debug, Clone, Default)]
struct FillRunProgress {
    written: u32,
    /// Pages that end beyond this many bytes of the run will not come.
    failed: Option<(u32, PageFillError)>,
}

/// The source of a run's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillRunOrigin {
    Ufs,
    /// This worker's disk. Pages that are missing there come from the UFS.
    Disk,
    /// Only the disk, for a reader that may not use the UFS. Pages that are missing there fail.
    DiskAlone,
    /// Only former owners, before anybody has asked for the pages. Pages that they lack fail.
    Former,
    /// Only the owner of the block, which is another worker. Pages that it does not hold fail.
    Owner,
}

impl FillRunOrigin {
    /// Returns whether the bytes prove that the UFS has this version now.
    pub(crate) fn is_ufs(self) -> bool {
        self == Self::Ufs
    }

    /// Chooses where a page comes from that is neither in memory nor being filled: this worker's
    /// disk, the UFS or, for a replica's readers, the owner.
    pub(super) fn choose_origin(on_disk: bool, replica: bool) -> Self {
        match (on_disk, replica) {
            (true, false) => Self::Disk,
            (true, true) => Self::DiskAlone,
            (false, false) => Self::Ufs,
            (false, true) => Self::Owner,
        }
    }

    /// Returns whether the pages come from this worker's own disk, so that the tier has them
    /// already.
    pub(crate) fn is_disk(self) -> bool {
        matches!(self, Self::Disk | Self::DiskAlone)
    }
}

/// The pages that one UFS request or one disk read brings.
pub(crate) struct PageFillRun {
    pub(crate) origin: FillRunOrigin,
    /// Whether its pages are pages, or parts of some.
    pub(super) kind: FillUnitKind,
    /// The block's byte that it begins with.
    pub(super) start: u32,
    pub(super) pages: Vec<RunPage>,
    /// Pages from this index on are readahead: they are filled even if nobody waits for them.
    pub(super) ahead_from: usize,
    progress: watch::Sender<FillRunProgress>,
    /// The number of readers that want the pages up to each index.
    wanted_to: Mutex<Vec<u32>>,
    /// Notified of each new reader, for the one task that fills the run.
    reader_came: Notify,
    /// For whom readers wait. Runs of one request share it.
    waiting: Arc<WaitingAccounts>,
    /// The request was sent for an earlier block. Readers of pages that it does not bring send one
    /// of their own.
    follows: bool,
}

impl PageFillRun {
    /// Makes a run of adjacent units of one kind, at least one.
    pub(super) fn new(origin: FillRunOrigin, units: &[FillUnit], ahead_from: usize) -> Self {
        let (kind, start) = (units[0].kind, units[0].start);
        let page = |unit: &FillUnit| RunPage::new(unit.key, unit.start - start, unit.bytes);
        let pages: Vec<RunPage> = units.iter().map(page).collect();
        let wanted_to = Mutex::new(vec![0; pages.len() + 1]);
        Self {
            origin,
            kind,
            start,
            pages,
            ahead_from,
            progress: watch::Sender::new(FillRunProgress::default()),
            wanted_to,
            reader_came: Notify::new(),
            waiting: Arc::new(WaitingAccounts::new()),
            follows: false,
        }
    }

    /// Makes this a run that the request of `first` fills, after it.
    pub(super) fn follow_run(self, first: &Self) -> Self {
        Self { waiting: first.waiting.clone(), follows: true, ..self }
    }

    /// Returns whether the request was sent for an earlier block.
    pub(super) fn is_following(&self) -> bool {
        self.follows
    }

    /// Waits until a reader wants a page. One task may wait.
    pub(super) async fn wait_for_reader(&self) {
        while !self.has_readers_from(0) {
            self.reader_came.notified().await;
        }
    }

    /// Notes that a reader for this account waits, too.
    pub(super) fn note_joined(&self, account: TenantAccount) {
        self.waiting.note_joined(account);
    }

    /// Takes a turn for any of those who wait for this run: see [`WaitingAccounts`].
    pub(super) async fn take_any_turn<T, F>(
        &self,
        first: TenantAccount,
        take_turn: impl Fn(TenantAccount) -> F,
    ) -> Result<T, PageFillError>
    where
        F: Future<Output = Result<T, PageFillError>>,
    {
        let turn = self.waiting.take_any_turn(first, take_turn).await;
        turn.map_err(|refused| refused.cause)
    }

    pub(super) fn is_of_parts(&self) -> bool {
        self.kind == FillUnitKind::Part
    }

    /// Returns the block's byte that the page at `index` begins with.
    pub(super) fn page_start(&self, index: usize) -> u32 {
        self.start + self.pages[index].start
    }

    pub(super) fn total_bytes(&self) -> u32 {
        self.pages.last().map_or(0, RunPage::end_offset)
    }

    /// Returns the present state of the page; `None` until it has memory.
    pub(crate) fn page_state(&self, index: usize) -> Option<PageFillState> {
        let slot = self.pages[index].slot.lock();
        match &slot.cell {
            Some(cell) => Some(PageFillState::Readable(cell.clone(), cell.written_bytes() as u32)),
            None => slot.kept.then_some(PageFillState::Kept),
        }
    }

    /// Waits until the page's first `bytes` are there. While a reader waits here, the page can't be
    /// evicted. The other pages of the run can, so readers in a queue hold no memory.
    pub(crate) async fn wait_for_page(
        &self,
        index: usize,
        bytes: u32,
    ) -> Result<PageFillState, PageFillError> {
        let page = &self.pages[index];
        let _waiting = PageWaiterGuard::new(page);
        let enough = || match self.page_state(index) {
            Some(PageFillState::Readable(_, there)) if there < bytes => None,
            filled => filled,
        };
        let mut progress = self.progress.subscribe();
        loop {
            {
                let now = progress.borrow_and_update();
                // The page is read after the progress: `changed` reports anything later.
                if let Some(filled) = enough() {
                    return Ok(filled);
                }
                if let Some((from, failure)) = &now.failed
                    && page.end_offset() > *from
                {
                    return Err(failure.clone());
                }
            }
            // The sender is in `self`, so the channel can't be closed.
            let _ = progress.changed().await;
        }
    }

    pub(super) fn set_cell(&self, index: usize, cell: CellReader) {
        self.pages[index].slot.lock().cell = Some(cell);
    }

    /// Returns the cell of a completed page, to be kept.
    pub(super) fn page_cell(&self, index: usize) -> Option<CellReader> {
        self.pages[index].slot.lock().cell.clone()
    }

    /// Marks the page as findable in memory.
    pub(super) fn mark_kept(&self, index: usize) {
        let mut slot = self.pages[index].slot.lock();
        slot.kept = true;
        slot.release_if_idle();
    }

    /// Returns whether the run still has to bring the page.
    pub(super) fn is_missing(&self, index: usize) -> bool {
        let page = &self.pages[index];
        page.owned && !page.slot.lock().kept
    }

    /// Returns the memory of incomplete pages.
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

    /// Fails the pages that end beyond `from`. If this is called more than once, the smallest
    /// `from` wins.
    pub(super) fn fail_pages(&self, from: u32, failure: PageFillError) {
        self.progress.send_modify(|progress| match &progress.failed {
            Some((earlier, _)) if *earlier <= from => {}
            _ => progress.failed = Some((from, failure)),
        });
    }

    /// Registers a reader of the pages before `end`. Called under the lock that guards the pages in
    /// flight.
    pub(super) fn register_interest(self: &Arc<Self>, end: usize) -> RunInterest {
        self.wanted_to.lock()[end] += 1;
        self.reader_came.notify_one();
        RunInterest { run: self.clone(), end }
    }

    /// Returns whether the page at `index`, or one after it, is to be filled.
    pub(super) fn is_wanted_from(&self, index: usize) -> bool {
        index >= self.ahead_from || self.has_readers_from(index)
    }

    /// Returns whether the page at `index` is filled though no reader has asked for it yet.
    pub(super) fn is_ahead(&self, index: usize) -> bool {
        !self.has_readers_from(index)
    }

    /// Removes the pages from index `from` on from the table of flights. Leaves the flight of a
    /// later run, which may have begun after this one gave the page up.
    pub(super) fn take_out_of(&self, flights: &mut FlightMap, from: usize) {
        for index in from..self.pages.len() {
            self.take_page_out_of(flights, index);
        }
    }

    /// Removes one page from the table of flights. Leaves the flight of a later run.
    pub(super) fn take_page_out_of(&self, flights: &mut FlightMap, index: usize) {
        let is_own = |flight: &PageInFlight| std::ptr::eq(&*flight.run, self);
        let page = &self.pages[index];
        if page.owned && flights.get(&page.key).is_some_and(is_own) {
            flights.remove(&page.key);
        }
    }

    pub(super) fn has_readers_from(&self, index: usize) -> bool {
        self.wanted_to.lock()[index + 1..].iter().any(|&readers| readers > 0)
    }
}

/// A guard of a reader that waits for one page.
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

/// A reader's interest in the pages of a run. Dropping the last one lets the run stop.
pub(crate) struct RunInterest {
    run: Arc<PageFillRun>,
    end: usize,
}

impl RunInterest {
    /// Returns whether the run fills this page, or this part of one.
    pub(crate) fn fills_page(&self, key: PageKey) -> bool {
        self.run.pages.iter().any(|page| page.owned && page.key == key)
    }
}

impl Drop for RunInterest {
    fn drop(&mut self) {
        self.run.wanted_to.lock()[self.end] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use verbs3_protocol::BlockIndex;

    use super::super::PageFiller;
    use super::*;
    use crate::digest::VersionDigest;

    /// A run that ends late must not take the run that came after it out of the table: a third
    /// reader would start a second fill of the same page.
    #[test]
    fn a_run_leaves_the_flight_of_a_later_one() {
        let key = VersionDigest::from_stored(7).page_key(BlockIndex(0), 3);
        let unit = FillUnit { kind: FillUnitKind::Page, key, start: 0, bytes: 4096 };
        let run = || Arc::new(PageFillRun::new(FillRunOrigin::Ufs, &[unit], 1));
        let (earlier, later) = (run(), run());
        let mut flights = FlightMap::default();
        PageFiller::register_run(&mut flights, &earlier);
        PageFiller::register_run(&mut flights, &later);
        earlier.take_page_out_of(&mut flights, 0);
        assert!(flights.get(&key).is_some_and(|flight| Arc::ptr_eq(&flight.run, &later)));
        later.take_page_out_of(&mut flights, 0);
        assert!(flights.is_empty());
    }
}

//! One UFS request under way: consecutive pages of a block, how far they have come, and who still wants them.
//!
//! Owns the state that readers and the filling task share. Does not read from the UFS.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;
use verbs3_rdma::arena::CellReader;

use super::failure::Failure;
use crate::digest::PageKey;

/// A page of a run.
pub(crate) struct RunPage {
    pub(super) key: PageKey,
    /// Where it begins, in bytes of the run.
    pub(super) start: u32,
    pub(super) bytes: u32,
    /// Whether this run fills it. A page that is held, or is being filled by another run, is passed over.
    pub(super) owned: bool,
    pub(super) cell: OnceLock<CellReader>,
    pub(super) checksum: OnceLock<u64>,
}

impl RunPage {
    pub(super) fn end(&self) -> u32 {
        self.start + self.bytes
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Default)]
struct Progress {
    written: u32,
    /// Pages that end beyond this many bytes of the run will not come.
    failed: Option<(u32, Failure)>,
}

/// Pages that one UFS request brings.
pub(crate) struct Run {
    pub(super) first_page: u16,
    pub(super) pages: Vec<RunPage>,
    /// Pages from this index on are read ahead: filled even if nobody waits for them.
    pub(super) ahead_from: usize,
    progress: watch::Sender<Progress>,
    /// How many readers want the pages up to each index.
    wanted_to: Mutex<Vec<u32>>,
}

impl Run {
    pub(super) fn new(first_page: u16, pages: Vec<RunPage>, ahead_from: usize) -> Self {
        let wanted_to = Mutex::new(vec![0; pages.len() + 1]);
        Self { first_page, pages, ahead_from, progress: watch::Sender::new(Progress::default()), wanted_to }
    }

    pub(super) fn bytes(&self) -> u32 {
        self.pages.last().map_or(0, RunPage::end)
    }

    /// The page's cell, once it has memory.
    pub(crate) fn cell(&self, index: usize) -> Option<&CellReader> {
        self.pages[index].cell.get()
    }

    /// The page's checksum, once it is whole.
    pub(crate) fn checksum(&self, index: usize) -> Option<u64> {
        self.pages[index].checksum.get().copied()
    }

    pub(crate) fn page_bytes(&self, index: usize) -> u32 {
        self.pages[index].bytes
    }

    /// Bytes of the page that are there now.
    pub(crate) fn available(&self, index: usize) -> u32 {
        self.pages[index].cell.get().map_or(0, |cell| cell.written() as u32)
    }

    /// Waits until the page's first `bytes` are there.
    pub(crate) async fn wait(&self, index: usize, bytes: u32) -> Result<(), Failure> {
        let page = &self.pages[index];
        let mut progress = self.progress.subscribe();
        loop {
            if self.available(index) >= bytes {
                return Ok(());
            }
            {
                let now = progress.borrow_and_update();
                // Looked at again: the bytes may have come between the two.
                if self.available(index) >= bytes {
                    return Ok(());
                }
                if let Some((from, failure)) = &now.failed
                    && page.end() > *from
                {
                    return Err(failure.clone());
                }
            }
            // The sender is in `self`: it can't be gone.
            let _ = progress.changed().await;
        }
    }

    pub(super) fn publish(&self, written: u32) {
        self.progress.send_modify(|progress| progress.written = written);
    }

    /// Pages that end beyond `from` will not come. The earliest such word holds.
    pub(super) fn fail(&self, from: u32, failure: Failure) {
        self.progress.send_modify(|progress| match &progress.failed {
            Some((earlier, _)) if *earlier <= from => {}
            _ => progress.failed = Some((from, failure)),
        });
    }

    /// Registers a reader of the pages before `end`. Called under the lock that guards the pages in flight.
    pub(super) fn want(self: &Arc<Self>, end: usize) -> Interest {
        self.wanted_to.lock()[end] += 1;
        Interest { run: self.clone(), end }
    }

    /// Whether anyone wants the page at `index`, or one after it.
    pub(super) fn is_wanted_from(&self, index: usize) -> bool {
        index >= self.ahead_from || self.wanted_to.lock()[index + 1..].iter().any(|&readers| readers > 0)
    }
}

/// A reader's wish for the pages of a run. Dropping it lets the run stop, if it was the last.
pub(crate) struct Interest {
    run: Arc<Run>,
    end: usize,
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.run.wanted_to.lock()[self.end] -= 1;
    }
}

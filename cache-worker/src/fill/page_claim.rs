//! Looks up and claims a read's pages in one step. Each page is held, is being filled, or is filled
//! by a run that starts now.

use std::ops::Range;
use std::sync::Arc;

use verbs3_protocol::{BlockIndex, CacheVerdict, PageIndex};

use super::fill_error::PageFillError;
use super::fill_run::{FillRunOrigin, PageFillRun, RunInterest, RunPage};
use super::{FillTarget, FlightMap, PageFiller, PageInFlight};
use crate::digest::PageKey;
use crate::memory::CachedPage;
use crate::metrics::PageFound;

/// The source of one page's bytes.
pub(crate) enum PageSource {
    Held(CachedPage),
    /// The page was held, and may be evicted by now. It has to be looked up again.
    Released,
    Filling {
        run: Arc<PageFillRun>,
        index: usize,
    },
}

/// The pages of one read. Holds the present pages, and keeps the runs of the others going.
pub(crate) struct PageClaim {
    pub(crate) first_page: u16,
    /// The sources of consecutive pages.
    pub(crate) sources: Vec<PageSource>,
    _interests: Vec<RunInterest>,
}

/// A page that is neither in memory nor being filled.
#[derive(Debug, Clone, Copy)]
struct MissingPage {
    page: u16,
    origin: FillRunOrigin,
}

/// The pages that a claim is for.
#[derive(Debug, Clone)]
pub(crate) struct PageClaimRequest {
    pub(crate) block: BlockIndex,
    pub(crate) pages: Range<u16>,
    /// Bytes after the pages that will probably be wanted next.
    pub(crate) ahead_bytes: u32,
    /// The bytes of the object that the reader has said it goes through, beginning with or before
    /// these pages. Empty: these pages alone.
    pub(crate) request_range: Range<u64>,
    /// The reader is a replica of a hot block. Missing pages are requested from the owner only, and
    /// nothing is read ahead.
    pub(crate) replica: bool,
}

impl PageClaim {
    /// Releases the held pages, because the reader has to wait. Otherwise a reader could wait for a
    /// fill while it holds the memory that the fill needs.
    pub(crate) fn release_pages(&mut self) {
        for source in &mut self.sources {
            if let PageSource::Held(_) = source {
                *source = PageSource::Released;
            }
        }
    }

    /// Returns how the pages were found when they were claimed. Pages that the caller's own check
    /// `brought` count as absent, even if they are here by now.
    pub(crate) fn cache_verdict(&self, brought: Option<&RunInterest>) -> CacheVerdict {
        let is_here = |source: &PageSource| match source {
            PageSource::Held(_) => true,
            PageSource::Filling { run, .. } => run.origin.is_disk(),
            PageSource::Released => false,
        };
        let was_held = |(page, source): &(u16, &PageSource)| {
            is_here(source) && !brought.is_some_and(|brought| brought.fills_page(*page))
        };
        let held = (self.first_page..).zip(&self.sources).filter(was_held).count();
        match held {
            held if held == self.sources.len() => CacheVerdict::Hit,
            0 => CacheVerdict::Miss,
            _ => CacheVerdict::Partial,
        }
    }
}

impl PageFiller {
    /// Looks up the wanted pages, and starts fills for those that nobody fills yet.
    ///
    /// One lock is held throughout. Of two simultaneous readers exactly one therefore starts a
    /// fill, and adjacent missing pages make one request.
    pub(crate) fn claim_pages(
        self: &Arc<Self>,
        target: &Arc<FillTarget>,
        wanted: &PageClaimRequest,
    ) -> Result<PageClaim, PageFillError> {
        let mut flights = self.flights_of(target.digest.block_spread(wanted.block)).lock();
        let mut found = self.look_up(&flights, target, wanted);
        let absent = wanted.pages.clone().zip(&found).filter(|(_, found)| found.is_none());
        let mut missing: Vec<MissingPage> = absent
            .map(|(page, _)| MissingPage { page, origin: self.origin_of(target, wanted, page) })
            .collect();
        let said_to = self.pages_said(target, wanted);
        let ahead_from = wanted.pages.end.max(said_to);
        missing.extend(self.missing_after(&flights, target, wanted, said_to));
        let mut starting = Vec::new();
        if !missing.is_empty() {
            self.check_queue(target.account)?;
            for run in self.split_into_runs(target, wanted.block, &missing, ahead_from) {
                Self::register_run(&mut flights, &run);
                for (index, page) in (run.first_page..).take(run.pages.len()).enumerate() {
                    if let Some(place) = page
                        .checked_sub(wanted.pages.start)
                        .and_then(|at| found.get_mut(usize::from(at)))
                    {
                        *place = Some(PageSource::Filling { run: run.clone(), index });
                    }
                }
                starting.push(run);
            }
        }
        let sources: Vec<PageSource> = found.into_iter().flatten().collect();
        let interests = collect_interests(&sources);
        drop(flights);
        let last = starting.pop();
        for run in starting {
            self.start_run(target.clone(), wanted.block, run, Vec::new());
        }
        if let Some(run) = last {
            let following = match wanted.replica {
                true => Vec::new(),
                false => {
                    let end = self.extent.find_end(wanted.block, &wanted.request_range);
                    self.register_following(target, wanted.block, &run, end)
                }
            };
            self.start_run(target.clone(), wanted.block, run, following);
        }
        Ok(PageClaim { first_page: wanted.pages.start, sources, _interests: interests })
    }

    /// Returns whether a page is neither here, on disk, nor being filled.
    pub(super) fn is_page_absent(&self, flights: &FlightMap, key: PageKey) -> bool {
        !flights.contains_key(&key) && !self.memory.holds_page(key) && !self.is_on_disk(key)
    }

    /// Registers runs for the pages of a block that are neither here nor being filled, and returns
    /// them for the caller to start.
    pub(super) fn runs_of_absent(
        &self,
        target: &FillTarget,
        block: BlockIndex,
    ) -> Vec<Arc<PageFillRun>> {
        let mut flights = self.flights_of(target.digest.block_spread(block)).lock();
        let block_len = self.geometry.block_len(target.version.bytes, block);
        let is_absent =
            |page: &u16| self.is_page_absent(&flights, target.digest.page_key(block, *page));
        let absent = self.geometry.touched_pages(&(0..block_len)).filter(is_absent);
        let missing: Vec<MissingPage> =
            absent.map(|page| MissingPage { page, origin: FillRunOrigin::Former }).collect();
        // Nobody waits for these pages, so they take no memory that readers need.
        let runs = self.split_into_runs(target, block, &missing, 0);
        runs.iter().for_each(|run| Self::register_run(&mut flights, run));
        runs
    }

    /// Registers a run for the pages of an answered request that nobody has yet. Returns `None` if
    /// every page is here, or being filled. The interest keeps the run going until the callers have
    /// claimed its pages.
    pub(super) fn adopt_answer(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        pages: Range<u16>,
    ) -> Option<(Arc<PageFillRun>, RunInterest)> {
        let mut flights = self.flights_of(target.digest.block_spread(block)).lock();
        let owned = |page: &u16| {
            let key = target.digest.page_key(block, *page);
            !flights.contains_key(&key) && !self.memory.holds_page(key)
        };
        let owned: Vec<bool> = pages.clone().map(|page| owned(&page)).collect();
        let last = owned.iter().rposition(|&owned| owned)?;
        let numbers: Vec<u16> = pages.take(last + 1).collect();
        let mut run = self.build_run(target, block, FillRunOrigin::Ufs, &numbers[..], u16::MAX);
        for (page, owned) in run.pages.iter_mut().zip(owned) {
            page.owned = owned;
        }
        let run = Arc::new(run);
        Self::register_run(&mut flights, &run);
        let interest = run.register_interest(run.pages.len());
        Some((run, interest))
    }

    fn look_up(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        wanted: &PageClaimRequest,
    ) -> Vec<Option<PageSource>> {
        let now_s = self.clock.now().as_secs();
        let find = |page| {
            let key = target.digest.page_key(wanted.block, page);
            if let Some((held, unsaved)) = self.memory.get_to_save(key, now_s, target.account) {
                self.metrics.pages[PageFound::Hit].inc();
                if let Some(unsaved) = unsaved {
                    self.offer_to_disk(target, wanted.block, page, &held, unsaved);
                }
                return Some(PageSource::Held(held));
            }
            let flight = flights.get(&key)?;
            self.metrics.pages[PageFound::Joined].inc();
            flight.run.note_joined(target.account);
            Some(PageSource::Filling { run: flight.run.clone(), index: flight.index })
        };
        wanted.pages.clone().map(find).collect()
    }

    /// Returns the end of the pages of the block that the reader has said it goes through.
    fn pages_said(&self, target: &FillTarget, wanted: &PageClaimRequest) -> u16 {
        let begins = u64::from(wanted.block.0) * self.block_bytes();
        let block_len = self.geometry.block_len(target.version.bytes, wanted.block);
        let said = wanted.request_range.end.saturating_sub(begins).min(block_len.into());
        self.geometry.touched_pages(&(0..said as u32)).end
    }

    /// Returns the pages to fill beside the wanted ones: those that follow, up to the first that is
    /// here or being filled, as far as the reader has said that it goes (`said_to`), or as far as it
    /// is read ahead.
    fn missing_after(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        wanted: &PageClaimRequest,
        said_to: u16,
    ) -> Vec<MissingPage> {
        if wanted.replica {
            return Vec::new();
        }
        let ahead_bytes = wanted.ahead_bytes.min(self.bounds.ahead_bytes_max);
        let block_len = self.geometry.block_len(target.version.bytes, wanted.block);
        let pages = self.geometry.touched_pages(&(0..block_len)).end;
        let ahead_pages = (ahead_bytes / self.geometry.page_bytes) as u16;
        let end = pages.min(wanted.pages.end.saturating_add(ahead_pages).max(said_to));
        let ahead: Vec<MissingPage> = (wanted.pages.end..end)
            .map(|page| (page, target.digest.page_key(wanted.block, page)))
            .take_while(|(_, key)| !flights.contains_key(key) && !self.memory.holds_page(*key))
            .map(|(page, key)| MissingPage {
                page,
                origin: if self.is_on_disk(key) { FillRunOrigin::Disk } else { FillRunOrigin::Ufs },
            })
            .collect();
        self.metrics.pages_ahead.inc_by(ahead.len() as u64);
        ahead
    }

    /// Chooses whether the page comes from this worker's disk, from the UFS, or from the owner.
    /// Counts.
    fn origin_of(
        &self,
        target: &FillTarget,
        wanted: &PageClaimRequest,
        page: u16,
    ) -> FillRunOrigin {
        let on_disk = self
            .disk
            .as_ref()
            .is_some_and(|disk| disk.look_up_page(target.digest.page_key(wanted.block, page)));
        if on_disk {
            self.metrics.pages[PageFound::Disk].inc();
            return if wanted.replica { FillRunOrigin::DiskAlone } else { FillRunOrigin::Disk };
        }
        self.metrics.pages[PageFound::Missed].inc();
        if wanted.replica { FillRunOrigin::Owner } else { FillRunOrigin::Ufs }
    }

    /// Splits missing pages (ascending) into runs of adjacent ones of one origin, none longer than
    /// one request may be.
    fn split_into_runs(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        missing: &[MissingPage],
        ahead_from: u16,
    ) -> Vec<Arc<PageFillRun>> {
        let run = |pages: &[MissingPage]| {
            let numbers: Vec<u16> = pages.iter().map(|missing| missing.page).collect();
            Arc::new(self.build_run(target, block, pages[0].origin, &numbers[..], ahead_from))
        };
        missing
            .chunk_by(|a, b| a.page + 1 == b.page && a.origin == b.origin)
            .flat_map(|adjacent| adjacent.chunks(self.bounds.pages_per_run_max))
            .map(run)
            .collect()
    }

    pub(super) fn build_run(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        origin: FillRunOrigin,
        pages: &[u16],
        ahead_from: u16,
    ) -> PageFillRun {
        let block_len = self.geometry.block_len(target.version.bytes, block);
        let mut start = 0;
        let page = |&page: &u16| {
            let bytes = self.geometry.page_len(block_len, PageIndex(page));
            let key = target.digest.page_key(block, page);
            let made = RunPage::new(key, start, bytes);
            start += bytes;
            made
        };
        let made: Vec<RunPage> = pages.iter().map(page).collect();
        let ahead_from = pages.iter().position(|&page| page >= ahead_from).unwrap_or(pages.len());
        PageFillRun::new(origin, pages[0], made, ahead_from)
    }

    pub(super) fn register_run(flights: &mut FlightMap, run: &Arc<PageFillRun>) {
        for (index, page) in run.pages.iter().enumerate().filter(|(_, page)| page.owned) {
            flights.insert(page.key, PageInFlight { run: run.clone(), index });
        }
    }
}

/// Registers one interest for each run among the sources, up to its last wanted page.
fn collect_interests(sources: &[PageSource]) -> Vec<RunInterest> {
    let mut last: Option<(&Arc<PageFillRun>, usize)> = None;
    let mut interests = Vec::new();
    for source in sources {
        let PageSource::Filling { run, index } = source else { continue };
        if let Some((earlier, end)) = last
            && !Arc::ptr_eq(earlier, run)
        {
            interests.push(earlier.register_interest(end));
        }
        last = Some((run, index + 1));
    }
    interests.extend(last.map(|(run, end)| run.register_interest(end)));
    interests
}

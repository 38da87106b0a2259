//! Looks up and claims a read's pages in one step. Each page is held, is being filled, or is filled
//! by a run that starts now. A page of which a small read wants little is claimed by its parts.

use std::ops::Range;
use std::sync::Arc;

use verbs3_protocol::{BlockIndex, CacheVerdict, PageIndex};

use super::fill_error::PageFillError;
use super::fill_run::{FillRunOrigin, PageFillRun, RunInterest};
use super::fill_unit::{FillUnit, FillUnitKind};
use super::{FillTarget, FlightMap, PageFiller, PageInFlight};
use crate::digest::PageKey;
use crate::memory::CachedPage;
use crate::metrics::PageFound;

/// The source of one page's bytes, or of one part's.
pub(crate) enum PageSource {
    Held(CachedPage),
    /// The page was held, and may be evicted by now. It has to be looked up again.
    Released,
    Filling {
        run: Arc<PageFillRun>,
        index: usize,
    },
}

/// A page of a claim, or a part of one.
pub(crate) struct ClaimedUnit {
    pub(crate) unit: FillUnit,
    pub(crate) source: PageSource,
}

/// The pages of one read. Holds the present pages, and keeps the runs of the others going.
pub(crate) struct PageClaim {
    /// In order, and without a gap between the first wanted byte and the last.
    pub(crate) units: Vec<ClaimedUnit>,
    _interests: Vec<RunInterest>,
}

/// A page, or a part of one, that is neither in memory nor being filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct MissingUnit {
    pub(super) unit: FillUnit,
    pub(super) origin: FillRunOrigin,
    /// It is filled even if nobody waits for it.
    pub(super) ahead: bool,
}

/// What a claim has found, in order.
#[derive(Default)]
pub(super) struct UnitsFound {
    /// The wanted units. Those without a source are also among `missing`.
    pub(super) wanted: Vec<(FillUnit, Option<PageSource>)>,
    pub(super) missing: Vec<MissingUnit>,
}

/// The pages that a claim is for.
#[derive(Debug, Clone)]
pub(crate) struct PageClaimRequest {
    pub(crate) block: BlockIndex,
    pub(crate) pages: Range<u16>,
    /// The bytes of the block that are wanted, if parts of pages will do. `None`: whole pages.
    pub(crate) bytes: Option<Range<u32>>,
    /// Bytes after the pages that will probably be wanted next.
    pub(crate) ahead_bytes: u32,
    /// The bytes of the object that the reader has said it goes through, beginning with or before
    /// these pages. Empty: these pages alone.
    pub(crate) request_range: Range<u64>,
    /// The reader is a replica of a hot block, or is warmed beside the owner. Missing pages are
    /// requested from the owner only, and nothing is read ahead.
    pub(crate) replica: bool,
}

impl PageSource {
    /// Returns how a page was found, as metrics count it.
    fn page_found(&self) -> PageFound {
        match self {
            Self::Filling { .. } => PageFound::Joined,
            Self::Held(_) | Self::Released => PageFound::Hit,
        }
    }
}

impl PageClaim {
    /// Returns where the bytes of a page, or of a part of one, come from; `None`: it is not claimed.
    pub(crate) fn source_of(&self, key: PageKey) -> Option<&PageSource> {
        self.units.iter().find(|claimed| claimed.unit.key == key).map(|claimed| &claimed.source)
    }

    /// Releases the held pages, because the reader has to wait. Otherwise a reader could wait for a
    /// fill while it holds the memory that the fill needs.
    pub(crate) fn release_pages(&mut self) {
        for claimed in &mut self.units {
            if let PageSource::Held(_) = claimed.source {
                claimed.source = PageSource::Released;
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
        let was_held = |claimed: &&ClaimedUnit| {
            let is_brought = |brought: &RunInterest| brought.fills_page(claimed.unit.key);
            is_here(&claimed.source) && !brought.is_some_and(is_brought)
        };
        let held = self.units.iter().filter(was_held).count();
        match held {
            held if held == self.units.len() => CacheVerdict::Hit,
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
        let mut found = self.find_units(&flights, target, wanted);
        if found.wanted.iter().all(|(unit, _)| unit.kind == FillUnitKind::Page) {
            self.add_pages_after(&flights, target, wanted, &mut found.missing);
        }
        let mut starting = Vec::new();
        if !found.missing.is_empty() {
            self.check_queue(target.account)?;
            for run in self.split_into_runs(&found.missing) {
                Self::register_run(&mut flights, &run);
                found.give_sources(&run);
                starting.push(run);
            }
        }
        let found = found.wanted.into_iter();
        let claimed = |(unit, source): (FillUnit, Option<PageSource>)| {
            source.map(|source| ClaimedUnit { unit, source })
        };
        let units: Vec<ClaimedUnit> = found.filter_map(claimed).collect();
        let interests = collect_interests(&units);
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
        Ok(PageClaim { units, _interests: interests })
    }

    /// Looks up what a claim wants. Pages that are not here are claimed by their parts where that
    /// is enough.
    fn find_units(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        wanted: &PageClaimRequest,
    ) -> UnitsFound {
        let mut found = UnitsFound::default();
        let mut small_read = None;
        for page in wanted.pages.clone() {
            let unit = self.unit_of_page(target, wanted.block, page);
            if let Some(source) = self.find_source(flights, target, wanted.block, &unit) {
                self.metrics.pages[source.page_found()].inc();
                found.wanted.push((unit, Some(source)));
                continue;
            }
            let small_read =
                small_read.get_or_insert_with(|| self.plan_small_read(flights, target, wanted));
            let is_cut = small_read.as_ref().is_some_and(|small_read| {
                self.find_parts(flights, target, &unit, small_read, &mut found)
            });
            if !is_cut {
                let on_disk = self.disk.as_ref().is_some_and(|disk| disk.look_up_page(unit.key));
                let page_found = if on_disk { PageFound::Disk } else { PageFound::Missed };
                self.metrics.pages[page_found].inc();
                let origin = FillRunOrigin::choose_origin(on_disk, wanted.replica);
                found.missing.push(MissingUnit { unit, origin, ahead: false });
                found.wanted.push((unit, None));
            }
        }
        found
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
        // Nobody waits for these pages, so they take no memory that readers need.
        let missing = |page| MissingUnit {
            unit: self.unit_of_page(target, block, page),
            origin: FillRunOrigin::Former,
            ahead: true,
        };
        let missing: Vec<MissingUnit> = absent.map(missing).collect();
        let runs = self.split_into_runs(&missing);
        runs.iter().for_each(|run| Self::register_run(&mut flights, run));
        runs
    }

    /// Registers a run for the pages of an answered request that nobody has yet, or for the parts of
    /// pages. Returns `None` if all of them are here, or being filled. The interest keeps the run
    /// going until the callers have claimed its pages.
    pub(super) fn adopt_answer(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        range: &Range<u32>,
    ) -> Option<(Arc<PageFillRun>, RunInterest)> {
        let mut flights = self.flights_of(target.digest.block_spread(block)).lock();
        let mut units = self.units_of_answer(target, block, range)?;
        let is_owned = |unit: &FillUnit| {
            let is_here = |key| flights.contains_key(&key) || self.memory.holds_page(key);
            !is_here(unit.key) && !is_here(self.page_around(target, block, unit))
        };
        let owned: Vec<bool> = units.iter().map(is_owned).collect();
        let last = owned.iter().rposition(|&owned| owned)?;
        units.truncate(last + 1);
        let mut run = PageFillRun::new(FillRunOrigin::Ufs, &units, units.len());
        for (page, owned) in run.pages.iter_mut().zip(owned) {
            page.owned = owned;
        }
        let run = Arc::new(run);
        Self::register_run(&mut flights, &run);
        let interest = run.register_interest(run.pages.len());
        Some((run, interest))
    }

    /// Returns where the bytes of a unit come from, if it is here or being filled. Counts as a use.
    pub(super) fn find_source(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        block: BlockIndex,
        unit: &FillUnit,
    ) -> Option<PageSource> {
        let now_s = self.clock.now().as_secs();
        if let Some((held, unsaved)) = self.memory.use_page(unit.key, now_s, target.account) {
            if let Some(unsaved) = unsaved {
                self.offer_to_disk(target, block, self.page_at(unit.start), &held, unsaved);
            }
            return Some(PageSource::Held(held));
        }
        let flight = flights.get(&unit.key)?;
        flight.run.note_joined(target.account);
        Some(PageSource::Filling { run: flight.run.clone(), index: flight.index })
    }

    /// Returns the end of the pages of the block that the reader has said it goes through.
    fn pages_said(&self, target: &FillTarget, wanted: &PageClaimRequest) -> u16 {
        let begins = u64::from(wanted.block.0) * self.block_bytes();
        let block_len = self.geometry.block_len(target.version.bytes, wanted.block);
        let said = wanted.request_range.end.saturating_sub(begins).min(block_len.into());
        self.geometry.touched_pages(&(0..said as u32)).end
    }

    /// Adds the pages to fill beside the wanted ones: those that follow, up to the first that is
    /// here or being filled, as far as the reader has said that it goes, or as far as it is read
    /// ahead.
    fn add_pages_after(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        wanted: &PageClaimRequest,
        missing: &mut Vec<MissingUnit>,
    ) {
        if wanted.replica {
            return;
        }
        let said_to = self.pages_said(target, wanted);
        let ahead_bytes = wanted.ahead_bytes.min(self.bounds.ahead_bytes_max);
        let block_len = self.geometry.block_len(target.version.bytes, wanted.block);
        let pages = self.geometry.touched_pages(&(0..block_len)).end;
        let ahead_pages = (ahead_bytes / self.geometry.page_bytes) as u16;
        let end = pages.min(wanted.pages.end.saturating_add(ahead_pages).max(said_to));
        let before = missing.len();
        let after = (wanted.pages.end..end)
            .map(|page| (page, self.unit_of_page(target, wanted.block, page)))
            .take_while(|(_, unit)| {
                !flights.contains_key(&unit.key) && !self.memory.holds_page(unit.key)
            })
            .map(|(page, unit)| {
                let is_on_disk = self.is_on_disk(unit.key);
                let origin = if is_on_disk { FillRunOrigin::Disk } else { FillRunOrigin::Ufs };
                MissingUnit { unit, origin, ahead: page >= said_to }
            });
        missing.extend(after);
        self.metrics.pages_ahead.inc_by((missing.len() - before) as u64);
    }

    /// Splits missing units (ascending) into runs of adjacent ones of one kind and origin, none
    /// longer than one request may be.
    fn split_into_runs(&self, missing: &[MissingUnit]) -> Vec<Arc<PageFillRun>> {
        let adjoins = |a: &MissingUnit, b: &MissingUnit| {
            let is_alike = a.unit.kind == b.unit.kind && a.origin == b.origin;
            is_alike && a.unit.byte_range().end == b.unit.start
        };
        let run = |missing: &[MissingUnit]| {
            let units: Vec<FillUnit> = missing.iter().map(|missing| missing.unit).collect();
            let ahead_from = missing.iter().rposition(|missing| !missing.ahead);
            let ahead_from = ahead_from.map_or(0, |last| last + 1);
            Arc::new(PageFillRun::new(missing[0].origin, &units, ahead_from))
        };
        let chunks = |adjacent: &'_ [MissingUnit]| {
            let units_max = match adjacent[0].unit.kind {
                FillUnitKind::Page => self.bounds.pages_per_run_max,
                // A small read touches two pages at most.
                FillUnitKind::Part => adjacent.len(),
            };
            adjacent.chunks(units_max).map(run).collect::<Vec<_>>()
        };
        missing.chunk_by(adjoins).flat_map(chunks).collect()
    }

    /// Returns the whole page as a unit to fill.
    pub(super) fn unit_of_page(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        page: u16,
    ) -> FillUnit {
        let block_len = self.geometry.block_len(target.version.bytes, block);
        FillUnit {
            kind: FillUnitKind::Page,
            key: target.digest.page_key(block, page),
            start: u32::from(page) * self.geometry.page_bytes,
            bytes: self.geometry.page_len(block_len, PageIndex(page)),
        }
    }

    /// Returns the page that holds a byte of a block.
    pub(super) fn page_at(&self, byte: u32) -> u16 {
        (byte / self.geometry.page_bytes) as u16
    }

    pub(super) fn register_run(flights: &mut FlightMap, run: &Arc<PageFillRun>) {
        for (index, page) in run.pages.iter().enumerate().filter(|(_, page)| page.owned) {
            flights.insert(page.key, PageInFlight { run: run.clone(), index });
        }
    }
}

impl UnitsFound {
    /// Makes the run the source of the wanted units that it fills.
    fn give_sources(&mut self, run: &Arc<PageFillRun>) {
        let (pages, mut at) = (&run.pages, 0);
        for (unit, source) in &mut self.wanted {
            while at < pages.len() && run.page_start(at) < unit.start {
                at += 1;
            }
            if source.is_none() && pages.get(at).is_some_and(|page| page.key == unit.key) {
                *source = Some(PageSource::Filling { run: run.clone(), index: at });
            }
        }
    }
}

/// Registers one interest for each run among the sources, up to its last wanted page.
fn collect_interests(units: &[ClaimedUnit]) -> Vec<RunInterest> {
    let mut last: Option<(&Arc<PageFillRun>, usize)> = None;
    let mut interests = Vec::new();
    for claimed in units {
        let PageSource::Filling { run, index } = &claimed.source else { continue };
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

//! Pages of which only parts are here: finds their parts for small reads, says which of them to
//! fill, and makes a page of them once all are here.
//!
//! A part is found by its own key alone. So nobody who looks for a page (other workers, preload, the
//! disk) finds a partial one. The rule by which parts are filled is in `part_grid`.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, Digest, checksum};
use verbs3_protocol::BlockIndex;

use super::fill_run::{FillRunOrigin, PageFillRun};
use super::fill_unit::{FillUnit, FillUnitKind};
use super::page_claim::{MissingUnit, PageClaimRequest, PageSource, UnitsFound};
use super::part_grid::{AbsentPageFill, PartGrid, PartialPage};
use super::{FillTarget, FlightMap, PageFiller};
use crate::digest::{PageKey, VersionDigest};
use crate::memory::{CachedPage, MemoryUrgency, SaveEvidence};
use crate::metrics::{PageFound, PartFillReason};

/// A small read, for which parts of pages will do.
pub(super) struct SmallRead {
    grid: PartGrid,
    block: BlockIndex,
    /// The wanted bytes of the block.
    bytes: Range<u32>,
    block_len: u32,
    goes_on: bool,
    may_fill: bool,
}

impl PageFiller {
    /// Returns what of a claim may be served by parts of pages; `None`: nothing.
    pub(super) fn plan_small_read(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        wanted: &PageClaimRequest,
    ) -> Option<SmallRead> {
        let (grid, bytes) = (self.parts?, wanted.bytes.clone()?);
        let begins = u64::from(wanted.block.0) * self.block_bytes();
        let read = match wanted.request_range.is_empty() {
            true => begins + u64::from(bytes.start)..begins + u64::from(bytes.end),
            false => wanted.request_range.clone(),
        };
        if wanted.replica || !grid.is_small(read.end - read.start) {
            return None;
        }
        // Data that ends where a later span of this read begins was brought by this same read, so
        // it does not show a sequence.
        let goes_on = match read.start == begins + u64::from(bytes.start) {
            true => self.ends_before(flights, target, grid, wanted.block, bytes.start),
            false => self.is_page_before(target, read.start),
        };
        // A gateway only guesses that reads are sequential. What is here has to show it, too.
        if wanted.ahead_bytes > 0 && goes_on {
            return None;
        }
        let former = || {
            let slot = target.object.block_slot(wanted.block);
            self.former.former_owners(slot, self.clock.now())
        };
        // A small object is soon here as a whole. What begins an object is mostly read on from. And
        // former owners give whole pages.
        let may_fill =
            target.version.bytes > self.block_bytes() && read.start > 0 && former().is_empty();
        let block_len = self.geometry.block_len(target.version.bytes, wanted.block);
        Some(SmallRead { grid, block: wanted.block, bytes, block_len, goes_on, may_fill })
    }

    /// Returns whether what is here, or being filled, ends where a read begins: in the same part, or
    /// just before it. How far the earlier read went within its last part is not known.
    fn ends_before(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        grid: PartGrid,
        block: BlockIndex,
        start: u32,
    ) -> bool {
        if start == 0 {
            // The pages in flight of another block have another lock. What is here says enough.
            let Some(block) = block.0.checked_sub(1).map(BlockIndex) else { return false };
            let last = (self.block_bytes() - 1) as u32;
            return self.is_byte_here(&FlightMap::default(), target, grid, block, last);
        }
        let next = grid.next_part_start(start - 1);
        self.is_byte_here(flights, target, grid, block, start - 1)
            && !self.is_byte_here(flights, target, grid, block, next)
    }

    /// Returns whether the page before this byte of the object, or around it, is here as a whole. It
    /// is where a reader goes through the object.
    fn is_page_before(&self, target: &FillTarget, byte: u64) -> bool {
        let Some(before) = byte.checked_sub(1) else { return false };
        let block = BlockIndex((before / self.block_bytes()) as u32);
        let page = self.page_at((before % self.block_bytes()) as u32);
        !self.is_page_absent(&FlightMap::default(), target.digest.page_key(block, page))
    }

    /// Returns whether the byte's page or part is here or being filled.
    fn is_byte_here(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        grid: PartGrid,
        block: BlockIndex,
        byte: u32,
    ) -> bool {
        let part = grid.touched_parts(&(byte..byte + 1)).start;
        let part = target.digest.part_key(block, part);
        let page = target.digest.page_key(block, self.page_at(byte));
        !self.is_page_absent(flights, page) || self.is_part_here(flights, part)
    }

    fn is_part_here(&self, flights: &FlightMap, part: PageKey) -> bool {
        flights.contains_key(&part) || self.memory.holds_page(part)
    }

    /// Claims the wanted parts of a page that is neither in memory nor being filled. Returns false,
    /// and claims nothing, if the page is filled as a whole, or comes from disk.
    pub(super) fn find_parts(
        &self,
        flights: &FlightMap,
        target: &FillTarget,
        page: &FillUnit,
        small_read: &SmallRead,
        found: &mut UnitsFound,
    ) -> bool {
        let SmallRead { grid, block, bytes, block_len, goes_on, may_fill } = small_read;
        let block = *block;
        if self.is_on_disk(page.key) {
            return false;
        }
        let within = page.byte_range();
        let wanted =
            grid.touched_parts(&(bytes.start.max(within.start)..bytes.end.min(within.end)));
        let all = grid.parts_of_page(*block_len, self.page_at(page.start));
        let units: Vec<FillUnit> = all
            .clone()
            .map(|part| grid.unit_of_part(target.digest, block, *block_len, part))
            .collect();
        let partial = PartialPage {
            present: units.iter().map(|unit| self.is_part_here(flights, unit.key)).collect(),
            wanted: usize::from(wanted.start - all.start)..usize::from(wanted.end - all.start),
            goes_on: *goes_on,
            may_fill: *may_fill,
        };
        let (fills_rest, reason) = match partial.choose_fill() {
            AbsentPageFill::WholePage => return false,
            AbsentPageFill::WantedParts => (false, PartFillReason::Alone),
            AbsentPageFill::AllParts => (true, PartFillReason::Rest),
        };
        let mut verdict = PageFound::Hit;
        for (part, unit) in units.into_iter().enumerate() {
            let is_wanted = partial.wanted.contains(&part);
            let source = match is_wanted {
                true => self.find_source(flights, target, block, &unit),
                false => None,
            };
            let is_missing = match &source {
                Some(_) => false,
                None => is_wanted || fills_rest && !partial.present[part],
            };
            if is_missing {
                let (origin, ahead) = (FillRunOrigin::Ufs, !is_wanted);
                found.missing.push(MissingUnit { unit, origin, ahead });
                self.metrics.parts_asked[reason].inc();
                self.metrics.part_bytes_asked[reason].inc_by(unit.bytes.into());
                verdict = PageFound::Missed;
            } else if matches!(source, Some(PageSource::Filling { .. }))
                && !matches!(verdict, PageFound::Missed)
            {
                verdict = PageFound::Joined;
            }
            if is_wanted {
                found.wanted.push((unit, source));
            }
        }
        self.metrics.pages[verdict].inc();
        true
    }

    /// Returns the units that an answered request of these bytes of a block fills: its pages, or
    /// its parts if it is cut within a page. `None` if it is cut elsewhere.
    pub(super) fn units_of_answer(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        range: &Range<u32>,
    ) -> Option<Vec<FillUnit>> {
        let block_len = self.geometry.block_len(target.version.bytes, block);
        let is_border = |at: u32| at == block_len || at.is_multiple_of(self.geometry.page_bytes);
        if is_border(range.start) && is_border(range.end) {
            let pages = self.geometry.touched_pages(range);
            return Some(pages.map(|page| self.unit_of_page(target, block, page)).collect());
        }
        let grid = self.parts.filter(|grid| grid.is_whole_parts(block_len, range))?;
        let unit = |part| grid.unit_of_part(target.digest, block, block_len, part);
        let units: Vec<FillUnit> = grid.touched_parts(range).map(unit).collect();
        let bytes: u64 = units.iter().map(|unit| u64::from(unit.bytes)).sum();
        self.metrics.parts_asked[PartFillReason::Alone].inc_by(units.len() as u64);
        self.metrics.part_bytes_asked[PartFillReason::Alone].inc_by(bytes);
        Some(units)
    }

    /// Returns whether the first of these bytes of block 0 is here, as part of a page.
    pub(super) fn holds_first_part(&self, digest: VersionDigest, first_byte: u64) -> bool {
        let Some((grid, byte)) = self.parts.zip(u32::try_from(first_byte).ok()) else {
            return false;
        };
        let part = grid.touched_parts(&(byte..byte.saturating_add(1))).start;
        self.memory.holds_page(digest.part_key(BlockIndex(0), part))
    }

    /// Keeps a completed part of a run, in memory alone.
    pub(super) fn keep_part(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        index: usize,
        kept: CachedPage,
    ) {
        let (key, now_s) = (run.pages[index].key, self.clock.now().as_secs());
        self.memory.insert_part(key, kept, now_s, target.account);
        // As for a page: it leaves the table only once it can be found in memory.
        run.take_page_out_of(&mut self.flights_of(target.digest.block_spread(block)).lock(), index);
        run.mark_kept(index);
    }

    /// Makes pages of those that a run of parts has completed.
    pub(super) fn complete_pages(&self, target: &FillTarget, block: BlockIndex, run: &PageFillRun) {
        let Some(grid) = self.parts else { return };
        let range = run.start..run.start + run.total_bytes();
        for page in self.geometry.touched_pages(&range) {
            let unit = self.unit_of_page(target, block, page);
            if self.memory.holds_page(unit.key) || self.make_page(target, block, grid, &unit) {
                self.drop_parts(target.digest, block, page);
            }
        }
    }

    /// Makes a page of its parts, if all are here and there is memory for it. Returns whether the
    /// page is here now. The page's checksum is of the bytes that the parts' own have just proved:
    /// to combine these costs far more than to read 256 KiB again.
    fn make_page(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        grid: PartGrid,
        unit: &FillUnit,
    ) -> bool {
        let (page, block_len) =
            (self.page_at(unit.start), self.geometry.block_len(target.version.bytes, block));
        let peek = |part| self.memory.peek_page(target.digest.part_key(block, part));
        let parts: Option<Vec<CachedPage>> =
            grid.parts_of_page(block_len, page).map(peek).collect();
        let Some(parts) = parts else { return false };
        let bytes = unit.bytes as usize;
        // Its parts give back as much at once. Read-ahead, which may use less, would get none where
        // memory is full of parts.
        let Some(cell) = self.memory.allocate_cell(bytes, MemoryUrgency::Demand, target.account)
        else {
            return false;
        };
        let (mut writer, cell) = cell.split_writer_reader();
        let (spare, mut at) = (writer.spare_bytes(), 0);
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        for (number, part) in grid.parts_of_page(block_len, page).zip(&parts) {
            let end = at + part.bytes as usize;
            let Some(bytes) = part.cell.pinned_bytes(0..part.bytes as usize) else { return false };
            let Some(into) = spare.get_mut(at..end) else { return false };
            into.copy_from_slice(&bytes);
            // What has changed in memory since its fill must not be proved anew.
            if checksum(CrcAlgorithm::Crc64Nvme, into) != part.checksum {
                self.memory.drop_part(target.digest.part_key(block, number));
                return false;
            }
            digest.update(into);
            at = end;
        }
        if at != bytes {
            return false;
        }
        if self.memory.holds_page(unit.key) {
            // Another run has made it meanwhile.
            return true;
        }
        writer.publish_bytes(bytes);
        let (checksum, now_s) = (digest.finalize(), self.clock.now().as_secs());
        let kept = CachedPage { cell, bytes: unit.bytes, checksum };
        let returned = self.memory.insert_page(unit.key, kept.clone(), now_s, target.account);
        self.offer_to_disk(target, block, page, &kept, SaveEvidence { uses: 0, returned });
        self.metrics.pages_completed.inc();
        self.metrics.page_bytes_completed.inc_by(unit.bytes.into());
        true
    }

    /// Drops the parts of a page: it is here as a whole, or was evicted.
    pub(crate) fn drop_parts(&self, digest: VersionDigest, block: BlockIndex, page: u16) {
        let Some(grid) = self.parts else { return };
        // Whatever the block's length: there are no parts behind its end.
        for part in grid.parts_of_page(self.geometry.block_bytes, page) {
            self.memory.drop_part(digest.part_key(block, part));
        }
    }

    /// Returns the key of the page that a unit is, or is a part of.
    pub(super) fn page_around(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        unit: &FillUnit,
    ) -> PageKey {
        match unit.kind {
            FillUnitKind::Page => unit.key,
            FillUnitKind::Part => target.digest.page_key(block, self.page_at(unit.start)),
        }
    }
}

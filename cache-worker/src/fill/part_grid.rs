//! Cuts pages into parts, and decides which reads are served by parts of pages. Pure.
//!
//! A page costs four times what a read of 64 KiB wants. So a small read that begins where nothing
//! is here brings the parts that it wants, and no more. The rest of a page comes once most of it is
//! wanted, or once a read goes on where another one has ended.

use std::ops::Range;

use verbs3_protocol::{BlockGeometry, BlockIndex};
use verbs3_settings::ByteSize;

use super::fill_unit::{FillUnit, FillUnitKind};
use crate::digest::VersionDigest;

/// How pages are cut into parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartGrid {
    geometry: BlockGeometry,
    part_bytes: u32,
}

/// What brings the bytes of a page that is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbsentPageFill {
    /// The page at once, whatever parts of it are here.
    WholePage,
    /// The wanted parts.
    WantedParts,
    /// All parts that are not here: afterwards the page is whole.
    AllParts,
}

/// What is known of a page that is not here, and of the read that wants some of it.
#[derive(Debug)]
pub(super) struct PartialPage {
    /// For each part of the page, whether it is here or being filled.
    pub(super) present: Vec<bool>,
    /// Those that the read wants.
    pub(super) wanted: Range<usize>,
    /// The read begins where something ends that is here.
    pub(super) goes_on: bool,
    /// Parts may be filled for this read, and not only used.
    pub(super) may_fill: bool,
}

impl PartGrid {
    /// Returns `None` where pages are not cut: parts are switched off, or no smaller than pages.
    pub(crate) fn new(geometry: BlockGeometry, part: ByteSize) -> Option<Self> {
        let part_bytes = part.as_u32();
        let is_cut = part_bytes > 0
            && part_bytes < geometry.page_bytes
            && geometry.page_bytes.is_multiple_of(part_bytes);
        is_cut.then_some(Self { geometry, part_bytes })
    }

    /// Returns whether a read of so many bytes is small: parts of pages may serve it.
    pub(crate) fn is_small(self, read_bytes: u64) -> bool {
        read_bytes > 0 && read_bytes <= u64::from(self.geometry.page_bytes / 2)
    }

    /// Returns the parts of a block that a range of it touches.
    pub(super) fn touched_parts(self, range: &Range<u32>) -> Range<u16> {
        let first = range.start / self.part_bytes;
        first as u16..range.end.div_ceil(self.part_bytes).max(first) as u16
    }

    /// Returns the parts of a page of a block of `block_len` bytes.
    pub(super) fn parts_of_page(self, block_len: u32, page: u16) -> Range<u16> {
        let start = u32::from(page) * self.geometry.page_bytes;
        self.touched_parts(&(start..(start + self.geometry.page_bytes).min(block_len)))
    }

    /// Returns where the part after that of a byte begins. It may be the end of the block.
    pub(super) fn next_part_start(self, byte: u32) -> u32 {
        (byte / self.part_bytes + 1) * self.part_bytes
    }

    /// Returns the object's bytes up to the borders of parts.
    pub(crate) fn align_range(self, range: &Range<u64>) -> Range<u64> {
        let part_bytes = u64::from(self.part_bytes);
        range.start / part_bytes * part_bytes..range.end.div_ceil(part_bytes) * part_bytes
    }

    /// Returns whether an answer of these bytes of a block of `block_len` bytes is whole parts.
    pub(super) fn is_whole_parts(self, block_len: u32, range: &Range<u32>) -> bool {
        let ends = range.end == block_len || range.end.is_multiple_of(self.part_bytes);
        range.start.is_multiple_of(self.part_bytes) && ends
    }

    pub(super) fn unit_of_part(
        self,
        digest: VersionDigest,
        block: BlockIndex,
        block_len: u32,
        part: u16,
    ) -> FillUnit {
        let start = u32::from(part) * self.part_bytes;
        let bytes = block_len.saturating_sub(start).min(self.part_bytes);
        let (kind, key) = (FillUnitKind::Part, digest.part_key(block, part));
        FillUnit { kind, key, start, bytes }
    }
}

impl PartialPage {
    /// Decides what brings the wanted bytes.
    pub(super) fn choose_fill(&self) -> AbsentPageFill {
        let count = |parts: &[bool]| parts.iter().filter(|&&present| present).count();
        let (present, all) = (count(&self.present), self.present.len());
        let missing = self.wanted.len() - count(&self.present[self.wanted.clone()]);
        if missing == 0 {
            return AbsentPageFill::WantedParts;
        }
        // Two reads of a quarter each are half a page, and a little more by the borders of parts.
        let is_most = 4 * (present + missing) >= 3 * all;
        match (present, self.goes_on || is_most) {
            _ if !self.may_fill => AbsentPageFill::WholePage,
            (0, true) => AbsentPageFill::WholePage,
            (_, true) => AbsentPageFill::AllParts,
            (_, false) => AbsentPageFill::WantedParts,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const KIB: u32 = 1 << 10;

    fn grid() -> PartGrid {
        PartGrid::new(BlockGeometry::DEFAULT, ByteSize(16 << 10)).unwrap()
    }

    /// A page of 16 parts, of which those in `present` are here.
    fn choose(present: &[usize], wanted: Range<usize>, goes_on: bool) -> AbsentPageFill {
        let present = (0..16).map(|part| present.contains(&part)).collect();
        PartialPage { present, wanted, goes_on, may_fill: true }.choose_fill()
    }

    #[test]
    fn pages_are_cut_only_where_parts_are_smaller_and_divide_them() {
        let new = |page: u32, part: u64| {
            let geometry = BlockGeometry { block_bytes: 4 << 20, page_bytes: page };
            PartGrid::new(geometry, ByteSize(part)).is_some()
        };
        assert!(new(256 * KIB, 4 << 10) && new(256 * KIB, 64 << 10) && new(64 * KIB, 32 << 10));
        assert!(!new(256 * KIB, 0) && !new(64 * KIB, 64 << 10) && !new(256 * KIB, 12 << 10));
    }

    #[test]
    fn an_isolated_read_brings_its_own_parts() {
        assert_eq!(choose(&[], 3..8, false), AbsentPageFill::WantedParts);
        assert_eq!(choose(&[], 3..8, true), AbsentPageFill::WholePage);
        assert_eq!(choose(&[], 2..13, false), AbsentPageFill::WantedParts);
        assert_eq!(choose(&[], 2..14, false), AbsentPageFill::WholePage);
    }

    #[test]
    fn what_is_here_in_parts_is_read_from_them() {
        assert_eq!(choose(&[3, 4, 5], 3..6, false), AbsentPageFill::WantedParts);
        assert_eq!(choose(&[3, 4, 5], 4..5, true), AbsentPageFill::WantedParts);
    }

    #[test]
    fn a_sequential_read_or_most_wanted_parts_complete_a_page() {
        assert_eq!(choose(&[0, 1], 5..8, false), AbsentPageFill::WantedParts);
        assert_eq!(choose(&[0, 1], 2..4, true), AbsentPageFill::AllParts);
        let eight = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(choose(&eight, 10..13, false), AbsentPageFill::WantedParts);
        assert_eq!(choose(&eight, 10..14, false), AbsentPageFill::AllParts);
        assert_eq!(choose(&eight, 5..11, false), AbsentPageFill::WantedParts);
    }

    #[test]
    fn where_no_parts_may_be_filled_those_that_are_here_still_serve() {
        let choose = |wanted| {
            let present = (0..16).map(|part| part < 4).collect();
            PartialPage { present, wanted, goes_on: false, may_fill: false }.choose_fill()
        };
        assert_eq!(choose(0..4), AbsentPageFill::WantedParts);
        assert_eq!(choose(3..5), AbsentPageFill::WholePage);
    }

    proptest! {
        #[test]
        fn the_parts_of_a_page_tile_it(block_len in 1u32..=4 << 20, page in 0u16..16) {
            let digest = VersionDigest::from_stored(7);
            let mut at = u32::from(page) * 256 * KIB;
            let end = (at + 256 * KIB).min(block_len);
            for part in grid().parts_of_page(block_len, page) {
                let unit = grid().unit_of_part(digest, BlockIndex(3), block_len, part);
                prop_assert_eq!(unit.start, at);
                prop_assert!(unit.bytes > 0);
                at += unit.bytes;
            }
            prop_assert!(at == end || at > block_len);
        }

        #[test]
        fn touched_parts_cover_the_range_and_no_more(start in 0u32..4 << 20, length in 1u32..300_000) {
            let range = start..(start + length).min(4 << 20);
            let parts = grid().touched_parts(&range);
            prop_assert!(u32::from(parts.start) * 16 * KIB <= range.start);
            prop_assert!(u32::from(parts.start + 1) * 16 * KIB > range.start);
            prop_assert!(u32::from(parts.end) * 16 * KIB >= range.end);
            prop_assert!(u32::from(parts.end - 1) * 16 * KIB < range.end);
            let aligned = grid().align_range(&(range.start.into()..range.end.into()));
            prop_assert!(grid().is_whole_parts(4 << 20, &(aligned.start as u32..aligned.end as u32)));
        }
    }
}

//! Owns which part of the lent memory is whose. First fit over free ranges, by pages. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// Unit of every range: bodies begin at pages.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The free ranges, by their beginning.
#[derive(Debug)]
pub(crate) struct MemorySpace {
    free: BTreeMap<u64, u64>,
}

/// Where a request's bytes are. `range` covers the other two, and is given back when it is over.
#[derive(Clone)]
pub(crate) struct RequestPlaces {
    pub(crate) range: Range<u64>,
    /// The body of a write. It ends where its bytes end.
    pub(crate) source: Range<u64>,
    /// The body of the answer.
    pub(crate) landing: Range<u64>,
    /// It may lie in pages of a worker instead.
    pub(crate) takes_pages: bool,
}

/// What became of the wish for a range.
pub(crate) enum TakenRange {
    Taken(Range<u64>),
    /// No part of the memory is as long. So many ranges had been given back.
    NoSpace {
        returned: u64,
    },
}

impl MemorySpace {
    /// Makes space of the whole pages in a range.
    pub(crate) fn new(range: Range<u64>) -> Self {
        let start = range.start.next_multiple_of(PAGE_BYTES);
        let end = range.end / PAGE_BYTES * PAGE_BYTES;
        let free = if start < end { BTreeMap::from([(start, end)]) } else { BTreeMap::new() };
        Self { free }
    }

    /// Takes a range for so many bytes. `None`: no free range is as long.
    pub(crate) fn take_range(&mut self, bytes: u64) -> Option<Range<u64>> {
        let wanted = bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let (&start, &end) = self.free.iter().find(|&(start, end)| end - start >= wanted)?;
        self.free.remove(&start);
        if start + wanted < end {
            self.free.insert(start + wanted, end);
        }
        Some(start..start + wanted)
    }

    /// Returns how long the longest free range is.
    pub(crate) fn longest_free(&self) -> u64 {
        self.free.iter().map(|(start, end)| end - start).max().unwrap_or(0)
    }

    /// Gives a range back.
    pub(crate) fn return_range(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if let Some((&before, &before_end)) = self.free.range(..start).next_back()
            && before_end == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after_end) = self.free.remove(&end) {
            end = after_end;
        }
        self.free.insert(start, end);
    }
}

/// Splits the range that a body has landed in into the pages that it takes and the others.
pub(crate) fn split_landing(range: Range<u64>, bytes: u64) -> (Range<u64>, Range<u64>) {
    let taken = bytes.max(1).next_multiple_of(PAGE_BYTES);
    let middle = range.start.saturating_add(taken).min(range.end);
    (range.start..middle, middle..range.end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_don_t_overlap_and_come_together_again() {
        let mut space = MemorySpace::new(100..10 * PAGE_BYTES + 5);
        let first = space.take_range(1).unwrap();
        let second = space.take_range(2 * PAGE_BYTES).unwrap();
        let third = space.take_range(PAGE_BYTES + 1).unwrap();
        assert_eq!(first, PAGE_BYTES..2 * PAGE_BYTES);
        assert_eq!(second.start, first.end);
        assert_eq!(third.start, second.end);
        space.return_range(second.clone());
        assert_eq!(space.take_range(2 * PAGE_BYTES), Some(second.clone()), "the first that fits");
        for range in [third, first, second] {
            space.return_range(range);
        }
        assert_eq!(space.take_range(9 * PAGE_BYTES), Some(PAGE_BYTES..10 * PAGE_BYTES));
        assert_eq!(space.take_range(1), None);
        assert_eq!(space.take_range(u64::MAX), None);
        assert_eq!(space.longest_free(), 0);
        space.return_range(PAGE_BYTES..2 * PAGE_BYTES);
        space.return_range(3 * PAGE_BYTES..5 * PAGE_BYTES);
        assert_eq!(space.longest_free(), 2 * PAGE_BYTES);
    }

    #[test]
    fn a_landed_body_keeps_its_own_pages_alone() {
        let landing = 2 * PAGE_BYTES..10 * PAGE_BYTES;
        for (bytes, pages) in [
            (0, 1),
            (1, 1),
            (PAGE_BYTES, 1),
            (PAGE_BYTES + 1, 2),
            (8 * PAGE_BYTES, 8),
            (9 * PAGE_BYTES, 8),
        ] {
            let (kept, rest) = split_landing(landing.clone(), bytes);
            assert_eq!(kept, landing.start..landing.start + pages * PAGE_BYTES);
            assert_eq!(rest, kept.end..landing.end);
        }
    }
}

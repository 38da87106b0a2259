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

/// A range, in parts that are whole pages, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SplitLanding {
    pub(crate) kept: Vec<Range<u64>>,
    pub(crate) rest: Vec<Range<u64>>,
}

/// Splits the range that a body has landed in into the pages that it uses and the others. `used` is
/// in the body's order, by its bytes.
pub(crate) fn split_landing(range: Range<u64>, used: &[Range<u64>]) -> SplitLanding {
    let mut split = SplitLanding { kept: Vec::new(), rest: Vec::new() };
    let mut done = range.start;
    for used in used.iter().filter(|used| !used.is_empty()) {
        let start = range.start.saturating_add(used.start / PAGE_BYTES * PAGE_BYTES).max(done);
        let end = range.start.saturating_add(used.end.next_multiple_of(PAGE_BYTES)).min(range.end);
        if start >= end {
            continue;
        }
        if start > done {
            split.rest.push(done..start);
        }
        match split.kept.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => split.kept.push(start..end),
        }
        done = end;
    }
    if done < range.end {
        split.rest.push(done..range.end);
    }
    split
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::slice::from_ref;

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
        let pages = |from: u64, to: u64| from * PAGE_BYTES..to * PAGE_BYTES;
        let landing = pages(2, 10);
        for (bytes, count) in
            [(1, 1), (PAGE_BYTES, 1), (PAGE_BYTES + 1, 2), (8 * PAGE_BYTES, 8), (9 * PAGE_BYTES, 8)]
        {
            let SplitLanding { kept, rest } = split_landing(landing.clone(), from_ref(&(0..bytes)));
            assert_eq!(kept, [pages(2, 2 + count)]);
            assert_eq!(rest, Vec::from_iter((count < 8).then(|| pages(2 + count, 10))));
        }
    }

    #[test]
    fn what_lies_elsewhere_takes_no_room() {
        let pages = |from: u64, to: u64| from * PAGE_BYTES..to * PAGE_BYTES;
        let landing = pages(2, 10);
        assert_eq!(
            split_landing(landing.clone(), &[]),
            SplitLanding { kept: vec![], rest: vec![landing.clone()] }
        );
        let tail = 5 * PAGE_BYTES + 10..5 * PAGE_BYTES + 15;
        let split = split_landing(landing.clone(), from_ref(&tail));
        assert_eq!(split.kept, [pages(7, 8)]);
        assert_eq!(split.rest, [pages(2, 7), pages(8, 10)]);
        // Two that share a page, and one behind them.
        let used = [10..20, 30..PAGE_BYTES + 1, 3 * PAGE_BYTES..3 * PAGE_BYTES + 1];
        let split = split_landing(landing, &used);
        assert_eq!(split.kept, [pages(2, 4), pages(5, 6)]);
        assert_eq!(split.rest, [pages(4, 5), pages(6, 10)]);
    }
}

//! Plans what an `Open` requests from the UFS, and which bytes of block 0 its answer has. Pure.

use std::ops::Range;

use verbs3_protocol::{BlockGeometry, BlockIndex, ByteRange};

use crate::attributes::FirstBytesPlan;
use crate::fill::{PartGrid, RequestExtent};

/// Plans the bytes to get together with the attributes. Returns `None` if the wanted bytes begin in
/// another block, or if their start depends on the length.
///
/// Small reads within a large object ask for `parts` of pages, where pages have some.
pub(crate) fn plan_first_bytes(
    want: Option<ByteRange>,
    extent: RequestExtent,
    parts: Option<PartGrid>,
) -> Option<FirstBytesPlan> {
    let geometry = extent.geometry();
    let page_bytes = u64::from(geometry.page_bytes);
    let wanted = match want? {
        ByteRange::All => 0..u64::MAX,
        ByteRange::From { first, last } => {
            first..last.map_or(u64::MAX, |last| last.saturating_add(1))
        }
        ByteRange::Suffix { .. } => return None,
    };
    if wanted.start >= u64::from(geometry.block_bytes) || wanted.is_empty() {
        return None;
    }
    let length = wanted.end - wanted.start;
    if let Some(parts) = parts.filter(|parts| wanted.start > 0 && parts.is_small(length)) {
        let end = wanted.end.min(geometry.block_bytes.into());
        let Range { start, end } = parts.align_range(&(wanted.start..end));
        return Some(FirstBytesPlan { range: start..=end - 1, to_end: false });
    }
    let end = extent.find_end(BlockIndex(0), &wanted).div_ceil(page_bytes) * page_bytes;
    let range = wanted.start / page_bytes * page_bytes..=end - 1;
    Some(FirstBytesPlan { range, to_end: wanted.end == u64::MAX })
}

/// Returns the bytes of block 0 to answer with, at most `bytes_max` of them; `None`: there are
/// none.
pub(crate) fn answer_span(
    want: Option<ByteRange>,
    object_bytes: u64,
    geometry: BlockGeometry,
    bytes_max: u64,
) -> Option<Range<u32>> {
    let range = want?.resolve_range(object_bytes)?;
    let end =
        range.end.min(u64::from(geometry.block_bytes)).min(range.start.saturating_add(bytes_max));
    (range.start < end).then_some(range.start as u32..end as u32)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ops::RangeInclusive;

    use super::*;
    use crate::settings::WorkerFillSettings;
    use proptest::prelude::*;

    const GEOMETRY: BlockGeometry = BlockGeometry::DEFAULT;
    const PAGE: u64 = 256 << 10;
    const BLOCK: u64 = 4 << 20;

    fn from(first: u64, last: Option<u64>) -> Option<ByteRange> {
        Some(ByteRange::From { first, last })
    }

    fn range(want: Option<ByteRange>) -> Option<RangeInclusive<u64>> {
        let extent = RequestExtent::new(GEOMETRY, &WorkerFillSettings::default());
        plan_first_bytes(want, extent, None).map(|plan| plan.range)
    }

    #[test]
    fn a_whole_object_is_asked_as_its_first_block() {
        for want in [Some(ByteRange::All), from(0, None)] {
            let extent = RequestExtent::new(GEOMETRY, &WorkerFillSettings::default());
            let plan = plan_first_bytes(want, extent, None).unwrap();
            assert_eq!((plan.range, plan.to_end), (0..=BLOCK - 1, true));
        }
    }

    #[test]
    fn a_range_asks_for_its_pages_only_and_for_all_of_them() {
        assert_eq!(range(from(5, Some(10))), Some(0..=PAGE - 1));
        assert_eq!(range(from(PAGE - 1, Some(PAGE))), Some(0..=2 * PAGE - 1));
        assert_eq!(range(from(5, Some(2 * BLOCK - 1))), Some(0..=2 * BLOCK - 1));
        assert_eq!(
            range(from(BLOCK - 1, Some(3 * BLOCK))),
            Some(BLOCK - PAGE..=3 * BLOCK + PAGE - 1)
        );
        assert_eq!(range(from(3 * PAGE, Some(u64::MAX))), Some(3 * PAGE..=BLOCK - 1));
        assert_eq!(range(from(0, Some(64 * BLOCK))), Some(0..=BLOCK - 1));
    }

    #[test]
    fn what_does_not_begin_in_block_0_asks_for_attributes_only() {
        assert_eq!(range(None), None);
        assert_eq!(range(from(BLOCK, None)), None);
        assert_eq!(range(from(9, Some(3))), None);
        assert_eq!(range(Some(ByteRange::Suffix { bytes: 5 })), None);
    }

    #[test]
    fn an_unsatisfiable_range_is_answered_without_bytes() {
        assert_eq!(answer_span(from(10, None), 10, GEOMETRY, u64::MAX), None);
        assert_eq!(answer_span(Some(ByteRange::All), 0, GEOMETRY, u64::MAX), None);
        assert_eq!(answer_span(Some(ByteRange::Suffix { bytes: 0 }), 10, GEOMETRY, u64::MAX), None);
        assert_eq!(
            answer_span(Some(ByteRange::Suffix { bytes: 5 }), BLOCK + 5, GEOMETRY, u64::MAX),
            None
        );
    }

    proptest! {
        #[test]
        fn what_is_answered_lies_within_what_is_asked(
            first in 0u64..5 << 20, length in 0u64..5 << 20, open in any::<bool>(), bytes in 1u64..6 << 20, max in 1u64..5 << 20
        ) {
            let want = from(first, (!open).then_some(first + length));
            let Some(span) = answer_span(want, bytes, GEOMETRY, max) else { return Ok(()) };
            let asked = range(want).unwrap();
            prop_assert!(*asked.start() <= u64::from(span.start) && u64::from(span.end) <= asked.end() + 1);
            prop_assert!(asked.start().is_multiple_of(PAGE) && (asked.end() + 1).is_multiple_of(PAGE));
            prop_assert!(span.len() as u64 <= max);
        }
    }
}

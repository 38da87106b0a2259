//! Plans what an `Open` requests from the UFS, and which bytes of block 0 its answer has. Pure.

use std::ops::{Range, RangeInclusive};

use verbs3_protocol::{BlockGeometry, ByteRange};

/// Returns the page-aligned bytes of block 0 to get together with the attributes. Returns `None` if
/// the wanted bytes begin elsewhere, or if their start depends on the length.
pub(crate) fn get(want: Option<ByteRange>, geometry: BlockGeometry) -> Option<RangeInclusive<u64>> {
    let (page_bytes, block_bytes) =
        (u64::from(geometry.page_bytes), u64::from(geometry.block_bytes));
    match want? {
        ByteRange::All => Some(0..=block_bytes - 1),
        ByteRange::From { first, last } => {
            let last = last.unwrap_or(u64::MAX);
            if first >= block_bytes || last < first {
                return None;
            }
            let end = (last.min(block_bytes - 1) / page_bytes + 1) * page_bytes;
            Some(first / page_bytes * page_bytes..=end - 1)
        }
        ByteRange::Suffix { .. } => None,
    }
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
    use super::*;
    use proptest::prelude::*;

    const GEOMETRY: BlockGeometry = BlockGeometry::DEFAULT;
    const PAGE: u64 = 256 << 10;
    const BLOCK: u64 = 4 << 20;

    fn from(first: u64, last: Option<u64>) -> Option<ByteRange> {
        Some(ByteRange::From { first, last })
    }

    #[test]
    fn a_whole_object_is_asked_as_its_first_block() {
        assert_eq!(get(Some(ByteRange::All), GEOMETRY), Some(0..=BLOCK - 1));
        assert_eq!(get(from(0, None), GEOMETRY), Some(0..=BLOCK - 1));
    }

    #[test]
    fn a_small_range_asks_for_its_pages_only() {
        assert_eq!(get(from(5, Some(10)), GEOMETRY), Some(0..=PAGE - 1));
        assert_eq!(get(from(PAGE - 1, Some(PAGE)), GEOMETRY), Some(0..=2 * PAGE - 1));
        assert_eq!(get(from(3 * PAGE, Some(u64::MAX)), GEOMETRY), Some(3 * PAGE..=BLOCK - 1));
    }

    #[test]
    fn what_does_not_begin_in_block_0_asks_for_attributes_only() {
        assert_eq!(get(None, GEOMETRY), None);
        assert_eq!(get(from(BLOCK, None), GEOMETRY), None);
        assert_eq!(get(from(9, Some(3)), GEOMETRY), None);
        assert_eq!(get(Some(ByteRange::Suffix { bytes: 5 }), GEOMETRY), None);
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
            let asked = get(want, GEOMETRY).unwrap();
            prop_assert!(*asked.start() <= u64::from(span.start) && u64::from(span.end) <= asked.end() + 1);
            prop_assert!(asked.start().is_multiple_of(PAGE) && (asked.end() + 1).is_multiple_of(PAGE));
            prop_assert!(span.len() as u64 <= max);
        }
    }
}

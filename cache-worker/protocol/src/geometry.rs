//! Cuts objects into blocks, pages, and the spans that a read wants. Pure arithmetic.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ids::{BlockIndex, PageIndex};

/// Block and page size, the same in the whole cluster. Requests carry it, so that a mismatch is an
/// error and not wrong bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockGeometry {
    pub block_bytes: u32,
    pub page_bytes: u32,
}

/// Reason why a geometry can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    #[error("block size of {0} bytes is not between 1 MiB and 16 MiB")]
    Block(u32),
    #[error(
        "page size of {0} bytes is not a power of two between 64 KiB and 1 MiB that divides the \
        block size"
    )]
    Page(u32),
}

/// Part of one block that a read wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSpan {
    pub block: BlockIndex,
    /// Bytes within the block; never empty.
    pub range: Range<u32>,
}

impl BlockGeometry {
    /// 4 MiB blocks in 256 KiB pages.
    pub const DEFAULT: Self = Self { block_bytes: 4 << 20, page_bytes: 256 << 10 };

    /// Creates a geometry. Fails unless blocks are 1 to 16 MiB long and pages are a power of two
    /// from 64 KiB to 1 MiB that divides the block.
    pub fn new(block_bytes: u32, page_bytes: u32) -> Result<Self, GeometryError> {
        if !(1 << 20..=16 << 20).contains(&block_bytes) {
            return Err(GeometryError::Block(block_bytes));
        }
        if !page_bytes.is_power_of_two()
            || !(64 << 10..=1 << 20).contains(&page_bytes)
            || !block_bytes.is_multiple_of(page_bytes)
        {
            return Err(GeometryError::Page(page_bytes));
        }
        Ok(Self { block_bytes, page_bytes })
    }

    /// Returns the number of pages of a full block.
    pub fn pages_per_block(self) -> u16 {
        (self.block_bytes / self.page_bytes) as u16
    }

    /// Cuts an object's bytes into spans, in body order.
    pub fn cut_spans(self, range: Range<u64>) -> impl Iterator<Item = BlockSpan> {
        let block_bytes = u64::from(self.block_bytes);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let block = at / block_bytes;
            let start = at - block * block_bytes;
            let end = (range.end - block * block_bytes).min(block_bytes);
            at = block * block_bytes + end;
            Some(BlockSpan { block: BlockIndex(block as u32), range: start as u32..end as u32 })
        })
    }

    /// Returns the length of a block of an object of `object_bytes`; 0 past its end.
    pub fn block_len(self, object_bytes: u64, block: BlockIndex) -> u32 {
        let start = u64::from(block.0) * u64::from(self.block_bytes);
        object_bytes.saturating_sub(start).min(u64::from(self.block_bytes)) as u32
    }

    /// Returns the length of a page of a block of `block_len` bytes; 0 past its end.
    pub fn page_len(self, block_len: u32, page: PageIndex) -> u32 {
        block_len.saturating_sub(u32::from(page.0) * self.page_bytes).min(self.page_bytes)
    }

    /// Returns the pages that a range of a block touches.
    pub fn touched_pages(self, range: &Range<u32>) -> Range<u16> {
        (range.start / self.page_bytes) as u16..range.end.div_ceil(self.page_bytes) as u16
    }

    /// Returns the lengths, in order, of a block's range cut at page borders. In a landing cut like
    /// this, each page's bytes arrive, and are checked, as one contiguous piece.
    pub fn page_cuts(self, range: &Range<u32>) -> impl Iterator<Item = usize> {
        let (page_bytes, range) = (self.page_bytes, range.clone());
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let end = ((at / page_bytes + 1) * page_bytes).min(range.end);
            let length = end - at;
            at = end;
            Some(length as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_inside_one_block_is_one_span() {
        let spans: Vec<_> = BlockGeometry::DEFAULT.cut_spans(5..10).collect();
        assert_eq!(spans, [BlockSpan { block: BlockIndex(0), range: 5..10 }]);
    }

    #[test]
    fn an_empty_range_has_no_span() {
        assert_eq!(BlockGeometry::DEFAULT.cut_spans(7..7).count(), 0);
    }

    #[test]
    fn odd_sizes_are_refused() {
        assert_eq!(BlockGeometry::new(3 << 20, 256 << 10).unwrap().pages_per_block(), 12);
        assert_eq!(BlockGeometry::new(17 << 20, 256 << 10), Err(GeometryError::Block(17 << 20)));
        assert_eq!(BlockGeometry::new(4 << 20, 100_000), Err(GeometryError::Page(100_000)));
    }

    proptest! {
        #[test]
        fn spans_tile_the_range(start in 0u64..1 << 34, length in 0u64..100 << 20) {
            let geometry = BlockGeometry::DEFAULT;
            let mut at = start;
            for span in geometry.cut_spans(start..start + length) {
                let base = u64::from(span.block.0) * u64::from(geometry.block_bytes);
                prop_assert_eq!(base + u64::from(span.range.start), at);
                prop_assert!(span.range.start < span.range.end && span.range.end <= geometry.block_bytes);
                at = base + u64::from(span.range.end);
            }
            prop_assert_eq!(at, start + length);
        }

        #[test]
        fn cuts_tile_the_span_at_page_borders(start in 0u32..4 << 20, length in 1u32..4 << 20) {
            let geometry = BlockGeometry::DEFAULT;
            let range = start..(start + length).min(geometry.block_bytes);
            let mut at = range.start;
            for cut in geometry.page_cuts(&range) {
                at += cut as u32;
                prop_assert!(at == range.end || at % geometry.page_bytes == 0);
            }
            prop_assert_eq!(at, range.end);
            prop_assert_eq!(geometry.page_cuts(&range).count(), geometry.touched_pages(&range).len());
        }

        #[test]
        fn pages_of_a_block_add_up(object in 0u64..1 << 33, block in 0u32..2048) {
            let geometry = BlockGeometry::DEFAULT;
            let block_len = geometry.block_len(object, BlockIndex(block));
            let sum: u32 = (0..geometry.pages_per_block()).map(|page| geometry.page_len(block_len, PageIndex(page))).sum();
            prop_assert_eq!(sum, block_len);
        }
    }
}

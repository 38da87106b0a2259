//! What is filled at once: a page, or a part of one. Each has a key, a cell and a checksum of its
//! own, so a page of which some parts are here is never taken for a page.

use std::ops::Range;

use crate::digest::PageKey;

/// Whether a unit is a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillUnitKind {
    Page,
    Part,
}

/// A page of a block, or a part of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FillUnit {
    pub(crate) kind: FillUnitKind,
    pub(crate) key: PageKey,
    /// First byte within the block.
    pub(crate) start: u32,
    pub(crate) bytes: u32,
}

impl FillUnit {
    pub(crate) fn byte_range(&self) -> Range<u32> {
        self.start..self.start + self.bytes
    }
}

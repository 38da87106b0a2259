//! What is filled at once: a page, or a part of one. Each has a key, a cell and a checksum of its
//! own, so a page of which some parts are here is never taken for a page.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, checksum_combine};

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

/// Returns the checksum of a page from those of its parts, which are given in order with their
/// lengths. No byte is read again: what has changed in memory since the fill shows at the reader.
pub(super) fn combine_checksums(parts: impl IntoIterator<Item = (u64, u32)>) -> u64 {
    // The CRC of no bytes is 0, and leaves what it is combined with as it is.
    parts.into_iter().fold(0, |whole, (checksum, bytes)| {
        checksum_combine(CrcAlgorithm::Crc64Nvme, whole, checksum, bytes.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc_fast::checksum;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_have_the_checksum_of_their_page(page in prop::collection::vec(any::<u8>(), 0..40_000), part in 1usize..9000) {
            let of_part = |bytes: &[u8]| (checksum(CrcAlgorithm::Crc64Nvme, bytes), bytes.len() as u32);
            let combined = combine_checksums(page.chunks(part).map(of_part));
            prop_assert_eq!(combined, checksum(CrcAlgorithm::Crc64Nvme, &page));
        }
    }

    #[test]
    fn parts_in_another_order_have_another_checksum() {
        let parts = [b"first", b"other"].map(|part| (checksum(CrcAlgorithm::Crc64Nvme, part), 5));
        assert_ne!(combine_checksums(parts), combine_checksums([parts[1], parts[0]]));
    }
}

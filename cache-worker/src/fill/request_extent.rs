//! Decides how far one request to the UFS goes over the borders of blocks. Pure.

use std::ops::Range;

use verbs3_protocol::{BLOCKS_TOGETHER, BlockGeometry, BlockIndex};

use crate::settings::WorkerFillSettings;

/// The bounds on the length of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestExtent {
    geometry: BlockGeometry,
    /// Length of the requests that a long read is cut into; 0: each ends with its block.
    piece_bytes: u64,
    /// Length of the longest read that is one request.
    whole_bytes_max: u64,
}

impl RequestExtent {
    pub(crate) fn new(geometry: BlockGeometry, fill: &WorkerFillSettings) -> Self {
        let block_bytes = u64::from(geometry.block_bytes);
        let piece_blocks = fill.request_max.0 / block_bytes;
        // An operator who wants requests shorter than a block gets no longer ones.
        let whole_bytes_max =
            if piece_blocks == 0 { block_bytes } else { fill.whole_request_max.0.max(block_bytes) };
        Self { geometry, piece_bytes: piece_blocks * block_bytes, whole_bytes_max }
    }

    pub(crate) fn geometry(&self) -> BlockGeometry {
        self.geometry
    }

    /// Returns the length of the longest object that is one request: whole pages.
    pub(crate) fn object_bytes_max(&self) -> u64 {
        let page_bytes = u64::from(self.geometry.page_bytes);
        self.whole_bytes_max.min(self.find_group_end(BlockIndex(0))) / page_bytes * page_bytes
    }

    /// Returns the end, in bytes of the object, of the blocks that are owned together with this one.
    pub(crate) fn find_group_end(&self, block: BlockIndex) -> u64 {
        let blocks = (u64::from(block.block_group()) + 1) * u64::from(BLOCKS_TOGETHER);
        blocks * u64::from(self.geometry.block_bytes)
    }

    /// Returns the end, in bytes of the object, of a request that begins in `block` and serves a
    /// read of `wanted`. A short read is one request as far as its blocks lie with this worker. A
    /// long one is cut at fixed places, so that readers of its parts send the same requests, and
    /// several are under way at once.
    pub(crate) fn find_end(&self, block: BlockIndex, wanted: &Range<u64>) -> u64 {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let start = u64::from(block.0) * block_bytes;
        let group_end = self.find_group_end(block);
        let is_short = wanted.end.saturating_sub(wanted.start) <= self.whole_bytes_max;
        let piece_end = match self.piece_bytes {
            0 => start + block_bytes,
            _ if is_short => group_end,
            piece_bytes => (start / piece_bytes + 1) * piece_bytes,
        };
        wanted.end.min(group_end).min(piece_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs3_settings::ByteSize;

    const MIB: u64 = 1 << 20;

    fn extent(request_max: u64, whole_request_max: u64) -> RequestExtent {
        let fill = WorkerFillSettings {
            request_max: ByteSize::from_mib(request_max),
            whole_request_max: ByteSize::from_mib(whole_request_max),
            ..WorkerFillSettings::default()
        };
        RequestExtent::new(BlockGeometry::DEFAULT, &fill)
    }

    #[test]
    fn a_short_read_goes_on_to_its_end_or_to_that_of_its_group() {
        let extent = extent(8, 64);
        assert_eq!(extent.find_end(BlockIndex(1), &(0..18 * MIB)), 18 * MIB);
        assert_eq!(extent.find_end(BlockIndex(0), &(0..64 * MIB)), 64 * MIB);
        assert_eq!(extent.find_end(BlockIndex(15), &(60 * MIB..70 * MIB)), 64 * MIB);
        assert_eq!(extent.find_end(BlockIndex(16), &(60 * MIB..70 * MIB)), 70 * MIB);
        assert_eq!(extent.find_end(BlockIndex(0), &(5..10)), 10);
    }

    #[test]
    fn a_long_read_is_cut_at_the_same_places_wherever_it_begins() {
        let extent = extent(8, 64);
        for start in [0, 4, 9] {
            let wanted = start * MIB..1024 * MIB;
            assert_eq!(extent.find_end(BlockIndex(2), &wanted), 16 * MIB);
            assert_eq!(extent.find_end(BlockIndex(3), &wanted), 16 * MIB);
            assert_eq!(extent.find_end(BlockIndex(4), &wanted), 24 * MIB);
        }
        assert_eq!(extent.find_end(BlockIndex(255), &(0..1022 * MIB)), 1022 * MIB);
        assert_eq!(extent.find_end(BlockIndex(0), &(0..u64::MAX)), 8 * MIB);
    }

    #[test]
    fn no_request_leaves_its_group() {
        let extent = extent(16, 256);
        assert_eq!(extent.find_end(BlockIndex(15), &(0..200 * MIB)), 64 * MIB);
        assert_eq!(extent.find_end(BlockIndex(u32::MAX), &(0..u64::MAX)), (4 * MIB) << 32);
        assert_eq!(extent.object_bytes_max(), 64 * MIB);
        let odd = WorkerFillSettings {
            whole_request_max: ByteSize(50_000_000),
            ..WorkerFillSettings::default()
        };
        let odd = RequestExtent::new(BlockGeometry::DEFAULT, &odd).object_bytes_max();
        assert_eq!((odd % (256 << 10), 50_000_000 - odd < 256 << 10), (0, true));
    }

    #[test]
    fn requests_below_a_block_never_go_over_a_border() {
        for request_max in [1, 3] {
            let extent = extent(request_max, 64);
            assert_eq!(extent.find_end(BlockIndex(1), &(0..18 * MIB)), 8 * MIB);
            assert_eq!(extent.object_bytes_max(), 4 * MIB);
        }
        assert_eq!(extent(4, 64).object_bytes_max(), 64 * MIB);
        assert_eq!(extent(4, 1).find_end(BlockIndex(1), &(0..18 * MIB)), 8 * MIB);
    }
}

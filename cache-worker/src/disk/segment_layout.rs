//! The layout of a segment file. Pure arithmetic; every number that comes from a disk is checked
//! here.
//!
//! A segment is one file of fixed size that belongs to one width of slots at a time. It holds a
//! head of 4 KiB, the table of all slots' headers, then the slots. The table lies apart from the
//! pages, so startup reads a few large runs and none of the pages.

use super::disk_headers::HEADER_BYTES;

/// Alignment of slots, tables and heads: the sector of 4Kn drives, and the page of most file
/// systems.
pub(super) const ALIGN: u64 = 4096;

/// Bytes of a segment's own head.
pub(super) const HEAD_BYTES: u64 = ALIGN;

/// Smallest and largest segment. The smallest holds some slots of the widest page (1 MiB). With the
/// largest, a large tier is some hundred files.
pub(super) const SEGMENT_BYTES_MIN: u64 = 4 << 20;
const SEGMENT_BYTES_MAX: u64 = 16 << 30;

/// Approximate number of segments in a folder. Each width of slots has at least one, and releases
/// them one by one.
const SEGMENTS_PER_FOLDER: u64 = 64;

/// Widest slot: the largest page that a cluster can be configured with.
pub(super) const WIDTH_MAX: u32 = 1 << 20;

/// The layout of a width's slots in a segment of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentLayout {
    pub(super) width: u32,
    pub(super) slots: u32,
    /// Where the first slot begins.
    data_at: u64,
}

impl SegmentLayout {
    /// Lays out as many slots as fit. Returns `None` if none fits, or if `width` is not a valid
    /// slot width.
    pub(super) fn new(segment_bytes: u64, width: u32) -> Option<Self> {
        if width == 0 || width > WIDTH_MAX || width != width_for(width) {
            return None;
        }
        // The table is rounded up to the alignment, so one unit is reserved for that.
        let room = segment_bytes.checked_sub(HEAD_BYTES + ALIGN)?;
        let slots = u32::try_from(room / (u64::from(width) + HEADER_BYTES as u64))
            .ok()
            .filter(|&slots| slots > 0)?;
        let table = (u64::from(slots) * HEADER_BYTES as u64).next_multiple_of(ALIGN);
        Some(Self { width, slots, data_at: HEAD_BYTES + table })
    }

    pub(super) fn header_at(&self, slot: u32) -> u64 {
        HEAD_BYTES + u64::from(slot) * HEADER_BYTES as u64
    }

    pub(super) fn data_at(&self, slot: u32) -> u64 {
        self.data_at + u64::from(slot) * u64::from(self.width)
    }
}

/// Returns the slot width for a page of `bytes`: four widths for each doubling above 16 KiB,
/// multiples of 4 KiB below.
pub(super) fn width_for(bytes: u32) -> u32 {
    let bytes = bytes.max(1).next_multiple_of(ALIGN as u32);
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(ALIGN as u32))
}

/// Returns the size of new segments in a folder of this capacity.
pub(super) fn segment_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / SEGMENTS_PER_FOLDER)
        .next_power_of_two()
        .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_width_wastes_at_most_a_fifth_above_16_kib() {
        for bytes in (1..WIDTH_MAX).step_by(777) {
            let width = width_for(bytes);
            assert!(
                width >= bytes && width.is_multiple_of(4096) && width_for(width) == width,
                "{bytes} {width}"
            );
            assert!(
                width <= 16 << 10 || u64::from(width - bytes) * 5 <= u64::from(width) + 5 * 4096,
                "{bytes} {width}"
            );
        }
        assert_eq!(
            (width_for(WIDTH_MAX), width_for(256 << 10), width_for(0)),
            (WIDTH_MAX, 256 << 10, 4096)
        );
    }

    proptest! {
        #[test]
        fn slots_and_headers_lie_inside_the_segment_and_apart(mebibytes in 4u64..4096, bytes in 1u32..=WIDTH_MAX) {
            let segment = mebibytes << 20;
            let layout = SegmentLayout::new(segment, width_for(bytes)).unwrap();
            let last = layout.slots - 1;
            prop_assert!(layout.header_at(last) + HEADER_BYTES as u64 <= layout.data_at(0));
            prop_assert!(layout.data_at(last) + u64::from(layout.width) <= segment);
            prop_assert!(layout.data_at(0).is_multiple_of(ALIGN));
        }

        #[test]
        fn numbers_from_a_disk_make_a_sound_layout_or_none(segment in any::<u64>(), width in any::<u32>()) {
            if let Some(layout) = SegmentLayout::new(segment, width) {
                prop_assert!(layout.data_at(layout.slots - 1) + u64::from(width) <= segment);
            }
        }
    }
}

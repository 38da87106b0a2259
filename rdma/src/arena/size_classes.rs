//! Owns the widths of cells: the rule "eight widths for each doubling", and the size of an extent.
//! Knows no memory and no loan.

/// Smallest width in bytes: the page of the CPU, and of most NICs' translation tables.
pub(super) const CELL_BYTES_MIN: usize = 4 << 10;

/// Unit of extents in bytes: the huge page of x86-64 and aarch64 (with 4 KiB pages).
pub(super) const EXTENT_STEP_BYTES: usize = 2 << 20;

/// Least cells of the widest class in an extent. Fewer would waste a large tail of it.
const CELLS_PER_EXTENT_MIN: usize = 8;

/// Widths per doubling: the next width is at most 1/8 above, so a cell wastes at most 12.5 %.
const STEPS_PER_DOUBLING: usize = 8;

/// The table of widths, ascending.
#[derive(Debug)]
pub(super) struct SizeClasses {
    widths: Vec<usize>,
    extent_bytes: usize,
}

impl SizeClasses {
    /// Makes widths from 4 KiB to `cell_bytes_max`, which is a width itself.
    pub(super) fn new(cell_bytes_max: usize) -> Self {
        let max = cell_bytes_max.max(CELL_BYTES_MIN);
        let mut widths = Vec::new();
        let mut doubling = CELL_BYTES_MIN;
        'all: loop {
            for step in 0..STEPS_PER_DOUBLING {
                let width = doubling + doubling / STEPS_PER_DOUBLING * step;
                if width >= max {
                    break 'all;
                }
                widths.push(width);
            }
            doubling *= 2;
        }
        widths.push(max);
        let extent_bytes = (max * CELLS_PER_EXTENT_MIN).next_multiple_of(EXTENT_STEP_BYTES);
        Self { widths, extent_bytes }
    }

    pub(super) fn extent_bytes(&self) -> usize {
        self.extent_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.widths.len()
    }

    /// Returns the narrowest class that holds `bytes`; `None` above the widest.
    pub(super) fn class_of(&self, bytes: usize) -> Option<u16> {
        let class = self.widths.partition_point(|&width| width < bytes);
        (class < self.widths.len()).then_some(class as u16)
    }

    pub(super) fn class_width(&self, class: u16) -> usize {
        self.widths[usize::from(class)]
    }

    pub(super) fn width_max(&self) -> usize {
        self.widths[self.widths.len() - 1]
    }

    pub(super) fn cells_per_extent(&self, class: u16) -> usize {
        self.extent_bytes / self.class_width(class)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn widths_grow_by_an_eighth_at_most() {
        let classes = SizeClasses::new(256 << 10);
        assert_eq!(classes.len(), 49);
        assert_eq!(classes.extent_bytes(), 2 << 20);
        for pair in classes.widths.windows(2) {
            assert!((pair[1] - pair[0]) * 8 <= pair[0], "{pair:?}");
        }
        assert_eq!(classes.width_max(), 256 << 10);
    }

    #[test]
    fn every_size_finds_the_narrowest_width_that_holds_it() {
        let classes = SizeClasses::new(256 << 10);
        for bytes in (0..=256 << 10).step_by(97) {
            let class = classes.class_of(bytes).unwrap();
            assert!(classes.class_width(class) >= bytes);
            assert!(class == 0 || classes.class_width(class - 1) < bytes);
        }
        assert_eq!(classes.class_of((256 << 10) + 1), None);
    }

    #[test]
    fn a_wide_cell_makes_a_wider_extent() {
        let classes = SizeClasses::new(1 << 20);
        assert_eq!(classes.extent_bytes(), 8 << 20);
        let odd = SizeClasses::new(300_000);
        assert_eq!(odd.width_max(), 300_000);
        assert_eq!(odd.extent_bytes() % EXTENT_STEP_BYTES, 0);
    }
}

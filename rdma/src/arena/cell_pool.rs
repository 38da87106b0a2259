//! Owns the bookkeeping of an arena: which cells are loaned, and which class owns which extent.
//!
//! It computes offsets, touches no memory, and its owner holds a lock around it. An extent belongs
//! to one class while one of its cells is loaned. It goes back to all classes when the last one is
//! returned.

use super::size_classes::{CELL_BYTES_MIN, SizeClasses};
use super::{ArenaUsage, ExtentId};

/// An extent that no class owns.
const UNASSIGNED: u16 = u16::MAX;

#[derive(Clone)]
struct ArenaExtent {
    class: u16,
    loaned: u32,
    /// Index of the extent in its class's list, while it has free cells.
    partial_at: u32,
}

/// A loaned range, as offsets in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CellLocation {
    pub(super) offset: usize,
    pub(super) class: u16,
}

pub(super) struct ArenaCellPool {
    classes: SizeClasses,
    extents: Vec<ArenaExtent>,
    /// One bit for each cell that an extent may hold; set while the cell is free. Flat, `words` for
    /// each extent.
    free: Vec<u64>,
    words: usize,
    unassigned: Vec<u32>,
    /// For each class, its extents that have a free cell.
    partial: Vec<Vec<u32>>,
    loaned_bytes: u64,
    asked_bytes: u64,
}

impl ArenaCellPool {
    pub(super) fn new(classes: SizeClasses, extents: u32) -> Self {
        let words = (classes.extent_bytes() / CELL_BYTES_MIN).div_ceil(64);
        let blank = ArenaExtent { class: UNASSIGNED, loaned: 0, partial_at: 0 };
        Self {
            extents: vec![blank; extents as usize],
            free: vec![0; extents as usize * words],
            words,
            unassigned: (0..extents).rev().collect(),
            partial: vec![Vec::new(); classes.len()],
            loaned_bytes: 0,
            asked_bytes: 0,
            classes,
        }
    }

    pub(super) fn allocate_slot(&mut self, class: u16, asked: usize) -> Option<CellLocation> {
        let extent = match self.partial[usize::from(class)].last() {
            Some(&extent) => extent,
            None => self.assign_extent(class)?,
        };
        let first = extent as usize * self.words;
        let words = &mut self.free[first..first + self.words];
        let at = words.iter().position(|&word| word != 0)?;
        let bit = words[at].trailing_zeros();
        words[at] &= words[at] - 1;
        let cell = at * 64 + bit as usize;

        let width = self.classes.class_width(class);
        let state = &mut self.extents[extent as usize];
        state.loaned += 1;
        if state.loaned as usize == self.classes.cells_per_extent(class) {
            self.partial[usize::from(class)].pop();
        }
        self.loaned_bytes += width as u64;
        self.asked_bytes += asked as u64;
        Some(CellLocation {
            offset: extent as usize * self.classes.extent_bytes() + cell * width,
            class,
        })
    }

    pub(super) fn release_slot(&mut self, slot: CellLocation, asked: usize) {
        let extent_bytes = self.classes.extent_bytes();
        let extent = slot.offset / extent_bytes;
        let width = self.classes.class_width(slot.class);
        let cell = slot.offset % extent_bytes / width;
        let word = &mut self.free[extent * self.words + cell / 64];
        let bit = 1u64 << (cell % 64);
        debug_assert_eq!(*word & bit, 0, "cell released twice");
        *word |= bit;
        self.loaned_bytes -= width as u64;
        self.asked_bytes -= asked as u64;

        let was_full =
            self.extents[extent].loaned as usize == self.classes.cells_per_extent(slot.class);
        self.extents[extent].loaned -= 1;
        if was_full {
            let list = &mut self.partial[usize::from(slot.class)];
            self.extents[extent].partial_at = list.len() as u32;
            list.push(extent as u32);
        }
        if self.extents[extent].loaned == 0 {
            self.unassign_extent(extent as u32);
        }
    }

    /// Returns the assigned extent with the fewest loaned cells; among equals the one with the
    /// fewest loaned bytes.
    pub(super) fn sparsest_extent(&self) -> Option<ExtentId> {
        self.extents
            .iter()
            .enumerate()
            .filter(|(_, extent)| extent.class != UNASSIGNED)
            .min_by_key(|(_, extent)| (extent.loaned, extent.class))
            .map(|(id, _)| ExtentId(id as u32))
    }

    pub(super) fn pool_usage(&self) -> ArenaUsage {
        let extent_bytes = self.classes.extent_bytes() as u64;
        ArenaUsage {
            capacity_bytes: self.extents.len() as u64 * extent_bytes,
            loaned_bytes: self.loaned_bytes,
            asked_bytes: self.asked_bytes,
            unassigned_bytes: self.unassigned.len() as u64 * extent_bytes,
        }
    }

    fn assign_extent(&mut self, class: u16) -> Option<u32> {
        let extent = self.unassigned.pop()?;
        let cells = self.classes.cells_per_extent(class);
        let first = extent as usize * self.words;
        for (at, word) in self.free[first..first + self.words].iter_mut().enumerate() {
            let bits = cells.saturating_sub(at * 64).min(64);
            *word = if bits == 64 { u64::MAX } else { (1u64 << bits) - 1 };
        }
        let list = &mut self.partial[usize::from(class)];
        self.extents[extent as usize] =
            ArenaExtent { class, loaned: 0, partial_at: list.len() as u32 };
        list.push(extent);
        Some(extent)
    }

    fn unassign_extent(&mut self, extent: u32) {
        let state = &mut self.extents[extent as usize];
        let (class, at) = (usize::from(state.class), state.partial_at as usize);
        state.class = UNASSIGNED;
        let list = &mut self.partial[class];
        list.swap_remove(at);
        if let Some(&moved) = list.get(at) {
            self.extents[moved as usize].partial_at = at as u32;
        }
        self.unassigned.push(extent);
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;

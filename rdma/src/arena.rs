//! Memory that is mapped once at start and cut in size classes: where cached pages live and replies land.
//!
//! Owns the mapping, the classes and the rule that makes a cell safe to share while it is still being written: one
//! writer appends, and what lies below its watermark never changes again. Does not decide what to keep or to evict.

use bytes::Bytes;
use std::ops::Range;

/// Size and cut of an arena.
#[derive(Debug, Clone)]
pub struct ArenaOptions {
    /// Bytes to map. Rounded down to whole extents.
    pub capacity_bytes: usize,
    /// Largest cell, the page of a fill: 256 KiB unless configured otherwise.
    pub cell_bytes_max: usize,
    /// Touch every page at start, so that a lack of memory shows then and not under load.
    pub populate: bool,
}

/// Why no arena could be mapped.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    #[error(
        "arena of {capacity_bytes} bytes is smaller than one extent ({extent_bytes} bytes); raise memory.capacity"
    )]
    TooSmall {
        capacity_bytes: usize,
        extent_bytes: usize,
    },
    #[error(
        "can't map an arena of {capacity_bytes} bytes; lower memory.capacity or the container's memory request"
    )]
    Map {
        capacity_bytes: usize,
        #[source]
        source: std::io::Error,
    },
}

/// What an arena holds right now, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArenaUsage {
    pub capacity_bytes: u64,
    /// Bytes of all leased cells, as their classes are wide.
    pub leased_bytes: u64,
    /// Bytes that the lessees asked for; the difference is waste.
    pub asked_bytes: u64,
    /// Bytes in extents that no class owns.
    pub unassigned_bytes: u64,
}

/// A mapped arena. Clones share it.
#[derive(Clone)]
pub struct Arena {}

impl Arena {
    /// Maps the memory (a sealed memfd, so that another process of this host can map it read-only).
    pub fn map(options: ArenaOptions) -> Result<Self, ArenaError> {
        let _ = options;
        todo!()
    }
    /// A cell of at least `bytes` (≤ `cell_bytes_max`), or `None` when no memory of that class is free now.
    pub fn lease(&self, bytes: usize) -> Option<Cell> {
        let _ = bytes;
        todo!()
    }
    /// Width of the class that a lease of `bytes` would take.
    pub fn class_bytes(&self, bytes: usize) -> usize {
        let _ = bytes;
        todo!()
    }
    pub fn usage(&self) -> ArenaUsage {
        todo!()
    }
    /// Identifies the extent that a cell lies in, for evacuation; see [`Arena::sparsest_extent`].
    pub fn sparsest_extent(&self) -> Option<ExtentId> {
        todo!()
    }
}

/// A 2 MiB piece of the arena, owned by one size class at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentId(pub u32);

/// An exclusively owned range of the arena. Returned to it on drop.
pub struct Cell {}

impl Cell {
    /// Bytes asked for.
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Turns the cell into its one writer and the first of its readers.
    pub fn split(self) -> (CellWriter, CellReader) {
        todo!()
    }
}

/// Appends to a cell. Not `Clone`: one writer.
pub struct CellWriter {}

impl CellWriter {
    pub fn written(&self) -> usize {
        todo!()
    }
    /// The unwritten rest.
    pub fn spare(&mut self) -> &mut [u8] {
        todo!()
    }
    /// Publishes the first `bytes` of the spare range: readers may see them from now on, nobody may change them.
    pub fn advance(&mut self, bytes: usize) {
        let _ = bytes;
        todo!()
    }
}

/// Reads what has been written. Clones share the cell and keep it leased.
#[derive(Clone)]
pub struct CellReader {}

impl CellReader {
    pub fn written(&self) -> usize {
        todo!()
    }
    pub fn extent(&self) -> ExtentId {
        todo!()
    }
    /// A zero-copy view that pins the cell, or `None` while `range.end` has not been written.
    pub fn bytes(&self, range: Range<usize>) -> Option<Bytes> {
        let _ = range;
        todo!()
    }
    /// Whether anything but this reader holds the cell (a pinned page is not evicted usefully).
    pub fn is_shared(&self) -> bool {
        todo!()
    }
}

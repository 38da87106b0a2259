//! Owns memory that is mapped once at start and cut in size classes: cached pages live there, and
//! replies land there.
//!
//! Owns the mapping, the classes and the rule that makes a cell safe to share while it is being
//! written: one writer appends, and bytes below its watermark never change again. Does not decide
//! what to keep or to evict.

mod cell;
mod cell_pool;
mod mapping;
#[cfg(not(miri))]
mod node_placement;
mod size_classes;

use std::sync::Arc;

use parking_lot::Mutex;

pub use cell::{ArenaCell, CellReader, CellWriter};

use cell::ArenaLoan;
use cell_pool::ArenaCellPool;
use mapping::ArenaMapping;
use size_classes::SizeClasses;

/// Options for the size and cut of an arena.
#[derive(Debug, Clone)]
pub struct ArenaOptions {
    /// Bytes to map. Rounded down to whole extents.
    pub capacity_bytes: usize,
    /// Largest cell, the page of a fill: 256 KiB unless configured otherwise.
    pub cell_bytes_max: usize,
    /// Touches every page at start, so that a lack of memory shows then and not under load.
    pub populate: bool,
}

/// Reason why no arena could be mapped.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    #[error(
        "arena of {capacity_bytes} bytes is smaller than one extent ({extent_bytes} bytes); raise \
        gateway.memory.capacity or worker.memory.capacity, whichever it is"
    )]
    TooSmall { capacity_bytes: usize, extent_bytes: usize },
    #[error(
        "can't map an arena of {capacity_bytes} bytes; lower gateway.memory.capacity or \
        worker.memory.capacity, whichever it is, or raise the memory limit of the container"
    )]
    Map {
        capacity_bytes: usize,
        #[source]
        source: std::io::Error,
    },
}

/// Current usage of an arena, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArenaUsage {
    pub capacity_bytes: u64,
    /// Bytes of all loaned cells, at the width of their classes.
    pub loaned_bytes: u64,
    /// Bytes that the borrowers asked for; the difference is waste.
    pub asked_bytes: u64,
    /// Bytes in extents that no class owns.
    pub unassigned_bytes: u64,
}

/// A 2 MiB piece of the arena (more, where cells are wider than 256 KiB), owned by one size class
/// at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentId(pub u32);

/// A mapped arena. Clones share it.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<MappedArena>,
}

/// The shared arena, which every cell keeps alive.
struct MappedArena {
    mapping: ArenaMapping,
    classes: SizeClasses,
    /// One lock for all classes. It is held for some 30 ns, for each loan and each return.
    pool: Mutex<ArenaCellPool>,
}

impl MappedArena {
    fn extent_of(&self, offset: usize) -> ExtentId {
        ExtentId((offset / self.classes.extent_bytes()) as u32)
    }
}

impl Arena {
    /// Maps the memory (a sealed memfd, so that another process of this host can map it read-only).
    pub fn map_memory(options: ArenaOptions) -> Result<Self, ArenaError> {
        let capacity_bytes = options.capacity_bytes;
        let classes = SizeClasses::new(options.cell_bytes_max);
        let extent_bytes = classes.extent_bytes();
        let extents = u32::try_from(capacity_bytes / extent_bytes).unwrap_or(u32::MAX);
        if extents == 0 {
            return Err(ArenaError::TooSmall { capacity_bytes, extent_bytes });
        }
        let mapping = ArenaMapping::new(extents as usize * extent_bytes, options.populate)
            .map_err(|source| ArenaError::Map { capacity_bytes, source })?;
        let pool = ArenaCellPool::new(SizeClasses::new(options.cell_bytes_max), extents);
        Ok(Self { shared: Arc::new(MappedArena { mapping, classes, pool: Mutex::new(pool) }) })
    }

    /// Loans a cell of at least `bytes` (≤ `cell_bytes_max`). Returns `None` when no memory of that
    /// class is free now.
    pub fn allocate_cell(&self, bytes: usize) -> Option<ArenaCell> {
        let class = self.shared.classes.class_of(bytes)?;
        let slot = self.shared.pool.lock().allocate_slot(class, bytes)?;
        let loan = ArenaLoan::new(self.shared.clone(), slot, bytes);
        Some(ArenaCell { loan })
    }

    /// Returns the width of the class that a loan of `bytes` would take. Returns the widest, where
    /// no class holds as much.
    pub fn class_bytes(&self, bytes: usize) -> usize {
        let classes = &self.shared.classes;
        match classes.class_of(bytes) {
            Some(class) => classes.class_width(class),
            None => classes.width_max(),
        }
    }

    /// Returns the size of the largest cell that can be loaned.
    pub fn cell_bytes_max(&self) -> usize {
        self.shared.classes.width_max()
    }

    /// Returns the bytes that are mapped, loaned, asked for and unassigned now. Takes the arena's
    /// lock for a moment.
    pub fn arena_usage(&self) -> ArenaUsage {
        self.shared.pool.lock().pool_usage()
    }

    /// Returns the assigned extent with the fewest loaned cells. It is the cheapest one to empty,
    /// so that a loan of another class finds room. Looks at every extent under the arena's lock
    /// (about a millisecond for a terabyte), so call it rarely.
    pub fn sparsest_extent(&self) -> Option<ExtentId> {
        self.shared.pool.lock().sparsest_extent()
    }

    /// Returns whether all of `piece` lies in the arena.
    pub fn holds_piece(&self, piece: &[u8]) -> bool {
        self.offset_of(piece).is_some()
    }

    /// Returns the start of `piece` in the arena; `None` unless all of it lies there.
    pub(crate) fn offset_of(&self, piece: &[u8]) -> Option<u64> {
        let (base, bytes) = self.mapped_range();
        let offset = piece.as_ptr().addr().checked_sub(base.addr().get())?;
        (offset.checked_add(piece.len())? <= bytes).then_some(offset as u64)
    }

    /// Returns the mapped range, for the registration with a NIC.
    pub(crate) fn mapped_range(&self) -> (std::ptr::NonNull<u8>, usize) {
        (self.shared.mapping.base_address(), self.shared.mapping.mapped_bytes())
    }

    /// Returns the length of an extent. No cell lies across a border between two.
    pub(crate) fn extent_bytes(&self) -> usize {
        self.shared.classes.extent_bytes()
    }

    /// Returns the sealed memfd, for a process of this host to map read-only.
    #[cfg(not(miri))]
    pub(crate) fn memory_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.shared.mapping.memory_fd()
    }

    /// Makes the memory known as one that other processes may map and read. It stays so until the
    /// returned value is dropped, which keeps it mapped. Fails where no descriptor is left.
    #[cfg(not(miri))]
    pub fn offer_pages(&self) -> std::io::Result<Arc<crate::page_source::PageSource>> {
        let memory = Arc::new(self.memory_fd().try_clone_to_owned()?);
        let (base, bytes) = self.mapped_range();
        let range = base.addr().get()..base.addr().get() + bytes;
        Ok(crate::page_source::PageSource::offer_memory(memory, range, self.clone(), None))
    }
}

#[cfg(test)]
mod tests;

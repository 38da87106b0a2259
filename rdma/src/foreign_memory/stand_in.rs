//! Owns memory of this process that stands for another's, in tests.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ForeignMemory;

/// The byte that all of the memory holds at first.
pub const STAND_IN_BYTE: u8 = 0xA5;

/// Memory that tests lend, and look at as its owner would.
pub struct StandInMemory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory; who looks at it does so by copies.
unsafe impl Send for StandInMemory {}
// SAFETY: as for Send.
unsafe impl Sync for StandInMemory {}

impl StandInMemory {
    /// Allocates memory, and lends it.
    pub fn allocate(bytes: usize) -> (Arc<Self>, Arc<ForeignMemory>) {
        let allocated = Box::leak(vec![STAND_IN_BYTE; bytes].into_boxed_slice());
        let memory = Arc::new(Self { base: NonNull::from(allocated).cast(), bytes });
        // SAFETY: the memory lives as long as `memory`, and is reached by copies otherwise.
        let foreign = unsafe { ForeignMemory::new(memory.base, bytes, memory.clone()) };
        (memory, foreign)
    }

    /// Copies a range out, as its owner may at any time.
    ///
    /// # Panics
    /// When the range is not in the memory.
    pub fn copy_range(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?}");
        // SAFETY: the range lies in the memory.
        range.map(|at| unsafe { self.base.add(at).read_volatile() }).collect()
    }
}

impl Drop for StandInMemory {
    fn drop(&mut self) {
        let bytes = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.bytes);
        // SAFETY: it was a box of this length, and was leaked.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

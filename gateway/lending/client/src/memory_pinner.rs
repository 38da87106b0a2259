//! What a client of lent memory may ask of a device's driver: pages that it may copy from by itself.

use std::io;
use std::ptr::NonNull;

/// Pins memory for a device. Each connection's memory is pinned anew.
pub trait MemoryPinner: Send + Sync {
    /// Pins a mapping that stays in place until it is unpinned. A process that was forked from the
    /// one that made the pinner may get a pin that pins nothing.
    fn pin_memory(&self, address: NonNull<u8>, bytes: u64) -> io::Result<Box<dyn MemoryPin>>;
}

/// Memory that is pinned.
pub trait MemoryPin: Send + Sync {
    /// Unpins it. `false`: the device may still have it, so it stays mapped.
    fn unpin_memory(&mut self) -> bool;
}

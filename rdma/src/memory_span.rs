//! Owns ranges of memory that one hand fills and many then read, wherever the memory is: in the
//! arena, or in that of another process ([`crate::foreign_memory`]).
//!
//! A span can be cut in two, filled in any order, and frozen into `Bytes`. It never shows a byte that
//! was not written since it was made.

use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

/// Keeps memory from being used for anything else until it is dropped.
pub(crate) trait MemoryKeeper: Send + Sync + 'static {}

/// A range of memory that nobody else in this process can see. The parts of a cut span are disjoint,
/// so each is exclusive.
pub(crate) struct MemorySpan {
    keeper: Arc<dyn MemoryKeeper>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is mapped as long as the keeper lives, and this span alone leads to it.
unsafe impl Send for MemorySpan {}
// SAFETY: a shared span shows nothing but its address and length.
unsafe impl Sync for MemorySpan {}

impl MemorySpan {
    /// Takes the memory that `keeper` keeps.
    ///
    /// # Safety
    /// Until `keeper` is dropped, the `bytes` from `start` are mapped and initialised, and nobody else
    /// in this process makes a reference to them. Where another process can write to them, nothing
    /// may depend on what they are.
    pub(crate) unsafe fn new(
        keeper: Arc<dyn MemoryKeeper>,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Self {
        Self { keeper, start, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn start_address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Keeps all of the memory that the span was cut from, and grants nothing else.
    pub(crate) fn hold_memory(&self) -> MemoryHold {
        MemoryHold { _keeper: self.keeper.clone() }
    }

    /// Cuts the first `bytes` off and returns them.
    pub(crate) fn split_to(&mut self, bytes: usize) -> Self {
        assert!(bytes <= self.bytes, "cut of {bytes} in {}", self.bytes);
        let first = Self { keeper: self.keeper.clone(), start: self.start, bytes };
        // SAFETY: `bytes` is at most the span's length, as was just checked.
        self.start = unsafe { self.start.add(bytes) };
        self.bytes -= bytes;
        first
    }

    /// Returns the range to the transport that fills it, and to nobody else. No one vouches for its
    /// content.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: spans are made from exclusively owned memory and only ever cut in disjoint parts,
        // so this one is the only way to its range; the memory is mapped and initialised, and
        // `&mut self` lasts as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Makes the range readable for ever. The caller has filled all of it, and its peer has vouched
    /// for it.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(FrozenSpan(self))
    }
}

/// A hold that keeps memory after its spans are gone: a peer that was lent it may still write to it.
pub(crate) struct MemoryHold {
    _keeper: Arc<dyn MemoryKeeper>,
}

struct FrozenSpan(MemorySpan);

impl AsRef<[u8]> for FrozenSpan {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as in `MemorySpan::as_mut`, and the span was consumed: no transport of this process
        // can write to the range any more.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.bytes) }
    }
}

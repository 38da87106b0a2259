//! Memory that a requester lends for one reply.
//!
//! Owns the cut of a landing in segments and who may see which bytes of it. Does not move bytes.

use crate::arena::Arena;

/// What kind of memory a segment lies in. Device memory (dmabuf) and a client's own memory join later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    Host,
}

/// The rail (NIC port) that a segment is to be filled over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RailId(pub u16);

/// Lent memory: consecutive segments, addressed by one offset from 0 to `bytes()`.
pub struct Landing {}

impl Landing {
    /// Leases one segment for each of `segment_bytes` (each ≤ the arena's largest cell); all or nothing.
    pub fn lease(arena: &Arena, segment_bytes: &[usize]) -> Option<Self> {
        let _ = (arena, segment_bytes);
        todo!()
    }
    pub fn bytes(&self) -> u64 {
        todo!()
    }
}

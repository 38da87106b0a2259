//! The entries of a shard, addressed by stable 32-bit numbers.
//!
//! Grows by chunks: a vector that doubles would hold twice the memory, and copy it, when it is
//! largest.

use verbs3_rdma::arena::CellReader;

use crate::tenants::TenantAccount;

/// The number that stands for no entry.
pub(super) const NONE: u32 = u32::MAX;

/// Entries per allocation: 32 KiB.
const CHUNK: usize = 512;

/// The list that an entry is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictionQueue {
    Small,
    Main,
}

/// What the disk has of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskStanding {
    Unsaved,
    /// On disk too, or on its way there.
    Saved,
    /// The entry is a part of a page: the disk takes whole pages alone.
    Part,
}

/// A page that is held, or a part of one. 64 bytes.
pub(super) struct MemoryPageEntry {
    /// Two halves, because a `u128` would align the entry to 16 bytes.
    pub(super) key: [u64; 2],
    /// `None` while the entry is free.
    pub(super) cell: Option<CellReader>,
    pub(super) checksum: u64,
    pub(super) bytes: u32,
    /// When it was last used, in seconds of the worker's clock.
    pub(super) used_s: u32,
    pub(super) newer: u32,
    pub(super) older: u32,
    pub(super) extent_next: u32,
    pub(super) extent_previous: u32,
    /// When it was put into its list, by the shard's own count: lists of several accounts have one
    /// order.
    pub(super) queued_at: u32,
    pub(super) queue: EvictionQueue,
    /// For whom it counts.
    pub(super) account: TenantAccount,
    /// Uses since it was inserted or last passed over, up to 3.
    pub(super) uses: u8,
    pub(super) standing: DiskStanding,
}

pub(super) fn split_key(key: u128) -> [u64; 2] {
    [key as u64, (key >> 64) as u64]
}

#[derive(Default)]
pub(super) struct PageEntrySlab {
    chunks: Vec<Vec<MemoryPageEntry>>,
    free: Vec<u32>,
}

impl PageEntrySlab {
    pub(super) fn insert(&mut self, entry: MemoryPageEntry) -> u32 {
        if let Some(slot) = self.free.pop() {
            *self.get_mut(slot) = entry;
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        self.chunks[chunk].push(entry);
        (chunk * CHUNK + self.chunks[chunk].len() - 1) as u32
    }

    /// Frees the entry and returns its cell.
    pub(super) fn remove(&mut self, slot: u32) -> Option<CellReader> {
        self.free.push(slot);
        self.get_mut(slot).cell.take()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut MemoryPageEntry {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    pub(super) fn get(&self, slot: u32) -> &MemoryPageEntry {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    /// Returns the largest number in use plus one.
    pub(super) fn end_index(&self) -> u32 {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len()) as u32
    }

    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<MemoryPageEntry>() + self.free.capacity() * 4
    }
}

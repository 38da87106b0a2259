//! A hash table from hashes to slots, in small parts, so that growing one never holds the lock for
//! long.

use hashbrown::HashTable;

/// A slot of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskSlot {
    pub(super) segment: u32,
    pub(super) slot: u32,
}

/// Parts. With a million entries one has some 16,000, and is rebuilt in about a millisecond.
const PARTS: usize = 64;

pub(super) struct DiskSlotTable {
    parts: Vec<HashTable<DiskSlot>>,
}

impl Default for DiskSlotTable {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| HashTable::new()).collect() }
    }
}

impl DiskSlotTable {
    pub(super) fn insert(&mut self, hash: u64, place: DiskSlot, rehash: impl Fn(DiskSlot) -> u64) {
        self.parts[part_index(hash)].insert_unique(hash, place, |&place| rehash(place));
    }

    pub(super) fn find_slot(&self, hash: u64, is: impl Fn(DiskSlot) -> bool) -> Option<DiskSlot> {
        self.parts[part_index(hash)].find(hash, |&place| is(place)).copied()
    }

    pub(super) fn remove(&mut self, hash: u64, place: DiskSlot) {
        if let Ok(found) = self.parts[part_index(hash)].find_entry(hash, |&other| other == place) {
            found.remove();
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.parts.iter().map(HashTable::allocation_size).sum()
    }
}

/// Chooses a part by bits that the inner table does not use: that one uses the lowest and the seven
/// highest.
fn part_index(hash: u64) -> usize {
    (hash >> 40) as usize % PARTS
}

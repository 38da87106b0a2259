//! From hashes to slots: a hash table in small parts, so that growing one never holds the lock for
//! long.

use hashbrown::HashTable;

/// A slot of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) slot: u32,
}

/// Parts. With a million entries one has some 16,000, and is made anew in about a millisecond.
const PARTS: usize = 64;

pub(super) struct Table {
    parts: Vec<HashTable<Place>>,
}

impl Default for Table {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| HashTable::new()).collect() }
    }
}

impl Table {
    pub(super) fn insert(&mut self, hash: u64, place: Place, rehash: impl Fn(Place) -> u64) {
        self.parts[part(hash)].insert_unique(hash, place, |&place| rehash(place));
    }

    pub(super) fn find(&self, hash: u64, is: impl Fn(Place) -> bool) -> Option<Place> {
        self.parts[part(hash)].find(hash, |&place| is(place)).copied()
    }

    pub(super) fn remove(&mut self, hash: u64, place: Place) {
        if let Ok(found) = self.parts[part(hash)].find_entry(hash, |&other| other == place) {
            found.remove();
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.parts.iter().map(HashTable::allocation_size).sum()
    }
}

/// Bits that the table inside does not use: it takes the lowest and the seven highest.
fn part(hash: u64) -> usize {
    (hash >> 40) as usize % PARTS
}

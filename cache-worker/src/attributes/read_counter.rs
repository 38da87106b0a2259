//! Counts recent opens per key, to tell which keys are worth a lease.
//!
//! The table has a fixed size. Keys that share a place evict each other. They then seem colder than
//! they are, never hotter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use verbs3_protocol::KeyHash;

use crate::clock::WorkerInstant;

/// Places in the table, which takes half a MiB. Only few keys are read often.
const PLACES: usize = 1 << 16;
/// How long reads count.
const WINDOW: Duration = Duration::from_secs(10);
/// Layout of a place's 64 bits: the count in the lowest 20, then 20 of the window's number, then a
/// part of the key's hash.
const COUNT_BITS: u32 = 20;
const WINDOW_BITS: u32 = 20;

pub(crate) struct KeyReadCounter {
    places: Box<[AtomicU64]>,
}

impl KeyReadCounter {
    pub(crate) fn new() -> Self {
        Self { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds these reads of the key, and returns the count in this window. A race between two
    /// counters may lose some.
    pub(crate) fn count_reads(&self, hash: KeyHash, reads: u32, now: WorkerInstant) -> u32 {
        let place = &self.places[hash.0 as usize % PLACES];
        let window = now.duration_since(WorkerInstant::default()).as_secs() / WINDOW.as_secs();
        let whose = (hash.0 >> (COUNT_BITS + WINDOW_BITS) << WINDOW_BITS)
            | (window & ((1 << WINDOW_BITS) - 1));
        let known = place.load(Ordering::Relaxed);
        let count_max = (1 << COUNT_BITS) - 1;
        let before = if known >> COUNT_BITS == whose { known & count_max } else { 0 };
        let count = (before + u64::from(reads)).min(count_max);
        place.store(whose << COUNT_BITS | count, Ordering::Relaxed);
        count as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> WorkerInstant {
        WorkerInstant::default().saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn reads_count_for_their_own_key_and_window_alone() {
        let reads = KeyReadCounter::new();
        let (key, other) = (KeyHash(u64::MAX - 5), KeyHash(3));
        assert_eq!([1, 1, 5].map(|more| reads.count_reads(key, more, at(3))), [1, 2, 7]);
        assert_eq!(reads.count_reads(other, 1, at(3)), 1);
        assert_eq!(reads.count_reads(key, 1, at(9)), 8);
        assert_eq!(reads.count_reads(key, 1, at(10)), 1, "another window");
        let same_place = KeyHash(key.0 ^ (1 << 63));
        assert_eq!(
            (reads.count_reads(same_place, 1, at(10)), reads.count_reads(key, 1, at(10))),
            (1, 1)
        );
        assert_eq!(
            [u32::MAX, u32::MAX].map(|more| reads.count_reads(other, more, at(10))),
            [(1 << COUNT_BITS) - 1; 2]
        );
    }
}

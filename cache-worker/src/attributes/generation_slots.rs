//! Owns the generations of keys: counters in slots that keys share by hash, and when each was raised
//! last. Does not know why one is raised, and recalls no leases.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use verbs3_protocol::{KeyGeneration, KeyHash};

use super::doubt_tracker::DoubtBucket;
use crate::clock::WorkerInstant;

/// The time since a generation was raised is measured in steps of 2^26 ns, some 67 ms.
const STEP_BITS: u32 = 26;

pub(super) struct GenerationSlots {
    generations: Box<[AtomicU64]>,
    /// When each generation was last raised, in steps counted from 1; 0: never.
    raised: Box<[AtomicU32]>,
}

impl GenerationSlots {
    /// Makes so many slots, one at least.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            generations: (0..slots.max(1)).map(|_| AtomicU64::new(0)).collect(),
            raised: (0..slots.max(1)).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(super) fn current_generation(&self, hash: KeyHash) -> KeyGeneration {
        KeyGeneration(self.generations[self.slot_index(hash)].load(Ordering::SeqCst))
    }

    /// Raises the generation of a key, and of all that share its slot. Returns the new one.
    pub(super) fn raise_key(&self, hash: KeyHash, now: WorkerInstant) -> KeyGeneration {
        self.raise_slot(self.slot_index(hash), now)
    }

    /// Raises the generations of all slots in these buckets.
    pub(super) fn raise_buckets(&self, buckets: &HashSet<DoubtBucket>, now: WorkerInstant) {
        for slot in 0..self.generations.len() {
            if buckets.contains(&DoubtBucket::of_slot(slot)) {
                self.raise_slot(slot, now);
            }
        }
    }

    /// Returns whether the key's slot was not raised during the last `quiet`.
    pub(super) fn is_quiet(&self, hash: KeyHash, quiet: Duration, now: WorkerInstant) -> bool {
        let raised = self.raised[self.slot_index(hash)].load(Ordering::Relaxed);
        raised == 0
            || u64::from(coarse_time(now).saturating_sub(raised)) << STEP_BITS
                >= quiet.as_nanos() as u64
    }

    /// Returns the bucket of the key's slot.
    pub(super) fn bucket(&self, hash: KeyHash) -> DoubtBucket {
        DoubtBucket::of_slot(self.slot_index(hash))
    }

    fn raise_slot(&self, slot: usize, now: WorkerInstant) -> KeyGeneration {
        let raised = self.generations[slot].fetch_add(1, Ordering::SeqCst) + 1;
        self.raised[slot].store(coarse_time(now), Ordering::Relaxed);
        KeyGeneration(raised)
    }

    fn slot_index(&self, hash: KeyHash) -> usize {
        // By the low bits. The high ones choose the lock of the key's open writes, so the keys of a
        // slot spread over the locks.
        (hash.0 % self.generations.len() as u64) as usize
    }
}

/// Returns the time in steps counted from 1. A `u32` holds nine years.
fn coarse_time(now: WorkerInstant) -> u32 {
    u32::try_from((now.as_nanos() >> STEP_BITS) + 1).unwrap_or(u32::MAX)
}

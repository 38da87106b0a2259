//! Keys with a lost write, after the time in which reads ask the UFS. A store may still complete
//! such a write. Answers about the key are trusted for a short time only, even where attributes are
//! otherwise trusted for ever. When the doubt expires, everything learnt during it is invalidated.
//!
//! Keys that do not fit in the table by name are in doubt by bucket, with the few others that share
//! it. A bucket is a set of generation slots, so its expiry invalidates no other keys.
//!
//! Doubts are not handed over with the map, and are lost with the process: a home that knows
//! nothing of a write can't doubt it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use verbs3_protocol::KeyHash;

use crate::clock::WorkerInstant;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DoubtOptions {
    /// How long after its uncertain time a write may still complete; zero: never.
    pub(crate) length: Duration,
    /// How long an answer is trusted meanwhile.
    pub(crate) age_max: Duration,
    /// Keys that are remembered. Beyond that, their buckets are in doubt.
    pub(crate) keys_max: usize,
}

/// Bounds the memory of an overflow: two MiB, if every bucket is in doubt. With the default
/// generation table, one bucket covers sixteen slots.
const BUCKETS: usize = 1 << 16;

/// A set of keys that are in doubt together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DoubtBucket(u16);

impl DoubtBucket {
    /// Returns the bucket of a generation slot.
    pub(super) fn of_slot(slot: usize) -> Self {
        Self((slot % BUCKETS) as u16)
    }
}

/// The keys and buckets in doubt, and until when.
#[derive(Default)]
struct DoubtTable {
    keys: HashMap<KeyHash, WorkerInstant>,
    /// The buckets of keys that did not fit in `keys`.
    buckets: HashMap<DoubtBucket, WorkerInstant>,
}

/// Expired doubts. What was learnt under them has to be invalidated before
/// [`DoubtTracker::forget_expired`].
pub(super) struct Over {
    pub(super) keys: Vec<KeyHash>,
    pub(super) buckets: HashSet<DoubtBucket>,
}

pub(super) struct DoubtTracker {
    options: DoubtOptions,
    table: Mutex<DoubtTable>,
    /// The number of doubts. It spares the lock while there are none.
    count: AtomicUsize,
}

impl DoubtTracker {
    pub(super) fn new(options: DoubtOptions) -> Self {
        Self { options, table: Mutex::default(), count: AtomicUsize::new(0) }
    }

    pub(super) fn record_doubt(&self, hash: KeyHash, bucket: DoubtBucket, now: WorkerInstant) {
        if self.options.length.is_zero() {
            return;
        }
        let until = now.saturating_add(self.options.length);
        let mut table = self.table.lock();
        if table.keys.len() >= self.options.keys_max && !table.keys.contains_key(&hash) {
            table.buckets.insert(bucket, until);
        } else {
            table.keys.insert(hash, until);
        }
        self.count_again(&table);
    }

    /// Returns how old an answer about the key may be; `None`: there is no doubt. The limit holds
    /// until the doubt is forgotten, however late.
    pub(super) fn age_max(&self, hash: KeyHash, bucket: DoubtBucket) -> Option<Duration> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let table = self.table.lock();
        (table.keys.contains_key(&hash) || table.buckets.contains_key(&bucket))
            .then_some(self.options.age_max)
    }

    pub(super) fn find_expired(&self, now: WorkerInstant) -> Option<Over> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let table = self.table.lock();
        let keys: Vec<KeyHash> =
            table.keys.iter().filter(|(_, until)| **until <= now).map(|(&hash, _)| hash).collect();
        let buckets: HashSet<DoubtBucket> = table
            .buckets
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(&bucket, _)| bucket)
            .collect();
        (!keys.is_empty() || !buckets.is_empty()).then_some(Over { keys, buckets })
    }

    /// Removes the doubts that expired by `now`.
    pub(super) fn forget_expired(&self, now: WorkerInstant) {
        let mut table = self.table.lock();
        table.keys.retain(|_, until| *until > now);
        table.buckets.retain(|_, until| *until > now);
        self.count_again(&table);
    }

    /// Returns the number of keys and buckets in doubt.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn count_again(&self, table: &DoubtTable) {
        self.count.store(table.keys.len() + table.buckets.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> WorkerInstant {
        WorkerInstant::default().saturating_add(Duration::from_secs(seconds))
    }

    fn doubts(keys_max: usize) -> DoubtTracker {
        DoubtTracker::new(DoubtOptions {
            length: Duration::from_secs(60),
            age_max: Duration::from_secs(5),
            keys_max,
        })
    }

    const AGE: Option<Duration> = Some(Duration::from_secs(5));

    fn note(doubts: &DoubtTracker, key: u64, seconds: u64) {
        doubts.record_doubt(KeyHash(key), DoubtBucket::of_slot(key as usize), at(seconds));
    }

    fn age_max(doubts: &DoubtTracker, key: u64) -> Option<Duration> {
        doubts.age_max(KeyHash(key), DoubtBucket::of_slot(key as usize))
    }

    #[test]
    fn a_doubt_lasts_until_it_is_forgotten() {
        let doubts = doubts(10);
        note(&doubts, 1, 0);
        assert_eq!((age_max(&doubts, 1), age_max(&doubts, 2)), (AGE, None));
        assert!(doubts.find_expired(at(59)).is_none());
        let over = doubts.find_expired(at(60)).expect("its time is over");
        assert!(over.keys == [KeyHash(1)] && over.buckets.is_empty());
        assert_eq!(age_max(&doubts, 1), AGE, "what was learnt under it is not void yet");
        doubts.forget_expired(at(60));
        assert_eq!((age_max(&doubts, 1), doubts.len()), (None, 0));
    }

    #[test]
    fn where_there_is_no_place_a_bucket_is_in_doubt() {
        let doubts = doubts(1);
        let shared = 2 + BUCKETS as u64;
        note(&doubts, 1, 0);
        note(&doubts, 1, 1);
        assert_eq!(age_max(&doubts, 3), None);
        note(&doubts, 2, 10);
        assert_eq!([2, shared, 3].map(|key| age_max(&doubts, key)), [AGE, AGE, None]);
        doubts.forget_expired(at(61));
        assert_eq!(age_max(&doubts, shared), AGE);
        let over = doubts.find_expired(at(70)).expect("its time is over");
        assert!(over.keys.is_empty() && over.buckets == HashSet::from([DoubtBucket::of_slot(2)]));
        doubts.forget_expired(at(70));
        assert_eq!((age_max(&doubts, shared), doubts.len()), (None, 0));
    }

    #[test]
    fn nothing_is_in_doubt_where_that_is_switched_off() {
        let doubts =
            DoubtTracker::new(DoubtOptions { length: Duration::ZERO, ..doubts(10).options });
        note(&doubts, 1, 0);
        assert_eq!(age_max(&doubts, 1), None);
    }
}

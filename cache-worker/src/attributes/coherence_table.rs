//! Generations and announced writes, which make late news harmless. Whatever raises a generation
//! also recalls the key's leases.
//!
//! A key's generation is raised by every announcement, report and invalidation. Attributes are
//! valid only under the generation at which their check was sent, and a key with an open write has
//! no valid attributes. Decides only: no I/O, no clock of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use verbs3_protocol::{KeyGeneration, KeyHash, WriteId, WriteOutcome};

use super::doubt_tracker::{DoubtBucket, DoubtOptions, DoubtTracker};
use super::lease_grants::LeaseGrantTable;
use crate::clock::WorkerInstant;

/// Locks of the open writes.
const SHARDS: usize = 64;

/// The time since a generation was raised is measured in steps of 2^26 ns, some 67 ms.
const STEP_BITS: u32 = 26;

/// The key has a write that is under way, or that was lost sight of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UncertainKeyError;

/// The bound on open writes is met, and nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyWrites;

#[derive(Clone, Copy)]
struct OpenWriteRecord {
    write: WriteId,
    end: WorkerInstant,
    /// How long the write stays open after its outcome was reported as unknown.
    uncertain: Duration,
}

type OpenWrites = Mutex<HashMap<KeyHash, Vec<OpenWriteRecord>>>;

/// The table of generations and open writes.
pub(crate) struct CoherenceTable {
    generations: Box<[AtomicU64]>,
    /// When each generation was last raised, in steps counted from 1; 0: never.
    raised: Box<[AtomicU32]>,
    grants: Arc<LeaseGrantTable>,
    doubts: DoubtTracker,
    shards: Box<[OpenWrites]>,
    /// Open writes, and slots reserved for writes that are being added.
    open: AtomicUsize,
    open_max: usize,
    expired: AtomicU64,
}

impl CoherenceTable {
    pub(crate) fn new(
        generation_slots: usize,
        open_writes_max: usize,
        doubts: DoubtOptions,
        grants: Arc<LeaseGrantTable>,
    ) -> Self {
        Self {
            generations: (0..generation_slots.max(1)).map(|_| AtomicU64::new(0)).collect(),
            raised: (0..generation_slots.max(1)).map(|_| AtomicU32::new(0)).collect(),
            grants,
            doubts: DoubtTracker::new(doubts),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            open: AtomicUsize::new(0),
            open_max: open_writes_max,
            expired: AtomicU64::new(0),
        }
    }

    /// Returns the generation under which attributes of this key may be answered or requested now.
    ///
    /// The generation is read first. An announcement between the two reads is then either seen as
    /// open, or already reported. In both cases an answer fetched under the older generation is
    /// never cached.
    pub(crate) fn admit_key(
        &self,
        hash: KeyHash,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, UncertainKeyError> {
        let generation = self.current_generation(hash);
        if self.is_open(hash, now) { Err(UncertainKeyError) } else { Ok(generation) }
    }

    /// Returns whether an answer that was fetched under `generation` may still be cached, and be
    /// given to reads that arrived since.
    pub(crate) fn is_generation_valid(
        &self,
        hash: KeyHash,
        generation: KeyGeneration,
        now: WorkerInstant,
    ) -> bool {
        self.admit_key(hash, now) == Ok(generation)
    }

    pub(crate) fn current_generation(&self, hash: KeyHash) -> KeyGeneration {
        KeyGeneration(self.generation_slot(hash).load(Ordering::SeqCst))
    }

    /// Opens a write of each key until `now + uncertain`, or renews it. Opens all or none.
    pub(crate) fn announce_write(
        &self,
        hashes: &[KeyHash],
        write: WriteId,
        uncertain: Duration,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, TooManyWrites> {
        self.open_all(
            hashes,
            OpenWriteRecord { write, end: now.saturating_add(uncertain), uncertain },
            now,
        )
    }

    /// Opens a write that was announced to another home, and that may be under way for another
    /// `remaining`. The handover does not say how long an unknown outcome stays uncertain.
    pub(crate) fn inherit_write(
        &self,
        hash: KeyHash,
        write: WriteId,
        remaining: Duration,
        uncertain_max: Duration,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, TooManyWrites> {
        let end = now.saturating_add(remaining.min(uncertain_max));
        self.open_all(&[hash], OpenWriteRecord { write, end, uncertain: uncertain_max }, now)
    }

    fn open_all(
        &self,
        hashes: &[KeyHash],
        new: OpenWriteRecord,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, TooManyWrites> {
        // A renewal needs no slot: it must not be refused because the table is full.
        let reserved = hashes.iter().filter(|&&hash| !self.has_open(hash, new.write, now)).count();
        self.reserve_writes(reserved, now)?;
        let taken = hashes.iter().filter(|&&hash| self.open_one(hash, new, now)).count();
        self.open.fetch_add(taken, Ordering::SeqCst);
        self.open.fetch_sub(reserved, Ordering::SeqCst);
        Ok(self.raise_generations(hashes, now))
    }

    /// Ends a write of each key. If the outcome is unknown, the keys stay uncertain for the
    /// announced time, counted from now. The write may still be under way, however long ago it was
    /// announced. If the write is not known here, the keys stay uncertain for `uncertain_max`.
    pub(crate) fn report_write(
        &self,
        hashes: &[KeyHash],
        write: WriteId,
        outcome: WriteOutcome,
        uncertain_max: Duration,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, TooManyWrites> {
        // This comes first. A report that is refused below, because the table is full, still
        // invalidates the cached attributes.
        self.raise_generations(hashes, now);
        match outcome {
            WriteOutcome::Done | WriteOutcome::Refused => {
                for &hash in hashes {
                    self.close_one(hash, write);
                }
            }
            WriteOutcome::Unknown => {
                let lost: Vec<KeyHash> = hashes
                    .iter()
                    .copied()
                    .filter(|&hash| !self.prolong_one(hash, write, now))
                    .collect();
                if !lost.is_empty() {
                    self.announce_write(&lost, write, uncertain_max, now)?;
                }
            }
        }
        Ok(self.raise_generations(hashes, now))
    }

    /// Invalidates the keys' cached attributes and the answers being fetched, and recalls the keys'
    /// leases. Returns the newest generation among the keys.
    pub(crate) fn raise_generations(
        &self,
        hashes: &[KeyHash],
        now: WorkerInstant,
    ) -> KeyGeneration {
        let mut newest = 0;
        for &hash in hashes {
            newest = newest.max(self.generation_slot(hash).fetch_add(1, Ordering::SeqCst) + 1);
            self.raised[self.slot_index(hash)].store(coarse_time(now), Ordering::Relaxed);
        }
        // This comes after the generations were raised: see `lease_grants`.
        self.grants.recall_leases(hashes);
        KeyGeneration(newest)
    }

    /// Returns whether neither this key nor a key with the same generation slot was invalidated
    /// during the last `quiet`.
    pub(crate) fn is_quiet(&self, hash: KeyHash, quiet: Duration, now: WorkerInstant) -> bool {
        let raised = self.raised[self.slot_index(hash)].load(Ordering::Relaxed);
        raised == 0
            || u64::from(coarse_time(now).saturating_sub(raised)) << STEP_BITS
                >= quiet.as_nanos() as u64
    }

    /// Returns how old an answer about the key may be, because of a write that was lost sight of.
    /// Call it after [`CoherenceTable::admit_key`].
    pub(crate) fn doubted_age(&self, hash: KeyHash) -> Option<Duration> {
        self.doubts.age_max(hash, self.bucket(hash))
    }

    /// Returns the number of keys whose write was lost sight of and may still complete. Keys that
    /// did not fit in the table count as their buckets.
    pub(crate) fn doubt_count(&self) -> usize {
        self.doubts.len()
    }

    /// Removes writes whose time is over, and expired doubts.
    pub(crate) fn sweep_expired(&self, now: WorkerInstant) {
        for shard in &self.shards {
            shard.lock().retain(|&hash, writes| {
                self.expire_writes(hash, writes, now);
                !writes.is_empty()
            });
        }
        let Some(over) = self.doubts.find_expired(now) else { return };
        self.raise_generations(&over.keys, now);
        if !over.buckets.is_empty() {
            self.raise_buckets(&over.buckets, now);
        }
        self.doubts.forget_expired(now);
    }

    fn raise_buckets(&self, buckets: &HashSet<DoubtBucket>, now: WorkerInstant) {
        let slots = self.generations.iter().zip(&self.raised).enumerate();
        for (_, (generation, raised)) in
            slots.filter(|(slot, _)| buckets.contains(&DoubtBucket::of_slot(*slot)))
        {
            generation.fetch_add(1, Ordering::SeqCst);
            raised.store(coarse_time(now), Ordering::Relaxed);
        }
        // This comes after the generations were raised: see `lease_grants`.
        self.grants.recall_where(|hash| buckets.contains(&self.bucket(hash)));
    }

    /// Returns the writes that are announced and not reported, with the time that each may still
    /// take. Returns `None` if there are more than `max`.
    pub(crate) fn open_list(
        &self,
        max: usize,
        now: WorkerInstant,
    ) -> Option<Vec<(KeyHash, WriteId, Duration)>> {
        let mut list = Vec::new();
        for shard in &self.shards {
            for (&hash, writes) in shard.lock().iter() {
                let open = writes.iter().filter(|open| open.end > now);
                list.extend(open.map(|open| (hash, open.write, open.end.duration_since(now))));
                if list.len() > max {
                    return None;
                }
            }
        }
        Some(list)
    }

    pub(crate) fn open_writes(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Returns the number of writes since the last call whose report never came.
    pub(crate) fn take_expired(&self) -> u64 {
        self.expired.swap(0, Ordering::Relaxed)
    }

    fn generation_slot(&self, hash: KeyHash) -> &AtomicU64 {
        // The high bits choose the shard below, so the keys of a slot spread over the locks.
        &self.generations[self.slot_index(hash)]
    }

    fn slot_index(&self, hash: KeyHash) -> usize {
        (hash.0 % self.generations.len() as u64) as usize
    }

    fn bucket(&self, hash: KeyHash) -> DoubtBucket {
        DoubtBucket::of_slot(self.slot_index(hash))
    }

    fn write_shard(&self, hash: KeyHash) -> &OpenWrites {
        &self.shards[(hash.0 >> 58) as usize % SHARDS]
    }

    fn is_open(&self, hash: KeyHash, now: WorkerInstant) -> bool {
        let mut shard = self.write_shard(hash).lock();
        let Some(writes) = shard.get_mut(&hash) else { return false };
        self.expire_writes(hash, writes, now);
        let open = !writes.is_empty();
        if !open {
            shard.remove(&hash);
        }
        open
    }

    fn has_open(&self, hash: KeyHash, write: WriteId, now: WorkerInstant) -> bool {
        let shard = self.write_shard(hash).lock();
        shard
            .get(&hash)
            .is_some_and(|writes| writes.iter().any(|open| open.write == write && open.end > now))
    }

    /// Returns true if the write is new. Returns false if it was open already; it then has a new
    /// end.
    fn open_one(&self, hash: KeyHash, new: OpenWriteRecord, now: WorkerInstant) -> bool {
        let mut shard = self.write_shard(hash).lock();
        let writes = shard.entry(hash).or_default();
        self.expire_writes(hash, writes, now);
        match writes.iter_mut().find(|open| open.write == new.write) {
            Some(open) => {
                (open.end, open.uncertain) =
                    (open.end.max(new.end), open.uncertain.max(new.uncertain));
                false
            }
            None => {
                writes.push(new);
                true
            }
        }
    }

    /// Restarts the time of an open write. Returns false if there is none.
    fn prolong_one(&self, hash: KeyHash, write: WriteId, now: WorkerInstant) -> bool {
        let mut shard = self.write_shard(hash).lock();
        let mut writes = shard.get_mut(&hash).into_iter().flatten();
        let Some(open) = writes.find(|open| open.write == write && open.end > now) else {
            return false;
        };
        open.end = open.end.max(now.saturating_add(open.uncertain));
        true
    }

    fn close_one(&self, hash: KeyHash, write: WriteId) {
        let mut shard = self.write_shard(hash).lock();
        let Some(writes) = shard.get_mut(&hash) else { return };
        let before = writes.len();
        writes.retain(|open| open.write != write);
        self.open.fetch_sub(before - writes.len(), Ordering::SeqCst);
        if writes.is_empty() {
            shard.remove(&hash);
        }
    }

    fn expire_writes(&self, hash: KeyHash, writes: &mut Vec<OpenWriteRecord>, now: WorkerInstant) {
        let before = writes.len();
        writes.retain(|open| open.end > now);
        let expired = before - writes.len();
        if expired > 0 {
            self.doubts.record_doubt(hash, self.bucket(hash), now);
            self.open.fetch_sub(expired, Ordering::SeqCst);
            self.expired.fetch_add(expired as u64, Ordering::Relaxed);
        }
    }

    fn reserve_writes(&self, places: usize, now: WorkerInstant) -> Result<(), TooManyWrites> {
        let take = || {
            self.open
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| {
                    open.checked_add(places).filter(|&sum| sum <= self.open_max)
                })
                .map(|_| ())
                .map_err(|_| TooManyWrites)
        };
        take().or_else(|TooManyWrites| {
            self.sweep_expired(now);
            take()
        })
    }
}

/// Returns the time in steps counted from 1. A `u32` holds nine years.
fn coarse_time(now: WorkerInstant) -> u32 {
    u32::try_from((now.as_nanos() >> STEP_BITS) + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;

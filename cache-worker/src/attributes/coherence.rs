//! Generations and announced writes: what makes late news harmless. Whatever raises a generation
//! also recalls the key's leases.
//!
//! A key's generation is raised by every announcement, report and invalidation. Attributes are
//! valid only under the generation at which their check was sent, and a key with an open write has
//! none. Decides only: no I/O, no clock of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use verbs3_protocol::{Generation, KeyHash, WriteId, WriteOutcome};

use super::doubts::{DoubtBucket, DoubtOptions, Doubts};
use super::grants::Grants;
use crate::clock::Moment;

/// Locks of the open writes.
const SHARDS: usize = 64;

/// How long ago a generation was raised is remembered in steps of 2^26 ns, some 67 ms.
const STEP_BITS: u32 = 26;

/// A write of the key is under way, or was lost sight of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uncertain;

/// The bound on open writes is met; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyWrites;

#[derive(Clone, Copy)]
struct OpenWrite {
    write: WriteId,
    end: Moment,
    /// For how long it stays open when its outcome is said to be unknown.
    uncertain: Duration,
}

type OpenWrites = Mutex<HashMap<KeyHash, Vec<OpenWrite>>>;

/// The generation table and the open writes.
pub(crate) struct Coherence {
    generations: Box<[AtomicU64]>,
    /// When each was raised last, in steps from 1 on; 0: never.
    raised: Box<[AtomicU32]>,
    grants: Arc<Grants>,
    doubts: Doubts,
    shards: Box<[OpenWrites]>,
    /// Open writes, and places taken for some that are being added.
    open: AtomicUsize,
    open_max: usize,
    expired: AtomicU64,
}

impl Coherence {
    pub(crate) fn new(
        generation_slots: usize,
        open_writes_max: usize,
        doubts: DoubtOptions,
        grants: Arc<Grants>,
    ) -> Self {
        Self {
            generations: (0..generation_slots.max(1)).map(|_| AtomicU64::new(0)).collect(),
            raised: (0..generation_slots.max(1)).map(|_| AtomicU32::new(0)).collect(),
            grants,
            doubts: Doubts::new(doubts),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            open: AtomicUsize::new(0),
            open_max: open_writes_max,
            expired: AtomicU64::new(0),
        }
    }

    /// The generation under which attributes of this key may be answered or asked now.
    ///
    /// The generation is read first: an announcement that comes between the two is then seen as
    /// open, or has been reported, and what is fetched under the older generation is never
    /// installed.
    pub(crate) fn admit(&self, hash: KeyHash, now: Moment) -> Result<Generation, Uncertain> {
        let generation = self.generation(hash);
        if self.is_open(hash, now) { Err(Uncertain) } else { Ok(generation) }
    }

    /// Whether what was fetched under `generation` may still be kept, and be answered to whoever
    /// arrived since.
    pub(crate) fn holds(&self, hash: KeyHash, generation: Generation, now: Moment) -> bool {
        self.admit(hash, now) == Ok(generation)
    }

    pub(crate) fn generation(&self, hash: KeyHash) -> Generation {
        Generation(self.slot(hash).load(Ordering::SeqCst))
    }

    /// Opens a write of each key until `now + uncertain`, or renews it. All or none.
    pub(crate) fn announce(
        &self,
        hashes: &[KeyHash],
        write: WriteId,
        uncertain: Duration,
        now: Moment,
    ) -> Result<Generation, TooManyWrites> {
        self.open_all(hashes, OpenWrite { write, end: now.after(uncertain), uncertain }, now)
    }

    /// Opens a write that another home was told of, and which may be under way for another
    /// `remaining`. How long its writer is uncertain of it was not handed over.
    pub(crate) fn inherit(
        &self,
        hash: KeyHash,
        write: WriteId,
        (remaining, uncertain_max): (Duration, Duration),
        now: Moment,
    ) -> Result<Generation, TooManyWrites> {
        let end = now.after(remaining.min(uncertain_max));
        self.open_all(&[hash], OpenWrite { write, end, uncertain: uncertain_max }, now)
    }

    fn open_all(
        &self,
        hashes: &[KeyHash],
        new: OpenWrite,
        now: Moment,
    ) -> Result<Generation, TooManyWrites> {
        // A renewal takes no place: it must not be refused because others wait for one.
        let reserved = hashes.iter().filter(|&&hash| !self.has_open(hash, new.write, now)).count();
        self.reserve(reserved, now)?;
        let taken = hashes.iter().filter(|&&hash| self.open_one(hash, new, now)).count();
        self.open.fetch_add(taken, Ordering::SeqCst);
        self.open.fetch_sub(reserved, Ordering::SeqCst);
        Ok(self.raise(hashes, now))
    }

    /// Ends a write of each key. Of an unknown outcome, the keys stay uncertain for the announced
    /// time from now, however late the last announcement was: the write may be under way still.
    /// Where nothing is known of it, for `uncertain_max`.
    pub(crate) fn report(
        &self,
        hashes: &[KeyHash],
        write: WriteId,
        outcome: WriteOutcome,
        uncertain_max: Duration,
        now: Moment,
    ) -> Result<Generation, TooManyWrites> {
        // Before anything else: even a report that is refused below, for want of a place, makes
        // void what is known.
        self.raise(hashes, now);
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
                    self.announce(&lost, write, uncertain_max, now)?;
                }
            }
        }
        Ok(self.raise(hashes, now))
    }

    /// Makes void whatever is known of the keys, whatever is being fetched, and the leases of those
    /// who hold it. The newest generation among them.
    pub(crate) fn raise(&self, hashes: &[KeyHash], now: Moment) -> Generation {
        let mut newest = 0;
        for &hash in hashes {
            newest = newest.max(self.slot(hash).fetch_add(1, Ordering::SeqCst) + 1);
            self.raised[self.place(hash)].store(steps(now), Ordering::Relaxed);
        }
        // Afterwards: see `grants`.
        self.grants.recall(hashes);
        Generation(newest)
    }

    /// Whether nothing has made this key void for so long, or another one that shares its
    /// generation.
    pub(crate) fn is_quiet(&self, hash: KeyHash, quiet: Duration, now: Moment) -> bool {
        let raised = self.raised[self.place(hash)].load(Ordering::Relaxed);
        raised == 0
            || u64::from(steps(now).saturating_sub(raised)) << STEP_BITS >= quiet.as_nanos() as u64
    }

    /// How old what is known of the key may be, because of a write that was lost sight of. Asked
    /// after [`Coherence::admit`].
    pub(crate) fn doubted_age(&self, hash: KeyHash) -> Option<Duration> {
        self.doubts.age_max(hash, self.bucket(hash))
    }

    /// Keys whose write was lost sight of, and may be completed yet; for those without a place, the
    /// buckets that they are in.
    pub(crate) fn doubts(&self) -> usize {
        self.doubts.len()
    }

    /// Forgets writes whose time is over, and doubts.
    pub(crate) fn sweep(&self, now: Moment) {
        for shard in &self.shards {
            shard.lock().retain(|&hash, writes| {
                self.expire(hash, writes, now);
                !writes.is_empty()
            });
        }
        let Some(over) = self.doubts.over(now) else { return };
        self.raise(&over.keys, now);
        if !over.buckets.is_empty() {
            self.raise_buckets(&over.buckets, now);
        }
        self.doubts.forget(now);
    }

    fn raise_buckets(&self, buckets: &HashSet<DoubtBucket>, now: Moment) {
        let slots = self.generations.iter().zip(&self.raised).enumerate();
        for (_, (generation, raised)) in
            slots.filter(|(slot, _)| buckets.contains(&DoubtBucket::of_slot(*slot)))
        {
            generation.fetch_add(1, Ordering::SeqCst);
            raised.store(steps(now), Ordering::Relaxed);
        }
        // Afterwards: see `grants`.
        self.grants.recall_where(|hash| buckets.contains(&self.bucket(hash)));
    }

    /// Writes that are announced and not reported, and how long they may still be; `None`: more
    /// than `max`.
    pub(crate) fn open_list(
        &self,
        max: usize,
        now: Moment,
    ) -> Option<Vec<(KeyHash, WriteId, Duration)>> {
        let mut list = Vec::new();
        for shard in &self.shards {
            for (&hash, writes) in shard.lock().iter() {
                let open = writes.iter().filter(|open| open.end > now);
                list.extend(open.map(|open| (hash, open.write, open.end.since(now))));
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

    /// Writes whose report never came, since the last call.
    pub(crate) fn take_expired(&self) -> u64 {
        self.expired.swap(0, Ordering::Relaxed)
    }

    fn slot(&self, hash: KeyHash) -> &AtomicU64 {
        // The high bits choose the shard below, so that a slot's keys don't meet in one lock.
        &self.generations[self.place(hash)]
    }

    fn place(&self, hash: KeyHash) -> usize {
        (hash.0 % self.generations.len() as u64) as usize
    }

    fn bucket(&self, hash: KeyHash) -> DoubtBucket {
        DoubtBucket::of_slot(self.place(hash))
    }

    fn shard(&self, hash: KeyHash) -> &OpenWrites {
        &self.shards[(hash.0 >> 58) as usize % SHARDS]
    }

    fn is_open(&self, hash: KeyHash, now: Moment) -> bool {
        let mut shard = self.shard(hash).lock();
        let Some(writes) = shard.get_mut(&hash) else { return false };
        self.expire(hash, writes, now);
        let open = !writes.is_empty();
        if !open {
            shard.remove(&hash);
        }
        open
    }

    fn has_open(&self, hash: KeyHash, write: WriteId, now: Moment) -> bool {
        let shard = self.shard(hash).lock();
        shard
            .get(&hash)
            .is_some_and(|writes| writes.iter().any(|open| open.write == write && open.end > now))
    }

    /// True if the write is new; false if it was open already and has a new end.
    fn open_one(&self, hash: KeyHash, new: OpenWrite, now: Moment) -> bool {
        let mut shard = self.shard(hash).lock();
        let writes = shard.entry(hash).or_default();
        self.expire(hash, writes, now);
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

    /// Begins the time of an open write anew. False if there is none.
    fn prolong_one(&self, hash: KeyHash, write: WriteId, now: Moment) -> bool {
        let mut shard = self.shard(hash).lock();
        let mut writes = shard.get_mut(&hash).into_iter().flatten();
        let Some(open) = writes.find(|open| open.write == write && open.end > now) else {
            return false;
        };
        open.end = open.end.max(now.after(open.uncertain));
        true
    }

    fn close_one(&self, hash: KeyHash, write: WriteId) {
        let mut shard = self.shard(hash).lock();
        let Some(writes) = shard.get_mut(&hash) else { return };
        let before = writes.len();
        writes.retain(|open| open.write != write);
        self.open.fetch_sub(before - writes.len(), Ordering::SeqCst);
        if writes.is_empty() {
            shard.remove(&hash);
        }
    }

    fn expire(&self, hash: KeyHash, writes: &mut Vec<OpenWrite>, now: Moment) {
        let before = writes.len();
        writes.retain(|open| open.end > now);
        let expired = before - writes.len();
        if expired > 0 {
            self.doubts.note(hash, self.bucket(hash), now);
            self.open.fetch_sub(expired, Ordering::SeqCst);
            self.expired.fetch_add(expired as u64, Ordering::Relaxed);
        }
    }

    fn reserve(&self, places: usize, now: Moment) -> Result<(), TooManyWrites> {
        let take = || {
            self.open
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| {
                    open.checked_add(places).filter(|&sum| sum <= self.open_max)
                })
                .map(|_| ())
                .map_err(|_| TooManyWrites)
        };
        take().or_else(|TooManyWrites| {
            self.sweep(now);
            take()
        })
    }
}

/// From 1 on; enough for nine years.
fn steps(now: Moment) -> u32 {
    u32::try_from((now.nanos() >> STEP_BITS) + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;

//! Generations and announced writes, which make late news harmless. Whatever raises a generation
//! also recalls the key's leases.
//!
//! A key's generation is raised by every announcement, report and invalidation. Attributes are
//! valid only under the generation at which their check was sent, and a key with an open write has
//! no valid attributes. Decides only: no I/O, no clock of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use verbs3_protocol::{KeyGeneration, KeyHash, ObjectKey, ObjectVolume, WriteId, WriteOutcome};

use super::account_places::{AccountPlaces, PlaceReserve};
use super::doubt_tracker::{DoubtOptions, DoubtTracker, LostWrite, NoDoubtPlace};
use super::generation_slots::GenerationSlots;
use super::lease_grants::LeaseGrantTable;
use super::write_scopes::{DoubtedPrefix, WriteScopeNumber, WriteScopeTable};
use crate::clock::WorkerInstant;
use crate::tenants::{TenantAccount, TenantAccounts};

/// Locks of the open writes.
const SHARDS: usize = 64;

/// Shortest time between two sweeps for places. A refusal in between costs no look at the table, or
/// one tenant's refusals would slow down all writes. A place that is free by then is found by the
/// next announcement: a tenth of a second is short beside any write's time.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// The key has a write that is under way, or that was lost sight of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UncertainKeyError;

/// The bound on open writes is met, or what is free is kept for other tenants. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyWrites;

/// The keys of one message about a write.
#[derive(Clone, Copy)]
pub(crate) struct WrittenKeys<'a> {
    pub(crate) hashes: &'a [KeyHash],
    /// What the hashes are of, in the same order; `None`: that is not known.
    pub(crate) names: Option<(&'a ObjectVolume, &'a [String])>,
    /// Whose write it is.
    pub(crate) account: TenantAccount,
}

/// A write that one home hands over to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandedWrite {
    pub(crate) hash: KeyHash,
    pub(crate) write: WriteId,
    /// How long it may still be under way.
    pub(crate) remaining: Duration,
    pub(crate) account: TenantAccount,
}

#[derive(Clone, Copy)]
struct OpenWriteRecord {
    write: WriteId,
    account: TenantAccount,
    /// Where its tenant writes. The record counts there.
    scope: Option<WriteScopeNumber>,
    end: WorkerInstant,
    /// How long the write stays open after its outcome was reported as unknown.
    uncertain: Duration,
}

/// A write to open, or to renew where it is open.
struct WriteOpening<'a> {
    keys: WrittenKeys<'a>,
    write: WriteId,
    /// How long it is open from now on.
    length: Duration,
    /// How long it stays open after its outcome was reported as unknown.
    uncertain: Duration,
    reserve: PlaceReserve,
}

/// Places that were taken for a write.
struct TakenPlaces {
    left: usize,
    /// By which more are taken.
    reserve: PlaceReserve,
}

type OpenWrites = Mutex<HashMap<KeyHash, Vec<OpenWriteRecord>>>;

/// The table of generations and open writes.
pub(crate) struct CoherenceTable {
    generations: GenerationSlots,
    grants: Arc<LeaseGrantTable>,
    doubts: DoubtTracker,
    scopes: WriteScopeTable,
    shards: Box<[OpenWrites]>,
    /// Places of open writes, and of writes that are being added.
    places: AccountPlaces,
    /// Nanoseconds. From then on whoever finds no place may sweep.
    next_sweep: AtomicU64,
    expired: AtomicU64,
}

impl CoherenceTable {
    pub(crate) fn new(
        generation_slots: usize,
        open_writes_max: usize,
        doubts: DoubtOptions,
        grants: Arc<LeaseGrantTable>,
        tenants: Arc<TenantAccounts>,
    ) -> Self {
        Self {
            generations: GenerationSlots::new(generation_slots),
            grants,
            doubts: DoubtTracker::new(doubts, tenants.clone()),
            scopes: WriteScopeTable::new(tenants.clone()),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            places: AccountPlaces::new(open_writes_max, tenants),
            next_sweep: AtomicU64::new(0),
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
        self.generations.current_generation(hash)
    }

    /// Opens a write of each key until `now + uncertain`, or renews it. Opens all or none.
    pub(crate) fn announce_write(
        &self,
        keys: WrittenKeys<'_>,
        write: WriteId,
        uncertain: Duration,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, TooManyWrites> {
        let reserve = PlaceReserve::StaysFree;
        self.open_write(WriteOpening { keys, write, length: uncertain, uncertain, reserve }, now)
    }

    /// Opens a write that was announced to another home. The handover says neither how long an
    /// unknown outcome stays uncertain, nor what the key is called: its write has no scope.
    pub(crate) fn inherit_write(
        &self,
        handed: HandedWrite,
        uncertain_max: Duration,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, TooManyWrites> {
        let HandedWrite { hash, write, remaining, account } = handed;
        let hashes = [hash];
        let opening = WriteOpening {
            keys: WrittenKeys { hashes: &hashes, names: None, account },
            write,
            length: remaining.min(uncertain_max),
            uncertain: uncertain_max,
            // Without a place all slots of its home would be asked about.
            reserve: PlaceReserve::MayBeUsed,
        };
        self.open_write(opening, now)
    }

    /// Opens a write of each key, or renews it. Opens all or none.
    fn open_write(
        &self,
        opening: WriteOpening<'_>,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, TooManyWrites> {
        let WriteOpening { keys, write, length, uncertain, reserve } = opening;
        let WrittenKeys { hashes, names, account } = keys;
        // A renewal needs no place: it must not be refused because the table is full.
        let is_new = |hash: &&KeyHash| !self.has_open(**hash, write, now);
        let left = hashes.iter().filter(is_new).count();
        let mut places = TakenPlaces { left, reserve };
        self.take_places(account, &places, now)?;
        let scope =
            names.and_then(|(volume, names)| self.scopes.enter_scope(account, volume, names));
        let end = now.saturating_add(length);
        let new = OpenWriteRecord { write, account, scope, end, uncertain };
        let (mut opened, mut is_full) = (Vec::new(), false);
        for &hash in hashes {
            match self.open_one(hash, new, &mut places, now) {
                Ok(is_new) => opened.extend(is_new.then_some(hash)),
                Err(TooManyWrites) => is_full = true,
            }
        }
        self.places.give_back(account, places.left);
        if let Some(scope) = scope {
            self.scopes.leave_scope(scope, hashes.len() - opened.len());
        }
        if is_full {
            opened.iter().for_each(|&hash| self.close_one(hash, write));
            return Err(TooManyWrites);
        }
        Ok(self.raise_generations(hashes, now))
    }

    /// Ends a write of each key. If the outcome is unknown, the keys stay uncertain for the
    /// announced time, counted from now. The write may still be under way, however long ago it was
    /// announced. If the write is not known here, the keys stay uncertain for `uncertain_max`.
    pub(crate) fn report_write(
        &self,
        keys: WrittenKeys<'_>,
        write: WriteId,
        outcome: WriteOutcome,
        uncertain_max: Duration,
        now: WorkerInstant,
    ) -> Result<KeyGeneration, TooManyWrites> {
        let hashes = keys.hashes;
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
                let is_lost = |index: &usize| !self.prolong_one(hashes[*index], write, now);
                let lost: Vec<usize> = (0..hashes.len()).filter(is_lost).collect();
                if !lost.is_empty() {
                    let hashes: Vec<KeyHash> = lost.iter().map(|&index| hashes[index]).collect();
                    let named = keys.names.map(|(volume, names)| {
                        let lost = lost.iter().map(|&index| names[index].clone());
                        (volume, lost.collect::<Vec<String>>())
                    });
                    let names = named.as_ref().map(|(volume, names)| (*volume, names.as_slice()));
                    let keys = WrittenKeys { hashes: &hashes, names, ..keys };
                    // Nothing is kept from it: whoever reports it can't be told to write later.
                    let (length, reserve) = (uncertain_max, PlaceReserve::MayBeUsed);
                    let uncertain = uncertain_max;
                    let opening = WriteOpening { keys, write, length, uncertain, reserve };
                    self.open_write(opening, now)?;
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
        let raised = hashes.iter().map(|&hash| self.generations.raise_key(hash, now));
        let newest = raised.max().unwrap_or_default();
        // This comes after the generations were raised: see `lease_grants`.
        self.grants.recall_leases(hashes);
        newest
    }

    /// Returns whether neither this key nor a key with the same generation slot was invalidated
    /// during the last `quiet`.
    pub(crate) fn is_quiet(&self, hash: KeyHash, quiet: Duration, now: WorkerInstant) -> bool {
        self.generations.is_quiet(hash, quiet, now)
    }

    /// Returns how old an answer about the key may be, because of a write that was lost sight of.
    /// Call it before [`CoherenceTable::admit_key`], lest a doubt ends between the two unseen, and
    /// after it, lest one begins.
    pub(crate) fn doubted_age(&self, object: &ObjectKey, hash: KeyHash) -> Option<Duration> {
        let by_prefix = || {
            let is_doubted = self.scopes.is_doubted(&object.volume, &object.key);
            is_doubted.then(|| self.doubts.doubted_age())
        };
        self.doubts.age_max(hash, self.generations.bucket(hash)).or_else(by_prefix)
    }

    /// Returns the number of keys whose write was lost sight of and may still complete. Keys that
    /// did not fit in the table count as their buckets, or as their prefix.
    pub(crate) fn doubt_count(&self) -> usize {
        self.doubts.len() + self.scopes.doubted_count()
    }

    /// Returns prefixes whose doubt is over. What was learnt below them has to be made void before
    /// [`CoherenceTable::end_prefix_doubts`].
    pub(crate) fn expired_prefixes(&self, now: WorkerInstant) -> Vec<DoubtedPrefix> {
        self.scopes.find_expired(now)
    }

    pub(crate) fn end_prefix_doubts(&self, ended: &[DoubtedPrefix], now: WorkerInstant) {
        self.scopes.forget_expired(ended, now);
    }

    /// Removes writes whose time is over, and expired doubts.
    pub(crate) fn sweep_expired(&self, now: WorkerInstant) {
        self.sweep_writes(now);
        let Some(over) = self.doubts.find_expired(now) else { return };
        self.raise_generations(&over.keys, now);
        if !over.buckets.is_empty() {
            self.generations.raise_buckets(&over.buckets, now);
            // This comes after the generations were raised: see `lease_grants`.
            self.grants.recall_where(|hash| over.buckets.contains(&self.generations.bucket(hash)));
        }
        self.doubts.forget_expired(now);
    }

    fn sweep_writes(&self, now: WorkerInstant) {
        for shard in &self.shards {
            shard.lock().retain(|&hash, writes| {
                self.expire_writes(hash, writes, now);
                !writes.is_empty()
            });
        }
    }

    /// Returns the writes that are announced and not reported. Returns `None` if there are more than
    /// `max`.
    pub(crate) fn open_list(&self, max: usize, now: WorkerInstant) -> Option<Vec<HandedWrite>> {
        let mut list = Vec::new();
        for shard in &self.shards {
            for (&hash, writes) in shard.lock().iter() {
                let open = writes.iter().filter(|open| open.end > now);
                list.extend(open.map(|&OpenWriteRecord { write, account, end, .. }| HandedWrite {
                    hash,
                    write,
                    remaining: end.duration_since(now),
                    account,
                }));
                if list.len() > max {
                    return None;
                }
            }
        }
        Some(list)
    }

    pub(crate) fn open_writes(&self) -> usize {
        self.places.used()
    }

    /// Returns the number of writes since the last call whose report never came.
    pub(crate) fn take_expired(&self) -> u64 {
        self.expired.swap(0, Ordering::Relaxed)
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

    /// Returns true if the write is new, and has one of the `places`. Returns false if it was open
    /// already; it then has a new end. One that was closed since the places were taken needs one
    /// more.
    fn open_one(
        &self,
        hash: KeyHash,
        new: OpenWriteRecord,
        places: &mut TakenPlaces,
        now: WorkerInstant,
    ) -> Result<bool, TooManyWrites> {
        let mut shard = self.write_shard(hash).lock();
        let writes = shard.entry(hash).or_default();
        self.expire_writes(hash, writes, now);
        match writes.iter_mut().find(|open| open.write == new.write) {
            Some(open) => {
                (open.end, open.uncertain) =
                    (open.end.max(new.end), open.uncertain.max(new.uncertain));
                Ok(false)
            }
            None if places.left == 0
                && !self.places.try_take(new.account, 1, places.reserve, now) =>
            {
                if writes.is_empty() {
                    shard.remove(&hash);
                }
                Err(TooManyWrites)
            }
            None => {
                places.left = places.left.saturating_sub(1);
                writes.push(new);
                Ok(true)
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
        writes.extract_if(.., |open| open.write == write).for_each(|open| self.release(&open));
        if writes.is_empty() {
            shard.remove(&hash);
        }
    }

    fn expire_writes(&self, hash: KeyHash, writes: &mut Vec<OpenWriteRecord>, now: WorkerInstant) {
        for lost in writes.extract_if(.., |open| open.end <= now) {
            self.doubt_write(hash, &lost, now);
            self.release(&lost);
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the doubt that a lost write leaves. Its scope, if needed, still counts it as open.
    fn doubt_write(&self, hash: KeyHash, lost: &OpenWriteRecord, now: WorkerInstant) {
        let OpenWriteRecord { account, scope, .. } = *lost;
        let bucket = self.generations.bucket(hash);
        let lost = LostWrite { hash, bucket, account, has_scope: scope.is_some() };
        if let Err(NoDoubtPlace) = self.doubts.record_doubt(lost, now)
            && let Some((scope, until)) = scope.zip(self.doubts.doubted_until(now))
        {
            self.scopes.doubt_scope(scope, until);
        }
    }

    /// Gives back what an open write holds.
    fn release(&self, open: &OpenWriteRecord) {
        // The place last: without one, an account may become another tenant's.
        if let Some(scope) = open.scope {
            self.scopes.leave_scope(scope, 1);
        }
        self.places.give_back(open.account, 1);
    }

    /// Takes the places. Where there are none, writes whose time is over give theirs first, but not
    /// for each of many refusals.
    fn take_places(
        &self,
        account: TenantAccount,
        places: &TakenPlaces,
        now: WorkerInstant,
    ) -> Result<(), TooManyWrites> {
        let take = || self.places.try_take(account, places.left, places.reserve, now);
        if take() {
            return Ok(());
        }
        let (due, at) = (self.next_sweep.load(Ordering::Relaxed), now.as_nanos());
        let next = now.saturating_add(SWEEP_PAUSE).as_nanos();
        let relaxed = Ordering::Relaxed;
        // What nobody can be refused for must not fail because another one was refused just now.
        let must_find = places.reserve == PlaceReserve::MayBeUsed;
        if at >= due && self.next_sweep.compare_exchange(due, next, relaxed, relaxed).is_ok()
            || must_find
        {
            self.sweep_writes(now);
        }
        if take() { Ok(()) } else { Err(TooManyWrites) }
    }
}

#[cfg(test)]
mod tests;

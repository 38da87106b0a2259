//! The leases on attributes that this home has granted to gateways. A lease stays here until its
//! holder has dropped it, or until it expires.
//!
//! # Why no holder reads on after a write
//! A grant first takes its place in the table, then checks the key's generation, under the key's
//! lock. An invalidation first raises the generation, then looks for grants, under the same lock.
//! One of the two always sees the other: the grant is either recalled or refused. A recalled lease
//! stays in the table until its holder has confirmed the drop, or until its end. The end here is
//! later than the holder's. [`LeaseGrantTable::wait_for_recalls`] waits for that.
//!
//! `home/leases.rs` decides who is granted what. Times are the caller's; waiting uses the caller's
//! clock.

mod lease_holders;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::sleep;
use verbs3_protocol::{HolderId, KeyHash, LEASE_MS_MAX};

use crate::clock::{WorkerClock, WorkerInstant};
use crate::metrics::{LeaseGrantEvent, LeaseWait, WorkerMetrics};
use lease_holders::LeaseHolderTable;
pub(crate) use lease_holders::{LeaseRecallPoll, TooMany};

/// Locks of the table.
const SHARDS: usize = 64;
/// How often a waiter checks the clock. The clock runs while the host sleeps, but a timer does not.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantOptions {
    /// Grants that are remembered. Beyond that, none are given.
    pub(crate) grants_max: usize,
    /// Gateways that may hold leases.
    pub(crate) holders_max: usize,
}

/// The keys whose leases an invalidation recalls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecallScope {
    Nobody,
    Keys(Vec<KeyHash>),
    All,
}

/// The reason why no lease was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseGrantError {
    Full,
    /// The attributes are void, or were void a moment ago and another gateway may still hold them.
    Void,
}

/// A lease to grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewLease {
    pub(crate) hash: KeyHash,
    pub(crate) holder: HolderId,
    pub(crate) end: WorkerInstant,
    /// The attributes count only until a doubt about the key ends.
    pub(crate) in_doubt: bool,
}

struct LeaseGrantEntry {
    holder: HolderId,
    end: WorkerInstant,
    in_doubt: bool,
    /// The number of the recall.
    recalled: Option<u64>,
}

type LeaseShardMap = HashMap<KeyHash, Vec<LeaseGrantEntry>>;

pub(crate) struct LeaseGrantTable {
    shards: Box<[Mutex<LeaseShardMap>]>,
    /// Grants in the table, and places reserved for grants that are being added.
    held: AtomicUsize,
    grants_max: usize,
    /// Locked within a shard's lock, never the other way round.
    holders: Mutex<LeaseHolderTable>,
    /// Increased whenever a holder has dropped something.
    dropped: watch::Sender<u64>,
    /// Nanoseconds. Until then, leases that the previous process granted may exist.
    former_until: AtomicU64,
    metrics: WorkerMetrics,
}

impl LeaseGrantTable {
    pub(crate) fn new(options: GrantOptions, metrics: WorkerMetrics) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            held: AtomicUsize::new(0),
            grants_max: options.grants_max,
            holders: Mutex::new(LeaseHolderTable::new(options.holders_max)),
            dropped: watch::channel(0).0,
            former_until: AtomicU64::new(0),
            metrics,
        }
    }

    /// Grants the key's attributes until `end`, if they are `valid`, which is called under the
    /// key's lock.
    pub(crate) fn grant_lease(
        &self,
        lease: NewLease,
        now: WorkerInstant,
        valid: impl FnOnce() -> bool,
    ) -> Result<(), LeaseGrantError> {
        let NewLease { hash, holder, end, in_doubt } = lease;
        // The count is raised before `valid` runs: a recall skips the table while the count is
        // zero.
        if self.held.fetch_add(1, Ordering::SeqCst) >= self.grants_max {
            self.held.fetch_sub(1, Ordering::SeqCst);
            return Err(LeaseGrantError::Full);
        }
        let mut table = self.lease_shard(hash).lock();
        let grants = table.entry(hash).or_default();
        self.forget_settled(grants, now);
        // A recalled grant is never renewed. Its holder could confuse the new lease with the
        // recalled one.
        let is_void = grants.iter().any(|grant| grant.recalled.is_some()) || !valid();
        if !is_void {
            match grants.iter_mut().find(|grant| grant.holder == holder) {
                Some(grant) => {
                    grant.end = grant.end.max(end);
                    grant.in_doubt |= in_doubt;
                }
                None => {
                    grants.push(LeaseGrantEntry { holder, end, in_doubt, recalled: None });
                    return Ok(());
                }
            }
        }
        if grants.is_empty() {
            table.remove(&hash);
        }
        self.held.fetch_sub(1, Ordering::SeqCst);
        if is_void { Err(LeaseGrantError::Void) } else { Ok(()) }
    }

    /// Returns whether any gateway may hold this key's attributes now.
    pub(crate) fn is_granted(&self, hash: KeyHash, now: WorkerInstant) -> bool {
        self.has_grant(hash, now, |_| true)
    }

    /// Returns whether any gateway may hold this key's attributes now without having been told to
    /// drop them.
    pub(crate) fn is_unrecalled(&self, hash: KeyHash, now: WorkerInstant) -> bool {
        self.has_grant(hash, now, |grant| grant.recalled.is_none())
    }

    fn has_grant(
        &self,
        hash: KeyHash,
        now: WorkerInstant,
        counts: impl Fn(&LeaseGrantEntry) -> bool,
    ) -> bool {
        if self.held.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut table = self.lease_shard(hash).lock();
        let Some(grants) = table.get_mut(&hash) else { return false };
        self.forget_settled(grants, now);
        grants.iter().any(counts)
    }

    /// Recalls the leases on these keys. Call it after the keys' generations were raised.
    pub(crate) fn recall_leases(&self, hashes: &[KeyHash]) {
        if self.held.load(Ordering::SeqCst) == 0 {
            return;
        }
        for &hash in hashes {
            let mut table = self.lease_shard(hash).lock();
            for grant in
                table.get_mut(&hash).into_iter().flatten().filter(|grant| grant.recalled.is_none())
            {
                grant.recalled = Some(self.holders.lock().recall_key(grant.holder, hash));
                self.metrics.leases[LeaseGrantEvent::Recalled].inc();
            }
        }
    }

    /// Recalls the leases on keys that satisfy `concerns`. Call it after the keys' generations were
    /// raised.
    pub(crate) fn recall_where(&self, concerns: impl Fn(KeyHash) -> bool) {
        if self.held.load(Ordering::SeqCst) == 0 {
            return;
        }
        for shard in &self.shards {
            let keys: Vec<KeyHash> =
                shard.lock().keys().copied().filter(|&hash| concerns(hash)).collect();
            self.recall_leases(&keys);
        }
    }

    /// Recalls the leases that were granted while their key was in doubt. Call it after what was
    /// learnt in doubt was made void.
    pub(crate) fn recall_doubted(&self) {
        if self.held.load(Ordering::SeqCst) == 0 {
            return;
        }
        for shard in &self.shards {
            let is_doubted =
                |grants: &Vec<LeaseGrantEntry>| grants.iter().any(|grant| grant.in_doubt);
            let table = shard.lock();
            let doubted = table.iter().filter(|(_, grants)| is_doubted(grants));
            let keys: Vec<KeyHash> = doubted.map(|(&hash, _)| hash).collect();
            drop(table);
            self.recall_leases(&keys);
        }
    }

    /// Recalls all leases of all holders.
    pub(crate) fn recall_all(&self) {
        if self.held.load(Ordering::SeqCst) == 0 {
            return;
        }
        // No other code locks more than one shard at a time.
        let mut tables: Vec<MutexGuard<'_, LeaseShardMap>> =
            self.shards.iter().map(Mutex::lock).collect();
        let mut holders = self.holders.lock();
        let mut recalls: HashMap<HolderId, u64> = HashMap::new();
        let all = tables.iter_mut().flat_map(|table| table.values_mut()).flatten();
        for grant in all.filter(|grant| grant.recalled.is_none()) {
            let recall =
                *recalls.entry(grant.holder).or_insert_with(|| holders.recall_all(grant.holder));
            grant.recalled = Some(recall);
            self.metrics.leases[LeaseGrantEvent::Recalled].inc();
        }
    }

    /// Returns the time until which a holder may read on from recalled attributes; `None`: no
    /// holder does.
    pub(crate) fn latest_recalled_end(
        &self,
        concerned: &RecallScope,
        now: WorkerInstant,
    ) -> Option<WorkerInstant> {
        let former = WorkerInstant::from_nanos(self.former_until.load(Ordering::SeqCst));
        let former = (former > now && *concerned != RecallScope::Nobody).then_some(former);
        if self.held.load(Ordering::SeqCst) == 0 {
            return former;
        }
        let recalled = |grants: &mut Vec<LeaseGrantEntry>| {
            self.forget_settled(grants, now);
            grants.iter().filter(|grant| grant.recalled.is_some()).map(|grant| grant.end).max()
        };
        let latest = match concerned {
            RecallScope::Nobody => None,
            RecallScope::Keys(hashes) => {
                let of = |hash: &KeyHash| {
                    self.lease_shard(*hash).lock().get_mut(hash).and_then(recalled)
                };
                hashes.iter().filter_map(of).max()
            }
            RecallScope::All => {
                let of = |shard: &Mutex<LeaseShardMap>| {
                    shard.lock().values_mut().filter_map(recalled).max()
                };
                self.shards.iter().filter_map(of).max()
            }
        };
        latest.max(former)
    }

    /// Waits until no holder reads on from these recalled attributes, at most as long as the leases
    /// last.
    pub(crate) async fn wait_for_recalls(&self, concerned: &RecallScope, clock: &dyn WorkerClock) {
        let mut dropped = self.dropped.subscribe();
        // Later recalls are not waited for.
        let Some(until) = self.latest_recalled_end(concerned, clock.now()) else { return };
        self.metrics.lease_waits[LeaseWait::Any].inc();
        loop {
            let now = clock.now();
            if now >= until {
                self.metrics.lease_waits[LeaseWait::End].inc();
                return;
            }
            if self.latest_recalled_end(concerned, now).is_none() {
                return;
            }
            // An error is impossible: this table owns the sender.
            tokio::select! {
                _ = dropped.changed() => {}
                () = sleep(LOOK_EVERY.min(until.duration_since(now))) => {}
            }
        }
    }

    /// Assumes that another process has granted leases under this worker's name until now.
    pub(crate) fn follow_another(&self, now: WorkerInstant) {
        let until = now.saturating_add(Duration::from_millis(LEASE_MS_MAX.into()));
        self.former_until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// Records that no earlier process has leases left: there was none, or it waited for them
    /// itself.
    pub(crate) fn follow_none(&self) {
        self.former_until.store(0, Ordering::SeqCst);
    }

    /// Begins a poll of a holder that has dropped all recalls up to `through`.
    pub(crate) fn poll(
        &self,
        holder: HolderId,
        through: u64,
        now: WorkerInstant,
    ) -> Result<LeaseRecallPoll<'_>, TooMany> {
        let (dropped, news) = self.holders.lock().poll(holder, through, now)?;
        self.dropped.send_modify(|dropped| *dropped = dropped.wrapping_add(1));
        Ok(LeaseRecallPoll::new(&self.holders, holder, dropped, news))
    }

    /// Returns whether a recall would reach this holder.
    pub(crate) fn is_polled_by(&self, holder: HolderId, now: WorkerInstant) -> bool {
        self.holders.lock().is_polling(holder, now)
    }

    /// Stops answering polls.
    pub(crate) fn close_polls(&self) {
        self.holders.lock().close_polls();
    }

    /// Removes expired grants and silent holders.
    pub(crate) fn sweep_expired(&self, now: WorkerInstant) {
        for shard in &self.shards {
            shard.lock().retain(|_, grants| {
                self.forget_settled(grants, now);
                !grants.is_empty()
            });
        }
        self.holders.lock().sweep_silent(now);
    }

    /// Returns the number of grants, and of gateways that poll.
    pub(crate) fn lease_and_holder_counts(&self) -> (usize, usize) {
        (self.held.load(Ordering::SeqCst), self.holders.lock().len())
    }

    fn forget_settled(&self, grants: &mut Vec<LeaseGrantEntry>, now: WorkerInstant) {
        let before = grants.len();
        if before == 0 {
            return;
        }
        let holders = self.holders.lock();
        grants.retain(|grant| {
            grant.end > now
                && !grant.recalled.is_some_and(|at| holders.has_dropped(grant.holder, at))
        });
        self.held.fetch_sub(before - grants.len(), Ordering::SeqCst);
    }

    fn lease_shard(&self, hash: KeyHash) -> &Mutex<LeaseShardMap> {
        &self.shards[(hash.0 >> 58) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests;

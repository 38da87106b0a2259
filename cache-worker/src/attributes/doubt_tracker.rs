//! Keys with a lost write, after the time in which reads ask the UFS. A store may still complete
//! such a write. Answers about the key are trusted for a short time only, even where attributes are
//! otherwise trusted for ever. When the doubt expires, everything learnt during it is invalidated.
//!
//! Tenants share the places of keys. A tenant that finds none puts buckets in doubt: a bucket is a
//! set of generation slots, so its expiry invalidates no other keys. Buckets hold keys of all, so a
//! tenant may doubt few of them. Beyond, the prefix that it writes is in doubt: see `write_scopes`.
//!
//! Doubts are not handed over with the map, and are lost with the process: a home that knows
//! nothing of a write can't doubt it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use verbs3_protocol::KeyHash;

use super::account_places::{AccountPlaces, PlaceReserve};
use crate::clock::WorkerInstant;
use crate::tenants::{TenantAccount, TenantAccounts};

#[derive(Debug, Clone, Copy)]
pub(crate) struct DoubtOptions {
    /// How long after its uncertain time a write may still complete; zero: never.
    pub(crate) length: Duration,
    /// How long an answer is trusted meanwhile.
    pub(crate) age_max: Duration,
    /// Keys that are remembered, of all tenants.
    pub(crate) keys_max: usize,
}

/// Bounds the memory of an overflow: two MiB, if every bucket is in doubt. With the default
/// generation table, one bucket covers sixteen slots.
const BUCKETS: usize = 1 << 16;

/// Buckets that one tenant may put in doubt, where its writes can be told by their prefix: one key in
/// 64 of all others.
const BUCKETS_EACH_MAX: usize = BUCKETS / 64;

/// No place is left for a doubt of this tenant but the prefix that it writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoDoubtPlace;

/// A write that was lost sight of.
#[derive(Debug, Clone, Copy)]
pub(super) struct LostWrite {
    pub(super) hash: KeyHash,
    pub(super) bucket: DoubtBucket,
    pub(super) account: TenantAccount,
    /// A prefix can be put in doubt instead.
    pub(super) has_scope: bool,
}

/// Until when there is a doubt, and whose it is.
#[derive(Clone, Copy)]
struct DoubtRecord {
    until: WorkerInstant,
    account: TenantAccount,
}

impl DoubtRecord {
    fn prolong(&mut self, until: WorkerInstant) {
        self.until = self.until.max(until);
    }
}

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
    keys: HashMap<KeyHash, DoubtRecord>,
    /// The buckets of keys that did not fit in `keys`.
    buckets: HashMap<DoubtBucket, DoubtRecord>,
    /// Buckets of each account, by its index.
    bucket_counts: Vec<usize>,
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
    /// Places of keys.
    places: AccountPlaces,
    tenants: Arc<TenantAccounts>,
    /// The number of doubts. It spares the lock while there are none.
    count: AtomicUsize,
}

impl DoubtTracker {
    pub(super) fn new(options: DoubtOptions, tenants: Arc<TenantAccounts>) -> Self {
        let places = AccountPlaces::new(options.keys_max, tenants.clone());
        Self { options, table: Mutex::default(), places, tenants, count: AtomicUsize::new(0) }
    }

    /// Returns until when a write that was lost sight of now is doubted; `None`: never.
    pub(super) fn doubted_until(&self, now: WorkerInstant) -> Option<WorkerInstant> {
        (!self.options.length.is_zero()).then(|| now.saturating_add(self.options.length))
    }

    /// Returns how long an answer in doubt is trusted.
    pub(super) fn doubted_age(&self) -> Duration {
        self.options.age_max
    }

    /// Records a doubt. On an error nothing is recorded, and the caller puts the scope in doubt.
    pub(super) fn record_doubt(
        &self,
        lost: LostWrite,
        now: WorkerInstant,
    ) -> Result<(), NoDoubtPlace> {
        let Some(until) = self.doubted_until(now) else { return Ok(()) };
        let (account, mut table) = (lost.account, self.table.lock());
        if let Some(doubt) = table.keys.get_mut(&lost.hash) {
            doubt.prolong(until);
        } else if self.places.try_take(account, 1, PlaceReserve::StaysFree, now) {
            table.keys.insert(lost.hash, DoubtRecord { until, account });
        } else if let Some(doubt) = table.buckets.get_mut(&lost.bucket) {
            doubt.prolong(until);
        } else {
            let index = account.index();
            if table.bucket_counts.len() <= index {
                table.bucket_counts.resize(index + 1, 0);
            }
            if lost.has_scope && table.bucket_counts[index] >= BUCKETS_EACH_MAX {
                return Err(NoDoubtPlace);
            }
            table.bucket_counts[index] += 1;
            // While a doubt counts for an account, that becomes no other tenant's.
            self.tenants.add_notes(account, 1);
            table.buckets.insert(lost.bucket, DoubtRecord { until, account });
        }
        self.count_again(&table);
        Ok(())
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
        let keys: Vec<KeyHash> = table
            .keys
            .iter()
            .filter(|(_, doubt)| doubt.until <= now)
            .map(|(&hash, _)| hash)
            .collect();
        let buckets: HashSet<DoubtBucket> = table
            .buckets
            .iter()
            .filter(|(_, doubt)| doubt.until <= now)
            .map(|(&bucket, _)| bucket)
            .collect();
        (!keys.is_empty() || !buckets.is_empty()).then_some(Over { keys, buckets })
    }

    /// Removes the doubts that expired by `now`.
    pub(super) fn forget_expired(&self, now: WorkerInstant) {
        let mut table = self.table.lock();
        let DoubtTable { keys, buckets, bucket_counts } = &mut *table;
        keys.retain(|_, doubt| {
            let stays = doubt.until > now;
            if !stays {
                self.places.give_back(doubt.account, 1);
            }
            stays
        });
        buckets.retain(|_, doubt| {
            let stays = doubt.until > now;
            if !stays {
                bucket_counts[doubt.account.index()] -= 1;
                self.tenants.remove_notes(doubt.account, 1);
            }
            stays
        });
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tenants::TenantRules;
    use verbs3_metrics::TableFamily;
    use verbs3_protocol::TenantTag;

    fn at(seconds: u64) -> WorkerInstant {
        WorkerInstant::default().saturating_add(Duration::from_secs(seconds))
    }

    fn doubts(keys_max: usize) -> DoubtTracker {
        doubts_for(keys_max, Duration::from_secs(60), Arc::default())
    }

    fn doubts_for(keys_max: usize, length: Duration, tenants: Arc<TenantAccounts>) -> DoubtTracker {
        let options = DoubtOptions { length, age_max: Duration::from_secs(5), keys_max };
        DoubtTracker::new(options, tenants)
    }

    const AGE: Option<Duration> = Some(Duration::from_secs(5));

    fn lost(key: u64, account: TenantAccount) -> LostWrite {
        let bucket = DoubtBucket::of_slot(key as usize);
        LostWrite { hash: KeyHash(key), bucket, account, has_scope: true }
    }

    fn note(doubts: &DoubtTracker, key: u64, seconds: u64) {
        doubts.record_doubt(lost(key, TenantAccount::NOBODY), at(seconds)).unwrap();
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
        let doubts = doubts_for(10, Duration::ZERO, Arc::default());
        note(&doubts, 1, 0);
        assert_eq!(age_max(&doubts, 1), None);
    }

    /// One tenant loses more writes than there are places. Another one's are still known by name,
    /// few buckets are in doubt, and nothing of either is forgotten.
    #[test]
    fn a_tenant_that_loses_many_writes_leaves_places_to_others() {
        let rules = TenantRules {
            share_percent: 0,
            active_for: Duration::from_secs(600),
            reserve_percent: 10,
        };
        let tenants = Arc::new(TenantAccounts::new(rules, TableFamily::default()));
        let [eve, bob] =
            ["eve", "bob"].map(|name| tenants.note_request(TenantTag::new(name, 1).as_ref(), 0));
        let doubts = doubts_for(1000, Duration::from_secs(60), tenants);
        let refused: HashSet<u64> = (0..10_000)
            .filter(|&key| doubts.record_doubt(lost(key, eve), at(0)) == Err(NoDoubtPlace))
            .collect();
        assert!(!refused.is_empty(), "the prefix has to take these");
        let is_known = |key: &u64| refused.contains(key) || age_max(&doubts, *key) == AGE;
        assert!((0..10_000).all(|key| is_known(&key)), "a doubt was lost");
        let buckets = doubts.table.lock().buckets.len();
        assert_eq!(buckets, BUCKETS_EACH_MAX, "few keys of others are in doubt");
        let others = 20_000..20_010;
        others.clone().for_each(|key| doubts.record_doubt(lost(key, bob), at(0)).unwrap());
        assert!(others.clone().all(|key| doubts.table.lock().keys.contains_key(&KeyHash(key))));
        assert_eq!(doubts.table.lock().buckets.len(), buckets);
        // A write that no prefix tells of takes a bucket, however many there are.
        let nameless = LostWrite { has_scope: false, ..lost(30_000, eve) };
        doubts.record_doubt(nameless, at(0)).unwrap();
        assert_eq!(age_max(&doubts, 30_000), AGE);
        doubts.forget_expired(at(60));
        assert_eq!((doubts.len(), doubts.places.used()), (0, 0));
        assert!(doubts.table.lock().bucket_counts.iter().all(|&count| count == 0));
    }

    /// An account whose tenant has gone is another one's only when none of its doubts is left, of
    /// whatever kind. The doubts stay meanwhile.
    #[test]
    fn a_new_tenant_begins_without_the_doubts_of_one_that_has_gone() {
        let rules = TenantRules {
            share_percent: 0,
            active_for: Duration::from_secs(10),
            reserve_percent: 0,
        };
        let tenants = Arc::new(TenantAccounts::new(rules, TableFamily::default()));
        let ask = |name: &str, now_s| tenants.note_request(TenantTag::new(name, 1).as_ref(), now_s);
        let eve = ask("eve", 0);
        for number in 1..64 {
            ask(&format!("tenant-{number}"), 0);
        }
        // No key is remembered by name.
        let doubts = doubts_for(0, Duration::from_secs(60), tenants.clone());
        doubts.record_doubt(lost(1, eve), at(0)).unwrap();
        tenants.look_over(30);
        let next = ask("next", 30);
        assert!(next != eve && next != TenantAccount::OTHERS, "others have left nothing");
        assert_eq!(age_max(&doubts, 1), AGE);
        doubts.forget_expired(at(60));
        tenants.look_over(60);
        assert_eq!(ask("last", 60), eve, "nothing of its doubts is left");
    }
}

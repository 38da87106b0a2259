//! The accounts of a worker: found by a tenant's name, counted by atomics.
//!
//! A hit looks an account up, and allocates nothing. What is kept for whom is computed when a tenant
//! comes or goes, not for an eviction.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use verbs3_doors::FairParty;
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, TableFamily};
use verbs3_protocol::{TENANT_WEIGHT_MAX, TenantTag};

use super::share_rule::{
    ACCOUNTS_MAX, EvictionRights, TenantAccount, TierHolding, due_part, eviction_rights,
    kept_bytes, passes_to,
};
use crate::settings::WorkerTenantsSettings;

/// A tier that tenants share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum TenantTier {
    Memory,
    Disk,
}

impl TenantTier {
    const ALL: [Self; 2] = [Self::Memory, Self::Disk];
}

/// What tenants hold of a worker's tiers. The first 64 tenants that a worker comes to know have
/// series of their own.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_worker_tenant", each = "tenant")]
pub(crate) struct WorkerTenantMetrics {
    /// Bytes of memory or disk that a tenant's pages take.
    #[metric(labels(tier), from_zero)]
    bytes: MetricFamily<TenantTier, IntGauge>,
    /// Bytes that others can't evict below, while somebody holds more than that.
    #[metric(labels(tier), from_zero)]
    kept_bytes: MetricFamily<TenantTier, IntGauge>,
    /// Pages of a tenant that were evicted to make room.
    #[metric(labels(tier), from_zero)]
    evictions: MetricFamily<TenantTier, IntCounter>,
    /// Bytes that fills asked of stores.
    pub(crate) store_bytes: IntCounter,
    /// Fills that waited for their turn, and got it.
    pub(crate) fill_waits: IntCounter,
    /// Fills that got no turn in time, or were displaced from a full queue.
    pub(crate) fill_refusals: IntCounter,
}

/// How tenants share a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TenantRules {
    /// Part of each tier that is kept for the active tenants.
    pub(crate) share_percent: u32,
    /// How long a tenant counts as active after its last request.
    pub(crate) active_for: Duration,
    /// Part of the turns of fills that those above their share leave free.
    pub(crate) reserve_percent: u32,
}

impl TenantRules {
    pub(crate) fn from_settings(settings: &WorkerTenantsSettings) -> Self {
        Self {
            share_percent: settings.share_percent,
            active_for: settings.active_for.0,
            reserve_percent: settings.reserve_percent,
        }
    }
}

/// The accounts.
pub(crate) struct TenantAccounts {
    rules: TenantRules,
    accounts: Box<[AccountState]>,
    /// How many of them are in use. Accounts are never given up: a restart forgets them.
    known: AtomicUsize,
    /// The sum of the weights of the active, and how many those are.
    active_weight: AtomicU64,
    active_count: AtomicUsize,
    capacities: [AtomicU64; 2],
    /// Held while an account is taken, and while it is computed what is kept.
    changing: Mutex<()>,
    metrics: TableFamily<WorkerTenantMetrics>,
}

#[derive(Default)]
struct AccountState {
    /// The hash of its tenant's name, which pages on disk carry.
    hash: AtomicU64,
    weight: AtomicU32,
    /// One more than when it asked last, in seconds of the worker's clock; 0: never.
    asked_s: AtomicU32,
    is_active: AtomicBool,
    held: [AtomicU64; 2],
    kept: [AtomicU64; 2],
    /// Fills that wait.
    queued: AtomicUsize,
    /// Set once its name is known: of pages on disk only the hash is.
    metrics: OnceLock<WorkerTenantMetrics>,
}

/// Hashes of the accounts that are no tenant's.
const NOBODY_HASH: u64 = 0;
const JOBS_HASH: u64 = 1;

impl TenantAccounts {
    pub(crate) fn new(rules: TenantRules, metrics: TableFamily<WorkerTenantMetrics>) -> Self {
        let accounts: Box<[AccountState]> =
            (0..ACCOUNTS_MAX).map(|_| AccountState::default()).collect();
        for account in [TenantAccount::JOBS, TenantAccount::OTHERS] {
            accounts[account.index()].weight.store(1, Ordering::Relaxed);
        }
        accounts[TenantAccount::JOBS.index()].hash.store(JOBS_HASH, Ordering::Relaxed);
        Self {
            rules,
            accounts,
            known: AtomicUsize::new(TenantAccount::FIXED),
            active_weight: AtomicU64::new(0),
            active_count: AtomicUsize::new(0),
            capacities: Default::default(),
            changing: Mutex::default(),
            metrics,
        }
    }

    pub(crate) fn rules(&self) -> TenantRules {
        self.rules
    }

    /// Says how much of a tier there is to share.
    pub(crate) fn set_capacity(&self, tier: TenantTier, bytes: u64, now_s: u32) {
        self.capacities[tier as usize].store(bytes, Ordering::Relaxed);
        self.renew_shares(now_s);
    }

    /// Returns the account of the tenant that asks now. The weight that was named last holds.
    pub(crate) fn note_request(&self, tag: Option<&TenantTag>, now_s: u32) -> TenantAccount {
        let Some(tag) = tag else { return self.note_account(TenantAccount::NOBODY, now_s) };
        let account = self.find_or_take(tag.name.stable_hash());
        let state = &self.accounts[account.index()];
        if account != TenantAccount::OTHERS {
            if state.metrics.get().is_none() {
                let _ = state.metrics.set(self.metrics.select_table(tag.name.as_str()));
            }
            let weight = u32::from(tag.weight.clamp(1, TENANT_WEIGHT_MAX));
            if state.weight.load(Ordering::Relaxed) != weight {
                state.weight.store(weight, Ordering::Relaxed);
                self.renew_shares(now_s);
            }
        }
        self.note_account(account, now_s)
    }

    /// Notes that an account asks now, and returns it.
    pub(crate) fn note_account(&self, account: TenantAccount, now_s: u32) -> TenantAccount {
        let state = &self.accounts[account.index()];
        let asked_s = now_s.saturating_add(1);
        if state.asked_s.load(Ordering::Relaxed) != asked_s {
            state.asked_s.store(asked_s, Ordering::Relaxed);
        }
        if !state.is_active.load(Ordering::Relaxed) {
            self.renew_shares(now_s);
        }
        account
    }

    /// Returns the account of pages that were written for a tenant with this hash of its name. What
    /// it is called is not known until it asks.
    pub(crate) fn account_of_hash(&self, hash: u64) -> TenantAccount {
        match hash {
            NOBODY_HASH => TenantAccount::NOBODY,
            JOBS_HASH => TenantAccount::JOBS,
            hash => self.find_or_take(hash),
        }
    }

    /// Returns what pages on disk name an account by.
    pub(crate) fn stored_hash(&self, account: TenantAccount) -> u64 {
        self.accounts[account.index()].hash.load(Ordering::Relaxed)
    }

    pub(crate) fn add_held(&self, tier: TenantTier, account: TenantAccount, bytes: u64) {
        self.accounts[account.index()].held[tier as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn take_held(&self, tier: TenantTier, account: TenantAccount, bytes: u64) {
        self.accounts[account.index()].held[tier as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn held_bytes(&self, tier: TenantTier, account: TenantAccount) -> u64 {
        self.accounts[account.index()].held[tier as usize].load(Ordering::Relaxed)
    }

    /// Returns whose pages of `bytes` may be evicted from a tier for a page of `evictor`. Evictions
    /// at the same time may each take a page of that size.
    pub(crate) fn eviction_rights(
        &self,
        tier: TenantTier,
        bytes: u64,
        evictor: TenantAccount,
    ) -> EvictionRights {
        let holdings = self.known_accounts().map(|account| self.holding(tier, account));
        eviction_rights(holdings, bytes, evictor)
    }

    /// Returns whether an account can lose so much of a tier, and not fall below its share.
    pub(crate) fn can_lose(&self, tier: TenantTier, account: TenantAccount, bytes: u64) -> bool {
        bytes == 0 || self.holding(tier, account).can_lose(bytes)
    }

    /// Returns whether a page of `owner` counts for `user` from now on, who has just used it.
    pub(crate) fn passes_to(
        &self,
        tier: TenantTier,
        owner: TenantAccount,
        user: TenantAccount,
    ) -> bool {
        owner != user && passes_to(self.holding(tier, owner), self.holding(tier, user))
    }

    /// Returns an account as a party to a queue.
    pub(crate) fn party_of(&self, account: TenantAccount) -> FairParty {
        let weight = self.accounts[account.index()].weight.load(Ordering::Relaxed).max(1);
        let is_alone = self.active_count.load(Ordering::Relaxed) <= 1;
        FairParty { number: account.index() as u32, weight, is_alone }
    }

    /// Counts a fill that waits. Call [`TenantAccounts::leave_queue`] at its end.
    pub(crate) fn join_queue(&self, account: TenantAccount) {
        self.accounts[account.index()].queued.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave_queue(&self, account: TenantAccount) {
        self.accounts[account.index()].queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether an account has fewer in a queue than its part of `places`.
    pub(crate) fn is_below_part(&self, account: TenantAccount, places: usize) -> bool {
        let FairParty { weight, is_alone, .. } = self.party_of(account);
        let weights = self.active_weight.load(Ordering::Relaxed).max(weight.into());
        let part = due_part(places as u64, weight.into(), weights) as usize;
        !is_alone && self.accounts[account.index()].queued.load(Ordering::Relaxed) < part
    }

    /// Counts pages that were evicted to make room.
    pub(crate) fn count_evictions(&self, tier: TenantTier, account: TenantAccount, pages: u64) {
        self.metrics_of(account).evictions[tier].inc_by(pages);
    }

    /// Returns the metrics of an account. One whose name is not known yet counts among the others.
    pub(crate) fn metrics_of(&self, account: TenantAccount) -> &WorkerTenantMetrics {
        let state = &self.accounts[account.index()];
        if let Some(metrics) = state.metrics.get() {
            return metrics;
        }
        // No tenant is called so: names have no brackets.
        let (account, label) = match account {
            TenantAccount::NOBODY => (account, "(nobody)"),
            TenantAccount::JOBS => (account, "(jobs)"),
            _ => (TenantAccount::OTHERS, "(others)"),
        };
        let make = || self.metrics.select_table(label);
        self.accounts[account.index()].metrics.get_or_init(make)
    }

    /// Finds out who is still active, and sets the gauges.
    pub(crate) fn look_over(&self, now_s: u32) {
        self.renew_shares(now_s);
        for tier in TenantTier::ALL {
            let mut unnamed = 0;
            for account in self.known_accounts() {
                let TierHolding { held, kept, .. } = self.holding(tier, account);
                if account.index() < TenantAccount::FIXED && held > 0 {
                    self.metrics_of(account);
                }
                let Some(metrics) = self.accounts[account.index()].metrics.get() else {
                    unnamed += held;
                    continue;
                };
                metrics.bytes[tier].set(held as i64);
                metrics.kept_bytes[tier].set(kept as i64);
            }
            if unnamed > 0 {
                let others = self.held_bytes(tier, TenantAccount::OTHERS);
                self.metrics_of(TenantAccount::OTHERS).bytes[tier].set((others + unnamed) as i64);
            }
        }
    }

    fn known_accounts(&self) -> impl Iterator<Item = TenantAccount> + use<> {
        (0..self.known.load(Ordering::Acquire)).map(TenantAccount::from_index)
    }

    fn find_account(&self, hash: u64) -> Option<TenantAccount> {
        let is_own = |account: &TenantAccount| self.stored_hash(*account) == hash;
        self.known_accounts().skip(TenantAccount::FIXED).find(is_own)
    }

    /// Finds the account of a name, or takes one. Where all are taken, those who come share one.
    fn find_or_take(&self, hash: u64) -> TenantAccount {
        let hash = hash.max(JOBS_HASH + 1);
        if let Some(found) = self.find_account(hash) {
            return found;
        }
        let _changing = self.changing.lock();
        if let Some(found) = self.find_account(hash) {
            return found;
        }
        let index = self.known.load(Ordering::Relaxed);
        if index == ACCOUNTS_MAX {
            return TenantAccount::OTHERS;
        }
        self.accounts[index].weight.store(1, Ordering::Relaxed);
        self.accounts[index].hash.store(hash, Ordering::Relaxed);
        self.known.store(index + 1, Ordering::Release);
        TenantAccount::from_index(index)
    }

    fn holding(&self, tier: TenantTier, account: TenantAccount) -> TierHolding {
        let state = &self.accounts[account.index()];
        TierHolding {
            held: state.held[tier as usize].load(Ordering::Relaxed),
            kept: state.kept[tier as usize].load(Ordering::Relaxed),
            weight: state.weight.load(Ordering::Relaxed).into(),
            is_active: state.is_active.load(Ordering::Relaxed),
        }
    }

    fn renew_shares(&self, now_s: u32) {
        let _changing = self.changing.lock();
        let active_s = u32::try_from(self.rules.active_for.as_secs()).unwrap_or(u32::MAX);
        let (mut weights, mut count) = (0, 0);
        for account in self.known_accounts() {
            let state = &self.accounts[account.index()];
            let asked_s = state.asked_s.load(Ordering::Relaxed);
            let idle_s = now_s.saturating_add(1).saturating_sub(asked_s);
            let is_active = asked_s > 0 && idle_s <= active_s;
            state.is_active.store(is_active, Ordering::Relaxed);
            if is_active {
                weights += u64::from(state.weight.load(Ordering::Relaxed));
                count += 1;
            }
        }
        self.active_weight.store(weights, Ordering::Relaxed);
        self.active_count.store(count, Ordering::Relaxed);
        for tier in TenantTier::ALL {
            let capacity = self.capacities[tier as usize].load(Ordering::Relaxed);
            for account in self.known_accounts() {
                let holding = self.holding(tier, account);
                let kept = kept_bytes(capacity, self.rules.share_percent, holding, weights);
                let state = &self.accounts[account.index()];
                state.kept[tier as usize].store(kept, Ordering::Relaxed);
            }
        }
    }
}

impl Default for TenantAccounts {
    /// Nothing is kept for anybody.
    fn default() -> Self {
        let rules =
            TenantRules { share_percent: 0, active_for: Duration::ZERO, reserve_percent: 0 };
        Self::new(rules, TableFamily::default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::share_rule::TENANTS_MAX;
    use super::*;
    use TenantTier::Memory;

    fn accounts() -> TenantAccounts {
        let active_for = Duration::from_secs(100);
        let rules = TenantRules { share_percent: 50, active_for, reserve_percent: 0 };
        let accounts = TenantAccounts::new(rules, TableFamily::default());
        accounts.set_capacity(Memory, 1000, 0);
        accounts
    }

    fn tag(name: &str, weight: u32) -> Option<TenantTag> {
        TenantTag::new(name, weight)
    }

    #[test]
    fn a_name_has_one_account_whichever_gateway_says_it() {
        let accounts = accounts();
        let [a, b] = ["a", "b"].map(|name| accounts.note_request(tag(name, 1).as_ref(), 0));
        assert_ne!(a, b);
        assert_eq!(accounts.note_request(tag("a", 1).as_ref(), 9), a);
        assert_eq!(accounts.note_request(None, 0), TenantAccount::NOBODY);
        let hash = accounts.stored_hash(b);
        assert_eq!(accounts.account_of_hash(hash), b);
        assert_eq!(TenantAccounts::default().stored_hash(TenantAccount::NOBODY), 0);
    }

    #[test]
    fn shares_follow_who_comes_who_goes_and_the_weight_that_was_named_last() {
        let accounts = accounts();
        let kept = |account| accounts.holding(Memory, account).kept;
        let a = accounts.note_request(tag("a", 1).as_ref(), 0);
        assert_eq!(kept(a), 500);
        let b = accounts.note_request(tag("b", 3).as_ref(), 50);
        assert_eq!((kept(a), kept(b)), (125, 375));
        accounts.note_request(tag("b", 1).as_ref(), 50);
        assert_eq!((kept(a), kept(b)), (250, 250));
        accounts.look_over(101);
        assert_eq!((kept(a), kept(b)), (0, 500), "the first has not asked for a while");
        assert!(accounts.party_of(b).is_alone);
        accounts.note_request(tag("a", 1).as_ref(), 101);
        assert_eq!((kept(a), kept(b)), (250, 250));
        assert!(!accounts.party_of(b).is_alone);
    }

    #[test]
    fn strangers_have_no_share_and_jobs_have_one() {
        let accounts = accounts();
        let a = accounts.note_request(tag("a", 1).as_ref(), 0);
        accounts.note_request(None, 0);
        accounts.note_account(TenantAccount::JOBS, 0);
        let kept = |account| accounts.holding(Memory, account).kept;
        assert_eq!([TenantAccount::NOBODY, TenantAccount::JOBS, a].map(kept), [0, 250, 250]);
    }

    #[test]
    fn tenants_beyond_the_accounts_share_one_and_metrics_stay_bounded() {
        let accounts = accounts();
        let name = |number: usize| format!("t{number}");
        for number in 0..TENANTS_MAX {
            let account = accounts.note_request(tag(&name(number), 1).as_ref(), 0);
            assert_eq!(account.index(), TenantAccount::FIXED + number);
        }
        for number in TENANTS_MAX..TENANTS_MAX + 3 {
            let account = accounts.note_request(tag(&name(number), 1).as_ref(), 0);
            assert_eq!(account, TenantAccount::OTHERS);
            accounts.count_evictions(Memory, account, 1);
        }
        assert_eq!(accounts.metrics.list_tables().len(), TENANTS_MAX + 1);
        assert_eq!(
            accounts.note_request(tag("t5", 1).as_ref(), 0).index(),
            TenantAccount::FIXED + 5
        );
    }

    #[test]
    fn pages_of_a_tenant_that_has_not_asked_yet_are_its_own() {
        let accounts = accounts();
        let hash = tag("a", 1).unwrap().name.stable_hash();
        let account = accounts.account_of_hash(hash);
        accounts.add_held(Memory, account, 10);
        accounts.look_over(0);
        assert_eq!(accounts.metrics_of(TenantAccount::OTHERS).bytes[Memory].get(), 10);
        assert_eq!(accounts.note_request(tag("a", 2).as_ref(), 0), account);
        accounts.look_over(0);
        assert_eq!(accounts.metrics_of(account).bytes[Memory].get(), 10);
        assert_eq!(accounts.metrics.list_tables().len(), 2);
    }

    #[test]
    fn a_queue_has_places_for_each_up_to_its_part() {
        let accounts = accounts();
        let a = accounts.note_request(tag("a", 1).as_ref(), 0);
        assert!(!accounts.is_below_part(a, 10), "alone there are no parts");
        let b = accounts.note_request(tag("b", 4).as_ref(), 0);
        (0..2).for_each(|_| accounts.join_queue(a));
        assert!(!accounts.is_below_part(a, 10) && accounts.is_below_part(b, 10));
        accounts.leave_queue(a);
        assert!(accounts.is_below_part(a, 10));
    }
}

//! The accounts of a worker: found by a tenant's name, counted by atomics.
//!
//! A hit looks an account up, and allocates nothing. What is kept for whom is computed when a tenant
//! comes or goes, not for an eviction.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use prometheus::{IntCounter, IntGauge};
use verbs3_doors::FairParty;
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, TableFamily};
use verbs3_protocol::{TENANT_WEIGHT_MAX, TenantTag};

use super::share_rule::{
    ACCOUNTS_MAX, EvictionRights, TENANTS_MAX, TenantAccount, TierHolding, due_part,
    eviction_rights, kept_bytes, passes_to,
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
    /// Fills and checks that waited for their turn, and got it.
    pub(crate) fill_waits: IntCounter,
    /// Fills and checks that got no turn in time, or no place, or were displaced from a full queue.
    pub(crate) fill_refusals: IntCounter,
    /// Announcements and reports of writes that found no place in the table of open writes.
    pub(crate) write_refusals: IntCounter,
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
    /// The hash of the name of each account's tenant, which pages on disk carry. In a list of their
    /// own: each request looks for one among them, and nothing beside them changes often.
    hashes: Box<[AtomicU64]>,
    /// How many of them are in use.
    known: AtomicUsize,
    /// One more than the second in which no account was left for a tenant; 0: never.
    full_s: AtomicU32,
    /// Tenants that have series of metrics, 64 at most. A series is never taken away.
    named: Mutex<BTreeSet<String>>,
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
    weight: AtomicU32,
    /// One more than when it asked last, in seconds of the worker's clock; 0: never.
    asked_s: AtomicU32,
    is_active: AtomicBool,
    held: [AtomicU64; 2],
    kept: [AtomicU64; 2],
    /// Fills that wait.
    queued: AtomicUsize,
    /// Announced writes, doubts of those that were lost sight of, and checks under way.
    notes: AtomicUsize,
    /// Set once its name is known: of pages on disk only the hash is.
    metrics: RwLock<Option<WorkerTenantMetrics>>,
    /// Whether `metrics` are those of its tenant's name. Read for each request, without a lock.
    is_named: AtomicBool,
    /// Its series are those of the others: too many tenants had some before it.
    shares_series: AtomicBool,
}

impl AccountState {
    fn shares_series(&self) -> bool {
        self.shares_series.load(Ordering::Relaxed)
    }

    /// Whether nothing is counted for it, so that it may become another tenant's.
    fn is_empty(&self) -> bool {
        let is_unused = |held: &AtomicU64| held.load(Ordering::Relaxed) == 0;
        !self.is_active.load(Ordering::Relaxed)
            && self.held.iter().all(is_unused)
            && self.queued.load(Ordering::Relaxed) == 0
            && self.notes.load(Ordering::Relaxed) == 0
    }
}

/// Hashes of the accounts that are no tenant's.
const NOBODY_HASH: u64 = 0;
const JOBS_HASH: u64 = 1;
const OTHERS_HASH: u64 = 2;

/// No tenant is called so: names have no brackets.
const OTHERS_LABEL: &str = "(others)";

/// Accounts that are taken for pages on disk whose tenant has not asked since the start. The others
/// are for tenants that ask, however many have left pages behind.
const FROM_DISK_MAX: usize = TENANTS_MAX / 2;

impl TenantAccounts {
    pub(crate) fn new(rules: TenantRules, metrics: TableFamily<WorkerTenantMetrics>) -> Self {
        let accounts: Box<[AccountState]> =
            (0..ACCOUNTS_MAX).map(|_| AccountState::default()).collect();
        for account in [TenantAccount::JOBS, TenantAccount::OTHERS] {
            accounts[account.index()].weight.store(1, Ordering::Relaxed);
        }
        let hashes: Box<[AtomicU64]> = (0..ACCOUNTS_MAX).map(|_| AtomicU64::new(0)).collect();
        hashes[TenantAccount::JOBS.index()].store(JOBS_HASH, Ordering::Relaxed);
        hashes[TenantAccount::OTHERS.index()].store(OTHERS_HASH, Ordering::Relaxed);
        Self {
            rules,
            accounts,
            hashes,
            known: AtomicUsize::new(TenantAccount::FIXED),
            full_s: AtomicU32::new(0),
            named: Mutex::default(),
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

    /// Returns the account of the tenant that asks now. The weight that was named last holds, once
    /// shares are looked over.
    pub(crate) fn note_request(&self, tag: Option<&TenantTag>, now_s: u32) -> TenantAccount {
        let Some(tag) = tag else { return self.note_account(TenantAccount::NOBODY, now_s) };
        let account = self.account_of_asker(tag.name.stable_hash(), now_s);
        let state = &self.accounts[account.index()];
        if account != TenantAccount::OTHERS {
            if !state.is_named.load(Ordering::Relaxed) {
                self.name_account(state, tag.name.as_str());
            }
            let weight = u32::from(tag.weight.clamp(1, TENANT_WEIGHT_MAX));
            // Two gateways may name other weights for a while, so this renews nothing.
            if state.weight.load(Ordering::Relaxed) != weight {
                state.weight.store(weight, Ordering::Relaxed);
            }
        }
        self.note_account(account, now_s)
    }

    /// Finds or takes an account. Where none is left, that is looked into once a second: requests of
    /// many tenants must not wait for each other.
    fn account_of_asker(&self, hash: u64, now_s: u32) -> TenantAccount {
        let second = now_s.saturating_add(1);
        if self.full_s.load(Ordering::Relaxed) == second {
            return self.find_account(hash).unwrap_or(TenantAccount::OTHERS);
        }
        let account = self.find_or_take(hash, TENANTS_MAX);
        if account == TenantAccount::OTHERS {
            self.full_s.store(second, Ordering::Relaxed);
        }
        account
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
            OTHERS_HASH => TenantAccount::OTHERS,
            hash => self.find_or_take(hash, FROM_DISK_MAX),
        }
    }

    /// Returns what pages on disk name an account by.
    pub(crate) fn stored_hash(&self, account: TenantAccount) -> u64 {
        self.hashes[account.index()].load(Ordering::Relaxed)
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

    /// Returns whether a page of `bytes` of `owner` counts for `user` from now on, who has just used it.
    pub(crate) fn passes_to(
        &self,
        tier: TenantTier,
        owner: TenantAccount,
        user: TenantAccount,
        bytes: u64,
    ) -> bool {
        owner != user && passes_to(self.holding(tier, owner), self.holding(tier, user), bytes)
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

    /// Counts announced writes, doubts or checks of an account. While it has any, it becomes nobody else's.
    pub(crate) fn add_notes(&self, account: TenantAccount, notes: usize) {
        self.accounts[account.index()].notes.fetch_add(notes, Ordering::Relaxed);
    }

    pub(crate) fn remove_notes(&self, account: TenantAccount, notes: usize) {
        self.accounts[account.index()].notes.fetch_sub(notes, Ordering::Relaxed);
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
    pub(crate) fn metrics_of(&self, account: TenantAccount) -> WorkerTenantMetrics {
        if let Some(metrics) = &*self.accounts[account.index()].metrics.read() {
            return metrics.clone();
        }
        let (account, label) = match account {
            TenantAccount::NOBODY => (account, "(nobody)"),
            TenantAccount::JOBS => (account, "(jobs)"),
            _ => (TenantAccount::OTHERS, OTHERS_LABEL),
        };
        let make = || self.metrics.select_table(label);
        self.accounts[account.index()].metrics.write().get_or_insert_with(make).clone()
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
                let metrics = self.accounts[account.index()].metrics.read().clone();
                let Some(metrics) =
                    metrics.filter(|_| !self.accounts[account.index()].shares_series())
                else {
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

    /// Finds the account of a name, or takes one of the first `tenants_max`: a new one, or one of a
    /// tenant that has gone and left nothing. Where all are taken, those who come share one.
    fn find_or_take(&self, hash: u64, tenants_max: usize) -> TenantAccount {
        let hash = hash.max(OTHERS_HASH + 1);
        if let Some(found) = self.find_account(hash) {
            return found;
        }
        let _changing = self.changing.lock();
        if let Some(found) = self.find_account(hash) {
            return found;
        }
        let known = self.known.load(Ordering::Relaxed);
        let is_new = known < TenantAccount::FIXED + tenants_max;
        let index = match is_new {
            true => known,
            false => match self.find_empty_account(known) {
                Some(index) => index,
                None => return TenantAccount::OTHERS,
            },
        };
        let state = &self.accounts[index];
        let metrics = state.metrics.write().take();
        state.is_named.store(false, Ordering::Relaxed);
        if let Some(metrics) = metrics.filter(|_| !state.shares_series()) {
            // The one before keeps its series, and holds nothing.
            for tier in TenantTier::ALL {
                metrics.bytes[tier].set(0);
                metrics.kept_bytes[tier].set(0);
            }
        }
        state.weight.store(1, Ordering::Relaxed);
        // Whoever takes it for the hash before is served as the new one, once.
        self.hashes[index].store(hash, Ordering::Relaxed);
        state.asked_s.store(0, Ordering::Relaxed);
        if is_new {
            self.known.store(known + 1, Ordering::Release);
        }
        TenantAccount::from_index(index)
    }

    fn find_empty_account(&self, known: usize) -> Option<usize> {
        (TenantAccount::FIXED..known).find(|&index| self.accounts[index].is_empty())
    }

    /// Gives an account series of its own, if there are not too many.
    fn name_account(&self, state: &AccountState, name: &str) {
        let mut metrics = state.metrics.write();
        if state.is_named.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut named = self.named.lock();
        let has_room = named.len() < TENANTS_MAX;
        // Only a gateway that lies sends a name with brackets.
        let is_own = !name.starts_with('(')
            && (named.contains(name) || (has_room && named.insert(name.to_owned())));
        state.shares_series.store(!is_own, Ordering::Relaxed);
        let label = if is_own { name } else { OTHERS_LABEL };
        *metrics = Some(self.metrics.select_table(label));
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
            let weight = u64::from(state.weight.load(Ordering::Relaxed));
            if is_active && weight > 0 {
                weights += weight;
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
mod tests;

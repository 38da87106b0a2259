//! What gateways and workers did in the last hour: the console's figures. Pure: takes reports and
//! the time.
//!
//! Soft state of bounded size: 120 bins of 30 seconds for the whole cluster, and the last report of
//! each process. It begins anew with each coordinator that leads. Long histories, and figures of one
//! process over time, are what `/metrics` and Prometheus are for.
//!
//! A process that ends says so. One that does not is called silent, and its last figures count no
//! more; what it did meanwhile counts nowhere, since nobody knows when.

mod latency_counts;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use verbs3_coordinator_client::api::{
    ACTIVITY_NAME_BYTES_MAX, ACTIVITY_TENANTS_MAX, ACTIVITY_WAYS_MAX, ActivityCounters,
    ActivityGauges, ActivityRole, NodeActivity, TenantActivity,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;

pub(crate) use latency_counts::LatencyCounts;

/// Length of one bin of the history. Reports come at least as often.
pub(crate) const BIN: Duration = Duration::from_secs(30);
/// Bins that are kept: one hour.
pub(crate) const BINS_MAX: u64 = 120;
/// Reports in a row that a process may miss before it is called silent.
const MISSED_MAX: u32 = 3;
/// Shortest silence that is called so: an election takes seconds.
const SILENT_AFTER_MIN: Duration = Duration::from_secs(15);
/// Who has not reported for so long is not shown any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Processes of one role that are remembered: as many as there may be workers, and a gateway beside
/// each.
const NODES_MAX: usize = 4096;
/// Those that one certificate may speak for: gateways of several hosts may share one.
const NODES_PER_CERTIFICATE_MAX: usize = 256;
/// Tenants of one bin that are told apart: with 120 bins, 20 MB.
const BIN_TENANTS_MAX: usize = 1024;
/// Tenants of the hour that are told apart.
const HOUR_TENANTS_MAX: usize = ACTIVITY_TENANTS_MAX - 1;
/// What all other tenants are called together. Gateways call them so, too.
const OTHER_TENANTS: &str = "other";

/// One life of a process. Several may have one name, by mistake or one after the other: each is
/// counted for itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeKey {
    role: ActivityRole,
    name: String,
    /// Whose certificate says so; empty: only the secret is known.
    certificate: String,
    life: u64,
}

/// Why a report was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportRefusal {
    #[error("a name has 1 to 128 bytes, and no control characters")]
    Name,
    #[error("{NODES_MAX} processes of this role report, as many as there may be")]
    Full,
    #[error(
        "{NODES_PER_CERTIFICATE_MAX} processes report by this certificate, as many as there may"
    )]
    CertificateFull,
    #[error("this report, or a later one, has been taken already")]
    Old,
}

struct NodeRecord {
    /// When this life was first heard of.
    since: LeaseInstant,
    at: LeaseInstant,
    last: NodeActivity,
    /// Since the report before, and how long that took; `None`: there was none of this life.
    recent: Option<NodePace>,
}

/// What a report is counted from.
struct ReportBase {
    last: NodeActivity,
    at: LeaseInstant,
}

/// What a process did between its last two reports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NodePace {
    pub(crate) counters: ActivityCounters,
    pub(crate) over: Duration,
}

/// What the whole cluster did within some time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ActivitySpan {
    pub(crate) counters: ActivityCounters,
    pub(crate) requests: LatencyCounts,
    pub(crate) store: LatencyCounts,
}

#[derive(Default)]
struct ActivityBin {
    /// Number of its start in units of [`BIN`].
    number: u64,
    span: ActivitySpan,
    tenants: BTreeMap<String, TenantActivity>,
}

/// The last hour.
pub(crate) struct ActivityHour {
    /// One per bin, the oldest first; `None`: nobody reported then.
    pub(crate) bins: Vec<Option<ActivitySpan>>,
    /// The sum of all.
    pub(crate) total: ActivitySpan,
    /// How much of the hour was seen.
    pub(crate) seen: Duration,
    /// Tenants, those with the most bytes first.
    pub(crate) tenants: Vec<TenantActivity>,
}

/// A process that reports.
pub(crate) struct NodeReport {
    /// Name in the certificate that it reports by; empty: it has none.
    pub(crate) certificate: String,
    pub(crate) last: NodeActivity,
    pub(crate) pace: Option<NodePace>,
    pub(crate) age: Duration,
    /// It owes reports. What it said last may not be so any more.
    pub(crate) is_silent: bool,
}

/// The reports of all processes, and the hour that they make up.
pub(crate) struct ActivityBoard {
    silent_after: Duration,
    /// When the first report came.
    since: Option<LeaseInstant>,
    /// When it was last looked who is to be forgotten.
    swept: LeaseInstant,
    nodes: BTreeMap<NodeKey, NodeRecord>,
    bins: VecDeque<ActivityBin>,
}

impl ActivityBoard {
    /// Makes a board for processes that report so often.
    pub(crate) fn new(report_every: Duration) -> Self {
        Self::silent_from((report_every * MISSED_MAX).max(SILENT_AFTER_MIN))
    }

    fn silent_from(silent_after: Duration) -> Self {
        Self {
            silent_after,
            since: None,
            swept: LeaseInstant::default(),
            nodes: BTreeMap::new(),
            bins: VecDeque::new(),
        }
    }

    /// Forgets everything.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self::silent_from(self.silent_after);
    }

    /// Takes a report of whoever has this certificate. The first one of a process counts for
    /// nothing: since when it has worked is not known.
    pub(crate) fn record_report(
        &mut self,
        certificate: &str,
        mut report: NodeActivity,
        now: LeaseInstant,
    ) -> Result<(), ReportRefusal> {
        trim_report(&mut report)?;
        self.since.get_or_insert(now);
        self.forget_nodes(now);
        let (name, certificate) = (report.name.clone(), certificate.to_owned());
        let key = NodeKey { role: report.role, name, certificate, life: report.life };
        match self.nodes.get(&key) {
            Some(before) if report.number <= before.last.number => return Err(ReportRefusal::Old),
            Some(_) => {}
            None => self.make_place(&key, now)?,
        }
        let since = self.nodes.get(&key).map_or(now, |before| before.since);
        let recent = self.take_base(&key, &report, now).map(|base| {
            let counters = report.counters.combine_each(base.last.counters, u64::saturating_sub);
            self.count_progress(&report, &base.last, counters, now);
            NodePace { counters, over: now.saturating_duration_since(base.at) }
        });
        // Of one that has left, no more is kept than what its old reports are known by.
        let NodeActivity { role, life, number, is_leaving, .. } = report;
        let last = match is_leaving {
            true => NodeActivity { role, life, number, is_leaving, ..NodeActivity::default() },
            false => report,
        };
        self.nodes.insert(key, NodeRecord { since, at: now, last, recent });
        Ok(())
    }

    /// Makes a place for one more. Those that are silent, or have left, give way.
    fn make_place(&mut self, key: &NodeKey, now: LeaseInstant) -> Result<(), ReportRefusal> {
        let Err(refusal) = self.check_places(key) else { return Ok(()) };
        let silent_after = self.silent_after;
        self.nodes.retain(|other, record| {
            let gives_way = match refusal {
                ReportRefusal::CertificateFull => other.certificate == key.certificate,
                _ => other.role == key.role,
            };
            !gives_way || age_of(record, now) <= silent_after
        });
        self.check_places(key)
    }

    fn check_places(&self, key: &NodeKey) -> Result<(), ReportRefusal> {
        let count = |which: fn(&NodeKey, &NodeKey) -> bool| {
            self.nodes.keys().filter(|other| which(other, key)).count()
        };
        let of_certificate = count(|other, key| other.certificate == key.certificate);
        if !key.certificate.is_empty() && of_certificate >= NODES_PER_CERTIFICATE_MAX {
            return Err(ReportRefusal::CertificateFull);
        }
        match count(|other, key| other.role == key.role) >= NODES_MAX {
            true => Err(ReportRefusal::Full),
            false => Ok(()),
        }
    }

    /// Takes out what a report is counted from: the one before it. A process that was started again
    /// counts from zero. `None`: nobody knows when it did what it has done.
    fn take_base(
        &mut self,
        key: &NodeKey,
        report: &NodeActivity,
        now: LeaseInstant,
    ) -> Option<ReportBase> {
        let silent_after = self.silent_after;
        if let Some(before) = self.nodes.remove(key) {
            let is_recent = age_of(&before, now) <= silent_after;
            return is_recent.then_some(ReportBase { last: before.last, at: before.at });
        }
        let before = self.lives_of(key).map(|record| record.at).max()?;
        let is_recent = now.saturating_duration_since(before) <= silent_after;
        // A later report of a life that was not known comes of another process of that name, which
        // may be years old.
        let is_restart = is_recent && report.number <= 1;
        is_restart.then(|| ReportBase { last: NodeActivity::default(), at: before })
    }

    /// Returns all lives that are known under this name.
    fn lives_of(&self, key: &NodeKey) -> impl Iterator<Item = &NodeRecord> {
        let from = NodeKey { life: 0, ..key.clone() };
        let to = NodeKey { life: u64::MAX, ..key.clone() };
        self.nodes.range(from..=to).map(|(_, record)| record)
    }

    fn count_progress(
        &mut self,
        report: &NodeActivity,
        base: &NodeActivity,
        counters: ActivityCounters,
        now: LeaseInstant,
    ) {
        let bin = self.bin_of(now);
        bin.span.counters = bin.span.counters.combine_each(counters, u64::saturating_add);
        bin.span.requests.add_progress(&report.request_seconds, &base.request_seconds);
        bin.span.store.add_progress(&report.store_seconds, &base.store_seconds);
        for tenant in &report.tenants {
            let known = base.tenants.iter().find(|known| known.name == tenant.name);
            let done = tenant_progress(tenant, known);
            if done == named_tenant(&done.name) {
                continue;
            }
            let has_place =
                bin.tenants.contains_key(&done.name) || bin.tenants.len() < BIN_TENANTS_MAX;
            let name = if has_place { done.name.as_str() } else { OTHER_TENANTS };
            let sum = bin.tenants.entry(name.to_owned()).or_insert_with(|| named_tenant(name));
            add_tenant(sum, &done);
        }
    }

    fn bin_of(&mut self, now: LeaseInstant) -> &mut ActivityBin {
        let number = bin_number(now);
        if self.bins.back().is_none_or(|bin| bin.number < number) {
            self.bins.push_back(ActivityBin { number, ..ActivityBin::default() });
        }
        let oldest = number.saturating_sub(BINS_MAX - 1);
        while self.bins.len() > 1 && self.bins.front().is_some_and(|bin| bin.number < oldest) {
            self.bins.pop_front();
        }
        let at = self.bins.len() - 1;
        &mut self.bins[at]
    }

    /// Returns the last hour.
    pub(crate) fn last_hour(&self, now: LeaseInstant) -> ActivityHour {
        let newest = bin_number(now);
        let oldest = newest.saturating_sub(BINS_MAX - 1);
        let mut bins: Vec<Option<ActivitySpan>> = (oldest..=newest).map(|_| None).collect();
        let mut total = ActivitySpan::default();
        let mut tenants: BTreeMap<&str, TenantActivity> = BTreeMap::new();
        let mut seen = Duration::ZERO;
        for bin in self.bins.iter().filter(|bin| (oldest..=newest).contains(&bin.number)) {
            total.counters = total.counters.combine_each(bin.span.counters, u64::saturating_add);
            total.requests.add_counts(&bin.span.requests);
            total.store.add_counts(&bin.span.store);
            seen += self.watched_of(bin.number, now);
            for (name, tenant) in &bin.tenants {
                add_tenant(tenants.entry(name).or_insert_with(|| named_tenant(name)), tenant);
            }
            let at = usize::try_from(bin.number - oldest).unwrap_or(usize::MAX);
            if let Some(place) = bins.get_mut(at) {
                *place = Some(bin.span.clone());
            }
        }
        let tenants = rank_tenants(tenants.into_values().collect());
        ActivityHour { bins, total, seen, tenants }
    }

    /// Returns how much of a bin has passed since the first report.
    fn watched_of(&self, number: u64, now: LeaseInstant) -> Duration {
        let began = LeaseInstant::from_nanos(number.saturating_mul(bin_nanos()));
        let from = self.since.map_or(began, |since| since.max(began));
        now.saturating_duration_since(from)
            .min(BIN - from.saturating_duration_since(began).min(BIN))
    }

    /// Returns the processes that have reported within the last hour and did not say goodbye, sorted
    /// by role and name.
    pub(crate) fn recent_reports(&self, now: LeaseInstant) -> Vec<NodeReport> {
        let is_shown = |key: &NodeKey, record: &NodeRecord| {
            let age = age_of(record, now);
            // Nobody misses a process that was started again.
            let is_replaced =
                || age > self.silent_after && self.lives_of(key).any(|life| life.since > record.at);
            age <= FORGOTTEN_AFTER && !record.last.is_leaving && !is_replaced()
        };
        let shown = self.nodes.iter().filter(|(key, record)| is_shown(key, record));
        let report = |(key, record): (&NodeKey, &NodeRecord)| NodeReport {
            certificate: key.certificate.clone(),
            last: record.last.clone(),
            pace: record.recent,
            age: age_of(record, now),
            is_silent: age_of(record, now) > self.silent_after,
        };
        shown.map(report).collect()
    }

    /// Returns the sum of what is so now at all processes, without those that are silent.
    pub(crate) fn current_gauges(&self, now: LeaseInstant) -> ActivityGauges {
        self.heard_nodes(now).fold(ActivityGauges::default(), |sum, record| {
            let ActivityGauges {
                fills_running,
                fills_waiting,
                hand_overs_left,
                memory_held,
                stores_cut_off,
            } = record.last.gauges;
            ActivityGauges {
                fills_running: sum.fills_running.saturating_add(fills_running),
                fills_waiting: sum.fills_waiting.saturating_add(fills_waiting),
                hand_overs_left: sum.hand_overs_left.saturating_add(hand_overs_left),
                memory_held: sum.memory_held.saturating_add(memory_held),
                stores_cut_off: sum.stores_cut_off.saturating_add(stores_cut_off),
            }
        })
    }

    /// Returns how many processes report.
    pub(crate) fn reporter_count(&self, now: LeaseInstant) -> usize {
        self.heard_nodes(now).count()
    }

    fn heard_nodes(&self, now: LeaseInstant) -> impl Iterator<Item = &NodeRecord> {
        let is_heard = move |record: &&NodeRecord| {
            !record.last.is_leaving && age_of(record, now) <= self.silent_after
        };
        self.nodes.values().filter(is_heard)
    }

    /// Now and then: there may be thousands.
    fn forget_nodes(&mut self, now: LeaseInstant) {
        if now.saturating_duration_since(self.swept) >= BIN {
            self.swept = now;
            self.nodes.retain(|_, record| is_remembered(record.at, now));
        }
    }
}

fn bin_number(now: LeaseInstant) -> u64 {
    now.as_nanos() / bin_nanos()
}

fn bin_nanos() -> u64 {
    u64::try_from(BIN.as_nanos()).unwrap_or(u64::MAX)
}

fn age_of(record: &NodeRecord, now: LeaseInstant) -> Duration {
    now.saturating_duration_since(record.at)
}

fn is_remembered(at: LeaseInstant, now: LeaseInstant) -> bool {
    now.saturating_duration_since(at) <= FORGOTTEN_AFTER
}

/// Bounds what a report may hold, and the memory that it takes.
fn trim_report(report: &mut NodeActivity) -> Result<(), ReportRefusal> {
    let fits = |name: &String| {
        (1..=ACTIVITY_NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
    };
    if !fits(&report.name) {
        return Err(ReportRefusal::Name);
    }
    report.transports.retain(|way| fits(&way.name));
    report.transports.truncate(ACTIVITY_WAYS_MAX);
    report.rails.retain(|rail| fits(&rail.name));
    report.rails.truncate(ACTIVITY_WAYS_MAX);
    report.tenants.retain(|tenant| fits(&tenant.name));
    report.tenants.truncate(ACTIVITY_TENANTS_MAX);
    report.request_seconds.truncate(latency_counts::BUCKETS_MAX);
    report.store_seconds.truncate(latency_counts::BUCKETS_MAX);
    // What was left out would take as much memory as before.
    report.transports.shrink_to_fit();
    report.rails.shrink_to_fit();
    report.tenants.shrink_to_fit();
    report.request_seconds.shrink_to_fit();
    report.store_seconds.shrink_to_fit();
    Ok(())
}

/// Sorts tenants by their bytes, those with the most first. The last ones are put together, in one
/// that comes after all.
fn rank_tenants(mut tenants: Vec<TenantActivity>) -> Vec<TenantActivity> {
    tenants.sort_by_key(|tenant| {
        let bytes = tenant.bytes_sent.saturating_add(tenant.bytes_received);
        std::cmp::Reverse((tenant.name != OTHER_TENANTS, bytes))
    });
    let is_named = |tenant: &&TenantActivity| tenant.name != OTHER_TENANTS;
    let named = tenants.iter().filter(is_named).count();
    let rest = tenants.split_off(named.min(HOUR_TENANTS_MAX));
    let mut other = named_tenant(OTHER_TENANTS);
    rest.iter().for_each(|tenant| add_tenant(&mut other, tenant));
    tenants.extend((!rest.is_empty()).then_some(other));
    tenants
}

fn named_tenant(name: &str) -> TenantActivity {
    TenantActivity { name: name.to_owned(), ..TenantActivity::default() }
}

fn tenant_progress(now: &TenantActivity, before: Option<&TenantActivity>) -> TenantActivity {
    let none = TenantActivity::default();
    let before = before.unwrap_or(&none);
    TenantActivity {
        name: now.name.clone(),
        requests: now.requests.saturating_sub(before.requests),
        bytes_sent: now.bytes_sent.saturating_sub(before.bytes_sent),
        bytes_received: now.bytes_received.saturating_sub(before.bytes_received),
        refusals: now.refusals.saturating_sub(before.refusals),
    }
}

fn add_tenant(sum: &mut TenantActivity, more: &TenantActivity) {
    sum.requests = sum.requests.saturating_add(more.requests);
    sum.bytes_sent = sum.bytes_sent.saturating_add(more.bytes_sent);
    sum.bytes_received = sum.bytes_received.saturating_add(more.bytes_received);
    sum.refusals = sum.refusals.saturating_add(more.refusals);
}

#[cfg(test)]
mod tests;

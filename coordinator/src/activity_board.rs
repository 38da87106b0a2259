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
/// Processes that are remembered: as many workers as there may be, and a gateway beside each.
const NODES_MAX: usize = 8192;

/// Name of a process: gateways and workers have names of their own.
type NodeKey = (ActivityRole, String);

/// Why a report was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportRefusal {
    #[error("a name has 1 to 128 bytes, and no control characters")]
    Name,
    #[error("{NODES_MAX} processes report, as many as there may be")]
    Full,
}

struct NodeRecord {
    at: LeaseInstant,
    last: NodeActivity,
    /// Since the report before, and how long that took; `None`: there was none of this life.
    recent: Option<NodePace>,
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

    /// Takes a report. The first one of a process counts for nothing: since when it has worked is
    /// not known.
    pub(crate) fn record_report(
        &mut self,
        mut report: NodeActivity,
        now: LeaseInstant,
    ) -> Result<(), ReportRefusal> {
        trim_report(&mut report)?;
        self.since.get_or_insert(now);
        self.forget_nodes(now);
        let key = (report.role, report.name.clone());
        let before = self.nodes.remove(&key);
        if before.is_none() && self.nodes.len() >= NODES_MAX {
            let silent_after = self.silent_after;
            self.nodes.retain(|_, record| age_of(record, now) <= silent_after);
            if self.nodes.len() >= NODES_MAX {
                return Err(ReportRefusal::Full);
            }
        }
        let before = before.filter(|before| age_of(before, now) <= self.silent_after);
        let recent = before.as_ref().map(|before| {
            // A process that was started again counts from zero.
            let unchanged = NodeActivity::default();
            let base = if before.last.life == report.life { &before.last } else { &unchanged };
            let counters = report.counters.combine_each(base.counters, u64::saturating_sub);
            self.count_progress(&report, base, counters, now);
            NodePace { counters, over: now.saturating_duration_since(before.at) }
        });
        if !report.is_leaving {
            self.nodes.insert(key, NodeRecord { at: now, last: report, recent });
        }
        Ok(())
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
            if done == (TenantActivity { name: done.name.clone(), ..TenantActivity::default() }) {
                continue;
            }
            if let Some(sum) = bin.tenants.get_mut(&done.name) {
                add_tenant(sum, &done);
            } else if bin.tenants.len() < ACTIVITY_TENANTS_MAX {
                bin.tenants.insert(done.name.clone(), done);
            }
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
                let sum = tenants.entry(name).or_insert_with(|| TenantActivity {
                    name: name.clone(),
                    ..TenantActivity::default()
                });
                add_tenant(sum, tenant);
            }
            let at = usize::try_from(bin.number - oldest).unwrap_or(usize::MAX);
            if let Some(place) = bins.get_mut(at) {
                *place = Some(bin.span.clone());
            }
        }
        let mut tenants: Vec<TenantActivity> = tenants.into_values().collect();
        tenants.sort_by_key(|tenant| {
            std::cmp::Reverse(tenant.bytes_sent.saturating_add(tenant.bytes_received))
        });
        tenants.truncate(ACTIVITY_TENANTS_MAX);
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
        let recent = self.nodes.values().filter(|record| is_remembered(record.at, now));
        let report = |record: &NodeRecord| NodeReport {
            last: record.last.clone(),
            pace: record.recent,
            age: age_of(record, now),
            is_silent: age_of(record, now) > self.silent_after,
        };
        recent.map(report).collect()
    }

    /// Returns the sum of what is so now at all processes, without those that are silent.
    pub(crate) fn current_gauges(&self, now: LeaseInstant) -> ActivityGauges {
        let heard = self.nodes.values().filter(|node| age_of(node, now) <= self.silent_after);
        heard.fold(ActivityGauges::default(), |sum, record| {
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
        self.nodes.values().filter(|node| age_of(node, now) <= self.silent_after).count()
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

/// Bounds what a report may hold.
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
    Ok(())
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

//! Owns the coordinator's metrics, declared once.

use prometheus::{IntCounter, IntCounterVec, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription};

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![CoordinatorMetrics::describe_table()]
}

/// A coordinator.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_coordinator")]
pub(crate) struct CoordinatorMetrics {
    /// 1 while this coordinator leads.
    pub(crate) leader: IntGauge,
    /// Elections that this coordinator has won.
    pub(crate) elections: IntCounter,
    /// Epoch of the placement map in force, as this coordinator knows it.
    pub(crate) epoch: IntGauge,
    /// Workers in the placement map in force.
    pub(crate) members: IntGauge,
    /// Workers that were in a map, went without a word, and neither came back nor were forgotten.
    pub(crate) workers_missing: IntGauge,
    /// Placement maps that this coordinator has brought into force.
    pub(crate) maps: IntCounter,
    /// Slots that got another owner by those maps.
    pub(crate) slots_moved: IntCounter,
    /// Workers that have a part of their share of the slots, since they join or are drained: it
    /// moves by a quarter at a time, in coordinator.move_for.
    pub(crate) moving: IntGauge,
    /// Requests to the API.
    #[metric(labels(route, status))]
    pub(crate) requests: IntCounterVec,
    /// Requests that did not prove the cluster's secret, or not in time.
    pub(crate) unproven: IntCounter,
    /// Proofs of requests that change something, remembered so that nobody uses them again; about
    /// 100 bytes each.
    pub(crate) proofs_kept: IntGauge,
    /// Writes and reads of the store that failed.
    pub(crate) store_failures: IntCounter,
    /// When the certificate that this coordinator shows etcd ends, in seconds since 1970; 0 without
    /// one. Of the start, as the certificate is.
    pub(crate) store_certificate_not_after: IntGauge,
    /// Times that a process followed a map that the store does not hold: it was emptied, or an older
    /// copy was put back.
    pub(crate) maps_lost: IntCounter,
    /// Blocks that several workers serve because they are read so much.
    pub(crate) hot_blocks: IntGauge,
    /// Those workers, without the blocks' owners.
    pub(crate) hot_replicas: IntGauge,
    /// Hot blocks that got no replica, because coordinator.hot.blocks_max have some.
    pub(crate) hot_left_out: IntGauge,
    /// Lists of hot blocks that this coordinator has told.
    pub(crate) hot_lists: IntCounter,
    /// Gateways and workers that report what they do, for the console.
    pub(crate) activity_reporters: IntGauge,
    /// Sessions of people who have signed in at the console.
    pub(crate) console_sessions: IntGauge,
    /// Open connections to the API.
    pub(crate) connections: IntGauge,
    /// Connections cut, by reason.
    #[metric(labels(reason))]
    pub(crate) connections_cut: MetricFamily<ApiConnectionCut, IntCounter>,
    /// Announcements and reports of gateways for workers that these can't reach, by outcome.
    #[metric(labels(outcome))]
    pub(crate) relays: MetricFamily<RelayResult, IntCounter>,
    /// Announcements and reports that wait for the worker to fetch or to answer them.
    pub(crate) relays_waiting: IntGauge,
    /// Memory that these take.
    pub(crate) relays_bytes: IntGauge,
}

/// Why a connection is cut.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum ApiConnectionCut {
    /// Nothing was proved in time.
    Unproven,
    /// Nothing was proved, and others wanted the place.
    Displaced,
}

/// What came of relaying an announcement or a report.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum RelayResult {
    Done,
    Unleased,
    Refused,
    OtherMap,
    NoLease,
    Silent,
    Full,
}

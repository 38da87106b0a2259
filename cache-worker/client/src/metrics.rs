//! Owns every metric of this crate, declared once, and the values of one tier client. Does not
//! serve them.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription};
use verbs3_protocol::{WorkerRequest, WriteNotice};
use verbs3_rdma::transport::TransportKind;

use crate::reading::bypass_reason::BypassReason;

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![TierMetrics::describe_table()]
}

/// A client of the workers.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_client")]
pub(crate) struct TierMetrics {
    /// Calls to workers by kind and outcome.
    #[metric(labels(kind, outcome))]
    pub(crate) calls: MetricFamily<(CallKind, CallOutcome), IntCounter>,
    /// Verified bytes from workers by transport.
    #[metric(labels(transport), from_zero)]
    pub(crate) bytes: MetricFamily<TransportKind, IntCounter>,
    /// Spans asked of a second worker because the first was silent.
    pub(crate) hedges: IntCounter,
    /// Spans that went on with another worker after a failure.
    pub(crate) failovers: IntCounter,
    /// Calls put to the same worker again because their connection broke, by kind.
    #[metric(labels(kind))]
    pub(crate) repeats: MetricFamily<CallKind, IntCounter>,
    /// Opens and spans that no worker answered, by reason: the gateway asks the UFS.
    #[metric(labels(reason))]
    pub(crate) bypasses: MetricFamily<BypassReason, IntCounter>,
    /// Reads that waited for memory of this process (`tier.memory_wait`).
    pub(crate) memory_waits: IntCounter,
    /// Opens that met a worker with another placement map, by outcome.
    #[metric(labels(outcome))]
    pub(crate) map_waits: MetricFamily<MapWaitOutcome, IntCounter>,
    /// Pieces whose bytes were not what was stored.
    pub(crate) checksum_failures: IntCounter,
    /// Rests that workers were given after failures.
    pub(crate) rests: IntCounter,
    /// Writes that a home could not be told of.
    pub(crate) announce_failures: IntCounter,
    /// Writes whose end a home could not be told.
    pub(crate) report_failures: IntCounter,
    /// Spans of hot blocks by whom they were given to.
    #[metric(labels(to), from_zero)]
    pub(crate) spread: MetricFamily<SpreadTarget, IntCounter>,
    /// Hot blocks whose reads are spread over several workers.
    pub(crate) hot_blocks: IntGauge,
    /// Announced writes that are not reported yet.
    pub(crate) writes_open: IntGauge,
    /// Tries to tell a home that can't be reached by way of the coordinators, by kind and outcome.
    #[metric(labels(kind, outcome))]
    pub(crate) relays: MetricFamily<(RelayedKind, RelayOutcome), IntCounter>,
    /// Opens that were answered by a lease, without asking the home, by kind.
    #[metric(labels(kind), from_zero)]
    pub(crate) leased: MetricFamily<LeasedOpenKind, IntCounter>,
    /// Leases on attributes and absences, by what became of them.
    #[metric(labels(event))]
    pub(crate) leases: MetricFamily<LeaseEvent, IntCounter>,
    /// Objects whose attributes are kept by a lease, or were within the last minute.
    #[metric("verbs3_client_leases")]
    pub(crate) leases_held: IntGauge,
    /// Opens that were answered with the bytes of a small object, which were held beside its lease.
    pub(crate) small_object_reads: IntCounter,
    /// Small objects that made room for others.
    pub(crate) small_object_evictions: IntCounter,
    /// Small objects whose bytes are in memory: held beside leases, or on their way to clients.
    #[metric("verbs3_client_small_objects")]
    pub(crate) small_objects: IntGauge,
    /// Memory that they take, of `gateway.tier.small_memory_max`.
    pub(crate) small_object_bytes: IntGauge,
    /// Spans that were answered with pages of a worker of this host that are kept here, without
    /// asking the worker.
    pub(crate) kept_page_reads: IntCounter,
    /// Spans that made room for others.
    pub(crate) kept_page_evictions: IntCounter,
    /// Bytes of such pages, of `gateway.tier.kept_pages_max`.
    pub(crate) kept_page_bytes: IntGauge,
    /// Homes that are polled for recalls of leases.
    pub(crate) lease_homes: IntGauge,
    /// Messages being told by way of the coordinators.
    pub(crate) relaying: IntGauge,
}

impl TierMetrics {
    pub(crate) fn count_call(&self, kind: CallKind, outcome: CallOutcome) {
        self.calls[(kind, outcome)].inc();
    }

    /// Counts one more bypass, and returns its reason.
    pub(crate) fn count_bypass(&self, reason: BypassReason) -> BypassReason {
        self.bypasses[reason].inc();
        reason
    }

    pub(crate) fn leases_recalled(&self) -> u64 {
        [LeaseEvent::Recalled, LeaseEvent::RecalledAll, LeaseEvent::Overtaken]
            .map(|event| self.leases[event].get())
            .iter()
            .sum()
    }
}

/// What a worker is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum CallKind {
    Open,
    Read,
    Announce,
    Report,
    Forget,
    Listed,
    GoneVersion,
    Warm,
    Look,
    Standing,
    Tend,
    Recalls,
    /// Asked by workers, which do not count it here.
    Holds,
    /// Asked by workers, which do not count it here.
    TakeOver,
    HeadList,
    Stage,
    Settle,
}

impl CallKind {
    pub(crate) fn of_request(request: &WorkerRequest) -> Self {
        match request {
            WorkerRequest::Open(_) => Self::Open,
            WorkerRequest::Read(_) => Self::Read,
            WorkerRequest::Announce(_) => Self::Announce,
            WorkerRequest::Report(_) => Self::Report,
            WorkerRequest::Forget(_) | WorkerRequest::ForgetPrefix(_) => Self::Forget,
            WorkerRequest::GoneVersion(_) => Self::GoneVersion,
            WorkerRequest::Listed(_) => Self::Listed,
            WorkerRequest::Recalls(_) => Self::Recalls,
            WorkerRequest::Standing => Self::Standing,
            WorkerRequest::Warm(_) => Self::Warm,
            WorkerRequest::Look(_) => Self::Look,
            WorkerRequest::Tend(_) => Self::Tend,
            WorkerRequest::Holds(_) => Self::Holds,
            WorkerRequest::TakeOver(_) => Self::TakeOver,
            WorkerRequest::HeadList(_) => Self::HeadList,
            WorkerRequest::Stage(_) => Self::Stage,
            WorkerRequest::Settle(_) => Self::Settle,
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum CallOutcome {
    Ok,
    Refused,
    Failed,
}

/// What came of waiting for another placement map.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum MapWaitOutcome {
    /// Answered after a wait.
    Agreed,
    /// Waited in vain.
    Late,
    /// Others had.
    Skipped,
}

/// Whom a span of a hot block was given to.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum SpreadTarget {
    Owner,
    Replica,
    /// The owner after a replica that did not have it.
    Back,
}

/// What the coordinators are asked to tell.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum RelayedKind {
    Announce,
    Report,
}

impl RelayedKind {
    pub(crate) fn of_notice(notice: &WriteNotice) -> Self {
        match notice {
            WriteNotice::Announce(_) => Self::Announce,
            WriteNotice::Report(_) => Self::Report,
        }
    }
}

/// What came of the coordinators' telling it.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum RelayOutcome {
    Done,
    Unleased,
    Refused,
    OtherMap,
    NoLease,
    Silent,
    Full,
    Away,
}

/// What an open is for.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum LeasedOpenKind {
    Head,
    Read,
    /// Of either, for an object that is absent.
    Absence,
}

/// What became of a lease on attributes.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum LeaseEvent {
    Granted,
    /// Recalled while its grant was under way.
    Overtaken,
    Recalled,
    /// Recalled all at once.
    RecalledAll,
}

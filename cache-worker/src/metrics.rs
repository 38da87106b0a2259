//! Every metric of a worker, declared once.
//!
//! Owns the values of one worker. Does not serve them. The arena's usage is a metric of `rdma`, and
//! the disk tier has a table of its own.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{
    MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription, TableFamily,
};

use crate::disk::DiskMetrics;
use crate::tenants::WorkerTenantMetrics;

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![WorkerMetrics::describe_table(), DiskMetrics::describe_table()]
}

/// The memory tier of a worker, and what it serves.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_worker")]
pub(crate) struct WorkerMetrics {
    /// Requests, by kind.
    #[metric(labels(request), from_zero)]
    pub(crate) requests: MetricFamily<CountedRequest, IntCounter>,
    /// Announcements and reports that came by way of the coordinators, by outcome; `requests_total`
    /// counts them, too.
    #[metric(labels(outcome), from_zero)]
    pub(crate) relayed: MetricFamily<RelayedOutcome, IntCounter>,
    /// 1 while this worker may answer for attributes from what it knows; always without a
    /// coordinator.
    pub(crate) leased: IntGauge,
    /// Requests refused, by what the asker was told.
    #[metric(labels(kind), from_zero)]
    pub(crate) refusals: MetricFamily<CountedRefusal, IntCounter>,

    /// Wanted pages, by how they were found.
    #[metric(labels(found), from_zero)]
    pub(crate) pages: MetricFamily<PageFound, IntCounter>,
    /// Pages asked of a UFS before any reader wanted them.
    pub(crate) pages_ahead: IntCounter,
    /// Parts of pages asked of a UFS for small reads, by why no page was.
    #[metric(labels(reason), from_zero)]
    pub(crate) parts_asked: MetricFamily<PartFillReason, IntCounter>,
    /// Bytes of the parts of pages asked of a UFS, by why no page was.
    #[metric(labels(reason), from_zero)]
    pub(crate) part_bytes_asked: MetricFamily<PartFillReason, IntCounter>,
    /// Pages that were made of their parts.
    pub(crate) pages_completed: IntCounter,
    /// Bytes of the pages that were made of their parts.
    pub(crate) page_bytes_completed: IntCounter,
    /// Pages whose fill was stopped because its readers had gone.
    pub(crate) pages_abandoned: IntCounter,
    /// Bytes answered, by the verdict on their request.
    #[metric(labels(verdict), from_zero)]
    pub(crate) served_bytes: MetricFamily<ServedVerdict, IntCounter>,

    /// Requests that fills and checks sent to a UFS.
    #[metric(labels(request), from_zero)]
    pub(crate) ufs_requests: MetricFamily<UfsRequestKind, IntCounter>,
    /// Blocks whose pages came by the request for an earlier block.
    pub(crate) blocks_continued: IntCounter,
    /// UFS reads that were ended before a further block, because nobody wanted it in time, or
    /// others waited for a turn.
    pub(crate) requests_cut: IntCounter,
    /// Body bytes taken from a UFS.
    pub(crate) filled_bytes: IntCounter,
    /// UFS reads under way.
    pub(crate) fills_in_flight: IntGauge,
    /// UFS reads, and checks of attributes, that wait for their turn.
    pub(crate) fills_queued: IntGauge,
    /// UFS reads that failed, for whatever reason of the UFS.
    pub(crate) fills_failed: IntCounter,

    /// Questions to former owners of a slot for pages, before the UFS is asked, by result.
    #[metric(labels(result), from_zero)]
    pub(crate) former_asked: MetricFamily<FormerResult, IntCounter>,
    /// Bytes of pages that a former owner gave to a new one.
    #[metric(labels(direction), from_zero)]
    pub(crate) former_bytes: MetricFamily<PageDirection, IntCounter>,
    /// Hot blocks of this worker that their new owners did not take over when it was drained.
    pub(crate) hand_overs_failed: IntCounter,
    /// Hot blocks that new owners have still to take over from this worker, which drains.
    pub(crate) hand_overs_left: IntGauge,
    /// Questions of this worker, as a replica of a hot block, to its owner for pages, by result.
    #[metric(labels(result), from_zero)]
    pub(crate) owner_asked: MetricFamily<OwnerResult, IntCounter>,
    /// Bytes of pages that this worker, as a replica of hot blocks, took from their owners.
    pub(crate) owner_bytes: IntCounter,

    /// What could not be done at once, by the bound that was met.
    #[metric(labels(reason), from_zero)]
    pub(crate) busy: MetricFamily<BusyReason, IntCounter>,
    /// Blocks being warmed.
    pub(crate) warms_in_flight: IntGauge,
    /// Bytes that warm-ups asked for: held already, or loaded for them.
    #[metric(labels(found), from_zero)]
    pub(crate) warmed_bytes: MetricFamily<WarmedFound, IntCounter>,
    /// Pages given up, by reason.
    #[metric(labels(reason), from_zero)]
    pub(crate) evictions: MetricFamily<EvictionReason, IntCounter>,
    /// Extents emptied to make room for another size of page.
    pub(crate) evacuations: IntCounter,

    /// Opens, by where their attributes came from.
    #[metric(labels(found), from_zero)]
    pub(crate) attributes: MetricFamily<AttributesFound, IntCounter>,
    /// Checks whose answer was not kept, because a write passed meanwhile.
    pub(crate) checks_moved: IntCounter,
    /// Objects whose attributes are being asked at a UFS.
    pub(crate) checks_in_flight: IntGauge,
    /// Opens answered with the UFS's word that there is no such object.
    pub(crate) absences: IntCounter,
    /// Keys whose attributes were made void, by an announcement, a report or an invalidation.
    pub(crate) generations_raised: IntCounter,
    /// Keys whose attributes or absence were dropped because a listing showed otherwise.
    pub(crate) listing_contradictions: IntCounter,
    /// Keys whose attributes were dropped because a reader found their version gone at the UFS.
    pub(crate) gone_versions: IntCounter,
    /// Leases on attributes of gateways, by what became of them.
    #[metric(labels(event), from_zero)]
    pub(crate) leases: MetricFamily<LeaseGrantEvent, IntCounter>,
    /// Leases on attributes that gateways may hold.
    pub(crate) leases_held: IntGauge,
    /// Gateways that poll for recalls of leases.
    pub(crate) lease_holders: IntGauge,
    /// Acknowledgements of writes and invalidations that waited for gateways to drop recalled
    /// leases.
    #[metric(labels(until), from_zero)]
    pub(crate) lease_waits: MetricFamily<LeaseWait, IntCounter>,
    /// Announced writes without a report.
    pub(crate) open_writes: IntGauge,
    /// Keys with a write that was lost sight of and may be completed yet: what is learnt of them is
    /// believed for worker.writes.doubt_age_max.
    pub(crate) doubts: IntGauge,
    /// Announced writes whose report never came.
    pub(crate) writes_expired: IntCounter,

    /// Pages held in memory.
    pub(crate) held_pages: IntGauge,
    /// Bytes of the pages held in memory.
    pub(crate) held_bytes: IntGauge,
    /// Parts of pages held in memory, besides the pages.
    pub(crate) held_parts: IntGauge,
    /// Bytes of the parts held in memory, besides those of the pages.
    pub(crate) held_part_bytes: IntGauge,
    /// Pages of writes that were taken from gateways, by what became of them.
    #[metric(labels(end), from_zero)]
    pub(crate) staged_pages: MetricFamily<StagedEnd, IntCounter>,
    /// Bytes of pages of writes that are not over yet, and of those on their way here.
    pub(crate) staged_bytes: IntGauge,
    /// The configured bound on them: worker.populate.staged_max.
    pub(crate) staged_bytes_max: IntGauge,
    /// Attributes and absences held.
    pub(crate) attributes_entries: IntGauge,

    pub(crate) tenants: TableFamily<WorkerTenantMetrics>,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum CountedRequest {
    Open,
    Read,
    Announce,
    Report,
    Forget,
    Listed,
    Warm,
    ReadHeld,
    TakeOver,
    Holds,
    ReadReplica,
    Recalls,
    HeadList,
    Stage,
    Settle,
}

/// What became of a word of the coordinators.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum RelayedOutcome {
    Done,
    Unleased,
    Refused,
}

/// What an asker was told.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum CountedRefusal {
    Uncertain,
    Busy,
    Uncacheable,
    VersionGone,
    Ufs,
    UfsUnreachable,
    UnknownVolume,
    Geometry,
    Epoch,
    NoLease,
    NotHeld,
    Malformed,
    Denied,
}

/// How a wanted page was found.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum PageFound {
    /// In memory.
    Hit,
    /// On disk.
    Disk,
    /// Being filled for another reader.
    Joined,
    /// Absent.
    Missed,
}

/// Why parts of a page were filled.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum PartFillReason {
    /// A small read wants these alone.
    Alone,
    /// With them the page is whole.
    Rest,
}

/// The verdict on a request.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum ServedVerdict {
    Hit,
    Partial,
    Miss,
}

/// What a UFS was asked for.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum UfsRequestKind {
    Get,
    Head,
}

/// What a former owner gave.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum FormerResult {
    All,
    Some,
    None,
    Busy,
    Resting,
    Silent,
    Failed,
    Corrupt,
}

/// At which worker bytes are counted.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum PageDirection {
    /// At the new owner.
    Taken,
    /// At the former one, with those given to replicas of hot blocks.
    Given,
}

/// What the owner of a hot block gave.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum OwnerResult {
    All,
    Some,
    None,
    Failed,
}

/// The bound that was met.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum BusyReason {
    Memory,
    FillsQueued,
    FillWait,
    Warm,
    Checks,
    OpenWrites,
    LeaseHolders,
    UfsRequests,
    Staged,
}

/// What became of a page that a gateway has pushed.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum StagedEnd {
    /// It belongs to a version now, and is read like any other.
    Committed,
    /// Its place in the object was not that of a whole page.
    Misplaced,
    /// The gateway gave it up.
    Discarded,
    /// Nobody settled it in time.
    Expired,
    /// Its memory was needed.
    Room,
    /// Its bytes were not those of its checksum.
    Corrupt,
}

/// How a warm-up found its bytes.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum WarmedFound {
    Held,
    Loaded,
}

/// Why a page was given up.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum EvictionReason {
    Room,
    Evacuation,
    Idle,
    Asked,
}

/// Where the attributes of an open came from.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum AttributesFound {
    Cached,
    Joined,
    Checked,
}

/// What became of a lease on attributes.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum LeaseGrantEvent {
    Granted,
    /// Refused for want of a place.
    Full,
    /// The key was written or made void.
    Recalled,
}

/// How long an acknowledgement waited.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum LeaseWait {
    /// All that waited.
    Any,
    /// Those of them that waited until the leases were over.
    End,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_metric_registers_once() {
        let registry = prometheus::Registry::new();
        WorkerMetrics::new(&registry).unwrap().tenants.select_table("a");
        let mut shown: Vec<_> = registry.gather().iter().map(|f| f.name().to_owned()).collect();
        let table = WorkerMetrics::describe_table();
        let mut described: Vec<_> = table.metrics.iter().map(|metric| metric.name).collect();
        shown.sort();
        described.sort_unstable();
        assert_eq!(shown, described);
    }
}

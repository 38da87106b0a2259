//! Every metric of a worker: name, labels and meaning in one table.
//!
//! Owns the values of one worker and registers them. Does not serve them. The arena's usage is a
//! metric of `rdma`.

use prometheus::{IntCounter, IntGauge, Opts, Registry, Result as PrometheusResult};

macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, [$($label:literal = $value:literal),*], $help:literal;)*) => {
        /// The metrics of one worker, one field for each name and label value. Clones share the
        /// values.
        #[derive(Clone)]
        pub(crate) struct WorkerMetrics { $(#[doc = $help] pub(crate) $field: $kind,)* }

        impl WorkerMetrics {
            /// Creates all metrics and registers them.
            pub(crate) fn new(registry: &Registry) -> PrometheusResult<Self> {
                let metrics = Self {
                    $($field: $kind::with_opts(Opts::new($name, $help)$(.const_label($label, $value))*)?,)*
                };
                $(registry.register(Box::new(metrics.$field.clone()))?;)*
                Ok(metrics)
            }
        }

        /// Name, labels and meaning of every metric, for the documentation and its test. A metric
        /// appears once for each value of its label.
        pub const TABLE: &[(&str, &[&str], &str)] = &[$(($name, &[$($label),*], $help)),*];
    };
}

table! {
    opens: IntCounter, "verbs3_worker_requests_total", ["request" = "open"], "Requests, by kind.";
    reads: IntCounter, "verbs3_worker_requests_total", ["request" = "read"], "Requests, by kind.";
    announces: IntCounter, "verbs3_worker_requests_total", ["request" = "announce"],
        "Requests, by kind.";
    reports: IntCounter, "verbs3_worker_requests_total", ["request" = "report"],
        "Requests, by kind.";
    heard_done: IntCounter, "verbs3_worker_relayed_total", ["outcome" = "done"],
        "Announcements and reports that came by way of the coordinators, by outcome; \
        `requests_total` counts them, too.";
    heard_unleased: IntCounter, "verbs3_worker_relayed_total", ["outcome" = "unleased"],
        "Announcements and reports that came by way of the coordinators, by outcome; \
        `requests_total` counts them, too.";
    heard_refused: IntCounter, "verbs3_worker_relayed_total", ["outcome" = "refused"],
        "Announcements and reports that came by way of the coordinators, by outcome; \
        `requests_total` counts them, too.";
    leased: IntGauge, "verbs3_worker_leased", [],
        "1 while this worker may answer for attributes from what it knows; always without a \
        coordinator.";
    forgets: IntCounter, "verbs3_worker_requests_total", ["request" = "forget"],
        "Requests, by kind.";
    listings: IntCounter, "verbs3_worker_requests_total", ["request" = "listed"],
        "Requests, by kind.";

    warms: IntCounter, "verbs3_worker_requests_total", ["request" = "warm"], "Requests, by kind.";

    refused_uncertain: IntCounter, "verbs3_worker_refusals_total", ["kind" = "uncertain"],
        "Requests refused, by what the asker was told.";
    refused_busy: IntCounter, "verbs3_worker_refusals_total", ["kind" = "busy"],
        "Requests refused, by what the asker was told.";
    refused_uncacheable: IntCounter, "verbs3_worker_refusals_total", ["kind" = "uncacheable"],
        "Requests refused, by what the asker was told.";
    refused_version_gone: IntCounter, "verbs3_worker_refusals_total", ["kind" = "version_gone"],
        "Requests refused, by what the asker was told.";
    refused_ufs: IntCounter, "verbs3_worker_refusals_total", ["kind" = "ufs"],
        "Requests refused, by what the asker was told.";
    refused_unreachable: IntCounter, "verbs3_worker_refusals_total", ["kind" = "ufs_unreachable"],
        "Requests refused, by what the asker was told.";
    refused_volume: IntCounter, "verbs3_worker_refusals_total", ["kind" = "unknown_volume"],
        "Requests refused, by what the asker was told.";
    refused_geometry: IntCounter, "verbs3_worker_refusals_total", ["kind" = "geometry"],
        "Requests refused, by what the asker was told.";
    refused_epoch: IntCounter, "verbs3_worker_refusals_total", ["kind" = "epoch"],
        "Requests refused, by what the asker was told.";
    refused_lease: IntCounter, "verbs3_worker_refusals_total", ["kind" = "no_lease"],
        "Requests refused, by what the asker was told.";
    refused_not_held: IntCounter, "verbs3_worker_refusals_total", ["kind" = "not_held"],
        "Requests refused, by what the asker was told.";
    refused_malformed: IntCounter, "verbs3_worker_refusals_total", ["kind" = "malformed"],
        "Requests refused, by what the asker was told.";

    pages_hit: IntCounter, "verbs3_worker_pages_total", ["found" = "hit"],
        "Wanted pages, by how they were found: in memory (hit), on disk (disk), being filled for \
        another reader (joined), or absent (missed).";
    pages_on_disk: IntCounter, "verbs3_worker_pages_total", ["found" = "disk"],
        "Wanted pages, by how they were found: in memory (hit), on disk (disk), being filled for \
        another reader (joined), or absent (missed).";
    pages_joined: IntCounter, "verbs3_worker_pages_total", ["found" = "joined"],
        "Wanted pages, by how they were found: in memory (hit), on disk (disk), being filled for \
        another reader (joined), or absent (missed).";
    pages_missed: IntCounter, "verbs3_worker_pages_total", ["found" = "missed"],
        "Wanted pages, by how they were found: in memory (hit), on disk (disk), being filled for \
        another reader (joined), or absent (missed).";
    pages_ahead: IntCounter, "verbs3_worker_pages_ahead_total", [],
        "Pages asked of a UFS before any reader wanted them.";
    pages_abandoned: IntCounter, "verbs3_worker_pages_abandoned_total", [],
        "Pages whose fill was stopped because its readers had gone.";

    served_hit: IntCounter, "verbs3_worker_served_bytes_total", ["verdict" = "hit"],
        "Bytes answered, by the verdict on their request.";
    served_partial: IntCounter, "verbs3_worker_served_bytes_total", ["verdict" = "partial"],
        "Bytes answered, by the verdict on their request.";
    served_miss: IntCounter, "verbs3_worker_served_bytes_total", ["verdict" = "miss"],
        "Bytes answered, by the verdict on their request.";

    ufs_gets: IntCounter, "verbs3_worker_ufs_requests_total", ["request" = "get"],
        "Requests that fills and checks sent to a UFS.";
    ufs_heads: IntCounter, "verbs3_worker_ufs_requests_total", ["request" = "head"],
        "Requests that fills and checks sent to a UFS.";
    filled_bytes: IntCounter, "verbs3_worker_filled_bytes_total", [],
        "Body bytes taken from a UFS.";
    fills_in_flight: IntGauge, "verbs3_worker_fills_in_flight", [], "UFS reads under way.";
    fills_queued: IntGauge, "verbs3_worker_fills_queued", [], "UFS reads that wait for their turn.";
    fills_failed: IntCounter, "verbs3_worker_fills_failed_total", [],
        "UFS reads that failed, for whatever reason of the UFS.";

    held_reads: IntCounter, "verbs3_worker_requests_total", ["request" = "read_held"],
        "Requests, by kind.";
    take_overs: IntCounter, "verbs3_worker_requests_total", ["request" = "take_over"], "Requests, by kind.";
    holds: IntCounter, "verbs3_worker_requests_total", ["request" = "holds"], "Requests, by kind.";
    former_all: IntCounter, "verbs3_worker_former_asked_total", ["result" = "all"],
        "Questions to former owners of a slot for pages, before the UFS is asked, by result.";
    former_some: IntCounter, "verbs3_worker_former_asked_total", ["result" = "some"],
        "Questions to former owners of a slot for pages, before the UFS is asked, by result.";
    former_none: IntCounter, "verbs3_worker_former_asked_total", ["result" = "none"],
        "Questions to former owners of a slot for pages, before the UFS is asked, by result.";
    former_busy: IntCounter, "verbs3_worker_former_asked_total", ["result" = "busy"],
        "Questions to former owners of a slot for pages, before the UFS is asked, by result.";
    former_resting: IntCounter, "verbs3_worker_former_asked_total", ["result" = "resting"],
        "Questions to former owners of a slot for pages, before the UFS is asked, by result.";
    former_silent: IntCounter, "verbs3_worker_former_asked_total", ["result" = "silent"],
        "Questions to former owners of a slot for pages, before the UFS is asked, by result.";
    former_failed: IntCounter, "verbs3_worker_former_asked_total", ["result" = "failed"],
        "Questions to former owners of a slot for pages, before the UFS is asked, by result.";
    former_corrupt: IntCounter, "verbs3_worker_former_asked_total", ["result" = "corrupt"],
        "Questions to former owners of a slot for pages, before the UFS is asked, by result.";
    former_bytes: IntCounter, "verbs3_worker_former_bytes_total", ["direction" = "taken"],
        "Bytes of pages that a former owner gave to a new one, at the one (given, with those given \
        to replicas of hot blocks) and at the other (taken).";
    hand_overs_failed: IntCounter, "verbs3_worker_hand_overs_failed_total", [],
        "Hot blocks of this worker that their new owners did not take over when it was drained.";
    hand_overs_left: IntGauge, "verbs3_worker_hand_overs_left", [],
        "Hot blocks that new owners have still to take over from this worker, which drains.";
    given_bytes: IntCounter, "verbs3_worker_former_bytes_total", ["direction" = "given"],
        "Bytes of pages that a former owner gave to a new one, at the one (given, with those given \
        to replicas of hot blocks) and at the other (taken).";

    replica_reads: IntCounter, "verbs3_worker_requests_total", ["request" = "read_replica"],
        "Requests, by kind.";
    owner_all: IntCounter, "verbs3_worker_owner_asked_total", ["result" = "all"],
        "Questions of this worker, as a replica of a hot block, to its owner for pages, by result.";
    owner_some: IntCounter, "verbs3_worker_owner_asked_total", ["result" = "some"],
        "Questions of this worker, as a replica of a hot block, to its owner for pages, by result.";
    owner_none: IntCounter, "verbs3_worker_owner_asked_total", ["result" = "none"],
        "Questions of this worker, as a replica of a hot block, to its owner for pages, by result.";
    owner_failed: IntCounter, "verbs3_worker_owner_asked_total", ["result" = "failed"],
        "Questions of this worker, as a replica of a hot block, to its owner for pages, by result.";
    owner_bytes: IntCounter, "verbs3_worker_owner_bytes_total", [],
        "Bytes of pages that this worker, as a replica of hot blocks, took from their owners.";

    busy_memory: IntCounter, "verbs3_worker_busy_total", ["reason" = "memory"],
        "What could not be done at once, by the bound that was met.";
    busy_queue: IntCounter, "verbs3_worker_busy_total", ["reason" = "fills_queued"],
        "What could not be done at once, by the bound that was met.";
    busy_wait: IntCounter, "verbs3_worker_busy_total", ["reason" = "fill_wait"],
        "What could not be done at once, by the bound that was met.";
    busy_warm: IntCounter, "verbs3_worker_busy_total", ["reason" = "warm"],
        "What could not be done at once, by the bound that was met.";
    busy_checks: IntCounter, "verbs3_worker_busy_total", ["reason" = "checks"],
        "What could not be done at once, by the bound that was met.";
    busy_writes: IntCounter, "verbs3_worker_busy_total", ["reason" = "open_writes"],
        "What could not be done at once, by the bound that was met.";
    busy_holders: IntCounter, "verbs3_worker_busy_total", ["reason" = "lease_holders"],
        "What could not be done at once, by the bound that was met.";
    busy_ufs: IntCounter, "verbs3_worker_busy_total", ["reason" = "ufs_requests"],
        "What could not be done at once, by the bound that was met.";

    warms_in_flight: IntGauge, "verbs3_worker_warms_in_flight", [], "Blocks being warmed.";
    warm_held: IntCounter, "verbs3_worker_warmed_bytes_total", ["found" = "held"],
        "Bytes that warm-ups asked for: held already, or loaded for them.";
    warm_loaded: IntCounter, "verbs3_worker_warmed_bytes_total", ["found" = "loaded"],
        "Bytes that warm-ups asked for: held already, or loaded for them.";

    evictions_room: IntCounter, "verbs3_worker_evictions_total", ["reason" = "room"],
        "Pages given up, by reason.";
    evictions_evacuation: IntCounter, "verbs3_worker_evictions_total", ["reason" = "evacuation"],
        "Pages given up, by reason.";
    evictions_idle: IntCounter, "verbs3_worker_evictions_total", ["reason" = "idle"],
        "Pages given up, by reason.";
    evictions_asked: IntCounter, "verbs3_worker_evictions_total", ["reason" = "asked"],
        "Pages given up, by reason.";
    evacuations: IntCounter, "verbs3_worker_evacuations_total", [],
        "Extents emptied to make room for another size of page.";

    attributes_hits: IntCounter, "verbs3_worker_attributes_total", ["found" = "cached"],
        "Opens, by where their attributes came from.";
    attributes_joined: IntCounter, "verbs3_worker_attributes_total", ["found" = "joined"],
        "Opens, by where their attributes came from.";
    attributes_checked: IntCounter, "verbs3_worker_attributes_total", ["found" = "checked"],
        "Opens, by where their attributes came from.";
    checks_moved: IntCounter, "verbs3_worker_checks_moved_total", [],
        "Checks whose answer was not kept, because a write passed meanwhile.";
    checks_in_flight: IntGauge, "verbs3_worker_checks_in_flight", [],
        "Objects whose attributes are being asked at a UFS.";
    absences: IntCounter, "verbs3_worker_absences_total", [],
        "Opens answered with the UFS's word that there is no such object.";
    generations_raised: IntCounter, "verbs3_worker_generations_raised_total", [],
        "Keys whose attributes were made void, by an announcement, a report or an invalidation.";
    listing_contradictions: IntCounter, "verbs3_worker_listing_contradictions_total", [],
        "Keys whose attributes or absence were dropped because a listing showed otherwise.";
    gone_versions: IntCounter, "verbs3_worker_gone_versions_total", [],
        "Keys whose attributes were dropped because a reader found their version gone at the UFS.";
    recalls: IntCounter, "verbs3_worker_requests_total", ["request" = "recalls"],
        "Requests, by kind.";
    leases_granted: IntCounter, "verbs3_worker_leases_total", ["event" = "granted"],
        "Leases on attributes of gateways, by what became of them: granted, refused for want of a \
        place (full), recalled because the key was written or made void.";
    leases_full: IntCounter, "verbs3_worker_leases_total", ["event" = "full"],
        "Leases on attributes of gateways, by what became of them: granted, refused for want of a \
        place (full), recalled because the key was written or made void.";
    leases_recalled: IntCounter, "verbs3_worker_leases_total", ["event" = "recalled"],
        "Leases on attributes of gateways, by what became of them: granted, refused for want of a \
        place (full), recalled because the key was written or made void.";
    leases_held: IntGauge, "verbs3_worker_leases_held", [],
        "Leases on attributes that gateways may hold.";
    lease_holders: IntGauge, "verbs3_worker_lease_holders", [],
        "Gateways that poll for recalls of leases.";
    lease_waits: IntCounter, "verbs3_worker_lease_waits_total", ["until" = "any"],
        "Acknowledgements of writes and invalidations that waited for gateways to drop recalled \
        leases (any), and those of them that waited until the leases were over (end).";
    leases_waited_out: IntCounter, "verbs3_worker_lease_waits_total", ["until" = "end"],
        "Acknowledgements of writes and invalidations that waited for gateways to drop recalled \
        leases (any), and those of them that waited until the leases were over (end).";
    open_writes: IntGauge, "verbs3_worker_open_writes", [], "Announced writes without a report.";
    doubts: IntGauge, "verbs3_worker_doubts", [],
        "Keys with a write that was lost sight of and may be completed yet: what is learnt of them \
        is believed for worker.writes.doubt_age_max.";
    writes_expired: IntCounter, "verbs3_worker_writes_expired_total", [],
        "Announced writes whose report never came.";

    held_pages: IntGauge, "verbs3_worker_held_pages", [], "Pages held in memory.";
    held_bytes: IntGauge, "verbs3_worker_held_bytes", [], "Bytes of the pages held in memory.";
    attributes_entries: IntGauge, "verbs3_worker_attributes_entries", [],
        "Attributes and absences held.";
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_metric_registers_once() {
        let registry = Registry::new();
        WorkerMetrics::new(&registry).unwrap();
        let shown: usize = registry.gather().iter().map(|family| family.get_metric().len()).sum();
        assert_eq!(shown, TABLE.len());
    }
}

//! The coordinator's metrics. `METRICS.md` lists them.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Name, labels, meaning.
pub type CoordinatorMetricRow = (&'static str, &'static [&'static str], &'static str);

/// Every metric of the coordinator. `METRICS.md` and its test are made from this table.
pub const TABLE: &[CoordinatorMetricRow] = &[
    ("verbs3_coordinator_leader", &[], "1 while this coordinator leads"),
    ("verbs3_coordinator_elections_total", &[], "Elections that this coordinator has won"),
    (
        "verbs3_coordinator_epoch",
        &[],
        "Epoch of the placement map in force, as this coordinator knows it",
    ),
    ("verbs3_coordinator_members", &[], "Workers in the placement map in force"),
    (
        "verbs3_coordinator_workers_missing",
        &[],
        "Workers that were in a map, went without a word, and neither came back nor were forgotten",
    ),
    (
        "verbs3_coordinator_maps_total",
        &[],
        "Placement maps that this coordinator has brought into force",
    ),
    ("verbs3_coordinator_slots_moved_total", &[], "Slots that got another owner by those maps"),
    (
        "verbs3_coordinator_moving",
        &[],
        "Workers that have a part of their share of the slots, since they join or are drained: it \
        moves by a quarter at a time, in coordinator.move_for",
    ),
    ("verbs3_coordinator_requests_total", &["route", "status"], "Requests to the API"),
    (
        "verbs3_coordinator_unproven_total",
        &[],
        "Requests that did not prove the cluster's secret, or not in time",
    ),
    (
        "verbs3_coordinator_proofs_kept",
        &[],
        "Proofs of requests that change something, remembered so that nobody uses them again; \
        about 100 bytes each",
    ),
    ("verbs3_coordinator_store_failures_total", &[], "Writes and reads of the store that failed"),
    (
        "verbs3_coordinator_hot_blocks",
        &[],
        "Blocks that several workers serve because they are read so much",
    ),
    ("verbs3_coordinator_hot_replicas", &[], "Those workers, without the blocks' owners"),
    (
        "verbs3_coordinator_hot_left_out",
        &[],
        "Hot blocks that got no replica, because coordinator.hot.blocks_max have some",
    ),
    (
        "verbs3_coordinator_hot_lists_total",
        &[],
        "Lists of hot blocks that this coordinator has told",
    ),
    ("verbs3_coordinator_connections", &[], "Open connections to the API"),
    (
        "verbs3_coordinator_connections_cut_total",
        &["reason"],
        "Connections cut, by reason: unproven (nothing was proved in time), displaced (the same, \
        and others wanted the place)",
    ),
    (
        "verbs3_coordinator_relays_total",
        &["outcome"],
        "Announcements and reports of gateways for workers that these can't reach, by outcome \
        (done, unleased, refused, other_map, no_lease, silent, full)",
    ),
    (
        "verbs3_coordinator_relays_waiting",
        &[],
        "Those that wait for the worker to fetch or to answer them",
    ),
    ("verbs3_coordinator_relays_bytes", &[], "Memory that these take"),
];

#[derive(Clone)]
pub(crate) struct CoordinatorMetrics {
    pub(crate) leader: IntGauge,
    pub(crate) elections: IntCounter,
    pub(crate) epoch: IntGauge,
    pub(crate) members: IntGauge,
    pub(crate) workers_missing: IntGauge,
    pub(crate) maps: IntCounter,
    pub(crate) slots_moved: IntCounter,
    pub(crate) moving: IntGauge,
    pub(crate) requests: IntCounterVec,
    pub(crate) unproven: IntCounter,
    pub(crate) proofs_kept: IntGauge,
    pub(crate) store_failures: IntCounter,
    pub(crate) connections: IntGauge,
    pub(crate) connections_cut: IntCounterVec,
    pub(crate) relays: IntCounterVec,
    pub(crate) relays_waiting: IntGauge,
    pub(crate) relays_bytes: IntGauge,
    pub(crate) hot_blocks: IntGauge,
    pub(crate) hot_replicas: IntGauge,
    pub(crate) hot_left_out: IntGauge,
    pub(crate) hot_lists: IntCounter,
}

impl CoordinatorMetrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = |name: &str| {
            let row = TABLE.iter().find(|(known, ..)| *known == name);
            let (name, _, help) =
                row.ok_or_else(|| prometheus::Error::Msg(format!("{name} is not in the table")))?;
            Ok::<_, prometheus::Error>(Opts::new(*name, *help))
        };
        let counter = |name: &str| {
            let made = IntCounter::with_opts(opts(name)?)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let gauge = |name: &str| {
            let made = IntGauge::with_opts(opts(name)?)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let requests =
            IntCounterVec::new(opts("verbs3_coordinator_requests_total")?, &["route", "status"])?;
        registry.register(Box::new(requests.clone()))?;
        let relays = IntCounterVec::new(opts("verbs3_coordinator_relays_total")?, &["outcome"])?;
        registry.register(Box::new(relays.clone()))?;
        let connections_cut =
            IntCounterVec::new(opts("verbs3_coordinator_connections_cut_total")?, &["reason"])?;
        registry.register(Box::new(connections_cut.clone()))?;
        Ok(Self {
            leader: gauge("verbs3_coordinator_leader")?,
            elections: counter("verbs3_coordinator_elections_total")?,
            epoch: gauge("verbs3_coordinator_epoch")?,
            members: gauge("verbs3_coordinator_members")?,
            workers_missing: gauge("verbs3_coordinator_workers_missing")?,
            maps: counter("verbs3_coordinator_maps_total")?,
            slots_moved: counter("verbs3_coordinator_slots_moved_total")?,
            moving: gauge("verbs3_coordinator_moving")?,
            requests,
            unproven: counter("verbs3_coordinator_unproven_total")?,
            proofs_kept: gauge("verbs3_coordinator_proofs_kept")?,
            store_failures: counter("verbs3_coordinator_store_failures_total")?,
            connections: gauge("verbs3_coordinator_connections")?,
            connections_cut,
            relays,
            relays_waiting: gauge("verbs3_coordinator_relays_waiting")?,
            relays_bytes: gauge("verbs3_coordinator_relays_bytes")?,
            hot_blocks: gauge("verbs3_coordinator_hot_blocks")?,
            hot_replicas: gauge("verbs3_coordinator_hot_replicas")?,
            hot_left_out: gauge("verbs3_coordinator_hot_left_out")?,
            hot_lists: counter("verbs3_coordinator_hot_lists_total")?,
        })
    }
}

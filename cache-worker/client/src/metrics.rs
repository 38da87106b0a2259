//! Owns every metric of this crate: name, labels and meaning in one table.
//!
//! Owns the values of one tier client. Does not serve them.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry, Result as PrometheusResult};
use verbs3_rdma::transport::TransportKind;

macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        /// One value for each row.
        struct TierMetricRows { $($field: $kind,)* }

        impl TierMetricRows {
            fn new(registry: &Registry) -> PrometheusResult<Self> {
                let rows = Self { $($field: table!(@make $kind, $name, [$($label),*], $help)?,)* };
                $(registry.register(Box::new(rows.$field.clone()))?;)*
                Ok(rows)
            }
        }

        /// Name, labels and meaning of every metric, for the documentation and its test.
        pub const TABLE: &[(&str, &[&str], &str)] = &[$(($name, &[$($label),*], $help)),*];
    };
    (@make IntCounterVec, $name:literal, [$($label:literal),*], $help:literal) => {
        IntCounterVec::new(Opts::new($name, $help), &[$($label),*])
    };
    (@make $kind:ident, $name:literal, [], $help:literal) => { $kind::new($name, $help) };
}

table! {
    calls: IntCounterVec, "verbs3_client_calls_total", ["kind", "outcome"],
        "Calls to workers by kind (open, read, announce, report, forget, listed, warm, standing, \
        tend, recalls) and outcome (ok, refused, failed, dropped).";
    bytes: IntCounterVec, "verbs3_client_bytes_total", ["transport"],
        "Verified bytes from workers by transport.";
    hedges: IntCounter, "verbs3_client_hedges_total", [],
        "Spans asked of a replica because the owner was silent.";
    failovers: IntCounter, "verbs3_client_failovers_total", [],
        "Spans that went on with another worker after a failure.";
    repeats: IntCounterVec, "verbs3_client_repeats_total", ["kind"],
        "Calls put to the same worker again because their connection broke, by kind.";
    bypasses: IntCounterVec, "verbs3_client_bypasses_total", ["reason"],
        "Reads sent to the UFS by reason.";
    map_waits: IntCounterVec, "verbs3_client_map_waits_total", ["outcome"],
        "Opens that met a worker with another placement map, by outcome: agreed (answered after a \
        wait), late (waited in vain), skipped (others had).";
    checksum_failures: IntCounter, "verbs3_client_checksum_failures_total", [],
        "Pieces whose bytes were not what was stored.";
    rests: IntCounter, "verbs3_client_rests_total", [],
        "Rests that workers were given after failures.";
    announce_failures: IntCounter, "verbs3_client_announce_failures_total", [],
        "Writes that a home could not be told of.";
    report_failures: IntCounter, "verbs3_client_report_failures_total", [],
        "Writes whose end a home could not be told.";
    spread: IntCounterVec, "verbs3_client_spread_total", ["to"],
        "Spans of hot blocks by whom they were given to: the owner, a replica, or the owner after \
        a replica that did not have them (back).";
    hot_blocks: IntGauge, "verbs3_client_hot_blocks", [],
        "Hot blocks whose reads are spread over several workers.";
    writes_open: IntGauge, "verbs3_client_writes_open", [],
        "Announced writes that are not reported yet.";
    relays: IntCounterVec, "verbs3_client_relays_total", ["kind", "outcome"],
        "Tries to tell a home that can't be reached by way of the coordinators, by kind (announce, \
        report) and outcome (done, unleased, refused, other_map, no_lease, silent, full, away).";
    leased: IntCounterVec, "verbs3_client_leased_total", ["kind"],
        "Opens that were answered by a lease on attributes, without asking the home, by kind \
        (head, read).";
    leases: IntCounterVec, "verbs3_client_leases_total", ["event"],
        "Leases on attributes: granted, recalled while their grant was under way (overtaken), \
        recalled, recalled all at once (recalled_all).";
    leases_held: IntGauge, "verbs3_client_leases", [],
        "Objects whose attributes are kept by a lease, or were within the last minute.";
    lease_homes: IntGauge, "verbs3_client_lease_homes", [],
        "Homes that are polled for recalls of leases.";
    relaying: IntGauge, "verbs3_client_relaying", [],
        "Messages being told by way of the coordinators.";
}

/// Counters of one tier client.
pub(crate) struct TierMetrics {
    calls: IntCounterVec,
    pub(crate) hedges: IntCounter,
    pub(crate) failovers: IntCounter,
    pub(crate) repeats: IntCounterVec,
    pub(crate) bypasses: IntCounterVec,
    pub(crate) map_waits: IntCounterVec,
    pub(crate) checksum_failures: IntCounter,
    pub(crate) rests: IntCounter,
    pub(crate) announce_failures: IntCounter,
    pub(crate) report_failures: IntCounter,
    pub(crate) writes_open: IntGauge,
    relays: IntCounterVec,
    pub(crate) leased_head: IntCounter,
    pub(crate) leased_read: IntCounter,
    leases: IntCounterVec,
    pub(crate) leases_held: IntGauge,
    pub(crate) lease_homes: IntGauge,
    pub(crate) relaying: IntGauge,
    pub(crate) hot_blocks: IntGauge,
    pub(crate) spread_owner: IntCounter,
    pub(crate) spread_replica: IntCounter,
    pub(crate) spread_back: IntCounter,
    /// Counters of `verbs3_client_bytes_total`, resolved once; the two below are of `calls`. A
    /// lookup by label costs 100 ns.
    bytes: [IntCounter; 3],
    pub(crate) open_ok: IntCounter,
    pub(crate) read_ok: IntCounter,
}

impl TierMetrics {
    pub(crate) fn new(registry: &Registry) -> PrometheusResult<Self> {
        let TierMetricRows {
            calls,
            bytes,
            hedges,
            failovers,
            repeats,
            bypasses,
            map_waits,
            checksum_failures,
            rests,
            announce_failures,
            report_failures,
            spread,
            hot_blocks,
            writes_open,
            relays,
            leased,
            leases,
            leases_held,
            lease_homes,
            relaying,
        } = TierMetricRows::new(registry)?;
        let by_kind = |kind: TransportKind| bytes.with_label_values(&[kind.as_str()]);
        Ok(Self {
            hedges,
            failovers,
            repeats,
            bypasses,
            map_waits,
            checksum_failures,
            rests,
            announce_failures,
            report_failures,
            writes_open,
            relays,
            leased_head: leased.with_label_values(&["head"]),
            leased_read: leased.with_label_values(&["read"]),
            leases,
            leases_held,
            lease_homes,
            relaying,
            hot_blocks,
            spread_owner: spread.with_label_values(&["owner"]),
            spread_replica: spread.with_label_values(&["replica"]),
            spread_back: spread.with_label_values(&["back"]),
            bytes: [
                by_kind(TransportKind::Shm),
                by_kind(TransportKind::Verbs),
                by_kind(TransportKind::Tcp),
            ],
            open_ok: calls.with_label_values(&["open", "ok"]),
            read_ok: calls.with_label_values(&["read", "ok"]),
            calls,
        })
    }

    pub(crate) fn count_call(&self, kind: &'static str, outcome: &'static str) {
        self.calls.with_label_values(&[kind, outcome]).inc();
    }

    pub(crate) fn map_wait(&self, outcome: &'static str) {
        self.map_waits.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn leases_recalled(&self) -> u64 {
        let of = |event| self.leases.with_label_values(&[event]).get();
        of("recalled") + of("recalled_all") + of("overtaken")
    }

    pub(crate) fn count_lease_event(&self, event: &'static str) {
        self.leases.with_label_values(&[event]).inc();
    }

    pub(crate) fn count_relay(&self, kind: &'static str, outcome: &'static str) {
        self.relays.with_label_values(&[kind, outcome]).inc();
    }

    /// Counts one more relayed message, until the guard is dropped.
    pub(crate) fn track_relay(&self) -> RelayGaugeGuard {
        RelayGaugeGuard::new(&self.relaying)
    }

    pub(crate) fn count_bytes(&self, kind: TransportKind, bytes: u64) {
        let counter = match kind {
            TransportKind::Shm => &self.bytes[0],
            TransportKind::Verbs => &self.bytes[1],
            TransportKind::Tcp => &self.bytes[2],
        };
        counter.inc_by(bytes);
    }
}

/// One count in a gauge; dropping it takes the count back.
pub(crate) struct RelayGaugeGuard(IntGauge);

impl RelayGaugeGuard {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for RelayGaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

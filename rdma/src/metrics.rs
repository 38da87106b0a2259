//! Owns every metric of this crate: name, labels and meaning in one table, and the values, which
//! count for the whole process.
//!
//! Does not serve them; `cli` registers them and answers scrapes.

use std::sync::LazyLock;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, Result as PrometheusResult,
};

use crate::arena::Arena;
use crate::transport::TransportKind;
use crate::verbs::port_counters::{
    PORT_COUNTER, PORT_COUNTER_HELP, PORT_UP, PORT_UP_HELP, PortCounters,
};

macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        /// The process's metrics; one field for each name.
        pub(crate) struct TransportMetrics { $(#[doc = $help] pub(crate) $field: $kind,)* }

        impl TransportMetrics {
            fn new() -> PrometheusResult<Self> {
                Ok(Self { $($field: table!(@make $kind, $name, [$($label),*], $help)?,)* })
            }

            fn register(&self, registry: &Registry) -> PrometheusResult<()> {
                $(registry.register(Box::new(self.$field.clone()))?;)*
                Ok(())
            }
        }

        /// Name, labels and meaning of every metric, for the documentation and its test.
        pub const TABLE: &[(&str, &[&str], &str)] = &[
            $(($name, &[$($label),*], $help),)*
            (ARENA_BYTES, &["kind"], ARENA_BYTES_HELP),
            (PORT_UP, &["rail"], PORT_UP_HELP),
            (PORT_COUNTER, &["rail", "name"], PORT_COUNTER_HELP),
        ];
    };
    (@make IntCounter, $name:literal, [], $help:literal) => { IntCounter::new($name, $help) };
    (@make IntGauge, $name:literal, [], $help:literal) => { IntGauge::new($name, $help) };
    (@make IntCounterVec, $name:literal, [$($label:literal),*], $help:literal) => {
        IntCounterVec::new(Opts::new($name, $help), &[$($label),*])
    };
    (@make HistogramVec, $name:literal, [$($label:literal),*], $help:literal) => {
        HistogramVec::new(
            HistogramOpts::new($name, $help).buckets(SECONDS.to_vec()),
            &[$($label),*],
        )
    };
    (@make IntGaugeVec, $name:literal, [$($label:literal),*], $help:literal) => {
        IntGaugeVec::new(Opts::new($name, $help), &[$($label),*])
    };
}

/// Upper bounds of latency buckets in seconds: from a page over a fast NIC to a call that waits for
/// a cold store.
const SECONDS: [f64; 14] =
    [20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 0.01, 0.05, 0.2, 1.0, 5.0, 30.0];

const ARENA_BYTES: &str = "verbs3_arena_bytes";
const ARENA_BYTES_HELP: &str =
    "Arena memory by kind: capacity, leased (as wide as its classes), asked, unassigned.";

table! {
    connections: IntGaugeVec, "verbs3_rdma_connections", ["transport", "side"],
        "Established connections, by transport and side (requester, server).";
    calls: IntCounterVec, "verbs3_rdma_calls_total", ["transport", "outcome"],
        "Settled calls of this requester, by outcome (done, failed, cancelled, lost).";
    call_seconds: HistogramVec, "verbs3_rdma_call_seconds", ["transport"],
        "Seconds from the sending of a call to its end, by transport.";
    bytes_in: IntCounterVec, "verbs3_rdma_bytes_in_total", ["transport"],
        "Payload bytes that arrived in landings, or were handed over.";
    bytes_out: IntCounterVec, "verbs3_rdma_bytes_out_total", ["transport"],
        "Payload bytes that were given to a transport to push.";
    handshakes_failed: IntCounterVec, "verbs3_rdma_handshakes_failed_total", ["reason"],
        "Handshakes that failed, by reason (version, secret, full, draining, deadline, displaced, \
        malformed, lost).";
    protocol_violations: IntCounterVec, "verbs3_rdma_protocol_violations_total", ["side"],
        "Connections cut because the peer broke the protocol.";
    quarantined_bytes: IntGauge, "verbs3_rdma_landings_quarantined_bytes", [],
        "Landing bytes of cancelled calls that the peer may still write to.";
    quarantined: IntGauge, "verbs3_rdma_landings_quarantined", [],
        "Landings of cancelled calls that the peer may still write to.";
    credits_in_use: IntGauge, "verbs3_rdma_credits_in_use", [],
        "Calls that hold a credit of their connection.";
    serving: IntGauge, "verbs3_rdma_calls_serving", [],
        "Calls that this host is answering.";
    queued_bytes: IntGauge, "verbs3_rdma_write_queue_bytes", [],
        "Payload bytes that wait in the write queues of all connections.";
    rail_up: IntGaugeVec, "verbs3_verbs_rail_up", ["index", "name"],
        "Whether a rail of this process is open, by its place in verbs.rails and its name there; \
        one that is not is tried again.";
    registered_bytes: IntGaugeVec, "verbs3_verbs_registered_bytes", ["rail"],
        "Arena memory that is registered with a rail.";
    path_mtu: IntGaugeVec, "verbs3_verbs_path_mtu_bytes", ["rail", "side"],
        "Path MTU of the last connection that was made over a rail, by side (requester, server).";
    queue_pairs: IntGaugeVec, "verbs3_verbs_queue_pairs", ["rail"],
        "Queue pairs of a rail.";
    send_queue_used: IntGaugeVec, "verbs3_verbs_send_queue_used", ["rail"],
        "Work requests of all queue pairs of a rail that are posted and not known to be complete; \
        each queue pair has verbs.send_queue places.";
    send_queue_places: IntGaugeVec, "verbs3_verbs_send_queue_places", ["rail"],
        "Places of the send queues of all queue pairs of a rail: what verbs3_verbs_send_queue_used \
        is a part of.";
    chunk_credits: IntGaugeVec, "verbs3_verbs_chunk_credits", ["rail"],
        "Receive buffers of peers that the queue pairs of a rail may still send to, when something \
        was sent last.";
    shared_receives: IntGaugeVec, "verbs3_verbs_shared_receives", ["rail", "state"],
        "Receive buffers that the connections of a rail share (verbs.shared_receives), by state: \
        all; reserved, to the shares of connections; doubtful, perhaps taken by a queue pair that \
        ended; lost, taken by one.";
    windows: IntGaugeVec, "verbs3_verbs_windows", ["rail", "state"],
        "Memory windows of a rail, by state: made; bound, those that landings are lent through.";
    rail_call_seconds: HistogramVec, "verbs3_verbs_call_seconds", ["rail"],
        "Seconds from the sending of a call to its end, by the rail that it went over.";
    landed_bytes: IntCounterVec, "verbs3_verbs_landed_bytes_total", ["rail"],
        "Bytes that peers wrote into landings of this host over a rail.";
    rail_connects: IntCounterVec, "verbs3_verbs_rail_connects_total", ["rail", "outcome"],
        "Attempts to connect over a rail, by outcome (made, again, failed); again is one in place \
        of a connection that was lost.";
    rail_lost: IntCounterVec, "verbs3_verbs_rail_lost_total", ["rail", "reason"],
        "Connections over a rail that broke, or over which nothing came, by reason (lost, silent, \
        protocol, failed).";
    work_requests: IntCounterVec, "verbs3_verbs_work_requests_total", ["rail", "op"],
        "Work requests posted to a rail, by operation (write, send, window: binds and \
        invalidations).";
    written_bytes: IntCounterVec, "verbs3_verbs_written_bytes_total", ["rail"],
        "Bytes that were written into peers' landings over a rail.";
    copied_bytes: IntCounterVec, "verbs3_verbs_copied_bytes_total", ["rail"],
        "Payload bytes that were copied into messages instead of being written by the NIC: short \
        replies, and what a host takes from its requesters.";
    completions: IntCounterVec, "verbs3_verbs_completions_total", ["rail"],
        "Completions taken from the queues of a rail.";
    verbs_errors: IntCounterVec, "verbs3_verbs_errors_total", ["rail", "kind"],
        "Work requests that failed and ended their queue pair, by kind (retry, receiver_not_ready, \
        remote_access, remote, local, flushed, other).";
    reconnects: IntCounter, "verbs3_rdma_reconnects_total", [],
        "Connections made in place of a lost one.";
    connects_failed: IntCounter, "verbs3_rdma_connects_failed_total", [],
        "Attempts to connect that failed.";
    fallbacks: IntCounterVec, "verbs3_rdma_fallbacks_total", ["from", "to", "reason"],
        "Changes of peers to a slower transport, or from one rail to another, by reason \
        (unreachable, handshake, lost, silent, protocol, cap, slow, rail_down, failed).";
    ways_resting: IntGaugeVec, "verbs3_rdma_ways_resting", ["transport"],
        "Ways to peers (shm socket, rail) that failed too often and wait to be tried again.";
    queue_pairs_max: IntGauge, "verbs3_rdma_queue_pairs_max", [],
        "The configured bound on verbs connections of this requester; beyond it calls go over tcp.";
    shm_pins: IntGauge, "verbs3_rdma_shm_pins", [],
        "Parts that this host has handed over in its own memory, and that requesters have not \
        released.";
    shm_pinned_bytes: IntGauge, "verbs3_rdma_shm_pinned_bytes", [],
        "Bytes that this host has handed over in its own memory, and that requesters have not \
        released.";
    shm_held_bytes: IntGauge, "verbs3_rdma_shm_held_bytes", [],
        "Bytes in other processes' memory that this process keeps pinned.";
    shm_copies: IntCounterVec, "verbs3_rdma_shm_copies_total", ["reason"],
        "Parts with data that were copied through the socket, by reason (small, heap, quota).";
    shm_copied_bytes: IntCounterVec, "verbs3_rdma_shm_copied_bytes_total", ["reason"],
        "Payload bytes that were copied through the socket, by reason (small, heap, quota).";
}

static METRICS: LazyLock<TransportMetrics> = LazyLock::new(|| {
    TransportMetrics::new().expect("the table's names and labels are valid; a test makes them all")
});

pub(crate) fn transport_metrics() -> &'static TransportMetrics {
    &METRICS
}

/// Makes every metric of the table but the arenas' visible in `registry`.
pub fn register_metrics(registry: &Registry) -> PrometheusResult<()> {
    METRICS.register(registry)?;
    registry.register(Box::new(PortCounters::new("/sys/class/infiniband".into())?))
}

/// Makes the usage of `arena` visible in `registry`. A registry takes one arena.
pub fn register_arena(registry: &Registry, arena: Arena) -> PrometheusResult<()> {
    let bytes = IntGaugeVec::new(Opts::new(ARENA_BYTES, ARENA_BYTES_HELP), &["kind"])?;
    registry.register(Box::new(ArenaCollector { arena, bytes }))
}

struct ArenaCollector {
    arena: Arena,
    bytes: IntGaugeVec,
}

impl Collector for ArenaCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.bytes.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let usage = self.arena.arena_usage();
        for (kind, bytes) in [
            ("capacity", usage.capacity_bytes),
            ("leased", usage.leased_bytes),
            ("asked", usage.asked_bytes),
            ("unassigned", usage.unassigned_bytes),
        ] {
            let gauge = self.bytes.with_label_values(&[kind]);
            gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        self.bytes.collect()
    }
}

/// The counters of one transport, resolved once: a label look-up for each part would cost more than
/// the part.
#[derive(Clone)]
pub(crate) struct TransportTraffic {
    pub(crate) bytes_in: IntCounter,
    pub(crate) bytes_out: IntCounter,
    pub(crate) done: IntCounter,
    pub(crate) failed: IntCounter,
    pub(crate) cancelled: IntCounter,
    pub(crate) lost: IntCounter,
    pub(crate) seconds: Histogram,
}

impl TransportTraffic {
    fn new(kind: TransportKind) -> Self {
        let all = transport_metrics();
        let calls = |outcome| all.calls.with_label_values(&[kind.as_str(), outcome]);
        Self {
            bytes_in: all.bytes_in.with_label_values(&[kind.as_str()]),
            bytes_out: all.bytes_out.with_label_values(&[kind.as_str()]),
            done: calls("done"),
            failed: calls("failed"),
            cancelled: calls("cancelled"),
            lost: calls("lost"),
            seconds: all.call_seconds.with_label_values(&[kind.as_str()]),
        }
    }

    pub(crate) fn for_kind(kind: TransportKind) -> &'static Self {
        static SHM: LazyLock<TransportTraffic> =
            LazyLock::new(|| TransportTraffic::new(TransportKind::Shm));
        static VERBS: LazyLock<TransportTraffic> =
            LazyLock::new(|| TransportTraffic::new(TransportKind::Verbs));
        static TCP: LazyLock<TransportTraffic> =
            LazyLock::new(|| TransportTraffic::new(TransportKind::Tcp));
        match kind {
            TransportKind::Shm => &SHM,
            TransportKind::Verbs => &VERBS,
            TransportKind::Tcp => &TCP,
        }
    }
}

/// A guard that adds to a gauge now, and subtracts the same on drop.
pub(crate) struct GaugeGuard {
    gauge: IntGauge,
    by: i64,
}

impl GaugeGuard {
    pub(crate) fn add_to(gauge: &IntGauge, by: u64) -> Self {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        gauge.add(by);
        Self { gauge: gauge.clone(), by }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.sub(self.by);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::arena::ArenaOptions;

    #[test]
    fn every_metric_of_the_table_is_registered_under_its_name() {
        let registry = Registry::new();
        register_metrics(&registry).unwrap();
        let arena = Arena::map_memory(ArenaOptions {
            capacity_bytes: 2 << 20,
            cell_bytes_max: 256 << 10,
            populate: false,
        })
        .unwrap();
        register_arena(&registry, arena).unwrap();
        let _ = TransportTraffic::for_kind(TransportKind::Tcp);
        let all = transport_metrics();
        let _ = all.connections.with_label_values(&["tcp", "server"]);
        let _ = all.handshakes_failed.with_label_values(&["secret"]);
        let _ = all.protocol_violations.with_label_values(&["server"]);
        for by_rail in [
            &all.registered_bytes,
            &all.queue_pairs,
            &all.send_queue_used,
            &all.send_queue_places,
            &all.chunk_credits,
        ] {
            let _ = by_rail.with_label_values(&["rxe0:1"]);
        }
        for by_rail in [&all.written_bytes, &all.copied_bytes, &all.completions, &all.landed_bytes]
        {
            let _ = by_rail.with_label_values(&["rxe0:1"]);
        }
        let _ = all.shared_receives.with_label_values(&["rxe0:1", "all"]);
        let _ = all.windows.with_label_values(&["rxe0:1", "bound"]);
        let _ = all.rail_call_seconds.with_label_values(&["rxe0:1"]);
        for of_rail in [&all.work_requests, &all.verbs_errors, &all.rail_connects, &all.rail_lost] {
            let _ = of_rail.with_label_values(&["rxe0:1", "write"]);
        }
        let _ = all.fallbacks.with_label_values(&["verbs", "tcp", "lost"]);
        let _ = all.rail_up.with_label_values(&["0", "mlx5_0"]);
        let _ = all.path_mtu.with_label_values(&["mlx5_0:1", "server"]);
        let _ = all.ways_resting.with_label_values(&["verbs"]);
        let _ = all.shm_copies.with_label_values(&["quota"]);
        let _ = all.shm_copied_bytes.with_label_values(&["quota"]);
        let mut names: Vec<_> = registry.gather().iter().map(|m| m.name().to_owned()).collect();
        names.sort();
        // Leave out the kernel's ports, which this host may not have. Their own test has some.
        let of_ports = |name: &String| name.starts_with("verbs3_verbs_port_");
        names.retain(|name| !of_ports(name));
        let mut table: Vec<_> =
            TABLE.iter().map(|row| row.0.to_owned()).filter(|name| !of_ports(name)).collect();
        table.sort();
        assert_eq!(names, table);
    }
}

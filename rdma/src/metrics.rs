//! Owns every metric of this crate, declared once, and the values, which count for the whole
//! process.
//!
//! Does not serve them; `cli` registers them and answers scrapes.

use std::sync::LazyLock;

use prometheus::{
    Histogram, IntCounter, IntGauge, IntGaugeVec, Registry, Result as PrometheusResult,
};
pub(crate) use verbs3_metrics::GaugeGuard;
use verbs3_metrics::{
    MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription, TableFamily, register_sampled,
};

use crate::arena::Arena;
use crate::transport::TransportKind;
use crate::verbs::port_counters::{PortMetrics, register_ports};

/// Upper bounds of latency buckets in seconds: from a page over a fast NIC to a call that waits for
/// a cold store.
const SECONDS: [f64; 14] =
    [20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 0.01, 0.05, 0.2, 1.0, 5.0, 30.0];

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![
        TransportMetrics::describe_table(),
        ArenaMetrics::describe_table(),
        PortMetrics::describe_table(),
    ]
}

/// Transports between hosts, and RDMA rails.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_rdma")]
pub(crate) struct TransportMetrics {
    /// Established connections, by transport and side.
    #[metric(labels(transport, side))]
    pub(crate) connections: MetricFamily<(TransportKind, ConnectionSide), IntGauge>,
    /// Settled calls of this requester, by transport and outcome.
    #[metric(labels(transport, outcome), from_zero)]
    pub(crate) calls: MetricFamily<(TransportKind, SettledOutcome), IntCounter>,
    /// Seconds from the sending of a call to its end, by transport.
    #[metric(labels(transport), buckets = SECONDS, from_zero)]
    pub(crate) call_seconds: MetricFamily<TransportKind, Histogram>,
    /// Payload bytes that arrived in landings, or were handed over.
    #[metric(labels(transport), from_zero)]
    pub(crate) bytes_in: MetricFamily<TransportKind, IntCounter>,
    /// Payload bytes that were given to a transport to push.
    #[metric(labels(transport), from_zero)]
    pub(crate) bytes_out: MetricFamily<TransportKind, IntCounter>,
    /// Handshakes that failed, by reason.
    #[metric(labels(reason))]
    pub(crate) handshakes_failed: MetricFamily<HandshakeFailure, IntCounter>,
    /// Connections cut because the peer broke the protocol, by the side that cut them.
    #[metric(labels(side))]
    pub(crate) protocol_violations: MetricFamily<ConnectionSide, IntCounter>,
    /// Landing bytes of cancelled calls that the peer may still write to.
    #[metric("verbs3_rdma_landings_quarantined_bytes")]
    pub(crate) quarantined_bytes: IntGauge,
    /// Landings of cancelled calls that the peer may still write to.
    #[metric("verbs3_rdma_landings_quarantined")]
    pub(crate) quarantined: IntGauge,
    /// Calls that hold a credit of their connection.
    pub(crate) credits_in_use: IntGauge,
    /// Calls that this host is answering.
    #[metric("verbs3_rdma_calls_serving")]
    pub(crate) serving: IntGauge,
    /// Payload bytes that wait in the write queues of all connections.
    #[metric("verbs3_rdma_write_queue_bytes")]
    pub(crate) queued_bytes: IntGauge,
    /// Connections made in place of a lost one.
    pub(crate) reconnects: IntCounter,
    /// Attempts to connect that failed.
    pub(crate) connects_failed: IntCounter,
    /// Changes of peers to a slower transport, or from one rail to another, by reason.
    #[metric(labels(from, to, reason))]
    pub(crate) fallbacks: MetricFamily<(TransportKind, TransportKind, PeerTrouble), IntCounter>,
    /// Ways to peers (shm socket, rail) that failed too often and wait to be tried again.
    #[metric(labels(transport))]
    pub(crate) ways_resting: MetricFamily<TransportKind, IntGauge>,
    /// The configured bound on verbs connections of this requester; beyond it calls go over tcp.
    pub(crate) queue_pairs_max: IntGauge,
    /// Parts that this host has handed over in its own memory, and that requesters have not
    /// released.
    pub(crate) shm_pins: IntGauge,
    /// Bytes that this host has handed over in its own memory, and that requesters have not
    /// released.
    pub(crate) shm_pinned_bytes: IntGauge,
    /// Bytes in other processes' memory that this process keeps pinned.
    pub(crate) shm_held_bytes: IntGauge,
    /// Parts with data that were copied through the socket, by reason.
    #[metric(labels(reason))]
    pub(crate) shm_copies: MetricFamily<ShmCopyReason, IntCounter>,
    /// Payload bytes that were copied through the socket, by reason.
    #[metric(labels(reason))]
    pub(crate) shm_copied_bytes: MetricFamily<ShmCopyReason, IntCounter>,
    /// Whether a rail of this process is open, by its place in verbs.rails and its name there; one
    /// that is not is tried again.
    #[metric("verbs3_verbs_rail_up", labels(index, name))]
    pub(crate) rail_up: IntGaugeVec,
    pub(crate) rails: TableFamily<VerbsRailMetrics>,
}

/// One rail.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_verbs", each = "rail")]
pub(crate) struct VerbsRailMetrics {
    /// Arena memory that is registered with a rail.
    pub(crate) registered_bytes: IntGauge,
    /// Path MTU of the last connection that was made over a rail, by side.
    #[metric("verbs3_verbs_path_mtu_bytes", labels(side))]
    pub(crate) path_mtu: MetricFamily<ConnectionSide, IntGauge>,
    /// Queue pairs of a rail.
    pub(crate) queue_pairs: IntGauge,
    /// Queue pairs that a device would neither stop nor destroy. The memory that was lent over them
    /// is not used again.
    #[metric("verbs3_verbs_queue_pairs_surviving_total")]
    pub(crate) queue_pairs_surviving: IntCounter,
    /// Work requests of all queue pairs of a rail that are posted and not known to be complete;
    /// each queue pair has verbs.send_queue places.
    pub(crate) send_queue_used: IntGauge,
    /// Places of the send queues of all queue pairs of a rail: what verbs3_verbs_send_queue_used is
    /// a part of.
    pub(crate) send_queue_places: IntGauge,
    /// Receive buffers of peers that the queue pairs of a rail may still send to, when something
    /// was sent last.
    pub(crate) chunk_credits: IntGauge,
    /// Receive buffers that the connections of a rail share (verbs.shared_receives), by state.
    #[metric(labels(state))]
    pub(crate) shared_receives: MetricFamily<ReceiveBufferState, IntGauge>,
    /// Memory windows of a rail, by state.
    #[metric(labels(state))]
    pub(crate) windows: MetricFamily<WindowState, IntGauge>,
    /// Seconds from the sending of a call to its end, by the rail that it went over.
    #[metric(buckets = SECONDS)]
    pub(crate) call_seconds: Histogram,
    /// Bytes that peers wrote into landings of this host over a rail.
    pub(crate) landed_bytes: IntCounter,
    /// Attempts to connect over a rail, by outcome.
    #[metric("verbs3_verbs_rail_connects_total", labels(outcome))]
    pub(crate) connects: MetricFamily<RailConnectOutcome, IntCounter>,
    /// Connections over a rail that broke, or over which nothing came, by reason.
    #[metric("verbs3_verbs_rail_lost_total", labels(reason))]
    pub(crate) lost: MetricFamily<PeerTrouble, IntCounter>,
    /// Work requests posted to a rail, by operation.
    #[metric(labels(op))]
    pub(crate) work_requests: MetricFamily<PostedOperation, IntCounter>,
    /// Bytes that were written into peers' landings over a rail.
    pub(crate) written_bytes: IntCounter,
    /// Payload bytes that were copied into messages instead of being written by the NIC: short
    /// replies, and what a host takes from its requesters.
    pub(crate) copied_bytes: IntCounter,
    /// Completions taken from the queues of a rail.
    pub(crate) completions: IntCounter,
    /// Waits of the connections of a rail for their next completion, by how they went. Many that
    /// were slept through although verbs.busy_poll is set are of peers that answer late.
    #[metric(labels(how))]
    pub(crate) waits: MetricFamily<DriverWait, IntCounter>,
    /// Work requests that failed and ended their queue pair, by kind.
    #[metric(labels(kind))]
    pub(crate) errors: MetricFamily<WorkFailure, IntCounter>,
    /// What arrived over a rail without a seal of the session, or with one that does not hold, and
    /// ended its queue pair, by what it was. Somebody else sends in a peer's name, or changes what
    /// it sends.
    #[metric(labels(what))]
    pub(crate) seals_refused: MetricFamily<SealedMatter, IntCounter>,
}

/// The arena.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_arena")]
struct ArenaMetrics {
    /// Arena memory by kind.
    #[metric(labels(kind))]
    bytes: MetricFamily<ArenaShare, IntGauge>,
}

static METRICS: LazyLock<TransportMetrics> = LazyLock::new(TransportMetrics::default);

pub(crate) fn transport_metrics() -> &'static TransportMetrics {
    &METRICS
}

/// Returns the metrics of one rail. Keep them.
pub(crate) fn rail_metrics(rail: &str) -> VerbsRailMetrics {
    METRICS.rails.select_table(rail)
}

/// Makes every metric but the arenas' visible in `registry`.
pub fn register_metrics(registry: &Registry) -> PrometheusResult<()> {
    registry.register(Box::new(METRICS.clone()))?;
    register_ports(registry, "/sys/class/infiniband".into())
}

/// The work of this process's NICs since its start, over all rails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerbsWork {
    /// Work requests posted to send queues.
    pub work_requests: u64,
    pub completions: u64,
    /// Payload bytes copied into messages, where a WRITE would have moved them.
    pub copied_bytes: u64,
}

/// Reads the work of this process's NICs from its metrics.
pub fn read_verbs_work() -> VerbsWork {
    let posted = [PostedOperation::Write, PostedOperation::Send, PostedOperation::Window];
    let mut work = VerbsWork::default();
    for rail in transport_metrics().rails.list_tables() {
        work.work_requests += posted.map(|op| rail.work_requests[op].get()).iter().sum::<u64>();
        work.completions += rail.completions.get();
        work.copied_bytes += rail.copied_bytes.get();
    }
    work
}

/// Makes the usage of `arena` visible in `registry`. A registry takes one arena.
pub fn register_arena(registry: &Registry, arena: Arena) -> PrometheusResult<()> {
    register_sampled(registry, ArenaMetrics::default(), move |metrics| {
        let usage = arena.arena_usage();
        for (share, bytes) in [
            (ArenaShare::Capacity, usage.capacity_bytes),
            (ArenaShare::Loaned, usage.loaned_bytes),
            (ArenaShare::Asked, usage.asked_bytes),
            (ArenaShare::Unassigned, usage.unassigned_bytes),
        ] {
            metrics.bytes[share].set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        true
    })
}

/// The end of a connection that counts.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum ConnectionSide {
    Requester,
    Server,
}

/// What a seal is for.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum SealedMatter {
    Message,
    /// Data that was written into lent memory (verbs.data_tags).
    Data,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum SettledOutcome {
    Done,
    Failed,
    Cancelled,
    Lost,
}

/// Why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum HandshakeFailure {
    Version,
    Secret,
    Full,
    Draining,
    Deadline,
    Displaced,
    /// The peer calls itself otherwise.
    Name,
    /// The peer's certificate, or that it has none.
    Tls,
    Malformed,
    Lost,
}

/// What is wrong with a way to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum PeerTrouble {
    Unreachable,
    Handshake,
    /// The peer has no room for one more connection or handshake now.
    Full,
    Lost,
    /// Nothing came over it.
    Silent,
    Protocol,
    /// The bound on queue pairs is met.
    Cap,
    /// Connecting takes long.
    Slow,
    RailDown,
    Failed,
}

/// Why a part is copied.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum ShmCopyReason {
    Small,
    /// Its bytes are not in the arena, or in too many pieces.
    Heap,
    /// Too much is pinned.
    Quota,
}

/// Where a shared receive buffer is.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum ReceiveBufferState {
    All,
    /// To the shares of connections.
    Reserved,
    /// Perhaps taken by a queue pair that ended.
    Doubtful,
    /// Taken by one.
    Lost,
}

/// Where a memory window is.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum WindowState {
    Made,
    /// Those that landings are lent through.
    Bound,
}

/// What came of connecting over a rail.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum RailConnectOutcome {
    Made,
    /// In place of a connection that was lost.
    Again,
    Failed,
}

/// How a connection waited for its next completion.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum DriverWait {
    /// A poll met it (verbs.busy_poll).
    Polled,
    /// The connection slept until the NIC's event.
    Slept,
}

/// What a work request does.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum PostedOperation {
    Write,
    Send,
    /// Binds and invalidations.
    Window,
}

/// Why a work request failed.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum WorkFailure {
    Retry,
    ReceiverNotReady,
    RemoteAccess,
    Remote,
    Local,
    Flushed,
    Other,
}

/// A part of an arena.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum ArenaShare {
    Capacity,
    /// As wide as its classes.
    Loaned,
    Asked,
    Unassigned,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::arena::ArenaOptions;

    #[test]
    fn every_metric_is_registered_under_its_name() {
        let registry = Registry::new();
        register_metrics(&registry).unwrap();
        let arena = Arena::map_memory(ArenaOptions {
            capacity_bytes: 2 << 20,
            cell_bytes_max: 256 << 10,
            populate: false,
        })
        .unwrap();
        register_arena(&registry, arena).unwrap();
        let all = transport_metrics();
        let rail = rail_metrics("rxe0:1");
        all.connections[(TransportKind::Tcp, ConnectionSide::Server)].add(0);
        all.handshakes_failed[HandshakeFailure::Secret].inc();
        all.protocol_violations[ConnectionSide::Server].inc();
        all.fallbacks[(TransportKind::Verbs, TransportKind::Tcp, PeerTrouble::Lost)].inc();
        all.rail_up.with_label_values(&["0", "mlx5_0"]).set(1);
        all.ways_resting[TransportKind::Verbs].add(0);
        all.shm_copies[ShmCopyReason::Quota].inc();
        all.shm_copied_bytes[ShmCopyReason::Quota].inc();
        rail.path_mtu[ConnectionSide::Server].set(4096);
        rail.shared_receives[ReceiveBufferState::All].add(0);
        rail.windows[WindowState::Bound].add(0);
        rail.connects[RailConnectOutcome::Made].inc();
        rail.lost[PeerTrouble::Silent].inc();
        rail.work_requests[PostedOperation::Write].inc();
        rail.waits[DriverWait::Slept].inc();
        rail.errors[WorkFailure::Retry].inc();
        rail.seals_refused[SealedMatter::Message].inc();
        let mut names: Vec<_> = registry.gather().iter().map(|m| m.name().to_owned()).collect();
        names.sort();
        // Leave out the kernel's ports, which this host may not have. Their own test has some.
        let of_ports = |name: &str| name.starts_with("verbs3_verbs_port_");
        names.retain(|name| !of_ports(name));
        let tables = describe_metrics();
        let described = tables.iter().flat_map(|table| &table.metrics).map(|metric| metric.name);
        let mut described: Vec<_> = described.filter(|name| !of_ports(name)).collect();
        described.sort_unstable();
        assert_eq!(names, described);
    }
}

//! The settings of the transports between gateways and workers: TCP, verbs (InfiniBand, RoCE and
//! iWARP) and shared memory; and of the choice between them.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

/// The `[tcp]` section, read by both sides.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct TcpSettings {
    /// Network device that workers listen on and gateways connect over, such as `"ib0"`; none
    /// leaves it to the routing table.
    #[setting(example = "ib0")]
    pub bind_device: Option<String>,
    /// Local address that gateways connect from.
    #[setting(example = "10.0.0.1")]
    pub bind_address: Option<IpAddr>,
    /// For connecting and the handshake together.
    #[setting(default = "5s", range = "10ms"..="1m")]
    pub connect_deadline: TimePeriod,
    /// Calls under way on one connection. The smaller of both sides' bounds holds.
    #[setting(default = 256, range = 1..=65_536)]
    pub calls_in_flight_max: u32,
    /// Longest message, data apart. The smaller of both sides' bounds holds.
    #[setting(default = "64KiB", range = "16KiB"..="1MiB")]
    pub frame_max: ByteSize,
    /// Bytes that wait for one socket.
    #[setting(default = "8MiB", range = "1MiB"..="256MiB")]
    pub write_queue_max: ByteSize,
    /// A peer that has not acknowledged a cancel for this long loses its connection.
    #[setting(default = "10s", range = "100ms"..="5m")]
    pub cancel_ack_deadline: TimePeriod,
    /// The same where its data lands in memory that a process has lent (`gateway.lending`): that
    /// process's read waits for it. The smaller of both holds.
    #[setting(default = "2s", range = "100ms"..="5m")]
    pub lending_cancel_ack_deadline: TimePeriod,
    /// Idle time before the first keep-alive probe.
    #[setting(default = "15s", range = "1s"..="1h")]
    pub keepalive_idle: TimePeriod,
    /// Time between two probes; three unanswered ones end the connection.
    #[setting(default = "5s", range = "1s"..="5m")]
    pub keepalive_interval: TimePeriod,
    /// A peer that takes no byte for this long is gone.
    #[setting(default = "30s", range = "1s"..="10m")]
    pub send_stall_max: TimePeriod,
    /// Connections that a worker accepts.
    #[setting(default = 16_384, range = 1..=1_000_000)]
    pub connections_max: u32,
    /// Connections to a worker that have not proved the secret yet; beyond it the oldest of the
    /// busiest address gives way, if it is older than a second.
    #[setting(default = 256, range = 1..=65_536)]
    pub handshakes_max: u32,
    /// The same of one address (of IPv6, of a network of 64 bits).
    #[setting(default = 64, range = 1..=65_536)]
    pub handshakes_per_address_max: u32,
}

/// The `[verbs]` section, read by both sides.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct VerbsSettings {
    /// `"auto"`: where this host has a rail that works. `"on"`: refuse to start without a single
    /// one. `"off"`: never.
    #[setting(default = "auto")]
    pub mode: VerbsMode,
    /// The rails of this host, in their order. Each connects to the peer's rail in its own IP
    /// subnet; where there are several or none, rail i to the peer's rail i. Each is
    /// `"mlx5_0"` or `"mlx5_0:2"` (RDMA device and port), `"ib0"` (its network device) or its IP
    /// address; one that is not there keeps its place and is tried again. `"auto"` alone takes
    /// every port that has an address at the start, and `"10.2.0.0/16"` those with an address in
    /// this subnet, by which they are rails then.
    #[setting(default = ["auto"])]
    pub rails: Vec<String>,
    /// Ports that `"auto"` and subnets leave out, such as those of storage or management: devices,
    /// ports, or any of a port's network devices, addresses or subnets, written as in `rails`.
    #[setting(default = [])]
    pub rails_except: Vec<String>,
    /// Port that a worker listens on, on each of its rails.
    #[setting(default = 9403, range = 1..=65_535)]
    pub port: u16,
    /// Queue pairs of this process: of a gateway to all workers, of a worker from all gateways.
    /// Over it calls go over tcp.
    #[setting(default = 4096, range = 1..=1_000_000)]
    pub connections_max: u32,
    /// Connections to a worker that have not proved the secret yet; beyond it the oldest of the
    /// busiest address gives way, if it is older than a second.
    #[setting(default = 64, range = 1..=65_536)]
    pub handshakes_max: u32,
    /// The same of one address (of IPv6, of a network of 64 bits).
    #[setting(default = 32, range = 1..=65_536)]
    pub handshakes_per_address_max: u32,
    /// Receive buffers of one connection that the peer has credits for, at most.
    #[setting(default = 32, range = 4..=4096)]
    pub receive_count: u16,
    /// Length of each; smaller replies ride inside. The smaller of both sides' holds.
    #[setting(default = "8KiB", range = "1KiB"..="64KiB")]
    pub receive_buffer: ByteSize,
    /// `"auto"`: the connections of a rail share receive buffers where its device has shared
    /// receive queues. `"off"`: each has a ring of its own.
    #[setting(default = "auto")]
    pub shared_receive: FeatureSwitch,
    /// Receive buffers that the connections of a rail share; a connection for which there is no
    /// room has a ring of its own. Each is sure of 8, and may have more while others don't need
    /// them.
    #[setting(default = 1024, range = 64..=32_768)]
    pub shared_receives: u16,
    /// `"auto"`: a gateway opens its memory through memory windows of type 2 where its device has
    /// them, so that a worker reaches what it was lent, while it is lent, and nothing else.
    /// `"off"`: by one key for all.
    #[setting(default = "off")]
    pub windows: FeatureSwitch,
    /// Whether a gateway demands that a worker tags what it writes into the gateway's memory with a
    /// key of their session, so that no third host of the fabric can put bytes there. Both hash
    /// every byte. Messages are always sealed.
    #[setting(default = false)]
    pub data_tags: bool,
    /// `"auto"`: the NIC's transfers may pass each other on PCIe, where device and kernel can. Some
    /// hosts are much faster so, and none is wrong. `"off"`: they keep their order.
    #[setting(default = "auto")]
    pub relaxed_ordering: FeatureSwitch,
    /// `"auto"`: a connection that waits for an answer is woken by messages alone, where its peer
    /// marks them, and not by the NIC's word that the question has arrived. `"off"`: by everything.
    #[setting(default = "auto")]
    pub message_events: FeatureSwitch,
    /// Depth of a send queue in work requests.
    #[setting(default = 256, range = 16..=16_384)]
    pub send_queue: u32,
    /// Bytes that the NIC takes with a request instead of fetching them, where it can.
    #[setting(default = "128B", range = "0B"..="1KiB")]
    pub inline_max: ByteSize,
    /// How long the NIC waits for an acknowledgement before it repeats: 4.096 µs times two to this
    /// power.
    #[setting(default = 17, range = 0..=31)]
    pub ack_timeout: u8,
    /// Times that the NIC repeats what is not acknowledged.
    #[setting(default = 7, range = 0..=7)]
    pub retry_count: u8,
    /// Times that the NIC waits for a receive buffer of the peer; 7 is for ever.
    #[setting(default = 7, range = 0..=7)]
    pub rnr_retry: u8,
    /// Bytes of data that a packet carries at most: `256`, `512`, `1024`, `2048` or `4096`, for a
    /// fabric whose switches are set for less than its ports. The smaller of both sides' holds;
    /// iWARP has none.
    #[setting(example = 1024)]
    pub path_mtu_max: Option<u16>,
    /// Type of service of the packets, for the switches' queues (RoCE: DSCP × 4).
    #[setting(example = 104)]
    pub tos: Option<u8>,
    /// How long a connection polls for the answer to what it has sent, at most, before it sleeps
    /// until the NIC's event; `"0"`: not at all. It polls for twice what answers have lately taken,
    /// and not for those that take longer than this. Costs CPU, saves microseconds.
    #[setting(default = "0", range = "0"..="1s")]
    pub busy_poll: TimePeriod,
    /// CPUs for threads that do nothing but drive verbs connections, one each; none means the
    /// process's own threads. Each rail gets its share, of those near its NIC if there are any. With
    /// `busy_poll`, name at least one for each rail, of its NIC's NUMA node.
    pub poll_cpus: Vec<u16>,
    /// Silence after which a sign of life is sent, at most twice as long.
    #[setting(default = "15s", range = "1s"..="10m")]
    pub heartbeat: TimePeriod,
    /// Longest pause between two attempts to open a rail that is down; the first is a second, and
    /// it doubles.
    #[setting(default = "1m", range = "1s"..="1h")]
    pub reopen_max: TimePeriod,
}

/// The `[worker.shm]` table. Used by gateways that see the socket: processes of one host, and
/// containers that share its folder.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct ShmSettings {
    /// Offer it. A worker whose socket can't be made says so and goes on with the network.
    #[setting(default = true)]
    pub enabled: bool,
    /// The unix socket; none means `/run/verbs3/ID.sock` with the worker's id.
    #[setting(example = "/run/verbs3/gpu-01.sock")]
    pub socket: Option<PathBuf>,
    /// Connections that are accepted; a gateway makes up to `gateway.peers.connections_max`.
    #[setting(default = 64, range = 1..=4096)]
    pub connections_max: u32,
    /// Pieces of memory that one connection may keep from being used again; replies beyond are
    /// copied.
    #[setting(default = 4096, range = 1..=1_000_000)]
    pub pins_max: u32,
    /// The same in bytes.
    #[setting(default = "256MiB", range = "1MiB"..="1TiB")]
    pub pinned_max: ByteSize,
    /// Replies up to this length are copied at once, which costs less than handing them back.
    #[setting(default = "16KiB", range = "0B"..="16MiB")]
    pub copy_max: ByteSize,
}

/// The `[gateway.peers]` table. A worker is reached by the best way that both hosts have and that
/// works: shared memory, verbs, tcp.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct PeerSettings {
    /// Connections to each worker over one transport; over verbs at least one for each rail.
    #[setting(default = 4, range = 1..=64)]
    pub connections_max: u32,
    /// Calls under way on the least loaded connection from which another one is opened. Over tcp
    /// each 128 KiB that they wait for count as one more: one thread at each end moves them.
    #[setting(default = 16, range = 1..=65_536)]
    pub calls_per_connection: u32,
    /// A connection without calls is closed after this.
    #[setting(default = "1m", range = "1s"..="1d")]
    pub idle_max: TimePeriod,
    /// How long the first calls to a worker wait, once tcp is connected, for a better way to it;
    /// then tcp serves until that is there.
    #[setting(default = "500ms", range = "0"..="1m")]
    pub upgrade_wait: TimePeriod,
    /// Pause after a connection over tcp could not be made; doubles with each further failure.
    #[setting(default = "100ms", range = "1ms"..="1m")]
    pub pause_min: TimePeriod,
    /// The longest such pause.
    #[setting(default = "30s", range = "1ms"..="1h")]
    pub pause_max: TimePeriod,
    /// A connection over tcp that lived for less counts as one more failure.
    #[setting(default = "10s", range = "0"..="1h")]
    pub stable_after: TimePeriod,
    /// Errors of another way (shared memory, a rail) to a worker within `rest_window` after which
    /// it rests, and its traffic goes the next way.
    #[setting(default = 3, range = 1..=1000)]
    pub rest_errors_max: u32,
    /// The time in which they are counted.
    #[setting(default = "10s", range = "1s"..="1h")]
    pub rest_window: TimePeriod,
    /// The first rest, after which the way is tried again by itself; doubles each time that fails.
    #[setting(default = "30s", range = "1s"..="1h")]
    pub rest_min: TimePeriod,
    /// The longest rest.
    #[setting(default = "5m", range = "1s"..="1d")]
    pub rest_max: TimePeriod,
}

/// Whether verbs are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerbsMode {
    Auto,
    On,
    Off,
}

/// Whether something is used that some devices lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureSwitch {
    Auto,
    Off,
}

impl FeatureSwitch {
    /// Returns whether it is used where a device has it.
    pub fn is_wanted(self) -> bool {
        self == Self::Auto
    }
}

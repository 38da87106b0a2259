//! The verbs transport between gateways and workers: InfiniBand, RoCE, iWARP.

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, TimePeriod};

/// The `[verbs]` section, read by both sides.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerbsSettings {
    /// `"auto"`: where this host has a rail that works. `"on"`: refuse to start without a single
    /// one. `"off"`: never. Default: `"auto"`.
    pub mode: VerbsMode,
    /// The rails of this host, in their order: rail i connects to the peer's rail i. Each is
    /// `"mlx5_0"` or `"mlx5_0:2"` (RDMA device and port), `"ib0"` (its network device) or its IP
    /// address; one that is not there keeps its place and is tried again. `"auto"` alone takes
    /// every port that has an address at the start. Default: `["auto"]`.
    pub rails: Vec<String>,
    /// Port that a worker listens on, on each of its rails. Default: `9403`.
    pub port: u16,
    /// Queue pairs of this process: of a gateway to all workers, of a worker from all gateways.
    /// Over it calls go over tcp. Default: `4096`. Range: `1` to `1000000`.
    pub connections_max: u32,
    /// Connections to a worker that have not proved the secret yet; beyond it the oldest of the
    /// busiest address gives way, if it is older than a second. Default: `64`. Range: `1` to
    /// `65536`.
    pub handshakes_max: u32,
    /// The same of one address (of IPv6, of a network of 64 bits). Default: `32`. Range: `1` to
    /// `65536`.
    pub handshakes_per_address_max: u32,
    /// Receive buffers of one connection that the peer has credits for, at most. Default: `32`.
    /// Range: `4` to `4096`.
    pub receive_count: u16,
    /// Length of each; smaller replies ride inside. The smaller of both sides' holds. Default:
    /// `"8KiB"`. Range: `"1KiB"` to `"64KiB"`.
    pub receive_buffer: ByteSize,
    /// `"auto"`: the connections of a rail share receive buffers where its device has shared
    /// receive queues. `"off"`: each has a ring of its own. Default: `"auto"`.
    pub shared_receive: FeatureSwitch,
    /// Receive buffers that the connections of a rail share; a connection for which there is no
    /// room has a ring of its own. Each is sure of 8, and may have more while others don't need
    /// them. Default: `1024`. Range: `64` to `32768`.
    pub shared_receives: u16,
    /// `"auto"`: a gateway opens its memory through memory windows of type 2 where its device has
    /// them, so that a worker reaches what it was lent, while it is lent, and nothing else.
    /// `"off"`: by one key for all. Default: `"off"`.
    pub windows: FeatureSwitch,
    /// Depth of a send queue in work requests. Default: `256`. Range: `16` to `16384`.
    pub send_queue: u32,
    /// Bytes that the NIC takes with a request instead of fetching them, where it can. Default:
    /// `"128B"`. Range: `"0B"` to `"1KiB"`.
    pub inline_max: ByteSize,
    /// How long the NIC waits for an acknowledgement before it repeats: 4.096 µs times two to this
    /// power. Default: `17`. Range: `0` to `31`.
    pub ack_timeout: u8,
    /// Times that the NIC repeats what is not acknowledged. Default: `7`. Range: `0` to `7`.
    pub retry_count: u8,
    /// Times that the NIC waits for a receive buffer of the peer; 7 is for ever. Default: `7`.
    /// Range: `0` to `7`.
    pub rnr_retry: u8,
    /// Bytes of data that a packet carries at most: `256`, `512`, `1024`, `2048` or `4096`, for a
    /// fabric whose switches are set for less than its ports. The smaller of both sides' holds;
    /// iWARP has none. Default: none.
    pub path_mtu_max: Option<u16>,
    /// Type of service of the packets, for the switches' queues (RoCE: DSCP × 4). Default: none.
    pub tos: Option<u8>,
    /// How long a connection polls after its last completion before it waits for the NIC's event;
    /// `"0"`: not at all. Costs CPU, saves microseconds. Default: `"0"`. Range: `"0"` to `"1s"`.
    pub busy_poll: TimePeriod,
    /// CPUs for threads that do nothing but drive verbs connections, one each; none means the
    /// process's own threads. With `busy_poll`, choose CPUs of the NIC's NUMA node. Default: `[]`.
    pub poll_cpus: Vec<u16>,
    /// Silence after which a sign of life is sent, at most twice as long. Default: `"15s"`. Range:
    /// `"1s"` to `"10m"`.
    pub heartbeat: TimePeriod,
    /// Longest pause between two attempts to open a rail that is down; the first is a second, and
    /// it doubles. Default: `"1m"`. Range: `"1s"` to `"1h"`.
    pub reopen_max: TimePeriod,
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

impl Default for VerbsSettings {
    fn default() -> Self {
        Self {
            mode: VerbsMode::Auto,
            rails: vec!["auto".to_owned()],
            port: 9403,
            connections_max: 4096,
            handshakes_max: 64,
            handshakes_per_address_max: 32,
            receive_count: 32,
            receive_buffer: ByteSize::from_kib(8),
            shared_receive: FeatureSwitch::Auto,
            shared_receives: 1024,
            windows: FeatureSwitch::Off,
            send_queue: 256,
            inline_max: ByteSize(128),
            ack_timeout: 17,
            retry_count: 7,
            rnr_retry: 7,
            path_mtu_max: None,
            tos: None,
            busy_poll: TimePeriod::from_millis(0),
            poll_cpus: Vec::new(),
            heartbeat: TimePeriod::from_seconds(15),
            reopen_max: TimePeriod::from_seconds(60),
        }
    }
}

//! The TCP transport between gateways and workers.

use std::net::IpAddr;

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

//! The TCP transport between gateways and workers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, TimePeriod};

/// The `[tcp]` section, read by both sides.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpSettings {
    /// Network device that workers listen on and gateways connect over, such as `"ib0"`; none
    /// leaves it to the routing table. Default: none.
    pub bind_device: Option<String>,
    /// Local address that gateways connect from. Default: none.
    pub bind_address: Option<IpAddr>,
    /// For connecting and the handshake together. Default: `"5s"`. Range: `"10ms"` to `"1m"`.
    pub connect_deadline: TimePeriod,
    /// Calls under way on one connection. The smaller of both sides' bounds holds. Default: `256`.
    /// Range: `1` to `65536`.
    pub calls_in_flight_max: u32,
    /// Longest message, data apart. The smaller of both sides' bounds holds. Default: `"64KiB"`.
    /// Range: `"16KiB"` to `"1MiB"`.
    pub frame_max: ByteSize,
    /// Bytes that wait for one socket. Default: `"8MiB"`. Range: `"1MiB"` to `"256MiB"`.
    pub write_queue_max: ByteSize,
    /// A peer that has not acknowledged a cancel for this long loses its connection. Default:
    /// `"10s"`. Range: `"100ms"` to `"5m"`.
    pub cancel_ack_deadline: TimePeriod,
    /// Idle time before the first keep-alive probe. Default: `"15s"`. Range: `"1s"` to `"1h"`.
    pub keepalive_idle: TimePeriod,
    /// Time between two probes; three unanswered ones end the connection. Default: `"5s"`. Range:
    /// `"1s"` to `"5m"`.
    pub keepalive_interval: TimePeriod,
    /// A peer that takes no byte for this long is gone. Default: `"30s"`. Range: `"1s"` to `"10m"`.
    pub send_stall_max: TimePeriod,
    /// Connections that a worker accepts. Default: `16384`. Range: `1` to `1000000`.
    pub connections_max: u32,
    /// Connections to a worker that have not proved the secret yet; beyond it the oldest of the
    /// busiest address gives way, if it is older than a second. Default: `256`. Range: `1` to
    /// `65536`.
    pub handshakes_max: u32,
    /// The same of one address (of IPv6, of a network of 64 bits). Default: `64`. Range: `1` to
    /// `65536`.
    pub handshakes_per_address_max: u32,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            bind_device: None,
            bind_address: None,
            connect_deadline: TimePeriod::from_seconds(5),
            calls_in_flight_max: 256,
            frame_max: ByteSize::from_kib(64),
            write_queue_max: ByteSize::from_mib(8),
            cancel_ack_deadline: TimePeriod::from_seconds(10),
            keepalive_idle: TimePeriod::from_seconds(15),
            keepalive_interval: TimePeriod::from_seconds(5),
            send_stall_max: TimePeriod::from_seconds(30),
            connections_max: 16_384,
            handshakes_max: 256,
            handshakes_per_address_max: 64,
        }
    }
}

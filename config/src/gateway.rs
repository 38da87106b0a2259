//! The S3 endpoint: where it listens, what it bounds, how long it waits.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::process::Memory;
use crate::quantity::{ByteSize, Period};

/// The `[gateway]` section.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// Address that S3 clients connect to; port 0 takes a free one. Default: `"127.0.0.1:9000"`.
    pub listen: SocketAddr,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside. Default: `"127.0.0.1:9001"`.
    pub admin_listen: SocketAddr,
    /// Host names under which buckets may be in the host part (`bucket.s3.example`); path style works always. Default: `[]`.
    pub domains: Vec<String>,
    /// File of access keys and what they may do; read again when it changes. Required.
    pub identities: Option<PathBuf>,
    /// Memory that replies of workers land in.
    pub memory: Memory,
    /// HTTPS instead of HTTP.
    pub tls: GatewayTls,
    /// Bounds on clients and on what they have under way.
    pub limits: GatewayLimits,
    /// How long clients are waited for.
    pub timeouts: GatewayTimeouts,
    /// How workers are asked.
    pub tier: GatewayTier,
}

/// The `[gateway.tls]` table: both files, or neither.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTls {
    /// Certificate chain in PEM. Default: none.
    pub certificate: Option<PathBuf>,
    /// Private key in PEM. Default: none.
    pub key: Option<PathBuf>,
}

/// The `[gateway.limits]` table. What goes over a bound gets 503 SlowDown (or its own S3 code), never memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayLimits {
    /// Connections of clients. Default: `4096`. Range: `1` to `1000000`.
    pub connections_max: u32,
    /// Requests under way. Default: `1024`. Range: `1` to `1000000`.
    pub requests_in_flight_max: u32,
    /// Bytes of bodies that requests under way may hold in memory together; none means all of `gateway.memory`. Default: none.
    pub bytes_in_flight_max: Option<ByteSize>,
    /// Bytes that one read asks of workers ahead of what its client has taken. Default: `"8MiB"`. Range: `"1MiB"` to `"256MiB"`.
    pub window: ByteSize,
    /// Bytes that a read lends with its first request, before it knows the object's length. Default: `"256KiB"`. Range: `"4KiB"` to `"16MiB"`.
    pub open_landing: ByteSize,
    /// Largest chunk of an aws-chunked upload: one chunk is held until its signature is checked. Default: `"16MiB"`. Range: `"64KiB"` to `"64MiB"`.
    pub aws_chunk_max: ByteSize,
    /// Size of all request headers. Default: `"64KiB"`. Range: `"8KiB"` to `"1MiB"`.
    pub header_max: ByteSize,
    /// Number of request headers. Default: `128`. Range: `16` to `1024`.
    pub headers_max: u32,
}

/// The `[gateway.timeouts]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTimeouts {
    /// For the headers of a request to arrive, and for the TLS handshake. Default: `"30s"`. Range: `"1s"` to `"10m"`.
    pub header: Period,
    /// Between two pieces of a body, in either direction; a client that stands still longer is cut. Default: `"1m"`. Range: `"1s"` to `"1h"`.
    pub idle_body: Period,
    /// How far a client's clock may be off, as S3 has it. Default: `"15m"`. Range: `"1s"` to `"1d"`.
    pub clock_skew: Period,
}

/// The `[gateway.tier]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTier {
    /// For a connection to a worker, handshake included. Default: `"2s"`. Range: `"10ms"` to `"1m"`.
    pub connect_deadline: Period,
    /// For a worker to give a sign of life about a request; then the next replica is asked, then the UFS. Default: `"5s"`. Range: `"10ms"` to `"5m"`.
    pub reply_deadline: Period,
    /// After how long the next replica is asked too, while the first is silent. Default: `"100ms"`. Range: `"1ms"` to `"1m"`.
    pub hedge_after: Period,
    /// For how long reads of a key ask the UFS when its writer has vanished between announce and report. Longer than any write takes
    /// to become visible. Default: `"1m"`. Range: `"1s"` to `"1h"`.
    pub write_uncertain_for: Period,
    /// Connections to each worker. Default: `2`. Range: `1` to `64`.
    pub connections_per_worker: u32,
    /// Reads that go around the tier to the UFS at once, when workers can't answer; more get 503 SlowDown. Default: `64`. Range: `1` to `65536`.
    pub bypass_in_flight_max: u32,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9001)),
            domains: Vec::new(),
            identities: None,
            memory: Memory::default(),
            tls: GatewayTls::default(),
            limits: GatewayLimits::default(),
            timeouts: GatewayTimeouts::default(),
            tier: GatewayTier::default(),
        }
    }
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            requests_in_flight_max: 1024,
            bytes_in_flight_max: None,
            window: ByteSize::mib(8),
            open_landing: ByteSize::kib(256),
            aws_chunk_max: ByteSize::mib(16),
            header_max: ByteSize::kib(64),
            headers_max: 128,
        }
    }
}

impl Default for GatewayTimeouts {
    fn default() -> Self {
        Self { header: Period::seconds(30), idle_body: Period::seconds(60), clock_skew: Period::seconds(900) }
    }
}

impl Default for GatewayTier {
    fn default() -> Self {
        Self {
            connect_deadline: Period::seconds(2),
            reply_deadline: Period::seconds(5),
            hedge_after: Period::millis(100),
            write_uncertain_for: Period::seconds(60),
            connections_per_worker: 2,
            bypass_in_flight_max: 64,
        }
    }
}

//! The S3 endpoint: where it listens, what it bounds, how long it waits.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::process::MemorySettings;
use crate::quantity::{ByteSize, TimePeriod};

/// The `[gateway]` section.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewaySettings {
    /// Address that S3 clients connect to; port 0 takes a free one. Default: `"127.0.0.1:9000"`.
    pub listen: SocketAddr,
    /// Network device, such as `"eth0"`, that S3 clients must come in over, whatever the address;
    /// none: over any. Default: none.
    pub bind_device: Option<String>,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside.
    /// Default: `"127.0.0.1:9001"`.
    pub admin_listen: SocketAddr,
    /// As `bind_device`, for `admin_listen`. Default: none.
    pub admin_bind_device: Option<String>,
    /// Host names under which buckets may be in the host part (`bucket.s3.example`); path style
    /// works always. Default: `[]`.
    pub domains: Vec<String>,
    /// File of access keys and what they may do; read again when it changes. Required.
    pub identities: Option<PathBuf>,
    /// Take requests signed by version 2, which AWS has given up: what very old clients send, and
    /// boto3 with `signature_version="s3"`. Such a signature covers neither body nor host. Default:
    /// `false`.
    pub sigv2: bool,
    /// How long a bucket's CORS configuration is believed, and that it has none; a change through
    /// this gateway counts at once. Default: `"5s"`. Range: `"0"` to `"1h"`.
    pub cors_ttl: TimePeriod,
    /// Memory that replies of workers land in.
    pub memory: MemorySettings,
    /// HTTPS instead of HTTP.
    pub tls: GatewayTlsSettings,
    /// Bounds on clients and on what they may send.
    pub limits: GatewayLimitsSettings,
    /// How long clients are waited for.
    pub timeouts: GatewayTimeoutsSettings,
    /// How objects are read.
    pub read: GatewayReadSettings,
    /// How workers are asked.
    pub tier: GatewayTierSettings,
    /// Connections to workers.
    pub peers: GatewayPeersSettings,
}

/// The `[gateway.tls]` table: both files, or neither.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTlsSettings {
    /// Certificate chain in PEM. Default: none.
    pub certificate: Option<PathBuf>,
    /// Private key in PEM. Default: none.
    pub key: Option<PathBuf>,
}

/// The `[gateway.limits]` table. What goes over a bound gets 503 SlowDown (or its own S3 code),
/// never memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayLimitsSettings {
    /// Connections of clients. Default: `8192`. Range: `1` to `1000000`.
    pub connections_max: u32,
    /// The same of one address (of IPv6, of a network of 64 bits). The ranks of a node may all come
    /// from one. Default: `8192`. Range: `1` to `1000000`.
    pub connections_per_address_max: u32,
    /// Connections over which no signature has held yet. Beyond it, and where `connections_max` are
    /// open, the oldest of the busiest address gives way to a new one, if it is older than a
    /// second; else the new one is closed. Default: `4096`. Range: `1` to `1000000`.
    pub unproven_connections_max: u32,
    /// The same of one address. Default: `2048`. Range: `1` to `1000000`.
    pub unproven_per_address_max: u32,
    /// Forms and preflights under way whose sender is not known yet, a quarter for one address;
    /// they take no place of `requests_in_flight_max`. Default: `256`. Range: `1` to `65536`.
    pub unproven_requests_max: u32,
    /// What one identity may hold, in percent, of `requests_in_flight_max` and of
    /// `gateway.read.bypass_in_flight_max`; beyond it, it gets 503 SlowDown. An identity that is
    /// the only one has all. Default: `90`. Range: `1` to `100`.
    pub identity_share_percent: u32,
    /// Uploads under way of one identity to one store, of whose connections (`connections_max` of
    /// its `[ufs.limits]`) each holds one; beyond it 503 SlowDown. An identity that is the only one
    /// has no such bound. Default: `448`. Range: `1` to `65536`.
    pub uploads_per_identity_max: u32,
    /// Bytes a second that a request's body must come at, while it is waited for; else 400
    /// RequestTimeout. `"0B"`: any. Default: `"16KiB"`. Range: `"0B"` to `"1GiB"`.
    pub upload_rate_min: ByteSize,
    /// Bytes a second that each answer's body must be taken at, while it is there to be taken; else
    /// the connection is cut. `"0B"`: any. Default: `"16KiB"`. Range: `"0B"` to `"1GiB"`.
    pub download_rate_min: ByteSize,
    /// CORS configurations that stores are asked for at once because of preflights, which anyone
    /// can send, a quarter of them by one address; and as many because of requests that are signed.
    /// Default: `8`. Range: `1` to `1024`.
    pub cors_lookups_max: u32,
    /// Requests under way, each until its body's last byte. Default: `4096`. Range: `1` to
    /// `1000000`.
    pub requests_in_flight_max: u32,
    /// Size of all request headers. Default: `"64KiB"`. Range: `"8KiB"` to `"1MiB"`.
    pub header_max: ByteSize,
    /// Memory for the bodies of all requests under way: some 620 KiB for each upload under the
    /// default bounds, or its length where that is less, and documents whole; beyond it they get
    /// 503 SlowDown. Not less than twice `xml_max`. Default: `"256MiB"`. Range: `"1MiB"` to
    /// `"64GiB"`.
    pub bodies_max: ByteSize,
    /// What an HTTP/2 connection may send of bodies before they are read; one request may send a
    /// quarter. Default: `"512KiB"`. Range: `"256KiB"` to `"64MiB"`.
    pub http2_window: ByteSize,
    /// Memory for small answers that wait for HTTP/2 clients to take them; beyond it they count as
    /// requests under way. Default: `"64MiB"`. Range: `"64KiB"` to `"64GiB"`.
    pub http2_answers_max: ByteSize,
    /// Largest XML document in a request: 10,000 parts, or 1,000 keys of 1 KiB, need 4 MiB.
    /// Default: `"4MiB"`. Range: `"64KiB"` to `"64MiB"`.
    pub xml_max: ByteSize,
    /// Largest upload by an HTML form: held whole in memory. Default: `"64MiB"`. Range: `"64KiB"`
    /// to `"1GiB"`.
    pub form_max: ByteSize,
    /// Memory for all such uploads at once; beyond it they get 503 SlowDown. Not less than
    /// `form_max`. Default: `"128MiB"`. Range: `"64KiB"` to `"64GiB"`.
    pub forms_max: ByteSize,
}

/// The `[gateway.timeouts]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTimeoutsSettings {
    /// For the headers of a request to arrive, also on a connection that is kept open between
    /// requests. Default: `"1m"`. Range: `"1s"` to `"1h"`.
    pub header: TimePeriod,
    /// From the beginning of a connection until the signature of a request holds: handshakes, pings
    /// and unsigned requests renew nothing. Also for the fields of a form. Default: `"30s"`. Range:
    /// `"1s"` to `"1h"`.
    pub proof: TimePeriod,
    /// For a TLS handshake. Default: `"10s"`. Range: `"1s"` to `"5m"`.
    pub tls_handshake: TimePeriod,
    /// Between two pieces of a request's body. Default: `"1m"`. Range: `"1s"` to `"1h"`.
    pub body_idle: TimePeriod,
    /// For a client that does not read its answer. Default: `"1m"`. Range: `"1s"` to `"1h"`.
    pub write_stall: TimePeriod,
    /// Of waiting, over which `gateway.limits.upload_rate_min` and `download_rate_min` are
    /// measured. Default: `"30s"`. Range: `"1s"` to `"10m"`.
    pub rate_window: TimePeriod,
    /// For a store's answer that says what a bucket's CORS configuration is. Default: `"5s"`.
    /// Range: `"100ms"` to `"1m"`.
    pub cors_lookup: TimePeriod,
    /// How far a client's clock may be off, as S3 has it. Default: `"15m"`. Range: `"1s"` to
    /// `"1d"`.
    pub clock_skew: TimePeriod,
}

/// The `[gateway.read]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayReadSettings {
    /// Bytes of one response that are fetched ahead of its client. Default: `"16MiB"`. Range:
    /// `"1MiB"` to `"256MiB"`.
    pub window: ByteSize,
    /// The same over all responses; none means all of `gateway.memory`. Default: none.
    pub bytes_in_flight_max: Option<ByteSize>,
    /// How long a request waits for its turn under `bytes_in_flight_max` before it gets 503
    /// SlowDown. Default: `"5s"`. Range: `"10ms"` to `"5m"`.
    pub admission_wait_max: TimePeriod,
    /// Reads that go around the cache to the UFS at once. Default: `256`. Range: `1` to `65536`.
    pub bypass_in_flight_max: u32,
    /// How long a read waits for its turn under `bypass_in_flight_max` before it gets 503 SlowDown.
    /// Default: `"10s"`. Range: `"10ms"` to `"5m"`.
    pub bypass_wait_max: TimePeriod,
    /// How long a body that has begun waits for another source of its next byte before it is cut.
    /// Default: `"30s"`. Range: `"0ms"` to `"10m"`.
    pub resume_wait_max: TimePeriod,
    /// Bytes after a sequential reader's range that workers are told of; `"0B"` switches read-ahead
    /// off. Default: `"4MiB"`. Range: `"0B"` to `"1GiB"`.
    pub read_ahead_max: ByteSize,
    /// Objects whose readers are watched for sequences. Default: `4096`. Range: `1` to `1000000`.
    pub sequences_max: u32,
}

/// The `[gateway.tier]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTierSettings {
    /// Memory lent with the first request for an object, before its length is known: up to here an
    /// object is one round trip. Not less than a page, not more than a block. Default: `"1MiB"`.
    /// Range: `"64KiB"` to `"16MiB"`.
    pub open_landing: ByteSize,
    /// For a worker's first sign of life; then the next replica is asked, then the UFS. A live fill
    /// counts as one. Default: `"2s"`. Range: `"10ms"` to `"5m"`.
    pub first_progress: TimePeriod,
    /// For the next sign of life of a worker that has shown one. Default: `"15s"`. Range: `"100ms"`
    /// to `"10m"`.
    pub idle: TimePeriod,
    /// After how long the next replica is asked too, while the first is silent. Default: `"250ms"`.
    /// Range: `"1ms"` to `"1m"`.
    pub hedge_after: TimePeriod,
    /// For how long reads of a key ask the UFS when its writer has vanished between announce and
    /// report. Default: `"1m"`. Range: `"1s"` to `"1h"`.
    pub write_uncertain_for: TimePeriod,
    /// For a home's acknowledgement of an announcement. Longer than `coordinator.lease`, or writes
    /// fail whose home has died. Default: `"8s"`. Range: `"100ms"` to `"5m"`.
    pub announce_deadline: TimePeriod,
    /// How long a report is tried before the writer is told that it failed. Default: `"15s"`.
    /// Range: `"100ms"` to `"10m"`.
    pub report_deadline: TimePeriod,
    /// How long an open waits, where its worker has another placement map, for the maps to agree,
    /// before the UFS is read. `"0s"`: not at all. Default: `"500ms"`. Range: `"0s"` to `"30s"`.
    pub map_wait: TimePeriod,
    /// How long a home may be silent to an announcement or report before the coordinators are asked
    /// to relay it; of use only with `cluster.coordinators`, and below `announce_deadline`.
    /// Default: `"500ms"`. Range: `"10ms"` to `"1m"`.
    pub relay_after: TimePeriod,
    /// Announcements and reports that are relayed at once; `0` has none relayed. Default: `16`.
    /// Range: `0` to `65536`.
    pub relays_max: u32,
    /// Objects whose attributes may be held by leases of their homes (see `worker.leases`), those
    /// with long headers counting as several; `0` wants none. Default: `100000`. Range: `0` to
    /// `10000000`.
    pub leases_max: u32,
    /// Failures in a row after which a worker rests. Default: `3`. Range: `1` to `1000`.
    pub failures_max: u32,
    /// Its first rest; doubles with each failed trial. Default: `"1s"`. Range: `"10ms"` to `"10m"`.
    pub rest_min: TimePeriod,
    /// Its longest rest. Default: `"1m"`. Range: `"10ms"` to `"1h"`.
    pub rest_max: TimePeriod,
}

/// The `[gateway.peers]` table. A worker is reached by the best way that both hosts have and that
/// works: shared memory, verbs, tcp.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayPeersSettings {
    /// Connections to each worker over one transport; over verbs at least one for each rail.
    /// Default: `4`. Range: `1` to `64`.
    pub connections_max: u32,
    /// Calls under way on the least loaded connection from which another one is opened. Default:
    /// `16`. Range: `1` to `65536`.
    pub calls_per_connection: u32,
    /// A connection without calls is closed after this. Default: `"1m"`. Range: `"1s"` to `"1d"`.
    pub idle_max: TimePeriod,
    /// How long the first calls to a worker wait, once tcp is connected, for a better way to it;
    /// then tcp serves until that is there. Default: `"500ms"`. Range: `"0"` to `"1m"`.
    pub upgrade_wait: TimePeriod,
    /// Pause after a connection over tcp could not be made; doubles with each further failure.
    /// Default: `"100ms"`. Range: `"1ms"` to `"1m"`.
    pub pause_min: TimePeriod,
    /// The longest such pause. Default: `"30s"`. Range: `"1ms"` to `"1h"`.
    pub pause_max: TimePeriod,
    /// A connection over tcp that lived for less counts as one more failure. Default: `"10s"`.
    /// Range: `"0"` to `"1h"`.
    pub stable_after: TimePeriod,
    /// Errors of another way (shared memory, a rail) to a worker within `rest_window` after which
    /// it rests, and its traffic goes the next way. Default: `3`. Range: `1` to `1000`.
    pub rest_errors_max: u32,
    /// The time in which they are counted. Default: `"10s"`. Range: `"1s"` to `"1h"`.
    pub rest_window: TimePeriod,
    /// The first rest, after which the way is tried again by itself; doubles each time that fails.
    /// Default: `"30s"`. Range: `"1s"` to `"1h"`.
    pub rest_min: TimePeriod,
    /// The longest rest. Default: `"5m"`. Range: `"1s"` to `"1d"`.
    pub rest_max: TimePeriod,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            bind_device: None,
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9001)),
            admin_bind_device: None,
            domains: Vec::new(),
            identities: None,
            sigv2: false,
            cors_ttl: TimePeriod::from_seconds(5),
            memory: MemorySettings::default(),
            tls: GatewayTlsSettings::default(),
            limits: GatewayLimitsSettings::default(),
            timeouts: GatewayTimeoutsSettings::default(),
            read: GatewayReadSettings::default(),
            tier: GatewayTierSettings::default(),
            peers: GatewayPeersSettings::default(),
        }
    }
}

impl Default for GatewayLimitsSettings {
    fn default() -> Self {
        Self {
            connections_max: 8192,
            connections_per_address_max: 8192,
            unproven_connections_max: 4096,
            unproven_per_address_max: 2048,
            unproven_requests_max: 256,
            identity_share_percent: 90,
            uploads_per_identity_max: 448,
            upload_rate_min: ByteSize::from_kib(16),
            download_rate_min: ByteSize::from_kib(16),
            cors_lookups_max: 8,
            requests_in_flight_max: 4096,
            header_max: ByteSize::from_kib(64),
            bodies_max: ByteSize::from_mib(256),
            http2_window: ByteSize::from_kib(512),
            http2_answers_max: ByteSize::from_mib(64),
            xml_max: ByteSize::from_mib(4),
            form_max: ByteSize::from_mib(64),
            forms_max: ByteSize::from_mib(128),
        }
    }
}

impl Default for GatewayTimeoutsSettings {
    fn default() -> Self {
        Self {
            header: TimePeriod::from_seconds(60),
            proof: TimePeriod::from_seconds(30),
            tls_handshake: TimePeriod::from_seconds(10),
            body_idle: TimePeriod::from_seconds(60),
            write_stall: TimePeriod::from_seconds(60),
            rate_window: TimePeriod::from_seconds(30),
            cors_lookup: TimePeriod::from_seconds(5),
            clock_skew: TimePeriod::from_seconds(900),
        }
    }
}

impl Default for GatewayReadSettings {
    fn default() -> Self {
        Self {
            window: ByteSize::from_mib(16),
            bytes_in_flight_max: None,
            admission_wait_max: TimePeriod::from_seconds(5),
            bypass_in_flight_max: 256,
            bypass_wait_max: TimePeriod::from_seconds(10),
            resume_wait_max: TimePeriod::from_seconds(30),
            read_ahead_max: ByteSize::from_mib(4),
            sequences_max: 4096,
        }
    }
}

impl Default for GatewayTierSettings {
    fn default() -> Self {
        Self {
            open_landing: ByteSize::from_mib(1),
            first_progress: TimePeriod::from_seconds(2),
            idle: TimePeriod::from_seconds(15),
            hedge_after: TimePeriod::from_millis(250),
            write_uncertain_for: TimePeriod::from_seconds(60),
            announce_deadline: TimePeriod::from_seconds(8),
            report_deadline: TimePeriod::from_seconds(15),
            map_wait: TimePeriod::from_millis(500),
            relay_after: TimePeriod::from_millis(500),
            relays_max: 16,
            leases_max: 100_000,
            failures_max: 3,
            rest_min: TimePeriod::from_seconds(1),
            rest_max: TimePeriod::from_seconds(60),
        }
    }
}

impl Default for GatewayPeersSettings {
    fn default() -> Self {
        Self {
            connections_max: 4,
            calls_per_connection: 16,
            idle_max: TimePeriod::from_seconds(60),
            pause_min: TimePeriod::from_millis(100),
            pause_max: TimePeriod::from_seconds(30),
            upgrade_wait: TimePeriod::from_millis(500),
            stable_after: TimePeriod::from_seconds(10),
            rest_errors_max: 3,
            rest_window: TimePeriod::from_seconds(10),
            rest_min: TimePeriod::from_seconds(30),
            rest_max: TimePeriod::from_seconds(300),
        }
    }
}

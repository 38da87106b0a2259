//! The settings of the S3 endpoint: where it listens, what it bounds, how long it waits.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_client::TierSettings;
use verbs3_rdma::settings::PeerSettings;
use verbs3_settings::{ByteSize, MemorySettings, SettingsTable, TimePeriod};

use crate::http::RateMin;
use crate::lending::GatewayLendingSettings;
use crate::s3_rdma::S3OverRdmaSettings;
use crate::write::GatewayPopulateSettings;

/// The `[gateway]` section.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct GatewaySettings {
    /// Address that S3 clients connect to; port 0 takes a free one.
    #[setting(default = "127.0.0.1:9000")]
    pub listen: SocketAddr,
    /// Network device, such as `"eth0"`, that S3 clients must come in over, whatever the address;
    /// none: over any.
    #[setting(example = "eth0")]
    pub bind_device: Option<String>,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside.
    #[setting(default = "127.0.0.1:9001")]
    pub admin_listen: SocketAddr,
    /// As `bind_device`, for `admin_listen`.
    #[setting(example = "eth0")]
    pub admin_bind_device: Option<String>,
    /// Socket file over which a gateway that starts on this host takes the place of one that serves:
    /// both have the same listening sockets, so that no client is refused meanwhile. Once the new
    /// one serves, it alone is at `admin_listen`; the old one serves S3 until it is ended. None:
    /// there is one gateway at a time. Not of `verbs3 dev`.
    #[setting(example = "/run/verbs3-gateway/handover.sock")]
    pub handover_socket: Option<PathBuf>,
    /// Socket file that answers what `admin_listen` answers, of this process and no other: for
    /// probes (`verbs3 probe`), where two gateways may share that address.
    #[setting(example = "/run/verbs3-probe/probe.sock")]
    pub probe_socket: Option<PathBuf>,
    /// Host names under which buckets may be in the host part (`bucket.s3.example`); path style
    /// works always.
    pub domains: Vec<String>,
    /// Names and addresses by which clients reach this gateway (`gpu-07`, `10.0.0.7:9000`), besides
    /// `domains`. A request that names another host is refused: it was signed for another endpoint.
    /// None: any host is taken. A name without a port stands for every port.
    pub own_hosts: Vec<String>,
    /// File of access keys and what they may do; read again when it changes.
    #[setting(required, example = "/etc/verbs3/identities.toml")]
    pub identities: Option<PathBuf>,
    /// Take requests signed by version 2, which AWS has given up: what very old clients send, and
    /// boto3 with `signature_version="s3"`. Such a signature covers neither body nor host.
    #[setting(default = false)]
    pub sigv2: bool,
    /// How long a bucket's CORS configuration is believed, and that it has none; a change through
    /// this gateway counts at once.
    #[setting(default = "5s", range = "0"..="1h")]
    pub cors_ttl: TimePeriod,
    /// How much longer it serves where the store does not answer, or
    /// `gateway.limits.cors_lookups_max` are being asked for. Known changes count all the same.
    #[setting(default = "5m", range = "0"..="1d")]
    pub cors_stale_max: TimePeriod,
    /// Tell clients what the cache did: `x-verbs3-cache`, `x-verbs3-transport`, `x-verbs3-home`.
    /// Where tenants must not learn what others read, tell them nothing.
    #[setting(default = true)]
    pub cache_headers: bool,
    /// Memory that replies of workers land in.
    #[setting(table)]
    pub memory: MemorySettings,
    /// HTTPS instead of HTTP.
    #[setting(table)]
    pub tls: GatewayTlsSettings,
    /// Bounds on clients and on what they may send.
    #[setting(table)]
    pub limits: GatewayLimitsSettings,
    /// How long clients are waited for.
    #[setting(table)]
    pub timeouts: GatewayTimeoutsSettings,
    /// How it is learned whether stores answer.
    #[setting(table)]
    pub store_probe: GatewayStoreProbeSettings,
    /// How objects are read.
    #[setting(table)]
    pub read: GatewayReadSettings,
    /// How workers are asked.
    #[setting(table)]
    pub tier: TierSettings,
    /// How writes are copied to workers (populate on write).
    #[setting(table)]
    pub populate: GatewayPopulateSettings,
    /// Connections to workers.
    #[setting(table)]
    pub peers: PeerSettings,
    /// Memory that processes of this host lend, for reads and writes without HTTP (docs/lending.md).
    #[setting(table)]
    pub lending: GatewayLendingSettings,
    /// Payloads that are written into memory of clients of other hosts (docs/s3-over-rdma.md).
    #[setting(table)]
    pub s3_over_rdma: S3OverRdmaSettings,
}

/// The `[gateway.tls]` table: both files, or neither.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTlsSettings {
    /// Certificate chain in PEM.
    #[setting(example = "/etc/verbs3/tls.crt")]
    pub certificate: Option<PathBuf>,
    /// Private key in PEM.
    #[setting(example = "/etc/verbs3/tls.key")]
    pub key: Option<PathBuf>,
}

/// The `[gateway.store_probe]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayStoreProbeSettings {
    /// A store that has answered no request for so long is asked for the head of a bucket. `"0s"`:
    /// requests of clients alone show whether it answers.
    #[setting(default = "30s", range = "0"..="1h")]
    pub every: TimePeriod,
    /// `/readyz` is 503 while a store has been silent for longer. `"0s"`: it stays 200, and names
    /// the store, since what is cached is served all the same.
    #[setting(default = "0s", range = "0"..="1d")]
    pub unready_after: TimePeriod,
}

/// The `[gateway.limits]` table. What goes over a bound gets 503 SlowDown (or its own S3 code),
/// never memory.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayLimitsSettings {
    /// Connections of clients. A sixteenth is left to newcomers, who wait for a second where all are
    /// taken.
    #[setting(default = 8192, range = 1..=1_000_000)]
    pub connections_max: u32,
    /// The same of one address (of IPv6, of a network of 64 bits). The ranks of a node may all come
    /// from one.
    #[setting(default = 8192, range = 1..=1_000_000)]
    pub connections_per_address_max: u32,
    /// Connections over which no signature has held yet. Beyond it, and where `connections_max` are
    /// open, one gives way to a new one: of an address that has more, once it is older than its part
    /// of a second that the address' connections share. Else the new one is closed.
    #[setting(default = 4096, range = 1..=1_000_000)]
    pub unproven_connections_max: u32,
    /// The same of one address.
    #[setting(default = 2048, range = 1..=1_000_000)]
    pub unproven_per_address_max: u32,
    /// Forms and preflights under way whose sender is not known yet, a quarter for one address;
    /// they take no place of `requests_in_flight_max`.
    #[setting(default = 256, range = 1..=65_536)]
    pub unproven_requests_max: u32,
    /// Part, in percent, of each bound that tenants share (docs/tenants.md), which one that holds
    /// more than its share leaves free while others are active. A tenant that is the only one has
    /// all.
    #[setting(default = 10, range = 0..=50)]
    pub tenant_reserve_percent: u32,
    /// Requests that wait for their turn under one such bound. Beyond it 503 SlowDown, for the
    /// tenant of which most wait.
    #[setting(default = 1024, range = 0..=65_536)]
    pub turns_waiting_max: u32,
    /// Requests under way to one store besides reads: uploads, listings, changes. Each holds one of
    /// its connections (`connections_max` of its `[ufs.limits]`); the others are left to reads past
    /// the cache.
    #[setting(default = 448, range = 1..=65_536)]
    pub store_requests_max: u32,
    /// Bytes a second that are read from and written to one store past the cache, shared by tenants
    /// (docs/tenants.md): uploads and reads wait for their turn. `"0B"`: any.
    #[setting(default = "0B", range = "0B"..="1TiB")]
    pub store_rate_max: ByteSize,
    /// Bytes a second that a request's body must come at, while it is waited for; else 400
    /// RequestTimeout. `"0B"`: any.
    #[setting(default = "16KiB", range = "0B"..="1GiB")]
    pub upload_rate_min: ByteSize,
    /// Bytes a second that each answer's body must be taken at, while it is there to be taken; else
    /// the connection is cut. `"0B"`: any.
    #[setting(default = "16KiB", range = "0B"..="1GiB")]
    pub download_rate_min: ByteSize,
    /// CORS configurations that stores are asked for at once because of preflights, which anyone
    /// can send, a quarter of them by one address; and as many, which tenants share
    /// (docs/tenants.md), because of requests that are signed.
    #[setting(default = 8, range = 1..=1024)]
    pub cors_lookups_max: u32,
    /// Requests under way, each until its body's last byte.
    #[setting(default = 4096, range = 1..=1_000_000)]
    pub requests_in_flight_max: u32,
    /// Questions about preload jobs (`/v1/preload`) that wait for the coordinators, each with a
    /// connection to them; beyond it they get 503.
    #[setting(default = 16, range = 1..=4096)]
    pub preloads_in_flight_max: u32,
    /// Size of all request headers.
    #[setting(default = "64KiB", range = "8KiB"..="1MiB")]
    pub header_max: ByteSize,
    /// Memory for the bodies of all requests under way: some 620 KiB for each upload under the
    /// default bounds, or its length where that is less, and documents whole; beyond it they get
    /// 503 SlowDown. Not less than twice `xml_max`.
    #[setting(default = "256MiB", range = "1MiB"..="64GiB")]
    pub bodies_max: ByteSize,
    /// What an HTTP/2 connection may send of bodies before they are read; one request may send a
    /// quarter.
    #[setting(default = "512KiB", range = "256KiB"..="64MiB")]
    pub http2_window: ByteSize,
    /// Memory for small answers that wait for HTTP/2 clients to take them; beyond it they count as
    /// requests under way.
    #[setting(default = "64MiB", range = "64KiB"..="64GiB")]
    pub http2_answers_max: ByteSize,
    /// Largest XML document in a request: 10,000 parts, or 1,000 keys of 1 KiB, need 4 MiB.
    #[setting(default = "4MiB", range = "64KiB"..="64MiB")]
    pub xml_max: ByteSize,
    /// Largest upload by an HTML form: held whole in memory.
    #[setting(default = "64MiB", range = "64KiB"..="1GiB")]
    pub form_max: ByteSize,
    /// Memory for all such uploads at once; beyond it they get 503 SlowDown. Not less than
    /// `form_max`.
    #[setting(default = "128MiB", range = "64KiB"..="64GiB")]
    pub forms_max: ByteSize,
}

/// The `[gateway.timeouts]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTimeoutsSettings {
    /// For the headers of a request to arrive, also on a connection that is kept open between
    /// requests.
    #[setting(default = "1m", range = "1s"..="1h")]
    pub header: TimePeriod,
    /// From the beginning of a connection until the signature of a request holds: handshakes, pings
    /// and unsigned requests renew nothing. Also for the fields of a form.
    #[setting(default = "30s", range = "1s"..="1h")]
    pub proof: TimePeriod,
    /// For a TLS handshake.
    #[setting(default = "10s", range = "1s"..="5m")]
    pub tls_handshake: TimePeriod,
    /// Between two pieces of a request's body.
    #[setting(default = "1m", range = "1s"..="1h")]
    pub body_idle: TimePeriod,
    /// After SIGTERM, for clients to leave in order: connections and requests are still taken, and
    /// each answer of HTTP/1.1 ends its connection. It is over once no client is connected; then
    /// nothing new is taken. Part of `process.drain_for`, at most half of it; `"0"`: none.
    #[setting(default = "1s", range = "0"..="1m")]
    pub farewell: TimePeriod,
    /// For a client that does not read its answer.
    #[setting(default = "1m", range = "1s"..="1h")]
    pub write_stall: TimePeriod,
    /// Of waiting, over which `gateway.limits.upload_rate_min` and `download_rate_min` are
    /// measured.
    #[setting(default = "30s", range = "1s"..="10m")]
    pub rate_window: TimePeriod,
    /// For a store's answer that says what a bucket's CORS configuration is. A signed request waits
    /// as long for its turn before, where `gateway.limits.cors_lookups_max` is reached.
    #[setting(default = "5s", range = "100ms"..="1m")]
    pub cors_lookup: TimePeriod,
    /// How long a request waits for its turn, where a bound that tenants share is reached, before
    /// it gets 503 SlowDown. Reads have their own: `gateway.read.admission_wait_max`,
    /// `bypass_wait_max`.
    #[setting(default = "5s", range = "10ms"..="5m")]
    pub turn_wait: TimePeriod,
    /// How long after its last request a tenant counts as active, so that others leave it the
    /// reserve.
    #[setting(default = "1m", range = "0"..="1h")]
    pub tenant_active: TimePeriod,
    /// How far a client's clock may be off, as S3 has it.
    #[setting(default = "15m", range = "1s"..="1d")]
    pub clock_skew: TimePeriod,
}

/// The `[gateway.read]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayReadSettings {
    /// Answer GETs and HEADs of the plain form (a signed path, at most a range) without the general
    /// parser of S3 requests, which costs more than a small object itself. Answers are the same.
    #[setting(default = true)]
    pub plain_reads: bool,
    /// Bytes of one response that are fetched ahead of its client.
    #[setting(default = "16MiB", range = "1MiB"..="256MiB")]
    pub window: ByteSize,
    /// The same over all responses; none means all of `gateway.memory`.
    #[setting(example = "512MiB")]
    pub bytes_in_flight_max: Option<ByteSize>,
    /// The part of it, in percent, that tenants whose last reads missed may hold together: a scan
    /// of cold data leaves the rest to the hits of others.
    #[setting(default = 75, range = 1..=100)]
    pub cold_share_percent: u32,
    /// How long a request waits for its turn under `bytes_in_flight_max` before it gets 503
    /// SlowDown.
    #[setting(default = "5s", range = "10ms"..="5m")]
    pub admission_wait_max: TimePeriod,
    /// Reads that go around the cache to the UFS at once.
    #[setting(default = 256, range = 1..=65_536)]
    pub bypass_in_flight_max: u32,
    /// How long a read waits for its turn under `bypass_in_flight_max` before it gets 503 SlowDown.
    #[setting(default = "10s", range = "10ms"..="5m")]
    pub bypass_wait_max: TimePeriod,
    /// How long a body that has begun waits for another source of its next byte before it is cut.
    #[setting(default = "30s", range = "0ms"..="10m")]
    pub resume_wait_max: TimePeriod,
    /// Bytes after a sequential reader's range that workers are told of; `"0B"` switches read-ahead
    /// off.
    #[setting(default = "4MiB", range = "0B"..="1GiB")]
    pub read_ahead_max: ByteSize,
    /// Objects whose readers are watched for sequences.
    #[setting(default = 4096, range = 1..=1_000_000)]
    pub sequences_max: u32,
}

impl GatewaySettings {
    /// The rate that a request's body must come at. Only the time in which it is waited for counts.
    pub fn upload_rate_min(&self) -> RateMin {
        self.rate_min(self.limits.upload_rate_min)
    }

    /// The rate that each answer's body must be taken at, while it is there to be taken.
    pub fn download_rate_min(&self) -> RateMin {
        self.rate_min(self.limits.download_rate_min)
    }

    fn rate_min(&self, per_second: ByteSize) -> RateMin {
        RateMin { bytes_per_second: per_second.0, window: self.timeouts.rate_window.0 }
    }
}

impl GatewayReadSettings {
    /// `read_ahead_max`, as a read carries it.
    pub fn read_ahead_bytes_max(&self) -> u32 {
        u32::try_from(self.read_ahead_max.0).unwrap_or(u32::MAX)
    }
}

//! Bounds and choices of a gateway.

use std::time::Duration;

use crate::http::{AdminLimits, RateMin};

/// Bounds and choices of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayOptions {
    /// Domains under which `bucket.domain` names a bucket. Other hosts are path style.
    pub domains: Vec<String>,
    /// Most requests under way, until their body's last byte; beyond it 503 SlowDown.
    pub requests_in_flight_max: usize,
    pub connections_max: usize,
    /// Most connections of one address.
    pub connections_per_address_max: usize,
    /// Most connections over which no signature has held yet. Beyond it the oldest gives way.
    pub unproven_connections_max: usize,
    /// Most connections of one address over which no signature has held yet.
    pub unproven_per_address_max: usize,
    /// Most requests that wait for something before their signature is verified: forms and
    /// preflights. Beyond it 503 SlowDown.
    pub unproven_requests_max: usize,
    /// Longest time from a connection's beginning until a signature holds. Nothing renews it.
    pub proof_max: Duration,
    /// Longest wait for a request's head, also on a connection kept open between requests.
    pub header_read_max: Duration,
    pub header_bytes_max: usize,
    /// Longest time between two frames of a request's body.
    pub body_idle_max: Duration,
    /// Longest stall of a client that does not read its answer.
    pub write_stall_max: Duration,
    /// Lowest rate of a request's body. Only the time in which the gateway waits for it counts.
    pub upload_rate_min: RateMin,
    /// Lowest rate of an answer's body. It applies to each body that waits for the client.
    pub download_rate_min: RateMin,
    /// Part of the requests under way that one of several identities may hold.
    pub identity_share_percent: u32,
    /// Most uploads of one of several identities to one UFS.
    pub uploads_per_identity_max: usize,
    pub tls_handshake_max: Duration,
    /// Memory for the bodies of all requests under way, without forms; beyond it 503 SlowDown.
    pub bodies_bytes_max: u64,
    /// Bytes of bodies that an HTTP/2 connection may send before they are read. One request may
    /// send a quarter.
    pub http2_window_bytes: u32,
    /// Memory of small answers that wait for HTTP/2 clients. Beyond it they stay requests under
    /// way.
    pub http2_answers_bytes_max: u64,
    /// Largest XML document in a request.
    pub xml_bytes_max: usize,
    /// Largest form upload; it is held whole in memory.
    pub post_object_bytes_max: u64,
    /// Memory for all form uploads at once; beyond it 503 SlowDown.
    pub post_objects_bytes_max: u64,
    /// Whether requests signed by version 2 are accepted.
    pub sigv2: bool,
    /// Largest difference between a client's clock and this host's.
    pub clock_skew_max: Duration,
    /// How long a bucket's CORS configuration stays in the cache.
    pub cors_ttl: Duration,
    /// Most CORS configurations asked of UFSs at once for strangers. Known callers have as many of
    /// their own.
    pub cors_lookups_max: usize,
    /// Longest wait for one CORS configuration.
    pub cors_lookup_max: Duration,
    pub admin: AdminLimits,
}

/// About 1 MiB in a minute.
const RATE_MIN: RateMin = RateMin { bytes_per_second: 16 << 10, window: Duration::from_secs(30) };

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            requests_in_flight_max: 4096,
            connections_max: 8192,
            connections_per_address_max: 8192,
            unproven_connections_max: 4096,
            unproven_per_address_max: 2048,
            unproven_requests_max: 256,
            proof_max: Duration::from_secs(30),
            header_read_max: Duration::from_secs(60),
            header_bytes_max: 64 * 1024,
            body_idle_max: Duration::from_secs(60),
            write_stall_max: Duration::from_secs(60),
            upload_rate_min: RATE_MIN,
            download_rate_min: RATE_MIN,
            identity_share_percent: 90,
            uploads_per_identity_max: 448,
            tls_handshake_max: Duration::from_secs(10),
            bodies_bytes_max: 256 * 1024 * 1024,
            http2_window_bytes: 512 * 1024,
            http2_answers_bytes_max: 64 * 1024 * 1024,
            // S3's largest document: 10,000 parts of a CompleteMultipartUpload, or 1,000 keys of 1
            // KiB.
            xml_bytes_max: 4 * 1024 * 1024,
            post_object_bytes_max: 64 * 1024 * 1024,
            post_objects_bytes_max: 128 * 1024 * 1024,
            sigv2: false,
            // S3's own limit.
            clock_skew_max: Duration::from_secs(15 * 60),
            cors_ttl: Duration::from_secs(5),
            cors_lookups_max: 8,
            cors_lookup_max: Duration::from_secs(5),
            admin: AdminLimits::default(),
        }
    }
}

//! What gateways and workers report of their work, for the coordinators' console.
//!
//! Every figure counts since the start of its process, so a report that is lost falsifies nothing.
//! One that comes again, or late, is known by its number and does not count. The names and bounds here keep a report small: it is no second system of metrics.

use serde::{Deserialize, Serialize};

/// Most transports, rails and tenants of one report. The rest is left out.
pub const ACTIVITY_WAYS_MAX: usize = 16;
/// See [`ACTIVITY_WAYS_MAX`]. Gateways give series of their own to 64 tenants, and one to all
/// others.
pub const ACTIVITY_TENANTS_MAX: usize = 65;
/// Longest name in a report, in bytes.
pub const ACTIVITY_NAME_BYTES_MAX: usize = 128;

/// Body of `POST /v1/activity`. The answer is [`ActivityWish`], which `GET` of the same path asks for
/// without saying anything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeActivity {
    pub role: ActivityRole,
    /// `worker.id` of a worker; host and port of a gateway.
    pub name: String,
    /// Another number after each start: the counters begin anew then.
    pub life: u64,
    /// 1 in the first report of a life, and more in each one after it.
    pub number: u64,
    /// The process ends: this is its last report, and nobody needs to miss it.
    pub is_leaving: bool,
    pub counters: ActivityCounters,
    pub gauges: ActivityGauges,
    /// Whole requests of S3 clients.
    pub request_seconds: Vec<LatencyBucket>,
    /// Reads and heads of the store, to the head of their answer.
    pub store_seconds: Vec<LatencyBucket>,
    pub transports: Vec<TransportActivity>,
    /// Rails of a process that uses verbs.
    pub rails: Vec<RailActivity>,
    pub tenants: Vec<TenantActivity>,
}

/// Kind of process that reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityRole {
    Worker,
    #[default]
    Gateway,
}

/// Counts since the start of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActivityCounters {
    /// Requests of S3 clients.
    pub requests: u64,
    /// Those that were answered with 5xx.
    pub requests_failed: u64,
    /// Bytes of answers' bodies.
    pub bytes_sent: u64,
    /// Bytes of requests' bodies.
    pub bytes_received: u64,
    /// Reads and heads of objects.
    pub reads: u64,
    /// Those of which all came from the cache.
    pub reads_hit: u64,
    /// Those that went past the cache.
    pub reads_bypassed: u64,
    /// Requests to stores, and those that the store failed or did not answer.
    pub store_requests: u64,
    pub store_failures: u64,
    pub store_bytes_read: u64,
    pub store_bytes_written: u64,
    /// Fills that failed.
    pub fills_failed: u64,
    /// Bytes of pages that came from a slot's former owner, after the map had moved.
    pub bytes_moved: u64,
    /// Pages that were given up for others.
    pub evictions: u64,
}

impl ActivityCounters {
    /// Combines each figure with the one of `other`.
    #[must_use]
    pub fn combine_each(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requests: combine(self.requests, other.requests),
            requests_failed: combine(self.requests_failed, other.requests_failed),
            bytes_sent: combine(self.bytes_sent, other.bytes_sent),
            bytes_received: combine(self.bytes_received, other.bytes_received),
            reads: combine(self.reads, other.reads),
            reads_hit: combine(self.reads_hit, other.reads_hit),
            reads_bypassed: combine(self.reads_bypassed, other.reads_bypassed),
            store_requests: combine(self.store_requests, other.store_requests),
            store_failures: combine(self.store_failures, other.store_failures),
            store_bytes_read: combine(self.store_bytes_read, other.store_bytes_read),
            store_bytes_written: combine(self.store_bytes_written, other.store_bytes_written),
            fills_failed: combine(self.fills_failed, other.fills_failed),
            bytes_moved: combine(self.bytes_moved, other.bytes_moved),
            evictions: combine(self.evictions, other.evictions),
        }
    }
}

/// What is so at the moment of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActivityGauges {
    pub fills_running: u64,
    pub fills_waiting: u64,
    /// Hot blocks that a draining worker has still to hand over.
    pub hand_overs_left: u64,
    /// Bytes of pages in memory.
    pub memory_held: u64,
    /// Stores that this process does not ask at present, because they failed.
    pub stores_cut_off: u64,
}

/// Number of measurements up to a bound, those of smaller bounds included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// Upper bound in microseconds; `u64::MAX`: all.
    pub up_to_us: u64,
    pub count: u64,
}

/// What went over one transport.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransportActivity {
    /// `shm`, `verbs`, `tcp`, …
    pub name: String,
    pub connections: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// State of one rail.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailActivity {
    pub name: String,
    pub up: bool,
}

/// What one tenant of a gateway did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantActivity {
    pub name: String,
    pub requests: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Times that something was refused to it.
    pub refusals: u64,
}

/// What the leader wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityWish {
    /// Time until the next report. 0: reports are not wanted; ask again after some minutes, for
    /// another coordinator may want them.
    pub every_ms: u64,
}

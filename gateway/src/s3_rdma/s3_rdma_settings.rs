//! The settings of S3 over RDMA: whether clients of other hosts get and put payloads so, and how
//! much of the gateway they may hold.

use serde::{Deserialize, Serialize};
use verbs3_rdma::verbs::{CLIENT_PIECE_BYTES, CLIENT_PIECES};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

/// The `[gateway.s3_over_rdma]` table. Beyond a bound a client is told to try again, or to use
/// HTTP.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct S3OverRdmaSettings {
    /// Write payloads of GETs into memory that clients of other hosts have registered, and read those
    /// of PUTs out of it, over the rails of `[verbs]` that speak RoCE (docs/s3-over-rdma.md).
    /// **Experimental**: so is the dialect, `hipobj-rc-v2`.
    #[setting(default = false)]
    pub enabled: bool,
    /// Transfers that are prepared or under way, shared by tenants. Each has a queue pair.
    #[setting(default = 64, range = 1..=4096)]
    pub sessions_max: u32,
    /// Transfers under way, shared by tenants. Each has 2 MiB of registered memory.
    #[setting(default = 16, range = 1..=1024)]
    pub transfers_max: u32,
    /// Bytes of one transfer. The dialect has no more than 2 GiB − 1.
    #[setting(default = "1GiB", range = "1MiB"..="2GiB")]
    pub transfer_max: ByteSize,
    /// How long a transfer that is prepared waits for its client.
    #[setting(default = "10s", range = "1s"..="5m")]
    pub ready_wait: TimePeriod,
    /// How long a transfer may take.
    #[setting(default = "30s", range = "1s"..="10m")]
    pub transfer_time: TimePeriod,
}

impl S3OverRdmaSettings {
    /// The memory that the bytes of all transfers under way go through.
    pub fn memory_bytes(&self) -> usize {
        self.transfers_max as usize * CLIENT_PIECES * CLIENT_PIECE_BYTES
    }
}

//! Owns the bounds of the read path.

use std::time::Duration;

/// Bounds of the read path.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// Most bytes of one response that are fetched ahead of the client.
    pub window_bytes: u64,
    /// Most bytes fetched ahead over all responses; beyond it requests get 503 SlowDown.
    pub bytes_in_flight_max: u64,
    /// Longest wait of a request for its turn under `bytes_in_flight_max`.
    pub admission_wait_max: Duration,
    /// Most reads past the tier that this gateway has at the UFS at once.
    pub ufs_bypass_in_flight_max: usize,
    /// Part of these reads that one of several identities may hold.
    pub ufs_bypass_share_percent: u32,
    /// Longest wait of a read for its turn under `ufs_bypass_in_flight_max`.
    pub ufs_bypass_wait_max: Duration,
    /// Longest wait of a body that has begun for another source of its next byte. Then it is cut.
    pub resume_wait_max: Duration,
    /// Bytes of readahead after a sequential reader's range.
    pub read_ahead_bytes_max: u32,
    /// Object versions that are watched for sequential readers.
    pub sequences_max: usize,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            window_bytes: 16 << 20,
            bytes_in_flight_max: 1 << 30,
            admission_wait_max: Duration::from_secs(5),
            ufs_bypass_in_flight_max: 256,
            ufs_bypass_share_percent: 90,
            ufs_bypass_wait_max: Duration::from_secs(10),
            resume_wait_max: Duration::from_secs(30),
            read_ahead_bytes_max: 4 << 20,
            sequences_max: 4096,
        }
    }
}

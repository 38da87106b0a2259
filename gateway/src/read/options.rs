//! Bounds of the read path.

use std::time::Duration;

/// Bounds of the read path.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// Bytes of one response that are fetched ahead of the client at most.
    pub window_bytes: u64,
    /// The same over all responses; over it, requests get 503 SlowDown.
    pub bytes_in_flight_max: u64,
    /// How long a request waits for its turn under `bytes_in_flight_max`.
    pub admission_wait_max: Duration,
    /// Reads that this gateway does at the UFS past the tier, at once.
    pub ufs_bypass_in_flight_max: usize,
    /// What one of several identities may hold of these.
    pub ufs_bypass_share_percent: u32,
    /// How long a read waits for its turn under `ufs_bypass_in_flight_max`.
    pub ufs_bypass_wait_max: Duration,
    /// How long a body that has begun waits for another source of its next byte, before it is cut.
    pub resume_wait_max: Duration,
    /// Bytes after a sequential reader's range that workers are told of.
    pub read_ahead_bytes_max: u32,
    /// Object versions whose readers are watched for sequences.
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

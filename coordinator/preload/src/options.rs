//! Bounds of preload jobs.

use std::path::PathBuf;
use std::time::Duration;

/// Bounds and rates of preload jobs.
#[derive(Debug, Clone)]
pub struct PreloadOptions {
    /// Jobs that run at once; the others wait.
    pub jobs_running_max: usize,
    /// Jobs that are remembered. The oldest finished ones make room for new ones.
    pub jobs_max: usize,
    /// Most jobs of notifications that wait or run. Further ones are refused, but their objects are
    /// invalidated all the same.
    pub notified_jobs_max: usize,
    /// Most jobs of one owner that wait or run. Operators have no such bound.
    pub jobs_per_owner_max: usize,
    /// Most blocks of one UFS that all jobs together have in flight.
    pub blocks_per_ufs_max: usize,
    /// Most objects that one job works on at once.
    pub objects_max: usize,
    /// Most blocks that all jobs together read back at once. Each takes memory for itself and for a
    /// hedge.
    pub reads_max: usize,
    /// Keys in one page of a listing; progress is persisted after each.
    pub page_keys: i32,
    /// How long to wait for one block at a busy or absent worker or UFS, before the block counts as
    /// failed.
    pub patience: Duration,
    /// First pause before a question is repeated; doubles up to `pause_max`.
    pub pause_min: Duration,
    pub pause_max: Duration,
    /// Folder of the files that list failures. `None`: only the first few of each job are kept.
    pub failures_folder: Option<PathBuf>,
    /// Most bytes of one such file.
    pub failures_bytes_max: u64,
    /// Longest job description as JSON, in bytes. The coordinators' store must hold `jobs_max`
    /// times this.
    pub spec_bytes_max: usize,
}

impl Default for PreloadOptions {
    fn default() -> Self {
        Self {
            jobs_running_max: 4,
            jobs_max: 100,
            notified_jobs_max: 20,
            jobs_per_owner_max: 4,
            blocks_per_ufs_max: 64,
            objects_max: 64,
            reads_max: 8,
            page_keys: 1000,
            patience: Duration::from_secs(300),
            pause_min: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
            failures_folder: None,
            failures_bytes_max: 256 << 20,
            spec_bytes_max: 64 << 10,
        }
    }
}

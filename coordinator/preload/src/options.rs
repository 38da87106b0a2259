//! Every bound of preload jobs.

use std::path::PathBuf;
use std::time::Duration;

/// Bounds and paces of preload jobs.
#[derive(Debug, Clone)]
pub struct PreloadOptions {
    /// Jobs that run at once; the others wait.
    pub jobs_running_max: usize,
    /// Jobs that are remembered. The oldest that are over make room for new ones.
    pub jobs_max: usize,
    /// Jobs of notifications that wait or run. What comes beyond is refused, and has its objects
    /// invalidated all the same.
    pub notified_jobs_max: usize,
    /// Blocks of one UFS that all jobs together have under way.
    pub blocks_per_ufs_max: usize,
    /// Objects that one job has under way.
    pub objects_max: usize,
    /// Blocks that all jobs together read back at once. Each takes memory for itself and for a
    /// hedge.
    pub reads_max: usize,
    /// Keys in one page of a listing; progress is persisted after each.
    pub page_keys: i32,
    /// How long a worker or a UFS that is busy or away is waited for, for one block, before the
    /// block is said to have failed.
    pub patience: Duration,
    /// First pause before a question is put again; doubles up to `pause_max`.
    pub pause_min: Duration,
    pub pause_max: Duration,
    /// Folder of the files that list failures. `None`: only the first few of each job are kept.
    pub failures_folder: Option<PathBuf>,
    /// Bytes of one such file.
    pub failures_bytes_max: u64,
    /// Longest job description, as JSON. Times `jobs_max`, what the coordinators' store has to
    /// hold.
    pub spec_bytes_max: usize,
}

impl Default for PreloadOptions {
    fn default() -> Self {
        Self {
            jobs_running_max: 4,
            jobs_max: 100,
            notified_jobs_max: 20,
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

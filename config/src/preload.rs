//! Preload jobs: how much they may have under way, and what is kept of them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, TimePeriod};

/// The `[coordinator.preload]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorPreloadSettings {
    /// Jobs that run at once; the others wait, by priority and age. Default: `4`. Range: `1` to
    /// `64`.
    pub jobs_running_max: u32,
    /// Jobs that are remembered; the oldest that are over make room for new ones. Default: `100`.
    /// Range: `1` to `1000`.
    pub jobs_max: u32,
    /// Jobs of bucket notifications (`warm=true`) among these that wait or run. Beyond it a
    /// notification gets 503; what it names is invalidated all the same. Default: `20`. Range: `1`
    /// to `1000`.
    pub notified_jobs_max: u32,
    /// Blocks of one UFS that all jobs together have workers load at once. Default: `64`. Range:
    /// `1` to `65536`.
    pub blocks_per_ufs_max: u32,
    /// Objects that one job has under way. Default: `64`. Range: `1` to `65536`.
    pub objects_max: u32,
    /// How long a worker or a UFS that is busy or away is waited for, for one block, before that
    /// block has failed. Default: `"5m"`. Range: `"1s"` to `"1d"`.
    pub patience: TimePeriod,
    /// Memory for what `verify` reads back. Default: `"64MiB"`. Range: `"16MiB"` to `"64GiB"`.
    pub memory: ByteSize,
    /// Folder of the files that list what jobs could not load, one for each job, made if absent.
    /// Default: `"/var/lib/verbs3/preload"`.
    pub failures: PathBuf,
    /// Bytes of one such file. Default: `"256MiB"`. Range: `"4KiB"` to `"1TiB"`.
    pub failures_max: ByteSize,
}

impl Default for CoordinatorPreloadSettings {
    fn default() -> Self {
        Self {
            jobs_running_max: 4,
            jobs_max: 100,
            notified_jobs_max: 20,
            blocks_per_ufs_max: 64,
            objects_max: 64,
            patience: TimePeriod::from_seconds(300),
            memory: ByteSize::from_mib(64),
            failures: PathBuf::from("/var/lib/verbs3/preload"),
            failures_max: ByteSize::from_mib(256),
        }
    }
}

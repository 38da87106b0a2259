//! The settings of preload jobs: how much they may have under way, and what is kept of them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

/// The `[coordinator.preload]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorPreloadSettings {
    /// Jobs that run at once; the others wait, by priority and age.
    #[setting(default = 4, range = 1..=64)]
    pub jobs_running_max: u32,
    /// Jobs that are remembered; the oldest that are over make room for new ones.
    #[setting(default = 100, range = 1..=1000)]
    pub jobs_max: u32,
    /// Jobs of bucket notifications (`warm=true`) among these that wait or run. Beyond it a
    /// notification gets 503; what it names is invalidated all the same.
    #[setting(default = 20, range = 1..=1000)]
    pub notified_jobs_max: u32,
    /// Jobs that one identity may have waiting or running, begun through a gateway with its access
    /// key. Beyond it, it gets 429.
    #[setting(default = 4, range = 1..=1000)]
    pub jobs_per_owner_max: u32,
    /// Smallest `bandwidth_bytes_per_second` of a job that was begun through a gateway with an
    /// access key. A slower job would hold its place for ever, and is refused with 400. Operators'
    /// jobs may be as slow as they like.
    #[setting(default = "1MiB", range = "1KiB"..="1GiB")]
    pub guest_bandwidth_min: ByteSize,
    /// Blocks of one UFS that all jobs together have workers load at once.
    #[setting(default = 64, range = 1..=65_536)]
    pub blocks_per_ufs_max: u32,
    /// Objects that one job has under way.
    #[setting(default = 64, range = 1..=65_536)]
    pub objects_max: u32,
    /// How long a worker or a UFS that is busy or away is waited for, for one block, before that
    /// block has failed.
    #[setting(default = "5m", range = "1s"..="1d")]
    pub patience: TimePeriod,
    /// Memory for what `verify` reads back.
    #[setting(default = "64MiB", range = "16MiB"..="64GiB")]
    pub memory: ByteSize,
    /// Folder of the files that list what jobs could not load, one for each job, made if absent.
    #[setting(default = "/var/lib/verbs3/preload")]
    pub failures: PathBuf,
    /// Bytes of one such file.
    #[setting(default = "256MiB", range = "4KiB"..="1TiB")]
    pub failures_max: ByteSize,
}

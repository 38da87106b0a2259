//! The settings of the disk tier.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

/// The `[worker.disk]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerDiskSettings {
    /// Bytes of pages that wait to be written, and stay in memory until they are; beyond, pages are
    /// not written. Never more than an eighth of the memory.
    #[setting(default = "256MiB", range = "1MiB"..="64GiB")]
    pub queue_max: ByteSize,
    /// Bytes written in a second, over all folders, to spare the drives; `"0B"`: as fast as they
    /// can.
    #[setting(default = "0B", range = "0B"..="1TiB")]
    pub write_rate_max: ByteSize,
    /// Pages on all folders; the index takes some 110 bytes of memory for each.
    #[setting(default = 16_777_216, range = 1000..=4_000_000_000_u32)]
    pub pages_max: u32,
    /// Reads under way at once.
    #[setting(default = 64, range = 1..=512)]
    pub reads_in_flight_max: u32,
    /// A read or write that takes longer makes its folder rest, and readers ask the UFS.
    #[setting(default = "5s", range = "100ms"..="5m")]
    pub stall_max: TimePeriod,
    /// Read and write whole pages past the kernel's page cache (O_DIRECT), where the file system
    /// can.
    #[setting(default = true)]
    pub direct: bool,
    /// Pages that were written longer ago are dropped; `"0"`: only when their place is needed.
    #[setting(default = "0", range = "0"..="3650d")]
    pub page_age_max: TimePeriod,
    /// How long the end of the process waits for pages to be written.
    #[setting(default = "10s", range = "0"..="10m")]
    pub flush_max: TimePeriod,
    /// A folder on a drive. None: no disk tier.
    #[setting(list)]
    pub folders: Vec<DiskFolderSettings>,
    /// A bucket of a store, with rules of its own.
    #[setting(list)]
    pub volumes: Vec<DiskVolumeSettings>,
}

/// An entry of `worker.disk.folders`.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct DiskFolderSettings {
    /// Folder of this worker alone, on a local drive (NVMe); made if absent. It holds cached
    /// objects: keep it as private as the store.
    #[setting(required, example = "/var/lib/verbs3/cache")]
    pub path: PathBuf,
    /// Bytes that its files may take.
    #[setting(default = "100GiB", range = "16MiB"..="1024TiB")]
    pub capacity: ByteSize,
}

/// An entry of `worker.disk.volumes`.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct DiskVolumeSettings {
    /// The volume behind a mount: name of the UFS, a slash, and the bucket there.
    #[setting(required, example = "ceph/scratch")]
    pub volume: String,
    /// Bytes that its pages may take, over all folders; `"0B"`: as many as there are.
    #[setting(default = "0B", range = "0B"..="1024TiB")]
    pub capacity: ByteSize,
    /// In place of `page_age_max`; `"0"`: that one.
    #[setting(default = "0", range = "0"..="3650d")]
    pub page_age_max: TimePeriod,
}

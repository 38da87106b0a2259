//! The cache's disk tier: pages that outlive a restart.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, TimePeriod};

/// The `[worker.disk]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerDiskSettings {
    /// Bytes of pages that wait to be written, and stay in memory until they are; beyond, pages are
    /// not written. Never more than an eighth of the memory. Default: `"256MiB"`. Range: `"1MiB"`
    /// to `"64GiB"`.
    pub queue_max: ByteSize,
    /// Bytes written in a second, over all folders, to spare the drives; `"0B"`: as fast as they
    /// can. Default: `"0B"`. Range: `"0B"` to `"1TiB"`.
    pub write_rate_max: ByteSize,
    /// Pages on all folders; the index takes some 110 bytes of memory for each. Default:
    /// `16777216`. Range: `1000` to `4000000000`.
    pub pages_max: u32,
    /// Reads under way at once. Default: `64`. Range: `1` to `512`.
    pub reads_in_flight_max: u32,
    /// A read or write that takes longer makes its folder rest, and readers ask the UFS. Default:
    /// `"5s"`. Range: `"100ms"` to `"5m"`.
    pub stall_max: TimePeriod,
    /// Read and write whole pages past the kernel's page cache (O_DIRECT), where the file system
    /// can. Default: `true`.
    pub direct: bool,
    /// Pages that were written longer ago are dropped; `"0"`: only when their place is needed.
    /// Default: `"0"`. Range: `"0"` to `"3650d"`.
    pub page_age_max: TimePeriod,
    /// How long the end of the process waits for pages to be written. Default: `"10s"`. Range:
    /// `"0"` to `"10m"`.
    pub flush_max: TimePeriod,
    /// A folder on a drive. None: no disk tier.
    pub folders: Vec<DiskFolderSettings>,
    /// A bucket of a store, with rules of its own.
    pub volumes: Vec<DiskVolumeSettings>,
}

/// An entry of `worker.disk.folders`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskFolderSettings {
    /// Folder of this worker alone, on a local drive (NVMe); made if absent. It holds cached
    /// objects: keep it as private as the store. Required.
    pub path: PathBuf,
    /// Bytes that its files may take. Default: `"100GiB"`. Range: `"16MiB"` to `"1024TiB"`.
    pub capacity: ByteSize,
}

/// An entry of `worker.disk.volumes`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskVolumeSettings {
    /// The volume behind a mount: name of the UFS, a slash, and the bucket there. Required.
    pub volume: String,
    /// Bytes that its pages may take, over all folders; `"0B"`: as many as there are. Default:
    /// `"0B"`. Range: `"0B"` to `"1024TiB"`.
    pub capacity: ByteSize,
    /// In place of `page_age_max`; `"0"`: that one. Default: `"0"`. Range: `"0"` to `"3650d"`.
    pub page_age_max: TimePeriod,
}

impl Default for WorkerDiskSettings {
    fn default() -> Self {
        Self {
            queue_max: ByteSize::from_mib(256),
            write_rate_max: ByteSize(0),
            pages_max: 1 << 24,
            reads_in_flight_max: 64,
            stall_max: TimePeriod::from_seconds(5),
            direct: true,
            page_age_max: TimePeriod::from_millis(0),
            flush_max: TimePeriod::from_seconds(10),
            folders: Vec::new(),
            volumes: Vec::new(),
        }
    }
}

impl Default for DiskFolderSettings {
    fn default() -> Self {
        Self { path: PathBuf::new(), capacity: ByteSize::from_mib(100 << 10) }
    }
}

impl Default for DiskVolumeSettings {
    fn default() -> Self {
        Self {
            volume: String::new(),
            capacity: ByteSize(0),
            page_age_max: TimePeriod::from_millis(0),
        }
    }
}

//! The options of the disk tier, and the errors that keep it from starting.

use std::path::PathBuf;
use std::time::Duration;

use verbs3_protocol::ObjectVolume;

/// The folders and bounds of the disk tier.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// Folders that store the pages. Each belongs to this worker alone.
    pub folders: Vec<DiskFolder>,
    /// Bytes of pages that wait to be written, and stay in memory until then. Any further page is
    /// dropped. Never more than an eighth of the arena.
    pub queue_bytes_max: u64,
    /// Bytes written per second, to spare drives; 0: unlimited.
    pub write_bytes_per_second_max: u64,
    /// Pages in all folders. Bounds the index, which takes some 110 bytes for each.
    pub pages_max: u64,
    /// Reads under way at once.
    pub reads_in_flight_max: usize,
    /// A read or write that takes longer makes its folder rest. Readers then ask the UFS.
    pub stall_max: Duration,
    /// Bypasses the page cache, where that is possible.
    pub direct: bool,
    /// Pages older than this are dropped; `None`: only when their place is needed.
    pub page_age_max: Option<Duration>,
    /// Volumes with limits of their own.
    pub volumes: Vec<DiskVolume>,
    /// How long an orderly shutdown waits for pages to be written.
    pub flush_max: Duration,
}

/// A folder of the disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFolder {
    pub path: PathBuf,
    /// Most bytes of its files.
    pub capacity_bytes: u64,
}

/// The quota and the age limit of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskVolume {
    pub volume: ObjectVolume,
    /// Bytes in all folders together.
    pub bytes_max: Option<u64>,
    /// Replaces `page_age_max`.
    pub age_max: Option<Duration>,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            folders: Vec::new(),
            queue_bytes_max: 256 << 20,
            write_bytes_per_second_max: 0,
            pages_max: 1 << 24,
            reads_in_flight_max: 64,
            stall_max: Duration::from_secs(5),
            direct: true,
            page_age_max: None,
            volumes: Vec::new(),
            flush_max: Duration::from_secs(10),
        }
    }
}

/// The reason why a folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error(
        "{folder:?} is in use by another process; give each worker folders of its own \
        (worker.disk.folders)"
    )]
    InUse { folder: PathBuf },
    #[error(
        "{folder:?} has {found:?} in it, which is not of a verbs3 disk tier; name an empty folder \
        in worker.disk.folders"
    )]
    Foreign { folder: PathBuf, found: String },
    #[error(
        "{folder:?} was written by a newer verbs3 (format {format}); run that one, or empty the \
        folder: nothing is lost but cached pages"
    )]
    Newer { folder: PathBuf, format: u16 },
    #[error(
        "{folder:?} and {other:?} were parts of different disk tiers; empty one of them: nothing \
        is lost but cached pages"
    )]
    Mixed { folder: PathBuf, other: PathBuf },
    #[error("can't use {folder:?} for the disk tier")]
    Io {
        folder: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("can't start a thread that writes pages to {folder:?}")]
    Thread {
        folder: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the disk tier's metrics are registered already: one worker a registry")]
    Metrics(#[source] prometheus::Error),
}

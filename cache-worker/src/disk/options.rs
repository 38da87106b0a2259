//! What the disk tier is told at start, and why it does not start.

use std::path::PathBuf;
use std::time::Duration;

use verbs3_protocol::ObjectVolume;

/// Bounds and places of the disk tier.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// Where the pages lie. Every folder is this worker's alone.
    pub folders: Vec<DiskFolder>,
    /// Bytes of pages that wait to be written, and stay in memory until they are; more is dropped.
    /// Never more than an eighth of the arena.
    pub queue_bytes_max: u64,
    /// Bytes written in a second, to spare drives; 0: as fast as they can.
    pub write_bytes_per_second_max: u64,
    /// Pages in all folders, which bounds the index: some 110 bytes each.
    pub pages_max: u64,
    /// Reads under way at once.
    pub reads_in_flight_max: usize,
    /// A read or write that takes longer makes its folder rest; readers ask the UFS instead.
    pub stall_max: Duration,
    /// Past the page cache, where that is possible.
    pub direct: bool,
    /// Pages older than that are dropped; `None`: only when their place is needed.
    pub page_age_max: Option<Duration>,
    /// Volumes with rules of their own.
    pub volumes: Vec<DiskVolume>,
    /// How long an orderly end waits for pages to be written.
    pub flush_max: Duration,
}

/// A folder of the disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFolder {
    pub path: PathBuf,
    /// Bytes of its files, at most.
    pub capacity_bytes: u64,
}

/// What a volume may take of each folder's capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskVolume {
    pub volume: ObjectVolume,
    /// In all folders together.
    pub bytes_max: Option<u64>,
    /// In place of `page_age_max`.
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

/// Why a folder can't be used.
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

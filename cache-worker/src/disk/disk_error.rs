//! The errors that keep the disk tier from starting.

use std::path::PathBuf;

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

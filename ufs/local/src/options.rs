//! Owns the options of the embedded store, and the reasons why it may refuse to open. Does not read
//! configuration files.

use std::path::PathBuf;
use std::time::Duration;

/// S3's largest single PUT, and largest source of one copy (S3 user guide, "Amazon S3 multipart
/// upload limits").
pub const PUT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// S3's smallest part that is not the last one (same source).
pub const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;

/// Options of a [`LocalStore`](super::LocalStore).
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The folder that holds the store; made if absent.
    pub root: PathBuf,
    /// Name of the store in its metrics.
    pub name: String,
    /// The region that `HeadBucket` names.
    pub region: String,
    /// Age after which unfinished multipart uploads are aborted, at open and hourly while uploads
    /// are started. `None` keeps them until they are aborted or completed, as S3 does without a
    /// lifecycle rule.
    pub multipart_ttl: Option<Duration>,
    /// The most entries in one page of any listing, whatever the request asks for. S3's bound is
    /// 1000.
    pub list_page_max: usize,
    /// The most bytes in one PUT, one part, or the source of one copy.
    pub put_bytes_max: u64,
    /// The least bytes in a part that is not the last one.
    pub part_bytes_min: u64,
    /// Bytes read from a blob file at a time; a body holds at most two such pieces in memory.
    pub read_chunk_bytes: usize,
    /// Bytes of a body gathered before they are hashed and written; a body holds at most two such
    /// pieces in memory.
    pub write_chunk_bytes: usize,
    /// Memory for the index's page cache, in bytes.
    pub index_cache_bytes: usize,
    /// Index changes that may queue for the committer; more wait outside.
    pub commit_queue_max: usize,
    /// Index changes that share one commit, at most.
    pub commit_batch_max: usize,
    /// Makes an acknowledged write survive a power loss (`fsync` of blob, folder and index).
    /// `false` still survives `kill -9`, because the page cache outlives the process. It is meant
    /// for tests and throw-away data.
    pub sync: bool,
}

impl LocalOptions {
    /// Sets the defaults, with everything durable.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        LocalOptions {
            root: root.into(),
            name: "local".to_owned(),
            region: "us-east-1".to_owned(),
            multipart_ttl: None,
            list_page_max: 1000,
            put_bytes_max: PUT_BYTES_MAX,
            part_bytes_min: PART_BYTES_MIN,
            read_chunk_bytes: 256 * 1024,
            write_chunk_bytes: 256 * 1024,
            index_cache_bytes: 64 * 1024 * 1024,
            commit_queue_max: 1024,
            commit_batch_max: 256,
            sync: true,
        }
    }

    pub(super) fn check_ranges(&self) -> Result<(), LocalError> {
        let bad = |name, value: usize, range| Err(LocalError::Option { name, value, range });
        if !(1..=1000).contains(&self.list_page_max) {
            return bad("list_page_max", self.list_page_max, "1 to 1000");
        }
        if !(4096..=8 << 20).contains(&self.read_chunk_bytes) {
            return bad("read_chunk_bytes", self.read_chunk_bytes, "4 KiB to 8 MiB");
        }
        if !(4096..=8 << 20).contains(&self.write_chunk_bytes) {
            return bad("write_chunk_bytes", self.write_chunk_bytes, "4 KiB to 8 MiB");
        }
        if self.commit_queue_max == 0 {
            return bad("commit_queue_max", 0, "at least 1");
        }
        if self.commit_batch_max == 0 {
            return bad("commit_batch_max", 0, "at least 1");
        }
        Ok(())
    }
}

/// Reason why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// An option is outside its range.
    #[error("local store option {name} is {value}; it must be {range}")]
    Option {
        /// The field of [`LocalOptions`].
        name: &'static str,
        /// Its value.
        value: usize,
        /// Its allowed range.
        range: &'static str,
    },
    /// A file or folder could not be used.
    #[error("cannot {action} {path}; check that the folder is writable and its disk has space")]
    Io {
        /// The failed action.
        action: &'static str,
        /// The path that it failed on.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the store open.
    #[error("local store {root} is open in another process; stop it, or choose another folder")]
    Locked {
        /// The store's folder.
        root: PathBuf,
    },
    /// The folder is not a store, or is one of another version.
    #[error(
        "{path} says {found:?}, not {expected:?}; choose an empty folder, or the release that \
        wrote it"
    )]
    Format {
        /// The marker file.
        path: PathBuf,
        /// Its content.
        found: String,
        /// What this release writes.
        expected: &'static str,
    },
    /// The index refused to open.
    #[error("cannot open the index {path}; restore it from a backup, or remove the whole store")]
    Index {
        /// The index file.
        path: PathBuf,
        /// The index library's reason.
        #[source]
        source: Box<redb::Error>,
    },
    /// A background thread could not be started.
    #[error("cannot start the thread {name}; raise the process's thread limit")]
    Thread {
        /// The thread's name.
        name: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

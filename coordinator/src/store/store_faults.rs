//! Causes of a store's errors. They say what operators read.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Cause why a store can't be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreOutage {
    #[error("it did not answer in time")]
    Silent,
    #[error("{0}")]
    Etcd(Arc<etcd_client::Error>),
    /// `answer` is etcd's own.
    #[error("it does not take user {user}: {answer}")]
    UserRefused { user: String, answer: String },
    #[error("another coordinator uses the folder; give this one its own, or use etcd for several")]
    Occupied,
    /// `attempt` is a verb and its object.
    #[error("can't {attempt}: {error}")]
    Disk { attempt: String, error: Arc<io::Error> },
    #[error("{0}")]
    Panicked(Arc<tokio::task::JoinError>),
}

/// Cause why what a store has can't be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EntryDamage {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: Arc<io::Error> },
    #[error("{}: is not whole; restore it, or remove it if it can be lost", path.display())]
    Torn { path: PathBuf },
    #[error("{key}: {error}")]
    Json { key: &'static str, error: Arc<serde_json::Error> },
}

/// Cause why an entry can't be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryFlaw {
    #[error("keys have 1 to {KEY_BYTES_MAX} bytes, and slashes only within")]
    Key,
    #[error("{bytes} bytes are more than {VALUE_BYTES_MAX}")]
    Value { bytes: usize },
}

impl StoreOutage {
    /// Says what could not be done on a disk: a verb and its object.
    pub(super) fn of_disk(attempt: impl Into<String>, error: io::Error) -> Self {
        Self::Disk { attempt: attempt.into(), error: Arc::new(error) }
    }
}

impl From<etcd_client::Error> for StoreOutage {
    fn from(error: etcd_client::Error) -> Self {
        Self::Etcd(Arc::new(error))
    }
}

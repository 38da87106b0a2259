//! Where a coordinator keeps what must outlive it: a small ordered map with compare-and-swap,
//! watching and leadership.
//!
//! One conformance suite (`tests/store_conformance`) holds for both implementations: a folder for
//! one coordinator ([`mod@file`]), etcd for several ([`etcd`]). Knows nothing of what is kept.

pub mod etcd;
pub mod file;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use verbs3_coordinator_client::lease_clock::LeaseInstant;

/// Bytes of a key. Both stores could hold longer ones; nobody needs them.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of a value; etcd refuses requests above 1.5 MiB by default.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// When an entry was written last: grows with every write to the store, and never repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterStoreRevision(pub u64);

/// One key of the store, its value, and when it was written last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterStoreEntry {
    pub key: String,
    pub value: Bytes,
    pub revision: ClusterStoreRevision,
}

/// What must be there for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPrecondition {
    Any,
    Absent,
    /// Unchanged since it was read.
    Revision(ClusterStoreRevision),
}

/// Why the store did not do what was asked. After `Unavailable` a write may or may not have
/// happened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClusterStoreError {
    #[error("{key} in the store is not what was expected: another has written it")]
    Conflict { key: String },
    #[error("this coordinator is not the leader any more, and may not write {key}")]
    Fenced { key: String },
    #[error("the store at {store} can't be used: {reason}")]
    Unavailable { store: String, reason: String },
    #[error("the store at {store} is damaged: {reason}")]
    Damaged { store: String, reason: String },
    #[error("{key} can't be kept: {reason}")]
    Refused { key: String, reason: String },
}

/// The right to write as leader: a write that carries it fails once another has been elected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencingToken {
    /// Of the election, in this store.
    pub(crate) term: u64,
}

/// An election that was won. Dropping it resigns.
#[derive(Debug)]
pub struct LeadershipGuard {
    pub(crate) fence: FencingToken,
    pub(crate) until: watch::Receiver<LeaseInstant>,
    pub(crate) lost: CancellationToken,
    /// Ends what keeps it.
    pub(crate) _keeping: DropGuard,
}

impl LeadershipGuard {
    /// Token that the leader's writes carry.
    pub fn fencing_token(&self) -> &FencingToken {
        &self.fence
    }

    /// Nobody else is elected before this moment, as
    /// [`verbs3_coordinator_client::clock::Clock::latest`] counts. It moves on as long as the store
    /// confirms it.
    pub fn certain_until(&self) -> LeaseInstant {
        *self.until.borrow()
    }

    /// Ends when the leadership is over.
    pub async fn wait_until_lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the leadership is known to be over. It may be over unknown to this host; see
    /// `certain_until`.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }
}

/// Tells that something below a prefix has changed, without saying what: read it again. Changes
/// that follow each other fast are told once, and an interruption of the watch is told as a change,
/// so that nothing is missed.
#[derive(Debug)]
pub struct ClusterStoreWatch {
    pub(crate) changes: watch::Receiver<u64>,
    pub(crate) _keeping: Option<DropGuard>,
}

impl ClusterStoreWatch {
    /// Returns once something was changed after the watch was made, or after the last return. May
    /// be cancelled.
    pub async fn next_change(&mut self) {
        if self.changes.changed().await.is_err() {
            // The store is being dropped. Nothing changes any more.
            std::future::pending::<()>().await;
        }
    }
}

/// A store of some megabytes in all.
#[async_trait]
pub trait ClusterStore: Send + Sync + 'static {
    async fn get_entry(&self, key: &str) -> Result<Option<ClusterStoreEntry>, ClusterStoreError>;

    /// Entries whose keys begin with `prefix`, in the order of the keys.
    async fn list_entries(&self, prefix: &str)
    -> Result<Vec<ClusterStoreEntry>, ClusterStoreError>;

    /// Writes, durably, if what is there is as expected and `fencing_token`, where one is given, is of the
    /// present leader.
    async fn put_entry(
        &self,
        key: &str,
        value: Bytes,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<ClusterStoreRevision, ClusterStoreError>;

    /// Removes. What is not there is removed already, unless a revision is expected.
    async fn delete_entry(
        &self,
        key: &str,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<(), ClusterStoreError>;

    async fn watch_prefix(&self, prefix: &str) -> Result<ClusterStoreWatch, ClusterStoreError>;

    /// Waits until no other is the leader, and is it then. `value` is what others see of the
    /// leader; `lease` is how long the leadership outlives a leader that vanishes. May be
    /// cancelled.
    async fn campaign_for_leader(
        &self,
        value: &str,
        lease: Duration,
    ) -> Result<LeadershipGuard, ClusterStoreError>;

    /// What the present leader, if there is one, has said of itself.
    async fn current_leader(&self) -> Result<Option<String>, ClusterStoreError>;

    /// For messages.
    fn store_name(&self) -> &str;
}

/// A store that several tasks share.
pub type SharedClusterStore = Arc<dyn ClusterStore>;

/// Both stores hold what is given here.
fn validate_entry(key: &str, value: &[u8]) -> Result<(), ClusterStoreError> {
    let refused = |reason: String| Err(ClusterStoreError::Refused { key: key.to_owned(), reason });
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.starts_with('/') || key.ends_with('/') {
        return refused(format!("keys have 1 to {KEY_BYTES_MAX} bytes, and slashes only within"));
    }
    if value.len() > VALUE_BYTES_MAX {
        return refused(format!("{} bytes are more than {VALUE_BYTES_MAX}", value.len()));
    }
    Ok(())
}

//! Defines the store of what must outlive a coordinator: a small ordered map with compare-and-swap,
//! watching and leadership.
//!
//! There are two implementations: a folder for one coordinator ([`mod@file`]) and etcd for several
//! ([`etcd`]). One conformance suite (`tests/store_conformance`) tests both. Does not know what is
//! kept.

pub mod etcd;
pub mod file;
mod store_faults;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use verbs3_coordinator_client::lease_clock::LeaseInstant;

pub use store_faults::{EntryDamage, EntryFlaw, StoreOutage};

/// Longest key in bytes. Both stores could hold longer ones; nobody needs them.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest value in bytes; etcd refuses requests above 1.5 MiB by default.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Revision of an entry's last write. It grows with every write to the store and never repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterStoreRevision(pub u64);

/// A key of the store, its value, and the revision of its last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterStoreEntry {
    pub key: String,
    pub value: Bytes,
    pub revision: ClusterStoreRevision,
}

/// Condition on the present entry for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPrecondition {
    Any,
    Absent,
    /// The entry is unchanged since this revision.
    Revision(ClusterStoreRevision),
}

/// Error of a store's operation. After `Unavailable` a write may or may not have happened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClusterStoreError {
    #[error("{key} in the store is not what was expected: another has written it")]
    Conflict { key: String },
    #[error("this coordinator is not the leader any more, and may not write {key}")]
    Fenced { key: String },
    #[error("the store at {store} can't be used: {outage}")]
    Unavailable { store: String, outage: StoreOutage },
    #[error("the store at {store} is damaged: {damage}")]
    Damaged { store: String, damage: EntryDamage },
    #[error("{key} can't be kept: {flaw}")]
    Refused { key: String, flaw: EntryFlaw },
}

/// Fencing token of a leader: a write that carries it fails once another leader has been elected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencingToken {
    /// Term of the election in this store.
    pub(crate) term: u64,
}

/// A won election. Dropping it resigns.
#[derive(Debug)]
pub struct LeadershipGuard {
    pub(crate) fence: FencingToken,
    pub(crate) until: watch::Receiver<LeaseInstant>,
    pub(crate) lost: CancellationToken,
    /// Stops the task that keeps the leadership.
    pub(crate) _keeping: DropGuard,
}

impl LeadershipGuard {
    /// Returns the token that the leader's writes carry.
    pub fn fencing_token(&self) -> &FencingToken {
        &self.fence
    }

    /// Returns the moment before which nobody else is elected, as
    /// [`verbs3_coordinator_client::lease_clock::LeaseClock::latest_now`] counts. It moves on as
    /// long as the store confirms the leadership.
    pub fn certain_until(&self) -> LeaseInstant {
        *self.until.borrow()
    }

    /// Waits until the leadership is over.
    pub async fn wait_until_lost(&self) {
        self.lost.cancelled().await;
    }

    /// Returns whether the leadership is known to be over. It may be over without this host's
    /// knowledge; see `certain_until`.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }
}

/// Signals that something below a prefix has changed, but not what: the receiver reads it again.
/// Changes in quick succession may share one signal. An interrupted watch signals a change, so that
/// none is missed.
#[derive(Debug)]
pub struct ClusterStoreWatch {
    pub(crate) changes: watch::Receiver<u64>,
    pub(crate) _keeping: Option<DropGuard>,
}

impl ClusterStoreWatch {
    /// Waits for a change since the watch was made or this last returned. May be cancelled.
    pub async fn next_change(&mut self) {
        if self.changes.changed().await.is_err() {
            // The store is being dropped, so nothing changes any more.
            std::future::pending::<()>().await;
        }
    }
}

/// Store of some megabytes in all.
#[async_trait]
pub trait ClusterStore: Send + Sync + 'static {
    async fn get_entry(&self, key: &str) -> Result<Option<ClusterStoreEntry>, ClusterStoreError>;

    /// Returns the entries whose keys begin with `prefix`, ordered by key.
    async fn list_entries(&self, prefix: &str)
    -> Result<Vec<ClusterStoreEntry>, ClusterStoreError>;

    /// Writes durably if the present entry is as expected. A `fencing_token`, if given, must be the
    /// present leader's.
    async fn put_entry(
        &self,
        key: &str,
        value: Bytes,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<ClusterStoreRevision, ClusterStoreError>;

    /// Removes an entry. An absent entry counts as removed, unless a revision is expected.
    async fn delete_entry(
        &self,
        key: &str,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<(), ClusterStoreError>;

    async fn watch_prefix(&self, prefix: &str) -> Result<ClusterStoreWatch, ClusterStoreError>;

    /// Waits until there is no other leader, and becomes leader. `value` is what others see of the
    /// leader. `lease` is how long the leadership survives a leader that vanishes. May be
    /// cancelled.
    async fn campaign_for_leader(
        &self,
        value: &str,
        lease: Duration,
    ) -> Result<LeadershipGuard, ClusterStoreError>;

    /// Returns what the present leader published about itself, if there is a leader.
    async fn current_leader(&self) -> Result<Option<String>, ClusterStoreError>;

    /// Returns the store's name for messages.
    fn store_name(&self) -> &str;
}

/// Store that several tasks share.
pub type SharedClusterStore = Arc<dyn ClusterStore>;

/// Checks the bounds that both stores can hold.
fn validate_entry(key: &str, value: &[u8]) -> Result<(), ClusterStoreError> {
    let refused = |flaw| Err(ClusterStoreError::Refused { key: key.to_owned(), flaw });
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.starts_with('/') || key.ends_with('/') {
        return refused(EntryFlaw::Key);
    }
    if value.len() > VALUE_BYTES_MAX {
        return refused(EntryFlaw::Value { bytes: value.len() });
    }
    Ok(())
}

//! Store in a folder for one coordinator: one file for each entry, always replaced as a whole.
//!
//! A write goes to a new file, which is synced and renamed; then the folder is synced. So after a
//! crash an entry has its old value or its new one. A lock on the folder keeps a second process
//! out, so leadership and fences live in memory. Revisions grow across restarts: their upper bits
//! count the openings.

mod entry_file;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::lease_clock::LeaseInstant;

use super::{
    ClusterStore, ClusterStoreEntry, ClusterStoreError, ClusterStoreRevision, ClusterStoreWatch,
    EntryPrecondition, FencingToken, LeadershipGuard, StoreOutage, validate_entry,
};

/// File that is locked. The count of openings lies beside it.
const LOCK: &str = "lock";
/// Folder of the entry files.
const ENTRIES: &str = "entries";
/// From then on the log says that a write still waits for the disk.
const WRITE_SLOW: Duration = Duration::from_secs(10);
/// Number of bits for revisions within one opening.
const OPENING_SHIFT: u32 = 40;

/// The store. Clones of its handle share it.
pub struct FileStore {
    inner: Arc<FileStoreInner>,
}

struct FileStoreInner {
    name: String,
    entries: PathBuf,
    /// Never held while the disk is written to, so that reads do not wait for the disk.
    state: Mutex<FileStoreState>,
    /// A write holds it from its check until it is applied. A new leader takes it once: a write that
    /// was allowed under the former leader is then applied before the new one reads.
    turn: Arc<AsyncMutex<()>>,
    /// The single place of the leader.
    seat: Arc<Semaphore>,
    /// Held for its lock.
    _lock: File,
}

struct FileStoreState {
    map: BTreeMap<String, ClusterStoreEntry>,
    revision: u64,
    /// Counts elections; `current_leader` holds what the present leader published.
    term: u64,
    leader: Option<String>,
    watches: Vec<(String, watch::Sender<u64>)>,
}

impl FileStore {
    /// Opens the folder, and creates it if there is none. Blocks on the disk.
    pub fn open_folder(folder: &Path) -> Result<Self, ClusterStoreError> {
        let name = folder.display().to_string();
        let unusable = |outage| ClusterStoreError::Unavailable { store: name.clone(), outage };
        let failed =
            |attempt: &str, error: io::Error| unusable(StoreOutage::of_disk(attempt, error));
        let entries = folder.join(ENTRIES);
        fs::create_dir_all(&entries).map_err(|error| failed("make the folder", error))?;
        let lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(folder.join(LOCK))
            .map_err(|error| failed("open its lock", error))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => unusable(StoreOutage::Occupied),
            error => failed("lock it", error.into()),
        })?;
        let opening = entry_file::count_opening(&folder.join(LOCK), folder)
            .map_err(|error| failed("count", error))?;
        let map = entry_file::read_all(&entries)
            .map_err(|damage| ClusterStoreError::Damaged { store: name.clone(), damage })?;
        let state = FileStoreState {
            map,
            revision: opening << OPENING_SHIFT,
            term: 0,
            leader: None,
            watches: Vec::new(),
        };
        let seat = Arc::new(Semaphore::new(1));
        Ok(Self {
            inner: Arc::new(FileStoreInner {
                name,
                entries,
                state: Mutex::new(state),
                turn: Arc::default(),
                seat,
                _lock: lock,
            }),
        })
    }

    /// Runs a write on a thread that may block on the disk. A write that has begun goes on if its
    /// caller gives up.
    async fn write_in_turn(
        &self,
        turn: OwnedMutexGuard<()>,
        write: impl FnOnce(&FileStoreInner) -> Result<(), ClusterStoreError> + Send + 'static,
    ) -> Result<(), ClusterStoreError> {
        let inner = self.inner.clone();
        let task = tokio::task::spawn_blocking(move || {
            let written = write(&inner);
            drop(turn);
            written
        });
        let mut task = std::pin::pin!(task);
        let written = match timeout(WRITE_SLOW, &mut task).await {
            Ok(written) => written,
            Err(_) => {
                let (store, waited_s) = (&self.inner.name, WRITE_SLOW.as_secs());
                tracing::warn!(store, waited_s, "the disk has not taken a write yet; see to it");
                task.await
            }
        };
        written.unwrap_or_else(|error| {
            let (store, outage) = (self.inner.name.clone(), StoreOutage::Panicked(Arc::new(error)));
            Err(ClusterStoreError::Unavailable { store, outage })
        })
    }
}

impl FileStoreState {
    fn check_conditions(
        &self,
        key: &str,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<(), ClusterStoreError> {
        if fence.is_some_and(|fence| self.leader.is_none() || fence.term != self.term) {
            return Err(ClusterStoreError::Fenced { key: key.to_owned() });
        }
        let met = match (expect, self.map.get(key)) {
            (EntryPrecondition::Any, _) | (EntryPrecondition::Absent, None) => true,
            (EntryPrecondition::Revision(revision), Some(entry)) => entry.revision == revision,
            (EntryPrecondition::Absent, Some(_)) | (EntryPrecondition::Revision(_), None) => false,
        };
        if met { Ok(()) } else { Err(ClusterStoreError::Conflict { key: key.to_owned() }) }
    }

    fn notify_watches(&mut self, key: &str) {
        self.watches.retain(|(_, sender)| !sender.is_closed());
        for (_, sender) in
            self.watches.iter().filter(|(prefix, _)| key.starts_with(prefix.as_str()))
        {
            sender.send_modify(|changes| *changes += 1);
        }
    }
}

impl FileStoreInner {
    fn write_error(&self, key: &str, error: io::Error) -> ClusterStoreError {
        let outage = StoreOutage::of_disk(format!("write {key}"), error);
        ClusterStoreError::Unavailable { store: self.name.clone(), outage }
    }
}

#[async_trait]
impl ClusterStore for FileStore {
    async fn get_entry(&self, key: &str) -> Result<Option<ClusterStoreEntry>, ClusterStoreError> {
        Ok(self.inner.state.lock().map.get(key).cloned())
    }

    async fn list_entries(
        &self,
        prefix: &str,
    ) -> Result<Vec<ClusterStoreEntry>, ClusterStoreError> {
        let state = self.inner.state.lock();
        let from = state.map.range(prefix.to_owned()..);
        Ok(from
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(_, entry)| entry.clone())
            .collect())
    }

    async fn put_entry(
        &self,
        key: &str,
        value: Bytes,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<ClusterStoreRevision, ClusterStoreError> {
        validate_entry(key, &value)?;
        let turn = self.inner.turn.clone().lock_owned().await;
        let entry = {
            let mut state = self.inner.state.lock();
            state.check_conditions(key, expect, fence)?;
            // The revision is used up even if the write fails: it may have been written
            // nevertheless.
            state.revision += 1;
            let revision = ClusterStoreRevision(state.revision);
            ClusterStoreEntry { key: key.to_owned(), value, revision }
        };
        let revision = entry.revision;
        self.write_in_turn(turn, move |inner| {
            entry_file::write_entry(&inner.entries, &entry)
                .map_err(|error| inner.write_error(&entry.key, error))?;
            let mut state = inner.state.lock();
            state.map.insert(entry.key.clone(), entry.clone());
            state.notify_watches(&entry.key);
            Ok(())
        })
        .await?;
        Ok(revision)
    }

    async fn delete_entry(
        &self,
        key: &str,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<(), ClusterStoreError> {
        let turn = self.inner.turn.clone().lock_owned().await;
        self.inner.state.lock().check_conditions(key, expect, fence)?;
        // Without an entry too: a write that failed may have left its file.
        let key = key.to_owned();
        self.write_in_turn(turn, move |inner| {
            entry_file::remove_entry(&inner.entries, &key)
                .map_err(|error| inner.write_error(&key, error))?;
            let mut state = inner.state.lock();
            if state.map.remove(&key).is_some() {
                state.notify_watches(&key);
            }
            Ok(())
        })
        .await
    }

    async fn watch_prefix(&self, prefix: &str) -> Result<ClusterStoreWatch, ClusterStoreError> {
        let (sender, changes) = watch::channel(0);
        self.inner.state.lock().watches.push((prefix.to_owned(), sender));
        Ok(ClusterStoreWatch { changes, _keeping: None })
    }

    async fn campaign_for_leader(
        &self,
        value: &str,
        _lease: Duration,
    ) -> Result<LeadershipGuard, ClusterStoreError> {
        let seat = self.inner.seat.clone().acquire_owned().await;
        let Ok(seat) = seat else { return std::future::pending().await };
        let term = {
            let _turn = self.inner.turn.lock().await;
            let mut state = self.inner.state.lock();
            state.term += 1;
            state.leader = Some(value.to_owned());
            state.term
        };
        // Nobody else can have the folder.
        let (until_sender, until) = watch::channel(LeaseInstant::END);
        let (lost, dropped) = (CancellationToken::new(), CancellationToken::new());
        let (inner, ended, over) = (self.inner.clone(), dropped.clone(), lost.clone());
        // The task ends with the leadership, or with the runtime.
        tokio::spawn(async move {
            ended.cancelled().await;
            over.cancel();
            until_sender.send_replace(LeaseInstant::default());
            inner.state.lock().leader = None;
            drop(seat);
        });
        Ok(LeadershipGuard {
            fence: FencingToken { term },
            until,
            lost,
            _keeping: dropped.drop_guard(),
        })
    }

    async fn current_leader(&self) -> Result<Option<String>, ClusterStoreError> {
        Ok(self.inner.state.lock().leader.clone())
    }

    fn store_name(&self) -> &str {
        &self.inner.name
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn reads_go_on_and_no_leader_comes_while_a_write_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open_folder(folder.path()).unwrap();
        let put =
            |value| store.put_entry("k", Bytes::from_static(value), EntryPrecondition::Any, None);
        put(b"before").await.unwrap();
        let (disk, slow) = std::sync::mpsc::channel::<()>();
        let turn = store.inner.turn.clone().lock_owned().await;
        let mut writing = Box::pin(store.write_in_turn(turn, move |_| {
            let _ = slow.recv();
            Ok(())
        }));
        assert!(poll!(&mut writing).is_pending());
        assert_eq!(store.get_entry("k").await.unwrap().unwrap().value, "before");
        assert_eq!(store.list_entries("").await.unwrap().len(), 1);
        let mut campaign = Box::pin(store.campaign_for_leader("me", Duration::from_secs(1)));
        let mut next = Box::pin(put(b"after"));
        assert!(poll!(&mut campaign).is_pending() && poll!(&mut next).is_pending());
        // A caller that gives up does not end its write, nor its turn.
        drop(writing);
        assert!(poll!(&mut campaign).is_pending() && poll!(&mut next).is_pending());
        drop(disk);
        let leads = campaign.await.unwrap();
        next.await.unwrap();
        assert!(!leads.is_lost());
        assert_eq!(store.get_entry("k").await.unwrap().unwrap().value, "after");
    }
}

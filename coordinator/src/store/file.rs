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
use tokio::sync::{Semaphore, watch};
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
/// Number of bits for revisions within one opening.
const OPENING_SHIFT: u32 = 40;

/// The store. Clones of its handle share it.
pub struct FileStore {
    inner: Arc<FileStoreInner>,
}

struct FileStoreInner {
    name: String,
    entries: PathBuf,
    state: Mutex<FileStoreState>,
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
                seat,
                _lock: lock,
            }),
        })
    }

    /// Changes the store on a thread that may block on the disk.
    async fn apply_change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&FileStoreInner, &mut FileStoreState) -> Result<T, ClusterStoreError>
        + Send
        + 'static,
    ) -> Result<T, ClusterStoreError> {
        let inner = self.inner.clone();
        let task = tokio::task::spawn_blocking(move || change(&inner, &mut inner.state.lock()));
        task.await.unwrap_or_else(|error| {
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
        let (key, fence) = (key.to_owned(), fence.cloned());
        self.apply_change(move |inner, state| {
            state.check_conditions(&key, expect, fence.as_ref())?;
            // The revision is used up even if the write fails: it may have been written
            // nevertheless.
            state.revision += 1;
            let entry = ClusterStoreEntry {
                key: key.clone(),
                value,
                revision: ClusterStoreRevision(state.revision),
            };
            entry_file::write_entry(&inner.entries, &entry)
                .map_err(|error| inner.write_error(&key, error))?;
            state.map.insert(key.clone(), entry);
            state.notify_watches(&key);
            Ok(ClusterStoreRevision(state.revision))
        })
        .await
    }

    async fn delete_entry(
        &self,
        key: &str,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<(), ClusterStoreError> {
        let (key, fence) = (key.to_owned(), fence.cloned());
        self.apply_change(move |inner, state| {
            state.check_conditions(&key, expect, fence.as_ref())?;
            if state.map.contains_key(&key) {
                entry_file::remove_entry(&inner.entries, &key)
                    .map_err(|error| inner.write_error(&key, error))?;
                state.map.remove(&key);
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

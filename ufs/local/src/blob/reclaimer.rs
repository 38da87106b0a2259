//! Owns the removal of blob files that nothing refers to: those in the index's garbage table, and
//! those that a killed process left behind. The table is the queue, so a crash forgets nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io};

use parking_lot::{Condvar, Mutex};
use redb::{Database, ReadableDatabase};

use super::{BlobDir, BlobId, BlobPins};
use crate::index::{IndexError, IndexView};

/// Garbage rows held in memory at once.
const PAGE_ROWS: usize = 4096;
/// Pause before garbage that readers held is checked again.
const RETRY: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
struct ReclaimState {
    wake: bool,
    stop: bool,
    /// Removed files whose garbage rows are still in the index.
    gone: HashSet<BlobId>,
}

/// The signal between the committer and the reclaiming thread.
#[derive(Debug, Default)]
pub struct ReclaimSignal {
    state: Mutex<ReclaimState>,
    changed: Condvar,
}

impl ReclaimSignal {
    /// Wakes the reclaimer for new garbage.
    pub fn wake_reclaimer(&self) {
        self.state.lock().wake = true;
        self.changed.notify_all();
    }

    /// Takes the blobs whose garbage rows can go with the next commit. If that commit fails, the
    /// reclaimer meets their rows again and finds no files. This does no harm.
    pub fn take_gone(&self) -> Vec<BlobId> {
        self.state.lock().gone.drain().collect()
    }

    fn stop_reclaimer(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}

/// The owner of the reclaiming thread; dropping it joins the thread.
pub struct BlobReclaimer {
    reclaim: Arc<ReclaimSignal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl BlobReclaimer {
    /// Starts the thread, which waits until it is woken. Fails when no thread can be started.
    pub fn start(
        db: Arc<Database>,
        dir: Arc<BlobDir>,
        pins: Arc<BlobPins>,
        reclaim: Arc<ReclaimSignal>,
    ) -> io::Result<Self> {
        let worker = ReclaimWorker { db, dir, pins, reclaim: reclaim.clone() };
        let thread =
            std::thread::Builder::new().name("local-reclaim".into()).spawn(move || worker.run())?;
        Ok(BlobReclaimer { reclaim, thread: Mutex::new(Some(thread)) })
    }
}

impl Drop for BlobReclaimer {
    fn drop(&mut self) {
        self.reclaim.stop_reclaimer();
        if let Some(thread) = self.thread.get_mut().take()
            && thread.join().is_err()
        {
            tracing::error!("the local store's reclaiming thread panicked");
        }
    }
}

struct ReclaimWorker {
    db: Arc<Database>,
    dir: Arc<BlobDir>,
    pins: Arc<BlobPins>,
    reclaim: Arc<ReclaimSignal>,
}

impl ReclaimWorker {
    fn run(self) {
        let mut waiting = false;
        loop {
            {
                let mut state = self.reclaim.state.lock();
                while !state.wake && !state.stop {
                    if !waiting {
                        self.reclaim.changed.wait(&mut state);
                    } else if self.reclaim.changed.wait_for(&mut state, RETRY).timed_out() {
                        break;
                    }
                }
                if state.stop {
                    return;
                }
                state.wake = false;
            }
            waiting = match self.reclaim_garbage() {
                Ok(waiting) => waiting,
                Err(e) => {
                    tracing::warn!(
                        error = &e as &dyn std::error::Error,
                        "could not look for garbage; trying again"
                    );
                    true
                }
            };
        }
    }

    /// Removes what can be removed. Returns true if some garbage has to wait for its readers.
    fn reclaim_garbage(&self) -> Result<bool, IndexError> {
        let mut waiting = false;
        let mut after = None;
        loop {
            let garbage = IndexView::new(self.db.begin_read()?).garbage_page(after, PAGE_ROWS)?;
            let Some(last) = garbage.last() else { return Ok(waiting) };
            after = Some(*last);
            self.pins.wait_for_lookups();
            for id in garbage.into_iter().map(BlobId) {
                if self.reclaim.state.lock().stop {
                    return Ok(false);
                }
                waiting |= !self.remove_blob(id);
            }
        }
    }

    /// Removes a blob's file. Returns true once the file is gone.
    fn remove_blob(&self, id: BlobId) -> bool {
        if self.reclaim.state.lock().gone.contains(&id) {
            return true;
        }
        if self.pins.is_pinned(id) {
            return false;
        }
        match fs::remove_file(self.dir.blob_path(id)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                tracing::warn!(
                    blob = id.0, error = %e,
                    "could not remove a blob file; trying again"
                );
                return false;
            }
        }
        self.reclaim.state.lock().gone.insert(id);
        true
    }
}

/// Removes the files of one finished generation that no record refers to. When the process ended,
/// their bodies were being written, or were not committed. Returns how many were removed.
pub fn sweep_generation(dir: &BlobDir, generation: u64, view: &IndexView) -> io::Result<usize> {
    let mut removed = 0;
    let folders = match fs::read_dir(dir.generation_path(generation)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        folders => folders?,
    };
    for folder in folders {
        for file in fs::read_dir(folder?.path())? {
            let file = file?;
            let Some(id) = file.file_name().to_str().and_then(|n| BlobDir::id_of(generation, n))
            else {
                continue;
            };
            if !view.blob_is_referenced(id.0).map_err(io::Error::other)? {
                fs::remove_file(file.path())?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

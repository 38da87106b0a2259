//! Owns the open store: its folder, its index, its threads, and the look-ups that every operation
//! begins with. Operations themselves are in [`ops`](super::ops).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{SystemTime, UNIX_EPOCH};

use redb::{Database, ReadableDatabase};
use s3s::{S3Error, S3Result, s3_error};

use super::blob::{
    BlobDir, BlobPins, BlobReclaimer, PinGuard, ReclaimSignal, sweep_generation, sync_dir,
};
use super::index::{
    BucketRecord, CommitLimits, IndexCommitter, IndexError, IndexTransaction, IndexView,
    LayoutRecord, ObjectRecord, RowCounts, TxError, open_database,
};
use super::metrics::LocalMetrics;
use super::options::{LocalError, LocalOptions};

/// Content of the marker file. A change of the folder's layout needs another number.
const FORMAT: &str = "verbs3-local 1\n";
/// The index's file.
const INDEX: &str = "index.redb";

/// An object store in a folder. It is cheap to clone; the last clone to go closes the folder.
#[derive(Clone)]
pub struct LocalStore {
    pub(super) inner: Arc<LocalStoreInner>,
}

impl std::fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalStore").field("root", &self.inner.options.root).finish_non_exhaustive()
    }
}

/// Counters since the store was opened, and current gauges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalStats {
    /// Commits of the index.
    pub commits: u64,
    /// Operations in them.
    pub changes: u64,
    /// Commits that failed.
    pub commit_failures: u64,
    /// Bodies and copies that hold blobs in place.
    pub readers: usize,
}

/// The open store's parts. Fields drop in this order: the threads end, then the index closes, then
/// the lock goes.
pub(super) struct LocalStoreInner {
    pub committer: IndexCommitter,
    _reclaimer: BlobReclaimer,
    db: Arc<Database>,
    pub dir: Arc<BlobDir>,
    pub pins: Arc<BlobPins>,
    pub options: LocalOptions,
    pub expired_ms: AtomicI64,
    pub metrics: Arc<LocalMetrics>,
    _lock: File,
}

/// An object, with its bytes pinned.
pub(super) struct PinnedObject {
    pub record: ObjectRecord,
    pub layout: LayoutRecord,
    pub pin: PinGuard,
}

impl LocalStore {
    /// Opens a store. Makes it if the folder is empty, and cleans up after a killed process.
    /// Blocks.
    ///
    /// # Errors
    /// Fails when the folder is not a store, is open elsewhere, or cannot be read and written.
    pub fn open_store(options: LocalOptions) -> Result<Self, LocalError> {
        options.check_ranges()?;
        let root = options.root.clone();
        let data = root.join("data");
        fs::create_dir_all(&data).map_err(io_error("create", &data))?;
        let lock = lock_root(&root)?;
        check_format(&root, options.sync)?;
        let path = root.join(INDEX);
        let index_error =
            |e: redb::Error| LocalError::Index { path: path.clone(), source: Box::new(e) };
        let db = open_database(&path, options.index_cache_bytes, options.sync)
            .map_err(|e| index_error(e.into()))?;
        let generation = begin_generation(&db).map_err(&index_error)?;
        if options.sync {
            sync_dir(&root).map_err(io_error("sync", &root))?;
        }
        let db = Arc::new(db);
        let dir = BlobDir::new(data.clone(), generation.current, options.sync);
        sweep_uncommitted(&db, &dir, &generation).map_err(io_error("clear up", &data))?;
        finish_sweep(&db, generation.current).map_err(&index_error)?;

        let pins = Arc::new(BlobPins::default());
        let reclaim = Arc::new(ReclaimSignal::default());
        // A killed process may have left garbage rows.
        reclaim.wake_reclaimer();
        let thread = |name| move |source| LocalError::Thread { name, source };
        let reclaimer =
            BlobReclaimer::start(db.clone(), dir.clone(), pins.clone(), reclaim.clone())
                .map_err(thread("local-reclaim"))?;
        let limits = CommitLimits {
            queue_max: options.commit_queue_max,
            batch_max: options.commit_batch_max,
        };
        let metrics = Arc::new(LocalMetrics::new(&options.name));
        let committer = IndexCommitter::start(db.clone(), &limits, reclaim, metrics.clone())
            .map_err(thread("local-commit"))?;
        let expired_ms = AtomicI64::new(0);
        let inner = LocalStoreInner {
            committer,
            _reclaimer: reclaimer,
            db,
            dir,
            pins,
            options,
            expired_ms,
            metrics,
            _lock: lock,
        };
        Ok(LocalStore { inner: Arc::new(inner) })
    }

    /// Returns the store's counters and gauges.
    #[must_use]
    pub fn store_stats(&self) -> LocalStats {
        let metrics = &self.inner.metrics;
        LocalStats {
            commits: metrics.commits.get(),
            changes: metrics.changes.get(),
            commit_failures: metrics.commit_failures.get(),
            readers: self.inner.pins.reader_count(),
        }
    }

    /// Runs index and file reads off the async threads.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalStoreInner) -> S3Result<T> + Send + 'static,
    ) -> S3Result<T> {
        let inner = self.inner.clone();
        let task = tokio::task::spawn_blocking(move || work(&inner));
        task.await.map_err(|e| {
            s3_error!(e, InternalError, "an operation of the local store was cut short")
        })?
    }

    /// Changes the index; see [`IndexCommitter::commit_change`].
    pub(super) async fn commit_change<T, F>(&self, change: F) -> S3Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut IndexTransaction<'_>) -> Result<T, TxError> + Send + 'static,
    {
        self.inner.committer.commit_change(None, change).await
    }
}

impl LocalStoreInner {
    /// Opens a snapshot of the index as it is now.
    pub fn open_view(&self) -> S3Result<IndexView> {
        let read = self.db.begin_read().map_err(|e| index_failed(e.into()))?;
        Ok(IndexView::new(read))
    }

    /// Returns the file of the index.
    pub fn index_path(&self) -> PathBuf {
        self.options.root.join(INDEX)
    }

    /// Returns how many rows the index holds.
    pub fn count_rows(&self) -> Result<RowCounts, IndexError> {
        IndexView::new(self.db.begin_read()?).count_rows()
    }

    /// Finds an object and pins its bytes. See [`BlobPins`] for why the order matters.
    pub fn find_object(&self, bucket: &str, key: &str) -> S3Result<PinnedObject> {
        let _gate = self.pins.look_up();
        let view = self.open_view()?;
        let record = find_record(&view, bucket, key)?;
        let layout = view.layout_record(&record).map_err(index_failed)?;
        let mut blobs: Vec<_> = layout.blob_ids().collect();
        blobs.dedup();
        let pin = self.pins.pin_blobs(blobs);
        Ok(PinnedObject { record, layout, pin })
    }
}

pub(super) fn find_bucket(view: &IndexView, name: &str) -> S3Result<BucketRecord> {
    view.bucket_record(name).map_err(index_failed)?.ok_or_else(|| no_such_bucket(name))
}

pub(super) fn find_record(view: &IndexView, bucket: &str, key: &str) -> S3Result<ObjectRecord> {
    let bucket = find_bucket(view, bucket)?;
    view.object_record(bucket.id, key).map_err(index_failed)?.ok_or_else(no_such_key)
}

pub(super) fn no_such_bucket(name: &str) -> S3Error {
    s3_error!(NoSuchBucket, "The specified bucket does not exist: {name}")
}

pub(super) fn no_such_key() -> S3Error {
    s3_error!(NoSuchKey, "The specified key does not exist.")
}

pub(super) fn index_failed(e: IndexError) -> S3Error {
    tracing::error!(error = &e as &dyn std::error::Error, "the local store's index failed");
    s3_error!(e, InternalError, "the local store's index failed; see its log")
}

pub(super) fn disk_failed(action: &str, e: io::Error) -> S3Error {
    tracing::error!(error = %e, action, "the local store's disk failed");
    s3_error!(e, InternalError, "the local store could not {action}; check its disk and its log")
}

/// Returns milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

struct BlobGeneration {
    current: u64,
    /// Generations below this one were swept before.
    swept: u64,
}

const GENERATION: &str = "generation";
const SWEPT: &str = "swept";

/// Makes the tables and takes the next generation number, durably, before any blob can bear it.
fn begin_generation(db: &Database) -> Result<BlobGeneration, redb::Error> {
    let write = db.begin_write()?;
    let mut tx = IndexTransaction::new(&write);
    let numbers = tx
        .create_tables()
        .and_then(|()| Ok((tx.increment_counter(GENERATION)?, tx.meta_value(SWEPT)?)));
    let (current, swept) = numbers.map_err(into_redb)?;
    write.commit()?;
    Ok(BlobGeneration { current, swept })
}

/// Removes what earlier processes wrote but did not commit. Looks only at generations since the
/// last start. So it takes time for what the last run wrote, not for the size of the store.
fn sweep_uncommitted(db: &Database, dir: &BlobDir, generation: &BlobGeneration) -> io::Result<()> {
    for old in generation.swept..generation.current {
        let view = IndexView::new(db.begin_read().map_err(io::Error::other)?);
        let removed = sweep_generation(dir, old, &view)?;
        if removed > 0 {
            tracing::info!(
                removed,
                generation = old,
                "removed uncommitted blobs of an earlier process"
            );
        }
    }
    Ok(())
}

fn finish_sweep(db: &Database, current: u64) -> Result<(), redb::Error> {
    let write = db.begin_write()?;
    IndexTransaction::new(&write).set_meta(SWEPT, current).map_err(into_redb)?;
    write.commit()?;
    Ok(())
}

fn into_redb(e: TxError) -> redb::Error {
    match e {
        TxError::Index(IndexError::Store(e)) => *e,
        TxError::Index(IndexError::Record(e)) => redb::Error::Io(io::Error::other(e)),
        TxError::Refused(e) => redb::Error::Io(io::Error::other(e)),
    }
}

fn lock_root(root: &Path) -> Result<File, LocalError> {
    let path = root.join("LOCK");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LocalError::Locked { root: root.to_owned() }),
        Err(TryLockError::Error(e)) => Err(io_error("lock", &path)(e)),
    }
}

/// Checks the marker against this release, or writes it into an empty folder. The marker is written
/// beside its place and renamed, so that a crash leaves either none or a whole one.
fn check_format(root: &Path, sync: bool) -> Result<(), LocalError> {
    let path = root.join("FORMAT");
    match fs::read_to_string(&path) {
        Ok(found) if found == FORMAT => Ok(()),
        Ok(found) => Err(LocalError::Format { path, found, expected: FORMAT }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if root.join(INDEX).exists() {
                return Err(LocalError::Format { path, found: String::new(), expected: FORMAT });
            }
            let fresh = root.join("FORMAT.new");
            let write = || {
                let mut file = File::create(&fresh)?;
                file.write_all(FORMAT.as_bytes())?;
                if sync {
                    file.sync_all()?;
                }
                fs::rename(&fresh, &path)?;
                if sync { sync_dir(root) } else { Ok(()) }
            };
            write().map_err(io_error("write", &path))
        }
        Err(e) => Err(io_error("read", &path)(e)),
    }
}

fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl Fn(io::Error) -> LocalError + use<'a> {
    move |source| LocalError::Io { action, path: path.to_owned(), source }
}

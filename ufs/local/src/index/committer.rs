//! Owns the one writer of the index. It gathers waiting changes into a commit, applies each in
//! turn, commits once and answers every caller. So many small writes share one `fsync`. Knows no
//! operation.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use redb::Database;
use s3s::{S3Error, S3Result, s3_error};
use tokio::sync::{mpsc, oneshot};

use super::{IndexError, IndexTransaction, TxError};
use crate::blob::{ReclaimSignal, UnfinishedBlob};
use crate::metrics::LocalMetrics;

/// A callback that tells an operation's caller how its commit ended.
type SettleCallback = Box<dyn FnOnce(CommitOutcome) + Send>;
/// A callback that applies one operation; `Err` aborts the whole commit.
type ApplyCallback = Box<
    dyn FnOnce(&mut IndexTransaction<'_>) -> (SettleCallback, Result<(), CommitAborted>) + Send,
>;

/// Error: the current commit cannot be finished.
struct CommitAborted;

/// Outcome of a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommitOutcome {
    Committed,
    /// Nothing was changed.
    GivenUp,
    /// The index failed while committing. After a restart the change may or may not be there.
    Unknown,
}

/// Bounds of the commit queue, in changes. `batch_max` is the most that share one commit.
pub struct CommitLimits {
    pub queue_max: usize,
    pub batch_max: usize,
}

/// The handle that sends changes to the committing thread, which it owns. Dropping it finishes the
/// queued changes and joins the thread.
pub struct IndexCommitter {
    jobs: Option<mpsc::Sender<ApplyCallback>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl IndexCommitter {
    /// Starts the committing thread. Fails when no thread can be started.
    pub fn start(
        db: Arc<Database>,
        limits: &CommitLimits,
        reclaim: Arc<ReclaimSignal>,
        metrics: Arc<LocalMetrics>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(limits.queue_max);
        let writer = IndexWriter { db, queue, batch_max: limits.batch_max, reclaim, metrics };
        let thread =
            std::thread::Builder::new().name("local-commit".into()).spawn(move || writer.run())?;
        Ok(IndexCommitter { jobs: Some(jobs), thread: Mutex::new(Some(thread)) })
    }

    /// Returns the count of changes that wait for their commit.
    pub fn queued_changes(&self) -> usize {
        self.jobs.as_ref().map_or(0, |jobs| jobs.max_capacity() - jobs.capacity())
    }

    /// Applies `change` atomically and returns once it is committed (durably, if the store is). If
    /// the caller goes away meanwhile, the change still happens as a whole or not at all.
    ///
    /// `blob` is the new blob that the change refers to, if any. It is kept if the change is
    /// committed, even if the caller has gone, and removed otherwise.
    pub async fn commit_change<T, F>(&self, blob: Option<UnfinishedBlob>, change: F) -> S3Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut IndexTransaction<'_>) -> Result<T, TxError> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped_error)?;
        jobs.send(Box::new(move |tx| apply_change(tx, change, blob, tell)))
            .await
            .map_err(|_| stopped_error())?;
        told.await.map_err(|_| stopped_error())?
    }
}

impl Drop for IndexCommitter {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.get_mut().take()
            && thread.join().is_err()
        {
            tracing::error!("the local store's committing thread panicked");
        }
    }
}

fn apply_change<T, F>(
    tx: &mut IndexTransaction<'_>,
    change: F,
    blob: Option<UnfinishedBlob>,
    tell: oneshot::Sender<S3Result<T>>,
) -> (SettleCallback, Result<(), CommitAborted>)
where
    T: Send + 'static,
    F: FnOnce(&mut IndexTransaction<'_>) -> Result<T, TxError>,
{
    let (answer, verdict) = match change(tx) {
        Ok(value) => (Ok(value), Ok(())),
        Err(TxError::Refused(e)) if !tx.has_changed() => (Err(e), Ok(())),
        Err(TxError::Refused(e)) => {
            tracing::error!(
                error = %e,
                "an operation was refused after it had changed the index; giving its commit up"
            );
            (Err(e), Err(CommitAborted))
        }
        Err(TxError::Index(e)) => (Err(index_failed_error(e)), Err(CommitAborted)),
    };
    let settle = move |outcome: CommitOutcome| {
        // A refusal or failure goes to the caller unchanged; only a success depends on the commit.
        let answer = if outcome == CommitOutcome::Committed {
            answer
        } else {
            answer.and_then(|_| Err(not_committed()))
        };
        // When the outcome is unknown the file stays. The next start sweeps an orphan; a missing
        // file could not be mended.
        let wanted = outcome == CommitOutcome::Unknown || answer.is_ok();
        if wanted && let Some(blob) = blob {
            blob.keep_blob();
        }
        // The caller may have gone.
        let _ = tell.send(answer);
    };
    (Box::new(settle), verdict)
}

fn stopped_error() -> S3Error {
    s3_error!(ServiceUnavailable, "the local store is shutting down")
}

fn not_committed() -> S3Error {
    s3_error!(InternalError, "the local store could not commit; see its log, check the disk")
}

/// Logs the failure and answers 500. The client sees no details.
pub fn index_failed_error(e: IndexError) -> S3Error {
    tracing::error!(error = &e as &dyn std::error::Error, "the local store's index failed");
    s3_error!(e, InternalError, "the local store's index failed; see its log")
}

struct IndexWriter {
    db: Arc<Database>,
    queue: mpsc::Receiver<ApplyCallback>,
    batch_max: usize,
    reclaim: Arc<ReclaimSignal>,
    metrics: Arc<LocalMetrics>,
}

impl IndexWriter {
    fn run(mut self) {
        let mut batch = Vec::with_capacity(self.batch_max);
        while self.queue.blocking_recv_many(&mut batch, self.batch_max) > 0 {
            let mut jobs = batch.drain(..);
            // A failing operation aborts its whole commit. The operations after it get their own
            // commit.
            while jobs.len() > 0 {
                let mut settles = Vec::with_capacity(jobs.len());
                let result = self.write(&mut jobs, &mut settles);
                if let Err(e) = &result {
                    self.metrics.commit_failures.inc();
                    tracing::error!(
                        error = e as &dyn std::error::Error,
                        "the local store could not commit"
                    );
                    if settles.is_empty() {
                        // The index refuses even to begin: these callers must not wait for ever.
                        jobs.by_ref().for_each(drop);
                    }
                }
                let outcome = match result {
                    Ok(()) => CommitOutcome::Committed,
                    Err(WriteError::GivenUp | WriteError::Begin(_)) => CommitOutcome::GivenUp,
                    Err(WriteError::Commit(_)) => CommitOutcome::Unknown,
                };
                for settle in settles {
                    settle(outcome);
                }
            }
        }
    }

    fn write(
        &self,
        jobs: &mut impl Iterator<Item = ApplyCallback>,
        settles: &mut Vec<SettleCallback>,
    ) -> Result<(), WriteError> {
        let write = self.db.begin_write().map_err(|e| WriteError::Begin(e.into()))?;
        let gone = self.reclaim.take_gone();
        let mut freed = false;
        if !gone.is_empty() && IndexTransaction::new(&write).forget_garbage(&gone).is_err() {
            return Err(WriteError::GivenUp);
        }
        for job in jobs {
            let mut tx = IndexTransaction::new(&write);
            let (settle, verdict) = job(&mut tx);
            freed |= tx.has_freed();
            settles.push(settle);
            if verdict.is_err() {
                write.abort().map_err(|e| WriteError::Commit(e.into()))?;
                return Err(WriteError::GivenUp);
            }
        }
        write.commit().map_err(|e| WriteError::Commit(e.into()))?;
        self.metrics.commits.inc();
        self.metrics.changes.inc_by(settles.len() as u64);
        if freed {
            self.reclaim.wake_reclaimer();
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("an operation in it failed")]
    GivenUp,
    #[error("the index cannot begin a commit")]
    Begin(#[source] IndexError),
    #[error("the index failed while committing")]
    Commit(#[source] IndexError),
}

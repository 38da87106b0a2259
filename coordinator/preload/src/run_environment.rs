//! What the runs of all jobs share: settings, the tier, mounts, bounds, and the store of their
//! progress.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use verbs3_client::CacheTierClient;

use crate::api::JobState;
use crate::job::PreloadJob;
use crate::job_record::{PreloadProgress, progress_key};
use crate::job_store::{JobStore, JobStoreError};
use crate::metrics::{EndedState, PreloadMetrics};
use crate::mounts::PreloadMountTable;
use crate::options::PreloadOptions;

/// Reason why a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PreloadRunEnd {
    /// Everything was done.
    Through,
    Deadline,
    Deleted,
    /// Another engine continues.
    Interrupted,
    /// Its place goes to somebody who holds fewer. It waits for its next turn.
    GaveWay,
    Failed(String),
}

pub(crate) struct RunEnvironment {
    pub(crate) options: PreloadOptions,
    pub(crate) tier: Arc<CacheTierClient>,
    pub(crate) mounts: Arc<PreloadMountTable>,
    pub(crate) metrics: PreloadMetrics,
    /// Cancelled when the store belongs to another engine, or the engine's owner stops it.
    pub(crate) stop: CancellationToken,
    pub(crate) store: Arc<dyn JobStore>,
    /// The right to read a block back.
    pub(crate) reads: Semaphore,
    budgets: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl RunEnvironment {
    pub(crate) fn new(
        options: PreloadOptions,
        tier: Arc<CacheTierClient>,
        mounts: Arc<PreloadMountTable>,
        store: Arc<dyn JobStore>,
        metrics: PreloadMetrics,
    ) -> Self {
        // Each takes memory for itself and for a hedge.
        let read_bytes = 2 * u64::from(tier.tier_options().geometry.block_bytes);
        let reads_max = usize::try_from(options.settings.memory.0 / read_bytes);
        let reads_max = reads_max.unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        let reads = Semaphore::new(reads_max);
        let (stop, budgets) = (CancellationToken::new(), Mutex::default());
        Self { options, tier, mounts, metrics, stop, store, reads, budgets }
    }

    /// Persists progress while the store belongs to this engine.
    pub(crate) async fn persist_progress(
        &self,
        job: &PreloadJob,
        progress: PreloadProgress,
    ) -> Result<(), PreloadRunEnd> {
        let value = Bytes::from(serde_json::to_vec(&progress).unwrap_or_default());
        let mut pause = self.options.pauses;
        loop {
            match self.store.put_entry(&progress_key(&job.record.id), value.clone(), false).await {
                Ok(()) => {
                    job.record_persisted(progress);
                    return Ok(());
                }
                // The store would refuse it again.
                Err(error @ JobStoreError::Refused(_)) => {
                    return Err(PreloadRunEnd::Failed(error.to_string()));
                }
                Err(error @ JobStoreError::Deposed(_)) => {
                    tracing::info!(%error, "preload jobs stop here");
                    self.stop.cancel();
                    return Err(PreloadRunEnd::Interrupted);
                }
                Err(error) => {
                    self.metrics.store_failures.inc();
                    tracing::warn!(
                        %error, job = job.record.id,
                        "a preload job waits for its store"
                    );
                    if self
                        .stop
                        .run_until_cancelled(sleep(pause.next_jittered(rand::random())))
                        .await
                        .is_none()
                    {
                        return Err(PreloadRunEnd::Interrupted);
                    }
                }
            }
        }
    }

    /// Returns the permits for blocks of a UFS that may be in flight.
    pub(crate) fn block_budget(&self, ufs: &str) -> Arc<Semaphore> {
        let mut budgets = self.budgets.lock();
        if let Some(known) = budgets.get(ufs) {
            return known.clone();
        }
        let blocks_max = self.options.settings.blocks_per_ufs_max.max(1) as usize;
        let made = Arc::new(Semaphore::new(blocks_max));
        budgets.insert(ufs.to_owned(), made.clone());
        made
    }

    pub(crate) fn count_ended(&self, state: JobState) {
        let state = match state {
            JobState::Done => EndedState::Done,
            JobState::Incomplete => EndedState::Incomplete,
            JobState::Failed => EndedState::Failed,
            JobState::Stopped => EndedState::Stopped,
            JobState::Queued | JobState::Running => return,
        };
        self.metrics.ended[state].inc();
    }
}

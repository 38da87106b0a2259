//! Runs preload jobs while this coordinator leads: an engine over the coordinators' store.
//!
//! `verbs3-preload` defines what a job is and does. Writes of jobs carry the leadership's fencing
//! token, so a deposed leader changes no job.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use verbs3_client::CacheTierClient;
use verbs3_preload::metrics::PreloadMetrics;
use verbs3_preload::{JobStore, JobStoreError, PreloadEngine, PreloadMountTable, PreloadOptions};

use crate::coordinator_state::CoordinatorState;
use crate::store::{ClusterStoreError, EntryPrecondition, FencingToken, SharedClusterStore};

/// Prefix of the keys of jobs.
const PREFIX: &str = "preload/";
/// Pause after a failure to read the jobs.
const PAUSE: Duration = Duration::from_millis(500);

/// Everything that the jobs need to run.
pub struct PreloadSetup {
    pub options: PreloadOptions,
    pub tier: Arc<CacheTierClient>,
    pub mounts: Arc<PreloadMountTable>,
    pub metrics: PreloadMetrics,
}

/// Job store of one leadership. Holds only the fencing token, because holding the leadership would
/// prevent its resignation.
struct LeaderJobs {
    store: SharedClusterStore,
    fence: FencingToken,
}

#[async_trait]
impl JobStore for LeaderJobs {
    async fn list_entries(&self) -> Result<Vec<(String, Bytes)>, JobStoreError> {
        let entries = self.store.list_entries(PREFIX).await.map_err(job_store_error)?;
        let entry = |entry: crate::store::ClusterStoreEntry| {
            Some((entry.key.strip_prefix(PREFIX)?.to_owned(), entry.value))
        };
        Ok(entries.into_iter().filter_map(entry).collect())
    }

    async fn put_entry(&self, key: &str, value: Bytes, new: bool) -> Result<(), JobStoreError> {
        let expect = if new { EntryPrecondition::Absent } else { EntryPrecondition::Any };
        self.store
            .put_entry(&format!("{PREFIX}{key}"), value, expect, Some(&self.fence))
            .await
            .map(|_| ())
            .map_err(job_store_error)
    }

    async fn delete_entry(&self, key: &str) -> Result<(), JobStoreError> {
        self.store
            .delete_entry(&format!("{PREFIX}{key}"), EntryPrecondition::Any, Some(&self.fence))
            .await
            .map_err(job_store_error)
    }
}

fn job_store_error(error: ClusterStoreError) -> JobStoreError {
    match error {
        ClusterStoreError::Conflict { key } => JobStoreError::Exists(key),
        ClusterStoreError::Fenced { .. } => JobStoreError::Deposed(error.to_string()),
        ClusterStoreError::Refused { .. } => JobStoreError::Refused(error.to_string()),
        ClusterStoreError::Unavailable { .. } | ClusterStoreError::Damaged { .. } => {
            JobStoreError::Unavailable(error.to_string())
        }
    }
}

impl CoordinatorState {
    /// Runs jobs whenever this coordinator leads, until it stops.
    pub(crate) async fn run_preload_jobs(self: Arc<Self>, preload: PreloadSetup) {
        let mut news = self.news.subscribe();
        loop {
            match self.current_fence() {
                Some((fence, lost)) => self.lead_jobs(&preload, fence, lost).await,
                None => {
                    let changed = self.stop.run_until_cancelled(news.changed()).await;
                    if !matches!(changed, Some(Ok(()))) {
                        return;
                    }
                }
            }
            if self.stop.is_cancelled() {
                return;
            }
        }
    }

    fn current_fence(&self) -> Option<(FencingToken, CancellationToken)> {
        let leading = self.leading.lock();
        let leadership =
            &leading.as_ref().filter(|leading| !leading.leadership.is_lost())?.leadership;
        Some((leadership.fencing_token().clone(), leadership.lost.clone()))
    }

    async fn lead_jobs(
        &self,
        preload: &PreloadSetup,
        fence: FencingToken,
        lost: CancellationToken,
    ) {
        let store = Arc::new(LeaderJobs { store: self.store.clone(), fence: fence.clone() });
        let PreloadSetup { options, tier, mounts, metrics } = preload;
        let opened = PreloadEngine::load_from_store(
            options.clone(),
            tier.clone(),
            mounts.clone(),
            store,
            metrics.clone(),
        );
        let engine = match self.stop.run_until_cancelled(opened).await {
            Some(Ok(engine)) => engine,
            Some(Err(error)) => {
                tracing::warn!(%error, "preload jobs can't be read");
                let _ = self.stop.run_until_cancelled(sleep(PAUSE)).await;
                return;
            }
            None => return,
        };
        *self.preloading.engine.lock() = Some(engine.clone());
        let mut news = self.news.subscribe();
        let deposed = async {
            while self.current_fence().is_some_and(|(now, _)| now == fence) {
                if news.changed().await.is_err() {
                    return;
                }
            }
        };
        let over = async {
            tokio::select! {
                () = lost.cancelled() => {}
                () = self.stop.cancelled() => {}
                () = deposed => {}
            }
            *self.preloading.engine.lock() = None;
            engine.request_stop();
        };
        let running = engine.clone().run();
        tokio::pin!(running, over);
        tokio::select! {
            () = &mut over => running.await,
            // The engine ends by itself only if another leader owns its store. This coordinator is
            // about to learn that.
            () = &mut running => {
                *self.preloading.engine.lock() = None;
                let _ = self.stop.run_until_cancelled(sleep(PAUSE)).await;
            }
        }
    }
}

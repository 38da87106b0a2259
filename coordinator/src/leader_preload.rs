//! Runs preload jobs while this coordinator leads: an engine over the coordinators' store.
//!
//! `verbs3-preload` defines what a job is and does. Writes of jobs carry the leadership's fencing
//! token, so a deposed leader changes no job.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use verbs3_client::CacheTierClient;
use verbs3_preload::metrics::PreloadMetrics;
use verbs3_preload::{
    JobStore, JobStoreError, ObjectAdmin, PreloadEngine, PreloadMountTable, PreloadOptions,
};

use crate::leadership::ClusterLeadership;
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

/// Jobs and objects of one coordinator: the engine while it leads, and the object administration.
pub(crate) struct LeaderPreload {
    leadership: Arc<ClusterLeadership>,
    store: SharedClusterStore,
    engine: Mutex<Option<Arc<PreloadEngine>>>,
    /// Available whichever coordinator leads.
    objects: OnceLock<ObjectAdmin>,
    stop: CancellationToken,
}

impl LeaderPreload {
    /// Begins with neither; see [`LeaderPreload::offer_objects`] and [`LeaderPreload::run_jobs`].
    pub(crate) fn new(
        leadership: Arc<ClusterLeadership>,
        store: SharedClusterStore,
        stop: CancellationToken,
    ) -> Self {
        let (engine, objects) = (Mutex::default(), OnceLock::new());
        Self { leadership, store, engine, objects, stop }
    }

    /// Returns the engine that runs the jobs. `None`: this coordinator does not lead, or runs none.
    pub(crate) fn current_engine(&self) -> Option<Arc<PreloadEngine>> {
        self.engine.lock().clone()
    }

    /// Returns the object administration. `None`: none was offered.
    pub(crate) fn object_admin(&self) -> Option<&ObjectAdmin> {
        self.objects.get()
    }

    /// Makes the object administration available.
    pub(crate) fn offer_objects(&self, preload: &PreloadSetup) {
        let objects = ObjectAdmin::new(preload.tier.clone(), preload.mounts.clone());
        let _ = self.objects.set(objects);
    }

    /// Runs jobs whenever this coordinator leads, until it stops.
    pub(crate) async fn run_jobs(self: Arc<Self>, preload: PreloadSetup) {
        let mut news = self.leadership.subscribe_news();
        loop {
            match self.leadership.current_fence() {
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
        *self.engine.lock() = Some(engine.clone());
        let mut news = self.leadership.subscribe_news();
        let deposed = async {
            while self.leadership.current_fence().is_some_and(|(now, _)| now == fence) {
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
            *self.engine.lock() = None;
            engine.request_stop();
        };
        let running = engine.clone().run();
        tokio::pin!(running, over);
        tokio::select! {
            () = &mut over => running.await,
            // The engine ends by itself only if another leader owns its store. This coordinator is
            // about to learn that.
            () = &mut running => {
                *self.engine.lock() = None;
                let _ = self.stop.run_until_cancelled(sleep(PAUSE)).await;
            }
        }
    }
}

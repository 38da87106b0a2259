//! The leader's preload jobs: an engine over the coordinators' store, for as long as this
//! coordinator leads.
//!
//! What a job is and does is `verbs3-preload`'s. Its writes carry the leadership's fence: a deposed
//! leader changes no job.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use verbs3_client::Tier;
use verbs3_preload::metrics::Metrics;
use verbs3_preload::{Engine, JobStore, JobStoreError, Mounts, Objects, PreloadOptions};

use crate::coordinator::Coordinator;
use crate::store::{Expect, Fence, SharedStore, StoreError};

/// What the keys of jobs begin with.
const PREFIX: &str = "preload/";
/// Pause after the jobs could not be read.
const PAUSE: Duration = Duration::from_millis(500);

/// What jobs are run with.
pub struct Preload {
    pub options: PreloadOptions,
    pub tier: Arc<Tier>,
    pub mounts: Arc<Mounts>,
    pub metrics: Metrics,
}

/// The engine, while this coordinator leads.
#[derive(Default)]
pub(crate) struct Preloading {
    pub(crate) engine: Mutex<Option<Arc<Engine>>>,
    /// Whoever leads.
    pub(crate) objects: OnceLock<Objects>,
}

/// Of one leadership. Holds its fence alone: it must not keep the leadership from being resigned.
struct LeaderJobs {
    store: SharedStore,
    fence: Fence,
}

#[async_trait]
impl JobStore for LeaderJobs {
    async fn all(&self) -> Result<Vec<(String, Bytes)>, JobStoreError> {
        let entries = self.store.list(PREFIX).await.map_err(failed)?;
        let entry = |entry: crate::store::Entry| {
            Some((entry.key.strip_prefix(PREFIX)?.to_owned(), entry.value))
        };
        Ok(entries.into_iter().filter_map(entry).collect())
    }

    async fn put(&self, key: &str, value: Bytes, new: bool) -> Result<(), JobStoreError> {
        let expect = if new { Expect::Absent } else { Expect::Any };
        self.store
            .put(&format!("{PREFIX}{key}"), value, expect, Some(&self.fence))
            .await
            .map(|_| ())
            .map_err(failed)
    }

    async fn delete(&self, key: &str) -> Result<(), JobStoreError> {
        self.store
            .delete(&format!("{PREFIX}{key}"), Expect::Any, Some(&self.fence))
            .await
            .map_err(failed)
    }
}

fn failed(error: StoreError) -> JobStoreError {
    match error {
        StoreError::Conflict { key } => JobStoreError::Exists(key),
        StoreError::Fenced { .. } => JobStoreError::Deposed(error.to_string()),
        StoreError::Refused { .. } => JobStoreError::Refused(error.to_string()),
        StoreError::Unavailable { .. } | StoreError::Damaged { .. } => {
            JobStoreError::Unavailable(error.to_string())
        }
    }
}

impl Coordinator {
    /// Runs jobs whenever this coordinator leads, until it stops. Joined at shutdown.
    pub fn preload_with(self: &Arc<Self>, preload: Preload) {
        let _ =
            self.preloading.objects.set(Objects::new(preload.tier.clone(), preload.mounts.clone()));
        let coordinator = self.clone();
        self.tasks.spawn(async move {
            let mut news = coordinator.news.subscribe();
            loop {
                let leading = coordinator.leadership();
                match leading {
                    Some((fence, lost)) => coordinator.lead_jobs(&preload, fence, lost).await,
                    None => {
                        let changed = coordinator.stop.run_until_cancelled(news.changed()).await;
                        if !matches!(changed, Some(Ok(()))) {
                            return;
                        }
                    }
                }
                if coordinator.stop.is_cancelled() {
                    return;
                }
            }
        });
    }

    fn leadership(&self) -> Option<(Fence, CancellationToken)> {
        let leading = self.leading.lock();
        let leadership =
            &leading.as_ref().filter(|leading| !leading.leadership.is_lost())?.leadership;
        Some((leadership.fence().clone(), leadership.lost.clone()))
    }

    async fn lead_jobs(&self, preload: &Preload, fence: Fence, lost: CancellationToken) {
        let store = Arc::new(LeaderJobs { store: self.store.clone(), fence: fence.clone() });
        let Preload { options, tier, mounts, metrics } = preload;
        let opened =
            Engine::open(options.clone(), tier.clone(), mounts.clone(), store, metrics.clone());
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
            while self.leadership().is_some_and(|(now, _)| now == fence) {
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
            engine.stop();
        };
        let running = engine.clone().run();
        tokio::pin!(running, over);
        tokio::select! {
            () = &mut over => running.await,
            // By itself only where its store belongs to another, which is about to be known here,
            // too.
            () = &mut running => {
                *self.preloading.engine.lock() = None;
                let _ = self.stop.run_until_cancelled(sleep(PAUSE)).await;
            }
        }
    }
}

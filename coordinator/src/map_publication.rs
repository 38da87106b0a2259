//! Owns the cluster document: reads and writes it in the store, and publishes the map that it
//! holds. Every coordinator publishes, leader or not. Only the leader writes; it decides what.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::membership::ClusterDocument;
use crate::metrics::CoordinatorMetrics;
use crate::published_map::PublishedMap;
use crate::store::{
    ClusterStoreError, ClusterStoreRevision, EntryDamage, EntryPrecondition, LeadershipGuard,
    SharedClusterStore,
};

/// Key of the cluster document.
const KEY: &str = "map";
/// Pause after a failure of the store.
const PAUSE: Duration = Duration::from_millis(500);

/// The cluster document in the store, and the map in force.
pub(crate) struct MapPublication {
    pub(crate) published: PublishedMap,
    store: SharedClusterStore,
    metrics: CoordinatorMetrics,
    tasks: TaskTracker,
}

impl MapPublication {
    /// Begins without a map. Shutdown joins `tasks`.
    pub(crate) fn new(
        store: SharedClusterStore,
        metrics: CoordinatorMetrics,
        tasks: TaskTracker,
    ) -> Self {
        Self { published: PublishedMap::new(), store, metrics, tasks }
    }

    /// Publishes every map that comes into force, whichever coordinator leads.
    pub(crate) async fn follow_store(self: Arc<Self>, stop: CancellationToken) {
        let following = async {
            loop {
                if let Err(error) = self.follow_once().await {
                    report_store_failure(&self.metrics, &error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        stop.run_until_cancelled(following).await;
    }

    async fn follow_once(&self) -> Result<(), ClusterStoreError> {
        let mut watch = self.store.watch_prefix(KEY).await?;
        loop {
            if let Some((document, _)) = self.load_document().await? {
                self.publish_document(&document);
            }
            watch.next_change().await;
        }
    }

    pub(crate) async fn load_document(
        &self,
    ) -> Result<Option<(ClusterDocument, ClusterStoreRevision)>, ClusterStoreError> {
        let Some(entry) = self.store.get_entry(KEY).await? else { return Ok(None) };
        let document =
            serde_json::from_slice(&entry.value).map_err(|error| ClusterStoreError::Damaged {
                store: self.store.store_name().to_owned(),
                damage: EntryDamage::Json { key: KEY, error: Arc::new(error) },
            })?;
        Ok(Some((document, entry.revision)))
    }

    pub(crate) async fn save_document(
        &self,
        document: &ClusterDocument,
        expect: EntryPrecondition,
        leadership: &LeadershipGuard,
    ) -> Result<ClusterStoreRevision, ClusterStoreError> {
        let value = Bytes::from(serde_json::to_vec(document).unwrap_or_default());
        self.store.put_entry(KEY, value, expect, Some(leadership.fencing_token())).await
    }

    pub(crate) fn publish_document(&self, document: &ClusterDocument) {
        self.published.publish_map(&document.active);
        let current = self.published.current_map();
        self.metrics.epoch.set(i64::try_from(current.epoch.0).unwrap_or(i64::MAX));
        self.metrics.members.set(i64::try_from(current.members.len()).unwrap_or(i64::MAX));
        self.metrics.workers_missing.set(i64::try_from(document.missing.len()).unwrap_or(i64::MAX));
        if current.epoch == document.active.epoch {
            self.metrics.moving.set(i64::try_from(document.moving.len()).unwrap_or(i64::MAX));
        }
    }

    /// Counts what a map moves, once it is in force.
    pub(crate) async fn count_change(&self, document: &ClusterDocument) {
        let before = self.published.current_map();
        if document.active.epoch == before.epoch {
            return;
        }
        self.metrics.maps.inc();
        let after = document.active.clone();
        tracing::info!(
            epoch = after.epoch.0,
            workers = after.members.len(),
            before = before.members.len(),
            "a new placement map is in force"
        );
        let metrics = self.metrics.clone();
        // The task is joined at shutdown; nothing else waits for it.
        self.tasks.spawn_blocking(move || {
            if let (Ok(before), Ok(after)) = (before.build_placement(), after.build_placement()) {
                metrics.slots_moved.inc_by(before.count_moved_slots(&after) as u64);
            }
        });
    }
}

/// Counts a failure of the store, and logs it.
pub(crate) fn report_store_failure(metrics: &CoordinatorMetrics, error: &ClusterStoreError) {
    metrics.store_failures.inc();
    tracing::warn!(%error, "the coordinators' store");
}

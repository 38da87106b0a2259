//! Stands for election and runs the leader's loop. Persists what the pure
//! [`crate::membership::MembershipController`] decides, then publishes it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use verbs3_coordinator_client::worker_lease::RENEWALS;
use verbs3_protocol::Epoch;

use crate::coordinator_state::{CoordinatorState, LeaderState};
use crate::hot_block_table::HotBlockTable;
use crate::membership::{ClusterDocument, ClusterOptions, MembershipController, MembershipStep};
use crate::store::{
    ClusterStoreError, ClusterStoreRevision, EntryDamage, EntryPrecondition, LeadershipGuard,
};

/// Key of the cluster document.
const KEY: &str = "map";
/// Pause after a failure of the store.
const PAUSE: Duration = Duration::from_millis(500);
/// How often hot blocks are weighed, and so the least time between two lists.
const WEIGHED_EVERY: Duration = Duration::from_secs(1);
/// Longest sleep. Moments count time while the host is suspended; sleeps do not.
const SLEEP_MAX: Duration = Duration::from_secs(1);

impl CoordinatorState {
    /// Publishes every map that comes into force, whichever coordinator leads.
    pub(crate) async fn follow_store(self: Arc<Self>) {
        let following = async {
            loop {
                if let Err(error) = self.follow_once().await {
                    self.store_failed(&error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        self.stop.run_until_cancelled(following).await;
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

    /// Stands for election until told to stop. Dropping a leadership resigns it.
    pub(crate) async fn stand_for_election(self: Arc<Self>) {
        let standing = async {
            loop {
                match self
                    .store
                    .campaign_for_leader(
                        &self.options.advertise,
                        self.options.settings.leadership.0,
                    )
                    .await
                {
                    Ok(leadership) => self.lead_cluster(Arc::new(leadership)).await,
                    Err(error) => self.store_failed(&error),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        self.stop.run_until_cancelled(standing).await;
        self.step_down();
    }

    async fn lead_cluster(&self, leadership: Arc<LeadershipGuard>) {
        match self.take_over(leadership.clone()).await {
            Ok(revision) => {
                self.metrics.elections.inc();
                self.metrics.leader.set(1);
                tracing::info!(store = self.store.store_name(), "this coordinator leads");
                if let Err(error) = self.run_leader_loop(&leadership, revision).await {
                    self.store_failed(&error);
                }
                tracing::info!("this coordinator leads no more");
            }
            Err(error) => self.store_failed(&error),
        }
        self.step_down();
    }

    fn step_down(&self) {
        self.metrics.leader.set(0);
        *self.leading.lock() = None;
        // Clients that wait for a worker's answer now ask the next leader.
        self.desk.clear_relays();
        self.hot_published.withdraw_list();
        self.news.send_modify(|news| *news += 1);
    }

    /// Writes the document for the first time in a term, which ends all writes of the term before.
    async fn take_over(
        &self,
        leadership: Arc<LeadershipGuard>,
    ) -> Result<ClusterStoreRevision, ClusterStoreError> {
        let found = self.load_document().await?;
        let replicas = self.options.replicas;
        let (document, expect) = match found {
            Some((document, revision)) => (document, EntryPrecondition::Revision(revision)),
            None => (ClusterDocument::new(Epoch(0), replicas), EntryPrecondition::Absent),
        };
        let found_highest = document.highest;
        let document = document.begin_term(epoch_of_now());
        let revision = self.save_document(&document, expect, &leadership).await?;
        self.publish_document(&document);
        let settings = self.options.settings.clone();
        let (hot, renewed_every) = (settings.hot.clone(), settings.lease.0 / RENEWALS);
        let options = ClusterOptions { settings, replicas };
        let mut cluster = MembershipController::new(options, document, self.clock.now());
        cluster.expect_lost_maps(found_highest);
        cluster.hear_follower(self.published.current_map().epoch);
        let hot = HotBlockTable::new(hot, renewed_every, self.clock.now());
        // Of an earlier leadership: meanwhile others were told.
        self.activity.lock().begin_anew();
        *self.leading.lock() = Some(LeaderState { cluster, leadership, hot });
        self.news.send_modify(|news| *news += 1);
        Ok(revision)
    }

    /// Runs the leader's loop. Returns when the leadership is over. Returns also when a write may
    /// or may not have happened, because the leader must then step down.
    async fn run_leader_loop(
        &self,
        leadership: &LeadershipGuard,
        mut revision: ClusterStoreRevision,
    ) -> Result<(), ClusterStoreError> {
        loop {
            let now = self.clock.now();
            let (step, lost) = match self.leading.lock().as_mut() {
                Some(LeaderState { cluster, .. }) => {
                    let stored = cluster.cluster_document().active.epoch;
                    let lost = cluster.take_lost_map().map(|lost| (lost, stored));
                    (cluster.decide_step(now), lost)
                }
                None => return Ok(()),
            };
            if let Some((lost, stored)) = lost {
                self.tell_lost_map(lost, stored);
            }
            match step {
                MembershipStep::Persist(document) => {
                    revision = self
                        .save_document(&document, EntryPrecondition::Revision(revision), leadership)
                        .await?;
                    self.count_change(&document).await;
                    if let Some(leading) = self.leading.lock().as_mut() {
                        leading
                            .cluster
                            .confirm_persisted(ClusterDocument::clone(&document), self.clock.now());
                    }
                    self.publish_document(&document);
                    self.news.send_modify(|news| *news += 1);
                }
                MembershipStep::Wait(until) => {
                    let sleep = until.saturating_duration_since(now).min(SLEEP_MAX);
                    tokio::select! {
                        () = leadership.wait_until_lost() => return Ok(()),
                        () = self.happened.notified() => {}
                        () = tokio::time::sleep(sleep) => {}
                    }
                }
            }
        }
    }

    /// Weighs reports of hot blocks while this coordinator leads. May be cancelled at any time.
    pub(crate) async fn weigh_hot(self: Arc<Self>) {
        let weighing = async {
            let mut ticks = tokio::time::interval(WEIGHED_EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let members = &self.published.current_map().members;
                let workers = members.iter().filter(|member| !member.draining).count();
                let weighed = self.with_leader_state(|leading, now| {
                    if let Some(list) = leading.hot.weigh_reports(workers, now) {
                        tracing::debug!(blocks = list.blocks.len(), "another list of hot blocks");
                        self.metrics.hot_lists.inc();
                        // Published under the leader's lock: a withdrawal on stepping down always
                        // comes after it.
                        self.hot_published.publish_list(&list);
                    }
                    leading.hot.block_counts()
                });
                let (blocks, replicas, left_out) = weighed.unwrap_or_default();
                self.metrics.hot_blocks.set(blocks as i64);
                self.metrics.hot_replicas.set(replicas as i64);
                self.metrics.hot_left_out.set(left_out as i64);
            }
        };
        self.stop.run_until_cancelled(weighing).await;
    }

    async fn load_document(
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

    async fn save_document(
        &self,
        document: &ClusterDocument,
        expect: EntryPrecondition,
        leadership: &LeadershipGuard,
    ) -> Result<ClusterStoreRevision, ClusterStoreError> {
        let value = Bytes::from(serde_json::to_vec(document).unwrap_or_default());
        self.store.put_entry(KEY, value, expect, Some(leadership.fencing_token())).await
    }

    fn publish_document(&self, document: &ClusterDocument) {
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
    async fn count_change(&self, document: &ClusterDocument) {
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

    fn tell_lost_map(&self, lost: Epoch, stored: Epoch) {
        self.metrics.maps_lost.inc();
        tracing::error!(
            epoch = lost.0,
            stored = stored.0,
            "a process follows a map that the store does not hold: the store was emptied, or an \
            older copy was put back; another map replaces it once the leases of that time are over"
        );
    }

    fn store_failed(&self, error: &ClusterStoreError) {
        self.metrics.store_failures.inc();
        tracing::warn!(%error, "the coordinators' store");
    }
}

/// Returns the seconds since 1970 as an epoch. A leader gives out later ones alone. They exceed every
/// epoch of a lost store of this cluster, unless that one changed its map every second.
fn epoch_of_now() -> Epoch {
    Epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

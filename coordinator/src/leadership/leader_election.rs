//! Stands for election and runs the leader's loop. Persists what the pure [`MembershipController`]
//! decides, then publishes it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::worker_lease::RENEWALS;
use verbs3_protocol::Epoch;

use super::{ClusterLeadership, LeaderState};
use crate::activity_reports::ActivityReports;
use crate::hot_block_table::HotBlockTable;
use crate::map_publication::{MapPublication, report_store_failure};
use crate::membership::{ClusterDocument, ClusterOptions, MembershipController, MembershipStep};
use crate::metrics::CoordinatorMetrics;
use crate::relay_dispatcher::RelayDispatcher;
use crate::store::{
    ClusterStoreError, ClusterStoreRevision, EntryPrecondition, LeadershipGuard, SharedClusterStore,
};

/// Pause after a leadership, and after a failure of the store.
const PAUSE: Duration = Duration::from_millis(500);
/// How often hot blocks are weighed, and so the least time between two lists.
const WEIGHED_EVERY: Duration = Duration::from_secs(1);
/// Longest sleep. Moments count time while the host is suspended; sleeps do not.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// This coordinator's part in the election, and its work as leader.
pub(crate) struct LeaderElection {
    pub(crate) options: ClusterOptions,
    /// What others see of this coordinator while it leads.
    pub(crate) advertise: String,
    pub(crate) store: SharedClusterStore,
    pub(crate) leadership: Arc<ClusterLeadership>,
    pub(crate) maps: Arc<MapPublication>,
    /// Dismissed at the end of a leadership.
    pub(crate) relays: Arc<RelayDispatcher>,
    /// Begun anew with each leadership.
    pub(crate) activity: Arc<ActivityReports>,
    pub(crate) metrics: CoordinatorMetrics,
}

impl LeaderElection {
    /// Stands for election until told to stop. Dropping a leadership resigns it.
    pub(crate) async fn stand_for_election(self: Arc<Self>, stop: CancellationToken) {
        let standing = async {
            loop {
                match self
                    .store
                    .campaign_for_leader(&self.advertise, self.options.settings.leadership.0)
                    .await
                {
                    Ok(leadership) => self.lead_cluster(Arc::new(leadership)).await,
                    Err(error) => report_store_failure(&self.metrics, &error),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        stop.run_until_cancelled(standing).await;
        self.step_down();
    }

    async fn lead_cluster(&self, leadership: Arc<LeadershipGuard>) {
        match self.take_over(leadership.clone()).await {
            Ok(revision) => {
                self.metrics.elections.inc();
                self.metrics.leader.set(1);
                tracing::info!(store = self.store.store_name(), "this coordinator leads");
                if let Err(error) = self.run_leader_loop(&leadership, revision).await {
                    report_store_failure(&self.metrics, &error);
                }
                tracing::info!("this coordinator leads no more");
            }
            Err(error) => report_store_failure(&self.metrics, &error),
        }
        self.step_down();
    }

    fn step_down(&self) {
        self.metrics.leader.set(0);
        *self.leadership.leading.lock() = None;
        // Clients that wait for a worker's answer now ask the next leader.
        self.relays.clear_relays();
        self.leadership.hot_published.withdraw_list();
        self.leadership.count_event();
    }

    /// Writes the document for the first time in a term, which ends all writes of the term before.
    async fn take_over(
        &self,
        leadership: Arc<LeadershipGuard>,
    ) -> Result<ClusterStoreRevision, ClusterStoreError> {
        let found = self.maps.load_document().await?;
        let options = self.options.clone();
        let (document, expect) = match found {
            Some((document, revision)) => (document, EntryPrecondition::Revision(revision)),
            None => (ClusterDocument::new(Epoch(0), options.replicas), EntryPrecondition::Absent),
        };
        let found_highest = document.highest;
        let document = document.begin_term(epoch_of_now());
        let revision = self.maps.save_document(&document, expect, &leadership).await?;
        self.maps.publish_document(&document);
        let settings = &options.settings;
        let (hot, renewed_every) = (settings.hot.clone(), settings.lease.0 / RENEWALS);
        let clock = &self.leadership.clock;
        let mut cluster = MembershipController::new(options, document, clock.now());
        cluster.expect_lost_maps(found_highest);
        cluster.hear_follower(self.maps.published.current_map().epoch);
        let hot = HotBlockTable::new(hot, renewed_every, clock.now());
        // Of an earlier leadership: meanwhile others were told.
        self.activity.begin_anew();
        *self.leadership.leading.lock() = Some(LeaderState { cluster, leadership, hot });
        self.leadership.count_event();
        Ok(revision)
    }

    /// Runs the leader's loop. Returns when the leadership is over. Returns also when a write may
    /// or may not have happened, because the leader must then step down.
    async fn run_leader_loop(
        &self,
        leadership: &LeadershipGuard,
        mut revision: ClusterStoreRevision,
    ) -> Result<(), ClusterStoreError> {
        let ClusterLeadership { clock, leading, happened, .. } = &*self.leadership;
        loop {
            let now = clock.now();
            let (step, lost) = match leading.lock().as_mut() {
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
                    let unchanged = EntryPrecondition::Revision(revision);
                    revision = self.maps.save_document(&document, unchanged, leadership).await?;
                    self.maps.count_change(&document).await;
                    if let Some(leading) = leading.lock().as_mut() {
                        leading
                            .cluster
                            .confirm_persisted(ClusterDocument::clone(&document), clock.now());
                    }
                    self.maps.publish_document(&document);
                    self.leadership.count_event();
                }
                MembershipStep::Wait(until) => {
                    let sleep = until.saturating_duration_since(now).min(SLEEP_MAX);
                    tokio::select! {
                        () = leadership.wait_until_lost() => return Ok(()),
                        () = happened.notified() => {}
                        () = tokio::time::sleep(sleep) => {}
                    }
                }
            }
        }
    }

    /// Weighs reports of hot blocks while this coordinator leads. May be cancelled at any time.
    pub(crate) async fn weigh_hot(self: Arc<Self>, stop: CancellationToken) {
        let weighing = async {
            let mut ticks = tokio::time::interval(WEIGHED_EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let members = &self.maps.published.current_map().members;
                let workers = members.iter().filter(|member| !member.draining).count();
                let weighed = self.leadership.with_leader_state(|leading, now| {
                    if let Some(list) = leading.hot.weigh_reports(workers, now) {
                        tracing::debug!(blocks = list.blocks.len(), "another list of hot blocks");
                        self.metrics.hot_lists.inc();
                        // Published under the leader's lock: a withdrawal on stepping down always
                        // comes after it.
                        self.leadership.hot_published.publish_list(&list);
                    }
                    leading.hot.block_counts()
                });
                let (blocks, replicas, left_out) = weighed.unwrap_or_default();
                self.metrics.hot_blocks.set(blocks as i64);
                self.metrics.hot_replicas.set(replicas as i64);
                self.metrics.hot_left_out.set(left_out as i64);
            }
        };
        stop.run_until_cancelled(weighing).await;
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
}

/// Returns the seconds since 1970 as an epoch. A leader gives out later ones alone. They exceed
/// every epoch of a lost store of this cluster, unless that one changed its map every second.
fn epoch_of_now() -> Epoch {
    Epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

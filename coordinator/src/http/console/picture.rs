//! What pages show: the leader's knowledge at one moment.

use verbs3_coordinator_client::api::{ActivityGauges, ClusterView, CoordinatorRefusal};
use verbs3_preload::api::JobView;

use crate::activity_board::{ActivityHour, NodeReport};
use crate::coordinator_state::CoordinatorState;

/// Most jobs of the list.
const JOBS_SHOWN_MAX: usize = 50;

/// The cluster as the leader knows it.
pub(super) struct ClusterPicture {
    pub(super) cluster: ClusterView,
    pub(super) hour: ActivityHour,
    pub(super) nodes: Vec<NodeReport>,
    pub(super) gauges: ActivityGauges,
    pub(super) jobs: Vec<JobView>,
    /// Why the users file as it is now is not in force.
    pub(super) users_flaw: Option<String>,
}

impl CoordinatorState {
    /// Returns the picture, or a sentence on why there is none here.
    pub(super) async fn take_picture(&self) -> Result<ClusterPicture, String> {
        let Some(cluster) = self.build_cluster_view().await else {
            return Err(self.name_leader().await);
        };
        let jobs =
            self.preload_engine().map(|engine| engine.jobs_page(None, None, JOBS_SHOWN_MAX).jobs);
        let (board, now) = (self.activity.lock(), self.clock.now());
        Ok(ClusterPicture {
            cluster,
            hour: board.last_hour(now),
            nodes: board.recent_reports(now),
            gauges: board.current_gauges(now),
            jobs: jobs.unwrap_or_default(),
            users_flaw: self.console.as_ref().and_then(|console| console.users.file_flaw()),
        })
    }

    /// Says who leads, where this coordinator does not.
    pub(super) async fn name_leader(&self) -> String {
        let refusal = self.not_leader().await;
        let refused = serde_json::from_slice::<CoordinatorRefusal>(&refusal.body).ok();
        match refused.and_then(|refused| refused.leader) {
            Some(leader) => format!("Another coordinator leads. Sign in at {leader}/console."),
            None => "No coordinator leads at this moment. Try again soon.".to_owned(),
        }
    }
}

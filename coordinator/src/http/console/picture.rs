//! What pages show: the leader's knowledge at one moment.

use verbs3_coordinator_client::api::{ActivityGauges, ClusterView};
use verbs3_preload::api::JobView;

use super::ConsoleSite;
use crate::activity_board::{ActivityHour, NodeReport};
use crate::http::cluster_routes::build_cluster_view;

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

impl ConsoleSite {
    /// Returns the picture, or a sentence on why there is none here.
    pub(super) async fn take_picture(&self) -> Result<ClusterPicture, String> {
        let Some(cluster) = build_cluster_view(&self.context).await else {
            return Err(self.name_leader().await);
        };
        let engine = self.context.preload.current_engine();
        let jobs = engine.map(|engine| engine.jobs_page(None, None, JOBS_SHOWN_MAX).jobs);
        Ok(self.context.activity.read_board(|board, now| ClusterPicture {
            cluster,
            hour: board.last_hour(now),
            nodes: board.recent_reports(now),
            gauges: board.current_gauges(now),
            jobs: jobs.unwrap_or_default(),
            users_flaw: self.console.users.file_flaw(),
        }))
    }

    /// Says who leads, where this coordinator does not.
    pub(super) async fn name_leader(&self) -> String {
        match self.context.leadership.explain_refusal().await.leader {
            Some(leader) => format!("Another coordinator leads. Sign in at {leader}/console."),
            None => "No coordinator leads at this moment. Try again soon.".to_owned(),
        }
    }
}

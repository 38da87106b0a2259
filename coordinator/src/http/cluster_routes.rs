//! Answers what people and `verbs3 status` ask about the cluster and its workers. Only the leader
//! knows.

use futures::FutureExt;
use http::StatusCode;
use verbs3_coordinator_client::api::{ClusterView, PreloadView, UnfinishedJob, WorkerView};
use verbs3_preload::JobsOverview;
use verbs3_preload::api::{JobState, JobView};

use super::response::{CoordinatorResponse, HandlerResult};
use super::route::Route;
use crate::coordinator_state::CoordinatorState;

pub(super) fn cluster_routes() -> Vec<Route> {
    vec![
        Route::get("cluster", "/v1/cluster", |state, _| state.cluster_view().boxed())
            .summary("Whether the cluster is well")
            .answers::<ClusterView>(StatusCode::OK, "The cluster"),
        Route::get("workers", "/v1/workers", |state, _| state.workers_view().boxed())
            .summary("All workers")
            .answers::<Vec<WorkerView>>(StatusCode::OK, "The workers"),
    ]
}

impl CoordinatorState {
    async fn cluster_view(&self) -> HandlerResult {
        match self.build_cluster_view().await {
            Some(view) => Ok(CoordinatorResponse::from_json(StatusCode::OK, &view)),
            None => Err(self.not_leader().await),
        }
    }

    /// Returns the cluster as the leader sees it. `None`: this coordinator does not lead.
    pub(super) async fn build_cluster_view(&self) -> Option<ClusterView> {
        let slots = self.published.count_owned_slots().await;
        let options = &self.options;
        let preload = self
            .preload_engine()
            .map(|engine| preload_view(engine.jobs_overview()))
            .unwrap_or_default();
        self.with_leader_state(|leading, now| ClusterView {
            hot: leading.hot.hot_view(),
            preload,
            ..leading.cluster.build_cluster_view(&options.name, &options.advertise, &slots, now)
        })
    }

    async fn workers_view(&self) -> HandlerResult {
        let workers = self.leader_workers().await?;
        Ok(CoordinatorResponse::from_json(StatusCode::OK, &workers))
    }

    /// Returns the workers as the leader sees them. Fails where this coordinator does not lead.
    pub(super) async fn leader_workers(&self) -> Result<Vec<WorkerView>, CoordinatorResponse> {
        let slots = self.published.count_owned_slots().await;
        let options = &self.options;
        let workers = self.as_leader(|cluster, now| {
            cluster.build_cluster_view(&options.name, &options.advertise, &slots, now).workers
        });
        match workers {
            Some(workers) => Ok(workers),
            None => Err(self.not_leader().await),
        }
    }
}

fn preload_view(JobsOverview { running, waiting, unfinished }: JobsOverview) -> PreloadView {
    let job = |job: JobView| UnfinishedJob {
        state: if job.state == JobState::Failed { "failed" } else { "incomplete" }.to_owned(),
        reason: job.reason.unwrap_or_default(),
        ended_ms: job.ended_ms.unwrap_or_default(),
        id: job.id,
    };
    PreloadView {
        running: running as u64,
        waiting: waiting as u64,
        unfinished: unfinished.into_iter().map(job).collect(),
    }
}

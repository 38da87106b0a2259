//! Answers what people and `verbs3 status` ask about the cluster and its workers. Only the leader
//! knows.

use futures::FutureExt;
use http::StatusCode;
use verbs3_coordinator_client::api::{ClusterView, PreloadView, UnfinishedJob, WorkerView};
use verbs3_preload::JobsOverview;
use verbs3_preload::api::{JobState, JobView};

use super::api_context::{ApiContext, ApiOptions};
use super::leader_refusal::redirect_to_leader;
use super::response::{CoordinatorResponse, HandlerResult};
use super::route::Route;

pub(super) fn cluster_routes() -> Vec<Route> {
    vec![
        Route::get("cluster", "/v1/cluster", |context, _| show_cluster(context).boxed())
            .summary("Whether the cluster is well")
            .answers::<ClusterView>(StatusCode::OK, "The cluster"),
        Route::get("workers", "/v1/workers", |context, _| show_workers(context).boxed())
            .summary("All workers")
            .answers::<Vec<WorkerView>>(StatusCode::OK, "The workers"),
    ]
}

async fn show_cluster(context: &ApiContext) -> HandlerResult {
    match build_cluster_view(context).await {
        Some(view) => Ok(CoordinatorResponse::from_json(StatusCode::OK, &view)),
        None => Err(redirect_to_leader(&context.leadership).await),
    }
}

/// Returns the cluster as the leader sees it. `None`: this coordinator does not lead.
pub(super) async fn build_cluster_view(context: &ApiContext) -> Option<ClusterView> {
    let slots = context.maps.published.count_owned_slots().await;
    let ApiOptions { cluster_name, advertise, .. } = &context.options;
    let preload = context
        .preload
        .current_engine()
        .map(|engine| preload_view(engine.jobs_overview()))
        .unwrap_or_default();
    context.leadership.with_leader_state(|leading, now| ClusterView {
        hot: leading.hot.hot_view(),
        preload,
        ..leading.cluster.build_cluster_view(cluster_name, advertise, &slots, now)
    })
}

async fn show_workers(context: &ApiContext) -> HandlerResult {
    let workers = build_worker_views(context).await?;
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &workers))
}

/// Returns the workers as the leader sees them. Fails where this coordinator does not lead.
pub(super) async fn build_worker_views(
    context: &ApiContext,
) -> Result<Vec<WorkerView>, CoordinatorResponse> {
    let slots = context.maps.published.count_owned_slots().await;
    let ApiOptions { cluster_name, advertise, .. } = &context.options;
    let workers = context.leadership.as_leader(|cluster, now| {
        cluster.build_cluster_view(cluster_name, advertise, &slots, now).workers
    });
    match workers {
        Some(workers) => Ok(workers),
        None => Err(redirect_to_leader(&context.leadership).await),
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

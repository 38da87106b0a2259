//! Answers requests about preload jobs, which only the leader serves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::StatusCode;
use tokio::time::Instant;
use verbs3_coordinator_client::api::CoordinatorRefusalKind;
use verbs3_preload::api::PreloadJobSpec;
use verbs3_preload::{
    JobStoreError, JobsPageToken, JobsPageTokenError, PAGE_JOBS_MAX, PreloadEngine,
    PreloadEngineError,
};

use super::routes::{malformed_response, parse_body, query_number, query_text};
use super::{CoordinatorRequest, CoordinatorResponse};
use crate::coordinator::CoordinatorServer;

/// How often a job's progress is checked, and after which time a line is sent without a change.
const LINE_EVERY: Duration = Duration::from_millis(500);
const LINE_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

impl CoordinatorServer {
    /// `POST /v1/preload`: 201 for a new job, 200 for a known one.
    pub(super) async fn preload_create(&self, asked: &CoordinatorRequest) -> CoordinatorResponse {
        let spec: PreloadJobSpec = match parse_body(asked) {
            Ok(spec) => spec,
            Err(answer) => return answer,
        };
        self.preload_begin(spec).await
    }

    pub(super) async fn preload_begin(&self, spec: PreloadJobSpec) -> CoordinatorResponse {
        let Some(engine) = self.preload_engine() else { return self.no_engine().await };
        match engine.create_job(spec).await {
            Ok((view, true)) => {
                tracing::info!(job = view.id, "a preload job was taken in");
                CoordinatorResponse::from_json(StatusCode::CREATED, &view)
            }
            Ok((view, false)) => CoordinatorResponse::from_json(StatusCode::OK, &view),
            Err(error) => preload_refusal(&error),
        }
    }

    /// `?limit=N&after=NEXT`: returns a page of the jobs.
    pub(super) async fn preload_list(&self, asked: &CoordinatorRequest) -> CoordinatorResponse {
        let (limit, after) = match page_of(&asked.query) {
            Ok(page) => page,
            Err(answer) => return answer,
        };
        match self.preload_engine() {
            Some(engine) => CoordinatorResponse::from_json(
                StatusCode::OK,
                &engine.jobs_page(after.as_ref(), limit),
            ),
            None => self.no_engine().await,
        }
    }

    /// `?news=N&wait_ms=W`: waits until there is later news than N.
    pub(super) async fn preload_get(
        &self,
        id: &str,
        asked: &CoordinatorRequest,
    ) -> CoordinatorResponse {
        let (news, wait_ms) =
            match (query_number(&asked.query, "news"), query_number(&asked.query, "wait_ms")) {
                (Ok(news), Ok(wait_ms)) => (news, wait_ms),
                (Err(answer), _) | (_, Err(answer)) => return answer,
            };
        let Some(engine) = self.preload_engine() else { return self.no_engine().await };
        match engine.get(id, news, self.clamp_wait(wait_ms)).await {
            Ok(view) => CoordinatorResponse::from_json(StatusCode::OK, &view),
            Err(error) => preload_refusal(&error),
        }
    }

    pub(super) async fn preload_end(&self, id: &str) -> CoordinatorResponse {
        let Some(engine) = self.preload_engine() else { return self.no_engine().await };
        tracing::info!(job = id, "a preload job is to end");
        match engine.end_job(id).await {
            Ok(view) => CoordinatorResponse::from_json(StatusCode::OK, &view),
            Err(error) => preload_refusal(&error),
        }
    }

    /// Streams the job as a line now and after each change, until the job is over.
    pub(super) async fn preload_progress(&self, id: &str) -> CoordinatorResponse {
        let Some(engine) = self.preload_engine() else { return self.no_engine().await };
        if let Err(error) = engine.get(id, None, Duration::ZERO).await {
            return preload_refusal(&error);
        }
        let id = id.to_owned();
        // The end of the connection, or of the leadership, ends the stream.
        let views =
            stream::unfold((engine, id, None, false), |(engine, id, before, over)| async move {
                if over {
                    return None;
                }
                let mut view = engine.get(&id, None, Duration::ZERO).await.ok()?;
                let began = Instant::now();
                while before.as_ref() == Some(&view) && began.elapsed() < LINE_AT_LEAST_EVERY {
                    if engine.is_stopped() {
                        // Another coordinator has the news.
                        return None;
                    }
                    view = engine.get(&id, Some(view.news), LINE_EVERY).await.ok()?;
                }
                let line = Bytes::from(serde_json::to_vec(&view).unwrap_or_default());
                let over = view.state.is_over();
                Some((line, (engine, id, Some(view), over)))
            });
        CoordinatorResponse::from_lines(views.boxed())
    }

    pub(super) fn preload_engine(&self) -> Option<Arc<PreloadEngine>> {
        self.preloading.engine.lock().clone()
    }

    pub(super) async fn no_engine(&self) -> CoordinatorResponse {
        if self.is_leader() {
            let reason = "this coordinator runs no preload jobs yet, or none at all: it needs \
                [[ufs]], [[mount]] and workers in its configuration";
            return CoordinatorResponse::refuse_request(
                StatusCode::SERVICE_UNAVAILABLE,
                CoordinatorRefusalKind::Unavailable,
                reason,
            );
        }
        self.not_leader().await
    }
}

fn page_of(query: &str) -> Result<(usize, Option<JobsPageToken>), CoordinatorResponse> {
    let wrong = |reason: String| malformed_response(StatusCode::BAD_REQUEST, reason);
    let limit = match query_number(query, "limit")?.map(usize::try_from) {
        None => PAGE_JOBS_MAX,
        Some(Ok(limit)) if (1..=PAGE_JOBS_MAX).contains(&limit) => limit,
        Some(_) => return Err(wrong(format!("limit is a number from 1 to {PAGE_JOBS_MAX}"))),
    };
    let after = query_text(query, "after").map(|after| after.parse()).transpose();
    Ok((limit, after.map_err(|error: JobsPageTokenError| wrong(format!("after={error}")))?))
}

pub(super) fn preload_refusal(error: &PreloadEngineError) -> CoordinatorResponse {
    let (status, kind) = match error {
        PreloadEngineError::Spec(_) | PreloadEngineError::Store(JobStoreError::Refused(_)) => {
            (StatusCode::BAD_REQUEST, CoordinatorRefusalKind::Malformed)
        }
        PreloadEngineError::Other(_) | PreloadEngineError::Store(JobStoreError::Exists(_)) => {
            (StatusCode::CONFLICT, CoordinatorRefusalKind::Taken)
        }
        PreloadEngineError::Unknown(_) => (StatusCode::NOT_FOUND, CoordinatorRefusalKind::Unknown),
        PreloadEngineError::Full(_)
        | PreloadEngineError::NotifiedFull(_)
        | PreloadEngineError::Store(JobStoreError::Deposed(_) | JobStoreError::Unavailable(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, CoordinatorRefusalKind::Unavailable)
        }
    };
    CoordinatorResponse::refuse_request(status, kind, error.to_string())
}

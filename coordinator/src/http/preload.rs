//! What can be asked of preload jobs. All of it is the leader's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::StatusCode;
use tokio::time::Instant;
use verbs3_coordinator_client::api::RefusedKind;
use verbs3_preload::api::Spec;
use verbs3_preload::{After, AfterError, Engine, EngineError, JobStoreError, PAGE_JOBS_MAX};

use super::routes::{malformed, number, parsed, text};
use super::{Answer, Asked};
use crate::coordinator::Coordinator;

/// How often a progress is looked at, and after which time a line comes though nothing has changed.
const LINE_EVERY: Duration = Duration::from_millis(500);
const LINE_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

impl Coordinator {
    /// `POST /v1/preload`: 201 for a new job, 200 for one that is known.
    pub(super) async fn preload_create(&self, asked: &Asked) -> Answer {
        let spec: Spec = match parsed(asked) {
            Ok(spec) => spec,
            Err(answer) => return answer,
        };
        self.preload_begin(spec).await
    }

    pub(super) async fn preload_begin(&self, spec: Spec) -> Answer {
        let Some(engine) = self.engine() else { return self.no_engine().await };
        match engine.create(spec).await {
            Ok((view, true)) => {
                tracing::info!(job = view.id, "a preload job was taken in");
                Answer::json(StatusCode::CREATED, &view)
            }
            Ok((view, false)) => Answer::json(StatusCode::OK, &view),
            Err(error) => refused(&error),
        }
    }

    /// `?limit=N&after=NEXT`: a page of the jobs.
    pub(super) async fn preload_list(&self, asked: &Asked) -> Answer {
        let (limit, after) = match page_of(&asked.query) {
            Ok(page) => page,
            Err(answer) => return answer,
        };
        match self.engine() {
            Some(engine) => Answer::json(StatusCode::OK, &engine.page(after.as_ref(), limit)),
            None => self.no_engine().await,
        }
    }

    /// `?news=N&wait_ms=W`: waits until there is later news than N.
    pub(super) async fn preload_get(&self, id: &str, asked: &Asked) -> Answer {
        let (news, wait_ms) = match (number(&asked.query, "news"), number(&asked.query, "wait_ms"))
        {
            (Ok(news), Ok(wait_ms)) => (news, wait_ms),
            (Err(answer), _) | (_, Err(answer)) => return answer,
        };
        let Some(engine) = self.engine() else { return self.no_engine().await };
        match engine.get(id, news, self.wait(wait_ms)).await {
            Ok(view) => Answer::json(StatusCode::OK, &view),
            Err(error) => refused(&error),
        }
    }

    pub(super) async fn preload_end(&self, id: &str) -> Answer {
        let Some(engine) = self.engine() else { return self.no_engine().await };
        tracing::info!(job = id, "a preload job is to end");
        match engine.end(id).await {
            Ok(view) => Answer::json(StatusCode::OK, &view),
            Err(error) => refused(&error),
        }
    }

    /// The job now, and whenever something of it has changed, until it is over: a line each.
    pub(super) async fn preload_progress(&self, id: &str) -> Answer {
        let Some(engine) = self.engine() else { return self.no_engine().await };
        if let Err(error) = engine.get(id, None, Duration::ZERO).await {
            return refused(&error);
        }
        let id = id.to_owned();
        // The end of the connection ends it, and that of the leadership.
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
        Answer::lines(views.boxed())
    }

    pub(super) fn engine(&self) -> Option<Arc<Engine>> {
        self.preloading.engine.lock().clone()
    }

    pub(super) async fn no_engine(&self) -> Answer {
        if self.is_leader() {
            let reason = "this coordinator runs no preload jobs yet, or none at all: it needs \
                [[ufs]], [[mount]] and workers in its configuration";
            return Answer::refused(
                StatusCode::SERVICE_UNAVAILABLE,
                RefusedKind::Unavailable,
                reason,
            );
        }
        self.not_leader().await
    }
}

fn page_of(query: &str) -> Result<(usize, Option<After>), Answer> {
    let wrong = |reason: String| malformed(StatusCode::BAD_REQUEST, reason);
    let limit = match number(query, "limit")?.map(usize::try_from) {
        None => PAGE_JOBS_MAX,
        Some(Ok(limit)) if (1..=PAGE_JOBS_MAX).contains(&limit) => limit,
        Some(_) => return Err(wrong(format!("limit is a number from 1 to {PAGE_JOBS_MAX}"))),
    };
    let after = text(query, "after").map(|after| after.parse()).transpose();
    Ok((limit, after.map_err(|error: AfterError| wrong(format!("after={error}")))?))
}

pub(super) fn refused(error: &EngineError) -> Answer {
    let (status, kind) = match error {
        EngineError::Spec(_) | EngineError::Store(JobStoreError::Refused(_)) => {
            (StatusCode::BAD_REQUEST, RefusedKind::Malformed)
        }
        EngineError::Other(_) | EngineError::Store(JobStoreError::Exists(_)) => {
            (StatusCode::CONFLICT, RefusedKind::Taken)
        }
        EngineError::Unknown(_) => (StatusCode::NOT_FOUND, RefusedKind::Unknown),
        EngineError::Full(_)
        | EngineError::NotifiedFull(_)
        | EngineError::Store(JobStoreError::Deposed(_) | JobStoreError::Unavailable(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, RefusedKind::Unavailable)
        }
    };
    Answer::refused(status, kind, error.to_string())
}

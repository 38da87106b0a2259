//! Answers requests about preload jobs, which only the leader serves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::StatusCode;
use schemars::json_schema;
use tokio::time::Instant;
use verbs3_coordinator_client::api::CoordinatorRefusalKind;
use verbs3_preload::api::{
    JobView, JobsPage, OwnedPreloadJob, PreloadJobAction, PreloadJobSpec, PreloadPriority,
};
use verbs3_preload::{
    JobOwner, JobStoreError, JobsPageToken, JobsPageTokenError, JudgedMountError, PAGE_JOBS_MAX,
    PreloadEngine, PreloadEngineError,
};

use super::api_context::ApiContext;
use super::leader_refusal::redirect_to_leader;
use super::proven_lines::ProvenLine;
use super::request::CoordinatorRequest;
use super::response::{
    CoordinatorResponse, HandlerResult, forbidden_response, malformed_response,
    unavailable_response,
};
use super::route::Route;

/// How often a job's progress is checked, and after which time a line is sent without a change.
const LINE_EVERY: Duration = Duration::from_millis(500);
const LINE_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// What `owner` means, in the document.
const OWNER: &str = "Name of the identity on whose behalf a gateway asks: its jobs alone";

pub(super) fn preload_routes() -> Vec<Route> {
    let id = "Name of the job";
    vec![
        begins_job(Route::post("preload_create", "/v1/preload", |context, asked| {
            async {
                match asked_owner(asked) {
                    Some(owner) => begin_owned_job(context, asked.parse_body()?, owner).await,
                    None => begin_job(context, asked.parse_body()?).await,
                }
            }
            .boxed()
        }))
        .of_owners()
        .refuses(StatusCode::FORBIDDEN, "A job with an owner asks for what is an operator's")
        .summary("Begin a job, or find the one of this id")
        .takes_as(|generator| {
            let job = generator.subschema_for::<PreloadJobSpec>();
            let owned = generator.subschema_for::<OwnedPreloadJob>();
            json_schema!({
                "description": "A job; with `owner`, what a gateway makes of it",
                "anyOf": [job, owned],
            })
        })
        .in_query::<String>("owner", OWNER),
        Route::get("preload_list", "/v1/preload", |context, asked| {
            list_jobs(context, asked).boxed()
        })
        .of_owners()
        .summary("The jobs, newest first, a page at a time")
        .in_query_as("limit", "Jobs of this page, at most; fewer come where they are long", |_| {
            json_schema!({
                "type": "integer", "minimum": 1,
                "maximum": PAGE_JOBS_MAX, "default": PAGE_JOBS_MAX,
            })
        })
        .in_query_as("after", "`next` of the page before", |_| {
            let pattern = "^[0-9]{1,16}[.][A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$";
            json_schema!({ "type": "string", "pattern": pattern })
        })
        .in_query::<String>("owner", OWNER)
        .answers::<JobsPage>(StatusCode::OK, "The jobs"),
        Route::get("preload_get", "/v1/preload/{id}", |context, asked| {
            get_job(context, asked).boxed()
        })
        .of_owners()
        .summary("One job")
        .in_path("id", id)
        .in_query::<u64>("news", "Wait until the job's `news` is another number")
        .in_query::<u64>("wait_ms", "but no longer than this")
        .in_query::<String>("owner", OWNER)
        .answers::<JobView>(StatusCode::OK, "The job"),
        Route::delete("preload_end", "/v1/preload/{id}", |context, asked| {
            end_job(context, asked).boxed()
        })
        .of_owners()
        .summary("End a job; one that is over stays as it is")
        .in_path("id", id)
        .in_query::<String>("owner", OWNER)
        .answers::<JobView>(StatusCode::OK, "The job"),
        Route::get("preload_progress", "/v1/preload/{id}/progress", |context, asked| {
            follow_job(context, asked).boxed()
        })
        .of_owners()
        .summary(
            "The job, and whenever something of it changes, until it is over: a line each, with a \
            proof of its own",
        )
        .in_path("id", id)
        .in_query::<String>("owner", OWNER)
        .answers_lines::<ProvenLine<JobView>>("Lines"),
    ]
}

/// Returns what of a job is left to operators: a gateway that asks for somebody may not pass it on.
fn operators_part(spec: &PreloadJobSpec) -> Option<String> {
    let parts = [
        (spec.action != PreloadJobAction::Load, "action"),
        (spec.priority == PreloadPriority::High, "priority \"high\""),
        (spec.pin_ttl.is_some(), "pin_ttl"),
        (spec.manifest.is_some(), "manifest"),
    ];
    let (_, name) = parts.into_iter().find(|(is_there, _)| *is_there)?;
    Some(format!("a job with an owner has no {name}: that is for operators"))
}

/// Says how a route answers that begins a job.
pub(super) fn begins_job(route: Route) -> Route {
    route
        .answers::<JobView>(StatusCode::OK, "The job of this id, which is there already")
        .answers::<JobView>(StatusCode::CREATED, "The new job")
        .refuses(
            StatusCode::CONFLICT,
            "Another job has this id, or a mount means something else here than at the gateway",
        )
        .refuses(StatusCode::TOO_MANY_REQUESTS, "The owner has as many jobs as one may have")
}

/// Begins an operator's job.
pub(super) async fn begin_job(context: &ApiContext, spec: PreloadJobSpec) -> HandlerResult {
    answer_created(require_engine(context).await?.create_job(spec).await)
}

async fn begin_owned_job(
    context: &ApiContext,
    job: OwnedPreloadJob,
    owner: JobOwner,
) -> HandlerResult {
    if let Some(why) = operators_part(&job.job) {
        return Err(forbidden_response(why));
    }
    answer_created(require_engine(context).await?.create_owned_job(job, owner).await)
}

async fn list_jobs(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let limit = page_limit(asked)?;
    let after = page_token(asked)?;
    let page = require_engine(context).await?.jobs_page(
        asked_owner(asked).as_ref(),
        after.as_ref(),
        limit,
    );
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &page))
}

async fn get_job(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let news = asked.query_number("news")?;
    let wait = context.clamp_wait(asked.query_number("wait_ms")?);
    let engine = require_engine(context).await?;
    require_own_job(&engine, asked)?;
    let view = engine.get(asked.path_value("id"), news, wait).await;
    let view = view.map_err(|error| preload_refusal(&error))?;
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &view))
}

async fn end_job(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let engine = require_engine(context).await?;
    require_own_job(&engine, asked)?;
    let id = asked.path_value("id");
    tracing::info!(job = id, "a preload job is to end");
    let view = engine.end_job(id).await.map_err(|error| preload_refusal(&error))?;
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &view))
}

/// Streams the job as a line now and after each change, until the job is over.
async fn follow_job(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let engine = require_engine(context).await?;
    require_own_job(&engine, asked)?;
    let id = asked.path_value("id").to_owned();
    let known = engine.get(&id, None, Duration::ZERO).await;
    known.map_err(|error| preload_refusal(&error))?;
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
    Ok(CoordinatorResponse::from_lines(views.boxed()))
}

/// Returns the engine that runs the jobs, or refuses the request.
pub(super) async fn require_engine(
    context: &ApiContext,
) -> Result<Arc<PreloadEngine>, CoordinatorResponse> {
    if let Some(engine) = context.preload.current_engine() {
        return Ok(engine);
    }
    if !context.leadership.is_leader() {
        return Err(redirect_to_leader(&context.leadership).await);
    }
    let reason = "this coordinator runs no preload jobs yet, or none at all: it needs [[ufs]], \
        [[mount]] and workers in its configuration";
    Err(unavailable_response(StatusCode::SERVICE_UNAVAILABLE, reason))
}

fn answer_created(created: Result<(JobView, bool), PreloadEngineError>) -> HandlerResult {
    let (view, is_new) = created.map_err(|error| preload_refusal(&error))?;
    if is_new {
        tracing::info!(job = view.id, "a preload job was taken in");
    }
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(CoordinatorResponse::from_json(status, &view))
}

/// On whose behalf a gateway asks. `None`: an operator asks.
fn asked_owner(asked: &CoordinatorRequest) -> Option<JobOwner> {
    asked.query_text("owner").map(JobOwner)
}

/// Refuses a job that is another owner's, as if there were none.
fn require_own_job(
    engine: &PreloadEngine,
    asked: &CoordinatorRequest,
) -> Result<(), CoordinatorResponse> {
    let id = asked.path_value("id");
    match asked_owner(asked).is_none_or(|owner| engine.is_owned_by(id, &owner)) {
        true => Ok(()),
        false => Err(preload_refusal(&PreloadEngineError::Unknown(id.to_owned()))),
    }
}

fn page_limit(asked: &CoordinatorRequest) -> Result<usize, CoordinatorResponse> {
    match asked.query_number("limit")?.map(usize::try_from) {
        None => Ok(PAGE_JOBS_MAX),
        Some(Ok(limit)) if (1..=PAGE_JOBS_MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(malformed_response(
            StatusCode::BAD_REQUEST,
            format!("limit is a number from 1 to {PAGE_JOBS_MAX}"),
        )),
    }
}

fn page_token(asked: &CoordinatorRequest) -> Result<Option<JobsPageToken>, CoordinatorResponse> {
    let after = asked.query_text("after").map(|after| after.parse()).transpose();
    after.map_err(|error: JobsPageTokenError| {
        malformed_response(StatusCode::BAD_REQUEST, format!("after={error}"))
    })
}

pub(super) fn preload_refusal(error: &PreloadEngineError) -> CoordinatorResponse {
    let (status, kind) = match error {
        PreloadEngineError::Spec(_)
        | PreloadEngineError::Judged(JudgedMountError::Spec(_))
        | PreloadEngineError::Store(JobStoreError::Refused(_)) => {
            (StatusCode::BAD_REQUEST, CoordinatorRefusalKind::Malformed)
        }
        PreloadEngineError::Judged(
            JudgedMountError::Other { .. } | JudgedMountError::Unsaid(_),
        ) => (StatusCode::CONFLICT, CoordinatorRefusalKind::OtherMounts),
        PreloadEngineError::Other(_) | PreloadEngineError::Store(JobStoreError::Exists(_)) => {
            (StatusCode::CONFLICT, CoordinatorRefusalKind::Taken)
        }
        PreloadEngineError::Unknown(_) => (StatusCode::NOT_FOUND, CoordinatorRefusalKind::Unknown),
        PreloadEngineError::OwnerFull(_) => {
            (StatusCode::TOO_MANY_REQUESTS, CoordinatorRefusalKind::OwnerFull)
        }
        PreloadEngineError::Full(_)
        | PreloadEngineError::NotifiedFull(_)
        | PreloadEngineError::Store(JobStoreError::Deposed(_) | JobStoreError::Unavailable(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, CoordinatorRefusalKind::Unavailable)
        }
    };
    CoordinatorResponse::refuse_request(status, kind, error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use verbs3_preload::SpecError;

    use super::*;

    #[test]
    fn other_mounts_than_the_gateways_are_a_conflict() {
        let other = JudgedMountError::Other { mount: "part".into(), what: "bucket".into() };
        for refused in [other, JudgedMountError::Unsaid("part".into())] {
            let answer = preload_refusal(&PreloadEngineError::Judged(refused));
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(
                (answer.status, &body["kind"]),
                (StatusCode::CONFLICT, &"other_mounts".into())
            );
            assert!(body["reason"].as_str().unwrap().contains("[[mount]] part"), "{body}");
        }
        let malformed = JudgedMountError::Spec(SpecError::Nothing);
        let answer = preload_refusal(&PreloadEngineError::Judged(malformed));
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    }
}

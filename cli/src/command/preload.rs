//! `verbs3 preload`: hands a job to the coordinators, and says what becomes of it.

pub mod arguments;
mod job_progress;
pub mod jobs_client;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use verbs3_coordinator_client::api::CoordinatorRefusalKind;
use verbs3_coordinator_client::{AskError, CoordinatorClient};
use verbs3_preload::api::{JobState, JobView, JobsPage};

use self::arguments::{AskArguments, PreloadAction, PreloadArguments};
use self::job_progress::ProgressBars;
use self::jobs_client::JobsClient;
use crate::command::membership;
use crate::process::MISCONFIGURED;

/// How often the progress is asked for.
const EVERY: Duration = Duration::from_millis(500);
/// How long coordinators may be away while a job is followed.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// How long a job that is stopped is waited for.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Jobs that are listed. `coordinator.preload.jobs_max` is 1000 at most.
const JOBS_MAX: usize = 10_000;

const PATH: &str = "/v1/preload";

/// Status 0: as asked. 1: something is missing. 2: refused, or nobody answers.
pub fn run_preload(arguments: &PreloadArguments) -> ExitCode {
    exit_with(execute_action(arguments))
}

/// Runs a question to its end; says what kept it from that.
pub fn exit_with(question: impl Future<Output = anyhow::Result<bool>>) -> ExitCode {
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start a thread")
        .and_then(|runtime| runtime.block_on(question));
    match asked {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(MISCONFIGURED)
        }
    }
}

/// Whether all went well.
async fn execute_action(arguments: &PreloadArguments) -> anyhow::Result<bool> {
    let client = match arguments.endpoint.endpoint_client()? {
        Some(client) => client,
        None => JobsClient::Coordinators(preload_client(&arguments.asking)?),
    };
    let json = arguments.asking.json;
    let view = match &arguments.action {
        Some(PreloadAction::Ls) => {
            job_progress::print_jobs(&list_jobs(&client).await?, json);
            return Ok(true);
        }
        Some(PreloadAction::Show { id }) => {
            require_answer(client.get(&job_path(id)?, Duration::ZERO).await)?
        }
        Some(PreloadAction::Stop { id }) => {
            let view = stop_job(&client, id).await?;
            job_progress::print_job(&view, json);
            if !view.state.is_over() {
                eprintln!(
                    "it was told to end, and has not yet: ask again, `verbs3 preload show {id}`"
                );
            }
            return Ok(view.state.is_over());
        }
        None => {
            let mut spec = arguments.job.job_spec();
            if !is_yet_to_be_done(&client, &mut spec.id, json).await? {
                return Ok(false);
            }
            require_answer(client.post_json::<_, JobView>(PATH, &spec).await)?
        }
    };
    present_job(&client, view, arguments.follow, json).await
}

/// All jobs, a page after the other. One that comes or goes meanwhile may be there or not.
async fn list_jobs(client: &JobsClient) -> anyhow::Result<Vec<JobView>> {
    let mut jobs = Vec::new();
    let mut path = PATH.to_owned();
    loop {
        let page: JobsPage = require_answer(client.get(&path, Duration::ZERO).await)?;
        jobs.extend(page.jobs);
        match page.next {
            // Nothing of it has to be escaped.
            Some(next) if jobs.len() < JOBS_MAX => path = format!("{PATH}?after={next}"),
            Some(_) | None => return Ok(jobs),
        }
    }
}

/// Before a job is handed in. False: one of this name is over, and is shown. A job without a name
/// is given one: the client may send it twice, and it is one job nevertheless.
pub async fn is_yet_to_be_done(
    client: &JobsClient,
    id: &mut Option<String>,
    json: bool,
) -> anyhow::Result<bool> {
    let id = match id {
        Some(id) => id,
        None => {
            *id = Some(format!("{:016x}", rand::random::<u64>()));
            return Ok(true);
        }
    };
    let known = match client.get::<JobView>(&job_path(id)?, Duration::ZERO).await {
        Err(error) if error.refusal_kind() == Some(CoordinatorRefusalKind::Unknown) => {
            return Ok(true);
        }
        answer => require_answer(answer)?,
    };
    if known.state.is_over() {
        job_progress::print_job(&known, json);
        eprintln!(
            "job {id} has ended before, and nothing was done now; give this one another --id"
        );
    }
    Ok(!known.state.is_over())
}

/// Ends a job, and waits for that: what runs may have to wait for its store.
async fn stop_job(client: &JobsClient, id: &str) -> anyhow::Result<JobView> {
    let path = job_path(id)?;
    client.delete_path(&path).await?;
    let asked = Instant::now();
    let mut view: JobView = require_answer(client.get(&path, Duration::ZERO).await)?;
    while !view.state.is_over() && asked.elapsed() < STOP_WAIT {
        let news = format!("{path}?news={}&wait_ms={}", view.news, EVERY.as_millis());
        view = require_answer(client.get(&news, EVERY).await)?;
    }
    Ok(view)
}

/// Shows a job, once it is over where it is to be followed. Whether all went well.
pub async fn present_job(
    client: &JobsClient,
    view: JobView,
    to_follow: bool,
    json: bool,
) -> anyhow::Result<bool> {
    let view = match to_follow && !view.state.is_over() {
        true => follow_job(client, view, json).await?,
        false => view,
    };
    if !(json && to_follow) {
        job_progress::print_job(&view, json);
    }
    Ok(matches!(view.state, JobState::Done | JobState::Queued | JobState::Running))
}

/// Until the job is over. A coordinator that ends meanwhile is waited for, or for the one that
/// takes over.
async fn follow_job(client: &JobsClient, mut view: JobView, json: bool) -> anyhow::Result<JobView> {
    let bars = ProgressBars::new(json);
    let mut heard = Instant::now();
    while !view.state.is_over() {
        if json {
            job_progress::print_job(&view, true);
        }
        bars.show_job(&view);
        let path =
            format!("{}?news={}&wait_ms={}", job_path(&view.id)?, view.news, EVERY.as_millis());
        match client.get::<JobView>(&path, EVERY).await {
            Ok(Some(newer)) => (view, heard) = (newer, Instant::now()),
            Ok(None) => bail!("the coordinator said nothing of the job"),
            Err(AskError::Away(reason)) if heard.elapsed() < AWAY_MAX => {
                bars.print_line(&format!("waiting for a coordinator: {reason}"));
                tokio::time::sleep(EVERY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    bars.finish_job(&view);
    if json {
        job_progress::print_job(&view, true);
    }
    Ok(view)
}

/// A client of the coordinators that the arguments name. Errors when none is named.
pub fn preload_client(arguments: &AskArguments) -> anyhow::Result<Arc<CoordinatorClient>> {
    membership::client_from_layers(&arguments.config_layers(), &arguments.coordinator)
}

/// Takes the answer out. Errors when it is empty or the question failed.
pub fn require_answer<T>(answer: Result<Option<T>, AskError>) -> anyhow::Result<T> {
    answer?.context("the coordinator gave an empty answer")
}

/// Ids have nothing that a path would have to hide.
fn job_path(id: &str) -> anyhow::Result<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if id.is_empty() || id.starts_with('.') || !id.chars().all(fits) {
        bail!("{id:?} is no job's id: these are letters, digits, `.`, `_` and `-`");
    }
    Ok(format!("{PATH}/{id}"))
}

//! `verbs3 preload`: hands a job to the coordinators, and says what becomes of it.

pub mod arguments;
mod show;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use verbs3_coordinator_client::{AskError, Client};
use verbs3_preload::api::{JobState, JobView};

use self::arguments::{AskArguments, PreloadAction, PreloadArguments};
use self::show::Bars;
use crate::command::membership;
use crate::process::MISCONFIGURED;

/// How often the progress is asked for.
const EVERY: Duration = Duration::from_millis(500);
/// How long coordinators may be away while a job is followed.
const AWAY_MAX: Duration = Duration::from_secs(60);

const PATH: &str = "/v1/preload";

#[derive(Deserialize)]
struct Jobs {
    jobs: Vec<JobView>,
}

/// Status 0: as asked. 1: something is missing. 2: refused, or nobody answers.
pub fn run(arguments: &PreloadArguments) -> ExitCode {
    exit(ask(arguments))
}

/// Runs a question to its end; says what kept it from that.
pub fn exit(question: impl Future<Output = anyhow::Result<bool>>) -> ExitCode {
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
async fn ask(arguments: &PreloadArguments) -> anyhow::Result<bool> {
    let client = client(&arguments.asking)?;
    let json = arguments.asking.json;
    let view = match &arguments.action {
        Some(PreloadAction::Ls) => {
            let jobs: Jobs = answered(client.get(PATH, Duration::ZERO).await)?;
            show::list(&jobs.jobs, json);
            return Ok(true);
        }
        Some(PreloadAction::Show { id }) => answered(client.get(&path(id), Duration::ZERO).await)?,
        Some(PreloadAction::Stop { id }) => {
            answered::<()>(client.delete(&path(id)).await.map(Some))?;
            let view: JobView = answered(client.get(&path(id), Duration::ZERO).await)?;
            show::one(&view, json);
            return Ok(true);
        }
        None => answered(client.post::<_, JobView>(PATH, &arguments.job.spec(), Duration::ZERO).await)?,
    };
    shown(&client, view, arguments.follow, json).await
}

/// Shows a job, once it is over where it is to be followed. Whether all went well.
pub async fn shown(client: &Client, view: JobView, to_follow: bool, json: bool) -> anyhow::Result<bool> {
    let view = match to_follow && !view.state.is_over() {
        true => follow(client, view, json).await?,
        false => view,
    };
    if !(json && to_follow) {
        show::one(&view, json);
    }
    Ok(matches!(view.state, JobState::Done | JobState::Queued | JobState::Running))
}

/// Until the job is over. A coordinator that ends meanwhile is waited for, or for the one that takes over.
async fn follow(client: &Client, mut view: JobView, json: bool) -> anyhow::Result<JobView> {
    let bars = Bars::new(json);
    let mut heard = Instant::now();
    while !view.state.is_over() {
        if json {
            show::one(&view, true);
        }
        bars.show(&view);
        let path = format!("{}?news={}&wait_ms={}", path(&view.id), view.news, EVERY.as_millis());
        match client.get::<JobView>(&path, EVERY).await {
            Ok(Some(newer)) => (view, heard) = (newer, Instant::now()),
            Ok(None) => bail!("the coordinator said nothing of the job"),
            Err(AskError::Away(reason)) if heard.elapsed() < AWAY_MAX => {
                bars.say(&format!("waiting for a coordinator: {reason}"));
                tokio::time::sleep(EVERY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    bars.end(&view);
    if json {
        show::one(&view, true);
    }
    Ok(view)
}

pub fn client(arguments: &AskArguments) -> anyhow::Result<Arc<Client>> {
    membership::client(&arguments.layers(), &arguments.coordinator)
}

pub fn answered<T>(answer: Result<Option<T>, AskError>) -> anyhow::Result<T> {
    answer?.context("the coordinator gave an empty answer")
}

/// Ids have nothing that a path would have to hide; others are refused there.
fn path(id: &str) -> String {
    let safe: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')).collect();
    format!("{PATH}/{safe}")
}

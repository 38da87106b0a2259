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

use self::arguments::{PreloadAction, PreloadArguments};
use self::show::Bars;
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
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start a thread")
        .and_then(|runtime| runtime.block_on(ask(arguments)));
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
    let client = client(arguments)?;
    let view = match &arguments.action {
        Some(PreloadAction::Ls) => {
            let jobs: Jobs = answered(client.get(PATH, Duration::ZERO).await)?;
            show::list(&jobs.jobs, arguments.json);
            return Ok(true);
        }
        Some(PreloadAction::Show { id }) => answered(client.get(&path(id), Duration::ZERO).await)?,
        Some(PreloadAction::Stop { id }) => {
            answered::<()>(client.delete(&path(id)).await.map(Some))?;
            let view: JobView = answered(client.get(&path(id), Duration::ZERO).await)?;
            show::one(&view, arguments.json);
            return Ok(true);
        }
        None => answered(client.post::<_, JobView>(PATH, &arguments.job.spec(), Duration::ZERO).await)?,
    };
    let view = match arguments.follow && !view.state.is_over() {
        true => follow(&client, view, arguments.json).await?,
        false => view,
    };
    if !(arguments.json && arguments.follow) {
        show::one(&view, arguments.json);
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

fn client(arguments: &PreloadArguments) -> anyhow::Result<Arc<Client>> {
    let loaded = verbs3_config::load(&arguments.layers(), &[]).map_err(|problems| anyhow::anyhow!("{problems}"))?;
    let mut cluster = loaded.config.cluster;
    if !arguments.coordinator.is_empty() {
        cluster.coordinators.clone_from(&arguments.coordinator);
    }
    if cluster.resolve_secret()?.is_none() {
        bail!("the cluster's secret is missing; name --config FILE, or set VERBS3_CLUSTER__SECRET");
    }
    crate::wiring::coordinator::client(&cluster)?
        .context("no coordinator is known; name --coordinator URL, or --config FILE with cluster.coordinators")
}

fn answered<T>(answer: Result<Option<T>, AskError>) -> anyhow::Result<T> {
    answer?.context("the coordinator gave an empty answer")
}

/// Ids have nothing that a path would have to hide; others are refused there.
fn path(id: &str) -> String {
    let safe: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')).collect();
    format!("{PATH}/{safe}")
}

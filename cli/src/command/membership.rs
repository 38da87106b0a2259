//! `verbs3 worker drain|undrain|forget`: what the coordinators are to do with a worker. Also the
//! way of every command to them.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use verbs3_config::{ConfigLayers, load_config};
use verbs3_coordinator_client::api::{PREFIX, escape_path_segment};
use verbs3_coordinator_client::{AskError, CoordinatorClient};

use crate::arguments::coordinators::{
    CoordinatorsArguments, DrainArguments, WorkerAction, WorkerActionArguments,
};
use crate::command::drain;
use crate::dev;
use crate::process::MISCONFIGURED;
use crate::wiring::coordinator_client;
use crate::wiring::trusted_cluster::TrustedCluster;

/// Exit status where a coordinator refused, or what was asked for did not come about.
const REFUSED: u8 = 1;

/// Asks the coordinators for the action and prints how it ended. Status 1: refused. Status 2: the
/// arguments can't be used.
pub fn run_worker_action(action: &WorkerAction) -> ExitCode {
    let (word, WorkerActionArguments { id, coordinators }) = match action {
        WorkerAction::Drain(arguments) => ("drain", &arguments.worker),
        WorkerAction::Undrain(arguments) => ("undrain", arguments),
        WorkerAction::Forget(arguments) => ("forget", arguments),
    };
    let answer = ask_coordinators(coordinators, async |client| {
        let path = format!("{PREFIX}/workers/{}", escape_path_segment(id));
        if let WorkerAction::Forget(_) = action {
            return client.delete_path(&path).await.map(Ok);
        }
        client
            .post_json::<_, serde_json::Value>(&format!("{path}/{word}"), &(), Duration::ZERO)
            .await?;
        match action {
            WorkerAction::Drain(DrainArguments { wait: Some(within), .. }) => {
                drain::until_drained(&client, id, within.0).await
            }
            _ => Ok(Ok(())),
        }
    });
    match answer {
        Ok(Ok(Ok(()))) => {
            match action {
                WorkerAction::Drain(DrainArguments { wait: Some(_), .. }) => {
                    println!("{id} owns nothing any more and may be stopped");
                }
                WorkerAction::Drain(_) => {
                    println!(
                        "{id} drains: `verbs3 status` says when it owns nothing any more and may \
                        be stopped"
                    );
                }
                WorkerAction::Undrain(_) => println!("{id} gets its slots back"),
                WorkerAction::Forget(_) => {
                    println!(
                        "{id} is out of the map once its lease is over; one that still runs comes \
                        back: drain it instead"
                    )
                }
            }
            ExitCode::SUCCESS
        }
        Ok(Ok(Err(why))) => {
            eprintln!("{why}");
            ExitCode::from(REFUSED)
        }
        Ok(Err(error)) => {
            eprintln!("{error}");
            ExitCode::from(if error.refusal_kind().is_some() { REFUSED } else { MISCONFIGURED })
        }
        Err(exit) => exit,
    }
}

/// Runs `question` with a client of the coordinators that the arguments name; says what keeps it
/// from that.
pub fn ask_coordinators<T>(
    arguments: &CoordinatorsArguments,
    question: impl AsyncFnOnce(Arc<CoordinatorClient>) -> Result<T, AskError>,
) -> Result<Result<T, AskError>, ExitCode> {
    let misconfigured = |problem: &dyn std::fmt::Display| {
        eprintln!("{problem}");
        ExitCode::from(MISCONFIGURED)
    };
    let client = client_from_layers(&arguments.config_layers(), &arguments.coordinator);
    let client = client.map_err(|error| misconfigured(&format!("{error:#}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| misconfigured(&error))?;
    Ok(runtime.block_on(question(client)))
}

/// A client of the coordinators that are named on the command line (`urls`) or in the
/// configuration, or else of the `verbs3 dev` that was started in this folder.
pub fn client_from_layers(
    layers: &ConfigLayers,
    urls: &[String],
) -> anyhow::Result<Arc<CoordinatorClient>> {
    let read = |layers: &ConfigLayers| {
        load_config(layers, &[]).map_err(|problems| anyhow::anyhow!("{problems}"))
    };
    let mut config = read(layers)?.config;
    if !urls.is_empty() {
        config.cluster.coordinators = urls.to_vec();
    }
    let is_told_nothing = config.cluster.coordinators.is_empty() && layers.file.is_none();
    if is_told_nothing && let Some(file) = dev::coordinator::file_of(&config.dev.dir) {
        let dir = config.dev.dir.display();
        eprintln!(
            "asking the `verbs3 dev` of {dir}; name others by --config FILE or --coordinator URL"
        );
        config = read(&ConfigLayers { file: Some(file), ..layers.clone() })?.config;
    }
    if config.cluster.coordinators.is_empty() {
        bail!(
            "no coordinator is named; write --config FILE, which on hosts and in pods is \
            /etc/verbs3/verbs3.toml, or --coordinator URL"
        );
    }
    if config.cluster.resolve_secret()?.is_none() {
        bail!(
            "the cluster's secret is missing; say cluster.secret_file in the file of --config, or \
            set VERBS3_CLUSTER__SECRET_FILE=/etc/verbs3/cluster-secret"
        );
    }
    let cluster = TrustedCluster::load(config.cluster)?;
    coordinator_client::build_command_client(&cluster).context("a coordinator is named")
}

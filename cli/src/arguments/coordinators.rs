//! The command line of what coordinators are asked: about the cluster, and about one worker.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use verbs3_config::{ConfigLayers, EnvironmentLayer, TimePeriod};

use super::settings::{path_and_value, set_flags};

/// Whom to ask, and by which secret.
#[derive(Debug, Args)]
pub struct CoordinatorsArguments {
    /// Configuration file of any process of the cluster: its name, secret and coordinators
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// URL of a coordinator, in place of cluster.coordinators. Can be repeated
    #[arg(long, value_name = "URL")]
    pub coordinator: Vec<String>,
    /// As in `verbs3 gateway`
    #[arg(long, value_name = "PATH=VALUE", value_parser = path_and_value)]
    set: Vec<(String, String)>,
}

impl CoordinatorsArguments {
    pub fn config_layers(&self) -> ConfigLayers {
        let (file, flags) = (self.config.clone(), set_flags(&self.set).collect());
        ConfigLayers { file, environment: EnvironmentLayer::of_process(), flags }
    }
}

/// What the coordinators are asked to do with one worker.
#[derive(Debug, Subcommand)]
pub enum WorkerAction {
    /// Take its slots away, and have others take over what is hot; it may be stopped then
    Drain(DrainArguments),
    /// Give its slots back
    Undrain(WorkerActionArguments),
    /// Say that it is dead and will not come back, so that the map need not wait for it
    Forget(WorkerActionArguments),
}

/// The worker that an action is about, and the coordinators that carry it out.
#[derive(Debug, Args)]
pub struct WorkerActionArguments {
    /// The worker's id
    pub id: String,
    #[command(flatten)]
    pub coordinators: CoordinatorsArguments,
}

/// Arguments of `verbs3 worker drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  verbs3 worker drain gpu-07 --config worker.toml --wait      stay until it may be stopped, 10 minutes at most
  verbs3 worker drain gpu-07 --config worker.toml --wait=1m && systemctl stop verbs3@worker

The worker itself goes on until it is stopped; stopped and started again, it has its slots back.
Exit status: 0 it drains, or with --wait may be stopped; 1 refused, or not in time; 2 nobody answers.")]
pub struct DrainArguments {
    #[command(flatten)]
    pub worker: WorkerActionArguments,
    /// Stay until the worker owns nothing and what is hot has been handed over, for so long at most
    /// [default: 10m]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10m")]
    pub wait: Option<TimePeriod>,
}

/// Arguments of `verbs3 status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  verbs3 status --config gateway.toml
  VERBS3_CLUSTER__SECRET=… verbs3 status --coordinator http://coordinator-0:9500 --json

Exit status: 0 all is well, 1 something is to be done, 2 no coordinator could be asked.")]
pub struct StatusArguments {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub coordinators: CoordinatorsArguments,
}

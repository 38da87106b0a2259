//! The command line of `verbs3 plan`.

use std::path::PathBuf;

use clap::Args;

use crate::command::plan::CapacityFigures;

/// Arguments of `verbs3 plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  verbs3 plan --data 40TiB --objects 400000 --nodes 16 --memory 256GiB --drives 4 --drive 3500GiB \\
              --nics 8 --nic-gbits 400 --store-bandwidth 10GiB
  verbs3 plan --file plan.toml --nodes 24              the same figures from a file, but one
  verbs3 plan --file plan.toml --write verbs3.toml     a configuration for these nodes
  verbs3 plan --file plan.toml --json | jq .plan.nodes_needed

A file has the flags as keys: sizes = [\"1000000x110KiB\"], nodes = 16, memory = \"256GiB\", nic_gbits = 400.0
docs/capacity.md has every formula, and an example.
Exit status: 0 it fits, 1 a warning (from 60 % on) or something to do (from 80 % on), 2 it does not fit, or figures are wrong.")]
pub struct PlanArguments {
    /// Figures as TOML; flags win
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub figures: CapacityFigures,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write a configuration for these nodes to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    #[command(flatten)]
    pub places: PlannedPlaces,
}

/// What the written configuration names besides the figures.
#[derive(Debug, Clone, Args)]
pub struct PlannedPlaces {
    /// URL of the object store, for --write
    #[arg(long, value_name = "URL", default_value = "https://rgw.example:8443")]
    pub endpoint: String,
    /// URLs of the coordinators, for --write
    #[arg(
        long = "coordinator",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://coordinator-0:9500"
    )]
    pub coordinators: Vec<String>,
    /// URLs of etcd's members, for --write; none: a folder of a single coordinator
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// File of access keys, for --write
    #[arg(long, value_name = "FILE", default_value = "/etc/verbs3/identities.toml")]
    pub identities: PathBuf,
}

//! The command line of `verbs3 doctor`.

use std::path::PathBuf;

use clap::Args;
use verbs3_config::{ConfigLayers, EnvironmentLayer, ProcessRole};

use super::acceptance::AcceptanceArguments;
use super::config::RoleArgument;
use super::fleet::FleetArguments;
use super::settings::{path_and_value, set_flags};

/// Arguments of `verbs3 doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  verbs3 doctor                                     this host
  verbs3 doctor --config worker.toml --role worker  and whether it has the memory for it
  verbs3 doctor --peer gpu-08                       and the way to another one
  verbs3 doctor --acceptance gpu-08                 everything that two hosts with new NICs are asked, in one file
  verbs3 doctor --fleet hosts.txt                   many hosts over ssh: problems, and the odd one out
  verbs3 doctor --json | jq '.findings[] | select(.severity != \"ok\")'

Run it where the process runs: in its container, as its user, under its unit's limits.
Exit status: 0 all well, 1 warnings, 2 failures (or a configuration that can't be used).
No RDMA at all is not a failure: tcp is used then.
With --acceptance: 0 nothing is below what is expected, 1 something is below or failed, 2 it can't be run or written.
With --fleet: 0 all well and alike, 1 warnings or differences, 2 failures, or hosts that can't be asked.")]
pub struct DoctorArguments {
    /// Also look at the way to this host: a name, an address, or the id of a worker in
    /// `[[cluster.workers]]`. Default port: the worker's
    #[arg(long, value_name = "HOST[:PORT]")]
    pub peer: Option<String>,
    /// Print one JSON document instead of lines; its schema is in docs/networks.md
    #[arg(long)]
    pub json: bool,
    /// Configuration to hold memory against, and to take ports and devices from
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Whose memory; default: the roles that the file is complete for
    #[arg(long, value_enum, requires = "config")]
    pub role: Vec<RoleArgument>,
    /// As in `verbs3 gateway`
    #[arg(long, value_name = "PATH=VALUE", value_parser = path_and_value, requires = "config")]
    set: Vec<(String, String)>,
    #[command(flatten)]
    pub acceptance: AcceptanceArguments,
    #[command(flatten)]
    pub fleet: FleetArguments,
    /// Look at the files below another folder, for tests
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
    pub root: PathBuf,
}

impl DoctorArguments {
    /// `None` without a file: a host can be looked at before there is one.
    pub fn config_layers(&self) -> Option<ConfigLayers> {
        let file = Some(self.config.clone()?);
        Some(ConfigLayers {
            file,
            environment: EnvironmentLayer::of_process(),
            flags: set_flags(&self.set).collect(),
        })
    }

    /// The roles of `--role`, empty where the user named none.
    pub fn process_roles(&self) -> Vec<ProcessRole> {
        self.role.iter().map(|role| role.process_role()).collect()
    }
}

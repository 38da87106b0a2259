//! The command line of `verbs3 config`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use verbs3_config::{ConfigLayers, EnvironmentLayer, ProcessRole};

use super::settings::{path_and_value, set_flags};

/// The subcommands of `verbs3 config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Everything that is wrong with a file; status 2 if it can't be started
    Check(ConfigArguments),
    /// What is in effect, and where each value comes from; secrets are left out
    Show(ConfigArguments),
}

/// Arguments of `verbs3 config check` and `verbs3 config show`.
#[derive(Debug, Args)]
pub struct ConfigArguments {
    /// Configuration file (TOML)
    pub file: PathBuf,
    /// Who starts from the file, so that it must be complete for it, and have the files that it
    /// names. `check` takes the roles whose sections the file has, if none is named, and says
    /// which; `show` takes none
    #[arg(long, value_enum)]
    pub role: Vec<RoleArgument>,
    /// As in `verbs3 gateway`
    #[arg(long, value_name = "PATH=VALUE", value_parser = path_and_value)]
    pub set: Vec<(String, String)>,
}

/// A role as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleArgument {
    Gateway,
    Worker,
    Coordinator,
    Dev,
    Webhook,
    Controller,
}

impl RoleArgument {
    /// Returns the role in the configuration's terms.
    pub fn process_role(self) -> ProcessRole {
        match self {
            Self::Gateway => ProcessRole::Gateway,
            Self::Worker => ProcessRole::Worker,
            Self::Coordinator => ProcessRole::Coordinator,
            Self::Dev => ProcessRole::Dev,
            Self::Webhook => ProcessRole::Webhook,
            Self::Controller => ProcessRole::Controller,
        }
    }
}

impl ConfigArguments {
    pub fn config_layers(&self) -> ConfigLayers {
        let (file, flags) = (Some(self.file.clone()), set_flags(&self.set).collect());
        ConfigLayers { file, environment: EnvironmentLayer::of_process(), flags }
    }

    /// The roles of `--role`, empty where the user named none.
    pub fn process_roles(&self) -> Vec<ProcessRole> {
        self.role.iter().map(|role| role.process_role()).collect()
    }
}

//! The command line: what can be said, and what it means for the configuration.

pub mod acceptance;
pub mod config;
pub mod coordinators;
pub mod doctor;
pub mod fleet;
pub mod plan;
pub mod probe;
pub mod settings;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use verbs3_config::{CommandFlag, ConfigLayers, EnvironmentLayer};

use crate::command::bench::BenchCommand;
use crate::command::cache::CacheArguments;
use crate::command::preload::arguments::PreloadArguments;
use crate::process::LaunchOptions;
use config::ConfigCommand;
use coordinators::{StatusArguments, WorkerAction};
use doctor::DoctorArguments;
use plan::PlanArguments;
use probe::ProbeArguments;
use settings::{path_and_value, set_flags};

/// The whole command line of the `verbs3` binary. clap parses it.
#[derive(Debug, Parser)]
#[command(
    name = "verbs3",
    version,
    about = "An S3 endpoint on every GPU node, served from a cluster-wide cache",
    after_help = "\
Try it:
  verbs3 dev                       an S3 endpoint on 127.0.0.1:9000 over a folder, with a demonstration
  verbs3 dev --dir /data/s3        the same, keeping its data elsewhere

Run it:
  verbs3 config check gateway.toml     everything that is wrong with a file, at once
  verbs3 worker  --config worker.toml  a node's share of the cache
  verbs3 gateway --config gateway.toml the endpoint that clients connect to
  verbs3 doctor                        what this host has of RDMA, and what to do about it

Settings come from defaults, then the file, then the environment (VERBS3_GATEWAY__LISTEN=…), then flags.
config/examples/*.toml has every setting with its meaning."
)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: TopLevelCommand,
}

/// The subcommands of `verbs3`, one variant each.
#[derive(Debug, Subcommand)]
pub enum TopLevelCommand {
    /// Gateway, cache and a local store in one process, to try things out
    Dev(DevArguments),
    /// The S3 endpoint of a node
    Gateway(ServeArguments),
    /// A node's share of the cache; and what a coordinated cluster is to do with one
    Worker(WorkerArguments),
    /// Membership and the placement map of a cluster
    Coordinator(ServeArguments),
    /// In Kubernetes: gives pods the variables of their node's endpoint
    Webhook(ServeArguments),
    /// In Kubernetes: runs the preload jobs that resources ask for
    Controller(ServeArguments),
    /// Load objects into the cache before anybody reads them
    Preload(Box<PreloadArguments>),
    /// Where objects are cached, that they have changed, that they are to go or to stay
    Cache(Box<CacheArguments>),
    /// Look at configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Whether a coordinated cluster is well, and if not, what to do
    Status(StatusArguments),
    /// The health of one process, by its socket file: for probes that must reach no other
    Probe(ProbeArguments),
    /// An entry of the console's users file; the password is the first line of standard input
    ConsoleUser(ConsoleUserArguments),
    /// Whether a data set fits a cluster, what it takes, and a configuration for it
    Plan(Box<PlanArguments>),
    /// What this host has of RDMA, what is wrong with it, and the remedy
    Doctor(DoctorArguments),
    /// Figures: what the network between two hosts gives, what clients of an endpoint get
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Version of this binary and of the protocol it speaks
    Version,
}

/// Arguments of `verbs3 dev`. Each one overrides a setting of the file and the environment.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  verbs3 dev                                  demonstration, then serve until Ctrl-C
  verbs3 dev --no-demo --listen 0.0.0.0:9000  serve the network
  verbs3 dev --demo-only                      demonstration, then end
  verbs3 dev --workers 3                      three workers share the memory
  verbs3 dev --set log.level=info,verbs3::access=debug  a log line for each request
  aws --endpoint-url http://127.0.0.1:9000 s3 ls        (with the credentials that it prints)

The folder keeps objects and credentials across restarts. The cache starts empty.")]
pub struct DevArguments {
    /// Folder for objects and credentials
    #[arg(long, value_name = "FOLDER")]
    dir: Option<String>,
    /// Address of the S3 endpoint; port 0 takes a free one. Metrics are on the next port
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Cache workers in the process
    #[arg(long, value_name = "NUMBER")]
    workers: Option<String>,
    /// Serve at once, without the demonstration
    #[arg(long, conflicts_with = "demo_only")]
    no_demo: bool,
    /// End after the demonstration
    #[arg(long)]
    pub demo_only: bool,
    #[command(flatten)]
    common: CommonArguments,
}

/// Arguments of a command that serves until it is stopped. All roles share them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  verbs3 gateway --config gateway.toml
  verbs3 gateway --config gateway.toml --set gateway.listen=0.0.0.0:9000
  VERBS3_CLUSTER__SECRET=… verbs3 worker --config worker.toml --set worker.id=gpu-07

SIGTERM or Ctrl-C drains and ends with status 0; a second one ends at once.")]
pub struct ServeArguments {
    #[command(flatten)]
    common: CommonArguments,
}

/// Arguments of `verbs3 worker`. It serves unless an action is given.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct WorkerArguments {
    #[command(subcommand)]
    pub action: Option<WorkerAction>,
    #[command(flatten)]
    serve: ServeArguments,
}

/// Arguments of `verbs3 console-user`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  read -rs P && printf %s \"$P\" | verbs3 console-user alice --role operator >> console-users.toml
  verbs3 console-user bob < password.txt                      a viewer, who changes nothing")]
pub struct ConsoleUserArguments {
    /// Name of the user
    pub name: String,
    /// What the user may do: viewer or operator
    #[arg(long, default_value = "viewer", value_parser = ["viewer", "operator"])]
    pub role: String,
}

#[derive(Debug, Args)]
struct CommonArguments {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, over the file and the environment: --set log.level=debug. Can be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = path_and_value)]
    set: Vec<(String, String)>,
    /// Write the addresses in use to this file once requests are served
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

impl DevArguments {
    pub fn launch_options(&self) -> LaunchOptions {
        let mut flags = Vec::new();
        let mut flag = |name: &str, path: &str, value: &str| {
            flags.push(CommandFlag {
                name: name.to_owned(),
                path: path.to_owned(),
                value: value.to_owned(),
            });
        };
        if let Some(listen) = &self.listen {
            flag("--listen", "gateway.listen", listen);
            // Two of these processes must not meet on the default of the other address.
            if let (None, Some(admin)) = (&self.common.config, next_port_address(listen)) {
                flag("--listen", "gateway.admin_listen", &admin);
            }
        }
        for (name, path, value) in
            [("--dir", "dev.dir", &self.dir), ("--workers", "dev.workers", &self.workers)]
        {
            if let Some(value) = value {
                flag(name, path, value);
            }
        }
        if self.no_demo {
            flag("--no-demo", "dev.demo", "false");
        }
        if self.demo_only {
            flag("--demo-only", "dev.demo", "true");
        }
        self.common.launch_options(flags)
    }
}

impl WorkerArguments {
    pub fn launch_options(&self) -> LaunchOptions {
        self.serve.launch_options()
    }
}

impl ServeArguments {
    pub fn launch_options(&self) -> LaunchOptions {
        self.common.launch_options(Vec::new())
    }
}

impl CommonArguments {
    fn launch_options(&self, mut flags: Vec<CommandFlag>) -> LaunchOptions {
        flags.extend(set_flags(&self.set));
        let layers = ConfigLayers {
            file: self.config.clone(),
            environment: EnvironmentLayer::of_process(),
            flags,
        };
        LaunchOptions { layers, ready_file: self.ready_file.clone() }
    }
}

/// The address after `listen`: the next port, or a free one where a free one was asked for.
fn next_port_address(listen: &str) -> Option<String> {
    let (host, port) = listen.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    Some(format!("{host}:{}", if port == 0 { 0 } else { port.checked_add(1)? }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    /// The lines of a document's shell blocks that run this binary, as words. What a shell would
    /// put in is put in as `x`.
    fn commands(document: &str) -> Vec<Vec<String>> {
        let blocks = document.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
        let lines = blocks.flat_map(|(block, _)| block.lines()).flat_map(|line| line.split(" -- "));
        let mut commands = Vec::new();
        for line in lines.map(str::trim_start).filter(|line| line.starts_with("verbs3 ")) {
            let ends = [" #", " | ", " > ", " &", ";"].iter().filter_map(|end| line.find(end));
            let mut line = line[..ends.min().unwrap_or(line.len())].to_owned();
            while let Some((before, rest)) = line.split_once("$(") {
                let (_, after) = rest.split_once(')').unwrap();
                line = format!("{before}1{after}");
            }
            // Text in quotes is one word.
            let parts = line.split(['\'', '"']).enumerate();
            let words = parts.flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            });
            commands.push(words.collect());
        }
        commands
    }

    #[test]
    fn every_command_of_the_documents_exists_with_its_flags() {
        let documents = [
            include_str!("../../README.md"),
            include_str!("../../deploy/README.md"),
            include_str!("../../docs/getting-started.md"),
            include_str!("../../docs/cluster.md"),
            include_str!("../../docs/hardware.md"),
            include_str!("../../docs/networks.md"),
            include_str!("../../docs/warming.md"),
            include_str!("../../docs/operations.md"),
            include_str!("../../docs/performance.md"),
            include_str!("../../docs/capacity.md"),
            include_str!("../../docs/kubernetes.md"),
            include_str!("../../docs/preload-resources.md"),
            include_str!("../../docs/fabric/clouds.md"),
            include_str!("../../docs/fabric/design.md"),
            include_str!("../../docs/fabric/measuring.md"),
            include_str!("../../docs/fabric/queue-pairs.md"),
            include_str!("../../docs/fabric/traffic.md"),
        ];
        let commands: Vec<Vec<String>> = documents.into_iter().flat_map(commands).collect();
        for words in &commands {
            if let Err(error) = CommandLine::try_parse_from(words) {
                panic!("{words:?}: {error}");
            }
        }
        assert!(commands.len() > 30, "{commands:#?}");
        let is_drain = |words: &Vec<String>| words.len() > 2 && words[1..3] == ["worker", "drain"];
        assert!(commands.iter().any(is_drain), "{commands:#?}");
        assert!(CommandLine::try_parse_from(["verbs3", "worker", "drain", "--slowly"]).is_err());
    }

    #[test]
    fn a_drain_is_waited_for_as_long_as_it_is_said() {
        let wait = |words: &[&str]| {
            let words = ["verbs3", "worker", "drain", "gpu-07"].iter().chain(words);
            let TopLevelCommand::Worker(arguments) =
                CommandLine::try_parse_from(words).unwrap().command
            else {
                panic!()
            };
            let Some(WorkerAction::Drain(arguments)) = arguments.action else {
                panic!("not drain")
            };
            assert_eq!(arguments.worker.id, "gpu-07");
            arguments.wait.map(|wait| wait.0.as_secs())
        };
        assert_eq!(
            (wait(&[]), wait(&["--wait"]), wait(&["--wait=90s"])),
            (None, Some(600), Some(90))
        );
    }

    #[test]
    fn listening_elsewhere_moves_the_metrics_too() {
        let dev = |words: &[&str]| {
            let words = ["verbs3", "dev"].iter().chain(words);
            let TopLevelCommand::Dev(arguments) =
                CommandLine::try_parse_from(words).unwrap().command
            else {
                panic!("not dev")
            };
            let flags = arguments.launch_options().layers.flags;
            flags
                .into_iter()
                .map(|flag| format!("{}={}", flag.path, flag.value))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            dev(&["--listen", "[::1]:80"]),
            ["gateway.listen=[::1]:80", "gateway.admin_listen=[::1]:81"]
        );
        assert_eq!(
            dev(&["--listen", "0.0.0.0:0"]),
            ["gateway.listen=0.0.0.0:0", "gateway.admin_listen=0.0.0.0:0"]
        );
        assert_eq!(dev(&["--listen", "1.1.1.1:7", "--config", "x"]), ["gateway.listen=1.1.1.1:7"]);
        assert_eq!(
            dev(&["--no-demo", "--set", "log.level=debug,x=y"]),
            ["dev.demo=false", "log.level=debug,x=y"]
        );
    }
}

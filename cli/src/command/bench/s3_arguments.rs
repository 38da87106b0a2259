//! The command line of `verbs3 bench s3`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use verbs3_loadtest::comparison::{BenchPreparation, ScenarioOverrides};
use verbs3_loadtest::credentials::BenchCredentials;
use verbs3_loadtest::units;

const TARGET: &str = "What to measure: [LABEL=]http://HOST:PORT/BUCKET[/PREFIX]";

/// Arguments of `verbs3 bench s3`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  verbs3 bench s3 --list                                                     the scenarios that come with it
  verbs3 bench s3 hot-1m --show > mine.toml                                  one of them, to change
  verbs3 bench s3 hot-1m --target http://127.0.0.1:9000/demo --against nginx --pid $(pidof verbs3)
  verbs3 bench s3 mine.toml --target http://127.0.0.1:9000/demo --against direct=http://store:7480/demo --html report.html
  verbs3 bench s3 cold --target http://127.0.0.1:9000/demo --against http://store:7480/demo --prepare against
  verbs3 bench s3 zipf --target http://127.0.0.1:9000/demo --rate 2000 --json > zipf.json
  verbs3 bench s3 epoch --target http://127.0.0.1:9000/demo --agents hosts.txt    from many hosts, each through its own gateway

Objects are put in first, unless they are there (--prepare). Their bytes follow from key and seed, so that every answer can
be checked. Sides take turns, round by round; ratios are of paired rounds, with 95 % intervals. Latency of an open loop
counts from when a request was due. What was a limit besides the server is said.
Status: 0 measured, 1 there were errors or wrong bytes, or it could not be measured, 2 command line or scenario is wrong.")]
pub struct S3Arguments {
    /// A scenario's file, or the name of one that comes with this binary
    #[arg(required_unless_present_any = ["list", "agent"])]
    pub scenario: Option<String>,
    #[arg(long, value_name = "URL", required_unless_present_any = ["list", "show", "agent"], help = TARGET)]
    pub target: Option<String>,
    /// What to hold it against: the same kind of URL, or `nginx`, started here, sending the same
    /// objects from memory
    #[arg(long, value_name = "URL")]
    pub against: Option<String>,
    /// The scenarios that come with this binary
    #[arg(long)]
    pub list: bool,
    /// Print the scenario's file, and measure nothing
    #[arg(long)]
    pub show: bool,
    /// A process of the target, whose CPU time is counted. Can be repeated
    #[arg(long = "pid", value_name = "PID", value_delimiter = ',')]
    pub pids: Vec<u32>,
    /// The same of what it is held against
    #[arg(long = "against-pid", value_name = "PID", value_delimiter = ',')]
    pub against_pids: Vec<u32>,
    /// Without it, requests are not signed
    #[arg(long, env = "AWS_ACCESS_KEY_ID", requires = "secret_key")]
    pub access_key: Option<String>,
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    pub secret_key: Option<String>,
    /// For --against; default: the same as the target's
    #[arg(long, requires = "against_secret_key")]
    pub against_access_key: Option<String>,
    #[arg(long, env = "AGAINST_SECRET_ACCESS_KEY", hide_env_values = true)]
    pub against_secret_key: Option<String>,
    /// Requests to --against are not signed
    #[arg(long, conflicts_with = "against_access_key")]
    pub against_unsigned: bool,
    /// Region of the signatures
    #[arg(long, default_value = "us-east-1")]
    pub region: String,
    /// Through which side objects are put in that are not there
    #[arg(long, value_enum, default_value = "both")]
    pub prepare: PrepareArgument,
    /// Put the objects in, and measure nothing
    #[arg(long)]
    pub prepare_only: bool,
    /// Instead of the scenario's rounds.count
    #[arg(long)]
    pub rounds: Option<u32>,
    /// Instead of the scenario's rounds.time: 5s
    #[arg(long, value_parser = units::parse_time)]
    pub time: Option<Duration>,
    /// Instead of the scenario's rounds.warm_up: 2s
    #[arg(long, value_parser = units::parse_time)]
    pub warm_up: Option<Duration>,
    /// Instead of the scenario's load.connections
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub connections: Option<u16>,
    /// Open loop: so many requests are due each second, whatever the answers
    #[arg(long, value_name = "PER SECOND", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Part of the bodies that are checked, 0 to 1
    #[arg(long, value_name = "PART", value_parser = parse_ratio)]
    pub verify: Option<f64>,
    /// Another seed is another set of objects
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run it from these hosts at once, over ssh: gpu-01,gpu-02, or a file with a name on each line.
    /// Each has the scenario's connections and rate; rates are summed, latencies merged
    #[arg(long, value_name = "HOSTS", conflicts_with_all = ["against", "pids", "against_pids"])]
    pub agents: Option<String>,
    /// All agents read the same objects in the same order, instead of a share of them each
    #[arg(long, requires = "agents")]
    pub same_objects: bool,
    /// An agent that says nothing for so long is lost, and the run fails
    #[arg(long, value_name = "TIME", value_parser = units::parse_time, default_value = "30s", requires = "agents")]
    pub agent_silence: Duration,
    /// verbs3 on the agents' hosts, where ssh does not find it by its name
    #[arg(long, value_name = "PROGRAM", default_value = "verbs3", requires = "agents")]
    pub remote_program: String,
    /// Be an agent: the plan comes by standard input
    #[arg(long, hide = true, conflicts_with_all = ["agents", "scenario", "target"])]
    pub agent: bool,
    /// Figures as JSON on standard output, instead of the table
    #[arg(long)]
    pub json: bool,
    /// Also write a page with the figures and their plots; it needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Whose objects are written before the measurement, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrepareArgument {
    Both,
    Target,
    Against,
    None,
}

impl From<PrepareArgument> for BenchPreparation {
    fn from(argument: PrepareArgument) -> Self {
        match argument {
            PrepareArgument::Both => Self::Both,
            PrepareArgument::Target => Self::Target,
            PrepareArgument::Against => Self::Against,
            PrepareArgument::None => Self::Neither,
        }
    }
}

impl S3Arguments {
    /// The keys that requests to the target are signed with; `None`: they are not.
    pub fn own_credentials(&self) -> Option<BenchCredentials> {
        let (access_key, secret_key) = (self.access_key.clone()?, self.secret_key.clone()?);
        Some(BenchCredentials { access_key, secret_key, region: self.region.clone() })
    }

    /// What the flags change in the scenario. `None` leaves the scenario's own value.
    pub fn scenario_changes(&self) -> ScenarioOverrides {
        ScenarioOverrides {
            rounds: self.rounds,
            time: self.time,
            warm_up: self.warm_up,
            connections: self.connections.map(usize::from),
            requests_per_second: self.rate,
            verify: self.verify,
            seed: self.seed,
        }
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate| (0.01..=1e7).contains(rate))
        .ok_or_else(|| "0.01 to 10000000".to_owned())
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|part| (0.0..=1.0).contains(part)).ok_or_else(|| "0 to 1".to_owned())
}

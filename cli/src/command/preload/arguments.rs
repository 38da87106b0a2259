//! The command line of `verbs3 preload`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use verbs3_config::{ByteSize, ConfigLayers, EnvironmentLayer};
use verbs3_preload::api::{
    PreloadByteRange, PreloadJobAction, PreloadJobSpec, PreloadPriority, PreloadTier,
};

use super::jobs_client::EndpointArguments;
use crate::arguments::settings::{path_and_value, set_flags};

/// Arguments of `verbs3 preload`. It starts a job unless an action is given.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  verbs3 preload s3://train/2026/ --follow                       everything that begins so, with progress
  verbs3 preload s3://train/ --id night-22 --deadline 2026-11-22T08:00:00Z --bandwidth 500MiB
  verbs3 preload --manifest s3://train/files.txt --verify        one s3://… a line; read back in the end
  verbs3 preload s3://models/llm/ --tier disk --pin-ttl 86400    onto the workers' disks, for a day at least
  verbs3 preload s3://train/ --dry-run --follow                  how much that would be
  verbs3 preload ls · verbs3 preload show ID --follow · verbs3 preload stop ID

With an access key alone, which needs the right \"warm\": AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and
  verbs3 preload --endpoint http://127.0.0.1:9000 s3://train/2026/ --follow
Else the coordinators come from --coordinator, or from cluster.coordinators of --config; the cluster's name and secret from
--config, --set or the environment (VERBS3_CLUSTER__SECRET).
Status: 0 taken in, or with --follow all is there; 1 something is missing, said why; 2 refused, or nobody answers."
)]
pub struct PreloadArguments {
    #[command(subcommand)]
    pub action: Option<PreloadAction>,
    #[command(flatten)]
    pub job: JobArguments,
    #[command(flatten)]
    pub asking: AskArguments,
    #[command(flatten)]
    pub endpoint: EndpointArguments,
    /// Stay until the job is over, and show how far it is
    #[arg(long, global = true)]
    pub follow: bool,
}

/// Whom to ask, and how to say what they answer.
#[derive(Debug, Args)]
pub struct AskArguments {
    /// A coordinator's URL. Can be repeated
    #[arg(long, global = true, value_name = "URL")]
    pub coordinator: Vec<String>,
    /// Configuration to take coordinators, name and secret of the cluster from
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, over the file and the environment: --set cluster.name=train. Can be repeated
    #[arg(long, global = true, value_name = "PATH=VALUE", value_parser = path_and_value)]
    set: Vec<(String, String)>,
    /// Print JSON: what was answered, or with --follow a line for each change of a job
    #[arg(long, global = true)]
    pub json: bool,
}

/// What is asked about jobs that exist.
#[derive(Debug, Subcommand)]
pub enum PreloadAction {
    /// All jobs, newest first
    Ls,
    /// One job
    Show { id: String },
    /// End a job
    Stop { id: String },
}

/// The objects of a job, and its name.
#[derive(Debug, Clone, Args)]
pub struct JobNames {
    /// What names of objects begin with: s3://BUCKET/PREFIX
    #[arg(value_name = "PREFIX", required_unless_present_any = ["path", "manifest"])]
    pub prefixes: Vec<String>,
    /// One object: s3://BUCKET/KEY. Can be repeated
    #[arg(long, value_name = "OBJECT")]
    pub path: Vec<String>,
    /// An object that lists objects, one s3://BUCKET/KEY a line
    #[arg(long, value_name = "OBJECT")]
    pub manifest: Option<String>,
    /// Name of the job: sent again under it, the same job is not begun twice
    #[arg(long)]
    pub id: Option<String>,
}

/// Arguments that describe a new preload job.
#[derive(Debug, Args)]
pub struct JobArguments {
    #[command(flatten)]
    names: JobNames,
    /// Only these bytes of each object: FIRST-LAST, or FIRST-. Can be repeated
    #[arg(long, value_name = "BYTES", value_parser = parse_range)]
    range: Vec<PreloadByteRange>,
    /// Owners of each block that load it
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    replicas: u16,
    #[arg(long, value_enum, default_value_t = TierArgument::Memory)]
    tier: TierArgument,
    /// Seconds for which pages stay on disk, whatever else comes; with --tier disk
    #[arg(long, value_name = "SECONDS")]
    pin_ttl: Option<u64>,
    #[arg(long, value_enum, default_value_t = PriorityArgument::Normal)]
    priority: PriorityArgument,
    /// When the job ends, finished or not: 2026-11-22T08:00:00Z
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,
    /// Bytes a second to take from the store: 500MiB
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<ByteSize>,
    /// Read everything back in the end, and compare
    #[arg(long)]
    verify: bool,
    /// Load attributes alone
    #[arg(long)]
    metadata_only: bool,
    /// List and count, and load nothing
    #[arg(long)]
    dry_run: bool,
}

/// The tier that a job loads into, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TierArgument {
    Memory,
    Disk,
}

/// The priority of a job, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PriorityArgument {
    Low,
    Normal,
    High,
}

impl AskArguments {
    /// The file, the environment and `--set`, in this order of precedence.
    pub fn config_layers(&self) -> ConfigLayers {
        let flags = set_flags(&self.set).collect();
        ConfigLayers {
            file: self.config.clone(),
            environment: EnvironmentLayer::of_process(),
            flags,
        }
    }
}

impl JobArguments {
    /// The job as the coordinators take it. `verbs3 preload` always loads and skips what is cached.
    pub fn job_spec(&self) -> PreloadJobSpec {
        let JobNames { prefixes, path: paths, manifest, id } = self.names.clone();
        PreloadJobSpec {
            id,
            action: PreloadJobAction::Load,
            paths,
            prefixes,
            manifest,
            ranges: self.range.clone(),
            replicas: self.replicas,
            tier: match self.tier {
                TierArgument::Memory => PreloadTier::Memory,
                TierArgument::Disk => PreloadTier::Disk,
            },
            pin_ttl: self.pin_ttl,
            priority: match self.priority {
                PriorityArgument::Low => PreloadPriority::Low,
                PriorityArgument::Normal => PreloadPriority::Normal,
                PriorityArgument::High => PreloadPriority::High,
            },
            deadline: self.deadline.clone(),
            bandwidth_bytes_per_second: self.bandwidth.map(|bandwidth| bandwidth.0),
            skip_if_cached: true,
            verify: self.verify,
            metadata_only: self.metadata_only,
            dry_run: self.dry_run,
        }
    }
}

fn parse_range(text: &str) -> Result<PreloadByteRange, String> {
    let wrong = || "write it as FIRST-LAST, or FIRST-".to_owned();
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    Ok(PreloadByteRange {
        first: number(first)?,
        last: if last.is_empty() { None } else { Some(number(last)?) },
    })
}

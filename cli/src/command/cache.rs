//! `verbs3 cache`: what people do with single objects, or with prefixes, of what is cached.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use indicatif::BinaryBytes;
use serde_json::Value;
use verbs3_coordinator_client::CoordinatorClient;
use verbs3_coordinator_client::api::escape_path_segment;
use verbs3_preload::api::{
    InvalidationRequest, JobView, NotificationSummary, ObjectView, PreloadSelection,
};

use crate::command::preload::arguments::{AskArguments, JobNames};
use crate::command::preload::jobs_client::JobsClient;
use crate::command::preload::{
    exit_with, is_yet_to_be_done, preload_client, present_job, require_answer,
};

/// How long a coordinator may try: longer than homes are waited for.
const WAIT: Duration = Duration::from_secs(30);

/// Arguments of `verbs3 cache`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  verbs3 cache where s3://train/2026/shard-0001.tar            which worker has which block, in which tier, how hot
  verbs3 cache invalidate s3://train/2026/                     it was changed past the gateways: have it asked anew, now
  verbs3 cache evict s3://train/2025/ --follow                 give up what is there
  verbs3 cache pin s3://models/llm/ --ttl 86400 --follow       onto the workers' disks, and to be kept there for a day
  verbs3 cache unpin s3://models/llm/
  verbs3 cache notify event.json --warm                        what a bucket notification says; - reads standard input

Blocks are looked for, and given up, at the workers that the map gives them. Copies that others made of a block while it was hot are
neither shown nor given up: they go when their room is needed, and are never served of another version.

Coordinators, name and secret as for `verbs3 preload`.
Status: 0 done, or taken in; 1 a followed job did not do all of it; 2 refused, or nobody answers.")]
pub struct CacheArguments {
    #[command(subcommand)]
    action: CacheAction,
    #[command(flatten)]
    asking: AskArguments,
}

#[derive(Debug, Subcommand)]
enum CacheAction {
    /// Where an object is: its blocks, who owns them, which of these have them
    Where {
        /// s3://BUCKET/KEY
        object: String,
        /// The first block to be shown; 1024 are, at most
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        first_block: u32,
    },
    /// Ask the store again before anything is answered of these objects. Bytes of versions that are
    /// still right stay
    Invalidate {
        #[command(flatten)]
        names: InvalidationNames,
    },
    /// Give up pages at the workers that own their blocks, pinned or not
    Evict {
        #[command(flatten)]
        job: CacheJobArguments,
    },
    /// Load onto disk, and keep there
    Pin {
        #[command(flatten)]
        job: CacheJobArguments,
        /// Seconds for which pages are kept
        #[arg(long, value_name = "SECONDS")]
        ttl: u64,
    },
    /// Pinned pages may be given up again
    Unpin {
        #[command(flatten)]
        job: CacheJobArguments,
    },
    /// Hand in a bucket notification (S3 event JSON)
    Notify {
        /// File with the JSON; - is standard input
        file: String,
        /// Name of the UFS that it is from; default: any that has the bucket
        #[arg(long)]
        ufs: Option<String>,
        /// Load what was created
        #[arg(long)]
        warm: bool,
    },
}

#[derive(Debug, Args)]
struct InvalidationNames {
    /// What names of objects begin with: s3://BUCKET/PREFIX
    #[arg(value_name = "PREFIX", required_unless_present = "path")]
    prefixes: Vec<String>,
    /// One object: s3://BUCKET/KEY. Can be repeated
    #[arg(long, value_name = "OBJECT")]
    path: Vec<String>,
}

#[derive(Debug, Args)]
struct CacheJobArguments {
    #[command(flatten)]
    names: JobNames,
    /// Stay until the job is over, and show how far it is
    #[arg(long)]
    follow: bool,
}

impl CacheJobArguments {
    fn to_selection(&self, ttl: Option<u64>) -> PreloadSelection {
        let JobNames { prefixes, path: paths, manifest, id } = self.names.clone();
        PreloadSelection { id, paths, prefixes, manifest, ttl }
    }
}

/// Runs the action. Status 0: all went well. 1: something is missing. 2: refused, or nobody
/// answers.
pub fn run_cache_command(arguments: &CacheArguments) -> ExitCode {
    exit_with(execute_action(arguments))
}

/// Whether all went well.
async fn execute_action(arguments: &CacheArguments) -> anyhow::Result<bool> {
    let client = preload_client(&arguments.asking)?;
    let jobs = JobsClient::Coordinators(client.clone());
    let json = arguments.asking.json;
    let begun = async |verb: &str, job: &CacheJobArguments, ttl: Option<u64>| {
        let path = format!("/v1/{verb}");
        let mut selection = job.to_selection(ttl);
        if !is_yet_to_be_done(&jobs, &mut selection.id, json).await? {
            return Ok(false);
        }
        let view: JobView = require_answer(jobs.post_json(&path, &selection).await)?;
        present_job(&jobs, view, job.follow, json).await
    };
    match &arguments.action {
        CacheAction::Evict { job } => begun("evict", job, None).await,
        CacheAction::Pin { job, ttl } => begun("pin", job, Some(*ttl)).await,
        CacheAction::Unpin { job } => begun("unpin", job, None).await,
        CacheAction::Where { object, first_block } => {
            where_is(&client, object, *first_block, json).await
        }
        CacheAction::Invalidate { names: InvalidationNames { prefixes, path } } => {
            let asked = InvalidationRequest { paths: path.clone(), prefixes: prefixes.clone() };
            let said: Value =
                require_answer(client.post_json("/v1/invalidate", &asked, WAIT).await)?;
            match json {
                true => println!("{said}"),
                false => println!("whatever begins to be read from now on is as the store has it"),
            }
            Ok(true)
        }
        CacheAction::Notify { file, ufs, warm } => {
            send_notification(&client, file, ufs.as_deref(), *warm, json).await
        }
    }
}

async fn send_notification(
    client: &CoordinatorClient,
    file: &str,
    ufs: Option<&str>,
    warm: bool,
    json: bool,
) -> anyhow::Result<bool> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()).context("can't read standard input")?,
        file => std::fs::read_to_string(file).with_context(|| format!("can't read {file}"))?,
    };
    let event: Value = serde_json::from_str(&text).with_context(|| format!("{file} is no JSON"))?;
    let ufs = ufs.map(|ufs| format!("&ufs={}", escape_path_segment(ufs))).unwrap_or_default();
    let said: NotificationSummary = require_answer(
        client.post_json(&format!("/v1/notifications?warm={warm}{ufs}"), &event, WAIT).await,
    )?;
    if json {
        println!("{}", serde_json::to_string(&said).unwrap_or_default());
        return Ok(true);
    }
    let NotificationSummary { invalidated, ignored, unknown, job } = said;
    println!(
        "{invalidated} objects are asked anew; {ignored} events change nothing, {unknown} are of \
        no mounted bucket"
    );
    if let Some(job) = job {
        println!("job {job} loads what was created");
    }
    Ok(true)
}

async fn where_is(
    client: &CoordinatorClient,
    object: &str,
    first_block: u32,
    json: bool,
) -> anyhow::Result<bool> {
    let Some((bucket, key)) = object.strip_prefix("s3://").and_then(|rest| rest.split_once('/'))
    else {
        bail!("{object:?} is not s3://BUCKET/KEY");
    };
    let path = format!(
        "/v1/objects/{}/{}?first_block={first_block}",
        escape_path_segment(bucket),
        escape_path_segment(key)
    );
    let view: ObjectView = require_answer(client.get(&path, WAIT).await)?;
    match json {
        true => println!("{}", serde_json::to_string(&view).unwrap_or_default()),
        false => print!("{}", render_object_view(&view)),
    }
    Ok(view.silent.is_empty())
}

fn render_object_view(view: &ObjectView) -> String {
    let size = |bytes: u64| BinaryBytes(bytes).to_string();
    let home = view.home.as_deref().unwrap_or("nobody");
    let mut text =
        format!("{}: {}, ETag {}, home {home}\n", view.path, size(view.bytes), view.etag);
    text.push_str(&format!(
        "{:>8}  {:>11}  {:>11}  {:>11}  {:>4}  {:>8}  worker\n",
        "block", "memory", "disk", "pinned", "uses", "idle"
    ));
    for block in &view.blocks {
        for place in &block.places {
            let owner = match block.owners.iter().position(|owner| *owner == place.worker) {
                Some(0) => "",
                Some(_) => " (replica)",
                None => " (former owner)",
            };
            text.push_str(&format!(
                "{:>8}  {:>11}  {:>11}  {:>11}  {:>4}  {:>7}s  {}{owner}\n",
                block.block,
                size(place.memory_bytes.into()),
                size(place.disk_bytes.into()),
                size(place.pinned_bytes.into()),
                place.uses,
                place.idle_seconds,
                place.worker
            ));
        }
    }
    let absent = view.blocks.iter().filter(|block| block.places.is_empty()).count();
    if absent > 0 {
        text.push_str(&format!(
            "nothing is cached of {absent} of these {} blocks\n",
            view.blocks.len()
        ));
    }
    let shown = view.blocks.last().map_or(0, |last| u64::from(last.block) + 1);
    if shown < view.blocks_total {
        text.push_str(&format!(
            "{} blocks in all; --first-block {shown} shows on\n",
            view.blocks_total
        ));
    }
    for silent in &view.silent {
        text.push_str(&format!("{silent}\n"));
    }
    text
}

//! `verbs3 status`: one screen that says whether a coordinated cluster is well, and if not, what to
//! do.

use std::process::ExitCode;
use std::time::Duration;

use futures::future::join_all;
use verbs3_coordinator_client::api::{
    ClusterView, MapAnswer, PREFIX, PreloadView, UnfinishedJob, WorkerState, WorkerView,
};
use verbs3_coordinator_client::hot_blocks::{HotBlockView, HotView};
use verbs3_coordinator_client::{AskError, CoordinatorClient};
use verbs3_protocol::{Epoch, MemberRoster};

use crate::arguments::coordinators::StatusArguments;
use crate::command::membership::ask_coordinators;
use crate::process::MISCONFIGURED;

/// Exit status where something is to be done.
const TO_BE_DONE: u8 = 1;

/// How long a coordinator has to hear of a map that the leader has in force.
const NEWS_WAIT: Duration = Duration::from_secs(1);

/// What one coordinator says of the map; `None`: it knows none yet.
type CoordinatorReply = (String, Result<Option<MemberRoster>, AskError>);

/// Prints the state of the cluster. Status 1: it is not well. Status 2: nobody can be asked.
pub fn run_status(arguments: &StatusArguments) -> ExitCode {
    let path = format!("{PREFIX}/cluster");
    let asked = ask_coordinators(&arguments.coordinators, async |client| {
        let view = async {
            let view = client.get::<ClusterView>(&path, Duration::ZERO).await?;
            view.ok_or_else(|| AskError::Away("an empty answer".to_owned()))
        };
        let (view, said) = tokio::join!(view, ask_each_coordinator(&client));
        let said = match &view {
            Ok(view) => given_time(&client, view.epoch, said).await,
            Err(_) => said,
        };
        Ok((view, said))
    });
    let (view, said) = match asked {
        Ok(Ok(asked)) => asked,
        Ok(Err(error)) => {
            eprintln!("{error}");
            return ExitCode::from(MISCONFIGURED);
        }
        Err(exit) => return exit,
    };
    let view = match view {
        Ok(view) => with_coordinators(view, &said),
        Err(error) if said.iter().any(|(_, said)| said.is_ok()) => without_leader(&error, &said),
        Err(error) => {
            eprintln!("{error}");
            eprintln!("{GOES_ON}; start the coordinators again.");
            return ExitCode::from(MISCONFIGURED);
        }
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&view).unwrap_or_default());
    } else {
        print!("{}", render_screen(&view));
    }
    if view.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(TO_BE_DONE) }
}

/// What a cluster does without a leader.
const GOES_ON: &str = "Reads go on with the last map and ask the store about attributes; writes go \
    on while all its workers answer";

/// Asks every coordinator, at once.
async fn ask_each_coordinator(client: &CoordinatorClient) -> Vec<CoordinatorReply> {
    let path = format!("{PREFIX}/map?epoch=0&wait_ms=0");
    let ask = async |(url, client): (String, CoordinatorClient)| {
        let answer = client.get::<MapAnswer>(&path, Duration::ZERO).await;
        (url, answer.map(|answer| answer.and_then(|answer| answer.resolve_membership(None))))
    };
    join_all(client.each_alone().into_iter().map(ask)).await
}

/// Asks those again whose map is older than the leader's: a map that has just come into force may
/// be on its way to them.
async fn given_time(
    client: &CoordinatorClient,
    leaders: Epoch,
    said: Vec<CoordinatorReply>,
) -> Vec<CoordinatorReply> {
    let alone = client.each_alone();
    let again = async |(url, said): CoordinatorReply| {
        let known = match &said {
            Ok(known) if epoch_of(known) < leaders => known,
            _ => return (url, said),
        };
        let Some((_, client)) = alone.iter().find(|(other, _)| *other == url) else {
            return (url, said);
        };
        let path =
            format!("{PREFIX}/map?epoch={}&wait_ms={}", epoch_of(known).0, NEWS_WAIT.as_millis());
        match client.get::<MapAnswer>(&path, NEWS_WAIT).await {
            Ok(Some(answer)) => (url, Ok(answer.resolve_membership(known.as_ref()))),
            Ok(None) => (url, said),
            Err(error) => (url, Err(error)),
        }
    };
    join_all(said.into_iter().map(again)).await
}

fn epoch_of(known: &Option<MemberRoster>) -> Epoch {
    known.as_ref().map_or(Epoch(0), |known| known.epoch)
}

/// The leader's view, and which of the coordinators don't answer or don't follow it.
fn with_coordinators(mut view: ClusterView, said: &[CoordinatorReply]) -> ClusterView {
    view.findings.extend(silent_findings(said));
    view.findings.extend(lagging_findings(view.epoch, said));
    view
}

fn lagging_findings(leaders: Epoch, said: &[CoordinatorReply]) -> impl Iterator<Item = String> {
    let epochs = said.iter().filter_map(|(url, said)| Some((url, epoch_of(said.as_ref().ok()?))));
    epochs.filter(move |(_, epoch)| *epoch < leaders).map(move |(url, epoch)| {
        format!(
            "coordinator {url} is at map {}, the leader at {}: it does not hear from etcd; see to \
            its way there",
            epoch.0, leaders.0
        )
    })
}

fn silent_findings(said: &[CoordinatorReply]) -> impl Iterator<Item = String> {
    let silent = said.iter().filter_map(|(url, said)| Some((url, said.as_ref().err()?)));
    // The error says who, where nobody answers.
    silent.map(|(url, error)| match error {
        AskError::Away(reason) => {
            format!("coordinator {url} does not answer; start it again ({reason})")
        }
        AskError::Refused { .. } | AskError::TooLong { .. } | AskError::Senseless { .. } => {
            format!("coordinator {url} can't be used: {error}")
        }
    })
}

/// What is known where coordinators answer, and none of them leads.
fn without_leader(error: &AskError, said: &[CoordinatorReply]) -> ClusterView {
    let maps = said.iter().filter_map(|(_, said)| said.as_ref().ok()?.as_ref());
    let map = maps.max_by_key(|map| map.epoch).cloned().unwrap_or_default();
    let view = |member: verbs3_protocol::ClusterMember| WorkerView {
        id: member.id,
        address: member.address,
        weight: member.weight,
        zone: member.zone,
        state: WorkerState::Unknown,
        lease_ms: 0,
        tiers: Vec::new(),
        rails: Vec::new(),
        active: map.epoch,
        slots: 0,
        share_percent: 0,
        handing_over: None,
        drained: false,
    };
    let mut findings =
        vec![format!("{error}. {GOES_ON}; if this lasts, see to etcd and to the coordinators")];
    findings.extend(silent_findings(said));
    ClusterView {
        name: String::new(),
        leader: None,
        epoch: map.epoch,
        preparing: None,
        replicas: map.replicas,
        workers: map.members.into_iter().map(view).collect(),
        hot: HotView::default(),
        preload: PreloadView::default(),
        findings,
    }
}

fn render_screen(view: &ClusterView) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let ClusterView { name, leader, epoch, replicas, workers, .. } = view;
    let serving = workers.iter().filter(|worker| worker.state == WorkerState::Serving).count();
    let verdict = if view.findings.is_empty() { "well" } else { "NOT WELL" };
    // Writing to a string can't fail.
    let _ = match name.is_empty() {
        true => writeln!(text, "cluster: {verdict}"),
        false => writeln!(text, "cluster {name}: {verdict}"),
    };
    let _ = match leader {
        Some(leader) => writeln!(
            text,
            "{serving} of {} workers serve, {replicas} replicas, map {}, led by {leader}\n",
            workers.len(),
            epoch.0
        ),
        None => writeln!(text, "{} workers in map {}, led by nobody\n", workers.len(), epoch.0),
    };
    let width = workers.iter().map(|worker| worker.id.0.len()).max().unwrap_or(0).max(6);
    // Only where there is something to show in them.
    let has_disk = workers.iter().any(|worker| tier_bytes(worker, "disk") > 0);
    let has_rails = workers.iter().any(|worker| !worker.rails.is_empty());
    let column = |has: bool, shown: String| if has { format!("  {shown}") } else { String::new() };
    let disk = column(has_disk, format!("{:>10}", "disk"));
    let rails = column(has_rails, format!("{:>5}", "rails"));
    let _ = writeln!(
        text,
        "{:width$}  {:9}  {:>6}  {:>10}{disk}{rails}  address",
        "worker", "state", "slots", "memory"
    );
    for worker in workers {
        let state = match worker.state {
            WorkerState::Joining => "joining",
            WorkerState::Serving => "serving",
            WorkerState::Draining => "draining",
            WorkerState::Lost => "LOST",
            WorkerState::Missing => "MISSING",
            WorkerState::Unknown => "unknown",
        };
        let disk = column(has_disk, format!("{:>10}", format_size(tier_bytes(worker, "disk"))));
        let rails = column(has_rails, format!("{:>5}", rails_up(worker)));
        let zone =
            if worker.zone.is_empty() { String::new() } else { format!("  zone {}", worker.zone) };
        let share = match worker.share_percent {
            0 | 100 => String::new(),
            part => format!("  {part} % of its share"),
        };
        let _ = writeln!(
            text,
            "{:width$}  {state:9}  {:>6}  {:>10}{disk}{rails}  {}{zone}{share}",
            worker.id.0,
            worker.slots,
            format_size(tier_bytes(worker, "memory")),
            worker.address
        );
    }
    if view.hot.blocks > 0 {
        let _ = writeln!(
            text,
            "\n{} hot blocks are served by several workers, above all:",
            view.hot.blocks
        );
    }
    for HotBlockView { volume, key, block, workers, bytes_per_second } in &view.hot.hottest {
        let rate = *bytes_per_second as f64 / f64::from(1 << 20);
        // Keys may have anything in them.
        let name = format!("{volume}/{key}").escape_debug().to_string();
        let _ = writeln!(text, "- {name}, block {block}: {workers} workers, {rate:.1} MiB/s");
    }
    text.push_str(&render_jobs(&view.preload));
    if !view.findings.is_empty() {
        let _ = writeln!(text, "\nTo be done:");
        for finding in &view.findings {
            let _ = writeln!(text, "- {finding}");
        }
    }
    text
}

fn tier_bytes(worker: &WorkerView, kind: &str) -> u64 {
    worker.tiers.iter().filter(|tier| tier.kind == kind).map(|tier| tier.bytes).sum()
}

fn format_size(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        _ if bytes >= 1 << 40 => format!("{:.1} TiB", bytes as f64 / (1u64 << 40) as f64),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Of how many rails, where not all of them are up.
fn rails_up(worker: &WorkerView) -> String {
    let up = worker.rails.iter().filter(|rail| !rail.is_empty()).count();
    match worker.rails.len() {
        0 => "-".to_owned(),
        all if up == all => all.to_string(),
        all => format!("{up}/{all}"),
    }
}

/// Preload jobs, if there is something to say of them. None of it makes a cluster unwell.
fn render_jobs(PreloadView { running, waiting, unfinished }: &PreloadView) -> String {
    let mut text = String::new();
    if running + waiting > 0 {
        text.push_str(&format!("\npreload: {running} jobs run, {waiting} wait\n"));
    }
    if !unfinished.is_empty() {
        text.push_str(
            "\nPreload jobs that ended in the last day with something missing (`verbs3 preload \
            show ID` says what):\n",
        );
    }
    for UnfinishedJob { id, state, reason, ended_ms: _ } in unfinished {
        // Reasons have names of objects in them, and these may have anything.
        text.push_str(&format!("- {id}: {state}: {}\n", reason.escape_debug()));
    }
    text
}

#[cfg(test)]
mod tests;

//! `verbs3 status`: one screen that says whether a coordinated cluster is well, and if not, what to do.

use std::process::ExitCode;
use std::time::Duration;

use verbs3_coordinator_client::AskError;
use verbs3_coordinator_client::api::{ClusterView, PREFIX, WorkerState};

use crate::arguments::StatusArguments;
use crate::command::membership::ask;
use crate::process::MISCONFIGURED;

/// Exit status where something is to be done.
const TO_BE_DONE: u8 = 1;

pub fn run(arguments: &StatusArguments) -> ExitCode {
    let path = format!("{PREFIX}/cluster");
    let answer = ask(&arguments.coordinators, async |client| {
        let view = client.get::<ClusterView>(&path, Duration::ZERO).await?;
        view.ok_or_else(|| AskError::Away("an empty answer".to_owned()))
    });
    let view = match answer {
        Ok(Ok(view)) => view,
        Ok(Err(error)) => {
            eprintln!("{error}");
            eprintln!("Reads and writes go on with the last map; start the coordinators, or their etcd, again.");
            return ExitCode::from(MISCONFIGURED);
        }
        Err(exit) => return exit,
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&view).unwrap_or_default());
    } else {
        print!("{}", screen(&view));
    }
    if view.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(TO_BE_DONE) }
}

fn screen(view: &ClusterView) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let leader = view.leader.as_deref().unwrap_or("nobody");
    let ClusterView { name, epoch, replicas, workers, .. } = view;
    let serving = workers.iter().filter(|worker| worker.state == WorkerState::Serving).count();
    let verdict = if view.findings.is_empty() { "well" } else { "NOT WELL" };
    // Writing to a string can't fail.
    let _ = writeln!(text, "cluster {name}: {verdict}");
    let _ = writeln!(
        text,
        "{serving} of {} workers serve, {replicas} replicas, map {}, led by {leader}\n",
        workers.len(),
        epoch.0
    );
    let width = workers.iter().map(|worker| worker.id.0.len()).max().unwrap_or(0).max(6);
    let _ = writeln!(text, "{:width$}  {:9}  {:>6}  {:>9}  address", "worker", "state", "slots", "cache");
    for worker in workers {
        let state = match worker.state {
            WorkerState::Joining => "joining",
            WorkerState::Serving => "serving",
            WorkerState::Draining => "draining",
            WorkerState::Lost => "LOST",
        };
        let bytes: u64 = worker.tiers.iter().map(|tier| tier.bytes).sum();
        let zone = if worker.zone.is_empty() { String::new() } else { format!("  zone {}", worker.zone) };
        let _ = writeln!(
            text,
            "{:width$}  {state:9}  {:>6}  {:>9}  {}{zone}",
            worker.id.0,
            worker.slots,
            format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
            worker.address
        );
    }
    if !view.findings.is_empty() {
        let _ = writeln!(text, "\nTo be done:");
        for finding in &view.findings {
            let _ = writeln!(text, "- {finding}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs3_coordinator_client::api::WorkerView;
    use verbs3_protocol::{Epoch, WorkerId};

    #[test]
    fn a_screen_says_what_is_to_be_done() {
        let worker = WorkerView {
            id: WorkerId("gpu-07".into()),
            address: "10.0.0.7:9400".into(),
            weight: 1.0,
            zone: "rack-2".into(),
            state: WorkerState::Lost,
            lease_ms: 0,
            tiers: Vec::new(),
            rails: Vec::new(),
            active: Epoch(1),
            slots: 65_536,
        };
        let mut view = ClusterView {
            name: "train".into(),
            leader: None,
            epoch: Epoch(7),
            preparing: None,
            replicas: 2,
            workers: vec![worker],
            findings: vec!["worker gpu-07 does not answer; start it again".into()],
        };
        let shown = screen(&view);
        for part in ["NOT WELL", "LOST", "gpu-07", "zone rack-2", "- worker gpu-07 does not answer", "0 of 1 workers"] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        view.findings.clear();
        assert!(screen(&view).contains("cluster train: well"));
    }
}

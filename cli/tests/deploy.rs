//! What `deploy/` says, held against the code.
#![allow(clippy::unwrap_used)]

mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use processes::{text, verbs3};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

/// Labels of every metric.
fn known() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let tables = [
        verbs3_rdma::metrics::TABLE,
        verbs3_ufs::metrics::TABLE,
        verbs3_cache_worker::metrics::TABLE,
        verbs3_cache_worker::DISK_METRICS,
        verbs3_client::metrics::TABLE,
        verbs3_gateway::metrics::TABLE,
        verbs3_gateway::metrics::READ_TABLE,
        verbs3_coordinator::metrics::TABLE,
        verbs3_preload::metrics::TABLE,
    ];
    let rows = tables.into_iter().flatten();
    rows.map(|&(name, labels, _)| (name, labels.iter().copied().collect())).collect()
}

/// Metrics in a text, with the labels that it picks them by.
fn named(text: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let metric = |(at, _): (usize, &str)| {
        let name: String = text[at..].chars().take_while(|c| is_name(*c)).collect();
        let picked = text[at + name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = picked.into_iter().flat_map(|(picked, _)| picked.split(','));
        let labels = labels.map(|label| label.trim().chars().take_while(|c| is_name(*c)).collect());
        (name, labels.collect())
    };
    text.match_indices("verbs3_").map(metric).collect()
}

/// What of a text is no metric, or no label of it.
fn unknown(text: &str) -> Vec<String> {
    let known = known();
    let mut wrong = Vec::new();
    for (name, labels) in named(text) {
        match known.get(name.as_str()) {
            None => wrong.push(name),
            Some(has) => {
                let others = labels.iter().filter(|label| !has.contains(label.as_str()) && *label != "instance");
                wrong.extend(others.map(|label| format!("{name}{{{label}}}")));
            }
        }
    }
    wrong
}

#[test]
fn alerts_and_the_dashboard_name_metrics_and_labels_that_exist() {
    for (path, least) in [("deploy/prometheus/verbs3.rules.yaml", 20), ("deploy/grafana/verbs3.json", 30)] {
        let text = read(path);
        let wrong = unknown(&text);
        assert!(wrong.is_empty() && named(&text).len() >= least, "{path}: {wrong:?}");
    }
    let wrong = unknown("rate(verbs3_nothing_total[1m]) + verbs3_coordinator_relays_total{outcome=\"x\", why=\"y\"}");
    assert_eq!(wrong, ["verbs3_nothing_total", "verbs3_coordinator_relays_total{why}"]);
}

#[test]
fn there_are_alerts_and_panels_for_coordinators_and_preload_jobs() {
    for path in ["deploy/prometheus/verbs3.rules.yaml", "deploy/grafana/verbs3.json"] {
        let names: BTreeSet<String> = named(&read(path)).into_iter().map(|(name, _)| name).collect();
        for wanted in [
            "verbs3_coordinator_leader",
            "verbs3_coordinator_workers_missing",
            "verbs3_coordinator_store_failures_total",
            "verbs3_preload_jobs_ended_total",
            "verbs3_preload_store_failures_total",
            "verbs3_worker_leased",
            "verbs3_worker_open_writes",
        ] {
            assert!(names.contains(wanted), "{wanted} is not in {path}");
        }
    }
}

#[test]
fn the_dashboard_is_json_whose_panels_have_numbers_of_their_own() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("deploy/grafana/verbs3.json")).unwrap();
    let ids: Vec<u64> =
        dashboard["panels"].as_array().unwrap().iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
}

#[test]
fn one_file_is_complete_for_every_role_of_a_cluster() {
    for (path, identities) in [
        ("deploy/kubernetes/verbs3.toml", "/etc/verbs3-secret/identities.toml"),
        ("deploy/systemd/verbs3.toml", "/etc/verbs3/identities.toml"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (own, file) = (folder.path().join("identities.toml"), folder.path().join("verbs3.toml"));
        fs::write(&own, "").unwrap();
        let config = read(path);
        assert!(config.contains(identities), "{path}");
        fs::write(&file, config.replace(identities, own.to_str().unwrap())).unwrap();
        let mut command = verbs3();
        command.args(["config", "check"]).arg(&file);
        for role in ["gateway", "worker", "coordinator"] {
            command.args(["--role", role]);
        }
        command.env("VERBS3_CLUSTER__SECRET", "a secret of sixteen or more").env("VERBS3_WORKER__ID", "gpu-07");
        let output = command.output().unwrap();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        // No warning either.
        assert_eq!((output.status.code(), said), (Some(0), format!("{} is fine\n", file.display())), "{path}");
    }
}

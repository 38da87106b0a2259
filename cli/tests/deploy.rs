//! What `deploy/` says, held against the code.
#![allow(clippy::unwrap_used)]

mod described_metrics;
mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use described_metrics::describe_metrics;
use processes::{text, verbs3};
use verbs3_metrics::MetricDescription;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

/// Labels of every metric.
fn known() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let labels = |metric: MetricDescription| metric.labels.iter().map(|label| label.name).collect();
    describe_metrics().map(|metric| (metric.name, labels(metric))).collect()
}

/// Metrics in a text, with the labels that it picks them by.
fn named(text: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let metric = |(at, _): (usize, &str)| {
        let name: String = text[at..].chars().take_while(|c| is_name(*c)).collect();
        let picked =
            text[at + name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
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
        // A histogram has three series.
        let parts = ["_bucket", "_sum", "_count"];
        let histogram = parts.iter().find_map(|part| name.strip_suffix(part));
        match known.get(name.as_str()).or_else(|| known.get(histogram?)) {
            None => wrong.push(name),
            Some(has) => {
                // What collectors say of each target.
                let is_given = |label: &str| ["cluster", "instance"].contains(&label);
                let others = labels
                    .iter()
                    .filter(|label| !has.contains(label.as_str()) && !is_given(label.as_str()));
                wrong.extend(others.map(|label| format!("{name}{{{label}}}")));
            }
        }
    }
    wrong
}

#[test]
fn alerts_and_the_dashboard_name_metrics_and_labels_that_exist() {
    for (path, least) in
        [("deploy/prometheus/verbs3.rules.yaml", 20), ("deploy/grafana/verbs3.json", 30)]
    {
        let text = read(path);
        let wrong = unknown(&text);
        assert!(wrong.is_empty() && named(&text).len() >= least, "{path}: {wrong:?}");
    }
    let wrong = unknown(
        "rate(verbs3_nothing_total[1m]) + verbs3_coordinator_relays_total{outcome=\"x\", \
        why=\"y\"}",
    );
    assert_eq!(wrong, ["verbs3_nothing_total", "verbs3_coordinator_relays_total{why}"]);
}

#[test]
fn coordinators_and_preload_jobs_have_alerts_and_panels() {
    for path in ["deploy/prometheus/verbs3.rules.yaml", "deploy/grafana/verbs3.json"] {
        let names: BTreeSet<String> =
            named(&read(path)).into_iter().map(|(name, _)| name).collect();
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
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/verbs3.json")).unwrap();
    let ids: Vec<u64> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
}

/// What `verbs3@.service` runs before it starts a role of the one file, on a host that has that
/// role's files and no others.
#[test]
fn one_file_serves_hosts_that_have_what_their_roles_read() {
    let identities = "/etc/verbs3/identities.toml";
    let config = read("deploy/systemd/verbs3.toml");
    assert!(config.contains(identities));
    let folder = tempfile::tempdir().unwrap();
    let (own, file) = (folder.path().join("identities.toml"), folder.path().join("verbs3.toml"));
    let secret = folder.path().join("cluster-secret");
    fs::write(&secret, "a secret of thirty-two characters or more").unwrap();
    let config = config
        .replace(identities, own.to_str().unwrap())
        .replace("/etc/verbs3/cluster-secret", secret.to_str().unwrap());
    fs::write(&file, config).unwrap();
    let check = |roles: &[&str]| {
        let mut command = verbs3();
        command.args(["config", "check"]).arg(&file);
        command.args(roles.iter().flat_map(|role| ["--role", role]));
        // worker.env.
        command.env("VERBS3_WORKER__ID", "gpu-07");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        let output = command.output().unwrap();
        // No warning either.
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    };
    let shown = file.display();
    let fine = |roles: &str| (Some(0), format!("{shown} is fine for {roles}\n"));
    for role in ["worker", "coordinator"] {
        assert_eq!(check(&[role]), fine(role));
    }
    // Without a role: those whose sections it has.
    for (roles, spoken) in [(&["gateway"][..], "gateway"), (&[], "gateway, worker and coordinator")]
    {
        let (status, said) = check(roles);
        let complaint = format!("gateway.identities: can't read {}: ", own.display());
        assert!(status == Some(2) && said.starts_with(&complaint), "{said}");
        assert!(
            said.ends_with(&format!("{shown} was checked for {spoken}; --role names others\n")),
            "{said}"
        );
    }
    fs::write(&own, "").unwrap();
    assert_eq!(check(&["gateway"]), fine("gateway"));
    assert_eq!(check(&[]), fine("gateway, worker and coordinator"));
}

//! Every problem that a configuration can have, by its message.
#![allow(clippy::unwrap_used)]

mod certificates;
mod clusters;
mod gateways;
mod populating;
mod stores;
mod surroundings;
mod ways;
mod workers;

use std::path::PathBuf;

use super::ProcessRole;
use crate::layers::{ConfigLayers, load_config, roles_in};

/// Two UFSs, two mounts, one worker; complete for a gateway and for a worker, but for the files.
const GOOD: &str = r#"
[cluster]
secret = "0123456789abcdef0123456789abcdef"
workers = [{ id = "w0", address = "10.0.0.1:9400" }]
workers_fixed = true
[[ufs]]
name = "ceph"
endpoint = "http://127.0.0.1:7480"
[[ufs]]
name = "aws"
region = "eu-west-1"
[[mount]]
name = "train"
ufs = "ceph"
[[mount]]
name = "eval"
ufs = "aws"
[gateway]
identities = "IDENTITIES"
[worker]
id = "w0"
"#;

/// What is wrong with `text`, one line each.
fn findings(text: &str, roles: &[ProcessRole]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let identities = folder.path().join("identities.toml");
    std::fs::write(&identities, "").unwrap();
    let file = folder.path().join("verbs3.toml");
    std::fs::write(&file, text.replace("IDENTITIES", identities.to_str().unwrap())).unwrap();
    let problems =
        match load_config(&ConfigLayers { file: Some(file), ..ConfigLayers::default() }, roles) {
            Ok(loaded) => loaded.warnings,
            Err(problems) => problems.0,
        };
    problems
        .iter()
        .map(|problem| problem.to_string().replace(folder.path().to_str().unwrap(), "DIR"))
        .collect()
}

const BOTH: &[ProcessRole] = &[ProcessRole::Gateway, ProcessRole::Worker];

/// `GOOD` with one text replaced has exactly `wanted` wrong.
#[track_caller]
fn broken(from: &str, to: &str, wanted: &[&str]) {
    assert!(GOOD.contains(from), "{from:?} is not in the good configuration");
    assert_eq!(findings(&GOOD.replacen(from, to, 1), BOTH), wanted);
}

/// `GOOD` with these lines at the begin of a section has exactly `wanted` wrong.
#[track_caller]
fn broken_by(section: &str, lines: &str, wanted: &[&str]) {
    broken(section, &format!("{section}\n{lines}\n"), wanted);
}

#[test]
fn a_complete_configuration_has_no_problem() {
    assert_eq!(findings(GOOD, BOTH), [""; 0]);
}

#[test]
fn an_empty_configuration_lists_all_that_is_missing() {
    let missing = findings("", BOTH);
    let paths: Vec<&str> = missing.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        paths,
        ["cluster.secret", "cluster.workers", "ufs", "mount", "gateway.identities", "worker.id"]
    );
}

#[test]
fn the_development_process_needs_nothing() {
    assert_eq!(findings("", &[ProcessRole::Dev]), [""; 0]);
}

#[test]
fn the_sections_of_a_file_say_whose_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("verbs3.toml");
    for (text, wanted) in [
        ("[worker]\n[cluster]\n", &[ProcessRole::Worker][..]),
        ("[coordinator.store]\n[gateway]\n", &[ProcessRole::Gateway, ProcessRole::Coordinator]),
        ("dev = {}\n", &[ProcessRole::Dev]),
        ("", &[]),
    ] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(roles_in(&file).unwrap(), wanted, "{text}");
    }
}

#[test]
fn names_that_are_unknown_come_with_a_suggestion() {
    broken(
        "ufs = \"ceph\"",
        "ufs = \"cephh\"",
        &["mount[0].ufs: no [[ufs]] is named \"cephh\"; did you mean \"ceph\"?"],
    );
    broken("ufs = \"ceph\"", "ufs = \"zzzzzz\"", &["mount[0].ufs: no [[ufs]] is named \"zzzzzz\""]);
    broken(
        "id = \"w0\"\n",
        "id = \"w1\"\n",
        &["worker.id: cluster.workers has no worker named \"w1\"; did you mean \"w0\"?"],
    );
    broken(
        "endpoint =",
        "endpiont =",
        &["ufs[0].endpiont: no such setting; did you mean \"endpoint\"?"],
    );
    broken_by(
        "[gateway]",
        "listen_address = 1",
        &["gateway.listen_address: no such setting; there are listen, bind_device, admin_listen, \
            admin_bind_device, handover_socket, probe_socket, domains, own_hosts, identities, sigv2, \
            cors_ttl, cors_stale_max, cache_headers, memory, tls, limits, timeouts, store_probe, \
            read, tier, populate, peers, lending, s3_over_rdma"],
    );
    broken_by(
        "[gateway]",
        "handover_socket = \"/run/a.sock\"\nprobe_socket = \"/run/a.sock\"",
        &["gateway.probe_socket: is another of this gateway's sockets; choose another path"],
    );
    broken(
        "name = \"aws\"",
        "name = \"aws\"\nkind = \"s33\"",
        &["ufs[1].kind: \"s33\" is not one of \"s3\", \"local\"; did you mean \"s3\"?"],
    );
}

#[test]
fn values_of_the_wrong_type_say_what_is_wanted() {
    broken(
        "[worker]",
        "[worker.memory]\ncapacity = 5\n[worker]",
        &["worker.memory.capacity: wants a size in quotes, such as \"4MiB\", got 5"],
    );
    broken(
        "[worker]",
        "[worker.memory]\ncapacity = \"5 apples\"\n[worker]",
        &["worker.memory.capacity: \"5 apples\" is not a size; write an integer with a unit: \
            \"256KiB\", \"4MiB\", \"64GiB\""],
    );
    broken(
        "name = \"train\"",
        "name = \"train\"\nattributes_ttl = \"soon\"",
        &["mount[0].attributes_ttl: \"soon\" is not a duration; write integers with units: \
            \"100us\", \"500ms\", \"10s\", \"1m30s\", \"12h\"; or \"0\" (ask every time), or \"immutable\""],
    );
    broken(
        "name = \"train\"",
        "name = \"train\"\nread_only = \"yes\"",
        &["mount[0].read_only: wants a boolean, got \"yes\""],
    );
    broken_by(
        "[gateway]",
        "listen = \"localhost\"",
        &["gateway.listen: is no IP address with a port, such as \"0.0.0.0:9000\""],
    );
}

#[test]
fn a_secret_of_the_wrong_type_is_not_printed() {
    broken(
        "secret = \"0123456789abcdef0123456789abcdef\"",
        "secret = 123456789",
        &["cluster.secret: wants a string, got another type of value"],
    );
}

#[test]
fn every_problem_is_found_at_once() {
    let text = GOOD
        .replace("ufs = \"ceph\"", "ufs = \"cephh\"\ncolour = \"red\"\nabsence_ttl = 1")
        .replace("id = \"w0\"\n", "id = \"w0\"\nlisten = true\n[worker.fill]\nin_flight_max = 0\n");
    let paths: Vec<String> = findings(&text, BOTH)
        .iter()
        .map(|line| line.split(": ").next().unwrap().to_owned())
        .collect();
    let mut sorted = paths.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        [
            "mount[0].absence_ttl",
            "mount[0].colour",
            "mount[0].ufs",
            "worker.fill.in_flight_max",
            "worker.listen"
        ]
    );
}

#[test]
fn what_is_not_toml_is_located_without_its_text() {
    let found = findings("[cluster]\nsecret = hunter2\n", BOTH);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("DIR/verbs3.toml:2:") && !found[0].contains("hunter2"),
        "{found:?}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let layers =
        ConfigLayers { file: Some(PathBuf::from("/no/such.toml")), ..ConfigLayers::default() };
    let problems = load_config(&layers, &[]).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "can't read /no/such.toml: No such file or directory (os error 2)"
    );
}

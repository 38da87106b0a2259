//! `verbs3 doctor --acceptance` on a host without a NIC and, where it is asked for, over the fake
//! verbs provider. No time and no figure is asserted, but that there is one.
#![allow(clippy::unwrap_used)]

mod processes;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use processes::{text, verbs3};
use serde_json::Value;

/// Every step, in the order of the file. A step that went missing is a step skipped in silence.
const STEPS: [&str; 16] = [
    "doctor",
    "touch memory",
    "register, rail by rail",
    "register, all rails at once",
    "ib_write_bw",
    "ib_send_lat",
    "tcp",
    "verbs",
    "verbs, latency",
    "memory windows",
    "relaxed ordering",
    "host tuning",
    "whole memory",
    "port",
    "device",
    "peer",
];

/// A host without RDMA, as files below a temporary folder.
fn bare_host(folder: &Path) -> PathBuf {
    let fixture = format!("{}/../rdma/doctor/fixtures/bare.tree", env!("CARGO_MANIFEST_DIR"));
    let root = folder.join("root");
    for line in fs::read_to_string(fixture).unwrap().lines().filter(|line| !line.starts_with('#')) {
        let (path, content) = line.split_once(" -> ").or_else(|| line.split_once(" =")).unwrap();
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if line.contains(" -> ") {
            symlink(content, path).unwrap();
        } else {
            fs::write(path, content.trim_start().replace("\\n", "\n")).unwrap();
        }
    }
    root
}

struct AcceptanceFixture {
    folder: tempfile::TempDir,
    command: Command,
}

impl AcceptanceFixture {
    /// A short run of little memory.
    fn prepare(words: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = verbs3();
        command.args(["doctor", "--acceptance"]).args(words);
        command.args(["--memory", "32MiB", "--seconds", "0.2", "--rounds", "1"]);
        command.arg("--out").arg(folder.path().join("out.json"));
        Self { folder, command }
    }

    /// Its document, held against the exit status and the rules that hold for each step.
    fn run_checked(&mut self) -> (Output, Value) {
        let output = self.command.output().unwrap();
        let said = text(&output.stdout);
        let path = self.folder.path().join("out.json");
        assert!(said.contains(&format!("written to {}", path.display())), "{said}");
        let document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        check_document(&document);
        let status = output.status.code().unwrap();
        assert_eq!(document["exit_status"], status, "{said}{}", text(&output.stderr));
        (output, document)
    }
}

fn steps<'a>(document: &'a Value, name: &str) -> Vec<&'a Value> {
    let all = document["steps"].as_array().unwrap();
    all.iter().filter(|step| step["step"] == name).collect()
}

fn check_document(document: &Value) {
    assert_eq!(document["shape"], 1);
    let mut bad = false;
    for name in STEPS.iter().chain(&["long run"]) {
        assert!(!steps(document, name).is_empty(), "{name} is missing: {document:#}");
    }
    for step in document["steps"].as_array().unwrap() {
        let verdict = step["verdict"].as_str().unwrap();
        assert!(!step["command"].as_str().unwrap().is_empty(), "{step:#}");
        bad |= ["below", "failed"].contains(&verdict);
        if ["not_run", "failed"].contains(&verdict) {
            for said in ["reason", "remedy"] {
                assert!(!step[said].as_str().unwrap().is_empty(), "{said} of {step:#}");
            }
            continue;
        }
        let figures = step["figures"].as_array().unwrap();
        assert!(!figures.is_empty(), "{step:#}");
        for figure in figures {
            assert!(figure["value"].as_f64().is_some(), "{figure}");
            let expected = &figure["expected"];
            assert!(expected.is_null() || expected["source"].is_string(), "{figure}");
        }
    }
    assert_eq!(document["exit_status"], i32::from(bad), "{document:#}");
    assert!(document["summary"].as_array().unwrap().len() > STEPS.len());
}

#[test]
fn a_host_without_a_nic_is_measured_over_tcp_alone() {
    let folder = tempfile::tempdir().unwrap();
    let root = bare_host(folder.path());
    let mut fixture = AcceptanceFixture::prepare(&["--root", root.to_str().unwrap()]);
    let (output, document) = fixture.run_checked();
    assert_eq!(document["transports"], serde_json::json!(["tcp only"]));
    let of_verbs =
        ["register, rail by rail", "register, all rails at once", "ib_write_bw", "ib_send_lat"];
    let of_bench = ["verbs", "verbs, latency", "memory windows", "relaxed ordering"];
    for name in of_verbs.iter().chain(&of_bench) {
        let step = steps(&document, name)[0];
        assert_eq!(step["verdict"], "not_run", "{step:#}");
        assert!(step["reason"].as_str().unwrap().contains("no RDMA device"), "{step:#}");
    }
    let tcp = steps(&document, "tcp")[0];
    let read = tcp["figures"].as_array().unwrap();
    assert!(
        read.iter().any(|figure| figure["unit"] == "Gb/s" && figure["value"].as_f64() > Some(0.0))
    );
    assert!(read.iter().any(|figure| figure["expected"]["at_least"] == 0.8), "{tcp:#}");
    assert_eq!(steps(&document, "touch memory")[0]["verdict"], "recorded");
    assert!(text(&output.stdout).starts_with("acceptance of "), "{}", text(&output.stdout));

    // The file of an earlier run is not lost.
    let again = fixture.command.output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--out FILE names another"), "{}", text(&again.stderr));
}

#[test]
fn a_peer_that_is_away_fails_the_steps_that_need_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = bare_host(folder.path());
    let away = processes::free_address();
    let mut fixture = AcceptanceFixture::prepare(&[&away, "--root", root.to_str().unwrap()]);
    let (output, document) = fixture.run_checked();
    assert_eq!(output.status.code(), Some(1));
    let tcp = steps(&document, "tcp")[0];
    assert_eq!(tcp["verdict"], "failed");
    assert!(tcp["remedy"].as_str().unwrap().contains("bench fabric --serve"), "{tcp:#}");
    assert_eq!(document["peer"], away);
}

#[test]
fn what_is_more_than_the_host_has_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let root = bare_host(folder.path());
    let mut command = verbs3();
    let out = folder.path().join("out.json");
    command.args(["doctor", "--acceptance", "--memory", "102400GiB", "--seconds", "0.01"]);
    command.args(["--rounds", "1", "--root", root.to_str().unwrap(), "--out"]).arg(&out);
    assert!(command.output().unwrap().status.code() <= Some(1));
    let document: Value = serde_json::from_slice(&fs::read(out).unwrap()).unwrap();
    check_document(&document);
    let touch = steps(&document, "touch memory")[0];
    assert_eq!(touch["verdict"], "not_run");
    assert!(touch["reason"].as_str().unwrap().contains("are more than"), "{touch:#}");
}

#[test]
fn flags_of_an_acceptance_run_mean_nothing_without_one() {
    for words in [&["doctor", "--rounds", "2"][..], &["doctor", "--acceptance", "--json"]] {
        assert_eq!(processes::run(words).status.code(), Some(2), "{words:?}");
    }
}

/// `verbs3 bench fabric --serve`; ended when it is dropped.
struct ServingPeer {
    child: std::process::Child,
    address: String,
}

impl ServingPeer {
    fn start() -> Self {
        let mut command = verbs3();
        command.args(["bench", "fabric", "--serve", "--listen", "127.0.0.1:0"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("serving on ").unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for ServingPeer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other host's doctor says, and the other side of perftest, by a fake `ssh`.
const FAKE_SSH: &str = r#"#!/bin/sh
at=$(dirname "$0")
printf '[%s]' "$@" >>"$at/calls"; echo >>"$at/calls"
while [ "$1" != "--" ]; do shift; done
case $3 in
    *doctor*) cat "$at/peer.json" ;;
    *) exec sh -c "$3" ;;
esac
"#;

#[test]
fn a_peer_that_serves_is_measured_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let root = bare_host(folder.path());
    let peer = ServingPeer::start();
    let mut fixture =
        AcceptanceFixture::prepare(&[&peer.address, "--root", root.to_str().unwrap()]);
    let (_, document) = fixture.run_checked();
    let tcp = steps(&document, "tcp")[0];
    assert_ne!(tcp["verdict"], "failed", "{tcp:#}");
    assert!(tcp["command"].as_str().unwrap().contains(&peer.address), "{tcp:#}");
    assert_eq!(tcp["record"]["in_process"], false);
    assert_eq!(steps(&document, "verbs")[0]["verdict"], "not_run");
}

#[test]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
fn perftest_is_run_with_the_rails_that_the_peer_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = fake_perftest(folder.path(), "100", "1.5");
    let ssh = folder.path().join("bin/ssh");
    fs::write(&ssh, FAKE_SSH).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let said = serde_json::json!({
        "schema": 1, "version": "0", "kernel": "6", "exit_status": 0, "findings": [],
        "usable_rails": ["mlx5_9/1"],
        "devices": [
            {"name": "mlx5_8", "firmware": "1", "ports": [
                {"port": 1, "rate_gbits": null, "active_mtu": null, "netdevs": [], "addresses": ["127.9.9.8"]}]},
            {"name": "mlx5_9", "firmware": "1", "ports": [
                {"port": 1, "rate_gbits": null, "active_mtu": null, "netdevs": [], "addresses": ["127.9.9.9"]}]},
        ],
    });
    fs::write(folder.path().join("bin/peer.json"), said.to_string()).unwrap();
    let peer = ServingPeer::start();
    let words = [peer.address.as_str(), "--rail", "127.0.0.1", "--rail", "127.0.0.2"];
    let mut fixture = AcceptanceFixture::prepare(&words);
    fixture.command.env("PATH", path);
    let (_, document) = fixture.run_checked();
    let runs = steps(&document, "ib_write_bw");
    let command = runs[0]["command"].as_str().unwrap();
    assert_eq!(runs[0]["figures"][0]["value"], 100.0, "{runs:#?}");
    assert!(command.starts_with("127.0.0.1: ib_write_bw -d mlx5_9 -R"), "{command}");
    assert!(command.ends_with("--report_gbits 127.9.9.9"), "{command}");
    assert_eq!(runs[1]["verdict"], "not_run", "the peer has one usable rail: {runs:#?}");
    let calls = fs::read_to_string(folder.path().join("bin/calls")).unwrap();
    assert!(calls.contains("'timeout' '32' 'ib_write_bw' '-d' 'mlx5_9'"), "{calls}");
    // The fake connects within one process alone: the peer offers no rail.
    let verbs = steps(&document, "verbs")[0];
    assert_eq!(verbs["verdict"], "failed");
    assert!(verbs["reason"].as_str().unwrap().contains("--rail"), "{verbs:#}");
}

/// Puts a program on PATH that answers as perftest does, with these figures.
fn fake_perftest(folder: &Path, gbits: &str, micros: &str) -> String {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    for (name, line) in [
        ("ib_write_bw", format!(" 1048576 100 0.00 {gbits} 0.04")),
        ("ib_send_lat", format!(" 64 10000 0.1 0.2 {micros} 0.2 0.1 0.3 0.4")),
    ] {
        let path = bin.join(name);
        fs::write(
            &path,
            format!("#!/bin/sh\necho '{line}'\ncase $* in *127.*) ;; *) sleep 2 ;; esac\n"),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

#[test]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
fn verbs_steps_are_measured_and_held_against_perftest() {
    let folder = tempfile::tempdir().unwrap();
    // Profile 0 has windows. Two of its addresses are two devices.
    let rails = ["--rail", "127.0.0.1", "--rail", "127.0.0.2"];
    let mut fixture = AcceptanceFixture::prepare(&rails);
    fixture.command.env("PATH", fake_perftest(folder.path(), "0.001", "5000000"));
    let (_, document) = fixture.run_checked();
    assert_eq!(document["transports"], serde_json::json!(["verbs", "tcp"]));
    for name in
        ["register, rail by rail", "register, all rails at once", "ib_write_bw", "ib_send_lat"]
    {
        let found = steps(&document, name);
        assert_eq!(found.len(), 2, "{name}: one for each rail");
        assert!(found.iter().all(|step| step["verdict"] != "failed"), "{found:#?}");
    }
    let verbs = steps(&document, "verbs")[0]["figures"].as_array().unwrap().clone();
    assert_eq!(verbs.len(), 3, "two rails, and both at once: {verbs:#?}");
    let bound = &verbs[0]["expected"]["at_least"].as_f64().unwrap();
    assert!((bound - 0.0009).abs() < 1e-9, "nine tenths of ib_write_bw: {verbs:#?}");
    assert!(verbs[2]["what"].as_str().unwrap().contains("all rails"), "{verbs:#?}");
    assert_eq!(steps(&document, "verbs, latency")[0]["verdict"], "as_expected");
    for name in ["memory windows", "relaxed ordering"] {
        let step = steps(&document, name)[0];
        assert_eq!(step["figures"].as_array().unwrap().len(), 9, "{step:#}");
    }

    // What no verbs of one process can reach.
    let mut fixture = AcceptanceFixture::prepare(&rails);
    fixture.command.env("PATH", fake_perftest(folder.path(), "900000", "0.0001"));
    let (output, document) = fixture.run_checked();
    assert_eq!(output.status.code(), Some(1));
    for name in ["verbs", "verbs, latency"] {
        assert_eq!(steps(&document, name)[0]["verdict"], "below");
    }
}

#[test]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
fn a_device_without_windows_skips_that_step_by_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    // Profile 1 has no windows.
    let mut fixture = AcceptanceFixture::prepare(&["--rail", "127.0.1.1"]);
    fixture.command.env("PATH", fake_perftest(folder.path(), "0.001", "5000000"));
    let (_, document) = fixture.run_checked();
    let step = steps(&document, "memory windows")[0];
    assert_eq!(step["verdict"], "not_run");
    assert!(step["reason"].as_str().unwrap().contains("no memory windows"), "{step:#}");
    assert_eq!(steps(&document, "verbs")[0]["figures"].as_array().unwrap().len(), 1);
}

//! `verbs3 plan`: what it says, and that what it writes can be used.
#![allow(clippy::unwrap_used)]

mod processes;

use std::path::Path;
use std::process::Output;

use processes::{text, verbs3};

/// A cluster that holds its data well.
const FITS: &[&str] = &[
    "--data=40TiB",
    "--objects=400000",
    "--nodes=16",
    "--memory=256GiB",
    "--drives=4",
    "--drive=3500GiB",
    "--nics=8",
    "--nic-gbits=400",
    "--store-bandwidth=10GiB",
];

fn plan(words: &[&str]) -> Output {
    verbs3().arg("plan").args(words).output().unwrap()
}

fn with(more: &[&'static str]) -> Vec<&'static str> {
    [FITS, more].concat()
}

#[test]
fn the_documents_example_is_what_the_command_prints() {
    let document = include_str!("../../docs/capacity.md");
    let block = |kind: &str| {
        let (_, rest) = document.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.toml");
    std::fs::write(&file, block("toml")).unwrap();
    let output = plan(&["--file", file.to_str().unwrap()]);
    let printed = text(&output.stdout);
    assert_eq!(printed, block("text"), "{printed}{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_verdict_and_the_status_follow_the_room() {
    let findings = |data: &str| {
        let words: Vec<&str> = FITS.iter().skip(1).copied().chain(["--json", data]).collect();
        let output = plan(&words);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), said["verdict"].as_str().unwrap().to_owned(), said)
    };
    // 16 nodes have 16 × 4 × 3,500 GiB × 0.95 = 207.8 TiB.
    for (data, status, verdict) in [
        ("--data=120TiB", 0, "fits"),
        ("--data=130TiB", 1, "warn"),
        ("--data=170TiB", 1, "act"),
        ("--data=180TiB", 2, "does_not_fit"),
    ] {
        let (code, found, said) = findings(data);
        assert_eq!((code, found.as_str()), (Some(status), verdict), "{data}: {said:#}");
    }
    let (_, _, said) = findings("--data=180TiB");
    assert_eq!(said["plan"]["nodes_needed"], 17, "{said:#}");
    assert!(said["findings"][0]["remedy"].as_str().unwrap().starts_with("17 such nodes"));
}

#[test]
fn every_problem_of_the_figures_is_told_at_once() {
    let output = plan(&["--nodes=0", "--memory=1GiB", "--nic-gbits=400"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("sizes is missing") && said.contains("store_bandwidth is missing"));
    let output = plan(&with(&["--copies=3", "--readers-per-object=17"]));
    let said = text(&output.stderr);
    assert!(said.contains("copies: 3 is not between 1 and 2"), "{said}");
    assert!(said.contains("readers_per_object: 17 is not between 1 and 16"), "{said}");
    // Few bytes, and yet more than any cluster holds: each object takes a cell.
    let output = plan(&[&FITS[2..], &["--sizes=10000000000000000x1B"]].concat());
    let said = text(&output.stderr);
    assert!(said.contains("sizes: more than an EiB of cache"), "{said}");
}

/// The real check, as an operator runs it, for every role, with files and variables in place.
fn check_written(file: &Path, identities: &Path) {
    let mut command = verbs3();
    let roles = ["--role", "gateway", "--role", "worker", "--role", "coordinator"];
    command.args(["config", "check", file.to_str().unwrap()]).args(roles);
    command
        .env("VERBS3_WORKER__ID", "gpu-01")
        .env("VERBS3_CLUSTER__SECRET", "0123456789abcdef0123456789abcdef and so on")
        .env("VERBS3_GATEWAY__IDENTITIES", identities);
    let checked = command.output().unwrap();
    let said = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{said}{}", text(&checked.stderr));
    assert!(said.contains("is fine for gateway, worker and coordinator"), "{said}");
    assert_eq!(said.lines().count(), 1, "no warnings either: {said}");
}

#[test]
fn a_written_configuration_passes_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let identities = folder.path().join("identities.toml");
    std::fs::write(&identities, "").unwrap();
    let large = ["--nodes=2000", "--sizes=2000000000x100KiB"];
    for (name, words) in [
        ("drives.toml", with(&["--etcd=http://10.0.0.1:2379"])),
        ("memory.toml", [&FITS[..4], &["--nic-gbits=25", "--store-bandwidth=1GiB"]].concat()),
        ("large.toml", [&large[..], &FITS[3..]].concat()),
    ] {
        let file = folder.path().join(name);
        let output = verbs3().arg("plan").args(&words).arg("--write").arg(&file).output().unwrap();
        assert!(file.exists(), "{}{}", text(&output.stdout), text(&output.stderr));
        check_written(&file, &identities);
        let again = verbs3().arg("plan").args(&words).arg("--write").arg(&file).output().unwrap();
        assert_eq!(again.status.code(), Some(2), "a file is not written over");
    }
    let large = std::fs::read_to_string(folder.path().join("large.toml")).unwrap();
    assert!(large.contains("[verbs]\n") && large.contains("attributes_max = 1200000"), "{large}");
}

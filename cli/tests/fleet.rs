//! `verbs3 doctor --fleet` over a fake `ssh` on PATH: which hosts differ, which can't be asked, and
//! what never reaches `ssh`. The same over a real sshd where a test is told of one.
#![allow(clippy::unwrap_used)]

mod processes;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use processes::{run, text, verbs3};
use serde_json::Value;

/// Answers with HOST.json where that is there, or as its name says, or runs what it was asked to.
const FAKE_SSH: &str = r#"#!/bin/sh
at=$(dirname "$0")
printf '[%s]' "$@" >>"$at/calls"; echo >>"$at/calls"
while [ "$1" != "--" ]; do shift || exit 98; done
host=$2; shift 2
[ $# = 1 ] || exit 97
: >"$at/run.$$"; ls "$at" | grep -c '^run\.' >>"$at/counts"; sleep 0.1
if [ -f "$at/$host.json" ]; then cat "$at/$host.json"; rm "$at/run.$$"; exit 0; fi
rm "$at/run.$$"
case $host in
    gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255 ;;
    slow) sleep 3600 ;;
    loud) yes ;;
    rude) printf '\033[2Jbad\n' >&2; exit 1 ;;
    *) exec sh -c "$1" ;;
esac
"#;

struct FakeFleet {
    folder: tempfile::TempDir,
}

impl FakeFleet {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ssh = folder.path().join("ssh");
        fs::write(&ssh, FAKE_SSH).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a host says: the document of this one, changed.
    fn add_host(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let output = run(&["doctor", "--json"]);
        let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["exit_status"] = 0.into();
        document["findings"] = serde_json::json!([]);
        change(&mut document);
        fs::write(self.path(&format!("{name}.json")), document.to_string()).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = verbs3();
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).arg("doctor").args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.path("calls")).unwrap_or_default()
    }
}

#[test]
fn one_table_names_the_odd_host_and_its_problem() {
    let fleet = FakeFleet::new();
    for name in ["gpu-01", "gpu-03"] {
        fleet.add_host(name, |document| document["kernel"] = "6.8.0".into());
    }
    fleet.add_host("gpu-02", |document| {
        document["kernel"] = "6.5.0".into();
        document["exit_status"] = 2.into();
        document["findings"] = serde_json::json!([
            {"check": "port", "subject": "mlx5_0/1", "severity": "warn", "seen": "slow"},
            {"check": "port", "subject": "mlx5_1/1", "severity": "fail", "seen": "down"},
        ]);
    });
    let list = fleet.path("hosts");
    fs::write(&list, "gpu-01\ngpu-02 # rack 2\ngpu-03\n").unwrap();
    let output = fleet.run(&["--fleet", list.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}{}", text(&output.stderr));
    let row = said.lines().find(|line| line.starts_with("gpu-02")).unwrap();
    assert!(row.contains("fail") && row.contains("port mlx5_1/1: down; 1 more"), "{said}");
    assert!(said.contains("differs: kernel: 6.5.0 on gpu-02; 2 hosts have 6.8.0"), "{said}");
    assert!(said.contains("3 of 3 hosts answered"), "{said}");

    let output = fleet.run(&["--fleet", "gpu-01,gpu-02,gpu-03", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["shape"], &document["exit_status"]), (&1.into(), &2.into()));
    assert_eq!(document["differences"][0]["odd"][0]["hosts"], serde_json::json!(["gpu-02"]));
    assert_eq!(document["hosts"][1]["problems"][0]["seen"], "down");

    let alike = fleet.run(&["--fleet", "gpu-01,gpu-03"]);
    assert_eq!(alike.status.code(), Some(0), "{}", text(&alike.stdout));
    assert!(text(&alike.stdout).contains("no difference"), "{}", text(&alike.stdout));
    let differ = fleet.run(&["--fleet", "gpu-01,gpu-02", "--json"]);
    let document: Value = serde_json::from_slice(&differ.stdout).unwrap();
    assert!(document["differences"][0]["usual"].is_null(), "one against one: neither is odd");
}

#[test]
fn hosts_that_do_not_answer_are_named_and_the_others_shown() {
    let fleet = FakeFleet::new();
    fleet.add_host("gpu-01", |_| {});
    let hosts = "gone,slow,loud,rude,gpu-01";
    let output = fleet.run(&["--fleet", hosts, "--host-deadline", "30s"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let row = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(
        row("gone").contains("No route to host") && row("gone").contains("BatchMode"),
        "{said}"
    );
    assert!(row("slow").contains("no end within 30s"), "{said}");
    assert!(row("loud").contains("it printed more than 4194304 bytes"), "{said}");
    assert!(row("rude").contains("said no document: ?[2Jbad"), "{said:?}");
    assert!(row("gpu-01").contains("ok"), "{said}");
    assert!(said.contains("1 of 5 hosts answered"), "{said}");
}

#[test]
fn no_more_hosts_are_asked_at_once_than_allowed() {
    let fleet = FakeFleet::new();
    let names: Vec<String> = (1..=8).map(|number| format!("gpu-{number:02}")).collect();
    names.iter().for_each(|name| fleet.add_host(name, |_| {}));
    let output = fleet.run(&["--fleet", &names.join(","), "--at-once", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let counts = fs::read_to_string(fleet.path("counts")).unwrap();
    let counts: Vec<u32> = counts.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(counts.len(), 8);
    assert!(counts.iter().all(|count| *count <= 2), "{counts:?}");
}

#[test]
fn what_is_no_name_never_reaches_ssh() {
    let fleet = FakeFleet::new();
    for hosts in ["-oProxyCommand=touch x", "gpu-01,-lroot", "a;b", "$(id)", "me@-x", ","] {
        let output = fleet.run(&[&format!("--fleet={hosts}")]);
        assert_eq!(output.status.code(), Some(2), "{hosts}");
        assert!(text(&output.stderr).contains("no host"), "{}", text(&output.stderr));
    }
    assert_eq!(fleet.calls(), "");
}

#[test]
fn ssh_asks_nothing_and_gets_the_command_as_one_word() {
    let fleet = FakeFleet::new();
    let program = env!("CARGO_BIN_EXE_verbs3");
    let output =
        fleet.run(&["--fleet", "me@here", "--remote-program", program, "--host-deadline", "2m"]);
    let said = text(&output.stdout);
    assert!(output.status.code() <= Some(2) && said.contains("1 of 1 hosts answered"), "{said}");
    let calls = fleet.calls();
    assert!(calls.contains("[-o][BatchMode=yes]"), "{calls}");
    assert!(calls.ends_with(&format!("[--][me@here]['{program}' 'doctor' '--json']\n")), "{calls}");

    let missing = fleet.run(&["--fleet", "here", "--remote-program", "no such; touch x"]);
    let said = text(&missing.stdout);
    assert!(said.contains("no such; touch x can't be run there"), "{said}");
}

/// `VERBS3_TEST_SSHD` is a folder with `ssh`, a program that reaches a real sshd of this machine.
#[test]
#[ignore = "needs an sshd: VERBS3_TEST_SSHD is a folder with an `ssh` that reaches it as 127.0.0.1"]
fn a_real_sshd_gives_the_same_table() {
    let folder = std::env::var("VERBS3_TEST_SSHD").unwrap();
    let mut command = verbs3();
    command.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
    let program = env!("CARGO_BIN_EXE_verbs3");
    command.args(["doctor", "--fleet", "127.0.0.1,localhost", "--host-deadline", "2m"]);
    let output = command.args(["--remote-program", program]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("2 of 2 hosts answered"), "{said}{}", text(&output.stderr));
    assert!(said.contains("no difference"), "{said}");
}

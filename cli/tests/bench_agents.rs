//! `verbs3 bench s3 --agents`: a real `verbs3 dev`, and agents that a fake `ssh` on PATH starts here.
//! The protocol itself is held by the tests of `verbs3_loadtest::agents`.
#![allow(clippy::unwrap_used)]

mod processes;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use processes::{Process, dev_key, text, verbs3, write_config};
use serde_json::Value;

/// Runs what it is asked to, unless the host's name says otherwise.
const FAKE_SSH: &str = r#"#!/bin/sh
printf '[%s]' "$@" >>"$(dirname "$0")/calls"
while [ "$1" != "--" ]; do shift || exit 98; done
host=$2; shift 2
case $host in
    gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255 ;;
    mute) cat >/dev/null ;;
    cut) exec timeout -s KILL 3 sh -c "$1" ;;
    old) read -r plan; echo '{"failed":{"said":"install the same release"}}' ;;
    *) exec sh -c "$1" ;;
esac
"#;

struct AgentBenchFixture {
    process: Process,
    folder: tempfile::TempDir,
    keys: (String, String),
}

impl AgentBenchFixture {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let small =
            ["--set", "worker.memory.capacity=64MiB", "--set", "gateway.memory.capacity=32MiB"];
        let process = Process::start_dev(folder.path(), "dev", &small);
        let keys = dev_key(&folder.path().join("data"));
        let ssh = folder.path().join("ssh");
        fs::write(&ssh, FAKE_SSH).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        Self { process, folder, keys }
    }

    fn scenario(&self, name: &str, rest: &str) -> PathBuf {
        write_config(self.folder.path(), name, &format!("name = \"{name}\"\n{rest}")).into()
    }

    fn bench(&self, scenario: &Path, hosts: &str, words: &[&str]) -> Output {
        let mut command = verbs3();
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path);
        command.env("AWS_ACCESS_KEY_ID", &self.keys.0).env("AWS_SECRET_ACCESS_KEY", &self.keys.1);
        let url = format!("http://{}/demo", self.process.listen);
        command.args(["bench", "s3", scenario.to_str().unwrap(), "--target", &url, "--json"]);
        command.args(["--agents", hosts, "--remote-program", env!("CARGO_BIN_EXE_verbs3")]);
        command.args(words).output().unwrap()
    }

    fn record(&self, scenario: &Path, hosts: &str, words: &[&str]) -> Value {
        let output = self.bench(scenario, hosts, words);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn two_agents_share_the_fresh_objects_and_one_report() {
    let fixture = AgentBenchFixture::start();
    // Rounds end when their objects are used up.
    let scenario = fixture.scenario(
        "fresh",
        "[objects]\ncount = 12\nbytes = \"64KiB\"\nfresh = true\n[access]\npattern = \"shuffle\"\n\
         [load]\nconnections = 2\n[rounds]\ncount = 2\ntime = \"2m\"\nwarm_up = \"0s\"\n",
    );
    let record = fixture.record(&scenario, "gpu-01,gpu-02", &[]);
    let side = &record["sides"][0];
    for round in side["rounds"].as_array().unwrap() {
        assert_eq!(round["requests"], 12, "each object by one agent: {round:#}");
    }
    assert!(side["all"]["cache"]["hit"].is_null(), "none was read before: {side:#}");
    let agents = record["agents"].as_array().unwrap();
    let names: Vec<_> = agents.iter().map(|agent| agent["host"].as_str().unwrap()).collect();
    assert_eq!(names, ["gpu-01", "gpu-02"]);
    let rates: Vec<f64> =
        agents.iter().map(|agent| agent["all"]["requests_per_second"].as_f64().unwrap()).collect();
    let sum = side["all"]["requests_per_second"].as_f64().unwrap();
    assert!(rates.iter().all(|rate| *rate > 0.0));
    assert!((sum / rates.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{sum}: {rates:?}");
    assert!(record["start_skew_us_max"].as_u64().is_some());

    // The secret went by the pipe.
    let calls = fs::read_to_string(fixture.folder.path().join("calls")).unwrap();
    assert!(
        calls.contains("'bench' 's3' '--agent'") && !calls.contains(&fixture.keys.1),
        "{calls}"
    );

    let again = fixture.scenario(
        "same",
        "[objects]\ncount = 12\nbytes = \"64KiB\"\nfresh = true\n[access]\npattern = \"shuffle\"\n\
         [load]\nconnections = 2\n[rounds]\ncount = 1\ntime = \"2m\"\nwarm_up = \"0s\"\n",
    );
    let record = fixture.record(&again, "gpu-01,gpu-02", &["--same-objects"]);
    assert_eq!(record["sides"][0]["all"]["requests"], 24, "each object by both agents");
}

#[test]
fn agents_that_write_and_read_back_do_not_meet() {
    let fixture = AgentBenchFixture::start();
    let rest = "[objects]\ncount = 8\nbytes = \"20KiB\"\n[access]\npattern = \"write\"\n\
                [load]\nconnections = 2\noperations = 40\n\
                [rounds]\ncount = 1\ntime = \"2m\"\nwarm_up = \"0s\"\n";
    let record = fixture.record(&fixture.scenario("put", rest), "gpu-01,gpu-02", &[]);
    let all = &record["sides"][0]["all"];
    assert_eq!((&all["requests"], &all["wrong_answers"]), (&80.into(), &0.into()), "{all:#}");
    // Eight keys are none for five agents of two connections.
    let few = fixture.bench(&fixture.scenario("few", rest), "a,b,c,d,e", &[]);
    assert_eq!(few.status.code(), Some(2));
    assert!(text(&few.stderr).contains("times the agents"), "{}", text(&few.stderr));
    let same = fixture.bench(&fixture.scenario("same", rest), "a,b", &["--same-objects"]);
    assert_eq!(same.status.code(), Some(2), "{}", text(&same.stderr));
}

#[test]
fn a_lost_agent_fails_the_run_by_its_name() {
    let fixture = AgentBenchFixture::start();
    let scenario = fixture.scenario(
        "long",
        "[objects]\ncount = 4\nbytes = \"4KiB\"\n[access]\npattern = \"uniform\"\n\
         [load]\nconnections = 1\n[rounds]\ncount = 9\ntime = \"20s\"\nwarm_up = \"0s\"\n",
    );
    for (hosts, words, said) in [
        ("gpu-01,gone", &[][..], "agent gone is lost"),
        ("gpu-01,old", &[], "agent old failed: install the same release"),
        ("gpu-01,cut", &[], "agent cut is lost"),
        ("gpu-01,mute", &["--agent-silence", "15s"], "agent mute is lost: nothing was heard"),
    ] {
        let output = fixture.bench(&scenario, hosts, words);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{hosts}: {complaint}");
        assert!(complaint.contains(said), "{hosts}: {complaint}");
        assert!(output.stdout.is_empty(), "no figures of a part: {}", text(&output.stdout));
    }
}

#[test]
fn agents_are_not_mixed_with_what_only_one_host_can_do() {
    let fixture = AgentBenchFixture::start();
    for words in [&["--against", "nginx"][..], &["--pid", "1"], &["--agent"]] {
        let output = fixture.bench(Path::new("hot-4k"), "gpu-01", words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
    let output = fixture.bench(Path::new("hot-4k"), "gpu-01,-oProxyCommand=x", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("can't begin with"), "{}", text(&output.stderr));
    assert!(!fixture.folder.path().join("calls").exists(), "nothing reached ssh");
}

//! A cluster goes from one version to the next, and back, under reads and writes. It begins with
//! `VERBS3_FORMER`, a binary of an earlier version (tests/testbed/upgrade.sh builds one), and
//! processes are replaced in the order of docs/upgrade.md.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use verbs3_tests::history::History;
use verbs3_tests::{Cluster, built_binary, seed};

const WORKERS: usize = 3;
const GATEWAYS: usize = 2;

/// What a binary says of itself: its version, and that of its protocol.
fn version_of(program: &Path) -> String {
    let said = Command::new(program).arg("version").output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

/// Replaces every process. Returns how many.
async fn replace_all(cluster: &mut Cluster, history: &mut History) -> usize {
    cluster.terminate("coordinator-0").await.unwrap();
    cluster.restart_and_wait("coordinator-0").await.unwrap();
    let all_serve = format!("{WORKERS} of {WORKERS} workers serve");
    cluster.status_shows(&[&all_serve]).await.unwrap();
    history.run_for(Duration::from_secs(2)).await;
    for worker in 0..WORKERS {
        let name = format!("worker-{worker}");
        let drain = ["worker", "drain", &name, "--wait"];
        let (status, said) = cluster.command(&drain).await.unwrap();
        assert_eq!(status, Some(0), "{said}");
        cluster.terminate(&name).await.unwrap();
        cluster.restart_and_wait(&name).await.unwrap();
        let (status, said) = cluster.command(&["worker", "undrain", &name]).await.unwrap();
        assert_eq!(status, Some(0), "{said}");
        cluster.status_shows(&[&all_serve]).await.unwrap();
        history.run_for(Duration::from_secs(2)).await;
    }
    for gateway in 0..GATEWAYS {
        let name = format!("gateway-{gateway}");
        cluster.terminate(&name).await.unwrap();
        cluster.restart_and_wait(&name).await.unwrap();
        history.run_for(Duration::from_secs(2)).await;
    }
    1 + WORKERS + GATEWAYS
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a binary of an earlier version: ./verbs3-test upgrade"]
async fn an_upgrade_and_the_way_back_cost_no_wrong_byte() {
    let former = PathBuf::from(std::env::var("VERBS3_FORMER").unwrap());
    let cluster = Cluster::builder().gateways(GATEWAYS).workers(WORKERS).coordinated();
    let cluster = cluster.lease("6s").move_for("800ms").program(former.clone());
    let mut cluster = cluster.start().await.unwrap();
    let current = built_binary().unwrap();
    println!("from {} to {} and back", version_of(&former), version_of(&current));
    let bucket = cluster.bucket("upgrade").await.unwrap();
    let seed = seed::from_environment();
    let mut history = History::start_replacing(&cluster.gateways(), &bucket, seed);
    history.run_until(40, 200).await;
    let mut replaced = 0;
    for (way, program) in [("upgraded", current), ("back", former)] {
        cluster.use_program(program);
        replaced += replace_all(&mut cluster, &mut history).await;
        println!("{way}: {:?}", history.summary());
        let before = history.summary();
        history.run_until(before.writes + 40, before.reads + 200).await;
    }
    let summary = history.end().await;
    println!("{replaced} processes replaced, {summary:?}: no stale and no mixed read");
    summary.bound_by(replaced);
    cluster.stop().await.unwrap();
}

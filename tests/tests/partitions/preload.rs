//! A preload job whose leader, worker and store of progress die in the middle of it: it ends
//! complete, and the UFS sends again only what died with the worker.

use std::process::Output;
use std::time::Duration;

use verbs3_tests::metrics::eventually;
use verbs3_tests::spread_cluster::{Size, SpreadCluster};
use verbs3_tests::{content, hosts, progress};

use super::SECOND;
use super::troubles::Takeover;

const OBJECTS: usize = 40;
const BYTES: usize = 1_000_000;
const BANDWIDTH: usize = 5 << 19;

/// The job, as whoever leads says of it, once somebody does.
async fn job(cluster: &SpreadCluster) -> serde_json::Value {
    let mut found = None;
    let ask = async || {
        let (status, said) =
            cluster.command(&["preload", "show", "night", "--json"]).await.unwrap();
        found = said.lines().find_map(|line| serde_json::from_str(line).ok());
        if found.is_some() { Ok(()) } else { Err(format!("{status:?}: {said}")) }
    };
    eventually(180 * SECOND, ask).await.unwrap();
    found.unwrap()
}

fn number(value: &serde_json::Value, name: &str) -> u64 {
    value[name].as_u64().unwrap()
}

/// Waits until so much of the whole, in hundredths, was gone through since the job was taken up
/// last.
async fn is_through(cluster: &SpreadCluster, hundredths: usize) {
    for _ in 0..6000 {
        let job = job(cluster).await;
        let counters = &job["counters"];
        let through = number(counters, "bytes_loaded") + number(counters, "bytes_held");
        assert!(
            job["state"] == "running" || job["state"] == "queued",
            "it ended before the next trouble: {job}"
        );
        if through >= (hundredths * OBJECTS * BYTES / 100) as u64 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    panic!("the job does not go on: {}", job(cluster).await);
}

/// What workers have taken from the UFS.
async fn filled(cluster: &SpreadCluster, names: &[String]) -> f64 {
    let mut bytes = 0.0;
    for name in names {
        bytes += cluster.metrics(name).await.unwrap().sum("verbs3_worker_filled_bytes_total", &[]);
    }
    bytes
}

/// Kills the leader, a worker with its disk, and etcd, each in the middle of the job. What the
/// worker had loaded.
async fn leader_worker_and_etcd_die(cluster: &mut SpreadCluster) -> f64 {
    is_through(cluster, 20).await;
    let leader = cluster.leader(None).await.unwrap();
    let taken_over = Takeover::begins();
    cluster.kill(&leader).unwrap();
    let next = taken_over.took_over_in_time(cluster, &leader).await;
    cluster.restart(&leader).unwrap();

    is_through(cluster, 40).await;
    let lost = filled(cluster, &["worker-1".to_owned()]).await;
    cluster.kill("worker-1").unwrap();
    cluster.empty_disk("worker-1").unwrap();
    cluster.restart("worker-1").unwrap();

    is_through(cluster, 60).await;
    let host = format!("{}:9500", cluster.network.address(&next).unwrap());
    let streamed = progress::follow(cluster.secret(), &host, "night").await.unwrap();
    // So that the stream has more than one line.
    is_through(cluster, 65).await;
    cluster.kill("etcd").unwrap();
    // Who leads no more tells nothing more: the stream ends by itself, and does not say that the
    // job is over.
    let lines = tokio::time::timeout(180 * SECOND, streamed).await.unwrap().unwrap().unwrap();
    assert!(lines.len() >= 2, "{lines:?}");
    assert!(
        lines.iter().all(|line| line["id"] == "night" && line["state"] == "running"),
        "{lines:?}"
    );
    assert!(cluster.log(&next).contains("leads no more"));
    cluster.restart("etcd").unwrap();
    lost
}

/// The command ended well, and the job that it followed is complete.
fn is_complete(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{told}");
    let job: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&job["state"], number(&job["failures"], "count")), (&"done".into(), 0), "{job}");
    // Once by the other coordinator, and once when etcd was there again.
    assert!(number(&job, "resumed") >= 2, "{job}");
    let counters = &job["counters"];
    assert_eq!(
        (number(counters, "objects_checked"), number(counters, "objects_compared")),
        (40, 40),
        "{job}"
    );
    assert_eq!(
        (number(counters, "objects_missing"), number(counters, "bytes_missing")),
        (0, 0),
        "{job}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes networks: stage cluster of verbs3-test"]
async fn a_job_completes_though_leader_worker_and_etcd_die_midway() {
    if !hosts::alone("preload::a_job_completes_though_leader_worker_and_etcd_die_midway") {
        return;
    }
    let mut cluster =
        SpreadCluster::start_patient(Size { coordinators: 2, workers: 3, gateways: 1 })
            .await
            .unwrap();
    cluster.make_bucket("set").await.unwrap();
    let client = cluster.gateways[0].client.clone();
    let keys: Vec<String> = (0..OBJECTS).map(|number| format!("k{number:03}")).collect();
    for key in &keys {
        let put =
            client.put_object().bucket("set").key(key).body(content::body(key, 1, BYTES).into());
        put.send().await.unwrap();
    }
    let sent_before = cluster.sent_by_store().await.unwrap();
    let bandwidth = format!("{BANDWIDTH}B");
    let words = [
        "preload",
        "s3://set/k",
        "--id",
        "night",
        "--bandwidth",
        &bandwidth,
        "--verify",
        "--follow",
        "--json",
    ];
    let following = tokio::spawn(cluster.begin(&words).unwrap().wait_with_output());
    let is_there = async || match cluster.command(&["preload", "ls"]).await.unwrap() {
        (_, said) if said.contains("night") || following.is_finished() => Ok(()),
        (status, said) => Err(format!("{status:?}: {said}")),
    };
    eventually(180 * SECOND, is_there).await.unwrap();
    assert!(!following.is_finished(), "the command has ended: {:?}", following.await);

    let lost = leader_worker_and_etcd_die(&mut cluster).await;
    let output = tokio::time::timeout(300 * SECOND, following).await.unwrap().unwrap().unwrap();
    is_complete(&output);

    // Everything once, again what died with a worker and its disk, and what was under way at each
    // death: no more than a second's worth.
    let (sent, whole) =
        (cluster.sent_by_store().await.unwrap() - sent_before, (OBJECTS * BYTES) as f64);
    println!("the store sent {sent} bytes for {whole}, of which {lost} were lost with a worker");
    assert!(sent >= whole, "less than all was loaded");
    assert!(
        sent <= whole + lost + (3 * BANDWIDTH) as f64,
        "{sent} bytes for {whole} and {lost} lost ones"
    );

    // It is all there: reads are not the store's affair any more, but for one that a slow machine
    // may have hedged.
    for key in &keys {
        let answer = client.get_object().bucket("set").key(key).send().await.unwrap();
        let bytes = answer.body.collect().await.unwrap().into_bytes();
        content::check(key, 1, 0, &bytes).unwrap();
        assert_eq!(bytes.len(), BYTES);
    }
    let again = cluster.sent_by_store().await.unwrap() - sent_before - sent;
    assert!(again <= BYTES as f64, "reads took {again} bytes from the store");
}

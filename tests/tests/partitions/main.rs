//! A coordinated cluster over etcd, each process on a host of its own: networks are cut, leaders
//! and etcd die, clocks jump, and coherence holds all the time. Stage `cluster` of verbs3-test.
#![allow(clippy::unwrap_used)]

mod preload;
mod put_back;
mod troubles;

use std::time::{Duration, Instant};

use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use rand::RngExt;
use verbs3_tests::history::{History, Writes};
use verbs3_tests::metrics::eventually;
use verbs3_tests::spread_cluster::{PREFIX, Size, SpreadCluster, etcd_coordinator_section};
use verbs3_tests::{Gateway, content, hosts, seed};

use troubles::{TROUBLES, Takeover, cut_both, make_trouble};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes networks: stage cluster of verbs3-test"]
async fn reads_see_acknowledged_writes_while_networks_are_cut() {
    if !hosts::alone("reads_see_acknowledged_writes_while_networks_are_cut") {
        return;
    }
    let seed = seed::from_environment();
    let mut rng = seed::rng(seed, 77);
    let mut cluster =
        SpreadCluster::start(Size { coordinators: 2, workers: 3, gateways: 3 }).await.unwrap();
    let bucket = "partitions";
    cluster.make_bucket(bucket).await.unwrap();
    let mut history = History::start(&cluster.gateways, bucket, seed, Writes::MayFail);
    history.run_for(2 * SECOND).await;
    // Each at least once, in an order of chance.
    let mut order = TROUBLES.to_vec();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.random_range(0..=at));
    }
    let rounds = seed::rounds(order.len());
    for round in 0..rounds {
        let what = order[round % order.len()];
        println!("round {round}: {what:?}");
        let began = Instant::now();
        make_trouble(&mut cluster, &mut history, what, &mut rng).await;
        println!("    {:.1} s", began.elapsed().as_secs_f64());
    }
    history.run_until(50, 200).await;
    let summary = history.end().await;
    println!("{summary:?}: no stale and no mixed read");
    summary.bound_by(rounds);
    for worker in cluster.hosts("worker") {
        let metrics = cluster.metrics(&worker).await.unwrap();
        println!(
            "{worker}: disk full {}",
            metrics.sum("verbs3_disk_errors_total", &["kind=\"full\""])
        );
    }
}

/// The version that a gateway shows of a key, whose bytes are right; `None`: no such object.
async fn version_seen(gateway: &Gateway, bucket: &str, key: &str) -> Option<u64> {
    let answer = match gateway.client.get_object().bucket(bucket).key(key).send().await {
        Ok(answer) => answer,
        Err(error) => {
            let status = error.raw_response().map(|raw| raw.status().as_u16());
            assert_eq!(status, Some(404), "{key} through {}: {error:?}", gateway.endpoint);
            return None;
        }
    };
    let version = answer.metadata().unwrap()["version"].parse().unwrap();
    let bytes = answer.body.collect().await.unwrap().into_bytes();
    content::check(key, version, 0, &bytes).unwrap();
    Some(version)
}

async fn write_version(gateway: &Gateway, bucket: &str, key: &str, version: u64) {
    let put = gateway
        .client
        .put_object()
        .bucket(bucket)
        .key(key)
        .metadata("version", version.to_string());
    let written = put.body(content::body(key, version, 5000).into()).send().await;
    written.unwrap_or_else(|error| {
        panic!("{key} version {version} through {}: {error:?}", gateway.endpoint)
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes networks: stage cluster of verbs3-test"]
async fn a_gateway_cut_from_a_worker_writes_through_the_coordinators() {
    if !hosts::alone("a_gateway_cut_from_a_worker_writes_through_the_coordinators") {
        return;
    }
    let seed = seed::from_environment();
    let mut cluster =
        SpreadCluster::start_patient(Size { coordinators: 2, workers: 3, gateways: 3 })
            .await
            .unwrap();
    let bucket = "relays";
    cluster.make_bucket(bucket).await.unwrap();
    let gateways = cluster.gateways.clone();
    let (gateway, others) = gateways.split_first().unwrap();
    let keys: Vec<String> = (0..24).map(|n| format!("k-{n}")).collect();
    for key in &keys {
        write_version(&others[0], bucket, key, 1).await;
        // From here on its home knows it, and would say so for an hour.
        for other in others {
            assert_eq!(version_seen(other, bucket, key).await, Some(1));
        }
    }

    let (from, to) = (["gateway-0".to_owned()], ["worker-0".to_owned()]);
    cut_both(&mut cluster, &from, &to);
    for version in 2..4 {
        for key in &keys {
            write_version(gateway, bucket, key, version).await;
            for reader in &gateways {
                let seen = version_seen(reader, bucket, key).await;
                assert_eq!(seen, Some(version), "{key} through {} is stale", reader.endpoint);
            }
        }
    }
    let relayed = async |cluster: &SpreadCluster, kind: &str| {
        let metrics = cluster.metrics("gateway-0").await.unwrap();
        metrics
            .sum("verbs3_client_relays_total", &[&format!("kind=\"{kind}\""), "outcome=\"done\""])
    };
    let (announced, reported) =
        (relayed(&cluster, "announce").await, relayed(&cluster, "report").await);
    println!("{announced} announcements and {reported} reports of 48 writes were relayed");
    assert!(
        announced >= 2.0 && reported >= 2.0,
        "no key has worker-0 for its home, or it was reached"
    );
    let heard = cluster
        .metrics("worker-0")
        .await
        .unwrap()
        .sum("verbs3_worker_relayed_total", &["outcome=\"done\""]);
    assert!(heard >= announced + reported, "{heard}");

    // Many keys in one message; then writers and readers at once, while the leader dies in the
    // middle of it.
    let name = |key: &String| ObjectIdentifier::builder().key(key).build().unwrap();
    let all = Delete::builder().set_objects(Some(keys.iter().map(name).collect())).build().unwrap();
    let deleted = gateway.client.delete_objects().bucket(bucket).delete(all).send().await.unwrap();
    assert_eq!(deleted.errors(), []);
    for key in &keys {
        for reader in &gateways {
            assert_eq!(
                version_seen(reader, bucket, key).await,
                None,
                "{key} through {}",
                reader.endpoint
            );
        }
    }
    let mut history = History::start(&gateways, bucket, seed, Writes::Succeed);
    history.run_for(2 * SECOND).await;
    let leader = cluster.leader(None).await.unwrap();
    let taken_over = Takeover::begins();
    cluster.kill(&leader).unwrap();
    taken_over.took_over_in_time(&cluster, &leader).await;
    history.run_for(2 * SECOND).await;
    history.run_until(5, 20).await;
    let summary = history.end().await;
    println!("{summary:?}: every write succeeded, no stale and no mixed read");
    summary.bound_by(1);
    let metrics = cluster.metrics("gateway-0").await.unwrap();
    assert_eq!(metrics.sum("verbs3_client_report_failures_total", &[]), 0.0);
    let told =
        cluster.log("gateway-0").matches("is told of writes by way of the coordinators").count();
    assert_eq!(told, 1, "once for each worker, not for each write");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes networks: stage cluster of verbs3-test"]
async fn who_takes_anothers_name_is_told_so_and_disturbs_nobody() {
    if !hosts::alone("who_takes_anothers_name_is_told_so_and_disturbs_nobody") {
        return;
    }
    let mut cluster =
        SpreadCluster::start(Size { coordinators: 2, workers: 2, gateways: 1 }).await.unwrap();
    let gateway = cluster.gateways[0].clone();
    cluster.make_bucket("names").await.unwrap();
    let before =
        cluster.status_shows(&["2 of 2 workers serve", "cluster tests: well"]).await.unwrap();

    // A worker with the id of another, on another host.
    let address =
        |cluster: &SpreadCluster, host: &str| cluster.network.address(host).unwrap().to_string();
    let (theirs, here) = (address(&cluster, "worker-0"), address(&cluster, "gateway-0"));
    let config = cluster.configuration("worker-0").unwrap();
    let (config, _disk) = config.split_once("[[worker.disk").unwrap();
    cluster.launch_other("gateway-0", "worker-9", &config.replace(&theirs, &here)).unwrap();
    let told = format!("worker id worker-0 is held by another process, at {theirs}:9400");
    let is_told = async || {
        if cluster.log("worker-9").contains(&told) { Ok(()) } else { Err(cluster.log("worker-9")) }
    };
    eventually(180 * SECOND, is_told).await.unwrap();
    assert_eq!(gist(&cluster.status_shows(&["cluster tests: well"]).await.unwrap()), gist(&before));

    // A coordinator of another cluster, and one of this name with another secret, at this cluster's
    // prefix.
    let etcd = cluster.etcd().unwrap();
    for (name, shared) in [
        (
            "coordinator-8",
            "name = \"others\"\nsecret = \"a secret of at least sixteen characters\"",
        ),
        ("coordinator-9", "name = \"tests\"\nsecret = \"another secret of sixteen characters\""),
    ] {
        let section = etcd_coordinator_section(&here, &etcd, PREFIX);
        let config =
            format!("[cluster]\n{shared}\ncoordinators = [\"http://{here}:9500\"]\n{section}");
        cluster.launch_other("gateway-0", name, &config).unwrap();
        assert_eq!(cluster.ended(name).await.unwrap(), Some(1), "{}", cluster.log(name));
        let log = cluster.log(name);
        assert!(
            log.contains("belongs to cluster") && log.contains("a prefix or folder of its own"),
            "{log}"
        );
    }
    assert_eq!(gist(&cluster.status_shows(&["cluster tests: well"]).await.unwrap()), gist(&before));
    let body = content::body("k", 1, 5000);
    gateway.client.put_object().bucket("names").key("k").body(body.into()).send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes networks: stage cluster of verbs3-test"]
async fn status_says_what_is_wrong_and_what_to_do() {
    if !hosts::alone("status_says_what_is_wrong_and_what_to_do") {
        return;
    }
    let mut cluster =
        SpreadCluster::start(Size { coordinators: 2, workers: 3, gateways: 1 }).await.unwrap();
    cluster.status_shows(&["cluster tests: well"]).await.unwrap();

    cluster.kill("worker-1").unwrap();
    let gone = [
        "NOT WELL",
        "2 of 3 workers serve",
        "MISSING",
        "worker-1 at",
        "verbs3 worker forget worker-1",
    ];
    cluster.status_shows(&gone).await.unwrap();
    assert_eq!(cluster.status().await.unwrap().0, Some(1));
    let (status, said) = cluster.command(&["worker", "forget", "worker-1"]).await.unwrap();
    assert_eq!(status, Some(0), "{said}");
    cluster.status_shows(&["2 of 2 workers serve", "cluster tests: well"]).await.unwrap();

    // Another leads soon; that one of two is left, a person should know.
    let leader = cluster.leader(None).await.unwrap();
    let taken_over = Takeover::begins();
    cluster.kill(&leader).unwrap();
    let other = taken_over.took_over_in_time(&cluster, &leader).await;
    let url = format!(
        "coordinator http://{}:9500 does not answer; start it again",
        cluster.network.address(&leader).unwrap()
    );
    cluster.status_shows(&["NOT WELL", "2 of 2 workers serve", &url]).await.unwrap();
    cluster.restart(&leader).unwrap();
    cluster.status_shows(&["cluster tests: well"]).await.unwrap();

    cluster.kill("etcd").unwrap();
    let why = [
        "led by nobody",
        "2 workers in map",
        "the store at etcd",
        "Reads go on with the last map",
        "see to etcd",
    ];
    cluster.status_shows(&why).await.unwrap();
    assert_eq!(cluster.status().await.unwrap().0, Some(1));
    // It loses whoever led, and gives nobody a lease.
    assert!(cluster.log(&other).contains("leads no more"), "{}", cluster.log(&other));
    cluster.restart("etcd").unwrap();
    cluster.status_shows(&["2 of 2 workers serve", "cluster tests: well"]).await.unwrap();

    for name in cluster.hosts("coordinator") {
        cluster.kill(&name).unwrap();
    }
    let (status, said) = cluster.status().await.unwrap();
    assert_eq!((status, said.contains("start the coordinators again")), (Some(2), true), "{said}");
}

/// Of a status: who is there and what is in force.
fn gist(status: &str) -> Vec<&str> {
    status.lines().take(2).collect()
}

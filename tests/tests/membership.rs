//! A coordinated cluster: workers and the coordinator come, go, stop and come back, and coherence
//! holds all the time.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use rand::RngExt;
use verbs3_tests::history::{History, Writes};
use verbs3_tests::metrics::eventually;
use verbs3_tests::{Cluster, Gateway, content, seed};

/// More than a machine that is five times slower needs.
const SOON: Duration = Duration::from_secs(120);

/// What is done to the cluster while it is written and read.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    KillWorker,
    /// At once: nobody else has become a home meanwhile, and what it has granted lives on.
    RestartWorker,
    /// It holds leases, and hears of no recall.
    StopGateway,
    /// Longer than its lease, so that it wakes up as a home that is none any more.
    StopWorker,
    EndWorker,
    KillCoordinator,
    Drain,
}

const TROUBLES: [Trouble; 7] = [
    Trouble::KillWorker,
    Trouble::RestartWorker,
    Trouble::StopGateway,
    Trouble::StopWorker,
    Trouble::EndWorker,
    Trouble::KillCoordinator,
    Trouble::Drain,
];

async fn trouble(cluster: &mut Cluster, history: &mut History, what: Trouble, worker: &str) {
    let seconds = Duration::from_secs;
    match what {
        Trouble::KillWorker => {
            cluster.signal(worker, "-KILL").unwrap();
            history.run_for(seconds(3)).await;
            cluster.restart(worker).unwrap();
        }
        Trouble::RestartWorker => {
            cluster.signal(worker, "-KILL").unwrap();
            cluster.restart(worker).unwrap();
        }
        Trouble::StopGateway => {
            cluster.signal("gateway-1", "-STOP").unwrap();
            history.run_for(seconds(3)).await;
            cluster.signal("gateway-1", "-CONT").unwrap();
        }
        Trouble::StopWorker => {
            cluster.signal(worker, "-STOP").unwrap();
            history.run_for(seconds(3)).await;
            cluster.signal(worker, "-CONT").unwrap();
        }
        Trouble::EndWorker => {
            cluster.signal(worker, "-TERM").unwrap();
            history.run_for(seconds(2)).await;
            cluster.signal(worker, "-KILL").unwrap();
            cluster.restart(worker).unwrap();
        }
        Trouble::KillCoordinator => {
            cluster.signal("coordinator-0", "-KILL").unwrap();
            history.run_for(seconds(4)).await;
            cluster.restart("coordinator-0").unwrap();
        }
        Trouble::Drain => {
            // A coordinator that has just come back knows the worker only once that has asked.
            let _ = cluster.command(&["worker", "drain", worker]).await.unwrap();
            history.run_for(seconds(2)).await;
            let _ = cluster.command(&["worker", "undrain", worker]).await.unwrap();
        }
    }
    history.run_for(seconds(2)).await;
}

/// Members are workers and coordinators.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_see_acknowledged_writes_while_members_come_and_go() {
    let seed = seed::from_environment();
    let mut cluster = Cluster::builder()
        .gateways(3)
        .workers(3)
        .coordinated()
        .move_for("800ms")
        .start()
        .await
        .unwrap();
    let bucket = cluster.bucket("membership").await.unwrap();
    let mut history = History::start(&cluster.gateways(), &bucket, seed, Writes::MayFail);
    history.run_for(Duration::from_secs(2)).await;
    cluster.add_worker("worker-3").await.unwrap();
    let mut rng = seed::rng(seed, 77);
    // Each at least once, in an order of chance.
    let mut order: Vec<Trouble> = TROUBLES.to_vec();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.random_range(0..=at));
    }
    let rounds = seed::rounds(order.len());
    for round in 0..rounds {
        let what = order[round % order.len()];
        let worker = format!("worker-{}", rng.random_range(0..4));
        println!("round {round}: {what:?} {worker}");
        trouble(&mut cluster, &mut history, what, &worker).await;
    }
    history.run_until(20, 100).await;
    let summary = history.end().await;
    println!("{summary:?}: no stale and no mixed read");
    summary.bound_by(rounds);
    cluster.status_shows(&["4 of 4 workers serve"]).await.unwrap();
}

async fn put(gateway: &Gateway, bucket: &str, key: &str, version: u64) -> Result<(), String> {
    let body = content::body(key, version, 5000);
    let put = gateway.client.put_object().bucket(bucket).key(key).body(body.into()).send().await;
    put.map(|_| ()).map_err(|error| format!("{error:?}"))
}

async fn version_seen(
    gateway: &Gateway,
    bucket: &str,
    key: &str,
    versions: std::ops::RangeInclusive<u64>,
) -> u64 {
    let answer = gateway.client.get_object().bucket(bucket).key(key).send().await.unwrap();
    let bytes = answer.body.collect().await.unwrap().into_bytes();
    versions.into_iter().find(|&version| content::check(key, version, 0, &bytes).is_ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_coordinator_reads_and_writes_use_the_last_map() {
    let cluster = Cluster::builder().gateways(2).workers(2).coordinated().start().await.unwrap();
    let bucket = cluster.bucket("outage").await.unwrap();
    let gateways = cluster.gateways();
    for key in 0..8 {
        put(&gateways[0], &bucket, &format!("k{key}"), 1).await.unwrap();
        version_seen(&gateways[1], &bucket, &format!("k{key}"), 1..=1).await;
    }
    cluster.signal("coordinator-0", "-KILL").unwrap();
    // Past every lease: what the homes know is good for nothing then, and yet they stand by their
    // map.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for key in 0..8 {
        let key = format!("k{key}");
        // On a busy machine a home may take longer than its gateway has patience: then this is
        // asked again.
        eventually(SOON, async || put(&gateways[0], &bucket, &key, 2).await).await.unwrap();
        assert_eq!(version_seen(&gateways[1], &bucket, &key, 1..=2).await, 2);
    }
    // A member that can't say that it stands by the map may know of another one.
    cluster.signal("worker-0", "-STOP").unwrap();
    let mut refused = 0;
    for key in 0..2 {
        refused += usize::from(put(&gateways[0], &bucket, &format!("k{key}"), 3).await.is_err());
        let seen = version_seen(&gateways[1], &bucket, &format!("k{key}"), 1..=3).await;
        assert!(seen >= 2);
    }
    assert_eq!(refused, 2);
    cluster.signal("worker-0", "-CONT").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workers_death_delays_its_own_writes_and_nothing_else() {
    let mut cluster =
        Cluster::builder().gateways(1).workers(2).coordinated().start().await.unwrap();
    let bucket = cluster.bucket("death").await.unwrap();
    let gateway = cluster.gateways().remove(0);
    for key in 0..10 {
        put(&gateway, &bucket, &format!("k{key}"), 1).await.unwrap();
    }
    cluster.signal("worker-1", "-KILL").unwrap();
    let began = Instant::now();
    for key in 0..10 {
        let key = format!("k{key}");
        eventually(SOON, async || put(&gateway, &bucket, &key, 2).await).await.unwrap();
        assert_eq!(version_seen(&gateway, &bucket, &key, 1..=2).await, 2);
    }
    println!("ten writes took {:?} around a worker's death", began.elapsed());
    cluster
        .status_shows(&[
            "1 of 2 workers serve",
            "worker-1 at",
            "went without a word",
            "fewer than 2 replicas",
        ])
        .await
        .unwrap();
    cluster.restart("worker-1").unwrap();
    cluster.status_shows(&["2 of 2 workers serve", "cluster tests: well"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_worker_owns_nothing_and_says_when_to_stop_it() {
    let cluster = Cluster::builder()
        .gateways(1)
        .workers(2)
        .coordinated()
        .move_for("800ms")
        .start()
        .await
        .unwrap();
    let (status, said) = cluster.command(&["worker", "drain", "worker-0", "--wait"]).await.unwrap();
    assert!(
        status == Some(0) && said.contains("worker-0 owns nothing any more and may be stopped"),
        "{said}"
    );
    cluster
        .status_shows(&["worker worker-0 owns nothing any more and may be stopped"])
        .await
        .unwrap();
    let bucket = cluster.bucket("drain").await.unwrap();
    let gateway = cluster.gateways().remove(0);
    cluster.signal("worker-0", "-TERM").unwrap();
    eventually(SOON, async || put(&gateway, &bucket, "k", 1).await).await.unwrap();
    assert_eq!(version_seen(&gateway, &bucket, "k", 1..=1).await, 1);
    // The last one has nobody to leave anything to, and that is not waited for.
    let (status, said) = cluster.command(&["worker", "drain", "worker-1", "--wait"]).await.unwrap();
    assert!(status == Some(1) && said.contains("no other worker is there to take them"), "{said}");
    let (status, said) = cluster.command(&["worker", "drain", "nobody"]).await.unwrap();
    assert_eq!((status, said.contains("nobody is not registered")), (Some(1), true), "{said}");
}

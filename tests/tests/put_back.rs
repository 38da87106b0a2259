//! The coordinators' store is put back to an older copy, or emptied, beside live workers and
//! gateways, under reads and overwrites.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::time::Duration;

use verbs3_tests::folder_copy::copy_folder;
use verbs3_tests::history::{History, Writes};
use verbs3_tests::metrics::eventually;
use verbs3_tests::{Cluster, content, seed};

/// More than a machine that is five times slower needs.
const SOON: Duration = Duration::from_secs(120);
const KEYS: u64 = 24;

/// Every key can be written through one gateway, and every gateway shows what was written.
async fn is_written_and_seen(cluster: &Cluster, bucket: &str, version: u64) {
    let gateways = cluster.gateways();
    for key in 0..KEYS {
        let name = format!("k{key}");
        let writer = &gateways[key as usize % gateways.len()].client;
        let write = async || {
            let body = content::body(&name, version, 5000);
            let put = writer.put_object().bucket(bucket).key(&name).body(body.into());
            put.send().await.map(drop).map_err(|error| format!("{name}: {error:?}"))
        };
        eventually(SOON, write).await.unwrap();
        for gateway in &gateways {
            let get = gateway.client.get_object().bucket(bucket).key(&name);
            let bytes = get.send().await.unwrap().body.collect().await.unwrap().into_bytes();
            content::check(&name, version, 0, &bytes)
                .unwrap_or_else(|wrong| panic!("{name} through {}: {wrong:?}", gateway.endpoint));
        }
    }
}

async fn epoch(cluster: &Cluster) -> f64 {
    cluster.metrics("coordinator-0").await.unwrap().sum("verbs3_coordinator_epoch", &[])
}

/// All processes place by the coordinator's map: no gateway is told another epoch by a worker.
async fn all_agree(cluster: &Cluster, workers: usize) {
    cluster
        .status_shows(&[&format!("{workers} of {workers} workers serve"), "cluster tests: well"])
        .await
        .unwrap();
    let all = (0..workers).map(|worker| format!("worker-{worker}"));
    for name in all.chain((0..cluster.gateways().len()).map(|gateway| format!("gateway-{gateway}")))
    {
        // A lease that was missed brings another map.
        let follows = async || {
            let now = format!("\"epoch\":{},", epoch(cluster).await);
            let log = cluster.log(&name);
            let told = |line: &&str| line.contains("placement map") && line.contains("\"epoch\":");
            let last = log.lines().rfind(told).unwrap_or_default().to_owned();
            if last.contains(&now) { Ok(()) } else { Err(format!("{name}, not {now}: {last}")) }
        };
        eventually(SOON, follows).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_store_that_is_put_back_costs_no_stale_byte() {
    let seed = seed::from_environment();
    let cluster = Cluster::builder().gateways(2).workers(2).coordinated();
    // Long enough that no lease is missed but by what the test does.
    let mut cluster = cluster.lease("6s").start().await.unwrap();
    let bucket = cluster.bucket("putback").await.unwrap();
    let mut history = History::start(&cluster.gateways(), &bucket, seed, Writes::MayFail);
    history.run_for(Duration::from_secs(1)).await;

    let (store, copies) = (cluster.coordinator_store(), tempfile::tempdir().unwrap());
    let copy = copies.path().join("copy");
    cluster.kill("coordinator-0").unwrap();
    copy_folder(&store, &copy);
    cluster.restart_and_wait("coordinator-0").await.unwrap();
    let mut workers = 2;
    // The copy, nothing, and the copy again: each time other workers have joined since.
    for (round, kept) in [Some(&copy), None, Some(&copy)].into_iter().enumerate() {
        cluster.add_worker(&format!("worker-{workers}")).await.unwrap();
        workers += 1;
        all_agree(&cluster, workers).await;
        is_written_and_seen(&cluster, &bucket, 2 * round as u64 + 1).await;
        let before = epoch(&cluster).await;

        cluster.kill("coordinator-0").unwrap();
        fs::remove_dir_all(&store).unwrap();
        match kept {
            Some(copy) => copy_folder(copy, &store),
            None => fs::create_dir(&store).unwrap(),
        }
        cluster.restart_and_wait("coordinator-0").await.unwrap();
        // From the first moment on.
        is_written_and_seen(&cluster, &bucket, 2 * round as u64 + 2).await;
        all_agree(&cluster, workers).await;
        let after = epoch(&cluster).await;
        assert!(after > before, "{after} follows {before}");
        let metrics = cluster.metrics("coordinator-0").await.unwrap();
        assert_eq!(metrics.sum("verbs3_coordinator_maps_lost_total", &[]), 1.0);
        let log = cluster.log("coordinator-0");
        let told = log.matches("a map that the store does not hold").count();
        assert_eq!(told, round + 1, "{log}");
    }
    history.run_until(20, 100).await;
    let summary = history.end().await;
    println!("{summary:?}: no stale and no mixed read");
}

//! A snapshot of etcd is restored while gateways and workers go on: its map is older than theirs.

use verbs3_tests::history::{History, Writes};
use verbs3_tests::metrics::eventually;
use verbs3_tests::spread_cluster::{Size, SpreadCluster};
use verbs3_tests::{hosts, seed};

use super::{SECOND, version_seen, write_version};

const BUCKET: &str = "putback";
const KEYS: u64 = 12;

/// The highest epoch that a coordinator tells, and how many lost maps they have heard of.
async fn epoch_and_losses(cluster: &SpreadCluster) -> Result<(f64, f64), String> {
    let (mut epoch, mut losses) = (0.0_f64, 0.0);
    for name in cluster.hosts("coordinator") {
        let metrics = cluster.metrics(&name).await.map_err(|error| error.to_string())?;
        epoch = epoch.max(metrics.sum("verbs3_coordinator_epoch", &[]));
        losses += metrics.sum("verbs3_coordinator_maps_lost_total", &[]);
    }
    Ok((epoch, losses))
}

async fn all_serve(cluster: &SpreadCluster) {
    cluster.status_shows(&["3 of 3 workers serve"]).await.unwrap();
}

/// Every key is written through one gateway, and seen through the others at once.
async fn is_written_and_seen(cluster: &SpreadCluster, version: u64) {
    for number in 0..KEYS {
        let key = format!("k-{number}");
        let (writer, readers) = cluster.gateways.split_first().unwrap();
        write_version(writer, BUCKET, &key, version).await;
        for reader in readers {
            let seen = version_seen(reader, BUCKET, &key).await;
            assert_eq!(seen, Some(version), "{key} through {} is stale", reader.endpoint);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes networks: stage cluster of verbs3-test"]
async fn a_restored_snapshot_of_etcd_costs_no_stale_byte() {
    if !hosts::alone("put_back::a_restored_snapshot_of_etcd_costs_no_stale_byte") {
        return;
    }
    let size = Size { coordinators: 2, workers: 3, gateways: 3 };
    let mut cluster = SpreadCluster::start_patient(size).await.unwrap();
    for bucket in [BUCKET, "history"] {
        cluster.make_bucket(bucket).await.unwrap();
    }
    is_written_and_seen(&cluster, 1).await;
    let seed = seed::from_environment();
    let mut history = History::start(&cluster.gateways, "history", seed, Writes::MayFail);
    history.run_for(SECOND).await;
    cluster.save_etcd("snapshot.db").unwrap();

    // Maps that the snapshot does not have: without the worker, and with it again.
    let (saved, _) = epoch_and_losses(&cluster).await.unwrap();
    cluster.kill("worker-2").unwrap();
    let later = async || match epoch_and_losses(&cluster).await? {
        (epoch, _) if epoch > saved => Ok(epoch),
        (epoch, _) => Err(format!("the map is {epoch} still")),
    };
    eventually(180 * SECOND, later).await.unwrap();
    cluster.restart("worker-2").unwrap();
    all_serve(&cluster).await;
    let (before, _) = epoch_and_losses(&cluster).await.unwrap();
    is_written_and_seen(&cluster, 2).await;

    for name in ["coordinator-0", "coordinator-1", "etcd"] {
        cluster.kill(name).unwrap();
    }
    cluster.restore_etcd("snapshot.db").unwrap();
    for name in ["etcd", "coordinator-0", "coordinator-1"] {
        cluster.restart(name).unwrap();
    }
    let replaced = async || match epoch_and_losses(&cluster).await? {
        (epoch, losses) if epoch > before && losses > 0.0 => Ok(()),
        (epoch, losses) => Err(format!("the map is {epoch} after {before}; {losses} were lost")),
    };
    eventually(180 * SECOND, replaced).await.unwrap();
    all_serve(&cluster).await;
    is_written_and_seen(&cluster, 3).await;
    history.run_until(20, 100).await;
    println!("{:?}: no stale and no mixed read", history.end().await);
}

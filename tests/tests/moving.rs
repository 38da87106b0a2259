//! Blocks move with their slots: a worker that joins, leaves or is restarted costs the object store
//! nothing that some worker had.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use verbs3_tests::metrics::eventually;
use verbs3_tests::{Cluster, Gateway, Section, content, reading, seed};

const OBJECTS: u64 = 40;

/// Some of one block, some of several.
fn length(object: u64) -> usize {
    if object.is_multiple_of(8) { 5_500_000 } else { 300_000 + object as usize }
}

fn all_bytes() -> u64 {
    (0..OBJECTS).map(|object| length(object) as u64).sum()
}

/// Generous: the machine may be busy with other tests.
const WITHIN: Duration = Duration::from_secs(120);

/// No bound on time is met, however slow the machine: what is asked of the store then says where
/// blocks were looked for. With the default of `map_wait`, a busy machine read 0.5 to 2 % of a
/// rolling restart's bytes at the store, all of it opens that had waited so long for the next map.
async fn start(gateways: usize, workers: usize) -> (Cluster, String) {
    let patient =
        "[worker.neighbours]\nwait_max = \"10s\"\nsilence_max = \"10s\"\ndeadline = \"60s\"";
    let unhedged =
        "[gateway.tier]\nhedge_after = \"19s\"\nfirst_progress = \"20s\"\nmap_wait = \"30s\"";
    // Longer than a worker takes to compute two maps, or it is lost and comes back.
    let cluster = Cluster::builder()
        .gateways(gateways)
        .workers(workers)
        .coordinated()
        .lease("5s")
        .move_for("800ms");
    let cluster = cluster.worker_memory("192MiB");
    let cluster = cluster.settings(Section::Worker, patient).settings(Section::Gateway, unhedged);
    let cluster = cluster.start().await.unwrap();
    let bucket = cluster.bucket("moving").await.unwrap();
    let client = cluster.store();
    for object in 0..OBJECTS {
        let key = format!("k{object}");
        let body = content::body(&key, 1, length(object));
        client.put_object().bucket(&bucket).key(&key).body(body.into()).send().await.unwrap();
    }
    (cluster, bucket)
}

async fn read(gateway: &Gateway, bucket: &str, object: u64) {
    let key = format!("k{object}");
    let seen = reading::get(&reading::once(&gateway.client), bucket, &key).await;
    seen.is_whole(&key, 1, length(object)).unwrap();
}

/// Reads everything for the first time. The bytes that the store has sent then.
async fn read_cold(cluster: &Cluster, bucket: &str) -> u64 {
    read_all(&cluster.gateways()[0], bucket).await;
    // The store counts a body once it is sent.
    eventually(WITHIN, async || match sent_by_store(cluster).await {
        cold if cold >= all_bytes() => Ok(cold),
        cold => Err(format!("the store has sent {cold} bytes of {}", all_bytes())),
    })
    .await
    .unwrap()
}

async fn read_all(gateway: &Gateway, bucket: &str) {
    for object in 0..OBJECTS {
        read(gateway, bucket, object).await;
    }
}

async fn sent_by_store(cluster: &Cluster) -> u64 {
    cluster.sent_by_store().await.unwrap() as u64
}

/// Nothing was read from the store again, not the smallest object.
async fn assert_nothing_again(cluster: &Cluster, cold: u64) {
    let again = sent_by_store(cluster).await - cold;
    assert!(again < 100_000, "the store was asked for {again} bytes that some worker had");
}

/// Of these, what gateways read by themselves: while a home is between two maps, they ask the
/// store.
async fn sent_to_gateways(cluster: &Cluster) -> u64 {
    cluster.sum_of("gateway", "verbs3_read_ufs_bytes_total", &[]).await.unwrap() as u64
}

async fn taken_over(cluster: &Cluster, worker: &str) -> f64 {
    let metrics = cluster.metrics(worker).await.unwrap();
    metrics.sum("verbs3_worker_former_bytes_total", &["direction=\"taken\""])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_joins_takes_its_blocks_from_those_who_had_them() {
    let (mut cluster, bucket) = start(1, 2).await;
    let gateway = cluster.gateways().remove(0);
    let cold = read_cold(&cluster, &bucket).await;
    cluster.add_worker("worker-2").await.unwrap();
    cluster.status_shows(&["3 of 3 workers serve"]).await.unwrap();
    // The gateway may hear of the map a moment later.
    for _ in 0..100 {
        read_all(&gateway, &bucket).await;
        if taken_over(&cluster, "worker-2").await > 0.0 {
            break;
        }
    }
    read_all(&gateway, &bucket).await;
    let taken = taken_over(&cluster, "worker-2").await;
    println!("worker-2 took {taken} of {} bytes from the others", all_bytes());
    // Its share is a third; of so few blocks, whose places are drawn anew in each run, it may be
    // one.
    assert!(taken > 0.0, "of a third of the blocks, nothing was taken over");
    assert_nothing_again(&cluster, cold).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_worker_leaves_what_is_hot_behind() {
    let (cluster, bucket) = start(1, 2).await;
    let gateway = cluster.gateways().remove(0);
    let cold = read_cold(&cluster, &bucket).await;
    let (status, said) = cluster.command(&["worker", "drain", "worker-0", "--wait"]).await.unwrap();
    assert_eq!(status, Some(0), "{said}");
    // Nobody has read anything since.
    let taken = taken_over(&cluster, "worker-1").await;
    assert!(taken > 0.0, "nothing was handed over");
    cluster.signal("worker-0", "-KILL").unwrap();
    read_all(&gateway, &bucket).await;
    assert_nothing_again(&cluster, cold).await;
}

/// Reads at random until told to stop, and wants every byte right. The bytes that it has read.
async fn load(
    gateway: Gateway,
    bucket: String,
    number: u64,
    over: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
) {
    let mut rng = seed::rng(seed::from_environment(), number);
    while !over.load(Ordering::Relaxed) {
        let object = rng.random_range(0..OBJECTS);
        read(&gateway, &bucket, object).await;
        bytes.fetch_add(length(object) as u64, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rolling_restart_disturbs_no_client_and_hardly_the_store() {
    const WORKERS: u64 = 3;
    let (mut cluster, bucket) = start(2, WORKERS as usize).await;
    let gateways = cluster.gateways();
    let cold = read_cold(&cluster, &bucket).await;
    let (over, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let loads = gateways.iter().cloned().zip(0..);
    let loads: Vec<_> = loads
        .map(|(gateway, number)| {
            tokio::spawn(load(gateway, bucket.clone(), number, over.clone(), bytes.clone()))
        })
        .collect();
    for worker in 0..WORKERS {
        let worker = format!("worker-{worker}");
        let (status, said) = cluster.command(&["worker", "drain", &worker]).await.unwrap();
        assert_eq!(status, Some(0), "{said}");
        cluster
            .status_shows(&[&format!("worker {worker} owns nothing any more and may be stopped")])
            .await
            .unwrap();
        cluster.signal(&worker, "-TERM").unwrap();
        cluster.restart_and_wait(&worker).await.unwrap();
        let (status, said) = cluster.command(&["worker", "undrain", &worker]).await.unwrap();
        println!("{worker} is back: {status:?} {said}");
        cluster.status_shows(&["3 of 3 workers serve"]).await.unwrap();
        // As long between two restarts as it takes to read everything twice.
        let until = bytes.load(Ordering::Relaxed) + 2 * all_bytes();
        while bytes.load(Ordering::Relaxed) < until
            && !loads.iter().any(tokio::task::JoinHandle::is_finished)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    over.store(true, Ordering::Relaxed);
    for load in loads {
        load.await.unwrap();
    }
    read_all(&gateways[1], &bucket).await;
    let (again, read) = (sent_by_store(&cluster).await - cold, bytes.load(Ordering::Relaxed));
    let by_gateways = sent_to_gateways(&cluster).await;
    let by_workers = again.saturating_sub(by_gateways);
    println!(
        "clients read {read} bytes; the store sent {again} again, {by_gateways} of them to gateways"
    );
    // Without moving, each worker's share leaves the cache twice: when it goes, and when it comes
    // back.
    let without = 2 * all_bytes();
    assert!(
        by_workers <= without / 4,
        "workers filled {by_workers} bytes again; without moving it would be {without}"
    );
    // Whoever asks between two maps waits for the next.
    assert!(by_gateways <= all_bytes() / 4, "gateways read {by_gateways} bytes at the store");
    assert!(again <= read / WORKERS, "less than two of three bytes came from the cache");
}

//! The coherence promise under concurrency: no read that starts after a write's acknowledgement, through any gateway, sees an
//! older version, and no body mixes versions.
//!
//! One writer a key, so that versions are ordered; many readers through all gateways. A read that began when version `a` was
//! acknowledged, and ended before version `b + 1` was begun, must see some version in `a..=b`, whole.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use verbs3_tests::{Cluster, Gateway, content, seed};

/// Small, around a page, around a block, several blocks: each takes another way through the cache.
const LENGTHS: [usize; 7] = [1, 4096, 256 << 10, (256 << 10) + 1, 1_000_000, 4 << 20, (9 << 20) + 17];

/// What is known of one key. Version 0 means "never written";
struct Key {
    name: String,
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

/// Every fifth version is a deletion.
fn is_deletion(version: u64) -> bool {
    version.is_multiple_of(5)
}

fn length(key: &str, version: u64) -> usize {
    LENGTHS[(key.len() as u64 * 7 + version) as usize % LENGTHS.len()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_through_any_gateway_see_acknowledged_writes() {
    let seed = seed::from_environment();
    let cluster = Cluster::builder().gateways(3).workers(2).start().await.unwrap();
    let bucket = cluster.bucket("history").await.unwrap();
    let keys: Arc<Vec<Key>> = Arc::new(
        (0..6)
            .map(|n| Key {
                name: format!("key-{}", "x".repeat(n)),
                begun: AtomicU64::new(0),
                acknowledged: AtomicU64::new(0),
            })
            .collect(),
    );
    let stop = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..keys.len() {
        let (keys, stop, bucket) = (keys.clone(), stop.clone(), bucket.clone());
        let gateways = cluster.gateways();
        tasks.spawn(async move { write_versions(&keys[index], &gateways, &bucket, index, seed, &stop).await });
    }
    for reader in 0..8u64 {
        let (keys, stop, bucket, reads) = (keys.clone(), stop.clone(), bucket.clone(), reads.clone());
        let gateways = cluster.gateways();
        tasks.spawn(async move {
            let mut rng = seed::rng(seed, 1000 + reader);
            while !stop.load(Ordering::Relaxed) {
                let key = &keys[rng.random_range(0..keys.len())];
                let gateway = &gateways[rng.random_range(0..gateways.len())];
                let ranged = rng.random_bool(0.4);
                read_once(key, gateway, &bucket, ranged, &mut rng).await;
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let (began, limit) = (Instant::now(), Duration::from_secs(seed::rounds(20) as u64));
    while began.elapsed() < limit && !tasks.is_empty() {
        tokio::select! {
            Some(ended) = tasks.join_next() => ended.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let writes: u64 = keys.iter().map(|key| key.acknowledged.load(Ordering::Relaxed)).sum();
    println!("{writes} writes, {} reads, no stale and no mixed one", reads.load(Ordering::Relaxed));
    assert!(writes > 20 && reads.load(Ordering::Relaxed) > 100, "too little happened to prove anything");
    cluster.stop().await.unwrap();
}

async fn write_versions(key: &Key, gateways: &[Gateway], bucket: &str, index: usize, seed: u64, stop: &AtomicBool) {
    let mut rng = seed::rng(seed, index as u64);
    for version in 1.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let gateway = &gateways[rng.random_range(0..gateways.len())];
        key.begun.store(version, Ordering::SeqCst);
        if is_deletion(version) {
            gateway.client.delete_object().bucket(bucket).key(&key.name).send().await.unwrap();
        } else {
            let body = content::body(&key.name, version, length(&key.name, version));
            let put =
                gateway.client.put_object().bucket(bucket).key(&key.name).metadata("version", version.to_string());
            put.body(body.into()).send().await.unwrap();
        }
        key.acknowledged.store(version, Ordering::SeqCst);
        if rng.random_bool(0.5) {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..60))).await;
        }
    }
}

async fn read_once(key: &Key, gateway: &Gateway, bucket: &str, ranged: bool, rng: &mut rand::rngs::SmallRng) {
    let oldest = key.acknowledged.load(Ordering::SeqCst);
    let mut get = gateway.client.get_object().bucket(bucket).key(&key.name);
    let first = if ranged { rng.random_range(0..600_000usize) } else { 0 };
    if ranged {
        get = get.range(format!("bytes={first}-{}", first + 300_000));
    }
    let seen = match get.send().await {
        Ok(answer) => {
            let version: u64 = answer.metadata().unwrap()["version"].parse().unwrap();
            match answer.body.collect().await {
                Ok(body) => {
                    let (bytes, whole) = (body.into_bytes(), length(&key.name, version));
                    let want = if ranged { whole.saturating_sub(first).min(300_001) } else { whole };
                    assert_eq!(bytes.len(), want, "{} version {version}: wrong length", key.name);
                    content::check(&key.name, version, first, &bytes).unwrap();
                    Some(version)
                }
                // The object changed under the read: a cut body is what S3 clients retry. Never wrong bytes.
                Err(_) => return,
            }
        }
        Err(error) => {
            let raw = error.raw_response().map(|raw| raw.status().as_u16());
            match raw {
                Some(404) => None,
                // The range starts past the end of a short version; nothing to compare.
                Some(416) => return,
                other => panic!("{} through {}: {other:?} {error:?}", key.name, gateway.endpoint),
            }
        }
    };
    let newest = key.begun.load(Ordering::SeqCst);
    match seen {
        Some(version) => assert!(
            (oldest..=newest).contains(&version),
            "{} through {}: saw version {version}, {oldest} was acknowledged before the read began, {newest} begun when it ended",
            key.name,
            gateway.endpoint
        ),
        None => assert!(
            (oldest..=newest).any(|version| version == 0 || is_deletion(version)),
            "{} through {}: saw no object, versions {oldest}..={newest} are possible and none is a deletion",
            key.name,
            gateway.endpoint
        ),
    }
}

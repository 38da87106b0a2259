//! Concurrent writers and readers of some keys, and what coherence promises of them: no read that starts after a write's
//! acknowledgement, through any gateway, sees an older version, and no body mixes versions.
//!
//! One writer a key, so that versions are ordered; many readers through all gateways. A read that began when version `a` was
//! acknowledged, and ended before version `b + 1` was begun, must see some version in `a..=b`, whole. A write that failed was
//! begun and not acknowledged: it may be seen or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use tokio::task::JoinSet;

use crate::{Gateway, content, seed};

/// Small, around a page, around a block, several blocks: each takes another way through the cache.
const LENGTHS: [usize; 7] = [1, 4096, 256 << 10, (256 << 10) + 1, 1_000_000, 4 << 20, (9 << 20) + 17];

/// What is known of one key. Version 0 means "never written".
struct Key {
    name: String,
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

/// Whether writes may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    Succeed,
    MayFail,
}

/// What has happened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Summary {
    pub writes: u64,
    pub failed: u64,
    pub reads: u64,
}

/// A history under way.
pub struct History {
    keys: Arc<Vec<Key>>,
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl History {
    /// Starts a writer for each key, and readers of all, through all `gateways`.
    pub fn start(gateways: &[Gateway], bucket: &str, seed: u64, writes: Writes) -> Self {
        let key = |n| Key {
            name: format!("key-{}", "x".repeat(n)),
            begun: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        };
        let keys: Arc<Vec<Key>> = Arc::new((0..6).map(key).collect());
        let (stop, reads, failed) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
        let mut history = Self { keys, stop, reads, failed, tasks: JoinSet::new() };
        for index in 0..history.keys.len() {
            let (keys, stop, failed) = (history.keys.clone(), history.stop.clone(), history.failed.clone());
            let (gateways, bucket) = (gateways.to_vec(), bucket.to_owned());
            history.tasks.spawn(async move {
                let mut rng = seed::rng(seed, index as u64);
                let writer = Writer { key: &keys[index], bucket: &bucket, writes, failed: &failed };
                writer.write_versions(&gateways, &mut rng, &stop).await;
            });
        }
        for reader in 0..8u64 {
            let (keys, stop, reads) = (history.keys.clone(), history.stop.clone(), history.reads.clone());
            let (gateways, bucket) = (gateways.to_vec(), bucket.to_owned());
            history.tasks.spawn(async move {
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
        history
    }

    /// Lets it go on for `time`; panics if what was seen can't be.
    pub async fn run_for(&mut self, time: Duration) {
        let end = tokio::time::sleep(time);
        tokio::pin!(end);
        loop {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => ended.expect("a writer or reader saw what can't be"),
                () = &mut end => return,
            }
        }
    }

    /// Ends it, and says what has happened.
    pub async fn end(mut self) -> Summary {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a writer or reader saw what can't be");
        }
        let failed = self.failed.load(Ordering::Relaxed);
        let begun: u64 = self.keys.iter().map(|key| key.begun.load(Ordering::Relaxed)).sum();
        Summary { writes: begun - failed, failed, reads: self.reads.load(Ordering::Relaxed) }
    }
}

/// Every fifth version is a deletion.
fn is_deletion(version: u64) -> bool {
    version.is_multiple_of(5)
}

fn length(key: &str, version: u64) -> usize {
    LENGTHS[(key.len() as u64 * 7 + version) as usize % LENGTHS.len()]
}

struct Writer<'a> {
    key: &'a Key,
    bucket: &'a str,
    writes: Writes,
    failed: &'a AtomicU64,
}

impl Writer<'_> {
    async fn write_versions(&self, gateways: &[Gateway], rng: &mut rand::rngs::SmallRng, stop: &AtomicBool) {
        for version in 1.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let gateway = &gateways[rng.random_range(0..gateways.len())];
            self.key.begun.store(version, Ordering::SeqCst);
            match self.write(gateway, version).await {
                Ok(()) => self.key.acknowledged.store(version, Ordering::SeqCst),
                Err(error) if self.writes == Writes::MayFail => {
                    println!("{} version {version} through {} failed: {error}", self.key.name, gateway.endpoint);
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{} version {version} through {}: {error}", self.key.name, gateway.endpoint),
            }
            if rng.random_bool(0.5) {
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..60))).await;
            }
        }
    }

    async fn write(&self, gateway: &Gateway, version: u64) -> Result<(), String> {
        let (client, name) = (&gateway.client, &self.key.name);
        if is_deletion(version) {
            let deleted = client.delete_object().bucket(self.bucket).key(name).send().await;
            return deleted.map(|_| ()).map_err(|error| format!("{error:?}"));
        }
        let body = content::body(name, version, length(name, version));
        let put = client.put_object().bucket(self.bucket).key(name).metadata("version", version.to_string());
        put.body(body.into()).send().await.map(|_| ()).map_err(|error| format!("{error:?}"))
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
            let version: u64 = answer.metadata().expect("versions are metadata")["version"].parse().expect("a number");
            match answer.body.collect().await {
                Ok(body) => {
                    let (bytes, whole) = (body.into_bytes(), length(&key.name, version));
                    let want = if ranged { whole.saturating_sub(first).min(300_001) } else { whole };
                    assert_eq!(bytes.len(), want, "{} version {version}: wrong length", key.name);
                    content::check(&key.name, version, first, &bytes).expect("the bytes of this version");
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

//! Concurrent writers and readers of some keys, and what coherence promises of them: no read that
//! starts after a write's acknowledgement, through any gateway, sees an older version, and no body
//! mixes versions.
//!
//! One writer a key, so that versions are ordered; many readers through all gateways. A read that
//! began when version `a` was acknowledged, and ended before version `b + 1` was begun, must see
//! some version in `a..=b`, whole. A write that failed was begun and not acknowledged: it may be
//! seen or not.
//!
//! A body may be cut only because its object was overwritten or deleted meanwhile, and what came of
//! it before is right; an answer that a range is past the end is held against the lengths of the
//! versions that are possible. Readers retry by themselves, so that what a gateway refused is
//! counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use bytes::BytesMut;
use rand::RngExt;
use tokio::task::JoinSet;

use crate::reading::{self, Seen};
use crate::{Gateway, content, seed};

/// Keys, each with its writer.
pub const WRITERS: u64 = 6;
/// How often a read that was refused, or got no answer, is tried.
const READ_TRIES: u32 = 3;
/// How long readers wait for a gateway that is replaced. Who waits counts as refused once.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);

/// Small, around a page, around a block, several blocks: each takes another way through the cache.
const LENGTHS: [usize; 7] =
    [1, 4096, 256 << 10, (256 << 10) + 1, 1_000_000, 4 << 20, (9 << 20) + 17];

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub writes: u64,
    pub failed: u64,
    pub reads: u64,
    /// Of the reads: whose body broke off; of these, whose object nobody had begun to write again.
    pub cut: u64,
    pub cut_unchanged: u64,
    /// Ranges past the end of every byte of a version.
    pub past_end: u64,
    /// Answers that were errors of a server, or none at all. Each was followed by another try.
    pub refused: u64,
}

impl Summary {
    /// Fails where too much went wrong in `troubles` troubles, in each of which a writer may lose a
    /// write or two.
    pub fn bound_by(&self, troubles: usize) {
        assert!(self.failed <= 2 * WRITERS * troubles as u64, "too many writes failed: {self:?}");
        assert!(
            self.refused <= self.reads / 20 + 10 * troubles as u64,
            "too many reads were refused: {self:?}"
        );
        assert!(
            self.cut_unchanged <= 8 * troubles as u64,
            "bodies were cut though nothing had changed: {self:?}"
        );
        assert!(self.cut <= self.reads / 4, "too many bodies were cut: {self:?}");
    }
}

#[derive(Default)]
struct Counts {
    failed: AtomicU64,
    reads: AtomicU64,
    cut: AtomicU64,
    cut_unchanged: AtomicU64,
    past_end: AtomicU64,
    refused: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A history under way.
pub struct History {
    keys: Arc<Vec<Key>>,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    tasks: JoinSet<()>,
}

impl History {
    /// Starts a writer for each key, and readers of all, through all `gateways`.
    pub fn start(gateways: &[Gateway], bucket: &str, seed: u64, writes: Writes) -> Self {
        Self::start_with(gateways, bucket, seed, writes, Duration::ZERO)
    }

    /// The same, where gateways are replaced: writes may fail meanwhile, and readers wait.
    pub fn start_replacing(gateways: &[Gateway], bucket: &str, seed: u64) -> Self {
        Self::start_with(gateways, bucket, seed, Writes::MayFail, REPLACED_WITHIN)
    }

    fn start_with(
        gateways: &[Gateway],
        bucket: &str,
        seed: u64,
        writes: Writes,
        away_max: Duration,
    ) -> Self {
        let key = |n| Key {
            name: format!("key-{}", "x".repeat(n)),
            begun: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        };
        let keys: Arc<Vec<Key>> = Arc::new((0..WRITERS as usize).map(key).collect());
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut history = Self { keys, stop, counts, tasks: JoinSet::new() };
        for index in 0..history.keys.len() {
            let (keys, stop, counts) =
                (history.keys.clone(), history.stop.clone(), history.counts.clone());
            let (gateways, bucket) = (gateways.to_vec(), bucket.to_owned());
            history.tasks.spawn(async move {
                let mut rng = seed::rng(seed, index as u64);
                let writer =
                    Writer { key: &keys[index], bucket: &bucket, writes, failed: &counts.failed };
                writer.write_versions(&gateways, &mut rng, &stop).await;
            });
        }
        for reader in 0..8u64 {
            let (keys, stop, counts) =
                (history.keys.clone(), history.stop.clone(), history.counts.clone());
            let clients: Vec<Client> =
                gateways.iter().map(|gateway| reading::once(&gateway.client)).collect();
            let bucket = bucket.to_owned();
            history.tasks.spawn(async move {
                let mut rng = seed::rng(seed, 1000 + reader);
                while !stop.load(Ordering::Relaxed) {
                    let key = &keys[rng.random_range(0..keys.len())];
                    let client = rng.random_range(0..clients.len());
                    let first = rng.random_bool(0.4).then(|| rng.random_range(0..600_000usize));
                    let read = Read {
                        key,
                        client: &clients[client],
                        bucket: &bucket,
                        gateway: client,
                        away_max,
                        first,
                    };
                    read.once(&counts).await;
                    count(&counts.reads);
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
                Some(ended) = self.tasks.join_next() => ended.expect("a writer or reader saw what \
                    can't be"),
                () = &mut end => return,
            }
        }
    }

    /// Lets it go on until there were so many writes and reads: a machine that is slow takes its
    /// time.
    pub async fn run_until(&mut self, writes: u64, reads: u64) {
        for _ in 0..300 {
            let summary = self.summary();
            if summary.writes > writes && summary.reads > reads {
                return;
            }
            self.run_for(Duration::from_secs(1)).await;
        }
        panic!("too little happens to prove anything: {:?}", self.summary());
    }

    /// Ends it, and says what has happened.
    pub async fn end(mut self) -> Summary {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a writer or reader saw what can't be");
        }
        self.summary()
    }

    /// Says what has happened so far.
    pub fn summary(&self) -> Summary {
        let Counts { failed, reads, cut, cut_unchanged, past_end, refused } = &*self.counts;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let begun: u64 = self.keys.iter().map(|key| load(&key.begun)).sum();
        let (failed, reads, cut, cut_unchanged) =
            (load(failed), load(reads), load(cut), load(cut_unchanged));
        Summary {
            writes: begun - failed,
            failed,
            reads,
            cut,
            cut_unchanged,
            past_end: load(past_end),
            refused: load(refused),
        }
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
    async fn write_versions(
        &self,
        gateways: &[Gateway],
        rng: &mut rand::rngs::SmallRng,
        stop: &AtomicBool,
    ) {
        for version in 1.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let gateway = &gateways[rng.random_range(0..gateways.len())];
            self.key.begun.store(version, Ordering::SeqCst);
            match self.write(gateway, version).await {
                Ok(()) => self.key.acknowledged.store(version, Ordering::SeqCst),
                Err(error) if self.writes == Writes::MayFail => {
                    println!(
                        "{} version {version} through {} failed: {error}",
                        self.key.name, gateway.endpoint
                    );
                    count(self.failed);
                }
                Err(error) => panic!(
                    "{} version {version} through {}: {error}",
                    self.key.name, gateway.endpoint
                ),
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
        let put = client
            .put_object()
            .bucket(self.bucket)
            .key(name)
            .metadata("version", version.to_string());
        put.body(body.into()).send().await.map(|_| ()).map_err(|error| format!("{error:?}"))
    }
}

/// One read.
struct Read<'a> {
    key: &'a Key,
    client: &'a Client,
    bucket: &'a str,
    /// Which one.
    gateway: usize,
    /// How long it may give no answer.
    away_max: Duration,
    /// Of a range that begins there.
    first: Option<usize>,
}

/// What a read showed of its key.
enum Shown {
    /// All of what was asked for of this version.
    Version(u64),
    /// The beginning of it.
    Cut(u64),
    Absent,
    /// The range begins behind the end.
    PastEnd,
}

impl Read<'_> {
    async fn once(&self, counts: &Counts) {
        let oldest = self.key.acknowledged.load(Ordering::SeqCst);
        let shown = self.shown(counts).await;
        let newest = self.key.begun.load(Ordering::SeqCst);
        let (key, gateway) = (&self.key.name, self.gateway);
        let possible = || {
            format!(
                "{key} through gateway {gateway}: {oldest} was acknowledged before the read began, \
                {newest} begun when it ended"
            )
        };
        match shown {
            Shown::Version(version) | Shown::Cut(version) => {
                assert!(
                    (oldest..=newest).contains(&version),
                    "saw version {version}; {}",
                    possible()
                );
            }
            Shown::Absent => {
                let is_possible =
                    (oldest..=newest).any(|version| version == 0 || is_deletion(version));
                assert!(
                    is_possible,
                    "saw no object, and none of the possible versions is a deletion; {}",
                    possible()
                );
            }
            Shown::PastEnd => {
                let first = self.first.expect("only a range is past the end");
                let ends = |version: u64| {
                    version > 0 && !is_deletion(version) && length(key, version) <= first
                };
                let is_possible = (oldest..=newest).any(ends);
                assert!(
                    is_possible,
                    "no possible version ends before byte {first}; {}",
                    possible()
                );
                count(&counts.past_end);
            }
        }
        if let Shown::Cut(version) = shown {
            count(&counts.cut);
            if newest == version {
                println!(
                    "a body was cut of version {version}, which is the newest; {}",
                    possible()
                );
                count(&counts.cut_unchanged);
            }
        }
    }

    async fn shown(&self, counts: &Counts) -> Shown {
        let (key, bucket) = (&self.key.name, self.bucket);
        let (mut refused, began) = (0, Instant::now());
        loop {
            let mut get = self.client.get_object().bucket(bucket).key(key);
            if let Some(first) = self.first {
                get = get.range(format!("bytes={first}-{}", first + 300_000));
            }
            let error = match get.send().await {
                Ok(answer) => return self.body(answer).await,
                Err(error) => error,
            };
            match error.raw_response().map(|raw| raw.status().as_u16()) {
                Some(404) => return Shown::Absent,
                Some(416) => return Shown::PastEnd,
                // It was counted, and is still away.
                None if refused > 0 && began.elapsed() < self.away_max => {}
                Some(500..) | None if refused + 1 < READ_TRIES => {
                    println!("{key} through gateway {}: {error:?}", self.gateway);
                    refused += 1;
                    count(&counts.refused);
                }
                other => panic!("{key} through gateway {}: {other:?} {error:?}", self.gateway),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn body(&self, answer: aws_sdk_s3::operation::get_object::GetObjectOutput) -> Shown {
        let (key, first) = (&self.key.name, self.first.unwrap_or_default());
        let version: u64 =
            answer.metadata().expect("versions are metadata")["version"].parse().expect("a number");
        let rest = length(key, version).saturating_sub(first);
        let want = if self.first.is_some() { rest.min(300_001) } else { rest };
        let (bytes, shown) = match reading::collect(answer.body, BytesMut::new()).await {
            Seen::Whole(bytes) => {
                assert_eq!(bytes.len(), want, "{key} version {version}: wrong length");
                (bytes, Shown::Version(version))
            }
            Seen::Cut(bytes) => (bytes, Shown::Cut(version)),
            other => unreachable!("a body is whole or cut: {other:?}"),
        };
        content::check(key, version, first, &bytes).expect("the bytes of this version");
        shown
    }
}

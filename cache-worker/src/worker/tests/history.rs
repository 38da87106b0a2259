//! Many readers and writers at once, held against what they could have seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use verbs3_protocol::{ByteRange, OpenMessage, RefusalKind, WriteId, WriteOutcome};

use super::holding_store::Stored;
use super::worker_fixture::{WorkerFixture, modes, open};

const KEYS: usize = 3;

/// What has been acknowledged of each key: the newest version's number.
#[derive(Default)]
struct Acknowledged([AtomicU64; KEYS]);

fn name(key: usize) -> String {
    format!("k{key}")
}

/// One writer per key: a version's number only grows.
async fn write(
    fixture: Arc<WorkerFixture>,
    acknowledged: Arc<Acknowledged>,
    key: usize,
    mut rng: StdRng,
) {
    for number in 2..60u64 {
        let id = WriteId { gateway: key as u64, sequence: number };
        assert!(fixture.announce(&name(key), id, 1_000_000).await.is_done());
        for _ in 0..rng.random_range(0..4) {
            tokio::task::yield_now().await;
        }
        fixture.store.yields.store(rng.random_range(0..12), Ordering::Relaxed);
        fixture.store.put(&name(key), Stored::new(number, 1000 + number));
        assert!(fixture.report(&name(key), id, WriteOutcome::Done).await.is_done());
        acknowledged.0[key].store(number, Ordering::SeqCst);
        for _ in 0..rng.random_range(0..20) {
            tokio::task::yield_now().await;
        }
    }
}

/// Answers that had bytes.
async fn read(
    fixture: Arc<WorkerFixture>,
    acknowledged: Arc<Acknowledged>,
    mut rng: StdRng,
    answered: Arc<AtomicUsize>,
) {
    for _ in 0..150 {
        let key = rng.random_range(0..KEYS);
        let oldest = acknowledged.0[key].load(Ordering::SeqCst);
        let age = if rng.random_bool(0.2) { 0 } else { u64::MAX };
        let want = Some(ByteRange::All).filter(|_| rng.random_bool(0.8));
        let got = fixture
            .open(OpenMessage { attributes_age_ms_max: age, ..open(&name(key), want) })
            .await;
        if let Some(refused) = got.refused() {
            assert!(
                matches!(refused, RefusalKind::Uncertain | RefusalKind::VersionGone),
                "{refused:?}"
            );
            tokio::task::yield_now().await;
            continue;
        }
        let version = &got.opened().attributes.version;
        let seen = version.bytes - 1000;
        assert!(
            seen >= oldest,
            "version {seen} of {} was answered after {oldest} was acknowledged",
            name(key)
        );
        let stored = Stored::new(seen, version.bytes);
        assert_eq!(version.etag, stored.etag());
        if want.is_some() {
            assert!(got.bytes == stored.content(0..stored.bytes), "bytes of another version");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_read_after_an_acknowledgement_sees_an_older_version() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    for mode in modes() {
        let (fixture, acknowledged) =
            (Arc::new(WorkerFixture::new(mode)), Arc::new(Acknowledged::default()));
        let answered = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for key in 0..KEYS {
            fixture.store.put(&name(key), Stored::new(1, 1001));
            let rng = StdRng::seed_from_u64(seed ^ key as u64);
            tasks.push(tokio::spawn(write(fixture.clone(), acknowledged.clone(), key, rng)));
        }
        for reader in 0..16u64 {
            let rng = StdRng::seed_from_u64(seed ^ (100 + reader));
            tasks.push(tokio::spawn(read(
                fixture.clone(),
                acknowledged.clone(),
                rng,
                answered.clone(),
            )));
        }
        let all = futures::future::join_all(tasks);
        for task in tokio::time::timeout(Duration::from_secs(60), all).await.expect("stuck") {
            task.unwrap();
        }
        let answered = answered.load(Ordering::Relaxed);
        assert!(answered > 100, "only {answered} reads were answered");
        Arc::into_inner(fixture).unwrap().assert_nothing_leaked().await;
    }
}

//! A worker with less memory, or fewer turns, than its readers want: `Busy`, never a wait for
//! memory, never wrong bytes.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use verbs3_protocol::{ByteRange, RefusalKind, TenantTag, WorkerRequest};
use verbs3_rdma::inprocess::InProcessMode;

use super::holding_store::Stored;
use super::worker_fixture::{
    BLOCK, Got, PAGE, WorkerFixture, WorkerSetup, collect, modes, open, read, with_settings,
};
use crate::fill::UfsReadPermit;
use crate::settings::WorkerSettings;
use verbs3_settings::{ByteSize, TimePeriod};

#[tokio::test]
async fn a_small_arena_evicts_pages_and_keeps_those_under_read() {
    let fixture = WorkerFixture::with(InProcessMode::Share, 4, WorkerSetup::default());
    let pinned = Stored::new(1, PAGE);
    fixture.store.put("pinned", pinned.clone());
    let held = fixture.call(&verbs3_protocol::WorkerRequest::Read(read(
        "pinned",
        &pinned,
        0,
        0..PAGE as u32,
    )));
    let mut held = held;
    let Ok(verbs3_rdma::transport::CallEvent::Part(part)) = held.next().await else {
        panic!("no part")
    };
    for number in 0..64 {
        let stored = Stored::new(100 + number, PAGE);
        let key = format!("k{number}");
        fixture.store.put(&key, stored.clone());
        assert!(
            fixture.read(read(&key, &stored, 0, 0..PAGE as u32)).await.bytes
                == stored.content(0..PAGE)
        );
    }
    assert!(part.data.concat() == pinned.content(0..part.data_bytes()));
    let (pages, _) = fixture.worker.pages.filler.memory_tier().held_totals();
    assert!(pages <= 16, "{pages}");
}

#[tokio::test]
async fn the_answer_is_busy_at_once_while_readers_hold_every_page() {
    let fixture = WorkerFixture::with(InProcessMode::Share, 4, WorkerSetup::default());
    let stored = Stored::new(1, 2 * BLOCK);
    fixture.store.put("k", stored.clone());
    let mut parts = Vec::new();
    let mut refused = None;
    for block in 0..2 {
        for page in 0..16u32 {
            let range = page * PAGE as u32..(page + 1) * PAGE as u32;
            let mut call = fixture
                .call(&verbs3_protocol::WorkerRequest::Read(read("k", &stored, block, range)));
            let Ok(verbs3_rdma::transport::CallEvent::Part(part)) = call.next().await else {
                panic!("no part")
            };
            match verbs3_protocol::WorkerReply::decode(&part.message).unwrap() {
                verbs3_protocol::WorkerReply::Refused(refusal) => refused = Some(refusal.kind),
                _ => parts.push((call, part)),
            }
        }
    }
    assert_eq!(refused, Some(RefusalKind::Busy));
    assert!((8..=16).contains(&parts.len()), "{}", parts.len());
    drop(parts);
    assert!(fixture.read(read("k", &stored, 1, 0..PAGE as u32)).await.refused().is_none());
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn pages_without_memory_are_filled_anew_for_the_next_reader() {
    let fixture = WorkerFixture::with(InProcessMode::Share, 4, WorkerSetup::default());
    let (pinned, stored) = (Stored::new(1, BLOCK), Stored::new(2, BLOCK));
    fixture.store.put("pinned", pinned.clone());
    fixture.store.put("k", stored.clone());
    let mut held = Vec::new();
    for page in 0..10u32 {
        let range = page * PAGE as u32..(page + 1) * PAGE as u32;
        let mut call =
            fixture.call(&verbs3_protocol::WorkerRequest::Read(read("pinned", &pinned, 0, range)));
        let Ok(verbs3_rdma::transport::CallEvent::Part(part)) = call.next().await else {
            panic!("no part")
        };
        held.push((call, part));
    }
    fixture.store.hold();
    let first = fixture.read(read("k", &stored, 0, 0..12 * PAGE as u32));
    let then = async {
        fixture.store.wait_held(1).await;
        // There is memory again, and the fill that had none for page 11 is still under way.
        drop(std::mem::take(&mut held));
        let second = fixture.read(read("k", &stored, 0, 11 * PAGE as u32..12 * PAGE as u32));
        let release = async {
            let began =
                tokio::time::timeout(Duration::from_secs(5), fixture.store.wait_held(2)).await;
            fixture.store.release();
            began
        };
        tokio::join!(second, release)
    };
    let (first, (second, began)) = tokio::join!(first, then);
    assert_eq!(second.refused(), None);
    assert!(began.is_ok(), "no second fill was started");
    assert!(second.bytes == stored.content(11 * PAGE..12 * PAGE));
    assert!(stored.content(0..12 * PAGE).starts_with(&first.bytes));
    drop((first, second));
    fixture.assert_nothing_leaked().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_readers_over_a_tiny_arena_all_get_their_bytes() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    for mode in modes() {
        let worker = with_settings(|WorkerSettings { fill, .. }| {
            (fill.in_flight_max, fill.request_max) = (3, ByteSize::from_mib(1));
            fill.page_idle_max = TimePeriod::from_seconds(1);
        });
        let fixture = Arc::new(WorkerFixture::with(mode, 6, worker));
        for number in 0..4 {
            fixture.store.put(&format!("k{number}"), Stored::new(number, BLOCK - 1000 * number));
        }
        let readers = (0..64u64).map(|reader| {
            let (fixture, mut rng) = (fixture.clone(), StdRng::seed_from_u64(seed ^ reader));
            tokio::spawn(async move {
                let mut busy = 0;
                for _ in 0..4 {
                    let number = rng.random_range(0..4u64);
                    let stored = Stored::new(number, BLOCK - 1000 * number);
                    let start = rng.random_range(0..stored.bytes as u32 - 1);
                    let end =
                        rng.random_range(start + 1..=(start + 700_000).min(stored.bytes as u32));
                    let content = stored.content(u64::from(start)..u64::from(end));
                    loop {
                        let got =
                            fixture.read(read(&format!("k{number}"), &stored, 0, start..end)).await;
                        assert!(content.starts_with(&got.bytes));
                        match got.refused() {
                            None => break assert_eq!(got.bytes.len(), content.len()),
                            Some(RefusalKind::Busy) => busy += 1,
                            Some(other) => panic!("{other:?}"),
                        }
                        tokio::task::yield_now().await;
                    }
                }
                busy
            })
        });
        let all = futures::future::join_all(readers.collect::<Vec<_>>());
        let busy =
            tokio::time::timeout(Duration::from_secs(60), all).await.expect("stuck").into_iter();
        println!(
            "{} answers were busy on the way to 256 reads",
            busy.map(Result::unwrap).sum::<u32>()
        );
        Arc::into_inner(fixture).unwrap().assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn more_waiting_fills_than_configured_are_busy() {
    let worker = with_settings(|WorkerSettings { fill, .. }| {
        (fill.in_flight_max, fill.queued_max) = (1, 2);
    });
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker);
    let stored = Stored::new(1, 16 * BLOCK);
    fixture.store.put("k", stored.clone());
    fixture.store.hold();
    let reads = futures::future::join_all(
        (0..8).map(|block| fixture.read(read("k", &stored, block, 0..10))),
    );
    let release = async {
        fixture.store.wait_held(1).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        fixture.store.release();
    };
    let (got, ()) = tokio::join!(reads, release);
    let busy = got.iter().filter(|got| got.refused() == Some(&RefusalKind::Busy)).count();
    assert!((1..8).contains(&busy), "{busy}");
    assert!(got.iter().filter(|got| got.refused().is_none()).all(|got| got.bytes.len() == 10));
}

#[tokio::test]
async fn more_checks_than_configured_are_busy() {
    let fixture = WorkerFixture::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| settings.index.checks_in_flight_max = 2),
    );
    fixture.store.hold();
    let opens = futures::future::join_all(["a", "b", "c"].map(|key| fixture.open(open(key, None))));
    let release = async {
        fixture.store.wait_held(2).await;
        fixture.store.release();
    };
    let (got, ()) = tokio::join!(opens, release);
    assert_eq!(got.iter().filter(|got| got.refused() == Some(&RefusalKind::Busy)).count(), 1);
}

/// Has a scan take all turns of fills, then wait for more, and another tenant come last. Returns who
/// is served first when a turn becomes free.
async fn serve_after_scan(
    fixture: WorkerFixture,
    free: impl FnOnce(UfsReadPermit),
) -> &'static str {
    let account = |name| {
        let tag = TenantTag::new(name, 1);
        fixture.worker.tenants.note_request(tag.as_ref(), 0)
    };
    let source =
        fixture.worker.checks.volumes.find_source(&super::worker_fixture::volume()).unwrap();
    let (scan, victim) = (account("scan"), account("victim"));
    let held =
        fixture.worker.pages.filler.acquire_read_permit(&source.ufs, PAGE, scan).await.unwrap();
    let (sender, mut served) = tokio::sync::mpsc::unbounded_channel();
    let all = [("scan", scan), ("scan", scan), ("scan", scan), ("victim", victim)];
    for ((name, who), waiting) in all.into_iter().zip(1..) {
        let (filler, sender) = (fixture.worker.pages.filler.clone(), sender.clone());
        let source = source.clone();
        tokio::spawn(async move {
            let permit = filler.acquire_read_permit(&source.ufs, PAGE, who).await;
            let _ = sender.send((name, permit.is_ok()));
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.worker.metrics.fills_queued.get(), waiting, "it waits");
    }
    free(held);
    let (first, is_ok) = served.recv().await.unwrap();
    assert!(is_ok);
    first
}

#[tokio::test]
async fn a_fill_does_not_wait_behind_the_scan_of_another_tenant() {
    let one_turn = with_settings(|settings| settings.fill.in_flight_max = 1);
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, one_turn);
    assert_eq!(serve_after_scan(fixture, drop).await, "victim", "it came last");
}

/// Turns are free all the time. Only the bytes of a second are scarce.
#[tokio::test]
async fn the_bytes_a_second_of_a_store_are_shared_by_tenants() {
    let slow = with_settings(|settings| settings.fill.store_rate_max = ByteSize(PAGE));
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, slow);
    assert_eq!(serve_after_scan(fixture, drop).await, "victim", "it came last");
}

#[tokio::test]
async fn a_page_queued_by_another_tenant_comes_at_the_readers_turn() {
    let one_turn = with_settings(|settings| settings.fill.in_flight_max = 1);
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, one_turn);
    let stored = Stored::new(1, PAGE);
    let [scan, victim] = ["scan", "victim"].map(|name| TenantTag::new(name, 1));
    let page_of = |tenant, key: &str| {
        collect(
            fixture.call_for(tenant, &WorkerRequest::Read(read(key, &stored, 0, 0..PAGE as u32))),
        )
    };
    let keys = ["first", "second", "third", "wanted"];
    keys.iter().for_each(|key| fixture.store.put(key, stored.clone()));
    fixture.store.hold();
    let mut scans = futures::stream::FuturesUnordered::new();
    for (key, waiting) in keys.iter().zip(0..) {
        let mut page = Box::pin(page_of(scan, key));
        while fixture.worker.metrics.fills_queued.get() < waiting
            || fixture.worker.metrics.fills_in_flight.get() < 1
        {
            assert!(futures::poll!(&mut page).is_pending());
            tokio::task::yield_now().await;
        }
        scans.push(async move { page.await.map(|_| *key) });
    }
    let mut wanted = Box::pin(page_of(victim, "wanted"));
    for _ in 0..1000 {
        assert!(futures::poll!(&mut wanted).is_pending());
        tokio::task::yield_now().await;
    }
    fixture.store.release();
    let mut order = Vec::new();
    while let Some(done) = scans.next().await {
        order.push(done.unwrap());
    }
    assert_eq!(order[..2], ["first", "wanted"], "{order:?}");
    assert_eq!(wanted.await.unwrap().bytes, stored.content(0..PAGE));
}

/// Asks about keys one behind the other, each for its tenant, at a store of one request at once.
/// Only `wanted` is there. Returns the answers in the order of their coming. The client of the store
/// serves in order of arrival.
async fn answer_in_turn(asks: &[(&'static str, Option<TenantTag>)]) -> Vec<(&'static str, Got)> {
    let one_request = WorkerSetup { store_requests_max: Some(1), ..WorkerSetup::default() };
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, one_request);
    fixture.store.put("wanted", Stored::new(1, PAGE));
    fixture.store.hold();
    let mut order = futures::stream::FuturesUnordered::new();
    for (&(key, tenant), waiting) in asks.iter().zip(0..) {
        let call = fixture.call_for(tenant, &WorkerRequest::Open(open(key, None)));
        order.push(async move { (key, collect(call).await.unwrap()) });
        for _ in 0..100 {
            assert!(futures::poll!(order.next()).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(
            fixture.worker.metrics.fills_queued.get(),
            waiting,
            "each waits for its own turn"
        );
    }
    fixture.store.release();
    order.collect().await
}

/// Asks about keys that are not there, all for one tenant, before another tenant asks about one.
#[tokio::test]
async fn a_check_does_not_wait_behind_the_checks_of_another_tenant() {
    let [prober, victim] = ["prober", "victim"].map(|name| TenantTag::new(name, 1));
    let asks = [("a", prober), ("b", prober), ("c", prober), ("wanted", victim)];
    let answered = answer_in_turn(&asks).await;
    let keys: Vec<&str> = answered.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys[..2], ["a", "wanted"], "it came last");
    assert_eq!(answered[1].1.opened().attributes.version.bytes, PAGE);
    assert_eq!(keys.len(), 4, "the others are answered, too");
}

/// The victim asks about what the prober has asked about already, behind all else that it asks.
#[tokio::test]
async fn a_check_queued_by_another_tenant_comes_at_the_readers_turn() {
    let [prober, victim] = ["prober", "victim"].map(|name| TenantTag::new(name, 1));
    let asks =
        [("a", prober), ("b", prober), ("c", prober), ("wanted", prober), ("wanted", victim)];
    let answered = answer_in_turn(&asks).await;
    let keys: Vec<&str> = answered.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys[..3], ["a", "wanted", "wanted"], "{keys:?}");
    for (_, got) in answered.iter().filter(|(key, _)| *key == "wanted") {
        assert_eq!(got.opened().attributes.version.bytes, PAGE);
    }
}

/// A turn that a check would wait for may be its own.
#[tokio::test]
async fn checksums_come_later_where_no_request_is_free_beside_a_read() {
    let one_request = WorkerSetup { store_requests_max: Some(1), ..WorkerSetup::default() };
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, one_request);
    let stored = Stored::new(1, 2 * BLOCK);
    fixture.store.put("k", stored.clone());
    let range = ByteRange::From { first: PAGE, last: Some(PAGE + 9) };
    let opening = verbs3_protocol::OpenMessage { checksums: true, ..open("k", Some(range)) };
    let got = fixture.open(opening).await;
    assert_eq!(got.bytes, stored.content(PAGE..PAGE + 10));
    assert!(got.opened().attributes.checksums_known);
    assert_eq!(fixture.store.asked(), (1, 1));
}

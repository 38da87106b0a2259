//! Announcements and reports: all homes, no home forgotten, nothing left open.

use super::*;
use crate::CoherenceError;
use verbs3_protocol::{ListedAttributes, ListedEntry, WriteOutcome};

pub(super) fn volume() -> ObjectVolume {
    ObjectVolume::new("store", "train")
}

pub(super) fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("key-{n}")).collect()
}

pub(super) fn reports(worker: &TestWorker) -> Vec<WriteOutcome> {
    let asked = worker.asked();
    asked
        .iter()
        .filter_map(|request| {
            if let WorkerRequest::Report(report) = request { Some(report.outcome) } else { None }
        })
        .collect()
}

fn announced_keys(worker: &TestWorker) -> Vec<String> {
    let asked = worker.asked();
    asked
        .iter()
        .flat_map(
            |request| {
                if let WorkerRequest::Announce(it) = request { it.keys.clone() } else { vec![] }
            },
        )
        .collect()
}

fn home_of(tier: &CacheTierClient, key: &str) -> String {
    let object = ObjectKey { volume: volume(), key: key.to_owned() };
    tier.asker.placement.load_map().home_worker(&object).unwrap().id.0.clone()
}

#[tokio::test]
async fn every_key_is_announced_to_its_own_home_in_one_message_each() {
    let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let announced = tier.announce_write(&volume(), &keys(100)).await.unwrap();
    assert_eq!((a.asked().len(), b.asked().len()), (1, 1));
    let mut told = [announced_keys(&a), announced_keys(&b)].concat();
    for (worker, keys) in [("a", announced_keys(&a)), ("b", announced_keys(&b))] {
        assert!(keys.iter().all(|key| home_of(&tier, key) == worker));
    }
    told.sort();
    let mut expected = keys(100);
    expected.sort();
    assert_eq!(told, expected);
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert_eq!((reports(&a), reports(&b)), (vec![WriteOutcome::Done], vec![WriteOutcome::Done]));
    assert_eq!(tier.asker.metrics.writes_open.get(), 0);
}

#[tokio::test]
async fn of_a_batch_only_the_keys_that_nobody_knows_of_stay_uncertain() {
    let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let announced = tier.announce_write(&volume(), &keys(100)).await.unwrap();
    let lost = keys(3);
    tier.report_batch(announced, &lost).await.unwrap();
    let (mut uncertain, mut done) = (Vec::new(), Vec::new());
    for worker in [&a, &b] {
        for request in worker.asked() {
            let WorkerRequest::Report(report) = request else { continue };
            let own = report.keys.into_iter().filter(|key| home_of(&tier, key) == worker.id.0);
            match report.outcome {
                WriteOutcome::Unknown => uncertain.extend(own),
                outcome => {
                    assert_eq!(outcome, WriteOutcome::Done);
                    done.extend(own);
                }
            }
        }
    }
    uncertain.sort();
    done.sort();
    let mut others = keys(100)[3..].to_vec();
    others.sort();
    assert_eq!((uncertain, done), (lost, others));
    assert_eq!(tier.asker.metrics.writes_open.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_unreachable_home_stops_the_write_and_frees_the_others() {
    let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", silent()));
    let tier = tier(&[&a, &b]);
    let error = tier.announce_write(&volume(), &keys(100)).await.err().unwrap();
    assert!(
        matches!(&error, CoherenceError::HomeUnreachable { worker, .. } if worker.0 == "b"),
        "{error}"
    );
    tier.shutdown().await;
    assert_eq!(reports(&a), [WriteOutcome::Refused]);
    assert_eq!(tier.asker.metrics.writes_open.get(), 0);
}

#[tokio::test]
async fn a_home_that_refuses_stops_the_write() {
    for kind in [RefusalKind::Busy, RefusalKind::WrongEpoch(Epoch(2))] {
        let a = TestWorker::new("a", refuses(kind));
        let tier = tier(&[&a]);
        assert!(matches!(
            tier.announce_write(&volume(), &keys(1)).await,
            Err(CoherenceError::HomeRefused { .. })
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn announcements_and_reports_outlive_a_lost_connection() {
    let a = TestWorker::with_faults(
        "a",
        InProcessFaults::without_faults().refuse_connects(3).drop_at_event(1),
        honest(),
    );
    let tier = tier(&[&a]);
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    a.faults.drop_at_event(1);
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert_eq!(reports(&a).last(), Some(&WriteOutcome::Done));
}

#[tokio::test]
async fn a_write_that_is_dropped_is_reported_as_unknown() {
    let a = TestWorker::new("a", honest());
    let tier = tier(&[&a]);
    drop(tier.announce_write(&volume(), &keys(1)).await.unwrap());
    tier.shutdown().await;
    assert_eq!(reports(&a), [WriteOutcome::Unknown]);
}

#[tokio::test]
async fn a_dropped_announcement_is_reported_as_unknown() {
    let a =
        TestWorker::with_faults("a", InProcessFaults::without_faults().hold_deliveries(), honest());
    let tier = tier(&[&a]);
    let announcing = tokio::spawn({
        let tier = tier.clone();
        async move { tier.announce_write(&volume(), &keys(1)).await.map(drop) }
    });
    a.faults.wait_held(1).await;
    announcing.abort();
    assert!(announcing.await.unwrap_err().is_cancelled());
    a.faults.release_all();
    tier.shutdown().await;
    assert_eq!(reports(&a), [WriteOutcome::Unknown]);
}

#[tokio::test]
async fn a_report_goes_on_when_its_caller_goes_away() {
    let a = TestWorker::with_faults("a", InProcessFaults::without_faults(), honest());
    let tier = tier(&[&a]);
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    a.faults.hold_deliveries();
    let reporting = tokio::spawn({
        let tier = tier.clone();
        async move { tier.report_write(announced, WriteOutcome::Done).await }
    });
    a.faults.wait_held(1).await;
    reporting.abort();
    a.faults.release_all();
    tier.shutdown().await;
    assert_eq!(reports(&a), [WriteOutcome::Done]);
}

#[tokio::test(start_paused = true)]
async fn a_long_write_is_announced_anew_until_it_is_reported() {
    let a = TestWorker::new("a", honest());
    let tier = tier(&[&a]);
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    tokio::time::sleep(tier.asker.options.settings.write_uncertain_for.0 + SECOND).await;
    assert_eq!(announced_keys(&a).len(), 4);
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    tokio::time::sleep(tier.asker.options.settings.write_uncertain_for.0).await;
    assert_eq!(announced_keys(&a).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_nobody_hears_fails_after_its_deadline() {
    let deaf: Script = Box::new(|request, reply| {
        Box::pin(async move {
            if let WorkerRequest::Announce(_) = request {
                let done = acknowledged(WriteLeaseState::Leased);
                let _ = reply.send_last(done.encode(), 0, vec![]).await;
            }
        })
    });
    let a = TestWorker::new("a", deaf);
    let tier = tier(&[&a]);
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    assert!(tier.report_write(announced, WriteOutcome::Done).await.is_err());
    assert!(reports(&a).len() > 3);
    assert_eq!(tier.asker.metrics.report_failures.get(), 1);
}

/// A home that knows nothing of a write, and whose table is full, can't keep its key uncertain.
#[tokio::test(start_paused = true)]
async fn a_report_without_a_place_is_sent_again_until_there_is_one() {
    let left = Arc::new(std::sync::atomic::AtomicU64::new(5));
    let full: Script = Box::new({
        let left = left.clone();
        move |request, reply| {
            let spend = |left: u64| left.checked_sub(1);
            let (order, is_report) =
                (std::sync::atomic::Ordering::SeqCst, matches!(request, WorkerRequest::Report(_)));
            let answer = match is_report && left.fetch_update(order, order, spend).is_ok() {
                true => WorkerReply::Refused(WorkerRefusal {
                    kind: RefusalKind::Busy,
                    reason: "test".into(),
                }),
                false => acknowledged(WriteLeaseState::Leased),
            };
            Box::pin(async move {
                let _ = reply.send_last(answer.encode(), 0, vec![]).await;
            })
        }
    });
    let a = TestWorker::new("a", full);
    let tier = tier(&[&a]);
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    tier.report_write(announced, WriteOutcome::Unknown).await.unwrap();
    assert_eq!((reports(&a).len(), tier.asker.metrics.report_failures.get()), (6, 0));
    // But not for ever.
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    left.store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    let error = tier.report_write(announced, WriteOutcome::Unknown).await.unwrap_err();
    assert!(matches!(error, CoherenceError::HomeRefused { .. }), "{error}");
    assert!(
        began.elapsed() <= tier.asker.options.settings.report_deadline.0
            && began.elapsed() > tier.asker.options.settings.report_deadline.0 / 2
    );
}

/// The transports' frames hold 64 KiB, and a batch delete may name a thousand keys of 1 KiB.
#[tokio::test]
async fn long_keys_are_told_in_several_messages() {
    let a = TestWorker::new("a", honest());
    let tier = tier(&[&a]);
    let keys: Vec<String> = (0..1000).map(|n| format!("{n:0>1024}")).collect();
    let announced = tier.announce_write(&volume(), &keys).await.unwrap();
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert_eq!(announced_keys(&a), keys);
    assert!(
        a.asked().iter().all(|request| request.clone().with_trace(None).encode().len() < 40 << 10)
    );
}

fn entries(count: usize) -> Vec<ListedEntry> {
    let shown = ListedAttributes {
        etag: Some(format!("\"{:032}\"", 0)),
        bytes: Some(u64::MAX),
        last_modified_ms: Some(i64::MIN),
    };
    keys(count).into_iter().map(|key| ListedEntry { key, shown: Some(shown.clone()) }).collect()
}

fn listed_keys(worker: &TestWorker) -> Vec<String> {
    let asked = worker.asked();
    let entries = asked.iter().flat_map(|request| match request {
        WorkerRequest::Listed(listed) => listed.entries.clone(),
        other => panic!("expected a listing, got {other:?}"),
    });
    entries.map(|entry| entry.key).collect()
}

#[tokio::test]
async fn a_listing_is_told_to_each_home_in_few_messages() {
    let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    tier.report_listing(&volume(), entries(1000)).await;
    let mut told = [listed_keys(&a), listed_keys(&b)].concat();
    told.sort();
    let mut expected = keys(1000);
    expected.sort();
    assert_eq!(told, expected);
    for worker in [&a, &b] {
        assert!(worker.asked().len() <= 2, "{} messages", worker.asked().len());
        assert!(
            worker
                .asked()
                .iter()
                .all(|request| request.clone().with_trace(None).encode().len() <= 32 << 10)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_bounds_its_wait_and_skips_workers_that_rest() {
    let a = TestWorker::new("a", silent());
    let tier = tier(&[&a]);
    for _ in 0..2 {
        let began = tokio::time::Instant::now();
        tier.report_listing(&volume(), entries(10)).await;
        assert_eq!(began.elapsed(), tier.asker.options.settings.first_progress.0);
    }
    let began = tokio::time::Instant::now();
    tier.report_listing(&volume(), entries(10)).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "it rests by now");
    assert_eq!(a.asked().len(), 2);
}

/// A home counts a write for the tenant that its messages name, in each of them.
#[tokio::test(start_paused = true)]
async fn all_messages_of_a_write_name_its_tenant() {
    let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let tenant = TenantTag::new("vision", 3);
    let names = |worker: &TestWorker| std::mem::take(&mut *worker.tenants.lock());
    let announced = tier.announce_write_for(&volume(), &keys(100), tenant).await.unwrap();
    let count = || a.asked().len() + b.asked().len();
    let before = count();
    tokio::time::sleep(tier.asker.options.settings.write_uncertain_for.0 / 2).await;
    assert!(count() > before, "it was renewed");
    tier.report_batch(announced, &keys(3)).await.unwrap();
    for worker in [&a, &b] {
        let named = names(worker);
        assert!(named.len() >= 3 && named.iter().all(|named| *named == tenant), "{named:?}");
    }
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert_eq!([names(&a), names(&b)].concat(), [None, None]);
}

//! Opens between two placement maps.

use super::following::{following, following_with};
use super::opening::{BYTES, opens, request};
use super::*;
use crate::metrics::MapWaitOutcome;
use crate::{BypassReason, OpenOutcome};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// Opens for those who ask by the epoch that the number says, and refuses others.
fn at_epoch(own: &Arc<AtomicU64>) -> TestWorker {
    let (own, honest) = (own.clone(), opens(BYTES));
    let script: Script = Box::new(move |request, reply| {
        let own = Epoch(own.load(Ordering::SeqCst));
        match &request {
            WorkerRequest::Open(open) if open.epoch != own => {
                refuses(RefusalKind::WrongEpoch(own))(request, reply)
            }
            _ => honest(request, reply),
        }
    });
    TestWorker::new("a", script)
}

fn tier_at(epoch: u64, worker: &TestWorker) -> Arc<CacheTierClient> {
    let tier = following();
    adopt(&tier, epoch, worker);
    tier
}

fn adopt(tier: &CacheTierClient, epoch: u64, worker: &TestWorker) {
    let members = vec![PlacementMember::new(worker.id.clone(), 1.0)];
    let placement = PlacementMap::new(Epoch(epoch), members, 1).unwrap();
    tier.adopt_map(placement, &HashMap::from([(worker.id.clone(), worker.peer.clone())])).unwrap();
}

fn waits(tier: &CacheTierClient) -> [u64; 3] {
    [MapWaitOutcome::Agreed, MapWaitOutcome::Late, MapWaitOutcome::Skipped]
        .map(|outcome| tier.asker.metrics.map_waits[outcome].get())
}

fn is_found(outcome: &OpenOutcome) -> bool {
    matches!(outcome, OpenOutcome::Found(_))
}

/// The timers of a test count milliseconds.
fn is_about(began: Instant, ms: u64) -> bool {
    let elapsed = began.elapsed();
    (Duration::from_millis(ms)..=Duration::from_millis(ms + 5)).contains(&elapsed)
}

#[tokio::test(start_paused = true)]
async fn an_open_waits_for_the_map_that_its_worker_has_already() {
    let own = Arc::new(AtomicU64::new(2));
    let worker = at_epoch(&own);
    let tier = tier_at(1, &worker);
    let opening = tokio::spawn({
        let tier = tier.clone();
        async move { is_found(&tier.open_object(&request(&tier, None)).await) }
    });
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!opening.is_finished());
    assert_eq!(worker.asked().len(), 1, "asked again before the map came");
    adopt(&tier, 2, &worker);
    assert!(opening.await.unwrap());
    assert_eq!((worker.asked().len(), waits(&tier)), (2, [1, 0, 0]));
}

#[tokio::test(start_paused = true)]
async fn a_worker_at_another_epoch_is_asked_again_until_it_follows() {
    for before in [1, 0] {
        let own = Arc::new(AtomicU64::new(before));
        let worker = at_epoch(&own);
        let tier = tier_at(2, &worker);
        let follow = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            own.store(2, Ordering::SeqCst);
        };
        let began = Instant::now();
        let request = request(&tier, None);
        let (outcome, ()) = tokio::join!(tier.open_object(&request), follow);
        assert!(
            is_found(&outcome) && began.elapsed() < Duration::from_millis(420),
            "{:?}",
            began.elapsed()
        );
        assert!((3..=8).contains(&worker.asked().len()), "asked {} times", worker.asked().len());
        assert_eq!(waits(&tier), [1, 0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_vain_wait_is_bounded_and_the_last_one_under_its_map() {
    for stays_at in [1, 3] {
        let own = Arc::new(AtomicU64::new(stays_at));
        let worker = at_epoch(&own);
        let tier = tier_at(2, &worker);
        for (wait, counted) in [(500, [0, 1, 0]), (0, [0, 1, 1])] {
            let began = Instant::now();
            let outcome = tier.open_object(&request(&tier, None)).await;
            assert!(matches!(outcome, OpenOutcome::Bypass(BypassReason::Epoch)));
            assert!(is_about(began, wait), "{:?}", began.elapsed());
            assert_eq!(waits(&tier), counted);
        }
        // Another map, another chance.
        adopt(&tier, 4, &worker);
        own.store(4, Ordering::SeqCst);
        assert!(is_found(&tier.open_object(&request(&tier, None)).await));
        own.store(5, Ordering::SeqCst);
        let began = Instant::now();
        assert!(!is_found(&tier.open_object(&request(&tier, None)).await));
        assert!(is_about(began, 500), "{:?}", began.elapsed());
        assert_eq!(waits(&tier), [0, 2, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_fixed_map_or_with_waiting_switched_off() {
    let own = Arc::new(AtomicU64::new(2));
    let worker = at_epoch(&own);
    let off = following_with(|settings| settings.map_wait = TimePeriod(Duration::ZERO));
    adopt(&off, 1, &worker);
    for tier in [tier(&[&worker]), off] {
        let began = Instant::now();
        let outcome = tier.open_object(&request(&tier, None)).await;
        assert!(matches!(outcome, OpenOutcome::Bypass(BypassReason::Epoch)));
        assert_eq!((began.elapsed(), waits(&tier)), (Duration::ZERO, [0, 0, 0]));
    }
}

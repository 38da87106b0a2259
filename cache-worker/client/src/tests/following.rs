//! Writes while the map changes, and while homes have no lease.

use super::writing::{keys, reports, volume};
use super::*;
use crate::{CoherenceError, InvalidObjects, TendError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use verbs3_protocol::{StandingReply, WriteOutcome};

/// What the workers of a test say.
#[derive(Default)]
pub(super) struct ScriptedStanding {
    /// Under which they answer.
    epoch: AtomicU64,
    unleased: AtomicBool,
    /// One that `Standing` is answered with instead.
    strays: AtomicU64,
}

pub(super) fn worker(id: &str, standing: &Arc<ScriptedStanding>) -> TestWorker {
    let standing = standing.clone();
    TestWorker::new(
        id,
        Box::new(move |request, reply| {
            let own = Epoch(standing.epoch.load(Ordering::SeqCst));
            let (asked, stray) = match &request {
                WorkerRequest::Announce(announce) => (announce.epoch, 0),
                WorkerRequest::Report(report) => (report.epoch, 0),
                _ => (own, standing.strays.load(Ordering::SeqCst)),
            };
            let answer = match request {
                WorkerRequest::Standing if stray > 0 => {
                    WorkerReply::Standing(StandingReply { epoch: Epoch(stray), leased: true })
                }
                WorkerRequest::Standing => WorkerReply::Standing(StandingReply {
                    epoch: own,
                    leased: !standing.unleased.load(Ordering::SeqCst),
                }),
                _ if asked != own => WorkerReply::Refused(WorkerRefusal {
                    kind: RefusalKind::WrongEpoch(own),
                    reason: "test".into(),
                }),
                _ if standing.unleased.load(Ordering::SeqCst) => {
                    acknowledged(WriteLeaseState::Unleased)
                }
                _ => acknowledged(WriteLeaseState::Leased),
            };
            Box::pin(async move {
                let _ = reply.send_last(answer.encode(), 0, vec![]).await;
            })
        }),
    )
}

pub(super) fn standing_under(epoch: u64) -> Arc<ScriptedStanding> {
    Arc::new(ScriptedStanding { epoch: AtomicU64::new(epoch), ..ScriptedStanding::default() })
}

pub(super) fn following() -> Arc<CacheTierClient> {
    following_with(|_| ())
}

pub(super) fn following_with(change: impl FnOnce(&mut TierSettings)) -> Arc<CacheTierClient> {
    let mut options = TierOptions { coordinated: true, ..options() };
    change(&mut options.settings);
    CacheTierClient::new(
        options,
        PlacementMap::without_members(),
        HashMap::new(),
        arena(16 << 20),
        &Registry::new(),
    )
    .unwrap()
}

pub(super) fn adopt(tier: &CacheTierClient, epoch: u64, workers: &[&TestWorker]) {
    let members =
        workers.iter().map(|worker| PlacementMember::new(worker.id.clone(), 1.0)).collect();
    let placement = PlacementMap::new(Epoch(epoch), members, 2).unwrap();
    let peers = workers.iter().map(|worker| (worker.id.clone(), worker.peer.clone()));
    tier.adopt_map(placement, &peers.collect()).unwrap();
}

fn epochs_reported(worker: &TestWorker) -> Vec<u64> {
    let asked = worker.asked();
    asked
        .iter()
        .filter_map(|request| {
            if let WorkerRequest::Report(report) = request { Some(report.epoch.0) } else { None }
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn without_a_map_writes_wait_for_one_and_then_fail() {
    let tier = following();
    let error = tier.announce_write(&volume(), &keys(1)).await.err().unwrap();
    assert!(matches!(error, CoherenceError::NoMap), "{error}");
    assert_eq!(tier.workers_up(), (0, 0));
    let a = worker("a", &standing_under(3));
    let waiting = tokio::spawn({
        let tier = tier.clone();
        async move { tier.announce_write(&volume(), &keys(1)).await.is_ok() }
    });
    settle().await;
    adopt(&tier, 3, &[&a]);
    assert!(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_write_with_an_old_epoch_is_announced_under_the_next_map() {
    let (standing, tier) = (standing_under(1), following());
    let (a, b) = (worker("a", &standing), worker("b", &standing));
    adopt(&tier, 1, &[&a]);
    standing.epoch.store(2, Ordering::SeqCst);
    let announcing = tokio::spawn({
        let tier = tier.clone();
        async move { tier.announce_write(&volume(), &keys(50)).await }
    });
    tokio::time::sleep(SECOND).await;
    assert!(!announcing.is_finished(), "acknowledged under a map that is over");
    adopt(&tier, 2, &[&a, &b]);
    let announced = announcing.await.unwrap().unwrap();
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert_eq!((epochs_reported(&a), epochs_reported(&b)), (vec![2], vec![2]));
}

#[tokio::test(start_paused = true)]
async fn a_report_counts_once_the_homes_of_the_map_in_force_have_it() {
    let (standing, tier) = (standing_under(1), following());
    let (a, b) = (worker("a", &standing), worker("b", &standing));
    adopt(&tier, 1, &[&a]);
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    // The home moves while the write is under way; the old one hears of its end, too.
    standing.epoch.store(2, Ordering::SeqCst);
    adopt(&tier, 2, &[&b]);
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert_eq!(epochs_reported(&b), [2]);
    tier.shutdown().await;
    assert_eq!(epochs_reported(&a), [2]);
    assert_eq!(reports(&b), [WriteOutcome::Done]);
}

#[tokio::test(start_paused = true)]
async fn the_next_map_replaces_a_lost_home_within_the_deadline() {
    let (standing, tier) = (standing_under(1), following());
    let (a, b) = (TestWorker::new("a", silent()), worker("b", &standing));
    adopt(&tier, 1, &[&a]);
    let announcing = tokio::spawn({
        let tier = tier.clone();
        async move { tier.announce_write(&volume(), &keys(1)).await.is_ok() }
    });
    tokio::time::sleep(SECOND).await;
    standing.epoch.store(2, Ordering::SeqCst);
    adopt(&tier, 2, &[&b]);
    assert!(announcing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_unleased_home_suffices_only_if_every_member_keeps_the_map() {
    let (standing, tier) = (standing_under(1), following());
    let (a, b) = (worker("a", &standing), worker("b", &standing));
    adopt(&tier, 1, &[&a, &b]);
    standing.unleased.store(true, Ordering::SeqCst);
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    for worker in [&a, &b] {
        assert!(worker.asked().contains(&WorkerRequest::Standing), "{} was not asked", worker.id);
    }
    // Meanwhile one of them has given the map up.
    standing.strays.store(2, Ordering::SeqCst);
    let error = tier.report_write(announced, WriteOutcome::Done).await.unwrap_err();
    assert!(matches!(error, CoherenceError::Alone { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_silent_does_not_stand_by_the_map() {
    let (standing, tier) = (standing_under(1), following());
    let (a, b) = (worker("a", &standing), TestWorker::new("b", silent()));
    adopt(&tier, 1, &[&a, &b]);
    standing.unleased.store(true, Ordering::SeqCst);
    let home_is_a = |key: &String| {
        let object = ObjectKey { volume: volume(), key: key.clone() };
        tier.asker.placement.load_map().home_worker(&object).unwrap().id.0 == "a"
    };
    let key = keys(50).into_iter().find(home_is_a).unwrap();
    let error = tier.announce_write(&volume(), &[key]).await.err().unwrap();
    assert!(matches!(&error, CoherenceError::Alone { other, .. } if other.0 == "b"), "{error}");
}

#[tokio::test]
async fn a_map_that_is_adopted_keeps_the_workers_that_stay() {
    let (standing, tier) = (standing_under(1), following());
    let (a, b) = (worker("a", &standing), worker("b", &standing));
    adopt(&tier, 1, &[&a]);
    let before = tier.asker.placement.load_map().workers[0].clone();
    adopt(&tier, 2, &[&a, &b]);
    let map = tier.asker.placement.load_map();
    assert!(map.workers.iter().any(|worker| Arc::ptr_eq(worker, &before)));
    assert_eq!(tier.workers_up(), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_counts_only_where_the_home_has_the_same_map() {
    let (standing, following) = (standing_under(2), following());
    let a = worker("a", &standing);
    let invalidate = async |tier: &CacheTierClient| {
        let both = [InvalidObjects::Keys(keys(1)), InvalidObjects::Prefix("k".to_owned())];
        let [keys, prefix] = both.map(|invalid| async move {
            tier.invalidate_objects(&volume(), &invalid, SECOND).await
        });
        (keys.await, prefix.await)
    };
    // The worker has got a list with one more worker, which may be the home by now.
    let fixed = tier(&[&a]);
    adopt(&following, 1, &[&a]);
    for tier in [&fixed, &following] {
        assert!(matches!(
            invalidate(tier).await,
            (Err(TendError::Away { .. }), Err(TendError::Away { .. }))
        ));
    }
    standing.epoch.store(1, Ordering::SeqCst);
    for tier in [&fixed, &following] {
        assert!(matches!(invalidate(tier).await, (Ok(()), Ok(()))));
    }
    // A worker without a list answers everybody; one that follows, and is between two maps, nobody.
    standing.epoch.store(0, Ordering::SeqCst);
    assert!(matches!(invalidate(&fixed).await, (Ok(()), Ok(()))));
    assert!(matches!(invalidate(&following).await, (Err(_), Err(_))));
}

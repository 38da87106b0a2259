//! Hot blocks: reads are spread over their workers, and whatever these do, the bytes are right and
//! the UFS is not asked.

use super::opening::{BYTES, all, opens, request};
use super::reading::{END, read};
use super::*;
use crate::asking::worker::{OutstandingBytes, TierWorker};
use crate::asking::worker_map::HotBlockDraw;
use crate::metrics::SpreadTarget;
use crate::{HotBlockReplicas, OpenOutcome};
use verbs3_protocol::{AnswerHeaders, ByteRange, ReadSource, SPREAD_BYTES_MIN, UfsAnswer};

/// Block 0 of the object that worker `a` owns is to have so many workers.
fn heat(tier: &CacheTierClient, workers: u16) {
    let hash = object_of(tier, "a", 0).block_hash(BlockIndex(0));
    tier.adopt_hot(HotBlockReplicas(HashMap::from([(hash, workers)])));
}

fn worker_of(tier: &CacheTierClient, id: &str) -> Arc<TierWorker> {
    tier.asker.placement.load_map().workers.iter().find(|worker| worker.id.0 == id).unwrap().clone()
}

/// As long as it lives, nobody draws this worker where there is another.
fn busy(tier: &CacheTierClient, id: &str) -> OutstandingBytes {
    OutstandingBytes::new(worker_of(tier, id), 1 << 20)
}

fn asked_as_replica(worker: &TestWorker) -> usize {
    worker.asked().iter().filter(|request| matches!(request, WorkerRequest::Read(read) if read.from == ReadSource::Replica)).count()
}

/// Answers no read of a replica after so many pages.
fn lacks(pages: u32) -> Script {
    Box::new(move |request, mut reply| {
        Box::pin(async move {
            let (start, _) = read_of(request);
            if pages > 0 {
                send(&mut reply, start, start, pages * PAGE).await;
            }
            let refused = WorkerReply::Refused(WorkerRefusal {
                kind: RefusalKind::NotHeld,
                reason: "test".into(),
            });
            let _ = reply.send_last(refused.encode(), 0, vec![]).await;
        })
    })
}

async fn reads_well(tier: &Arc<CacheTierClient>) {
    let (bytes, end) = drain(&mut read(tier, "a", 0)).await;
    assert!(bytes == content(0, END) && matches!(end, SpanItem::End), "{end:?}");
}

#[tokio::test]
async fn all_workers_of_a_hot_block_serve_it_and_the_owner_any_other() {
    let workers = ["a", "b", "c"].map(|id| TestWorker::new(id, honest()));
    let tier = tier(&[&workers[0], &workers[1], &workers[2]]);
    reads_well(&tier).await;
    assert_eq!(workers.each_ref().map(|worker| worker.asked().len()), [1, 0, 0]);
    heat(&tier, 3);
    assert_eq!((tier.hot_blocks(), tier.asker.metrics.hot_blocks.get()), (1, 1));
    // That one of three is never drawn has a chance of one in ten thousand millions.
    for _ in 0..60 {
        reads_well(&tier).await;
    }
    assert!(workers[1..].iter().all(|worker| asked_as_replica(worker) > 0));
    assert!(workers[1..].iter().all(|worker| asked_as_replica(worker) == worker.asked().len()));
    assert!(workers[0].asked().len() > 1 && asked_as_replica(&workers[0]) == 0, "the owner fills");
    let metrics = &tier.asker.metrics;
    assert_eq!(
        metrics.spread[SpreadTarget::Owner].get() + metrics.spread[SpreadTarget::Replica].get(),
        60
    );
    let before = workers.each_ref().map(|worker| worker.asked().len());
    drain(&mut read(&tier, "b", 0)).await;
    assert_eq!(workers[1].asked().len(), before[1] + 1);
    assert!(matches!(
        workers[1].asked().last(),
        Some(WorkerRequest::Read(read)) if read.from == ReadSource::Owner
    ));
    // It is hot no more.
    tier.adopt_hot(HotBlockReplicas::default());
    for _ in 0..20 {
        reads_well(&tier).await;
    }
    assert_eq!(workers[0].asked().len(), before[0] + 20);
}

#[tokio::test]
async fn of_two_workers_the_one_with_fewer_bytes_to_send_is_asked() {
    let workers = ["a", "b", "c"].map(|id| TestWorker::new(id, honest()));
    let tier = tier(&[&workers[0], &workers[1], &workers[2]]);
    heat(&tier, 2);
    let (map, object) = (tier.asker.placement.current_map(), object_of(&tier, "a", 0));
    let drawn = || match map.draw_worker(&object, BlockIndex(0)).unwrap() {
        HotBlockDraw::Owner => "owner",
        HotBlockDraw::Replica(_) => "replica",
    };
    let on_owner = busy(&tier, "a");
    assert!((0..50).all(|_| drawn() == "replica"));
    let (on_b, on_c) = (
        OutstandingBytes::new(worker_of(&tier, "b"), 2 << 20),
        OutstandingBytes::new(worker_of(&tier, "c"), 2 << 20),
    );
    assert!((0..50).all(|_| drawn() == "owner"));
    drop((on_owner, on_b, on_c));
    // What reads have asked for is returned with them, however they end.
    let mut half = read(&tier, "a", 0);
    half.next().await;
    reads_well(&tier).await;
    drop(half);
    let due = |id| worker_of(&tier, id).due_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(["a", "b", "c"].map(due), [0; 3]);
}

#[tokio::test]
async fn the_owner_goes_on_at_the_byte_that_a_replica_lacks() {
    for pages in [0, 2] {
        let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", lacks(pages)));
        let tier = tier(&[&a, &b]);
        heat(&tier, 2);
        let _busy = busy(&tier, "a");
        reads_well(&tier).await;
        assert_eq!(asked_as_replica(&b), 1);
        assert!(
            matches!(&a.asked()[..], [WorkerRequest::Read(read)] if read.start == pages * PAGE && read.from == ReadSource::Owner),
            "{:?}",
            a.asked()
        );
        assert_eq!(tier.asker.metrics.spread[SpreadTarget::Back].get(), 1);
    }
}

#[tokio::test]
async fn a_replica_of_an_earlier_release_costs_a_question() {
    for kind in [RefusalKind::Malformed, RefusalKind::Busy, RefusalKind::UfsUnreachable] {
        let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", refuses(kind)));
        let tier = tier(&[&a, &b]);
        heat(&tier, 2);
        let _busy = busy(&tier, "a");
        reads_well(&tier).await;
        assert_eq!((a.asked().len(), b.asked().len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_replica_delays_some_reads_and_is_then_left_alone() {
    let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", silent()));
    let tier = tier(&[&a, &b]);
    heat(&tier, 2);
    let _busy = busy(&tier, "a");
    let began = tokio::time::Instant::now();
    for _ in 0..20 {
        reads_well(&tier).await;
    }
    // The owner is the hedge of each. Silence beyond that is nobody's failure, as at any worker.
    assert!(began.elapsed() < 20 * SECOND, "{:?}", began.elapsed());
    assert_eq!(a.asked().len(), 20);
}

#[tokio::test]
async fn a_list_outlives_maps_and_who_is_in_none_is_asked_nothing() {
    let workers = ["a", "b", "c"].map(|id| TestWorker::new(id, honest()));
    let tier = tier(&[&workers[0], &workers[1], &workers[2]]);
    heat(&tier, 3);
    let adopt = |epoch: u64, workers: &[&TestWorker]| {
        let members =
            workers.iter().map(|worker| PlacementMember::new(worker.id.clone(), 1.0)).collect();
        // One rank: replicas are not the map's.
        let placement = PlacementMap::new(Epoch(epoch), members, 1).unwrap();
        let peers = workers.iter().map(|worker| (worker.id.clone(), worker.peer.clone()));
        tier.adopt_map(placement, &peers.collect()).unwrap();
    };
    adopt(2, &[&workers[0], &workers[1]]);
    assert_eq!(tier.hot_blocks(), 1);
    let object = object_of(&tier, "a", 0);
    tier.adopt_hot(HotBlockReplicas(HashMap::from([(object.block_hash(BlockIndex(0)), 3)])));
    let _busy = busy(&tier, "a");
    for _ in 0..20 {
        reads_well(&tier).await;
    }
    assert_eq!((asked_as_replica(&workers[1]), workers[2].asked().len()), (20, 0));
    adopt(3, &[&workers[0]]);
    assert_eq!(tier.hot_blocks(), 0, "one worker is no spread");
    tier.adopt_map(PlacementMap::without_members(), &HashMap::new()).unwrap();
    assert_eq!(tier.hot_blocks(), 0);
}

#[tokio::test]
async fn the_home_gives_attributes_and_a_replica_the_hot_first_block() {
    let (a, b) = (TestWorker::new("a", opens(BYTES)), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    heat(&tier, 2);
    let _busy = busy(&tier, "a");
    let open = async |want| match tier.open_object(&request(&tier, Some(want))).await {
        OpenOutcome::Found(found) => *found,
        _ => panic!("not found"),
    };
    let from = |first, last| ByteRange::From { first, last };
    let block = 1u64 << 20;
    for (want, covered) in [
        (ByteRange::All, 0..block),
        (from(70_000, None), 70_000..block),
        (from(5, Some(4 * block)), 5..block),
    ] {
        let found = open(want).await;
        assert_eq!((found.covered.clone(), found.data.len()), (covered.clone(), 0));
        assert!(all(found).await == content(covered.start as u32, covered.end as u32), "{want:?}");
    }
    assert_eq!(asked_as_replica(&b), 3);
    let wants: Vec<_> = a
        .asked()
        .iter()
        .map(|request| matches!(request, WorkerRequest::Open(open) if open.piece_bytes_max == 0))
        .collect();
    assert_eq!(wants, [true; 3], "only attributes are asked of the home");
    // Where the bytes are few, or are in another block, or it is not known where, all is as ever.
    for want in [
        from(5, Some(u64::from(SPREAD_BYTES_MIN) - 1)),
        from(block, None),
        ByteRange::Suffix { bytes: BYTES },
    ] {
        open(want).await;
    }
    assert_eq!(b.asked().len(), 3);
}

/// A replica's open was once taken for a HEAD, whose errors have no bodies.
#[tokio::test]
async fn a_read_that_begins_at_a_replica_is_owed_the_body_of_an_error() {
    let script: Script = Box::new(|request, reply| {
        let WorkerRequest::Open(open) = request else { panic!("{request:?}") };
        let body = if open.want.is_some() { b"<Error/>".to_vec() } else { vec![] };
        let kind =
            RefusalKind::Ufs(UfsAnswer { status: 403, headers: AnswerHeaders::default(), body });
        let refused = WorkerReply::Refused(WorkerRefusal { kind, reason: "test".into() }).encode();
        Box::pin(async move { reply.send_last(refused, 0, vec![]).await.unwrap() })
    });
    let (a, b) = (TestWorker::new("a", script), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    heat(&tier, 2);
    let _busy = busy(&tier, "a");
    let later = ByteRange::From { first: 1 << 20, last: None };
    for (want, body) in [(Some(ByteRange::All), 8), (Some(later), 8), (None, 0)] {
        let outcome = tier.open_object(&request(&tier, want)).await;
        assert!(
            matches!(&outcome, OpenOutcome::Ufs(answer) if answer.body.len() == body),
            "{want:?}"
        );
    }
    let asks_for_bytes = |request: &WorkerRequest| matches!(request, WorkerRequest::Open(open) if open.piece_bytes_max > 0);
    assert!(!a.asked().iter().any(asks_for_bytes));
}

/// Its disk had the pages and could not give them; the UFS, whom a replica once asked then, had
/// another version.
#[tokio::test]
async fn a_version_gone_at_a_replica_is_for_the_owner_to_judge() {
    let (a, b) =
        (TestWorker::new("a", honest()), TestWorker::new("b", refuses(RefusalKind::VersionGone)));
    let tier = tier(&[&a, &b]);
    heat(&tier, 2);
    let busy_owner = busy(&tier, "a");
    reads_well(&tier).await;
    assert_eq!(
        (a.asked().len(), b.asked().len(), tier.asker.metrics.spread[SpreadTarget::Back].get()),
        (1, 1, 1)
    );
    drop(busy_owner);
    // The owner's word holds.
    let a = TestWorker::new("a", refuses(RefusalKind::VersionGone));
    let tier = super::tier(&[&a, &b]);
    heat(&tier, 2);
    let _busy = busy(&tier, "a");
    let (bytes, end) = drain(&mut read(&tier, "a", 0)).await;
    assert!(bytes.is_empty() && matches!(end, SpanItem::VersionGone), "{end:?}");
    assert_eq!((a.asked().len(), b.asked().len()), (1, 2));
}

#[tokio::test]
async fn a_range_past_the_end_of_a_hot_object_has_no_bytes() {
    let (a, b) = (TestWorker::new("a", opens(300_000)), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    heat(&tier, 2);
    let _busy = busy(&tier, "a");
    let want = ByteRange::From { first: 400_000, last: None };
    let OpenOutcome::Found(found) = tier.open_object(&request(&tier, Some(want))).await else {
        panic!("not found")
    };
    assert!(found.covered.is_empty() && found.rest.is_none() && b.asked().is_empty());
}

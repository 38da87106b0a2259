//! Spans: failover, hedges, corruption, disorder, late replies, and the end of memory.

use super::*;
use crate::{BypassReason, SpanRequest};
use tokio::time::Instant;
use verbs3_protocol::BlockSpan;

pub(super) const END: u32 = 5 * PAGE + 100;

pub(super) fn read(tier: &Arc<CacheTierClient>, owner: &str, start: u32) -> SpanRead {
    tier.read_span(SpanRequest {
        object: object_of(tier, owner, 0),
        version: version(1 << 20),
        span: BlockSpan { block: BlockIndex(0), range: start..END },
        ahead_bytes: 0,
        request_range: 0..0,
        trace: None,
        tenant: None,
        place: None,
    })
}

#[tokio::test]
async fn a_span_gives_its_bytes_in_order() {
    let (a, b) = (TestWorker::new("a", honest()), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let mut read = read(&tier, "a", 77);
    let (bytes, end) = drain(&mut read).await;
    assert!(bytes == content(77, END) && matches!(end, SpanItem::End));
    assert_eq!((a.asked().len(), b.asked().len()), (1, 0));
    drop(read);
    settle().await;
    assert_eq!(tier.spans.arena.arena_usage().loaned_bytes, 0);
}

#[tokio::test]
async fn another_worker_goes_on_at_the_byte_where_the_first_stopped() {
    let quits: Script = Box::new(|request, mut reply| {
        Box::pin(async move {
            let (start, _) = read_of(request);
            send(&mut reply, start, start, 2 * PAGE).await;
        })
    });
    let (a, b) = (TestWorker::new("a", quits), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let (bytes, end) = drain(&mut read(&tier, "a", 5)).await;
    assert!(bytes == content(5, END) && matches!(end, SpanItem::End));
    assert_eq!(read_of(b.asked()[0].clone()), (2 * PAGE, END));
    assert_eq!(tier.asker.metrics.failovers.get(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_anywhere_loses_and_repeats_no_byte() {
    for nth in 1..=6 {
        let a = TestWorker::with_faults(
            "a",
            InProcessFaults::without_faults().drop_at_event(nth),
            honest(),
        );
        let b = TestWorker::new("b", honest());
        let tier = tier(&[&a, &b]);
        let (bytes, end) = drain(&mut read(&tier, "a", 0)).await;
        assert!(bytes == content(0, END) && matches!(end, SpanItem::End), "broken at {nth}");
        assert_eq!(b.asked().len(), 1, "broken at {nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_owner_is_hedged_and_its_late_reply_changes_nothing() {
    let (a, b) = (TestWorker::answering_late("a"), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let (bytes, end) = drain(&mut read(&tier, "a", 0)).await;
    assert!(bytes == content(0, END) && matches!(end, SpanItem::End));
    assert_eq!(tier.asker.metrics.hedges.get(), 1);
    a.faults.release_all();
    settle().await;
    assert_eq!(tier.spans.arena.arena_usage().loaned_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_live_fill_is_not_hedged_however_slow() {
    let slow: Script = Box::new(|request, mut reply| {
        Box::pin(async move {
            let (start, end) = read_of(request);
            for _ in 0..3 {
                let (mut progress, _) = piece(start, start);
                progress.checksums.clear();
                reply.send_part(WorkerReply::Data(progress).encode(), 0, vec![]).await.unwrap();
                tokio::time::sleep(10 * SECOND).await;
            }
            send_all(reply, start, end).await;
        })
    });
    let (a, b) = (TestWorker::new("a", slow), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let (bytes, _) = drain(&mut read(&tier, "a", 0)).await;
    assert!(bytes == content(0, END));
    assert_eq!((tier.asker.metrics.hedges.get(), b.asked().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_falls_silent_after_some_bytes_is_replaced() {
    let stalls: Script = Box::new(|request, mut reply| {
        Box::pin(async move {
            let (start, _) = read_of(request);
            send(&mut reply, start, start, start + PAGE).await;
            std::future::pending::<()>().await;
        })
    });
    let (a, b) = (TestWorker::new("a", stalls), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let began = tokio::time::Instant::now();
    let (bytes, _) = drain(&mut read(&tier, "a", 0)).await;
    assert!(bytes == content(0, END));
    assert!(began.elapsed() >= tier.asker.options.settings.idle.0);
}

#[tokio::test(start_paused = true)]
async fn without_a_living_worker_the_rest_is_left_to_the_ufs() {
    let (a, b) = (TestWorker::new("a", silent()), TestWorker::new("b", silent()));
    let tier = tier(&[&a, &b]);
    let mut read = read(&tier, "a", 9);
    let (bytes, end) = drain(&mut read).await;
    assert!(bytes.is_empty() && read.next_byte() == 9);
    assert!(matches!(end, SpanItem::Bypass(BypassReason::Workers)), "{end:?}");
}

#[tokio::test]
async fn corrupt_bytes_reach_nobody_and_their_worker_forgets_them() {
    let corrupt: Script = Box::new(|request, mut reply| {
        Box::pin(async move {
            let WorkerRequest::Read(_) = &request else {
                return honest()(request, reply).await;
            };
            let (start, end) = read_of(request);
            send(&mut reply, start, start, start + PAGE).await;
            let (piece, data) = piece(start + PAGE, end);
            let mut bad = data[0].to_vec();
            *bad.last_mut().unwrap() ^= 1;
            let _ = reply
                .send_last(WorkerReply::Data(piece).encode(), u64::from(PAGE), vec![bad.into()])
                .await;
        })
    });
    let (a, b) = (TestWorker::new("a", corrupt), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    let (bytes, _) = drain(&mut read(&tier, "a", 0)).await;
    assert!(bytes == content(0, END));
    assert_eq!(tier.asker.metrics.checksum_failures.get(), 1);
    tier.shutdown().await;
    assert!(a.asked().iter().any(|request| matches!(request, WorkerRequest::Forget(_))));
}

#[tokio::test]
async fn bytes_out_of_order_out_of_bounds_or_unasked_are_a_failure() {
    for (start, end) in [(PAGE, 2 * PAGE), (0, END + 1)] {
        let wrong: Script = Box::new(move |_, mut reply| {
            Box::pin(async move {
                let (piece, data) = piece(start, end);
                // The transport itself may refuse what does not fit the landing.
                let _ = reply.send_part(WorkerReply::Data(piece).encode(), 0, data).await;
                std::future::pending::<()>().await;
            })
        });
        let (a, b) = (TestWorker::new("a", wrong), TestWorker::new("b", honest()));
        let tier = tier(&[&a, &b]);
        let (bytes, _) = drain(&mut read(&tier, "a", 0)).await;
        assert!(bytes == content(0, END), "{start}..{end}");
    }
}

#[tokio::test]
async fn a_busy_worker_is_passed_over_without_a_mark_against_it() {
    let (a, b) = (TestWorker::new("a", refuses(RefusalKind::Busy)), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    for _ in 0..5 {
        assert!(drain(&mut read(&tier, "a", 0)).await.0 == content(0, END));
    }
    assert_eq!((a.asked().len(), tier.workers_up()), (5, (2, 2)));
}

#[tokio::test]
async fn a_version_that_is_gone_is_said_so_and_asked_of_nobody_else() {
    let (a, b) =
        (TestWorker::new("a", refuses(RefusalKind::VersionGone)), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    assert!(matches!(drain(&mut read(&tier, "a", 0)).await.1, SpanItem::VersionGone));
    assert!(b.asked().is_empty());
}

/// Answers after a while.
fn late(after: Duration, then: Script) -> Script {
    let then = Arc::new(then);
    Box::new(move |request, reply| {
        let then = then.clone();
        Box::pin(async move {
            tokio::time::sleep(after).await;
            then(request, reply).await;
        })
    })
}

/// The next owner asks the store, which has another version by now. The owner may hold this one.
#[tokio::test(start_paused = true)]
async fn a_version_is_gone_once_its_owner_says_so_or_is_dead() {
    let gone_when_asked = || -> Script {
        Box::new(|request, mut reply| {
            Box::pin(async move {
                let (start, _) = read_of(request.clone());
                let (mut progress, _) = piece(start, start);
                progress.checksums.clear();
                reply.send_part(WorkerReply::Data(progress).encode(), 0, vec![]).await.unwrap();
                tokio::time::sleep(SECOND / 100).await;
                refuses(RefusalKind::VersionGone)(request, reply).await;
            })
        })
    };
    // It shows life while it asks the store, or answers at once.
    for hedge in [gone_when_asked, || refuses(RefusalKind::VersionGone)] {
        for (owner, is_whole) in
            [(honest(), true), (refuses(RefusalKind::VersionGone), false), (silent(), false)]
        {
            let a = TestWorker::new("a", late(SECOND, owner));
            let b = TestWorker::new("b", hedge());
            let tier = tier(&[&a, &b]);
            let (bytes, end) = drain(&mut read(&tier, "a", 3)).await;
            assert_eq!(tier.asker.metrics.hedges.get(), 1);
            if is_whole {
                assert!(bytes == content(3, END) && matches!(end, SpanItem::End), "{end:?}");
            } else {
                assert!(bytes.is_empty() && !matches!(end, SpanItem::End), "{end:?}");
            }
            assert!((1..=2).contains(&a.asked().len()) && b.asked().len() == 1);
        }
    }
}

/// The owner's connection breaks while its hedge asks the store. It can't be reached again here, so
/// that the rest is the UFS's affair.
#[tokio::test(start_paused = true)]
async fn a_version_is_not_gone_because_its_owners_connection_broke() {
    let faults = InProcessFaults::without_faults().drop_at_event(1);
    let a = TestWorker::with_faults("a", faults, late(SECOND / 2, honest()));
    let b = TestWorker::new("b", late(SECOND, refuses(RefusalKind::VersionGone)));
    let tier = tier(&[&a, &b]);
    let (bytes, end) = drain(&mut read(&tier, "a", 0)).await;
    assert!(bytes.is_empty() && matches!(end, SpanItem::Bypass(BypassReason::Workers)), "{end:?}");
    assert_eq!((tier.asker.metrics.hedges.get(), b.asked().len()), (1, 1));
}

/// Nobody else is waited for, or asked again.
#[tokio::test(start_paused = true)]
async fn an_owners_word_ends_a_read_that_was_hedged() {
    let a = TestWorker::new("a", late(SECOND, refuses(RefusalKind::VersionGone)));
    let b = TestWorker::new("b", silent());
    let tier = tier(&[&a, &b]);
    let began = tokio::time::Instant::now();
    assert!(matches!(drain(&mut read(&tier, "a", 0)).await.1, SpanItem::VersionGone));
    assert!(began.elapsed() < SECOND + SECOND / 10, "the hedge was waited for");
    assert_eq!((tier.asker.metrics.hedges.get(), a.asked().len(), b.asked().len()), (1, 1, 1));
}

#[tokio::test]
async fn a_short_answer_is_continued() {
    let short: Script = Box::new(|request, reply| {
        Box::pin(async move {
            let (start, end) = read_of(request);
            send_all(reply, start, end.min(start + 2 * PAGE)).await;
        })
    });
    let a = TestWorker::new("a", short);
    let tier = tier(&[&a]);
    assert!(drain(&mut read(&tier, "a", 0)).await.0 == content(0, END));
    assert_eq!(a.asked().len(), 3);
}

/// A tier whose memory somebody else has all of.
fn tier_without_memory(worker: &TestWorker) -> (Arc<CacheTierClient>, impl Sized + use<>) {
    let arena = arena(4 << 20);
    let held: Vec<_> = std::iter::from_fn(|| arena.allocate_cell(PAGE as usize)).collect();
    (tier_in(&[worker], arena), held)
}

/// The bytes of a read to which memory is given back while it waits.
async fn drain_while_memory_returns(read: &mut SpanRead, held: impl Sized) -> Vec<u8> {
    let give_back = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(held);
    };
    let (drained, ()) = tokio::join!(drain(read), give_back);
    drained.0
}

#[tokio::test(start_paused = true)]
async fn without_memory_nobody_is_asked() {
    let a = TestWorker::new("a", honest());
    let (tier, held) = tier_without_memory(&a);
    let mut first = read(&tier, "a", 0);
    assert!(!first.start());
    let began = Instant::now();
    assert!(matches!(drain(&mut first).await.1, SpanItem::Bypass(BypassReason::Arena)));
    let waited = began.elapsed();
    let wait_max = TierSettings::default().memory_wait.0;
    assert!((wait_max..wait_max + Duration::from_millis(50)).contains(&waited), "{waited:?}");
    assert_eq!(tier.asker.metrics.memory_waits.get(), 1);
    assert!(a.asked().is_empty());
    let mut later = read(&tier, "a", 0);
    assert!(!later.start());
    drop(held);
    assert!(later.start());
    assert!(drain(&mut later).await.0 == content(0, END));
}

#[tokio::test(start_paused = true)]
async fn a_lasting_shortage_costs_one_wait_for_all() {
    let a = TestWorker::new("a", honest());
    let (tier, held) = tier_without_memory(&a);
    let began = Instant::now();
    for _ in 0..50 {
        let mut starved = read(&tier, "a", 0);
        assert!(matches!(drain(&mut starved).await.1, SpanItem::Bypass(BypassReason::Arena)));
    }
    let wait_max = TierSettings::default().memory_wait.0;
    assert!(began.elapsed() < wait_max + Duration::from_millis(50), "{:?}", began.elapsed());
    // Later, one tries again for all.
    tokio::time::sleep(wait_max).await;
    let mut waiting = read(&tier, "a", 0);
    assert!(drain_while_memory_returns(&mut waiting, held).await == content(0, END));
    assert_eq!(tier.asker.metrics.memory_waits.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn memory_that_comes_back_in_time_spares_the_store() {
    let a = TestWorker::new("a", honest());
    let (tier, held) = tier_without_memory(&a);
    let mut waiting = read(&tier, "a", 0);
    assert!(drain_while_memory_returns(&mut waiting, held).await == content(0, END));
    assert_eq!((a.asked().len(), tier.asker.metrics.memory_waits.get()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_resting_worker_is_not_asked_until_its_rest_is_over() {
    let a = TestWorker::with_faults(
        "a",
        InProcessFaults::without_faults().refuse_connects(1),
        honest(),
    );
    let tier = tier(&[&a]);
    for _ in 0..3 {
        assert!(matches!(
            drain(&mut read(&tier, "a", 0)).await.1,
            SpanItem::Bypass(BypassReason::Workers)
        ));
    }
    assert_eq!((tier.asker.metrics.rests.get(), tier.workers_up()), (1, (0, 1)));
    // Longer than the rests of the worker here and of its peer below.
    tokio::time::sleep(60 * SECOND).await;
    assert!(drain(&mut read(&tier, "a", 0)).await.0 == content(0, END));
    assert_eq!(tier.workers_up(), (1, 1));
}

//! Connections that break under a call: the same worker is asked again over the next way, within
//! the request.

use super::opening::{BYTES, all, opens, request};
use super::reading::{END, read};
use super::writing::{keys, reports, volume};
use super::*;
use crate::OpenOutcome;
use crate::metrics::CallKind;
use verbs3_protocol::{ByteRange, WriteOutcome};

/// Breaks its verbs connection in the middle of the `nth` delivery.
fn breaks_at(nth: u64, script: Script) -> TestWorker {
    TestWorker::with_ways(
        "a",
        InProcessFaults::without_faults().drop_at_event(nth),
        InProcessFaults::without_faults(),
        script,
    )
}

#[tokio::test]
async fn a_broken_span_asks_the_same_worker_for_missing_bytes_alone() {
    for nth in 1..=6 {
        let (a, b) = (breaks_at(nth, honest()), TestWorker::new("b", honest()));
        let tier = tier(&[&a, &b]);
        let mut span = read(&tier, "a", 5);
        let (bytes, end) = drain(&mut span).await;
        assert!(bytes == content(5, END) && matches!(end, SpanItem::End), "broken at {nth}");
        let asked: Vec<_> = a.asked().into_iter().map(read_of).collect();
        let whole = 5 + (nth as u32 - 1) * PAGE;
        assert_eq!(asked, [(5, END), (whole, END)], "broken at {nth}");
        // What the first bytes really came over.
        let first = if nth == 1 { TransportKind::Tcp } else { TransportKind::Verbs };
        assert_eq!(span.bytes_origin().and_then(|(_, kind)| kind), Some(first));
        assert_eq!(
            (b.asked().len(), tier.asker.metrics.failovers.get(), tier.workers_up()),
            (0, 0, (2, 2))
        );
        assert_eq!(tier.asker.metrics.repeats[CallKind::Read].get(), 1);
        drop(span);
        settle().await;
        assert_eq!(tier.spans.arena.arena_usage().loaned_bytes, 0);
    }
}

#[tokio::test]
async fn a_worker_whose_every_way_breaks_is_left_for_the_next_owner() {
    let (verbs, tcp) = (
        InProcessFaults::without_faults().drop_at_event(2),
        InProcessFaults::without_faults().drop_at_event(2),
    );
    let hands = [verbs.fault_handle(), tcp.fault_handle()];
    // What breaks is not made again.
    let last: Script = Box::new(move |request, reply| {
        hands.iter().for_each(|hand| hand.refuse_connects(u32::MAX));
        honest()(request, reply)
    });
    let a = TestWorker::with_ways("a", verbs, tcp, last);
    let b = TestWorker::new("b", honest());
    let tier = tier(&[&a, &b]);
    let (bytes, end) = drain(&mut read(&tier, "a", 0)).await;
    assert!(bytes == content(0, END) && matches!(end, SpanItem::End));
    let asked: Vec<_> = [a.asked(), b.asked()].concat().into_iter().map(read_of).collect();
    assert_eq!(asked, [(0, END), (PAGE, END), (2 * PAGE, END)]);
    assert_eq!(tier.asker.metrics.failovers.get(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_under_many_reads_loses_none() {
    let a = breaks_at(70, honest());
    let tier = tier(&[&a]);
    let mut spans: Vec<_> = (0..16).map(|_| read(&tier, "a", 0)).collect();
    let all = futures::future::join_all(spans.iter_mut().map(drain)).await;
    assert!(
        all.iter().all(|(bytes, end)| *bytes == content(0, END) && matches!(end, SpanItem::End))
    );
    assert_eq!(tier.workers_up(), (1, 1));
}

#[tokio::test]
async fn a_broken_open_is_asked_again_and_goes_on_over_the_next_way() {
    for nth in 1..=2 {
        let a = breaks_at(nth, opens(BYTES));
        let tier = tier(&[&a]);
        let OpenOutcome::Found(found) =
            tier.open_object(&request(&tier, Some(ByteRange::All))).await
        else {
            panic!("not found");
        };
        let first = if nth == 1 { TransportKind::Tcp } else { TransportKind::Verbs };
        assert_eq!(found.transport, Some(first), "broken at {nth}");
        let covered = found.covered.clone();
        assert!(all(*found).await == content(0, covered.end as u32), "broken at {nth}");
        assert_eq!((a.asked().len(), tier.workers_up()), (2, (1, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_announcement_and_a_report_are_repeated_at_once() {
    let a = breaks_at(1, honest());
    let tier = tier(&[&a]);
    let start = tokio::time::Instant::now();
    let announced = tier.announce_write(&volume(), &keys(1)).await.unwrap();
    assert_eq!(a.asked().len(), 2);
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert_eq!(reports(&a), [WriteOutcome::Done]);
    assert_eq!((start.elapsed(), tier.workers_up()), (Duration::ZERO, (1, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_way_is_left_and_says_nothing_of_its_worker() {
    // Connects, and then lets nothing through.
    let a = TestWorker::with_ways(
        "a",
        InProcessFaults::without_faults().hold_deliveries(),
        InProcessFaults::without_faults(),
        honest(),
    );
    let tier = tier(&[&a]);
    let mut over = Vec::new();
    for _ in 0..5 {
        let mut span = read(&tier, "a", 0);
        let (bytes, end) = drain(&mut span).await;
        if matches!(end, SpanItem::End) {
            assert!(bytes == content(0, END));
            over.push(span.bytes_origin().and_then(|(_, kind)| kind));
        }
        assert_eq!(tier.workers_up(), (1, 1), "another way to it works");
    }
    assert!(over.len() >= 2, "the way is left after three silent reads at the most: {over:?}");
    assert!(over.iter().all(|kind| *kind == Some(TransportKind::Tcp)), "{over:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_silent_over_every_way_rests() {
    let a = TestWorker::with_ways(
        "a",
        InProcessFaults::without_faults(),
        InProcessFaults::without_faults(),
        silent(),
    );
    let tier = tier(&[&a]);
    for _ in 0..8 {
        drain(&mut read(&tier, "a", 0)).await;
    }
    assert_eq!(tier.workers_up(), (0, 1));
}

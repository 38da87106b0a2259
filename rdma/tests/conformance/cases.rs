//! Cases of normal operation: sizes, parts, orders, concurrency, pushes, cancels, credits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Semaphore;
use verbs3_rdma::transport::{CallEvent, TransportError};

use crate::transport_fixture::{
    CREDITS, PAGE, TransportFixture, collect, eventually, landing, pattern, service,
};

fn number(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[..8].try_into().unwrap())
}

pub async fn every_size_arrives_as_it_was_sent(fixture: TransportFixture) {
    fixture.serve(service(|request, reply| async move {
        let bytes = number(&request.message) as usize;
        // Owners hold pages: the data comes in pieces that fit no segment of the landing.
        let whole = pattern(1, 0, bytes);
        let pieces = (0..bytes).step_by(100_000).map(|at| whole.slice(at..bytes.min(at + 100_000)));
        reply.send_last(request.message, 0, pieces.collect()).await.unwrap();
    }));
    for bytes in [0, 1, 4095, 4096, 100_000, PAGE, PAGE + 1, 3 << 20, 8 << 20] {
        let message = (bytes as u64).to_le_bytes().to_vec();
        let mut call = fixture.call(message.clone(), bytes);
        let answer = collect(&mut call).await.unwrap();
        assert_eq!(answer.messages, [Bytes::from(message)]);
        assert!(answer.bytes() == pattern(1, 0, bytes), "{bytes} bytes differ");
    }
    fixture.all_memory_is_back().await;
}

pub async fn parts_arrive_one_by_one_in_the_order_they_were_sent(fixture: TransportFixture) {
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    fixture.serve(service(move |_, mut reply| {
        let gate = gate.clone();
        async move {
            reply.send_part("head".into(), 0, vec![]).await.unwrap();
            for part in 0..4u64 {
                // The requester opens the gate only after it has seen the part before.
                gate.acquire().await.unwrap().forget();
                let data = vec![pattern(2, part * 1000, 1000)];
                reply.send_part(format!("{part}").into(), part * 1000, data).await.unwrap();
            }
            reply.send_last("tail".into(), 4000, vec![]).await.unwrap();
        }
    }));
    let mut call = fixture.call("", 4000);
    for expected in ["head", "0", "1", "2", "3", "tail"] {
        let CallEvent::Part(part) = call.next().await.unwrap() else {
            panic!("a part is due");
        };
        assert_eq!(part.message, expected);
        assert_eq!(part.last, expected == "tail");
        for piece in part.data {
            assert_eq!(piece, pattern(2, part.offset, 1000));
        }
        open.add_permits(1);
    }
}

pub async fn parts_may_come_in_any_order_of_offsets(fixture: TransportFixture) {
    fixture.serve(service(|_, mut reply| async move {
        for part in [7u64, 2, 0, 5, 1, 6, 3] {
            let offset = part * 150_000;
            let data = vec![pattern(3, offset, 150_000)];
            reply.send_part("".into(), offset, data).await.unwrap();
        }
        let data = vec![pattern(3, 600_000, 150_000)];
        reply.send_last("".into(), 600_000, data).await.unwrap();
    }));
    let mut call = fixture.call("", 8 * 150_000);
    let answer = collect(&mut call).await.unwrap();
    assert!(answer.bytes() == pattern(3, 0, 8 * 150_000));
}

pub async fn concurrent_calls_keep_their_bytes_apart(fixture: TransportFixture) {
    fixture.serve(service(|request, mut reply| async move {
        let seed = number(&request.message);
        for part in 0..5u64 {
            let data = vec![pattern(seed, part * 10_000, 10_000)];
            reply.send_part(request.message.clone(), part * 10_000, data).await.unwrap();
            tokio::task::yield_now().await;
        }
        reply.send_last(request.message, 50_000, vec![]).await.unwrap();
    }));
    let fixture = Arc::new(fixture);
    let mut calls = tokio::task::JoinSet::new();
    for seed in 0..64u64 {
        let fixture = fixture.clone();
        calls.spawn(async move {
            let mut call = fixture.call(seed.to_le_bytes().to_vec(), 50_000);
            let answer = collect(&mut call).await.unwrap();
            assert!(answer.messages.iter().all(|message| number(message) == seed));
            assert!(answer.bytes() == pattern(seed, 0, 50_000));
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    fixture.all_memory_is_back().await;
}

pub async fn a_requester_pushes_what_the_server_wants(fixture: TransportFixture) {
    let server_arena = crate::transport_fixture::arena(16);
    let arena = server_arena.clone();
    fixture.serve(service(move |_, mut reply| {
        let arena = arena.clone();
        async move {
            let mut got = Vec::new();
            for bytes in [3 << 20, 0, 77] {
                let lent = landing(&arena, bytes).unwrap();
                let pushed = reply.pull_data(format!("{bytes}").into(), lent).await.unwrap();
                got.extend(pushed.into_iter().flatten());
            }
            let ok = got == [pattern(4, 0, 3 << 20), pattern(4, 0, 77)].concat();
            reply.send_last(format!("{ok}").into(), 0, vec![]).await.unwrap();
        }
    }));
    let mut call = fixture.call("", 0);
    for _ in 0..3 {
        let CallEvent::Wanted { message, bytes } = call.next().await.unwrap() else {
            panic!("a push is wanted");
        };
        assert_eq!(message, format!("{bytes}"));
        let whole = pattern(4, 0, bytes as usize);
        let middle = whole.len() / 3;
        call.push_data(&[whole.slice(..middle), whole.slice(middle..)]).await.unwrap();
    }
    assert_eq!(collect(&mut call).await.unwrap().messages, ["true"]);
    eventually("the lent memory is back", || server_arena.arena_usage().loaned_bytes == 0).await;
}

pub async fn a_push_of_another_length_is_refused(fixture: TransportFixture) {
    let arena = crate::transport_fixture::arena(1);
    fixture.serve(service(move |_, mut reply| {
        let lent = landing(&arena, 100).unwrap();
        async move {
            let got = reply.pull_data("".into(), lent).await.unwrap().concat();
            reply.send_last(Bytes::from(got), 0, vec![]).await.unwrap();
        }
    }));
    let mut call = fixture.call("", 0);
    let unasked = call.push_data(&[Bytes::from_static(b"x")]).await;
    assert!(matches!(unasked, Err(TransportError::Bound { .. })));
    assert!(matches!(call.next().await, Ok(CallEvent::Wanted { bytes: 100, .. })));
    let short = call.push_data(&[pattern(5, 0, 99)]).await;
    assert!(matches!(short, Err(TransportError::Bound { .. })));
    call.push_data(&[pattern(5, 0, 100)]).await.unwrap();
    let answer = collect(&mut call).await.unwrap();
    assert_eq!(answer.messages, [pattern(5, 0, 100)]);
}

/// Counts how many of it are alive.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub async fn a_dropped_call_drops_its_handler(fixture: TransportFixture) {
    let alive = Arc::new(AtomicUsize::new(0));
    let count = alive.clone();
    fixture.serve(service(move |_, mut reply| {
        let alive = Alive::new(&count);
        async move {
            reply.send_part("started".into(), 0, vec![]).await.unwrap();
            std::future::pending::<()>().await;
            drop((alive, reply));
        }
    }));
    let mut call = fixture.call("", PAGE);
    assert!(matches!(call.next().await, Ok(CallEvent::Part(_))));
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    drop(call);
    eventually("the handler is gone", || alive.load(Ordering::SeqCst) == 0).await;
    fixture.all_memory_is_back().await;
    assert!(fixture.connection.broken_reason().is_none());
}

pub async fn a_landing_returns_when_its_call_is_settled(fixture: TransportFixture) {
    fixture.serve(service(|_, reply| async move {
        reply.send_last("".into(), 0, vec![pattern(6, 0, 10)]).await.unwrap();
    }));
    let mut call = fixture.call("", 4 * PAGE);
    let CallEvent::Part(part) = call.next().await.unwrap() else {
        panic!("a part is due");
    };
    // One page is pinned by the piece; the three that nobody wrote to are back already, the call
    // still there.
    let pinned = fixture.arena.class_bytes(PAGE) as u64;
    // Where windows over them have to be closed first, they are back a moment later.
    eventually("what nobody wrote to is back", || {
        fixture.arena.arena_usage().loaned_bytes == pinned
    })
    .await;
    drop(call);
    assert_eq!(fixture.arena.arena_usage().loaned_bytes, pinned);
    drop(part);
    assert_eq!(fixture.arena.arena_usage().loaned_bytes, 0);
}

pub async fn a_reply_beyond_the_landing_is_refused_where_it_is_made(fixture: TransportFixture) {
    fixture.serve(service(|request, mut reply| async move {
        assert_eq!(request.landing_bytes, 100);
        for (offset, bytes) in [(0, 101), (100, 1), (u64::MAX, 1)] {
            let refused = reply.send_part("".into(), offset, vec![pattern(0, 0, bytes)]).await;
            assert!(matches!(refused, Err(TransportError::Bound { .. })));
        }
        reply.send_last("fits".into(), 0, vec![pattern(7, 0, 100)]).await.unwrap();
    }));
    let mut call = fixture.call("", 100);
    let answer = collect(&mut call).await.unwrap();
    assert_eq!(answer.bytes(), pattern(7, 0, 100));
}

pub async fn a_thousand_calls_share_a_few_credits(fixture: TransportFixture) {
    let serving = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let peak = most.clone();
    fixture.serve(service(move |request, reply| {
        let (alive, peak) = (Alive::new(&serving), peak.clone());
        async move {
            peak.fetch_max(alive.0.load(Ordering::SeqCst), Ordering::SeqCst);
            tokio::task::yield_now().await;
            drop(alive);
            let data = vec![pattern(number(&request.message), 0, 5000)];
            reply.send_last(request.message, 0, data).await.unwrap();
        }
    }));
    let fixture = Arc::new(fixture);
    let mut calls = tokio::task::JoinSet::new();
    for seed in 0..1000u64 {
        let fixture = fixture.clone();
        calls.spawn(async move {
            let mut call = fixture.call(seed.to_le_bytes().to_vec(), 5000);
            assert_eq!(collect(&mut call).await.unwrap().bytes(), pattern(seed, 0, 5000));
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    assert!(most.load(Ordering::SeqCst) <= CREDITS as usize);
    assert!(most.load(Ordering::SeqCst) > 1, "calls were served one by one");
    fixture.all_memory_is_back().await;
}

pub async fn a_call_that_waits_for_a_credit_can_be_given_up(fixture: TransportFixture) {
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    fixture.serve(service(move |_, reply| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            reply.send_last("done".into(), 0, vec![]).await.unwrap();
        }
    }));
    let mut calls: Vec<_> = (0..CREDITS).map(|_| fixture.call("", 0)).collect();
    let mut waiting = fixture.call("", PAGE);
    assert!(futures::poll!(std::pin::pin!(waiting.next())).is_pending());
    drop(waiting);
    // Nothing was sent, so there is nobody to wait for.
    assert_eq!(fixture.arena.arena_usage().loaned_bytes, 0);
    // A cancel needs no credit, and gives one back.
    drop(calls.pop());
    calls.push(fixture.call("", 0));
    // One more for the handler of the call that was given up, which may not know yet.
    open.add_permits(CREDITS as usize + 1);
    for mut call in calls {
        assert_eq!(collect(&mut call).await.unwrap().messages, ["done"]);
    }
}

pub async fn a_waiting_call_that_nobody_polls_starves_no_other(fixture: TransportFixture) {
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    fixture.serve(service(move |_, reply| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            reply.send_last("done".into(), 0, vec![]).await.unwrap();
        }
    }));
    let calls: Vec<_> = (0..CREDITS).map(|_| fixture.call("", 0)).collect();
    // As many calls as there are credits. If each waiter were handed one, none would be left.
    let mut ahead: Vec<_> = (0..CREDITS).map(|_| fixture.call("", 0)).collect();
    for call in &mut ahead {
        assert!(futures::poll!(std::pin::pin!(call.next())).is_pending());
    }
    open.add_permits(3 * CREDITS as usize);
    for mut call in calls {
        assert_eq!(collect(&mut call).await.unwrap().messages, ["done"]);
    }
    for _ in 0..CREDITS {
        assert_eq!(collect(&mut fixture.call("", 0)).await.unwrap().messages, ["done"]);
    }
    for mut call in ahead {
        assert_eq!(collect(&mut call).await.unwrap().messages, ["done"]);
    }
}

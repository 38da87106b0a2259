//! Cases of the rule that prevents stale bytes: a landing is not reused while its old call could
//! still write to it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use verbs3_rdma::foreign_memory::{BodyPlace, StandInMemory};
use verbs3_rdma::inprocess::{InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::landing::Landing;
use verbs3_rdma::transport::{CallEvent, TransportError};
use verbs3_settings::TimePeriod;

use crate::raw::{self, Kind, RawServer};
use crate::transport_fixture::{
    PAGE, TransportFixture, arena, collect, eventually, landing, pattern, service, within_deadline,
};

/// Bytes of the whole arena: a new loan gets the same memory, or nothing.
const ALL: usize = 2 << 20;

pub async fn a_cancelled_landing_comes_back_after_the_acknowledgement(fixture: TransportFixture) {
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    fixture.serve(service(move |request, mut reply| {
        let gate = gate.clone();
        async move {
            if request.message == "old" {
                reply.send_part("".into(), 0, vec![pattern(1, 0, PAGE)]).await.unwrap();
                gate.acquire().await.unwrap().forget();
            }
            let _ = reply.send_last("".into(), PAGE as u64, vec![pattern(1, 0, PAGE)]).await;
        }
    }));
    let mut old = fixture.call("old", 4 * PAGE);
    assert!(matches!(old.next().await, Ok(CallEvent::Part(_))));
    drop(old);
    fixture.all_memory_is_back().await;
    open.add_permits(1);
    let mut new = fixture.call("new", 4 * PAGE);
    assert_eq!(collect(&mut new).await.unwrap().messages.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_a_late_reply_does_not_touch_a_reused_landing() {
    within_deadline(async {
        let faults = InProcessFaults::without_faults().hold_deliveries().late_replies();
        let handle = faults.fault_handle();
        let serve = service(|request, reply| async move {
            let seed = if request.message == "old" { 1 } else { 2 };
            reply.send_last("".into(), 0, vec![pattern(seed, 0, ALL)]).await.unwrap();
        });
        let connection = InProcess::open_connection(serve, InProcessMode::Copy(faults));
        let arena = arena(1);

        let old = connection.start_call("old".into(), landing(&arena, ALL));
        handle.wait_held(1).await;
        drop(old);
        assert!(landing(&arena, PAGE).is_none(), "loaned before the old call was settled");
        handle.release_all();
        eventually("the landing is back", || arena.arena_usage().loaned_bytes == 0).await;

        let mut new = connection.start_call("new".into(), landing(&arena, ALL));
        assert!(collect(&mut new).await.unwrap().bytes() == pattern(2, 0, ALL));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_a_part_in_flight_at_a_cancel_arrives_before_its_answer() {
    within_deadline(async {
        let faults = InProcessFaults::without_faults().hold_deliveries();
        let handle = faults.fault_handle();
        let serve = service(|_, mut reply| async move {
            reply.send_part("".into(), 0, vec![pattern(1, 0, ALL)]).await.unwrap();
            std::future::pending::<()>().await;
        });
        let connection = InProcess::open_connection(serve, InProcessMode::Copy(faults));
        let arena = arena(1);
        let call = connection.start_call("".into(), landing(&arena, ALL));
        handle.wait_held(1).await;
        drop(call);
        // The part and, behind it, the acknowledgement.
        handle.wait_held(2).await;
        assert!(handle.release_one());
        assert!(landing(&arena, PAGE).is_none(), "loaned before the acknowledgement");
        assert!(handle.release_one());
        eventually("the landing is back", || arena.arena_usage().loaned_bytes == 0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_a_connection_that_breaks_in_mid_part_shows_none_of_it() {
    within_deadline(async {
        let serve = service(|_, mut reply| async move {
            reply.send_part("".into(), 0, vec![pattern(1, 0, PAGE)]).await.unwrap();
            let _ = reply.send_last("".into(), PAGE as u64, vec![pattern(1, 0, PAGE)]).await;
        });
        let faults = InProcessFaults::without_faults().drop_at_event(2);
        let connection = InProcess::open_connection(serve, InProcessMode::Copy(faults));
        let arena = arena(1);
        let mut call = connection.start_call("".into(), landing(&arena, ALL));
        assert!(matches!(call.next().await, Ok(CallEvent::Part(_))));
        let error = call.next().await.unwrap_err();
        assert!(matches!(error, TransportError::Lost { .. }));
        assert!(connection.broken_reason().is_some());
        assert_eq!(arena.arena_usage().loaned_bytes, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_a_late_reply_does_not_touch_a_reused_landing() {
    within_deadline(async {
        let (connection, mut server) = RawServer::pair().await;
        let arena = arena(1);
        let mut old = connection.start_call("old".into(), landing(&arena, ALL));
        let call = server.expect(Kind::Call).await;
        assert_eq!(call.lent_bytes, ALL as u64);
        // A part is half read when its call is given up.
        let part = raw::header(Kind::Part, call.id).data(ALL as u64);
        let late = pattern(1, 0, ALL);
        server.send(&part, &late[..ALL / 2]).await;
        let event = futures::poll!(std::pin::pin!(old.next()));
        assert!(event.is_pending(), "shown before all of it was there");
        drop(old);
        assert_eq!(server.expect(Kind::Cancel).await.id, call.id);
        assert!(landing(&arena, PAGE).is_none(), "loaned before the acknowledgement");
        server.raw(&late[ALL / 2..]).await;
        // Another call proves that the reader is through with the late part.
        let mut other = connection.start_call("other".into(), None);
        let id = server.expect(Kind::Call).await.id;
        server.send(&raw::header(Kind::Part, id).last(), &[]).await;
        collect(&mut other).await.unwrap();
        assert!(landing(&arena, PAGE).is_none(), "loaned before the acknowledgement");

        server.send(&raw::header(Kind::CancelAck, call.id), &[]).await;
        eventually("the landing is back", || arena.arena_usage().loaned_bytes == 0).await;
        let mut new = connection.start_call("new".into(), landing(&arena, ALL));
        let id = server.expect(Kind::Call).await.id;
        let fresh = pattern(2, 0, ALL);
        server.send(&raw::header(Kind::Part, id).data(ALL as u64).last(), &fresh).await;
        let answer = collect(&mut new).await.unwrap();
        assert!(answer.bytes() == fresh);

        // The old call is over: a part for it now is a lie, and must not reach the reused memory.
        server.send(&raw::header(Kind::Part, call.id).data(8), &[0xEE; 8]).await;
        eventually("the liar is cut off", || connection.broken_reason().is_some()).await;
        assert!(answer.bytes() == fresh, "the reused landing was written to");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_a_cancel_that_is_never_acknowledged_costs_the_connection() {
    within_deadline(async {
        let (connection, mut server) = RawServer::pair_within(Duration::from_secs(5)).await;
        let arena = arena(1);
        let call = connection.start_call("".into(), landing(&arena, ALL));
        server.expect(Kind::Call).await;
        drop(call);
        server.expect(Kind::Cancel).await;
        assert!(landing(&arena, PAGE).is_none());
        eventually("the landing is back", || arena.arena_usage().loaned_bytes == 0).await;
        let broken = connection.broken_reason().unwrap().to_string();
        assert!(broken.contains("no acknowledgement"), "{broken}");
    })
    .await;
}

/// A read whose client has lent memory can't be answered before, so it does not wait for as long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_a_cancel_over_lent_memory_is_waited_for_less_long() {
    within_deadline(async {
        let (connection, mut server) = RawServer::pair_with(|settings| {
            settings.cancel_ack_deadline = TimePeriod::from_seconds(3600);
            settings.lending_cancel_ack_deadline = TimePeriod::from_seconds(3);
        })
        .await;
        let arena = arena(1);
        let patient = connection.start_call("".into(), landing(&arena, PAGE));
        server.expect(Kind::Call).await;
        drop(patient);
        server.expect(Kind::Cancel).await;
        let (memory, foreign) = StandInMemory::allocate(PAGE);
        let body = BodyPlace::new(foreign, 0, PAGE as u64).unwrap();
        let claimed = body.claim_range(0, PAGE as u64).unwrap();
        let call = connection.start_call("".into(), Some(Landing::in_foreign_memory(claimed)));
        let sent = server.expect(Kind::Call).await;
        drop(call);
        server.expect(Kind::Cancel).await;
        assert!(!body.end_claims(), "the server may still write there");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(connection.broken_reason().is_none(), "nobody waits for it");
        let part = raw::header(Kind::Part, sent.id).data(8);
        server.send(&part, &[1; 8]).await;
        body.close_place().await;
        let broken = connection.broken_reason().unwrap().to_string();
        assert!(broken.contains("no acknowledgement"), "{broken}");
        // The two calls end one after the other, in any order.
        eventually("the patient call's landing is back", || arena.arena_usage().loaned_bytes == 0)
            .await;
        // It was written before the place was closed.
        assert_eq!(memory.copy_range(0..8), [1; 8]);
    })
    .await;
}

/// The same where the acknowledgement comes: nothing is cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_an_acknowledged_cancel_frees_lent_memory() {
    within_deadline(async {
        let (connection, mut server) = RawServer::pair().await;
        let (_, foreign) = StandInMemory::allocate(PAGE);
        let body = BodyPlace::new(foreign, 0, PAGE as u64).unwrap();
        let claimed = body.claim_range(0, PAGE as u64).unwrap();
        let call = connection.start_call("".into(), Some(Landing::in_foreign_memory(claimed)));
        let sent = server.expect(Kind::Call).await;
        drop(call);
        server.expect(Kind::Cancel).await;
        assert!(!body.end_claims());
        server.send(&raw::header(Kind::CancelAck, sent.id), &[]).await;
        body.close_place().await;
        assert!(connection.broken_reason().is_none());
    })
    .await;
}

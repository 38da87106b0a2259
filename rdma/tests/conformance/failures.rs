//! Cases of failures: handlers, servers, requesters. Nothing hangs, nothing leaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, Semaphore};
use verbs3_rdma::transport::{CallEvent, TransportError};

use crate::transport_fixture::{
    PAGE, TransportFixture, arena, collect, eventually, landing, pattern, service,
};

pub async fn a_handler_that_ends_without_a_reply_fails_its_call(fixture: TransportFixture) {
    fixture.serve(service(|_, mut reply| async move {
        reply.send_part("head".into(), 0, vec![pattern(1, 0, 10)]).await.unwrap();
    }));
    let mut call = fixture.call("", PAGE);
    assert!(matches!(call.next().await, Ok(CallEvent::Part(_))));
    let error = call.next().await.unwrap_err();
    assert!(matches!(error, TransportError::Failed { .. }), "{error}");
    drop(call);
    fixture.all_memory_is_back().await;
}

pub async fn a_handler_that_panics_fails_its_call_only(fixture: TransportFixture) {
    fixture.serve(service(|request, reply| async move {
        if request.message == "late" {
            tokio::task::yield_now().await;
        }
        assert!(request.message == "good", "a handler of this test panics");
        reply.send_last("".into(), 0, vec![]).await.unwrap();
    }));
    for message in ["at once", "late"] {
        let mut call = fixture.call(message, PAGE);
        let error = call.next().await.unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }
    collect(&mut fixture.call("good", 0)).await.unwrap();
    fixture.all_memory_is_back().await;
}

pub async fn a_reply_from_another_task_reaches_the_requester(fixture: TransportFixture) {
    fixture.serve(service(|_, reply| async move {
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            reply.send_last("from afar".into(), 0, vec![]).await.unwrap();
        });
    }));
    let mut call = fixture.call("", 0);
    assert_eq!(collect(&mut call).await.unwrap().messages, ["from afar"]);
}

pub async fn a_handler_that_gives_a_pull_up_gets_its_memory_back(fixture: TransportFixture) {
    let server_arena = arena(1);
    let lender = server_arena.clone();
    fixture.serve(service(move |request, mut reply| {
        let lent = landing(&lender, PAGE).unwrap();
        async move {
            let pull = reply.pull_data("".into(), lent);
            let _ = tokio::time::timeout(std::time::Duration::ZERO, pull).await;
            if request.message == "answer" {
                reply.send_last("".into(), 0, vec![]).await.unwrap();
            }
        }
    }));
    for (message, push) in [("answer", true), ("answer", false), ("fail", true), ("fail", false)] {
        let mut call = fixture.call(message, 0);
        assert!(matches!(call.next().await, Ok(CallEvent::Wanted { .. })));
        if push {
            // Either it crosses the end of the call, or this side has seen the end already.
            let _ = call.push_data(&[pattern(1, 0, PAGE)]).await;
        }
        let end = call.next().await;
        assert_eq!(end.is_ok(), message == "answer");
        drop(call);
        eventually("the lent page is back", || server_arena.arena_usage().loaned_bytes == 0).await;
    }
    assert!(fixture.connection.broken_reason().is_none());
}

pub async fn shutdown_lets_calls_under_way_finish(mut fixture: TransportFixture) {
    let gate = Arc::new(Semaphore::new(0));
    let (open, started) = (gate.clone(), Arc::new(Notify::new()));
    let begun = started.clone();
    fixture.serve(service(move |_, reply| {
        let (gate, started) = (gate.clone(), started.clone());
        async move {
            started.notify_one();
            gate.acquire().await.unwrap().forget();
            reply.send_last("".into(), 0, vec![pattern(2, 0, 1 << 20)]).await.unwrap();
        }
    }));
    let mut call = fixture.call("", 1 << 20);
    begun.notified().await;
    let server = fixture.server.take().unwrap();
    let shutdown = tokio::spawn(server.shutdown());
    let connection = fixture.connection.clone();
    eventually("the connection takes no more calls", || connection.broken_reason().is_some()).await;
    let refused = fixture.call("", 0).next().await.unwrap_err();
    assert!(matches!(refused, TransportError::Unreachable { .. }), "{refused}");
    assert!(!shutdown.is_finished());
    open.add_permits(1);
    assert!(collect(&mut call).await.unwrap().bytes() == pattern(2, 0, 1 << 20));
    shutdown.await.unwrap();
}

pub async fn a_server_that_dies_settles_every_call(mut fixture: TransportFixture) {
    let started = Arc::new(Semaphore::new(0));
    let begun = started.clone();
    fixture.serve(service(move |_, mut reply| {
        let started = started.clone();
        async move {
            reply.send_part("".into(), 0, vec![pattern(3, 0, 100)]).await.unwrap();
            started.add_permits(1);
            std::future::pending::<()>().await;
            drop(reply);
        }
    }));
    let mut calls: Vec<_> = (0..4).map(|_| fixture.call("", PAGE)).collect();
    let given_up = fixture.call("", PAGE);
    begun.acquire_many(5).await.unwrap().forget();
    drop(given_up);
    drop(fixture.server.take());
    for call in &mut calls {
        let error = collect(call).await.unwrap_err();
        assert!(matches!(error, TransportError::Lost { .. }), "{error}");
    }
    drop(calls);
    fixture.all_memory_is_back().await;
    assert!(fixture.connection.broken_reason().is_some());
}

pub async fn a_handler_ends_when_its_requester_is_gone(fixture: TransportFixture) {
    struct Ended(Arc<AtomicBool>);
    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let ended = Arc::new(AtomicBool::new(false));
    let started = Arc::new(Notify::new());
    let (flag, begun) = (ended.clone(), started.clone());
    fixture.serve(service(move |_, reply| {
        let (guard, started) = (Ended(flag.clone()), started.clone());
        async move {
            started.notify_one();
            std::future::pending::<()>().await;
            drop((guard, reply));
        }
    }));
    let call = fixture.call("", PAGE);
    begun.notified().await;
    let TransportFixture { connection, arena, server, .. } = fixture;
    drop((call, connection));
    eventually("the handler ended", || ended.load(Ordering::SeqCst)).await;
    eventually("the landing is back", || arena.arena_usage().loaned_bytes == 0).await;
    server.unwrap().shutdown().await;
}

//! Tests of how connections are driven: what is polled for and what is slept for.

use std::time::Instant;

use tokio_util::task::TaskTracker;

use super::*;
use crate::metrics::{DriverWait, VerbsRailMetrics};
use crate::verbs::message_events::MESSAGE_SLEEP_MAX;

const CALLS: u64 = 40;

async fn ping(rail: &TestRail, connection: &dyn PeerConnection) {
    let landing = Landing::allocate_segments(&rail.memory, &[4]);
    let event = connection.start_call("ping".into(), landing).next().await.unwrap();
    let CallEvent::Part(part) = event else { panic!("a part was due") };
    assert_eq!(part.message, "ping");
}

/// Makes `CALLS` calls one by one over the device at `address`. Returns the metrics of its rail.
async fn call_in_turn(address: &str, options: VerbsOptions) -> VerbsRailMetrics {
    let address: IpAddr = address.parse().unwrap();
    let service = Arc::new(EchoService);
    let rail = TestRail::open_with(address.into(), options.clone(), options, service).await;
    let connection = rail.connect_both().await.unwrap();
    for _ in 0..CALLS {
        ping(&rail, connection.as_ref()).await;
    }
    rail_metrics(&rail.transport.rail_label().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_connection_polls_for_answers_where_that_is_wanted() {
    let mut options = test_options();
    options.settings.busy_poll = TimePeriod::from_seconds(1);
    let metrics = call_in_turn("127.0.0.32", options).await;
    // A poll begins at the call. On a busy host most answers come before it, or long after.
    let polled = metrics.waits[DriverWait::Polled].get();
    assert!(polled > 0, "no wait was polled");
    let metrics = call_in_turn("127.0.0.33", test_options()).await;
    assert_eq!(metrics.waits[DriverWait::Polled].get(), 0);
    assert!(metrics.waits[DriverWait::Slept].get() >= CALLS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_completion_of_a_question_wakes_nobody() {
    let service = Arc::new(SilentService::default());
    let (called, place) = (service.called.clone(), IpAddr::from([127, 0, 0, 35]).into());
    let rail = TestRail::open_with(place, test_options(), test_options(), service).await;
    let used = rail_metrics(&rail.transport.rail_label().unwrap()).send_queue_used;
    let connection = rail.connect_both().await.unwrap();
    let (mut calls, mut longest) = (Vec::new(), Duration::ZERO);
    // Some meet the end of a sleep, and some the sleep of a connection that was not active.
    for _ in 0..100 {
        let began = Instant::now();
        calls.push(connection.start_call("ping".into(), None));
        called.notified().await;
        wait_until("completions are taken", || used.get() == 0).await;
        longest = longest.max(began.elapsed());
        if longest >= MESSAGE_SLEEP_MAX / 2 {
            break;
        }
    }
    assert!(longest >= MESSAGE_SLEEP_MAX / 2, "{longest:?}: something else has woken it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_device_that_does_not_tell_of_messages_is_found_out() {
    for (host, tells) in [([127, 0, 9, 21], false), ([127, 0, 0, 36], true)] {
        let rail = TestRail::open_at(IpAddr::from(host).into()).await;
        let connection = rail.connect_both().await.unwrap();
        for _ in 0..CALLS {
            ping(&rail, connection.as_ref()).await;
        }
        // It was trusted on both sides, each with a device of its own.
        assert_eq!(rail.rail_device().message_events.may_be_used(), tells, "{host:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_close_waits_for_one_that_was_given_up() {
    let rail = TestRail::open_at("127.0.4.34".parse::<IpAddr>().unwrap().into()).await;
    for _ in 0..20 {
        let (tasks, to) = (TaskTracker::new(), rail.server.local_addr().unwrap());
        let wire = rail.transport.wire_to(to).await;
        let closing = wire.close_aside(&tasks);
        let given_up = tokio::time::timeout(Duration::from_micros(300), closing).await;
        wire.close();
        assert!(wire.with_pair(|_| Ok(())).is_err(), "{given_up:?}: the queue pair is destroyed");
        tasks.close();
        tasks.wait().await;
    }
}

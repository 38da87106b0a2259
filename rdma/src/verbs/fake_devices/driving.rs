//! Tests of how connections are driven: what is polled for and what is slept for.

use tokio_util::task::TaskTracker;

use super::*;
use crate::metrics::{DriverWait, VerbsRailMetrics};

const CALLS: u64 = 40;

/// Makes `CALLS` calls one by one over the device at `address`. Returns the metrics of its rail.
async fn call_in_turn(address: &str, options: VerbsOptions) -> VerbsRailMetrics {
    let address: IpAddr = address.parse().unwrap();
    let service = Arc::new(EchoService);
    let rail = TestRail::open_with(address.into(), options.clone(), options, service).await;
    let connection = rail.connect_both().await.unwrap();
    for _ in 0..CALLS {
        let landing = Landing::allocate_segments(&rail.memory, &[4]);
        let event = connection.start_call("ping".into(), landing).next().await.unwrap();
        let CallEvent::Part(part) = event else { panic!("a part was due") };
        assert_eq!(part.message, "ping");
    }
    rail_metrics(&rail.transport.rail_label().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_connection_polls_for_answers_where_that_is_wanted() {
    let mut options = test_options();
    options.settings.busy_poll = TimePeriod::from_seconds(1);
    let metrics = call_in_turn("127.0.0.32", options).await;
    // A poll begins at the call. A busy host may be late now and then, and is slept for then.
    let polled = metrics.waits[DriverWait::Polled].get();
    assert!(polled >= CALLS / 2, "{polled} waits were polled");
    let metrics = call_in_turn("127.0.0.33", test_options()).await;
    assert_eq!(metrics.waits[DriverWait::Polled].get(), 0);
    assert!(metrics.waits[DriverWait::Slept].get() >= CALLS);
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

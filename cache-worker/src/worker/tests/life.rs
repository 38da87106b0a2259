//! Signs of life while the UFS is slow, so that a requester can tell a slow store from a dead
//! worker.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use verbs3_protocol::{ByteRange, OpenMessage, WorkerReply as Message, WorkerRequest};
use verbs3_rdma::inprocess::InProcessMode;
use verbs3_rdma::transport::CallEvent;

use super::holding_store::Stored;
use super::worker_fixture::{BLOCK, PAGE, WorkerFixture, modes, open, read, with_settings};

const SLOW: Duration = Duration::from_millis(2250);

async fn first_sign(fixture: &WorkerFixture, request: &WorkerRequest) -> Duration {
    let began = Instant::now();
    let mut call = fixture.call(request);
    let Ok(CallEvent::Part(part)) = call.next().await else { panic!("no part") };
    assert!(
        matches!(Message::decode(&part.message).unwrap(), Message::Data(piece) if piece.length == 0)
    );
    assert!(part.data.is_empty() && !part.last);
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_slow_ufs_is_not_a_dead_worker() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(1, 2 * BLOCK);
        fixture.store.put("k", stored.clone());
        // Block 1 is to be a question of its own.
        let first = ByteRange::From { first: 0, last: Some(BLOCK - 1) };
        for request in [
            WorkerRequest::Open(open("k", Some(first))),
            WorkerRequest::Open(OpenMessage { attributes_age_ms_max: 0, ..open("k", None) }),
            WorkerRequest::Read(read("k", &stored, 1, 0..10)),
        ] {
            fixture.store.hold();
            assert!(
                first_sign(&fixture, &request).await < Duration::from_millis(250),
                "later than a hedge: {request:?}"
            );
            let release = async {
                sleep(SLOW).await;
                fixture.store.release();
            };
            let (got, ()) = tokio::join!(fixture.ask(request), release);
            assert!((4..=6).contains(&got.signs), "{} signs in {SLOW:?}", got.signs);
            assert!(got.refused().is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_not_a_dead_worker() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(2, 4 * PAGE);
    fixture.store.put("k", stored.clone());
    let drip = fixture.store.drip();
    let trickle = async {
        for _ in 0..16 {
            sleep(Duration::from_secs(1)).await;
            drip.add_permits(1);
        }
    };
    let (got, ()) = tokio::join!(fixture.open(open("k", Some(ByteRange::All))), trickle);
    assert!(got.signs >= 16, "{} signs in 16 s", got.signs);
    assert!(got.bytes == stored.content(0..stored.bytes));
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_turn_shows_life() {
    let worker = with_settings(|settings| settings.fill.in_flight_max = 1);
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker);
    let stored = Stored::new(3, 2 * BLOCK);
    fixture.store.put("k", stored.clone());
    fixture.store.hold();
    let first = fixture.read(read("k", &stored, 0, 0..10));
    let second = async {
        fixture.store.wait_held(1).await;
        fixture.read(read("k", &stored, 1, 0..10)).await
    };
    let release = async {
        sleep(SLOW).await;
        fixture.store.release();
    };
    let (_, got, ()) = tokio::join!(first, second, release);
    assert!((4..=6).contains(&got.signs), "{} signs in {SLOW:?}", got.signs);
    assert_eq!(got.bytes.len(), 10);
}

#[tokio::test]
async fn a_hit_costs_no_sign() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(4, 10));
    fixture.open(open("k", Some(ByteRange::All))).await;
    let got = fixture.open(open("k", Some(ByteRange::All))).await;
    assert_eq!((got.signs, got.messages.len()), (0, 1));
}

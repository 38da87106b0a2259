//! Lists of heads: what an open would say from memory, and nothing else.

use std::time::Duration;

use verbs3_protocol::{
    BlockGeometry, ByteRange, Epoch, HeadListMessage, LISTED_HEADS_MAX, OpenAnswer, OpenMessage,
    RefusalKind, WorkerReply as Message, WorkerRequest, WriteOutcome,
};
use verbs3_rdma::inprocess::InProcessMode;

use super::holding_store::Stored;
use super::worker_fixture::{ANY_AGE, Got, WRITE, WorkerFixture, open, volume};

const ALL: Option<ByteRange> = Some(ByteRange::All);

fn list(keys: &[&str]) -> HeadListMessage {
    HeadListMessage {
        volume: volume(),
        epoch: Epoch(1),
        geometry: BlockGeometry::DEFAULT,
        attributes_age_ms_max: ANY_AGE,
        absence_age_ms_max: ANY_AGE,
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
    }
}

async fn ask(fixture: &WorkerFixture, list: HeadListMessage) -> Vec<Option<OpenAnswer>> {
    let asked = fixture.store.asked();
    let got = fixture.ask(WorkerRequest::HeadList(list)).await;
    assert_eq!(fixture.store.asked(), asked, "the store is not asked");
    let [Message::Heads(reply)] = &got.messages[..] else { panic!("{got:?}") };
    reply.heads.clone()
}

/// Lengths of objects, 0 for absent ones.
async fn lengths(fixture: &WorkerFixture, list: HeadListMessage) -> Vec<Option<u64>> {
    let length = |head: OpenAnswer| match head {
        OpenAnswer::Opened(opened) => opened.attributes.version.bytes,
        OpenAnswer::Absent(absent) => {
            assert_eq!((absent.answer.status, absent.cached), (404, true));
            0
        }
    };
    ask(fixture, list).await.into_iter().map(|head| head.map(length)).collect()
}

#[tokio::test]
async fn what_is_known_is_told_and_nobody_asks_the_store() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.store.put("unasked", Stored::new(2, 1000));
    let opened = fixture.open(open("k", ALL)).await;
    fixture.open(open("absent", ALL)).await.absent();
    let keys = ["k", "unasked", "absent", "never", "k"];
    assert_eq!(lengths(&fixture, list(&keys)).await, [Some(1000), None, Some(0), None, Some(1000)]);
    let [Some(OpenAnswer::Opened(head))] = &ask(&fixture, list(&["k"])).await[..] else { panic!() };
    assert_eq!(head.attributes, opened.opened().attributes);
    assert_eq!((head.generation, head.attributes_cached), (opened.opened().generation, true));
    assert_eq!((head.lease.id, &head.piece), (0, &None));
}

#[tokio::test]
async fn a_list_tells_no_version_that_a_write_may_have_replaced() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.store.put("l", Stored::new(3, 3000));
    fixture.open(open("k", ALL)).await;
    fixture.open(open("l", ALL)).await;
    fixture.open(open("absent", ALL)).await.absent();
    let keys = ["k", "l", "absent"];
    assert!(fixture.announce("k", WRITE, 10_000).await.is_done());
    assert_eq!(lengths(&fixture, list(&keys)).await, [None, Some(3000), Some(0)]);
    fixture.store.put("k", Stored::new(2, 2000));
    assert!(fixture.report("k", WRITE, WriteOutcome::Done).await.is_done());
    assert_eq!(lengths(&fixture, list(&keys)).await, [None, Some(3000), Some(0)]);
    fixture.open(open("k", ALL)).await;
    assert_eq!(lengths(&fixture, list(&keys)).await, [Some(2000), Some(3000), Some(0)]);
    assert!(fixture.forget("l").await.is_done() && fixture.forget("absent").await.is_done());
    assert_eq!(lengths(&fixture, list(&keys)).await, [Some(2000), None, None]);
}

#[tokio::test]
async fn answers_of_a_list_are_no_older_than_it_accepts() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    let short = || OpenMessage { absence_age_ms_max: ANY_AGE, ..open("k", ALL) };
    fixture.open(short()).await;
    fixture.open(open("absent", ALL)).await.absent();
    let aged = |attributes_age_ms_max, absence_age_ms_max| HeadListMessage {
        attributes_age_ms_max,
        absence_age_ms_max,
        ..list(&["k", "absent"])
    };
    assert_eq!(lengths(&fixture, aged(1000, 1000)).await, [Some(1000), Some(0)]);
    fixture.clock.advance_time(Duration::from_millis(1001));
    assert_eq!(lengths(&fixture, aged(1000, 5000)).await, [None, Some(0)]);
    assert_eq!(lengths(&fixture, aged(5000, 1000)).await, [Some(1000), None]);
    assert_eq!(lengths(&fixture, aged(0, 0)).await, [None, None]);
}

#[tokio::test]
async fn lists_that_are_too_long_are_refused() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let refused = async |list| fixture.ask(WorkerRequest::HeadList(list)).await;
    let keys = vec!["k"; LISTED_HEADS_MAX + 1];
    let kind = |got: Got| got.refused().cloned();
    assert_eq!(kind(refused(list(&keys)).await), Some(RefusalKind::Malformed));
    assert_eq!(lengths(&fixture, list(&keys[1..])).await, vec![None; LISTED_HEADS_MAX]);
}

#[tokio::test]
async fn heads_that_have_no_room_are_left_to_opens() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let keys: Vec<String> = (0..LISTED_HEADS_MAX).map(|at| format!("k{at:03}")).collect();
    for (at, key) in keys.iter().enumerate() {
        let version_id = Some("v".repeat(1000));
        fixture.store.put(key, Stored { version_id, ..Stored::new(at as u64, 10) });
        fixture.open(open(key, ALL)).await;
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let told = lengths(&fixture, list(&keys)).await;
    let count = told.iter().flatten().count();
    assert!(count > 10 && count < LISTED_HEADS_MAX, "{count}");
}

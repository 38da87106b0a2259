//! Fills: shared, passed on as they come, failing alone.

use std::sync::Arc;

use futures::future::join_all;
use verbs3_protocol::{
    BlockIndex, ByteRange, CacheVerdict, ReadMessage, RefusalKind, WorkerReply as Message,
    WorkerRequest,
};
use verbs3_rdma::inprocess::InProcessMode;
use verbs3_rdma::transport::CallEvent;

use super::holding_store::{Fault, Stored};
use super::worker_fixture::{
    BLOCK, PAGE, WorkerFixture, collect, modes, object, open, read, version,
};
use crate::settings::WorkerFillSettings;

const ALL: Option<ByteRange> = Some(ByteRange::All);
/// Drips per page.
const DRIPS: usize = 4;

#[tokio::test]
async fn bytes_are_passed_on_before_the_page_is_whole() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(1, BLOCK);
        fixture.store.put("k", stored.clone());
        let drip = fixture.store.drip();
        drip.add_permits(1);
        let mut call = fixture.call(&WorkerRequest::Open(open("k", ALL)));
        let Ok(CallEvent::Part(first)) = call.next().await else { panic!("no part") };
        assert!(matches!(Message::decode(&first.message), Ok(Message::Opened(_))));
        assert_eq!((first.data_bytes(), first.last), (64 << 10, false));
        drip.add_permits(DRIPS);
        let Ok(CallEvent::Part(second)) = call.next().await else { panic!("no part") };
        assert_eq!((second.offset, second.data_bytes()), (64 << 10, PAGE - (64 << 10)));
        drip.add_permits(1000);
        let rest = collect_rest(call, 2 * PAGE / 2).await;
        assert!(rest == stored.content(PAGE..BLOCK));
    }
}

async fn collect_rest(mut call: verbs3_rdma::transport::OutgoingCall, mut at: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let Ok(CallEvent::Part(part)) = call.next().await else { panic!("no part") };
        assert_eq!(part.offset, at);
        at += part.data_bytes();
        bytes.extend(part.data.concat());
        if part.last {
            return bytes;
        }
    }
}

#[tokio::test]
async fn readers_of_one_block_share_its_fills() {
    let fixture = Arc::new(WorkerFixture::new(InProcessMode::Share));
    let stored = Stored::new(2, 2 * BLOCK);
    fixture.store.put("k", stored.clone());
    let ranges = (0..200u32).map(|i| (i * 20_000)..(i * 20_000 + 200_000));
    let got =
        join_all(ranges.clone().map(|range| fixture.read(read("k", &stored, 1, range)))).await;
    for (range, got) in ranges.zip(got) {
        assert!(
            got.bytes
                == stored.content(BLOCK + u64::from(range.start)..BLOCK + u64::from(range.end))
        );
    }
    assert_eq!(fixture.store.body_bytes(), BLOCK);
}

#[tokio::test]
async fn missing_pages_that_adjoin_are_one_request() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(3, 2 * BLOCK);
    fixture.store.put("k", stored.clone());
    let page = PAGE as u32;
    fixture.read(read("k", &stored, 1, 5 * page..6 * page)).await;
    let got = fixture.read(read("k", &stored, 1, 0..BLOCK as u32)).await;
    assert_eq!((fixture.store.asked(), got.verdict()), ((3, 0), CacheVerdict::Partial));
    assert!(got.bytes == stored.content(BLOCK..2 * BLOCK));
    assert_eq!(fixture.store.body_bytes(), BLOCK);
}

#[tokio::test]
async fn a_broken_body_fails_its_readers_and_leaves_whole_pages() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(4, 2 * BLOCK);
        fixture.store.put("k", stored.clone());
        *fixture.store.fault.lock() = Some(Fault::Truncate(2 * PAGE + 70_000));
        let request = || read("k", &stored, 1, 0..BLOCK as u32);
        let (one, two) = tokio::join!(fixture.read(request()), fixture.read(request()));
        for got in [one, two] {
            assert_eq!(got.refused(), Some(&RefusalKind::UfsUnreachable));
            assert!(stored.content(BLOCK..2 * BLOCK).starts_with(&got.bytes));
            assert!(got.bytes.len() as u64 >= 2 * PAGE);
        }
        *fixture.store.fault.lock() = None;
        let before = fixture.store.body_bytes();
        let got = fixture.read(request()).await;
        assert!(got.bytes == stored.content(BLOCK..2 * BLOCK));
        assert_eq!(
            (got.verdict(), fixture.store.body_bytes() - before),
            (CacheVerdict::Partial, BLOCK - 2 * PAGE)
        );
        drop(got);
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn an_open_with_a_broken_body_fails_and_the_next_one_is_whole() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(4, 100_000);
    fixture.store.put("k", stored.clone());
    *fixture.store.fault.lock() = Some(Fault::Truncate(10));
    assert_eq!(fixture.open(open("k", ALL)).await.refused(), Some(&RefusalKind::UfsUnreachable));
    *fixture.store.fault.lock() = None;
    assert!(fixture.open(open("k", ALL)).await.bytes == stored.content(0..100_000));
}

#[tokio::test]
async fn the_ufs_s_own_error_reaches_every_waiter() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(5, BLOCK);
    fixture.store.put("k", stored.clone());
    *fixture.store.fault.lock() = Some(Fault::Forbidden);
    for got in join_all((0..8).map(|_| fixture.read(read("k", &stored, 0, 0..100)))).await {
        assert!(matches!(got.refused(), Some(RefusalKind::Ufs(answer)) if answer.status == 403));
    }
    assert_eq!(fixture.store.asked(), (1, 0));
}

#[tokio::test]
async fn a_reader_that_goes_away_stops_nothing_that_others_wait_for() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(6, BLOCK);
        fixture.store.put("k", stored.clone());
        let drip = fixture.store.drip();
        let request = WorkerRequest::Read(read("k", &stored, 0, 0..BLOCK as u32));
        let mut first = fixture.call(&request);
        drip.add_permits(1);
        first.next().await.unwrap();
        let mut second = fixture.call(&request);
        second.next().await.unwrap();
        drop(first);
        drip.add_permits(1000);
        let second = collect_rest(second, 64 << 10).await;
        assert!(second == stored.content(64 << 10..BLOCK));
        assert_eq!(fixture.store.asked(), (1, 0));
        drop(second);
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_fill_without_a_reader_for_a_while_stops_at_a_page_border() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(7, BLOCK);
    fixture.store.put("k", stored.clone());
    let drip = fixture.store.drip();
    let mut reader = fixture.call(&WorkerRequest::Read(read("k", &stored, 0, 0..BLOCK as u32)));
    drip.add_permits(1);
    reader.next().await.unwrap();
    drop(reader);
    // A page comes each time that such a while is over.
    while fixture.worker.pages.filler.pages_in_flight() > 0 {
        fixture.clock.advance_time(WorkerFillSettings::default().unwanted_max.0);
        drip.add_permits((PAGE / (64 << 10)) as usize);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    assert!(fixture.store.body_bytes() <= 4 * PAGE, "{}", fixture.store.body_bytes());
    drip.add_permits(1000);
    let got = fixture.read(read("k", &stored, 0, 0..BLOCK as u32)).await;
    assert!(got.bytes == stored.content(0..BLOCK));
    drop(got);
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_reader_that_returns_soon_finds_its_fill_under_way() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(7, BLOCK);
    fixture.store.put("k", stored.clone());
    let drip = fixture.store.drip();
    let mut first = fixture.call(&WorkerRequest::Read(read("k", &stored, 0, 0..BLOCK as u32)));
    drip.add_permits(1);
    first.next().await.unwrap();
    drop(first);
    // Some pages come while nobody waits.
    drip.add_permits(2 * (PAGE / (64 << 10)) as usize);
    while fixture.worker.pages.filler.pages_in_flight() > 14 {
        tokio::task::yield_now().await;
    }
    let second =
        fixture.call(&WorkerRequest::Read(read("k", &stored, 0, PAGE as u32..BLOCK as u32)));
    drip.add_permits(1000);
    assert!(collect_rest(second, 0).await == stored.content(PAGE..BLOCK));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), BLOCK));
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn read_ahead_is_part_of_the_same_request_and_bounded() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(8, 2 * BLOCK);
    fixture.store.put("k", stored.clone());
    let page = PAGE as u32;
    let ahead = ReadMessage { ahead_bytes: 3 * page, ..read("k", &stored, 1, 0..page) };
    assert_eq!(fixture.read(ahead).await.bytes.len(), PAGE as usize);
    while fixture.worker.pages.filler.pages_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), 4 * PAGE));
    let got = fixture.read(read("k", &stored, 1, 0..4 * page)).await;
    assert_eq!((got.verdict(), fixture.store.asked()), (CacheVerdict::Hit, (1, 0)));
    let end = ReadMessage { ahead_bytes: u32::MAX, ..read("k", &stored, 1, 15 * page..16 * page) };
    assert_eq!(fixture.read(end).await.bytes.len(), PAGE as usize);
    assert_eq!(fixture.store.body_bytes(), 5 * PAGE);
}

#[tokio::test]
async fn shutdown_ends_fills_and_tells_their_readers() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(9, BLOCK);
        fixture.store.put("k", stored.clone());
        let drip = fixture.store.drip();
        drip.add_permits(5);
        let mut call = fixture.call(&WorkerRequest::Read(read("k", &stored, 0, 0..BLOCK as u32)));
        call.next().await.unwrap();
        fixture.store.hold();
        let waiting = fixture.call(&WorkerRequest::Open(open("k", ALL)));
        let ending = async {
            fixture.store.wait_held(1).await;
            fixture.worker.shutdown().await;
        };
        let (got, ()) = tokio::join!(collect(waiting), ending);
        assert_eq!(got.unwrap().refused(), Some(&RefusalKind::Busy));
        let refused = loop {
            let Ok(CallEvent::Part(part)) = call.next().await else { panic!("no part") };
            if part.last {
                break Message::decode(&part.message).unwrap();
            }
        };
        assert!(matches!(refused, Message::Refused(refusal) if refusal.kind == RefusalKind::Busy));
        drop(call);
        fixture.assert_nothing_leaked().await;
    }
}

/// Else a scan would look as used as what is read again, which it then drives out.
#[tokio::test]
async fn the_reader_of_a_fill_is_no_second_use_of_its_pages() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(1, BLOCK);
    fixture.store.put("k", stored.clone());
    let digest = fixture.worker.pages.digests.digest_version(&object("k"), &version(&stored));
    for uses in 0..3 {
        assert!(fixture.read(read("k", &stored, 0, 0..BLOCK as u32)).await.refused().is_none());
        let heat = |page| {
            fixture
                .worker
                .pages
                .filler
                .memory_tier()
                .page_heat(digest.page_key(BlockIndex(0), page), 0)
        };
        let found: Vec<u8> = (0..16).map(|page| heat(page).unwrap().uses).collect();
        assert_eq!(found, [uses; 16]);
    }
}

//! One request to the store for the bytes of several blocks: how many there are, that they bring no
//! byte that nobody wants, and what becomes of their readers when they end early.

use std::ops::Range;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use verbs3_protocol::{ByteRange, OpenMessage, ReadMessage, RefusalKind, WorkerRequest};
use verbs3_rdma::inprocess::InProcessMode;
use verbs3_rdma::transport::CallEvent;
use verbs3_settings::{ByteSize, TimePeriod};

use super::holding_store::{Fault, Stored};
use super::worker_fixture::{
    BLOCK, Got, PAGE, WorkerFixture, WorkerSetup, open, read, with_disk, with_settings,
};

const ALL: Option<ByteRange> = Some(ByteRange::All);
/// An object of five blocks.
const BYTES: u64 = 18_000_000;
const MIB: u64 = 1 << 20;

fn stored_in(fixture: &WorkerFixture, bytes: u64) -> Stored {
    let stored = Stored::new(1, bytes);
    fixture.store.put("k", stored.clone());
    stored
}

/// The read of one block by a reader of `range`.
fn read_of(stored: &Stored, range: &Range<u64>, block: u64) -> ReadMessage {
    let begins = block * BLOCK;
    let span = range.start.max(begins) - begins..range.end.min(begins + BLOCK) - begins;
    ReadMessage {
        request_range: range.clone(),
        ..read("k", stored, block as u32, span.start as u32..span.end as u32)
    }
}

/// Reads a range as a gateway does: blocks in order, two at a time.
async fn read_range(fixture: &WorkerFixture, stored: &Stored, range: Range<u64>) -> Vec<u8> {
    let blocks = stream::iter(range.start / BLOCK..range.end.div_ceil(BLOCK));
    let reads = blocks.map(|block| fixture.read(read_of(stored, &range, block)));
    reads.buffered(2).map(|got| got.bytes).concat().await
}

/// Opens an object and reads all of it.
async fn get_whole(fixture: &WorkerFixture, stored: &Stored, open: OpenMessage) -> Vec<u8> {
    let mut bytes = fixture.open(open).await.bytes;
    let end = stored.bytes.div_ceil(BLOCK);
    let reads =
        stream::iter(1..end).map(|block| fixture.read(read_of(stored, &(0..stored.bytes), block)));
    bytes.extend(reads.buffered(2).map(|got| got.bytes).concat().await);
    bytes
}

async fn wait_idle(fixture: &WorkerFixture) {
    let idle = async {
        while fixture.worker.pages.filler.pages_in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), idle).await.expect("fills go on");
}

#[tokio::test]
async fn a_cold_large_object_is_one_get_and_a_head_for_checksums() {
    for checksums in [false, true] {
        let fixture = WorkerFixture::new(InProcessMode::Share);
        let stored = stored_in(&fixture, BYTES);
        let open = OpenMessage { checksums, ..open("k", ALL) };
        assert!(get_whole(&fixture, &stored, open).await == stored.content(0..BYTES));
        assert_eq!(fixture.store.asked(), (1, usize::from(checksums)));
        assert_eq!(fixture.store.body_bytes(), BYTES);
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_folder_with_a_large_object_is_asked_for_first_blocks() {
    let fixture = WorkerFixture::with(InProcessMode::Share, 64, WorkerSetup::default());
    let large = Stored::new(2, 65 * MIB);
    fixture.store.put("large", large.clone());
    assert!(fixture.open(open("large", ALL)).await.bytes == large.content(0..BLOCK));
    let stored = stored_in(&fixture, BYTES);
    let before = (fixture.store.asked(), fixture.store.body_bytes());
    assert!(get_whole(&fixture, &stored, open("k", ALL)).await == stored.content(0..BYTES));
    assert_eq!(fixture.store.asked().0 - before.0.0, 2);
    assert_eq!(fixture.store.body_bytes() - before.1, BYTES);
}

#[tokio::test]
async fn an_object_of_known_attributes_is_one_request() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = stored_in(&fixture, BYTES);
    fixture.open(open("k", None)).await.opened();
    assert!(get_whole(&fixture, &stored, open("k", ALL)).await == stored.content(0..BYTES));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 1), BYTES));
}

#[tokio::test]
async fn a_first_landing_of_a_few_pages_makes_no_further_request() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = stored_in(&fixture, BYTES);
    fixture.open(open("k", None)).await.opened();
    let short = OpenMessage { piece_bytes_max: MIB as u32, ..open("k", ALL) };
    assert!(fixture.open(short).await.bytes == stored.content(0..MIB));
    assert!(read_range(&fixture, &stored, MIB..BYTES).await == stored.content(MIB..BYTES));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 1), BYTES));
}

#[tokio::test]
async fn a_named_range_over_a_border_comes_with_the_attributes() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = stored_in(&fixture, 64 * MIB);
    let want = Some(ByteRange::From { first: 0, last: Some(8 * MIB - 1) });
    let mut bytes = fixture.open(open("k", want)).await.bytes;
    bytes.extend(fixture.read(read_of(&stored, &(0..8 * MIB), 1)).await.bytes);
    assert!(bytes == stored.content(0..8 * MIB));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), 8 * MIB));
}

#[tokio::test]
async fn among_large_objects_one_request_includes_the_checksums() {
    for checksums in [true, false] {
        let fixture = WorkerFixture::with(InProcessMode::Share, 64, WorkerSetup::default());
        let stored = Stored::new(1, BYTES);
        let ask = |key: &str| OpenMessage { checksums, ..open(key, ALL) };
        for number in 0..8 {
            let key = format!("folder/{number}");
            fixture.store.put(&key, stored.clone());
            fixture.open(ask(&key)).await.opened();
        }
        wait_idle(&fixture).await;
        fixture.store.put("folder/k", stored.clone());
        let (before, bytes) = (fixture.store.asked(), fixture.store.body_bytes());
        let mut got = fixture.open(ask("folder/k")).await.bytes;
        for block in 1..5 {
            let read = read_of(&stored, &(0..BYTES), block);
            let object = super::worker_fixture::object("folder/k");
            got.extend(fixture.read(ReadMessage { object, ..read }).await.bytes);
        }
        assert!(got == stored.content(0..BYTES));
        let after = fixture.store.asked();
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 0), "{checksums}");
        assert_eq!(fixture.store.body_bytes() - bytes, BYTES);
    }
}

/// As the transfer managers of clients do it.
#[tokio::test]
async fn parallel_parts_are_a_request_each() {
    let fixture = WorkerFixture::with(InProcessMode::Share, 128, WorkerSetup::default());
    let stored = stored_in(&fixture, 64 * MIB);
    fixture.open(open("k", None)).await.opened();
    let parts = (0..8).map(|part| part * 8 * MIB..(part + 1) * 8 * MIB);
    let got = join_all(parts.map(|part| read_range(&fixture, &stored, part))).await;
    assert!(got.concat() == stored.content(0..64 * MIB));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((8, 1), 64 * MIB));
}

#[tokio::test]
async fn two_readers_at_once_cost_what_one_costs() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = stored_in(&fixture, BYTES);
    let get = || get_whole(&fixture, &stored, open("k", ALL));
    let (one, two) = tokio::join!(get(), get());
    assert!(one == stored.content(0..BYTES) && two == one);
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), BYTES));
}

#[tokio::test]
async fn readers_of_all_blocks_join_one_request() {
    for mode in super::worker_fixture::modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = stored_in(&fixture, BYTES);
        let reads = (0..5).map(|block| fixture.read(read_of(&stored, &(0..BYTES), block)));
        let got: Vec<Vec<u8>> = join_all(reads).await.into_iter().map(|got| got.bytes).collect();
        assert!(got.concat() == stored.content(0..BYTES));
        assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), BYTES));
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_long_read_has_several_requests_under_way() {
    let fixture = WorkerFixture::with(InProcessMode::Share, 64, WorkerSetup::default());
    let stored = stored_in(&fixture, 1 << 30);
    fixture.store.hold();
    let reads = (0..4).map(|block| fixture.read(read_of(&stored, &(0..1 << 30), block)));
    let under_way = async {
        fixture.store.wait_held(4).await;
        fixture.store.release();
    };
    let (got, ()) = tokio::join!(join_all(reads), under_way);
    let got: Vec<Vec<u8>> = got.into_iter().map(|got| got.bytes).collect();
    assert!(got.concat() == stored.content(0..4 * BLOCK));
    assert_eq!(fixture.store.body_bytes(), 4 * BLOCK);
}

#[tokio::test]
async fn a_range_brings_its_pages_and_no_others() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = stored_in(&fixture, 64 * MIB);
    let (start, end) = (2 * BLOCK - 100, 2 * BLOCK + 100);
    assert!(read_range(&fixture, &stored, start..end).await == stored.content(start..end));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), 2 * PAGE));
    let start = 5 * BLOCK + PAGE;
    let range = start..start + 8 * MIB;
    assert!(read_range(&fixture, &stored, range.clone()).await == stored.content(range));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((2, 0), 2 * PAGE + 8 * MIB));
}

/// Starts reads of all blocks, and lets the one request of them break off in the third.
async fn read_broken_off(
    fixture: &WorkerFixture,
    stored: &Stored,
    then: impl FnOnce(),
) -> Vec<Got> {
    let drip = fixture.store.drip();
    *fixture.store.fault.lock() = Some(Fault::Truncate(2 * BLOCK + 3 * PAGE));
    let reads = (0..5).map(|block| fixture.read(read_of(stored, &(0..BYTES), block)));
    let repair = async {
        drip.add_permits(1);
        while fixture.store.body_bytes() == 0 {
            tokio::task::yield_now().await;
        }
        *fixture.store.fault.lock() = None;
        then();
        drip.add_permits(10_000);
    };
    let (got, ()) = tokio::join!(join_all(reads), repair);
    got
}

#[tokio::test]
async fn readers_of_a_body_that_breaks_off_go_on_by_another_request() {
    for mode in super::worker_fixture::modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = stored_in(&fixture, BYTES);
        let got = read_broken_off(&fixture, &stored, || ()).await;
        for (block, got) in got.iter().enumerate() {
            assert_eq!(got.refused(), None, "{block}");
        }
        let bytes: Vec<Vec<u8>> = got.into_iter().map(|got| got.bytes).collect();
        assert!(bytes.concat() == stored.content(0..BYTES));
        assert!(fixture.store.asked().0 <= 4, "{:?}", fixture.store.asked());
        assert_eq!(fixture.store.body_bytes(), BYTES);
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn an_object_that_is_replaced_under_a_request_is_never_mixed() {
    for ignores_conditions in [false, true] {
        let fixture = WorkerFixture::new(InProcessMode::Share);
        let stored = stored_in(&fixture, BYTES);
        *fixture.store.ignores_conditions.lock() = ignores_conditions;
        let replace = || fixture.store.put("k", Stored::new(2, BYTES));
        let got = read_broken_off(&fixture, &stored, replace).await;
        for (block, got) in (0..).zip(&got) {
            let whole = stored.content(block * BLOCK..((block + 1) * BLOCK).min(BYTES));
            assert!(whole.starts_with(&got.bytes), "{block}");
            match block {
                0 | 1 => assert_eq!(got.refused(), None),
                _ => assert_eq!(got.refused(), Some(&RefusalKind::VersionGone), "{block}"),
            }
        }
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn an_error_of_the_store_reaches_the_readers_of_all_blocks() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = stored_in(&fixture, BYTES);
    *fixture.store.fault.lock() = Some(Fault::Forbidden);
    let reads = (0..5).map(|block| fixture.read(read_of(&stored, &(0..BYTES), block)));
    for got in join_all(reads).await {
        assert!(matches!(got.refused(), Some(RefusalKind::Ufs(answer)) if answer.status == 403));
    }
    assert_eq!(fixture.store.asked(), (1, 0));
}

#[tokio::test]
async fn a_reader_that_leaves_ends_the_request_at_the_border() {
    let fixture = WorkerFixture::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| {
            settings.fill.request_pause_max = TimePeriod::from_millis(20);
        }),
    );
    let stored = stored_in(&fixture, BYTES);
    let got = fixture.read(read_of(&stored, &(0..BYTES), 1)).await;
    assert!(got.bytes == stored.content(BLOCK..2 * BLOCK));
    wait_idle(&fixture).await;
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), BLOCK));
    assert_eq!(fixture.worker.metrics.requests_cut.get(), 1);
    let rest = 2 * BLOCK..BYTES;
    assert!(read_range(&fixture, &stored, rest.clone()).await == stored.content(rest));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((2, 0), BYTES - BLOCK));
    drop(got);
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_reader_far_ahead_does_not_wait_for_one_that_takes_nothing() {
    let fixture = WorkerFixture::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| {
            settings.fill.request_pause_max = TimePeriod::from_seconds(3600);
        }),
    );
    let stored = stored_in(&fixture, BYTES);
    assert_eq!(fixture.read(read_of(&stored, &(0..BYTES), 0)).await.refused(), None);
    assert!(fixture.worker.pages.filler.pages_in_flight() > 0, "the request waits");
    let got = fixture.read(read_of(&stored, &(3 * BLOCK..4 * BLOCK), 3)).await;
    assert!(got.bytes == stored.content(3 * BLOCK..4 * BLOCK));
    assert_eq!(fixture.store.asked(), (2, 0));
    // The reader that took nothing goes on where it was, and joins nobody.
    let rest = BLOCK..BYTES;
    assert!(read_range(&fixture, &stored, rest.clone()).await == stored.content(rest));
    assert_eq!(fixture.store.body_bytes(), BYTES);
}

#[tokio::test]
async fn a_request_that_waits_for_its_reader_yields_its_turn() {
    let fixture = WorkerFixture::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| {
            settings.fill.in_flight_max = 1;
            settings.fill.wait_max = TimePeriod::from_seconds(60);
            settings.fill.request_pause_max = TimePeriod::from_seconds(3600);
        }),
    );
    let stored = stored_in(&fixture, BYTES);
    let other = Stored::new(2, BLOCK);
    fixture.store.put("other", other.clone());
    assert_eq!(fixture.read(read_of(&stored, &(0..BYTES), 1)).await.refused(), None);
    assert!(fixture.worker.pages.filler.pages_in_flight() > 0, "the request waits");
    let got = fixture.read(read("other", &other, 0, 0..BLOCK as u32)).await;
    assert!(got.bytes == other.content(0..BLOCK));
    assert_eq!(fixture.worker.pages.filler.pages_in_flight(), 0);
}

#[tokio::test]
async fn a_page_that_is_here_splits_the_request_and_comes_once() {
    let folder = tempfile::tempdir().unwrap();
    for on_disk in [false, true] {
        let worker = match on_disk {
            true => with_disk(folder.path(), 64),
            false => WorkerSetup::default(),
        };
        let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker);
        let stored = stored_in(&fixture, BYTES);
        let page = PAGE as u32;
        fixture.read(read("k", &stored, 2, 5 * page..6 * page)).await;
        let range = BLOCK..BYTES;
        assert!(read_range(&fixture, &stored, range.clone()).await == stored.content(range));
        assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((3, 0), BYTES - BLOCK));
    }
}

#[tokio::test]
async fn readers_are_served_though_memory_is_short_for_the_request() {
    let fixture = WorkerFixture::with(InProcessMode::Share, 4, WorkerSetup::default());
    let stored = stored_in(&fixture, BYTES);
    let pinned = Stored::new(2, BLOCK);
    fixture.store.put("pinned", pinned.clone());
    let mut held = Vec::new();
    for page in 0..9u32 {
        let range = page * PAGE as u32..(page + 1) * PAGE as u32;
        let mut call = fixture.call(&WorkerRequest::Read(read("pinned", &pinned, 0, range)));
        let Ok(CallEvent::Part(part)) = call.next().await else { panic!("no part") };
        held.push((call, part));
    }
    let page = PAGE as u32;
    let first = |block, pages| ReadMessage {
        request_range: 0..BYTES,
        ..read("k", &stored, block, 0..pages * page)
    };
    let (one, two) = tokio::join!(fixture.read(first(1, 2)), fixture.read(first(2, 1)));
    assert_eq!((one.refused(), two.refused()), (None, None));
    assert!(one.bytes == stored.content(BLOCK..BLOCK + 2 * PAGE));
    assert!(two.bytes == stored.content(2 * BLOCK..2 * BLOCK + PAGE));
    drop((one, two, held));
    assert!(get_whole(&fixture, &stored, open("k", ALL)).await == stored.content(0..BYTES));
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_rate_of_the_store_is_asked_for_block_by_block() {
    let fixture = WorkerFixture::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| settings.fill.store_rate_max = ByteSize::from_mib(64)),
    );
    let stored = stored_in(&fixture, BYTES);
    assert!(get_whole(&fixture, &stored, open("k", ALL)).await == stored.content(0..BYTES));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), BYTES));
}

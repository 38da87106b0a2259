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

use super::bed::{BLOCK, Bed, BedWorker, Got, PAGE, open, read, with_disk, with_settings};
use super::store::{Fault, Stored};

const ALL: Option<ByteRange> = Some(ByteRange::All);
/// An object of five blocks.
const BYTES: u64 = 18_000_000;
const MIB: u64 = 1 << 20;

fn stored_in(bed: &Bed, bytes: u64) -> Stored {
    let stored = Stored::new(1, bytes);
    bed.store.put("k", stored.clone());
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
async fn read_range(bed: &Bed, stored: &Stored, range: Range<u64>) -> Vec<u8> {
    let blocks = stream::iter(range.start / BLOCK..range.end.div_ceil(BLOCK));
    let reads = blocks.map(|block| bed.read(read_of(stored, &range, block)));
    reads.buffered(2).map(|got| got.bytes).concat().await
}

/// Opens an object and reads all of it.
async fn get_whole(bed: &Bed, stored: &Stored, open: OpenMessage) -> Vec<u8> {
    let mut bytes = bed.open(open).await.bytes;
    let end = stored.bytes.div_ceil(BLOCK);
    let reads =
        stream::iter(1..end).map(|block| bed.read(read_of(stored, &(0..stored.bytes), block)));
    bytes.extend(reads.buffered(2).map(|got| got.bytes).concat().await);
    bytes
}

async fn wait_idle(bed: &Bed) {
    let idle = async {
        while bed.worker.pages.filler.pages_in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), idle).await.expect("fills go on");
}

#[tokio::test]
async fn a_cold_large_object_is_one_get_and_a_head_for_checksums() {
    for checksums in [false, true] {
        let bed = Bed::new(InProcessMode::Share);
        let stored = stored_in(&bed, BYTES);
        let open = OpenMessage { checksums, ..open("k", ALL) };
        assert!(get_whole(&bed, &stored, open).await == stored.content(0..BYTES));
        assert_eq!(bed.store.asked(), (1, usize::from(checksums)));
        assert_eq!(bed.store.body_bytes(), BYTES);
        bed.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_folder_with_a_large_object_is_asked_for_first_blocks() {
    let bed = Bed::with(InProcessMode::Share, 64, BedWorker::default());
    let large = Stored::new(2, 65 * MIB);
    bed.store.put("large", large.clone());
    assert!(bed.open(open("large", ALL)).await.bytes == large.content(0..BLOCK));
    let stored = stored_in(&bed, BYTES);
    let before = (bed.store.asked(), bed.store.body_bytes());
    assert!(get_whole(&bed, &stored, open("k", ALL)).await == stored.content(0..BYTES));
    assert_eq!(bed.store.asked().0 - before.0.0, 2);
    assert_eq!(bed.store.body_bytes() - before.1, BYTES);
}

#[tokio::test]
async fn an_object_of_known_attributes_is_one_request() {
    let bed = Bed::new(InProcessMode::Share);
    let stored = stored_in(&bed, BYTES);
    bed.open(open("k", None)).await.opened();
    assert!(get_whole(&bed, &stored, open("k", ALL)).await == stored.content(0..BYTES));
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((1, 1), BYTES));
}

#[tokio::test]
async fn a_first_landing_of_a_few_pages_makes_no_further_request() {
    let bed = Bed::new(InProcessMode::Share);
    let stored = stored_in(&bed, BYTES);
    bed.open(open("k", None)).await.opened();
    let short = OpenMessage { piece_bytes_max: MIB as u32, ..open("k", ALL) };
    assert!(bed.open(short).await.bytes == stored.content(0..MIB));
    assert!(read_range(&bed, &stored, MIB..BYTES).await == stored.content(MIB..BYTES));
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((1, 1), BYTES));
}

#[tokio::test]
async fn a_named_range_over_a_border_comes_with_the_attributes() {
    let bed = Bed::new(InProcessMode::Share);
    let stored = stored_in(&bed, 64 * MIB);
    let want = Some(ByteRange::From { first: 0, last: Some(8 * MIB - 1) });
    let mut bytes = bed.open(open("k", want)).await.bytes;
    bytes.extend(bed.read(read_of(&stored, &(0..8 * MIB), 1)).await.bytes);
    assert!(bytes == stored.content(0..8 * MIB));
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((1, 0), 8 * MIB));
}

#[tokio::test]
async fn among_large_objects_one_request_includes_the_checksums() {
    for checksums in [true, false] {
        let bed = Bed::with(InProcessMode::Share, 64, BedWorker::default());
        let stored = Stored::new(1, BYTES);
        let ask = |key: &str| OpenMessage { checksums, ..open(key, ALL) };
        for number in 0..8 {
            let key = format!("folder/{number}");
            bed.store.put(&key, stored.clone());
            bed.open(ask(&key)).await.opened();
        }
        wait_idle(&bed).await;
        bed.store.put("folder/k", stored.clone());
        let (before, bytes) = (bed.store.asked(), bed.store.body_bytes());
        let mut got = bed.open(ask("folder/k")).await.bytes;
        for block in 1..5 {
            let read = read_of(&stored, &(0..BYTES), block);
            let object = super::bed::object("folder/k");
            got.extend(bed.read(ReadMessage { object, ..read }).await.bytes);
        }
        assert!(got == stored.content(0..BYTES));
        let after = bed.store.asked();
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 0), "{checksums}");
        assert_eq!(bed.store.body_bytes() - bytes, BYTES);
    }
}

/// As the transfer managers of clients do it.
#[tokio::test]
async fn parallel_parts_are_a_request_each() {
    let bed = Bed::with(InProcessMode::Share, 128, BedWorker::default());
    let stored = stored_in(&bed, 64 * MIB);
    bed.open(open("k", None)).await.opened();
    let parts = (0..8).map(|part| part * 8 * MIB..(part + 1) * 8 * MIB);
    let got = join_all(parts.map(|part| read_range(&bed, &stored, part))).await;
    assert!(got.concat() == stored.content(0..64 * MIB));
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((8, 1), 64 * MIB));
}

#[tokio::test]
async fn two_readers_at_once_cost_what_one_costs() {
    let bed = Bed::new(InProcessMode::Share);
    let stored = stored_in(&bed, BYTES);
    let get = || get_whole(&bed, &stored, open("k", ALL));
    let (one, two) = tokio::join!(get(), get());
    assert!(one == stored.content(0..BYTES) && two == one);
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((1, 0), BYTES));
}

#[tokio::test]
async fn readers_of_all_blocks_join_one_request() {
    for mode in super::bed::modes() {
        let bed = Bed::new(mode);
        let stored = stored_in(&bed, BYTES);
        let reads = (0..5).map(|block| bed.read(read_of(&stored, &(0..BYTES), block)));
        let got: Vec<Vec<u8>> = join_all(reads).await.into_iter().map(|got| got.bytes).collect();
        assert!(got.concat() == stored.content(0..BYTES));
        assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((1, 0), BYTES));
        bed.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_long_read_has_several_requests_under_way() {
    let bed = Bed::with(InProcessMode::Share, 64, BedWorker::default());
    let stored = stored_in(&bed, 1 << 30);
    bed.store.hold();
    let reads = (0..4).map(|block| bed.read(read_of(&stored, &(0..1 << 30), block)));
    let under_way = async {
        bed.store.wait_held(4).await;
        bed.store.release();
    };
    let (got, ()) = tokio::join!(join_all(reads), under_way);
    let got: Vec<Vec<u8>> = got.into_iter().map(|got| got.bytes).collect();
    assert!(got.concat() == stored.content(0..4 * BLOCK));
    assert_eq!(bed.store.body_bytes(), 4 * BLOCK);
}

#[tokio::test]
async fn a_range_brings_its_pages_and_no_others() {
    let bed = Bed::new(InProcessMode::Share);
    let stored = stored_in(&bed, 64 * MIB);
    let (start, end) = (2 * BLOCK - 100, 2 * BLOCK + 100);
    assert!(read_range(&bed, &stored, start..end).await == stored.content(start..end));
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((1, 0), 2 * PAGE));
    let start = 5 * BLOCK + PAGE;
    let range = start..start + 8 * MIB;
    assert!(read_range(&bed, &stored, range.clone()).await == stored.content(range));
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((2, 0), 2 * PAGE + 8 * MIB));
}

/// Starts reads of all blocks, and lets the one request of them break off in the third.
async fn read_broken_off(bed: &Bed, stored: &Stored, then: impl FnOnce()) -> Vec<Got> {
    let drip = bed.store.drip();
    *bed.store.fault.lock() = Some(Fault::Truncate(2 * BLOCK + 3 * PAGE));
    let reads = (0..5).map(|block| bed.read(read_of(stored, &(0..BYTES), block)));
    let repair = async {
        drip.add_permits(1);
        while bed.store.body_bytes() == 0 {
            tokio::task::yield_now().await;
        }
        *bed.store.fault.lock() = None;
        then();
        drip.add_permits(10_000);
    };
    let (got, ()) = tokio::join!(join_all(reads), repair);
    got
}

#[tokio::test]
async fn readers_of_a_body_that_breaks_off_go_on_by_another_request() {
    for mode in super::bed::modes() {
        let bed = Bed::new(mode);
        let stored = stored_in(&bed, BYTES);
        let got = read_broken_off(&bed, &stored, || ()).await;
        for (block, got) in got.iter().enumerate() {
            assert_eq!(got.refused(), None, "{block}");
        }
        let bytes: Vec<Vec<u8>> = got.into_iter().map(|got| got.bytes).collect();
        assert!(bytes.concat() == stored.content(0..BYTES));
        assert!(bed.store.asked().0 <= 4, "{:?}", bed.store.asked());
        assert_eq!(bed.store.body_bytes(), BYTES);
        bed.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn an_object_that_is_replaced_under_a_request_is_never_mixed() {
    for ignores_conditions in [false, true] {
        let bed = Bed::new(InProcessMode::Share);
        let stored = stored_in(&bed, BYTES);
        *bed.store.ignores_conditions.lock() = ignores_conditions;
        let replace = || bed.store.put("k", Stored::new(2, BYTES));
        let got = read_broken_off(&bed, &stored, replace).await;
        for (block, got) in (0..).zip(&got) {
            let whole = stored.content(block * BLOCK..((block + 1) * BLOCK).min(BYTES));
            assert!(whole.starts_with(&got.bytes), "{block}");
            match block {
                0 | 1 => assert_eq!(got.refused(), None),
                _ => assert_eq!(got.refused(), Some(&RefusalKind::VersionGone), "{block}"),
            }
        }
        bed.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn an_error_of_the_store_reaches_the_readers_of_all_blocks() {
    let bed = Bed::new(InProcessMode::Share);
    let stored = stored_in(&bed, BYTES);
    *bed.store.fault.lock() = Some(Fault::Forbidden);
    let reads = (0..5).map(|block| bed.read(read_of(&stored, &(0..BYTES), block)));
    for got in join_all(reads).await {
        assert!(matches!(got.refused(), Some(RefusalKind::Ufs(answer)) if answer.status == 403));
    }
    assert_eq!(bed.store.asked(), (1, 0));
}

#[tokio::test]
async fn a_reader_that_leaves_ends_the_request_at_the_border() {
    let bed = Bed::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| {
            settings.fill.request_pause_max = TimePeriod::from_millis(20);
        }),
    );
    let stored = stored_in(&bed, BYTES);
    let got = bed.read(read_of(&stored, &(0..BYTES), 1)).await;
    assert!(got.bytes == stored.content(BLOCK..2 * BLOCK));
    wait_idle(&bed).await;
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((1, 0), BLOCK));
    assert_eq!(bed.worker.metrics.requests_cut.get(), 1);
    let rest = 2 * BLOCK..BYTES;
    assert!(read_range(&bed, &stored, rest.clone()).await == stored.content(rest));
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((2, 0), BYTES - BLOCK));
    drop(got);
    bed.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_reader_far_ahead_does_not_wait_for_one_that_takes_nothing() {
    let bed = Bed::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| {
            settings.fill.request_pause_max = TimePeriod::from_seconds(3600);
        }),
    );
    let stored = stored_in(&bed, BYTES);
    assert_eq!(bed.read(read_of(&stored, &(0..BYTES), 0)).await.refused(), None);
    assert!(bed.worker.pages.filler.pages_in_flight() > 0, "the request waits");
    let got = bed.read(read_of(&stored, &(3 * BLOCK..4 * BLOCK), 3)).await;
    assert!(got.bytes == stored.content(3 * BLOCK..4 * BLOCK));
    assert_eq!(bed.store.asked(), (2, 0));
    // The reader that took nothing goes on where it was, and joins nobody.
    let rest = BLOCK..BYTES;
    assert!(read_range(&bed, &stored, rest.clone()).await == stored.content(rest));
    assert_eq!(bed.store.body_bytes(), BYTES);
}

#[tokio::test]
async fn a_request_that_waits_for_its_reader_yields_its_turn() {
    let bed = Bed::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| {
            settings.fill.in_flight_max = 1;
            settings.fill.wait_max = TimePeriod::from_seconds(60);
            settings.fill.request_pause_max = TimePeriod::from_seconds(3600);
        }),
    );
    let stored = stored_in(&bed, BYTES);
    let other = Stored::new(2, BLOCK);
    bed.store.put("other", other.clone());
    assert_eq!(bed.read(read_of(&stored, &(0..BYTES), 1)).await.refused(), None);
    assert!(bed.worker.pages.filler.pages_in_flight() > 0, "the request waits");
    let got = bed.read(read("other", &other, 0, 0..BLOCK as u32)).await;
    assert!(got.bytes == other.content(0..BLOCK));
    assert_eq!(bed.worker.pages.filler.pages_in_flight(), 0);
}

#[tokio::test]
async fn a_page_that_is_here_splits_the_request_and_comes_once() {
    let folder = tempfile::tempdir().unwrap();
    for on_disk in [false, true] {
        let worker = match on_disk {
            true => with_disk(folder.path(), 64),
            false => BedWorker::default(),
        };
        let bed = Bed::with(InProcessMode::Share, 32, worker);
        let stored = stored_in(&bed, BYTES);
        let page = PAGE as u32;
        bed.read(read("k", &stored, 2, 5 * page..6 * page)).await;
        let range = BLOCK..BYTES;
        assert!(read_range(&bed, &stored, range.clone()).await == stored.content(range));
        assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((3, 0), BYTES - BLOCK));
    }
}

#[tokio::test]
async fn readers_are_served_though_memory_is_short_for_the_request() {
    let bed = Bed::with(InProcessMode::Share, 4, BedWorker::default());
    let stored = stored_in(&bed, BYTES);
    let pinned = Stored::new(2, BLOCK);
    bed.store.put("pinned", pinned.clone());
    let mut held = Vec::new();
    for page in 0..9u32 {
        let range = page * PAGE as u32..(page + 1) * PAGE as u32;
        let mut call = bed.call(&WorkerRequest::Read(read("pinned", &pinned, 0, range)));
        let Ok(CallEvent::Part(part)) = call.next().await else { panic!("no part") };
        held.push((call, part));
    }
    let page = PAGE as u32;
    let first = |block, pages| ReadMessage {
        request_range: 0..BYTES,
        ..read("k", &stored, block, 0..pages * page)
    };
    let (one, two) = tokio::join!(bed.read(first(1, 2)), bed.read(first(2, 1)));
    assert_eq!((one.refused(), two.refused()), (None, None));
    assert!(one.bytes == stored.content(BLOCK..BLOCK + 2 * PAGE));
    assert!(two.bytes == stored.content(2 * BLOCK..2 * BLOCK + PAGE));
    drop((one, two, held));
    assert!(get_whole(&bed, &stored, open("k", ALL)).await == stored.content(0..BYTES));
    bed.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_rate_of_the_store_is_asked_for_block_by_block() {
    let bed = Bed::with(
        InProcessMode::Share,
        32,
        with_settings(|settings| settings.fill.store_rate_max = ByteSize::from_mib(64)),
    );
    let stored = stored_in(&bed, BYTES);
    assert!(get_whole(&bed, &stored, open("k", ALL)).await == stored.content(0..BYTES));
    assert_eq!((bed.store.asked(), bed.store.body_bytes()), ((1, 0), BYTES));
}

//! Parts of pages: small reads bring no more than they want, and nobody takes a partial page for a
//! page.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use verbs3_protocol::{
    BlockGeometry, BlockIndex, ByteRange, CacheVerdict, Epoch, HoldsMessage, OpenMessage,
    PageIndex, ReadMessage, ReadSource, RefusalKind, TendAct, TendMessage, WarmMessage,
    WarmPagesReply, WarmTier, WorkerReply as Message, WorkerRequest,
};
use verbs3_rdma::inprocess::InProcessMode;

use super::holding_store::{Fault, Stored};
use super::worker_fixture::{
    ANY_AGE, BLOCK, Got, PAGE, WorkerFixture, disk_folder, modes, object, open, read, read_from,
    version, with_parts,
};
use crate::metrics::{PageFound, PartFillReason};

const PART: u64 = 16 << 10;
const KIB: u32 = 1 << 10;

fn large() -> Stored {
    Stored::new(7, 3 * BLOCK + 5 * PAGE / 2)
}

fn new_fixture_with(mode: InProcessMode) -> WorkerFixture {
    let fixture = WorkerFixture::with(mode, 32, with_parts(PART >> 10));
    fixture.store.put("k", large());
    fixture
}

fn new_fixture() -> WorkerFixture {
    new_fixture_with(InProcessMode::Share)
}

/// Reads bytes of a block, and holds them against the store's.
async fn read_range(fixture: &WorkerFixture, block: u32, range: Range<u32>) -> Got {
    let got = fixture.read(read("k", &large(), block, range.clone())).await;
    assert_eq!(got.refused(), None);
    assert_right(&got, block, range);
    got
}

fn assert_right(got: &Got, block: u32, range: Range<u32>) {
    let at = |byte: u32| u64::from(block) * BLOCK + u64::from(byte);
    assert!(got.bytes == large().content(at(range.start)..at(range.end)), "wrong bytes");
}

fn pages(fixture: &WorkerFixture) -> (u64, u64) {
    fixture.worker.pages.filler.memory_tier().held_totals()
}

fn parts(fixture: &WorkerFixture) -> (u64, u64) {
    fixture.worker.pages.filler.memory_tier().part_totals()
}

/// Waits until no fill is under way.
async fn wait_for_fills(fixture: &WorkerFixture) {
    while fixture.worker.pages.filler.pages_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_isolated_small_read_brings_its_own_parts_alone() {
    for mode in modes() {
        let fixture = new_fixture_with(mode);
        // 64 KiB that begin within a part: five of them.
        let got = read_range(&fixture, 1, 100 * KIB..164 * KIB).await;
        assert_eq!(got.verdict(), CacheVerdict::Miss);
        assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), 5 * PART));
        assert_eq!((pages(&fixture), parts(&fixture)), ((0, 0), (5, 5 * PART)));
        let again = read_range(&fixture, 1, 101 * KIB..150 * KIB).await;
        assert_eq!(again.verdict(), CacheVerdict::Hit);
        // One checksum for what comes of a page, of however many parts.
        assert_eq!(again.messages.len(), 1);
        assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), 5 * PART));
        drop((got, again));
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_small_read_over_the_border_of_pages_is_one_request() {
    let fixture = new_fixture();
    read_range(&fixture, 2, 230 * KIB..294 * KIB).await;
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), 5 * PART));
    // The last page of the object is short.
    read_range(&fixture, 3, 600 * KIB..640 * KIB).await;
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((2, 0), 5 * PART + 48 * 1024));
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn reads_that_parts_do_not_suit_bring_whole_pages() {
    let small = Stored::new(8, BLOCK);
    let page = PAGE as u32;
    let reads = [
        ("more than half a page", read("k", &large(), 1, 0..page / 2 + 1)),
        (
            "a piece of a longer read",
            ReadMessage { request_range: BLOCK..BLOCK + PAGE, ..read("k", &large(), 1, 0..10) },
        ),
        ("the object's beginning", read("k", &large(), 0, 0..10)),
        ("a small object", read("small", &small, 0, 5 * page + 5..5 * page + 10)),
    ];
    for (what, wanted) in reads {
        let fixture = new_fixture();
        fixture.store.put("small", small.clone());
        assert_eq!(fixture.read(wanted).await.refused(), None, "{what}");
        wait_for_fills(&fixture).await;
        assert_eq!(parts(&fixture), (0, 0), "{what}");
        assert_eq!(fixture.store.body_bytes(), PAGE, "{what}");
    }
}

/// A gateway takes some random reads for a sequence, so its word alone is not enough.
#[tokio::test]
async fn read_ahead_is_for_readers_that_go_on_where_something_ends() {
    let page = PAGE as u32;
    let ahead = |block, start: u32| ReadMessage {
        ahead_bytes: 3 * page,
        ..read("k", &large(), block, start..start + 10)
    };
    let fixture = new_fixture();
    assert_eq!(fixture.read(ahead(1, 5 * page + 100_000)).await.refused(), None);
    wait_for_fills(&fixture).await;
    assert_eq!((pages(&fixture), parts(&fixture)), ((0, 0), (1, PART)));
    // Near it, and not behind it.
    assert_eq!(fixture.read(ahead(1, 5 * page + 50_000)).await.refused(), None);
    wait_for_fills(&fixture).await;
    assert_eq!((pages(&fixture), parts(&fixture)), ((0, 0), (2, 2 * PART)));
    assert_eq!(fixture.read(ahead(1, 5 * page + 100_010)).await.refused(), None);
    wait_for_fills(&fixture).await;
    assert_eq!((pages(&fixture).0, parts(&fixture).0), (4, 0));
    // In the next block, of which the last page before it is here.
    read_range(&fixture, 1, BLOCK as u32 - page..BLOCK as u32).await;
    assert_eq!(fixture.read(ahead(2, 0)).await.refused(), None);
    wait_for_fills(&fixture).await;
    assert_eq!((pages(&fixture).0, parts(&fixture).0), (9, 0));
}

/// A gateway asks for the two pieces of such a read one after the other. The first is no reason to
/// read on from the second.
#[tokio::test]
async fn a_small_read_across_a_block_border_is_no_sequence() {
    for is_sequence in [false, true] {
        let fixture = new_fixture();
        let (block, page) = (BLOCK as u32, PAGE as u32);
        if is_sequence {
            read_range(&fixture, 1, block - page..block - 32 * KIB).await;
        }
        let request_range = 2 * BLOCK - (32 << 10)..2 * BLOCK + (32 << 10);
        let first = ReadMessage {
            request_range: request_range.clone(),
            ..read("k", &large(), 1, block - 32 * KIB..block)
        };
        assert_right(&fixture.read(first).await, 1, block - 32 * KIB..block);
        let (ahead_bytes, second) = (3 * page, read("k", &large(), 2, 0..32 * KIB));
        let got = fixture.read(ReadMessage { request_range, ahead_bytes, ..second }).await;
        assert_right(&got, 2, 0..32 * KIB);
        wait_for_fills(&fixture).await;
        let wanted = if is_sequence { (5, 0) } else { (0, 4) };
        assert_eq!((pages(&fixture).0, parts(&fixture).0), wanted);
    }
}

#[tokio::test]
async fn without_the_setting_every_read_brings_pages() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", large());
    read_range(&fixture, 1, 100 * KIB..164 * KIB).await;
    assert_eq!((pages(&fixture), parts(&fixture)), ((1, PAGE), (0, 0)));
    assert_eq!(fixture.store.body_bytes(), PAGE);
}

#[tokio::test]
async fn a_mostly_wanted_page_becomes_whole_and_no_byte_comes_twice() {
    for mode in modes() {
        let fixture = new_fixture_with(mode);
        for start in [112, 16] {
            read_range(&fixture, 1, start * KIB..(start + 64) * KIB).await;
        }
        assert_eq!((pages(&fixture), parts(&fixture).0), ((0, 0), 8));
        read_range(&fixture, 1, 192 * KIB..256 * KIB).await;
        wait_for_fills(&fixture).await;
        assert_eq!((pages(&fixture), parts(&fixture)), ((1, PAGE), (0, 0)));
        assert_eq!(fixture.store.body_bytes(), PAGE);
        let metrics = &fixture.worker.metrics;
        let asked = |reason| metrics.part_bytes_asked[reason].get();
        assert_eq!(asked(PartFillReason::Alone), 8 * PART);
        assert_eq!(asked(PartFillReason::Rest), 8 * PART);
        assert_eq!((metrics.pages_completed.get(), metrics.page_bytes_completed.get()), (1, PAGE));
        // The page's checksum is that of its bytes: the fixture compares the two.
        let whole = read_range(&fixture, 1, 0..PAGE as u32).await;
        assert_eq!((whole.verdict(), fixture.store.body_bytes()), (CacheVerdict::Hit, PAGE));
        drop(whole);
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn small_reads_in_sequence_bring_pages_and_no_byte_twice() {
    for step in [20, 32, 64] {
        let fixture = new_fixture();
        let mut at = 1000 * KIB;
        while at < 2048 * KIB {
            let end = (at + step * KIB).min(2048 * KIB);
            let wanted = u64::from(at) + BLOCK..u64::from(end) + BLOCK;
            let wanted = ReadMessage { request_range: wanted, ..read("k", &large(), 1, at..end) };
            assert_right(&fixture.read(wanted).await, 1, at..end);
            wait_for_fills(&fixture).await;
            at = end;
        }
        // The first read ends in a page that no other one wants.
        let held = ((4, 4 * PAGE), (2, 2 * PART));
        assert_eq!((pages(&fixture), parts(&fixture)), held, "steps of {step} KiB");
        assert_eq!(fixture.store.body_bytes(), 4 * PAGE + 2 * PART, "steps of {step} KiB");
    }
}

#[tokio::test]
async fn a_part_is_filled_once_for_all_its_readers() {
    let fixture = Arc::new(new_fixture());
    fixture.store.hold();
    let readers = join_all((0..8u32).map(|number| {
        let fixture = fixture.clone();
        async move { read_range(&fixture, 1, (100 + number) * KIB..(140 + number) * KIB).await }
    }));
    let release = async {
        fixture.store.wait_held(1).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        fixture.store.release();
    };
    tokio::join!(readers, release);
    // The first wants parts 6 to 8, those after it part 9 as well: nothing is asked for twice.
    assert_eq!(fixture.store.body_bytes(), 4 * PART, "{:?}", fixture.store.asked());
    Arc::into_inner(fixture).unwrap().assert_nothing_leaked().await;
}

#[tokio::test]
async fn readers_of_a_part_and_of_its_page_each_get_the_right_bytes() {
    for part_first in [true, false] {
        let fixture = new_fixture();
        let (small, page) = (100 * KIB..164 * KIB, 0..PAGE as u32);
        fixture.store.hold();
        let (first, second) = if part_first { (small, page) } else { (page, small) };
        let release = async {
            fixture.store.wait_held(1).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            fixture.store.release();
        };
        tokio::join!(read_range(&fixture, 1, first), read_range(&fixture, 1, second), release);
        wait_for_fills(&fixture).await;
        // A page that is being filled serves the small read. The reader of a page does not wait for
        // parts, so theirs may come twice, and are dropped.
        let twice = if part_first { 5 * PART } else { 0 };
        assert_eq!(fixture.store.body_bytes(), PAGE + twice);
        assert_eq!((pages(&fixture), parts(&fixture)), ((1, PAGE), (0, 0)));
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn nobody_takes_a_partial_page_for_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = with_parts(PART >> 10);
    worker.settings.disk.folders.push(disk_folder(folder.path(), "tier", 64));
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker);
    fixture.store.put("k", large());
    let digest = fixture.worker.pages.digests.digest_version(&object("k"), &version(&large()));
    // Often enough to prove worth a place on disk, and all but one part.
    for start in [112, 16] {
        for _ in 0..4 {
            read_range(&fixture, 0, start * KIB..(start + 64) * KIB).await;
        }
    }
    wait_for_fills(&fixture).await;
    let asked = (fixture.store.asked(), fixture.store.body_bytes());
    let (filler, key) = (&fixture.worker.pages.filler, digest.page_key(BlockIndex(0), 0));
    assert!(!filler.memory_tier().holds_page(key) && !filler.is_on_disk(key));
    assert!(filler.memory_tier().peek_page(key).is_none() && !filler.holds_first_page(digest, 0));
    assert_eq!((pages(&fixture), parts(&fixture)), ((0, 0), (8, 8 * PART)));
    // Another worker asks for the page, and whether it is here.
    let held = fixture.call(&read_from(ReadSource::Held, read("k", &large(), 0, 0..PAGE as u32)));
    let held = collect_held(held).await;
    assert_eq!(held, 0, "bytes of a partial page were given to another worker");
    let holds = HoldsMessage {
        object: object("k"),
        version_id: None,
        geometry: BlockGeometry::DEFAULT,
        page: PageIndex(0),
    };
    let got = fixture.ask(WorkerRequest::Holds(holds)).await;
    assert!(matches!(&got.messages[..], [Message::Holds(holds)] if !holds.likely), "{got:?}");
    // A preload job checks, an operator looks.
    assert_eq!(warmed(&fixture, true).await, (0, 0, PAGE as u32));
    assert_eq!(tended(&fixture, TendAct::Look).await, 0);
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), asked);
    // And when it is loaded, it is whole.
    assert_eq!(warmed(&fixture, false).await, (0, PAGE as u32, 0));
    assert_eq!((pages(&fixture), parts(&fixture)), ((1, PAGE), (0, 0)));
    let whole = read_range(&fixture, 0, 0..PAGE as u32).await;
    assert_eq!((whole.verdict(), fixture.store.body_bytes()), (CacheVerdict::Hit, asked.1 + PAGE));
}

#[tokio::test]
async fn a_page_made_of_parts_goes_to_disk_as_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let with_disk = || {
        let mut worker = with_parts(PART >> 10);
        worker.settings.disk.folders.push(disk_folder(folder.path(), "tier", 64));
        worker
    };
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, with_disk());
    fixture.store.put("k", large());
    for start in [112, 16, 176] {
        read_range(&fixture, 1, start * KIB..(start + 64) * KIB).await;
    }
    wait_for_fills(&fixture).await;
    assert_eq!(pages(&fixture), (1, PAGE));
    for _ in 0..3 {
        read_range(&fixture, 1, 0..PAGE as u32).await;
    }
    let (store, filled) = (fixture.store.clone(), fixture.store.body_bytes());
    fixture.worker.shutdown().await;
    drop(fixture);
    let after = WorkerFixture::before(store, InProcessMode::Share, 32, with_disk());
    let got = read_range(&after, 1, 30 * KIB..40 * KIB).await;
    assert_eq!((got.verdict(), after.store.body_bytes()), (CacheVerdict::Hit, filled));
    assert_eq!((pages(&after), parts(&after)), ((1, PAGE), (0, 0)));
}

#[tokio::test]
async fn an_eviction_on_request_takes_parts_too() {
    let fixture = new_fixture();
    read_range(&fixture, 0, 100 * KIB..164 * KIB).await;
    tended(&fixture, TendAct::Evict).await;
    assert_eq!(parts(&fixture), (0, 0));
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_cold_open_in_a_large_object_asks_for_parts_and_attributes() {
    for mode in modes() {
        let fixture = new_fixture_with(mode);
        let first = 300 * 1024 + 5;
        let want =
            |first: u64, bytes: u64| Some(ByteRange::From { first, last: Some(first + bytes - 1) });
        let got = fixture.open(open("k", want(first, 64 << 10))).await;
        assert_right(&got, 0, first as u32..first as u32 + 64 * KIB);
        assert_eq!(got.verdict(), CacheVerdict::Miss);
        assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), 5 * PART));
        assert_eq!((pages(&fixture), parts(&fixture)), ((0, 0), (5, 5 * PART)));
        // The attributes are renewed alone: the bytes are here.
        let asking = OpenMessage { attributes_age_ms_max: 0, ..open("k", want(first, 64 << 10)) };
        let again = fixture.open(asking).await;
        assert_eq!(fixture.store.asked(), (1, 1));
        assert_right(&again, 0, first as u32..first as u32 + 64 * KIB);
        assert_eq!((again.verdict(), fixture.store.body_bytes()), (CacheVerdict::Hit, 5 * PART));
        drop((got, again));
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_cold_open_at_the_beginning_or_over_much_brings_pages() {
    for (first, last) in [(0, 10), (5, PAGE)] {
        let fixture = new_fixture();
        let want = Some(ByteRange::From { first, last: Some(last) });
        let got = fixture.open(open("k", want)).await;
        assert_right(&got, 0, first as u32..last as u32 + 1);
        wait_for_fills(&fixture).await;
        assert_eq!(parts(&fixture), (0, 0));
        assert_eq!(fixture.store.body_bytes() % PAGE, 0);
    }
}

/// What an object's length is, only the answer tells.
#[tokio::test]
async fn a_cold_open_in_a_small_object_is_served_by_parts_it_brought() {
    let fixture = new_fixture();
    let small = Stored::new(9, 300_000);
    fixture.store.put("small", small.clone());
    let want = Some(ByteRange::From { first: 290_000, last: Some(350_000) });
    let got = fixture.open(open("small", want)).await;
    assert!(got.bytes == small.content(290_000..300_000));
    assert_eq!(fixture.store.asked(), (1, 0));
    // The next read of it brings the page.
    let page = fixture.read(read("small", &small, 0, 262_144..300_000)).await;
    assert!(page.bytes == small.content(262_144..300_000));
    wait_for_fills(&fixture).await;
    assert_eq!((pages(&fixture).0, parts(&fixture)), (1, (0, 0)));
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn failures_of_parts_are_those_of_pages() {
    let fixture = new_fixture();
    let wanted = || read("k", &large(), 1, 100 * KIB..164 * KIB);
    *fixture.store.fault.lock() = Some(Fault::Forbidden);
    for got in join_all((0..4).map(|_| fixture.read(wanted()))).await {
        assert!(matches!(got.refused(), Some(RefusalKind::Ufs(answer)) if answer.status == 403));
    }
    *fixture.store.fault.lock() = Some(Fault::Truncate(10));
    assert_eq!(fixture.read(wanted()).await.refused(), Some(&RefusalKind::UfsUnreachable));
    *fixture.store.fault.lock() = None;
    for ignores_conditions in [false, true] {
        *fixture.store.ignores_conditions.lock() = ignores_conditions;
        fixture.store.put("k", Stored { seed: 77, ..large() });
        let gone = fixture.read(wanted()).await;
        assert_eq!((gone.refused(), gone.bytes.len()), (Some(&RefusalKind::VersionGone), 0));
    }
    assert_eq!((pages(&fixture), parts(&fixture)), ((0, 0), (0, 0)));
    fixture.store.put("k", large());
    read_range(&fixture, 1, 100 * KIB..164 * KIB).await;
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn parts_of_another_version_are_never_served() {
    let fixture = new_fixture();
    read_range(&fixture, 1, 100 * KIB..164 * KIB).await;
    let newer = Stored { seed: 78, ..large() };
    fixture.store.put("k", newer.clone());
    let got = fixture.read(read("k", &newer, 1, 100 * KIB..164 * KIB)).await;
    let start = BLOCK + 100 * 1024;
    assert!(got.bytes == newer.content(start..start + (64 << 10)));
    assert_eq!(parts(&fixture).0, 10);
}

#[tokio::test]
async fn a_reader_of_parts_that_goes_away_leaves_nothing_behind() {
    for mode in modes() {
        let fixture = new_fixture_with(mode);
        fixture.store.hold();
        tokio::select! {
            biased;
            _ = fixture.read(read("k", &large(), 1, 5..60_000)) => {
                panic!("the store holds it back")
            }
            () = fixture.store.wait_held(1) => {}
        }
        fixture.store.release();
        wait_for_fills(&fixture).await;
        read_range(&fixture, 1, 5..60_000).await;
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn shutdown_ends_fills_of_parts_and_tells_their_readers() {
    let fixture = new_fixture();
    fixture.store.hold();
    let ending = async {
        fixture.store.wait_held(1).await;
        fixture.worker.shutdown().await;
    };
    let (got, ()) = tokio::join!(fixture.read(read("k", &large(), 1, 5..60_000)), ending);
    assert_eq!(got.refused(), Some(&RefusalKind::Busy));
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn found_pages_are_counted_once_however_many_parts_they_have() {
    let fixture = new_fixture();
    let found = |found: PageFound| fixture.worker.metrics.pages[found].get();
    read_range(&fixture, 1, 230 * KIB..294 * KIB).await;
    assert_eq!((found(PageFound::Missed), found(PageFound::Hit)), (2, 0));
    read_range(&fixture, 1, 230 * KIB..294 * KIB).await;
    assert_eq!((found(PageFound::Missed), found(PageFound::Hit)), (2, 2));
}

/// Readers of any length and place, in a memory that is too small for all: right bytes or `Busy`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_parts_and_pages_under_pressure_get_the_right_bytes() {
    for (mode, kibibytes) in modes().into_iter().zip([4, 64]) {
        let seed: u64 = rand::random();
        println!("SEED={seed}");
        let fixture = Arc::new(WorkerFixture::with(mode, 6, with_parts(kibibytes)));
        fixture.store.put("k", large());
        fixture.store.yields.store(3, std::sync::atomic::Ordering::Relaxed);
        let readers = (0..32u64).map(|reader| {
            let (fixture, mut rng) = (fixture.clone(), StdRng::seed_from_u64(seed ^ reader));
            tokio::spawn(async move {
                for _ in 0..24 {
                    let block = rng.random_range(0..3u32);
                    let bytes_max = [20_000, 131_072, 700_000][rng.random_range(0..3usize)];
                    let start = rng.random_range(0..BLOCK as u32 - 1);
                    let end = rng.random_range(start + 1..=(start + bytes_max).min(BLOCK as u32));
                    loop {
                        let got = fixture.read(read("k", &large(), block, start..end)).await;
                        match got.refused() {
                            None => break assert_right(&got, block, start..end),
                            Some(RefusalKind::Busy) => {}
                            Some(other) => panic!("{other:?}"),
                        }
                        tokio::task::yield_now().await;
                    }
                }
            })
        });
        let all = join_all(readers.collect::<Vec<_>>());
        let ended = tokio::time::timeout(Duration::from_secs(120), all).await.expect("stuck");
        ended.into_iter().for_each(|reader| reader.unwrap());
        Arc::into_inner(fixture).unwrap().assert_nothing_leaked().await;
    }
}

/// Bytes of what a worker gave to another one.
async fn collect_held(mut call: verbs3_rdma::transport::OutgoingCall) -> u64 {
    use verbs3_rdma::transport::CallEvent;
    let mut bytes = 0;
    loop {
        let Ok(CallEvent::Part(part)) = call.next().await else { panic!("no part") };
        bytes += part.data_bytes();
        if part.last {
            return bytes;
        }
    }
}

/// Warms the first page: bytes held, loaded and missing.
async fn warmed(fixture: &WorkerFixture, look_only: bool) -> (u32, u32, u32) {
    let warm = WarmMessage {
        object: object("k"),
        version: Some(version(&large())),
        epoch: Epoch(1),
        geometry: BlockGeometry::DEFAULT,
        block: BlockIndex(0),
        first_page: 0,
        pages: 1,
        attributes_age_ms_max: ANY_AGE,
        tier: WarmTier::Memory,
        pin_until_ms: 0,
        look_only,
        listed_bytes: None,
    };
    match &fixture.ask(WorkerRequest::Warm(warm)).await.messages[..] {
        [Message::Warmed(WarmPagesReply { held_bytes, loaded_bytes, missing_bytes, .. })] => {
            (*held_bytes, *loaded_bytes, *missing_bytes)
        }
        other => panic!("not warmed: {other:?}"),
    }
}

/// Tends block 0, and returns how many bytes of it are said to be in memory.
async fn tended(fixture: &WorkerFixture, act: TendAct) -> u32 {
    let tend = TendMessage {
        object: object("k"),
        version: version(&large()),
        geometry: BlockGeometry::DEFAULT,
        first_block: BlockIndex(0),
        blocks: 1,
        act,
    };
    match &fixture.ask(WorkerRequest::Tend(tend)).await.messages[..] {
        [Message::Tended(tended)] => tended.blocks.iter().map(|block| block.memory_bytes).sum(),
        other => panic!("not tended: {other:?}"),
    }
}

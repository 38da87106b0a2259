//! Opens: what they cost at the UFS, and what they answer.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use verbs3_protocol::{
    BlockGeometry, ByteRange, CacheVerdict, ObjectVolume, RefusalKind, WorkerRequest,
};

use super::holding_store::{Fault, Stored};
use super::worker_fixture::{
    BLOCK, PAGE, WorkerFixture, WorkerSetup, collect, map, modes, object, open,
};
use crate::settings::WorkerSettings;
use crate::worker::{WorkerAskers, WorkerComponents};
use verbs3_protocol::OpenMessage;
use verbs3_rdma::inprocess::{InProcess, InProcessMode};

const ALL: Option<ByteRange> = Some(ByteRange::All);

fn range(first: u64, last: u64) -> Option<ByteRange> {
    Some(ByteRange::From { first, last: Some(last) })
}

#[tokio::test]
async fn a_cold_get_is_one_ufs_request_and_a_hot_one_none() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(1, 100_000);
        fixture.store.put("k", stored.clone());
        let cold = fixture.open(open("k", ALL)).await;
        assert_eq!((fixture.store.asked(), cold.verdict()), ((1, 0), CacheVerdict::Miss));
        assert!(!cold.opened().attributes_cached);
        assert_eq!(cold.bytes, stored.content(0..100_000));
        let hot = fixture.open(open("k", ALL)).await;
        assert_eq!((fixture.store.asked(), hot.verdict()), ((1, 0), CacheVerdict::Hit));
        assert!(hot.opened().attributes_cached && hot.messages.len() == 1);
        assert_eq!(hot.bytes, cold.bytes);
        drop((cold, hot));
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_whole_cold_object_is_one_ufs_request() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(2, 2 * BLOCK + 300_000);
        fixture.store.put("k", stored.clone());
        let mut bytes = fixture.open(open("k", ALL)).await.bytes;
        for (block, end) in [(1, BLOCK as u32), (2, 300_000)] {
            bytes.extend(
                fixture.read(super::worker_fixture::read("k", &stored, block, 0..end)).await.bytes,
            );
        }
        assert!(bytes == stored.content(0..stored.bytes));
        assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 0), stored.bytes));
    }
}

#[tokio::test]
async fn a_thousand_cold_opens_at_once_make_one_request() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(3, 100_000));
    fixture.store.hold();
    let opens = join_all((0..1000).map(|_| fixture.open(open("k", ALL))));
    let release = async {
        fixture.store.wait_held(1).await;
        fixture.store.release();
    };
    let (got, ()) = tokio::join!(opens, release);
    assert!(got.iter().all(|got| got.bytes.len() == 100_000));
    assert_eq!(fixture.store.asked(), (1, 0));
}

#[tokio::test]
async fn opens_that_accept_no_age_share_at_most_two_checks() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(3, 100_000));
    fixture.store.hold();
    let opens = join_all(
        (0..1000).map(|_| fixture.open(OpenMessage { attributes_age_ms_max: 0, ..open("k", ALL) })),
    );
    let release = async {
        fixture.store.wait_held(1).await;
        fixture.store.release();
    };
    let (got, ()) = tokio::join!(opens, release);
    assert!(got.iter().all(|got| got.bytes.len() == 100_000));
    let (gets, heads) = fixture.store.asked();
    assert!(gets + heads <= 2, "{gets} GETs, {heads} HEADs");
}

#[tokio::test]
async fn a_small_range_of_a_huge_object_takes_at_most_two_pages() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(4, 1 << 30);
        fixture.store.put("k", stored.clone());
        let got = fixture.open(open("k", range(PAGE - 2048, PAGE + 2047))).await;
        assert_eq!(got.bytes, stored.content(PAGE - 2048..PAGE + 2048));
        let far = (900 << 20) + 5 * PAGE - 2048;
        let start = (far % BLOCK) as u32;
        let got = fixture
            .read(super::worker_fixture::read(
                "k",
                &stored,
                (far / BLOCK) as u32,
                start..start + 4096,
            ))
            .await;
        assert_eq!(got.bytes, stored.content(far..far + 4096));
        assert_eq!(fixture.store.body_bytes(), 4 * PAGE);
        assert_eq!(fixture.store.asked(), (2, 0));
    }
}

#[tokio::test]
async fn an_empty_object_has_attributes_and_no_bytes() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(5, 0));
    for _ in 0..2 {
        let got = fixture.open(open("k", ALL)).await;
        assert_eq!((got.opened().attributes.version.bytes, &got.opened().piece), (0, &None));
    }
    assert_eq!(fixture.store.asked(), (1, 1));
}

#[tokio::test]
async fn a_head_asks_for_attributes_only() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(6, 10));
    let got = fixture.open(open("k", None)).await;
    assert_eq!((got.opened().attributes.version.bytes, got.bytes.len()), (10, 0));
    assert_eq!(fixture.store.asked(), (0, 1));
    assert_eq!(got.opened().attributes.last_modified, Some(1_000_000));
}

#[tokio::test]
async fn ranges_that_begin_elsewhere_are_answered_with_attributes() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(7, BLOCK + 100);
    fixture.store.put("k", stored.clone());
    assert_eq!(fixture.open(open("k", range(BLOCK, BLOCK + 5))).await.opened().piece, None);
    assert_eq!(fixture.open(open("k", range(1 << 40, 1 << 41))).await.opened().piece, None);
    assert_eq!(fixture.store.asked(), (0, 1));
    let got = fixture.open(open("k", Some(ByteRange::Suffix { bytes: 200 }))).await;
    assert_eq!(got.bytes, stored.content(BLOCK - 100..BLOCK));
}

#[tokio::test]
async fn what_is_known_ages_while_the_host_is_stopped() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let short = || OpenMessage { absence_age_ms_max: 1000, ..open("k", ALL) };
    fixture.open(short()).await;
    // Before a question, a pause makes nothing of what it brings older.
    for asked in [2, 3] {
        fixture.clock.simulate_pause(Duration::from_millis(1001));
        assert!(!fixture.open(short()).await.absent().cached);
        assert!(fixture.open(short()).await.absent().cached);
        assert_eq!(fixture.store.asked(), (asked, 0));
    }
    fixture.clock.advance_time(Duration::from_millis(600));
    fixture.clock.simulate_pause(Duration::from_millis(300));
    assert!(fixture.open(short()).await.absent().cached, "900 ms in all");
    fixture.clock.simulate_pause(Duration::from_millis(101));
    assert!(!fixture.open(short()).await.absent().cached);
}

#[tokio::test]
async fn an_absence_is_kept_for_its_age_with_the_body_owed_to_a_get() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let short = || OpenMessage { absence_age_ms_max: 1000, ..open("k", ALL) };
    let first = fixture.open(short()).await;
    assert_eq!((first.absent().answer.status, first.absent().cached), (404, false));
    assert!(!first.absent().answer.body.is_empty());
    assert!(fixture.open(short()).await.absent().cached);
    assert_eq!(fixture.store.asked(), (1, 0));
    fixture.clock.advance_time(Duration::from_millis(1001));
    assert!(!fixture.open(short()).await.absent().cached);
    assert_eq!(fixture.store.asked(), (2, 0));
}

#[tokio::test]
async fn a_get_after_a_head_of_an_absent_object_has_a_body() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.open(open("k", None)).await.absent();
    let got = fixture.open(open("k", range(BLOCK, BLOCK))).await;
    assert!(!got.absent().answer.body.is_empty());
}

#[tokio::test]
async fn an_absence_found_by_head_is_kept_once_its_code_is_known() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    assert!(!fixture.open(open("k", None)).await.absent().cached);
    assert_eq!(fixture.store.asked(), (1, 1));
    for want in [None, ALL] {
        assert!(fixture.open(open("k", want)).await.absent().cached);
    }
    assert_eq!(fixture.store.asked(), (1, 1));
}

#[tokio::test]
async fn a_missing_bucket_is_no_absence_of_its_keys() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    *fixture.store.fault.lock() = Some(Fault::NoSuchBucket);
    for want in [None, ALL, None, ALL] {
        let got = fixture.open(open("k", want)).await;
        assert_eq!((got.absent().answer.status, got.absent().cached), (404, false));
        assert!(String::from_utf8_lossy(&got.absent().answer.body).contains("NoSuchBucket"));
    }
    *fixture.store.fault.lock() = None;
    fixture.store.put("k", Stored::new(8, 10));
    assert_eq!(fixture.open(open("k", ALL)).await.bytes.len(), 10);
}

#[tokio::test]
async fn a_delete_marker_is_not_kept() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    *fixture.store.fault.lock() = Some(Fault::DeleteMarker);
    for asked in 1..3 {
        assert!(!fixture.open(open("k", ALL)).await.absent().cached);
        assert_eq!(fixture.store.asked(), (asked, 0));
    }
}

#[tokio::test]
async fn errors_of_the_ufs_are_passed_on_and_not_kept() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    *fixture.store.fault.lock() = Some(Fault::Forbidden);
    let got = fixture.open(open("k", ALL)).await;
    let Some(RefusalKind::Ufs(answer)) = got.refused() else { panic!("{got:?}") };
    assert_eq!(answer.status, 403);
    *fixture.store.fault.lock() = None;
    fixture.store.put("k", Stored::new(8, 10));
    assert_eq!(fixture.open(open("k", ALL)).await.bytes.len(), 10);
}

#[tokio::test]
async fn an_answer_too_long_for_a_frame_is_left_to_the_ufs() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    *fixture.store.fault.lock() = Some(Fault::LongError);
    assert_eq!(fixture.open(open("k", ALL)).await.refused(), Some(&RefusalKind::Uncacheable));
}

#[tokio::test]
async fn weak_etags_and_the_null_version_are_left_to_the_ufs() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored { weak: true, ..Stored::new(9, 10) });
    assert_eq!(fixture.open(open("k", ALL)).await.refused(), Some(&RefusalKind::Uncacheable));
    let null = OpenMessage { version_id: Some("null".into()), ..open("k", ALL) };
    assert_eq!(fixture.open(null).await.refused(), Some(&RefusalKind::Uncacheable));
}

#[tokio::test]
async fn checksums_cost_one_head_and_are_kept() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(10, 10));
    let with = || OpenMessage { checksums: true, ..open("k", ALL) };
    fixture.open(open("k", ALL)).await;
    let got = fixture.open(with()).await;
    assert!(got.opened().attributes.checksums_known);
    assert!(
        got.opened().attributes.headers.fields().any(|(name, _)| name == "x-amz-checksum-crc32")
    );
    assert!(fixture.open(with()).await.opened().attributes_cached);
    assert_eq!(fixture.store.asked(), (1, 1));
}

fn has_checksum(got: &super::worker_fixture::Got) -> bool {
    let attributes = &got.opened().attributes;
    let crc32 = |(name, _)| name == "x-amz-checksum-crc32";
    attributes.checksums_known && attributes.headers.fields().any(crc32)
}

#[tokio::test]
async fn checksums_of_a_cold_object_are_asked_for_beside_its_bytes() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(10, 3 * BLOCK);
    fixture.store.put("k", stored.clone());
    fixture.store.hold();
    let opening = fixture.open(OpenMessage { checksums: true, ..open("k", ALL) });
    // Both wait for the store at once, or this waits for ever.
    let both = async {
        fixture.store.wait_held(2).await;
        fixture.store.release();
    };
    let (got, ()) = tokio::join!(opening, both);
    assert!(has_checksum(&got));
    assert_eq!(got.bytes, stored.content(0..got.bytes.len() as u64));
    assert_eq!(fixture.store.asked(), (1, 1));
}

/// Its checksums come with it.
#[tokio::test]
async fn a_cold_object_among_small_ones_takes_one_request() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let with = |key: &str| OpenMessage { checksums: true, ..open(key, ALL) };
        for number in 0..8 {
            let key = format!("a/{number}");
            fixture.store.put(&key, Stored::new(number, 5000));
            fixture.open(with(&key)).await;
        }
        let before = fixture.store.asked();
        let small = Stored::new(20, 5001);
        fixture.store.put("a/small", small.clone());
        let got = fixture.open(with("a/small")).await;
        assert!(has_checksum(&got) && got.bytes == small.content(0..5001));
        assert_eq!(fixture.store.asked(), (before.0 + 1, before.1));
        // One that is larger than was guessed: its first block is read, and no more.
        let bytes = fixture.store.body_bytes();
        let large = Stored::new(21, 3 * BLOCK);
        fixture.store.put("a/large", large.clone());
        let got = fixture.open(with("a/large")).await;
        assert!(has_checksum(&got) && got.bytes == large.content(0..got.bytes.len() as u64));
        let got =
            fixture.read(super::worker_fixture::read("a/large", &large, 0, 0..BLOCK as u32)).await;
        assert!(got.bytes == large.content(0..BLOCK));
        assert_eq!(fixture.store.asked(), (before.0 + 2, before.1));
        assert_eq!(fixture.store.body_bytes() - bytes, BLOCK);
        let got =
            fixture.read(super::worker_fixture::read("a/large", &large, 1, 0..BLOCK as u32)).await;
        assert!(got.bytes == large.content(BLOCK..2 * BLOCK));
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_hot_object_is_revalidated_without_its_bytes() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(11, 100_000));
    let always = || OpenMessage { attributes_age_ms_max: 0, ..open("k", ALL) };
    fixture.open(always()).await;
    fixture.store.put("k", Stored { modified_s: 2_000_000, ..Stored::new(11, 100_000) });
    let got = fixture.open(always()).await;
    assert_eq!(got.opened().attributes.last_modified, Some(2_000_000));
    assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((1, 1), 100_000));
}

#[tokio::test]
async fn an_answer_never_exceeds_its_bounds() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(12, BLOCK);
    fixture.store.put("k", stored.clone());
    let got =
        fixture.open(OpenMessage { piece_bytes_max: 300_000, ..open("k", range(10, BLOCK)) }).await;
    assert_eq!(got.bytes, stored.content(10..300_010));
    let got = fixture.open(OpenMessage { piece_bytes_max: 0, ..open("k", ALL) }).await;
    assert_eq!(got.opened().piece, None);
}

#[tokio::test]
async fn messages_that_make_no_sense_are_refused() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(13, 10));
    let geometry = BlockGeometry { block_bytes: 1 << 20, page_bytes: 256 << 10 };
    let got = fixture.open(OpenMessage { geometry, ..open("k", ALL) }).await;
    assert_eq!(got.refused(), Some(&RefusalKind::GeometryMismatch(BlockGeometry::DEFAULT)));
    let mut elsewhere = open("k", ALL);
    elsewhere.object.volume = ObjectVolume::new("other", "bucket");
    assert_eq!(fixture.open(elsewhere).await.refused(), Some(&RefusalKind::UnknownVolume));
    let stored = Stored::new(13, 10);
    for range in [5..5, 0..11, 11..12] {
        let got = fixture.read(super::worker_fixture::read("k", &stored, 0, range)).await;
        assert_eq!(got.refused(), Some(&RefusalKind::Malformed));
    }
    let got = fixture.read(super::worker_fixture::read("k", &stored, u32::MAX, 0..1)).await;
    assert_eq!(got.refused(), Some(&RefusalKind::Malformed));
    let connection = InProcess::open_connection(fixture.worker.clone(), InProcessMode::Share);
    let got = collect(connection.start_call(bytes::Bytes::from_static(b"\xff\x00garbage"), None))
        .await
        .unwrap();
    assert_eq!(got.refused(), Some(&RefusalKind::Malformed));
    let none = WorkerRequest::Forget(verbs3_protocol::ForgetMessage {
        volume: object("k").volume,
        keys: vec![],
    });
    assert_eq!(fixture.ask(none).await.refused(), Some(&RefusalKind::Malformed));
}

#[tokio::test]
async fn askers_of_another_map_get_blocks_and_nothing_else() {
    use verbs3_protocol::{AnnounceMessage, Epoch, ReportMessage, WriteOutcome};
    let fixture = WorkerFixture::with(
        InProcessMode::Share,
        32,
        WorkerSetup { askers: WorkerAskers::OfEpoch(Epoch(7)), ..WorkerSetup::default() },
    );
    let stored = Stored::new(14, 10);
    fixture.store.put("k", stored.clone());
    let (volume, keys, write) =
        (object("k").volume, vec!["k".to_owned()], super::worker_fixture::WRITE);
    let announce = |epoch| {
        WorkerRequest::Announce(AnnounceMessage {
            volume: volume.clone(),
            keys: keys.clone(),
            write,
            epoch,
            uncertain_ms: 1000,
        })
    };
    let report = |epoch| {
        WorkerRequest::Report(ReportMessage {
            volume: volume.clone(),
            keys: keys.clone(),
            write,
            epoch,
            outcome: WriteOutcome::Done,
        })
    };
    for request in [WorkerRequest::Open(open("k", ALL)), announce(Epoch(1)), report(Epoch(1))] {
        assert_eq!(fixture.ask(request).await.refused(), Some(&RefusalKind::WrongEpoch(Epoch(7))));
    }
    assert_eq!(fixture.store.asked(), (0, 0));
    assert_eq!(
        fixture.read(super::worker_fixture::read("k", &stored, 0, 0..10)).await.bytes,
        stored.content(0..10)
    );
    assert_eq!(
        fixture.open(OpenMessage { epoch: Epoch(7), ..open("k", ALL) }).await.bytes,
        stored.content(0..10)
    );
    assert!(
        fixture.ask(announce(Epoch(7))).await.is_done()
            && fixture.ask(report(Epoch(7))).await.is_done()
    );
}

#[tokio::test]
async fn a_worker_refuses_an_arena_whose_cells_hold_no_page() {
    let options = verbs3_rdma::arena::ArenaOptions {
        capacity_bytes: 8 << 20,
        cell_bytes_max: 4096,
        populate: false,
    };
    let arena = verbs3_rdma::arena::Arena::map_memory(options).unwrap();
    let start = |arena| {
        let components = WorkerComponents {
            geometry: BlockGeometry::DEFAULT,
            askers: WorkerAskers::Any,
            arena,
            volumes: crate::WorkerVolumes::default(),
        };
        crate::CacheWorker::new(&WorkerSettings::default(), components, &Default::default())
    };
    let made = start(arena);
    assert!(made.err().unwrap().to_string().contains("cell_bytes_max"));
    assert_eq!(Arc::strong_count(&start(map(8)).unwrap()), 1);
}

//! Warm-ups: loaded once, for all that read it later; standing back where reads want the same.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use verbs3_protocol::{
    BlockGeometry, BlockIndex, ByteRange, CacheVerdict, ContentVersion, Epoch, LOOKED_OBJECTS_MAX,
    LookedFor, ObjectLookMessage, RefusalKind, WarmMessage, WarmPagesReply, WarmTier,
    WorkerReply as Message, WorkerRequest,
};
use verbs3_rdma::inprocess::InProcessMode;
use verbs3_rdma::transport::CallEvent;

use super::holding_store::{Fault, Stored};
use super::worker_fixture::{
    ANY_AGE, BLOCK, Got, PAGE, WorkerFixture, WorkerSetup, modes, object, open, read, version,
    with_disk, with_settings,
};
use crate::worker::WorkerAskers;

fn warm(key: &str, of: Option<ContentVersion>, block: u32) -> WarmMessage {
    WarmMessage {
        object: object(key),
        version: of,
        epoch: Epoch(1),
        geometry: BlockGeometry::DEFAULT,
        block: BlockIndex(block),
        first_page: 0,
        pages: 16,
        attributes_age_ms_max: ANY_AGE,
        tier: WarmTier::Memory,
        pin_until_ms: 0,
        look_only: false,
        listed_bytes: None,
    }
}

fn warm_listed(warm: WarmMessage, bytes: u64) -> WorkerRequest {
    WorkerRequest::Warm(WarmMessage { listed_bytes: Some(bytes), ..warm })
}

async fn ask(fixture: &WorkerFixture, warm: WarmMessage) -> Got {
    fixture.ask(WorkerRequest::Warm(warm)).await
}

fn warmed(got: &Got) -> WarmPagesReply {
    match &got.messages[..] {
        [Message::Warmed(warmed)] => warmed.clone(),
        other => panic!("not warmed: {other:?}"),
    }
}

/// Held, loaded, missing.
fn bytes(got: &Got) -> (u64, u64, u64) {
    let warmed = warmed(got);
    (warmed.held_bytes.into(), warmed.loaded_bytes.into(), warmed.missing_bytes.into())
}

#[tokio::test]
async fn many_objects_are_looked_for_at_once_and_the_ufs_is_not_asked() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    for (key, bytes) in [("whole", 2 * PAGE), ("half", 2 * PAGE), ("attributes", 5), ("unknown", 5)]
    {
        fixture.store.put(key, Stored::new(bytes, bytes));
    }
    ask(&fixture, warm("whole", None, 0)).await;
    ask(&fixture, WarmMessage { pages: 1, ..warm("half", None, 0) }).await;
    ask(&fixture, WarmMessage { pages: 0, ..warm("attributes", None, 0) }).await;
    let asked = fixture.store.asked();
    let keys = ["whole", "half", "attributes", "unknown", "missing"];
    let look = |epoch, count: usize| ObjectLookMessage {
        volume: object("k").volume,
        epoch,
        geometry: BlockGeometry::DEFAULT,
        attributes_age_ms_max: ANY_AGE,
        tier: WarmTier::Memory,
        objects: keys
            .iter()
            .cycle()
            .take(count)
            .map(|key| LookedFor { key: (*key).into(), first_page: 0, pages: 16 })
            .collect(),
    };
    let got = fixture.ask(WorkerRequest::Look(look(Epoch(1), 5))).await;
    let [Message::Looked(looked)] = &got.messages[..] else { panic!("{got:?}") };
    let found: Vec<_> = looked
        .objects
        .iter()
        .map(|here| {
            here.as_ref().map(|here| (here.version.bytes, here.held_bytes, here.missing_bytes))
        })
        .collect();
    let page = PAGE as u32;
    assert_eq!(
        found,
        [Some((2 * PAGE, 2 * page, 0)), Some((2 * PAGE, page, page)), Some((5, 0, 5)), None, None]
    );
    assert_eq!(fixture.store.asked(), asked);
    let many = fixture.ask(WorkerRequest::Look(look(Epoch(1), LOOKED_OBJECTS_MAX + 1))).await;
    assert_eq!(many.refused(), Some(&RefusalKind::Malformed));
    let most = fixture.ask(WorkerRequest::Look(look(Epoch(1), LOOKED_OBJECTS_MAX))).await;
    assert!(
        matches!(&most.messages[..], [Message::Looked(looked)] if looked.objects.len() == LOOKED_OBJECTS_MAX)
    );
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn what_was_warmed_is_read_without_the_ufs() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(1, 2 * BLOCK + 5);
        fixture.store.put("k", stored.clone());
        let first = ask(&fixture, warm("k", None, 0)).await;
        assert_eq!(bytes(&first), (0, BLOCK, 0));
        assert!(first.bytes.is_empty());
        let version = warmed(&first).version;
        assert_eq!(version, super::worker_fixture::version(&stored));
        for (block, length) in [(1, BLOCK), (2, 5)] {
            assert_eq!(
                bytes(&ask(&fixture, warm("k", Some(version.clone()), block)).await),
                (0, length, 0)
            );
        }
        let asked = fixture.store.asked();
        assert_eq!(fixture.store.body_bytes(), stored.bytes);
        let opened = fixture
            .open(verbs3_protocol::OpenMessage {
                checksums: true,
                ..open("k", Some(ByteRange::All))
            })
            .await;
        assert_eq!(opened.verdict(), CacheVerdict::Hit);
        assert!(opened.opened().attributes_cached);
        let rest = fixture.read(read("k", &stored, 2, 0..5)).await;
        assert!(
            rest.verdict() == CacheVerdict::Hit
                && rest.bytes == stored.content(2 * BLOCK..2 * BLOCK + 5)
        );
        assert_eq!(fixture.store.asked(), asked);
        assert_eq!(bytes(&ask(&fixture, warm("k", None, 0)).await), (BLOCK, 0, 0));
        assert_eq!(fixture.store.asked(), asked);
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn warm_ups_and_readers_of_one_block_share_its_fill() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(1, 2 * BLOCK);
    fixture.store.put("k", stored.clone());
    fixture.store.hold();
    let of = version(&stored);
    let warming = join_all((0..5).map(|_| ask(&fixture, warm("k", Some(of.clone()), 1))));
    let reading = fixture.read(read("k", &stored, 1, 0..BLOCK as u32));
    let release = async {
        fixture.store.wait_held(1).await;
        fixture.store.release();
    };
    let (warming, reading, ()) = tokio::join!(warming, reading, release);
    assert!(warming.iter().all(|got| bytes(got).1 + bytes(got).0 == BLOCK));
    assert!(reading.bytes == stored.content(BLOCK..2 * BLOCK));
    assert_eq!(fixture.store.body_bytes(), BLOCK);
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn only_some_pages_or_only_attributes_can_be_warmed() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, BLOCK));
    assert_eq!(
        bytes(&ask(&fixture, WarmMessage { pages: 0, ..warm("k", None, 0) }).await),
        (0, 0, 0)
    );
    assert_eq!((fixture.store.body_bytes(), fixture.store.asked()), (0, (0, 1)));
    let some = WarmMessage { first_page: 3, pages: 2, ..warm("k", None, 0) };
    assert_eq!(bytes(&ask(&fixture, some).await), (0, 2 * PAGE, 0));
    let look = WarmMessage { look_only: true, ..warm("k", None, 0) };
    assert_eq!(bytes(&ask(&fixture, look).await), (2 * PAGE, 0, BLOCK - 2 * PAGE));
    assert_eq!(fixture.store.body_bytes(), 2 * PAGE);
    fixture.store.put("empty", Stored::new(2, 0));
    assert_eq!(bytes(&ask(&fixture, warm("empty", None, 0)).await), (0, 0, 0));
}

/// Its checksums come with it.
#[tokio::test]
async fn a_listed_object_that_fits_is_warmed_by_one_request() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        for (key, length) in [("small", 4096), ("page", PAGE), ("block", BLOCK)] {
            let stored = Stored::new(length, length);
            fixture.store.put(key, stored.clone());
            let (gets, heads) = fixture.store.asked();
            let got = fixture.ask(warm_listed(warm(key, None, 0), length)).await;
            assert_eq!(bytes(&got), (0, length, 0), "{key}");
            let opened = fixture
                .open(verbs3_protocol::OpenMessage {
                    checksums: true,
                    ..open(key, Some(ByteRange::All))
                })
                .await;
            assert!(
                opened.opened().attributes_cached && opened.opened().attributes.checksums_known,
                "{key}"
            );
            assert!(opened.bytes == stored.content(0..length), "{key}");
            assert_eq!(fixture.store.asked(), (gets + 1, heads), "{key}");
        }
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_listed_object_of_another_length_is_warmed_as_it_is_now() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let grown = Stored::new(1, 3 * BLOCK);
    fixture.store.put("grown", grown.clone());
    let got =
        fixture.ask(warm_listed(WarmMessage { pages: 1, ..warm("grown", None, 0) }, 4096)).await;
    assert_eq!((bytes(&got), warmed(&got).version), ((0, PAGE, 0), version(&grown)));
    assert_eq!(
        fixture.store.body_bytes(),
        PAGE,
        "the rest of an answer that was not wanted was read"
    );
    fixture.store.put("shrunk", Stored::new(2, 10));
    let got = fixture.ask(warm_listed(warm("shrunk", None, 0), BLOCK)).await;
    assert_eq!(bytes(&got), (0, 10, 0));
    // A length that does not fit into the pages says nothing.
    fixture.store.put("large", Stored::new(3, 2 * BLOCK));
    let got = fixture
        .ask(warm_listed(WarmMessage { pages: 2, ..warm("large", None, 0) }, 2 * BLOCK))
        .await;
    assert_eq!(bytes(&got), (0, 2 * PAGE, 0));
    assert_eq!(fixture.store.body_bytes(), PAGE + 10 + 2 * PAGE);
    let absent = fixture.ask(warm_listed(warm("missing", None, 0), 5)).await;
    assert_eq!(absent.absent().answer.status, 404);
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn what_can_not_be_warmed_is_refused_with_the_reason() {
    let fixture = WorkerFixture::with(
        InProcessMode::Share,
        32,
        WorkerSetup { askers: WorkerAskers::OfEpoch(Epoch(7)), ..WorkerSetup::default() },
    );
    let stored = Stored::new(1, PAGE);
    fixture.store.put("k", stored.clone());
    let own = |warm: WarmMessage| WarmMessage { epoch: Epoch(7), ..warm };
    assert_eq!(
        ask(&fixture, warm("k", None, 0)).await.refused(),
        Some(&RefusalKind::WrongEpoch(Epoch(7)))
    );
    assert_eq!(
        ask(&fixture, own(warm("k", None, 1))).await.refused(),
        Some(&RefusalKind::Malformed)
    );
    let absent = ask(&fixture, own(warm("missing", None, 0))).await;
    assert_eq!(absent.absent().answer.status, 404);
    let older = ContentVersion { etag: "\"older\"".into(), ..version(&stored) };
    assert_eq!(
        ask(&fixture, own(warm("k", Some(older), 0))).await.refused(),
        Some(&RefusalKind::VersionGone)
    );
    let on_disk = WarmMessage { tier: WarmTier::Disk, ..own(warm("k", None, 0)) };
    assert_eq!(ask(&fixture, on_disk).await.refused(), Some(&RefusalKind::Uncacheable));
    let pinned = WarmMessage { pin_until_ms: 1, ..own(warm("k", None, 0)) };
    assert_eq!(ask(&fixture, pinned).await.refused(), Some(&RefusalKind::Uncacheable));
    *fixture.store.fault.lock() = Some(Fault::Forbidden);
    let forbidden = ask(&fixture, own(warm("k", Some(version(&stored)), 0))).await;
    assert!(matches!(forbidden.refused(), Some(RefusalKind::Ufs(answer)) if answer.status == 403));
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn warming_stands_back_while_reads_wait_for_their_turn() {
    let worker = with_settings(|settings| settings.fill.in_flight_max = 1);
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker);
    let stored = Stored::new(1, 4 * BLOCK);
    fixture.store.put("k", stored.clone());
    fixture.store.hold();
    let reads =
        join_all((0..2).map(|block| fixture.read(read("k", &stored, block, 0..PAGE as u32))));
    let warming = async {
        fixture.store.wait_held(1).await;
        while !fixture.worker.pages.filler.reads_wait() {
            tokio::task::yield_now().await;
        }
        let refused = ask(&fixture, warm("k", Some(version(&stored)), 2)).await;
        fixture.store.release();
        refused
    };
    let (reads, refused) = tokio::join!(reads, warming);
    assert_eq!(refused.refused(), Some(&RefusalKind::Busy));
    assert!(reads.iter().all(|read| read.refused().is_none()));
    assert_eq!(bytes(&ask(&fixture, warm("k", Some(version(&stored)), 2)).await), (0, BLOCK, 0));
    assert_eq!(fixture.store.body_bytes(), BLOCK + 2 * PAGE);
}

#[tokio::test]
async fn a_warm_up_whose_asker_goes_away_leaves_nothing_behind() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(1, 2 * BLOCK);
    fixture.store.put("k", stored.clone());
    let drip = fixture.store.drip();
    let mut call = fixture.call(&WorkerRequest::Warm(warm("k", Some(version(&stored)), 1)));
    drip.add_permits(5);
    // A sign of life: it waits for the rest.
    let Ok(CallEvent::Part(sign)) = call.next().await else { panic!("no sign of life") };
    assert!(!sign.last && fixture.store.body_bytes() <= 2 * PAGE, "{}", fixture.store.body_bytes());
    drop(call);
    drip.add_permits(1000);
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn what_is_warmed_and_pinned_on_disk_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = WorkerFixture::with(InProcessMode::Share, 16, with_disk(folder.path(), 64));
    let stored = Stored::new(1, BLOCK + 7);
    fixture.store.put("k", stored.clone());
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3600);
    let pinned = |warm: WarmMessage| WarmMessage {
        tier: WarmTier::Disk,
        pin_until_ms: until.as_millis() as u64,
        ..warm
    };
    assert_eq!(bytes(&ask(&fixture, pinned(warm("k", None, 0))).await), (0, BLOCK, 0));
    assert_eq!(
        bytes(&ask(&fixture, pinned(warm("k", Some(version(&stored)), 1))).await),
        (0, 7, 0)
    );
    let digest = fixture.worker.pages.digests.digest_version(&object("k"), &version(&stored));
    let disk = fixture.worker.pages.filler.disk_tier().unwrap();
    let keys = || {
        (0..16)
            .map(|page| digest.page_key(BlockIndex(0), page))
            .chain([digest.page_key(BlockIndex(1), 0)])
    };
    assert!(keys().all(|key| disk.holds_page(key)));
    assert_eq!(bytes(&ask(&fixture, pinned(warm("k", None, 0))).await), (BLOCK, 0, 0));
    assert_eq!(fixture.store.body_bytes(), stored.bytes);
    fixture.worker.shutdown().await;
}

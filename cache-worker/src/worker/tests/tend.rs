//! What is asked of pages that are there, and of attributes that may be wrong.

use std::time::Duration;

use verbs3_protocol::{
    BlockGeometry, BlockIndex, ByteRange, CacheVerdict, ContentVersion, Epoch, ForgetPrefix,
    RefusalKind, TendAct, TendMessage, TendedBlock, WarmMessage, WarmTier, WorkerReply as Message,
    WorkerRequest,
};
use verbs3_rdma::inprocess::InProcessMode;

use super::holding_store::Stored;
use super::worker_fixture::{
    ANY_AGE, BLOCK, Got, PAGE, WorkerFixture, modes, object, open, read, version, volume, with_disk,
};

const ALL: Option<ByteRange> = Some(ByteRange::All);

async fn forget_prefix(fixture: &WorkerFixture, prefix: &str) -> Got {
    fixture.clock.advance_time(Duration::from_millis(1));
    let got = fixture
        .ask(WorkerRequest::ForgetPrefix(ForgetPrefix { volume: volume(), prefix: prefix.into() }))
        .await;
    fixture.clock.advance_time(Duration::from_millis(1));
    got
}

async fn tend(
    fixture: &WorkerFixture,
    of: &ContentVersion,
    blocks: (u32, u16),
    act: TendAct,
) -> Vec<TendedBlock> {
    let (first_block, blocks) = (BlockIndex(blocks.0), blocks.1);
    let (object, geometry) = (object("k"), BlockGeometry::DEFAULT);
    let asked = TendMessage { object, version: of.clone(), geometry, first_block, blocks, act };
    match &fixture.ask(WorkerRequest::Tend(asked)).await.messages[..] {
        [Message::Tended(tended)] => tended.blocks.clone(),
        other => panic!("not tended: {other:?}"),
    }
}

#[tokio::test]
async fn a_change_behind_gateways_shows_once_its_prefix_is_forgotten() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let (old, new) = (Stored::new(1, 1000), Stored::new(2, 2000));
        fixture.store.put("a/k", old.clone());
        fixture.open(open("a/k", ALL)).await;
        fixture.store.put("a/k", new.clone());
        assert!(forget_prefix(&fixture, "b/").await.is_done());
        assert_eq!(
            fixture.open(open("a/k", ALL)).await.bytes,
            old.content(0..1000),
            "another prefix was forgotten"
        );
        assert!(forget_prefix(&fixture, "a/").await.is_done());
        assert_eq!(fixture.open(open("a/k", ALL)).await.bytes, new.content(0..2000));
        let asked = fixture.store.asked();
        let again = fixture.open(open("a/k", ALL)).await;
        assert!(again.opened().attributes_cached && again.verdict() == CacheVerdict::Hit);
        assert_eq!(fixture.store.asked(), asked, "what was asked since is good");
    }
}

#[tokio::test]
async fn an_absence_ends_with_its_prefix() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    assert_eq!(fixture.open(open("a/k", ALL)).await.absent().answer.status, 404);
    fixture.store.put("a/k", Stored::new(1, 1000));
    assert!(fixture.open(open("a/k", ALL)).await.absent().cached);
    forget_prefix(&fixture, "").await;
    assert_eq!(fixture.open(open("a/k", ALL)).await.bytes, Stored::new(1, 1000).content(0..1000));
}

/// The UFS has answered with the old version, and the answer is on its way while the prefix is
/// forgotten.
#[tokio::test]
async fn a_read_after_a_forgotten_prefix_joins_no_earlier_check() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.store.hold();
    let first = fixture.open(open("k", ALL));
    let second = async {
        fixture.store.wait_held(1).await;
        fixture.store.put("k", Stored::new(2, 1000));
        forget_prefix(&fixture, "k").await;
        let second = fixture.open(open("k", ALL));
        let release = async { fixture.store.release() };
        tokio::join!(second, release).0
    };
    let (_, second) = tokio::join!(first, second);
    assert_eq!(second.bytes, Stored::new(2, 1000).content(0..1000));
    assert_eq!(fixture.open(open("k", ALL)).await.bytes, Stored::new(2, 1000).content(0..1000));
}

#[tokio::test]
async fn cached_blocks_are_listed_one_by_one_and_evicted_on_request() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        let stored = Stored::new(1, 2 * BLOCK + 5);
        let of = version(&stored);
        fixture.store.put("k", stored.clone());
        assert_eq!(tend(&fixture, &of, (0, 10), TendAct::Look).await, []);
        fixture.read(read("k", &stored, 1, 0..PAGE as u32 + 1)).await;
        fixture.read(read("k", &stored, 2, 0..5)).await;
        fixture.clock.advance_time(Duration::from_secs(7));
        let found = tend(&fixture, &of, (0, 10), TendAct::Look).await;
        let bytes: Vec<_> =
            found.iter().map(|block| (block.block.0, block.memory_bytes, block.idle_s)).collect();
        assert_eq!(bytes, [(1, 2 * PAGE as u32, 7), (2, 5, 7)]);
        assert_eq!(tend(&fixture, &of, (2, 1), TendAct::Look).await.len(), 1);
        let other = ContentVersion { etag: "\"other\"".into(), ..of.clone() };
        assert_eq!(tend(&fixture, &other, (0, 10), TendAct::Evict).await, [], "another version");
        assert_eq!(tend(&fixture, &of, (0, 10), TendAct::Evict).await.len(), 2);
        assert_eq!(tend(&fixture, &of, (0, 10), TendAct::Look).await, []);
        assert_eq!(fixture.read(read("k", &stored, 2, 0..5)).await.verdict(), CacheVerdict::Miss);
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn pages_on_disk_are_let_go_of_and_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = WorkerFixture::with(InProcessMode::Share, 16, with_disk(folder.path(), 64));
    let stored = Stored::new(1, PAGE + 7);
    let of = version(&stored);
    fixture.store.put("k", stored.clone());
    let until = std::time::SystemTime::now() + Duration::from_secs(3600);
    let until = until.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let pinned = WarmMessage {
        object: object("k"),
        version: None,
        epoch: Epoch(1),
        geometry: BlockGeometry::DEFAULT,
        block: BlockIndex(0),
        first_page: 0,
        pages: 16,
        attributes_age_ms_max: ANY_AGE,
        tier: WarmTier::Disk,
        pin_until_ms: until,
        look_only: false,
        listed_bytes: None,
    };
    fixture.ask(WorkerRequest::Warm(pinned)).await;
    let bytes = |found: &[TendedBlock]| {
        found.iter().map(|b| (b.memory_bytes, b.disk_bytes, b.pinned_bytes)).collect::<Vec<_>>()
    };
    let all = PAGE as u32 + 7;
    assert_eq!(bytes(&tend(&fixture, &of, (0, 1), TendAct::Look).await), [(all, all, all)]);
    tend(&fixture, &of, (0, 1), TendAct::Unpin).await;
    assert_eq!(bytes(&tend(&fixture, &of, (0, 1), TendAct::Look).await), [(all, all, 0)]);
    tend(&fixture, &of, (0, 1), TendAct::Evict).await;
    assert_eq!(tend(&fixture, &of, (0, 1), TendAct::Look).await, []);
    fixture.worker.shutdown().await;
}

#[tokio::test]
async fn a_question_about_too_many_blocks_is_refused() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(1, 5);
    let asked = TendMessage {
        object: object("k"),
        version: version(&stored),
        geometry: BlockGeometry::DEFAULT,
        first_block: BlockIndex(u32::MAX),
        blocks: u16::MAX,
        act: TendAct::Evict,
    };
    assert_eq!(
        fixture.ask(WorkerRequest::Tend(asked.clone())).await.refused(),
        Some(&RefusalKind::Malformed)
    );
    let beyond = TendMessage { blocks: 1024, ..asked };
    assert!(matches!(
        &fixture.ask(WorkerRequest::Tend(beyond)).await.messages[..],
        [Message::Tended(_)]
    ));
}

//! What is asked of pages that are there, and of attributes that may be wrong.

use std::time::Duration;

use verbs3_protocol::{
    BlockGeometry, BlockIndex, ByteRange, CacheVerdict, ContentVersion, Epoch, ForgetPrefix,
    RefusalKind, TendAct, TendMessage, TendedBlock, WarmMessage, WarmTier, WorkerReply as Message,
    WorkerRequest,
};
use verbs3_rdma::inprocess::InProcessMode;

use super::bed::{
    ANY_AGE, BLOCK, Bed, Got, PAGE, modes, object, open, read, version, volume, with_disk,
};
use super::store::Stored;

const ALL: Option<ByteRange> = Some(ByteRange::All);

async fn forget_prefix(bed: &Bed, prefix: &str) -> Got {
    bed.clock.advance_time(Duration::from_millis(1));
    let got = bed
        .ask(WorkerRequest::ForgetPrefix(ForgetPrefix { volume: volume(), prefix: prefix.into() }))
        .await;
    bed.clock.advance_time(Duration::from_millis(1));
    got
}

async fn tend(
    bed: &Bed,
    of: &ContentVersion,
    blocks: (u32, u16),
    act: TendAct,
) -> Vec<TendedBlock> {
    let (first_block, blocks) = (BlockIndex(blocks.0), blocks.1);
    let (object, geometry) = (object("k"), BlockGeometry::DEFAULT);
    let asked = TendMessage { object, version: of.clone(), geometry, first_block, blocks, act };
    match &bed.ask(WorkerRequest::Tend(asked)).await.messages[..] {
        [Message::Tended(tended)] => tended.blocks.clone(),
        other => panic!("not tended: {other:?}"),
    }
}

#[tokio::test]
async fn a_change_behind_gateways_shows_once_its_prefix_is_forgotten() {
    for mode in modes() {
        let bed = Bed::new(mode);
        let (old, new) = (Stored::new(1, 1000), Stored::new(2, 2000));
        bed.store.put("a/k", old.clone());
        bed.open(open("a/k", ALL)).await;
        bed.store.put("a/k", new.clone());
        assert!(forget_prefix(&bed, "b/").await.is_done());
        assert_eq!(
            bed.open(open("a/k", ALL)).await.bytes,
            old.content(0..1000),
            "another prefix was forgotten"
        );
        assert!(forget_prefix(&bed, "a/").await.is_done());
        assert_eq!(bed.open(open("a/k", ALL)).await.bytes, new.content(0..2000));
        let asked = bed.store.asked();
        let again = bed.open(open("a/k", ALL)).await;
        assert!(again.opened().attributes_cached && again.verdict() == CacheVerdict::Hit);
        assert_eq!(bed.store.asked(), asked, "what was asked since is good");
    }
}

#[tokio::test]
async fn an_absence_ends_with_its_prefix() {
    let bed = Bed::new(InProcessMode::Share);
    assert_eq!(bed.open(open("a/k", ALL)).await.absent().answer.status, 404);
    bed.store.put("a/k", Stored::new(1, 1000));
    assert!(bed.open(open("a/k", ALL)).await.absent().cached);
    forget_prefix(&bed, "").await;
    assert_eq!(bed.open(open("a/k", ALL)).await.bytes, Stored::new(1, 1000).content(0..1000));
}

/// The UFS has answered with the old version, and the answer is on its way while the prefix is
/// forgotten.
#[tokio::test]
async fn a_read_after_a_forgotten_prefix_joins_no_earlier_check() {
    let bed = Bed::new(InProcessMode::Share);
    bed.store.put("k", Stored::new(1, 1000));
    bed.store.hold();
    let first = bed.open(open("k", ALL));
    let second = async {
        bed.store.wait_held(1).await;
        bed.store.put("k", Stored::new(2, 1000));
        forget_prefix(&bed, "k").await;
        let second = bed.open(open("k", ALL));
        let release = async { bed.store.release() };
        tokio::join!(second, release).0
    };
    let (_, second) = tokio::join!(first, second);
    assert_eq!(second.bytes, Stored::new(2, 1000).content(0..1000));
    assert_eq!(bed.open(open("k", ALL)).await.bytes, Stored::new(2, 1000).content(0..1000));
}

#[tokio::test]
async fn cached_blocks_are_listed_one_by_one_and_evicted_on_request() {
    for mode in modes() {
        let bed = Bed::new(mode);
        let stored = Stored::new(1, 2 * BLOCK + 5);
        let of = version(&stored);
        bed.store.put("k", stored.clone());
        assert_eq!(tend(&bed, &of, (0, 10), TendAct::Look).await, []);
        bed.read(read("k", &stored, 1, 0..PAGE as u32 + 1)).await;
        bed.read(read("k", &stored, 2, 0..5)).await;
        bed.clock.advance_time(Duration::from_secs(7));
        let found = tend(&bed, &of, (0, 10), TendAct::Look).await;
        let bytes: Vec<_> =
            found.iter().map(|block| (block.block.0, block.memory_bytes, block.idle_s)).collect();
        assert_eq!(bytes, [(1, 2 * PAGE as u32, 7), (2, 5, 7)]);
        assert_eq!(tend(&bed, &of, (2, 1), TendAct::Look).await.len(), 1);
        let other = ContentVersion { etag: "\"other\"".into(), ..of.clone() };
        assert_eq!(tend(&bed, &other, (0, 10), TendAct::Evict).await, [], "another version");
        assert_eq!(tend(&bed, &of, (0, 10), TendAct::Evict).await.len(), 2);
        assert_eq!(tend(&bed, &of, (0, 10), TendAct::Look).await, []);
        assert_eq!(bed.read(read("k", &stored, 2, 0..5)).await.verdict(), CacheVerdict::Miss);
        bed.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn pages_on_disk_are_let_go_of_and_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let bed = Bed::with(InProcessMode::Share, 16, with_disk(folder.path(), 64));
    let stored = Stored::new(1, PAGE + 7);
    let of = version(&stored);
    bed.store.put("k", stored.clone());
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
    bed.ask(WorkerRequest::Warm(pinned)).await;
    let bytes = |found: &[TendedBlock]| {
        found.iter().map(|b| (b.memory_bytes, b.disk_bytes, b.pinned_bytes)).collect::<Vec<_>>()
    };
    let all = PAGE as u32 + 7;
    assert_eq!(bytes(&tend(&bed, &of, (0, 1), TendAct::Look).await), [(all, all, all)]);
    tend(&bed, &of, (0, 1), TendAct::Unpin).await;
    assert_eq!(bytes(&tend(&bed, &of, (0, 1), TendAct::Look).await), [(all, all, 0)]);
    tend(&bed, &of, (0, 1), TendAct::Evict).await;
    assert_eq!(tend(&bed, &of, (0, 1), TendAct::Look).await, []);
    bed.worker.shutdown().await;
}

#[tokio::test]
async fn a_question_about_too_many_blocks_is_refused() {
    let bed = Bed::new(InProcessMode::Share);
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
        bed.ask(WorkerRequest::Tend(asked.clone())).await.refused(),
        Some(&RefusalKind::Malformed)
    );
    let beyond = TendMessage { blocks: 1024, ..asked };
    assert!(matches!(
        &bed.ask(WorkerRequest::Tend(beyond)).await.messages[..],
        [Message::Tended(_)]
    ));
}

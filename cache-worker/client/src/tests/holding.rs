//! Small objects whose bytes are held beside a lease: what is answered with them, and what ends it.

use super::following::adopt;
use super::leasing::{
    Home, asking, head, home, leased, leased_with, open, opens_asked, reads_asked,
};
use super::writing::volume;
use super::*;
use crate::OpenRequest;
use std::sync::atomic::Ordering;
use verbs3_protocol::{ByteRange, ObjectKey, WriteOutcome};

const WHOLE: Option<ByteRange> = Some(ByteRange::All);
/// The longest object that these gateways hold.
const LONGEST: u64 = 64 << 10;

/// Bytes of a version of a home's object.
fn bytes_of(version: u64, range: std::ops::Range<u64>) -> Vec<u8> {
    let data = content(range.start as u32, range.end as u32);
    data.iter().map(|byte| byte ^ (version - 1) as u8).collect()
}

/// A home whose object has this many bytes.
fn home_of(bytes: u64) -> Arc<Home> {
    let home = home();
    home.bytes.store(bytes, Ordering::SeqCst);
    home
}

async fn read_of(tier: &Arc<CacheTierClient>, request: &OpenRequest) -> Vec<u8> {
    super::opening::all(open(tier, request).await).await
}

async fn read(tier: &Arc<CacheTierClient>, want: Option<ByteRange>) -> Vec<u8> {
    read_of(tier, &asking(tier, want)).await
}

/// A gateway that holds an object.
async fn holding(home: &Arc<Home>) -> (Arc<CacheTierClient>, TestWorker) {
    let limit = |settings: &mut TierSettings| settings.small_object_max = ByteSize(LONGEST);
    let (tier, a) = leased_with(home, limit).await;
    read(&tier, WHOLE).await;
    assert_eq!(opens_asked(&a), 3);
    (tier, a)
}

#[tokio::test]
async fn a_held_object_and_its_parts_are_read_without_its_home() {
    let home = home_of(LONGEST);
    let (tier, a) = holding(&home).await;
    let from = |first, last| Some(ByteRange::From { first, last });
    let cases = [
        (WHOLE, 0..LONGEST),
        (from(0, None), 0..LONGEST),
        (from(10, Some(10)), 10..11),
        (from(60_000, Some(1 << 30)), 60_000..LONGEST),
        (Some(ByteRange::Suffix { bytes: 7 }), LONGEST - 7..LONGEST),
    ];
    for (want, range) in cases {
        let found = open(&tier, &asking(&tier, want)).await;
        assert_eq!((found.transport, &found.covered), (None, &range));
        assert!(super::opening::all(found).await == bytes_of(1, range), "{want:?}");
    }
    let past_end = open(&tier, &asking(&tier, from(LONGEST, None))).await;
    assert!(past_end.data.is_empty() && past_end.rest.is_none());
    let metrics = &tier.asker.metrics;
    assert_eq!((opens_asked(&a), reads_asked(&a), metrics.small_object_reads.get()), (3, 0, 5));
    assert_eq!(metrics.small_objects.get(), 1);
    tier.shutdown().await;
}

#[tokio::test]
async fn an_object_over_the_limit_is_not_held() {
    let home = home_of(LONGEST + 1);
    let (tier, a) = holding(&home).await;
    assert!(read(&tier, WHOLE).await == bytes_of(1, 0..LONGEST + 1));
    assert_eq!((opens_asked(&a), tier.asker.metrics.small_objects.get()), (4, 0));
    tier.shutdown().await;
}

/// Many objects that are read once each are not copied.
#[tokio::test]
async fn a_longer_object_is_held_from_its_second_read_on() {
    for (bytes, held_after) in [(64 << 10, 1), ((64 << 10) + 1, 2), (256 << 10, 2)] {
        let home = home_of(bytes);
        let (tier, a) = leased(&home).await;
        let mut request = asking(&tier, WHOLE);
        request.object = Arc::new(ObjectKey { key: "other".into(), ..(*request.object).clone() });
        for read in 1..=3 {
            assert!(read_of(&tier, &request).await == bytes_of(1, 0..bytes));
            let is_held = i64::from(read >= held_after);
            assert_eq!(tier.asker.metrics.small_objects.get(), is_held, "{bytes} bytes, {read}");
            assert_eq!(opens_asked(&a), 2 + read.min(held_after));
        }
        tier.shutdown().await;
    }
}

#[tokio::test]
async fn once_a_recall_is_acknowledged_held_bytes_are_not_read() {
    for all in [false, true] {
        let home = home_of(1000);
        let (tier, a) = holding(&home).await;
        home.version.store(2, Ordering::SeqCst);
        let key = asking(&tier, None).object.hash();
        home.recall(if all { vec![] } else { vec![key] }, all).await;
        assert!(read(&tier, WHOLE).await == bytes_of(2, 0..1000));
        assert_eq!(opens_asked(&a), 4);
        assert!(read(&tier, WHOLE).await == bytes_of(2, 0..1000));
        assert_eq!(opens_asked(&a), 4, "and is held again");
        tier.shutdown().await;
    }
}

/// A HEAD learns of a new version while the bytes of the old one are here.
#[tokio::test]
async fn bytes_of_another_version_are_not_kept_under_a_new_lease() {
    let home = home_of(1000);
    let (tier, a) = holding(&home).await;
    home.version.store(2, Ordering::SeqCst);
    home.recall(vec![asking(&tier, None).object.hash()], false).await;
    assert_eq!(head(&tier).await, "\"v2\"");
    assert!(read(&tier, Some(ByteRange::Suffix { bytes: 5 })).await == bytes_of(2, 995..1000));
    assert!(read(&tier, WHOLE).await == bytes_of(2, 0..1000));
    assert_eq!(opens_asked(&a), 5);
    tier.shutdown().await;
}

#[tokio::test]
async fn bytes_are_not_kept_over_a_recall() {
    let home = home_of(1000);
    let (tier, a) = holding(&home).await;
    home.recall(vec![asking(&tier, None).object.hash()], false).await;
    head(&tier).await;
    assert!(read(&tier, WHOLE).await == bytes_of(1, 0..1000));
    assert_eq!(opens_asked(&a), 5);
    tier.shutdown().await;
}

/// The store says the same ETag and length of other bytes.
#[tokio::test]
async fn what_a_home_sends_counts_though_its_version_is_held() {
    let home = home_of(1000);
    let (tier, _a) = holding(&home).await;
    let key = asking(&tier, None).object.hash();
    home.flips.store(true, Ordering::SeqCst);
    home.recall(vec![key], false).await;
    let flipped: Vec<u8> = bytes_of(1, 0..1000).iter().map(|byte| !byte).collect();
    assert!(read(&tier, WHOLE).await == flipped);
    assert!(read(&tier, WHOLE).await == flipped, "as held");
    tier.shutdown().await;
}

#[tokio::test]
async fn objects_that_grow_and_shrink_over_the_limit_are_read_right() {
    let home = home_of(1000);
    let (tier, _a) = holding(&home).await;
    let key = asking(&tier, None).object.hash();
    for (number, bytes) in [(2, LONGEST + 1), (3, 10), (4, 0), (5, LONGEST), (6, 200_000), (7, 1)] {
        home.version.store(number, Ordering::SeqCst);
        home.bytes.store(bytes, Ordering::SeqCst);
        home.recall(vec![key], false).await;
        for want in [WHOLE, Some(ByteRange::Suffix { bytes: 1 << 20 }), WHOLE] {
            assert!(read(&tier, want).await == bytes_of(number, 0..bytes), "{number} {want:?}");
        }
    }
    tier.shutdown().await;
}

#[tokio::test]
async fn a_part_of_a_leased_object_brings_all_of_it_once() {
    let home = home_of(1000);
    let (tier, a) = leased(&home).await;
    let part = Some(ByteRange::From { first: 10, last: Some(19) });
    for _ in 0..3 {
        assert!(read(&tier, part).await == bytes_of(1, 10..20));
    }
    assert!(read(&tier, WHOLE).await == bytes_of(1, 0..1000));
    assert_eq!(opens_asked(&a), 3);
    tier.shutdown().await;
}

/// The object grows between the lease and the question for all of it.
#[tokio::test]
async fn a_part_is_read_right_where_the_object_is_no_longer_small() {
    let home = home_of(1000);
    let (tier, _a) = leased(&home).await;
    home.version.store(2, Ordering::SeqCst);
    home.bytes.store(600_000, Ordering::SeqCst);
    let part = Some(ByteRange::From { first: 990, last: Some(1009) });
    assert!(read(&tier, part).await == bytes_of(2, 990..1010));
    tier.shutdown().await;
}

#[tokio::test]
async fn held_bytes_are_read_by_those_only_who_may_use_the_lease() {
    let home = home_of(1000);
    let (tier, a) = holding(&home).await;
    let plain = asking(&tier, WHOLE);
    let others = [
        OpenRequest { attributes_age_ms_max: 4999, ..plain.clone() },
        OpenRequest { attributes_age_ms_max: 0, ..plain.clone() },
        OpenRequest { checksums: true, ..plain.clone() },
        OpenRequest { version_id: Some("x".into()), ..plain.clone() },
    ];
    for (number, other) in others.iter().enumerate() {
        read_of(&tier, other).await;
        assert_eq!(opens_asked(&a), 4 + number, "{other:?}");
    }
    tier.shutdown().await;
}

#[tokio::test]
async fn held_bytes_end_with_the_map_and_with_an_own_write() {
    let home = home_of(1000);
    let (tier, a) = holding(&home).await;
    home.version.store(2, Ordering::SeqCst);
    adopt(&tier, 8, &[&a]);
    assert!(read(&tier, WHOLE).await == bytes_of(2, 0..1000));
    home.version.store(3, Ordering::SeqCst);
    let key = asking(&tier, None).object.key.clone();
    let announced = tier.announce_write(&volume(), &[key]).await.unwrap();
    assert!(read(&tier, WHOLE).await == bytes_of(3, 0..1000));
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    tier.shutdown().await;
}

#[tokio::test]
async fn held_bytes_take_no_landing() {
    let home = home_of(1000);
    let (tier, _a) = holding(&home).await;
    let found = open(&tier, &asking(&tier, WHOLE)).await;
    settle().await;
    assert_eq!(tier.spans.arena.arena_usage().loaned_bytes, 0);
    assert_eq!(found.data.concat(), bytes_of(1, 0..1000));
    tier.shutdown().await;
}

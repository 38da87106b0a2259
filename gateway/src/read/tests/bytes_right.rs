//! The right bytes for any range of any object, cold and hot, shared and copied.

use super::*;
use crate::auth::Tenant;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SIZES: [usize; 9] =
    [0, 1, PAGE - 1, PAGE, PAGE + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 12_345];

fn random_range(rng: &mut StdRng, bytes: usize) -> (s3s::dto::Range, std::ops::Range<usize>) {
    if rng.random_range(0..4) == 0 {
        let length = rng.random_range(1..=bytes + 10);
        return (
            s3s::dto::Range::Suffix { length: length as u64 },
            bytes.saturating_sub(length)..bytes,
        );
    }
    let first = rng.random_range(0..bytes);
    // As often short as long, and often past the end.
    let length = if rng.random_range(0..2) == 0 {
        rng.random_range(1..5000)
    } else {
        rng.random_range(1..=bytes + 10)
    };
    let last = (rng.random_range(0..8) != 0).then_some((first + length - 1) as u64);
    let end = last.map_or(bytes, |last| (last as usize + 1).min(bytes));
    (s3s::dto::Range::Int { first: first as u64, last }, first..end)
}

async fn random_ranges(join: Join, workers: usize) {
    let seed: u64 =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let fixture = ReadSetup { join, workers, ..ReadSetup::default() }.start_fixture().await;
    for size in SIZES {
        let (key, expected) = (format!("object-{size}"), content(seed ^ size as u64, size));
        fixture.put(&key, &expected).await;
        for _ in 0..if size == 0 { 0 } else { 12 } {
            let (range, bytes) = random_range(&mut rng, size);
            let mut got = fixture.get(GetObjectInput { range: Some(range), ..of(&key) }).await;
            let header = format!("bytes {}-{}/{size}", bytes.start, bytes.end - 1);
            assert_eq!(
                (got.status, got.output.content_range.as_deref()),
                (206, Some(header.as_str())),
                "{range:?}"
            );
            assert_eq!(got.output.content_length, Some(bytes.len() as i64));
            let (body, error) = got.body().await;
            assert!(
                error.is_none() && body == expected[bytes],
                "{join:?} {range:?} of {size}: {error:?}"
            );
        }
        for _ in 0..2 {
            let mut got = fixture.get(of(&key)).await;
            assert_eq!((got.status, got.output.content_length), (200, Some(size as i64)));
            assert!(got.body().await.0 == expected, "{join:?} whole {size}");
        }
    }
    fixture.tier.shutdown().await;
}

#[tokio::test]
async fn random_ranges_are_right_over_shared_memory() {
    random_ranges(Join::Share, 1).await;
}

#[tokio::test]
async fn random_ranges_are_right_over_landings() {
    random_ranges(Join::Copy, 3).await;
}

#[tokio::test]
async fn the_second_read_is_a_hit_that_asks_no_store() {
    for join in [Join::Share, Join::Copy] {
        let fixture = ReadSetup { join, ..ReadSetup::default() }.start_fixture().await;
        let via = if join == Join::Share { "shm" } else { "tcp" };
        for (key, bytes) in [("small", 4096), ("large", 3 * BLOCK + 5)] {
            fixture.put(key, &content(1, bytes)).await;
            let mut cold = fixture.get(of(key)).await;
            assert!(cold.body().await.0 == content(1, bytes));
            assert_eq!(cold.verdict(), ("miss", via));
            let gets = fixture.store.gets();
            let mut hot = fixture.get(of(key)).await;
            assert!(hot.body().await.0 == content(1, bytes));
            assert_eq!((hot.verdict(), fixture.store.gets()), (("hit", via), gets));
        }
    }
}

/// Misses have a smaller share of what is scarce than hits.
#[tokio::test]
async fn how_reads_end_says_whether_their_tenant_reads_cold_data() {
    let fixture = ReadSetup::default().start_fixture().await;
    let tenant = Tenant::one_of_several("t", 1);
    let read = async |key: &str| {
        let cx = Arc::new(RequestContext::new(RequestId::generate(), Instant::now()));
        cx.set_tenant(tenant.clone());
        let answer = fixture.reader.get(&cx, &fixture.mount, of(key), None).await.unwrap();
        let mut body = answer.output.body.unwrap();
        while let Some(piece) = body.next().await {
            piece.unwrap();
        }
    };
    for number in 0..20 {
        let key = format!("cold-{number}");
        fixture.put(&key, &content(number, 2 * PAGE)).await;
        read(&key).await;
    }
    assert!(tenant.reads_cold_data());
    for _ in 0..40 {
        read("cold-0").await;
    }
    assert!(!tenant.reads_cold_data());
}

#[tokio::test]
async fn a_body_knows_its_exact_length_from_the_start() {
    use s3s::stream::ByteStream;
    let fixture = ReadSetup { join: Join::Share, ..ReadSetup::default() }.start_fixture().await;
    fixture.put("k", &content(1, 2 * BLOCK)).await;
    let got = fixture.get(of("k")).await;
    assert_eq!(got.output.body.unwrap().remaining_length().exact(), Some(2 * BLOCK));
}

#[tokio::test]
async fn many_readers_of_one_cold_object_all_get_it() {
    let fixture = Arc::new(ReadSetup { workers: 2, ..ReadSetup::default() }.start_fixture().await);
    fixture.put("k", &content(9, 4 * BLOCK)).await;
    let readers = (0..16).map(|_| {
        let fixture = fixture.clone();
        tokio::spawn(async move { fixture.read("k").await == content(9, 4 * BLOCK) })
    });
    for right in futures::future::join_all(readers).await {
        assert!(right.unwrap());
    }
    assert!(fixture.store.gets() <= 8, "{} reads of the store", fixture.store.gets());
}

#[tokio::test]
async fn a_reader_in_sequence_asks_the_store_less_than_once_a_range() {
    let fixture = ReadSetup::default().start_fixture().await;
    let expected = content(8, 3 * BLOCK);
    fixture.put("k", &expected).await;
    assert_eq!(fixture.get(ranged("k", 0, 9)).await.body().await.0, &expected[..10]);
    let before = fixture.store.gets();
    for page in 0..BLOCK / PAGE {
        let at = BLOCK + page * PAGE;
        let mut got = fixture.get(ranged("k", at as u64, (at + PAGE - 1) as u64)).await;
        assert!(got.body().await.0 == expected[at..at + PAGE]);
    }
    let gets = fixture.store.gets() - before;
    assert!(gets <= 4, "{gets} reads of the store for {} ranges", BLOCK / PAGE);
}

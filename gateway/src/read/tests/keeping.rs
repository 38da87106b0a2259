//! What leaves the store while a home is away or a key is uncertain: one small answer, and no byte
//! that a worker has.

use verbs3_protocol::WriteOutcome;

use super::*;

const OBJECTS: u64 = 12;
const BYTES: usize = 5 * BLOCK;

fn key(number: u64) -> String {
    format!("object-{number}")
}

/// Objects of several blocks, all of them in the tier.
async fn warm_bed() -> Bed {
    let bed = Make { workers: 4, landings: 64 << 20, ..Make::default() }.bed().await;
    for number in 0..OBJECTS {
        bed.put(&key(number), &content(number, BYTES)).await;
        assert!(bed.read(&key(number)).await == content(number, BYTES));
    }
    let before = bed.store.bytes();
    read_all(&bed).await;
    assert_eq!(bed.store.bytes(), before, "all is cached");
    bed
}

async fn read_all(bed: &Bed) {
    for number in 0..OBJECTS {
        assert!(bed.read(&key(number)).await == content(number, BYTES), "{}", key(number));
    }
}

/// Blocks of all objects that this worker owns.
fn owned_blocks(bed: &Bed, worker: &str) -> u64 {
    let is_owned = |object: &ObjectKey, block: u32| {
        bed.tier.owner_ids(object, verbs3_protocol::BlockIndex(block))[0].0 == worker
    };
    let blocks = |number| {
        let object = bed.mount.object_key(&key(number));
        (0..(BYTES / BLOCK) as u32).filter(|&block| is_owned(&object, block)).count() as u64
    };
    (0..OBJECTS).map(blocks).sum()
}

#[tokio::test]
async fn a_home_that_is_away_costs_its_own_blocks_and_a_head_a_read() {
    let bed = warm_bed().await;
    bed.faults[0].refuse_connects(100_000);
    bed.faults[0].drop_at_event(1);
    let before = (bed.store.bytes(), bed.store.heads());
    read_all(&bed).await;
    let lost = owned_blocks(&bed, "w0") * BLOCK as u64;
    let first = bed.store.bytes() - before.0;
    assert!(lost > 0 && first as f64 <= 1.05 * lost as f64, "{first} bytes, {lost} were lost");
    // Others have them now.
    for _ in 0..3 {
        read_all(&bed).await;
    }
    assert_eq!(bed.store.bytes() - before.0, first);
    let heads = bed.store.heads() - before.1;
    assert!((1..=4 * OBJECTS).contains(&heads), "{heads} heads");
}

#[tokio::test]
async fn an_uncertain_key_costs_a_head_and_no_byte_that_is_cached() {
    let bed = warm_bed().await;
    let announced = bed.tier.announce_write(&bed.mount.volume, &[key(1)]).await.unwrap();
    let before = (bed.store.bytes(), bed.store.heads());
    let mut got = bed.get(of(&key(1))).await;
    assert!(got.body().await.0 == content(1, BYTES));
    assert_eq!(got.verdict().0, "hit");
    let mut part = bed.get(ranged(&key(1), 7, 99)).await;
    assert!(part.body().await.0 == content(1, BYTES)[7..100]);
    assert_eq!((part.status, bed.store.bytes() - before.0), (206, 0));
    assert_eq!(bed.store.heads() - before.1, 2);
    let readers = (0..50).map(|_| async {
        bed.get(ranged(&key(1), 7, 99)).await.body().await.0 == content(1, BYTES)[7..100]
    });
    assert!(futures::future::join_all(readers).await.into_iter().all(|is_right| is_right));
    // How many share one depends on when they come; `store_heads` tests that.
    let heads = bed.store.heads() - before.1 - 2;
    assert!((1..=50).contains(&heads), "{heads} heads");
    assert_eq!(bed.store.bytes() - before.0, 0);
    // What the writer has written is seen by every read from then on.
    bed.put(&key(1), &content(99, BYTES)).await;
    assert!(bed.read(&key(1)).await == content(99, BYTES));
    bed.tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert!(bed.read(&key(1)).await == content(99, BYTES));
}

#[tokio::test]
async fn conditions_and_errors_of_an_uncertain_key_are_the_stores() {
    let bed = warm_bed().await;
    let keys = [key(1), "nothing".to_owned()];
    let _announced = bed.tier.announce_write(&bed.mount.volume, &keys).await.unwrap();
    let head = HeadObjectInput { bucket: "train".into(), key: key(1), ..Default::default() };
    let output = bed.head(head).await.unwrap().output;
    assert_eq!(output.content_length, Some(BYTES as i64));
    let got = bed.get(of(&key(1))).await;
    assert_eq!(got.headers["x-amz-meta-colour"], "blue");
    let etag = got.headers[http::header::ETAG].to_str().unwrap().trim_matches('"').to_owned();
    let unchanged = GetObjectInput {
        if_none_match: Some(ETagCondition::ETag(ETag::Strong(etag))),
        ..of(&key(1))
    };
    let error = bed.try_get(unchanged).await.1.err().unwrap();
    assert_eq!(error.status_code().unwrap().as_u16(), 304);
    let error = bed.try_get(of("nothing")).await.1.err().unwrap();
    assert_eq!(error.code().as_str(), "NoSuchKey");
    let past_end = bed.try_get(ranged(&key(1), BYTES as u64, BYTES as u64)).await.1;
    assert_eq!(past_end.err().unwrap().code().as_str(), "InvalidRange");
}

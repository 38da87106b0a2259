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
async fn warm_fixture() -> ReadFixture {
    let fixture =
        ReadSetup { workers: 4, landings: 64 << 20, ..ReadSetup::default() }.start_fixture().await;
    for number in 0..OBJECTS {
        fixture.put(&key(number), &content(number, BYTES)).await;
        assert!(fixture.read(&key(number)).await == content(number, BYTES));
    }
    let before = fixture.store.bytes();
    read_all(&fixture).await;
    assert_eq!(fixture.store.bytes(), before, "all is cached");
    fixture
}

async fn read_all(fixture: &ReadFixture) {
    for number in 0..OBJECTS {
        assert!(fixture.read(&key(number)).await == content(number, BYTES), "{}", key(number));
    }
}

/// Blocks of all objects that this worker owns.
fn owned_blocks(fixture: &ReadFixture, worker: &str) -> u64 {
    let is_owned = |object: &ObjectKey, block: u32| {
        fixture.tier.owner_ids(object, verbs3_protocol::BlockIndex(block))[0].0 == worker
    };
    let blocks = |number| {
        let object = fixture.mount.object_key(&key(number));
        (0..(BYTES / BLOCK) as u32).filter(|&block| is_owned(&object, block)).count() as u64
    };
    (0..OBJECTS).map(blocks).sum()
}

#[tokio::test]
async fn a_home_that_is_away_costs_its_own_blocks_and_a_head_a_read() {
    let fixture = warm_fixture().await;
    fixture.faults[0].refuse_connects(100_000);
    fixture.faults[0].drop_at_event(1);
    let before = (fixture.store.bytes(), fixture.store.heads());
    read_all(&fixture).await;
    let lost = owned_blocks(&fixture, "w0") * BLOCK as u64;
    let first = fixture.store.bytes() - before.0;
    assert!(lost > 0 && first as f64 <= 1.05 * lost as f64, "{first} bytes, {lost} were lost");
    // Others have them now.
    for _ in 0..3 {
        read_all(&fixture).await;
    }
    assert_eq!(fixture.store.bytes() - before.0, first);
    let heads = fixture.store.heads() - before.1;
    assert!((1..=4 * OBJECTS).contains(&heads), "{heads} heads");
}

#[tokio::test]
async fn an_uncertain_key_costs_a_head_and_no_byte_that_is_cached() {
    let fixture = warm_fixture().await;
    let announced = fixture.tier.announce_write(&fixture.mount.volume, &[key(1)]).await.unwrap();
    let before = (fixture.store.bytes(), fixture.store.heads());
    let mut got = fixture.get(of(&key(1))).await;
    assert!(got.body().await.0 == content(1, BYTES));
    assert_eq!(got.verdict().0, "hit");
    let mut part = fixture.get(ranged(&key(1), 7, 99)).await;
    assert!(part.body().await.0 == content(1, BYTES)[7..100]);
    assert_eq!((part.status, fixture.store.bytes() - before.0), (206, 0));
    assert_eq!(fixture.store.heads() - before.1, 2);
    let readers = (0..50).map(|_| async {
        fixture.get(ranged(&key(1), 7, 99)).await.body().await.0 == content(1, BYTES)[7..100]
    });
    assert!(futures::future::join_all(readers).await.into_iter().all(|is_right| is_right));
    // How many share one depends on when they come; `store_heads` tests that.
    let heads = fixture.store.heads() - before.1 - 2;
    assert!((1..=50).contains(&heads), "{heads} heads");
    assert_eq!(fixture.store.bytes() - before.0, 0);
    // What the writer has written is seen by every read from then on.
    fixture.put(&key(1), &content(99, BYTES)).await;
    assert!(fixture.read(&key(1)).await == content(99, BYTES));
    fixture.tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    assert!(fixture.read(&key(1)).await == content(99, BYTES));
}

#[tokio::test]
async fn conditions_and_errors_of_an_uncertain_key_are_the_stores() {
    let fixture = warm_fixture().await;
    let keys = [key(1), "nothing".to_owned()];
    let _announced = fixture.tier.announce_write(&fixture.mount.volume, &keys).await.unwrap();
    let head = HeadObjectInput { bucket: "train".into(), key: key(1), ..Default::default() };
    let output = fixture.head(head).await.unwrap().output;
    assert_eq!(output.content_length, Some(BYTES as i64));
    let got = fixture.get(of(&key(1))).await;
    assert_eq!(got.headers["x-amz-meta-colour"], "blue");
    let etag = got.headers[http::header::ETAG].to_str().unwrap().trim_matches('"').to_owned();
    let unchanged = GetObjectInput {
        if_none_match: Some(ETagCondition::ETag(ETag::Strong(etag))),
        ..of(&key(1))
    };
    let error = fixture.try_get(unchanged).await.1.err().unwrap();
    assert_eq!(error.status_code().unwrap().as_u16(), 304);
    let error = fixture.try_get(of("nothing")).await.1.err().unwrap();
    assert_eq!(error.code().as_str(), "NoSuchKey");
    let past_end = fixture.try_get(ranged(&key(1), BYTES as u64, BYTES as u64)).await.1;
    assert_eq!(past_end.err().unwrap().code().as_str(), "InvalidRange");
}

//! The cache's reads over a store that fails on purpose: no fault may pass for the object's bytes.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::{ReadObject, Ufs, UfsError, UfsRetriesSettings, UfsSettings};
use futures::TryStreamExt;
use std::time::Duration;
use verbs3_local_store::{LocalOptions, LocalStore};
use verbs3_settings::TimePeriod;

const TEXT: &str = "0123456789";

struct FaultFixture {
    ufs: Ufs,
    faults: FaultInjector,
    etag: String,
    _folder: tempfile::TempDir,
}

async fn start_fixture(faults: FaultInjector) -> FaultFixture {
    let folder = tempfile::tempdir().unwrap();
    let options = LocalOptions { sync: false, ..LocalOptions::new(folder.path()) };
    let store: Arc<dyn S3> = Arc::new(LocalStore::open_store(options).unwrap());
    let bucket = CreateBucketInput { bucket: "bkt".into(), ..Default::default() };
    store.create_bucket(s3_request(http::Method::PUT, bucket)).await.unwrap();
    FaultyStore::new(store.clone(), FaultInjector::default())
        .replace_object("bkt", "k", TEXT)
        .await
        .unwrap();
    let retries = UfsRetriesSettings {
        pause: TimePeriod::from_millis(1),
        budget_max: 10_000,
        ..Default::default()
    };
    let settings = UfsSettings { retries, ..UfsSettings::with_name("faulty") };
    let ufs = Ufs::new(Arc::new(FaultyStore::new(store, faults.clone())), settings);
    let etag =
        ufs.head_object(wanted(None)).await.map(|head| head.etag.unwrap()).unwrap_or_default();
    FaultFixture { ufs, faults, etag, _folder: folder }
}

fn wanted(if_match: Option<&str>) -> ReadObject {
    let (bucket, key) = ("bkt".into(), "k".into());
    let if_match = if_match.map(str::to_owned);
    ReadObject { bucket, key, version_id: None, if_match, range: Some(2..=5), checksums: false }
}

async fn read(fixture: &FaultFixture) -> Result<Vec<u8>, UfsError> {
    let stream = fixture.ufs.read(wanted(Some(&fixture.etag))).await?;
    let pieces: Vec<Bytes> = stream.body.try_collect().await?;
    Ok(pieces.concat())
}

#[tokio::test]
async fn each_fault_of_a_read_is_told_for_what_it_is() {
    let fixture = start_fixture(FaultInjector::default()).await;
    assert_eq!(read(&fixture).await.unwrap(), b"2345");
    fixture.faults.next(FaultyOp::Get, StoreFault::BodyCut { after: 2 });
    assert!(matches!(read(&fixture).await, Err(UfsError::Truncated { got: 2, want: 4, .. })));
    fixture.faults.next(FaultyOp::Get, StoreFault::BodyLength { by: -1 });
    assert!(matches!(read(&fixture).await, Err(UfsError::Truncated { got: 3, want: 4, .. })));
    fixture.faults.next(FaultyOp::Get, StoreFault::BodyLength { by: 1 });
    assert!(matches!(read(&fixture).await, Err(UfsError::Untrusted { .. })));
    fixture.faults.next(FaultyOp::Get, StoreFault::OtherEtag);
    assert!(matches!(read(&fixture).await, Err(UfsError::Changed { .. })));
    fixture.faults.next(
        FaultyOp::Get,
        StoreFault::Refused { status: 503, code: "SlowDown", retry_after: Some(99) },
    );
    let patient = read(&fixture).await.unwrap_err();
    assert_eq!(patient.raw_answer().unwrap().retry_after(), Some(Duration::from_secs(99)));
    fixture.faults.next(FaultyOp::Get, StoreFault::AnswerLost);
    assert_eq!(read(&fixture).await.unwrap(), b"2345");
    fixture.faults.next(FaultyOp::Get, StoreFault::Replaced { with: "abcdefghij" });
    assert!(read(&fixture).await.unwrap_err().version_changed());
}

#[tokio::test]
async fn a_held_read_goes_on_when_it_is_released() {
    let fixture = start_fixture(FaultInjector::default()).await;
    fixture.faults.next(FaultyOp::Get, StoreFault::Held);
    let (bytes, ()) = tokio::join!(read(&fixture), async {
        fixture.faults.wait_until_held(1).await;
        fixture.faults.release_held();
    });
    assert_eq!(bytes.unwrap(), b"2345");
}

#[tokio::test]
async fn whatever_fails_a_read_gives_the_right_bytes_or_an_error() {
    let seed = rand::random::<u64>();
    println!("SEED={seed}");
    let kinds = [
        StoreFault::BodyCut { after: 1 },
        StoreFault::BodyLength { by: -2 },
        StoreFault::BodyLength { by: 3 },
        StoreFault::OtherEtag,
        StoreFault::AnswerLost,
        StoreFault::Refused { status: 500, code: "InternalError", retry_after: None },
    ];
    let faults = FaultInjector::with_seed(
        seed,
        50,
        kinds.into_iter().map(|fault| (FaultyOp::Get, fault)).collect(),
    );
    let fixture = start_fixture(faults).await;
    let (mut right, mut failed) = (0, 0);
    for _ in 0..300 {
        match read(&fixture).await {
            Ok(bytes) => {
                assert_eq!(bytes, b"2345");
                right += 1;
            }
            Err(_) => failed += 1,
        }
    }
    assert!(right > 0 && failed > 0 && fixture.faults.count_requests(FaultyOp::Get) > 300);
}

#[tokio::test]
async fn a_write_takes_effect_if_its_answer_is_lost_not_if_refused() {
    let fixture = start_fixture(FaultInjector::default()).await;
    let delete = || {
        let input =
            DeleteObjectInput { bucket: "bkt".into(), key: "k".into(), ..Default::default() };
        fixture.ufs.s3_store().delete_object(s3_request(http::Method::DELETE, input))
    };
    fixture.faults.next(
        FaultyOp::Delete,
        StoreFault::Refused { status: 503, code: "SlowDown", retry_after: None },
    );
    assert!(delete().await.is_err());
    assert_eq!(read(&fixture).await.unwrap(), b"2345");
    fixture.faults.next(FaultyOp::Delete, StoreFault::AnswerLost);
    assert!(delete().await.is_err());
    assert_eq!(
        read(&fixture).await.unwrap_err().raw_answer().unwrap().status,
        StatusCode::NOT_FOUND
    );
}

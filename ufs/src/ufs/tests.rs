//! `Ufs` over a store that answers from a script, one answer a request.
#![allow(clippy::unwrap_used)]
use super::*;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use s3s::dto::{
    ETag, ETagCondition, GetObjectInput, HeadObjectInput, HeadObjectOutput, StreamingBlob,
};
use s3s::s3_error;
use std::collections::VecDeque;
use verbs3_settings::TimePeriod;

use crate::settings::{UfsCircuitSettings, UfsLimitsSettings, UfsRetriesSettings};

enum Step {
    Bytes(&'static str),
    Error(fn() -> s3s::S3Error),
    Silence,
}

#[derive(Default)]
struct ScriptedStore {
    steps: Mutex<VecDeque<Step>>,
    asked: Mutex<Vec<GetObjectInput>>,
}

#[async_trait::async_trait]
impl S3 for ScriptedStore {
    async fn get_object(
        &self,
        req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        self.asked.lock().push(req.input);
        let step =
            self.steps.lock().pop_front().expect("more requests than the script has answers");
        match step {
            Step::Bytes(text) => Ok(S3Response::new(GetObjectOutput {
                body: Some(StreamingBlob::wrap(futures::stream::iter([Ok::<_, std::io::Error>(
                    Bytes::from(text),
                )]))),
                content_length: Some(text.len() as i64),
                e_tag: Some(ETag::Strong("a".into())),
                ..Default::default()
            })),
            Step::Error(error) => Err(error()),
            Step::Silence => std::future::pending().await,
        }
    }

    async fn head_object(
        &self,
        _: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let mut response =
            S3Response::new(HeadObjectOutput { content_length: Some(7), ..Default::default() });
        response.headers.insert("x-vendor", "1".parse().unwrap());
        Ok(response)
    }
}

fn slow_down() -> s3s::S3Error {
    s3_error!(SlowDown, "slow down")
}

fn settings() -> UfsSettings {
    let mut settings = UfsSettings::with_name("main");
    settings.retries.pause = TimePeriod::from_millis(1);
    settings.limits.wait_max = TimePeriod::from_millis(20);
    settings.deadlines.first_byte = TimePeriod::from_millis(50);
    settings
}

fn ufs(settings: UfsSettings, steps: impl IntoIterator<Item = Step>) -> (Ufs, Arc<ScriptedStore>) {
    let store = Arc::new(ScriptedStore {
        steps: Mutex::new(steps.into_iter().collect()),
        ..Default::default()
    });
    (Ufs::with_randomness(store.clone(), settings, Arc::new(|| 0.5)), store)
}

fn wanted() -> ReadObject {
    let (bucket, key) = ("b".into(), "k".into());
    ReadObject {
        bucket,
        key,
        version_id: None,
        if_match: Some("\"a\"".into()),
        range: Some(0..=3),
        checksums: true,
    }
}

async fn text(stream: ObjectStream) -> String {
    let pieces: Vec<Bytes> = stream.body.try_collect().await.unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

#[tokio::test]
async fn a_read_sends_its_condition_and_cuts_what_was_not_asked_for() {
    let (ufs, store) = ufs(settings(), [Step::Bytes("0123456789")]);
    let stream = ufs.read(wanted()).await.unwrap();
    assert_eq!((stream.head.bytes, stream.range.clone()), (10, 0..4));
    assert_eq!(text(stream).await, "0123");
    let asked = store.asked.lock();
    assert_eq!(asked[0].if_match, Some(ETagCondition::ETag(ETag::Strong("a".into()))));
    assert_eq!(asked[0].range.unwrap().to_header_string(), "bytes=0-3");
    assert_eq!(asked[0].checksum_mode.as_ref().unwrap().as_str(), "ENABLED");
}

#[tokio::test]
async fn a_head_keeps_headers_that_it_does_not_know() {
    let head =
        ufs(settings(), []).0.head_object(ReadObject { if_match: None, ..wanted() }).await.unwrap();
    assert_eq!(
        (head.bytes, head.etag, &head.headers["x-vendor"]),
        (7, None, &"1".parse().unwrap())
    );
}

#[tokio::test]
async fn a_store_in_trouble_is_asked_again_within_bounds() {
    let (ufs_, store) =
        ufs(settings(), [Step::Error(slow_down), Step::Error(slow_down), Step::Bytes("0123")]);
    assert_eq!(text(ufs_.read(wanted()).await.unwrap()).await, "0123");
    assert_eq!(store.asked.lock().len(), 3);
    let (ufs, store) =
        ufs(settings(), [Step::Error(slow_down), Step::Error(slow_down), Step::Error(slow_down)]);
    let error = ufs.read(wanted()).await.err().unwrap();
    assert_eq!(error.raw_answer().unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(store.asked.lock().len(), 3);
}

#[tokio::test]
async fn all_reads_share_one_retry_budget() {
    let retries =
        UfsRetriesSettings { budget_max: 1, budget_per_second: 0.0, ..settings().retries };
    let (ufs, store) =
        ufs(UfsSettings { retries, ..settings() }, (0..3).map(|_| Step::Error(slow_down)));
    assert!(ufs.read(wanted()).await.is_err());
    assert_eq!(store.asked.lock().len(), 2);
    assert!(ufs.read(wanted()).await.is_err());
    assert_eq!(store.asked.lock().len(), 3);
}

#[tokio::test]
async fn an_answer_that_is_final_is_not_asked_for_again() {
    let (ufs, store) = ufs(settings(), [Step::Error(|| s3_error!(NoSuchKey))]);
    assert_eq!(
        ufs.read(wanted()).await.err().unwrap().raw_answer().unwrap().status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(store.asked.lock().len(), 1);
}

#[tokio::test]
async fn another_version_is_an_error_and_not_a_body() {
    let (ufs, _) = ufs(settings(), [Step::Bytes("0123")]);
    let other = ReadObject { if_match: Some("\"b\"".into()), ..wanted() };
    assert!(ufs.read(other).await.err().unwrap().version_changed());
}

#[tokio::test]
async fn silence_before_the_first_byte_ends_at_the_deadline() {
    let retries = UfsRetriesSettings { attempts_max: 1, ..Default::default() };
    let (ufs, _) = ufs(UfsSettings { retries, ..settings() }, [Step::Silence]);
    assert!(matches!(ufs.read(wanted()).await, Err(UfsError::Unreachable { .. })));
}

#[tokio::test]
async fn a_read_holds_its_place_until_its_body_has_ended() {
    let limits = UfsLimitsSettings { requests_in_flight_max: 1, ..settings().limits };
    let (ufs, _) = ufs(UfsSettings { limits, ..settings() }, (0..2).map(|_| Step::Bytes("0123")));
    let mut first = ufs.read(wanted()).await.unwrap();
    assert!(matches!(
        ufs.read(wanted()).await,
        Err(UfsError::Throttled { limit: 1, waited_ms: 20, .. })
    ));
    while first.body.next().await.is_some() {}
    assert_eq!(text(ufs.read(wanted()).await.unwrap()).await, "0123");
}

#[tokio::test]
async fn a_store_that_is_down_is_not_asked_until_a_probe_succeeds() {
    // Longer than the pause before the third try, which meets the open circuit.
    let open_for = TimePeriod::from_millis(2000);
    let circuit = UfsCircuitSettings { failures_max: 2, open_for, open_for_max: open_for };
    let steps =
        [Step::Error(slow_down), Step::Error(slow_down), Step::Bytes("0123"), Step::Bytes("0123")];
    let (ufs, store) = ufs(UfsSettings { circuit, ..settings() }, steps);
    assert!(matches!(ufs.read(wanted()).await, Err(UfsError::Unreachable { .. })));
    assert_eq!((store.asked.lock().len(), ufs.circuit_state()), (2, CircuitState::Open));
    let text_when_back = async {
        loop {
            match ufs.read(wanted()).await {
                Ok(stream) => break text(stream).await,
                Err(UfsError::Unreachable { .. }) => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert_eq!(text_when_back.await, "0123");
    assert_eq!((store.asked.lock().len(), ufs.circuit_state()), (3, CircuitState::Closed));
}

#[tokio::test]
async fn a_probe_that_is_dropped_leaves_room_for_another() {
    let at_once = TimePeriod::from_millis(0);
    let circuit = UfsCircuitSettings { failures_max: 1, open_for: at_once, open_for_max: at_once };
    let retries = UfsRetriesSettings { attempts_max: 1, ..Default::default() };
    let steps = [Step::Error(slow_down), Step::Silence, Step::Bytes("0123")];
    let (ufs, store) = ufs(UfsSettings { circuit, retries, ..settings() }, steps);
    assert!(ufs.read(wanted()).await.is_err());
    {
        let probe = ufs.read(wanted());
        tokio::pin!(probe);
        assert!(futures::poll!(&mut probe).is_pending());
        assert_eq!(ufs.circuit_state(), CircuitState::HalfOpen);
    }
    assert_eq!(text(ufs.read(wanted()).await.unwrap()).await, "0123");
    assert_eq!(store.asked.lock().len(), 3);
}

#[tokio::test]
async fn a_read_that_meets_a_write_is_tried_again() {
    let conflict = || s3_error!(OperationAborted, "a write is under way");
    let (ufs, store) = ufs(settings(), [Step::Error(conflict), Step::Bytes("0123")]);
    assert_eq!(text(ufs.read(wanted()).await.unwrap()).await, "0123");
    assert_eq!(store.asked.lock().len(), 2);
}

#[tokio::test]
async fn a_store_that_ignores_ranges_is_remembered() {
    let (ufs, _store) = ufs(settings(), [Step::Bytes("0123"), Step::Bytes("0123456789")]);
    ufs.read(wanted()).await.unwrap();
    let skipped = settings().limits.skip_max.0;
    assert_eq!(ufs.range_start_max(), None);
    assert!(!ufs.reads_ranges_of(skipped + 1), "it has shown nothing yet");
    ufs.read(wanted()).await.unwrap();
    assert_eq!(ufs.range_start_max(), Some(skipped));
    assert!(ufs.reads_ranges_of(skipped) && !ufs.reads_ranges_of(skipped + 1));
}

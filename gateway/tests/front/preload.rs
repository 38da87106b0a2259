//! Preload jobs asked of the S3 endpoint: who is heard, what is passed on, what never is.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use verbs3_gateway::{PreloadAnswer, PreloadJobs, PreloadQuestion};

use crate::gateway_fixture::{Answer, GatewayFixture};
use crate::signing::{Request, sha256};

/// Coordinators that remember what they were asked.
#[derive(Clone, Default)]
struct AskedJobs(Arc<Mutex<Vec<PreloadQuestion>>>);

#[async_trait]
impl PreloadJobs for AskedJobs {
    async fn ask_coordinators(&self, question: PreloadQuestion) -> PreloadAnswer {
        self.0.lock().push(question);
        PreloadAnswer { status: http::StatusCode::CREATED, body: "{\"id\":\"a\"}".into() }
    }
}

const JOB: &str = "{\"id\":\"a\",\"prefixes\":[\"s3://data/a/\"]}";

fn post(body: &str) -> Request {
    Request::new("POST", "/v1/preload")
        .header("content-length", &body.len().to_string())
        .payload(&sha256(body.as_bytes()))
}

async fn start_fixture_with(jobs: Option<AskedJobs>) -> GatewayFixture {
    let jobs = jobs.map(|jobs| Arc::new(jobs) as Arc<dyn PreloadJobs>);
    GatewayFixture::start_with(|setup| {
        setup.preload = jobs;
        setup.settings.domains = vec!["s3.test".to_owned()];
    })
    .await
}

fn reason(answer: &Answer) -> String {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    body["reason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_signed_job_reaches_the_coordinators_in_its_senders_name() {
    let jobs = AskedJobs::default();
    let fixture = start_fixture_with(Some(jobs.clone())).await;
    let answer = fixture.send(&post(JOB), JOB.as_bytes()).await;
    assert_eq!((answer.status, answer.text().as_str()), (201, "{\"id\":\"a\"}"));
    assert_eq!(answer.headers["content-type"], "application/json");
    let seen = Request::new("GET", "/v1/preload/a").query("news=3&wait_ms=10");
    assert_eq!(fixture.send(&seen, b"").await.status, 201);
    let asked = std::mem::take(&mut *jobs.0.lock());
    let questions: Vec<(&str, &str)> =
        asked.iter().map(|asked| (asked.method.as_str(), asked.path_and_query.as_str())).collect();
    let expected = [
        ("POST", "/v1/preload?owner=owner"),
        ("GET", "/v1/preload/a?owner=owner&news=3&wait_ms=10"),
    ];
    assert_eq!(questions, expected);
    assert!(asked[1].body.is_empty());
    let passed: serde_json::Value = serde_json::from_slice(&asked[0].body).unwrap();
    let job: serde_json::Value = serde_json::from_str(JOB).unwrap();
    assert_eq!((&passed["job"], &passed["tenant"]), (&job, &"owner".into()));
    // What the gateway judged goes with it: coordinators have mounts of their own.
    let judged = passed["judged_mounts"].as_array().unwrap();
    assert_eq!(judged.len(), 1);
    assert_eq!((&judged[0]["mount"], &judged[0]["bucket"]), (&"data".into(), &"data".into()));
}

#[tokio::test]
async fn nobody_is_heard_without_a_signature_over_the_whole_job() {
    let jobs = AskedJobs::default();
    let fixture = start_fixture_with(Some(jobs.clone())).await;
    let host = fixture.host();
    let unsigned = format!(
        "POST /v1/preload HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\nconnection: \
        close\r\n\r\n",
        JOB.len()
    );
    let answer = fixture.exchange(&unsigned, JOB.as_bytes()).await;
    assert_eq!(answer.error(), (403, "AccessDenied".to_owned()));
    let wrong = post(JOB).by("AKNOBODY", "no-secret");
    assert_eq!(fixture.send(&wrong, JOB.as_bytes()).await.status, 403);
    let mut forged = post(JOB);
    forged.secret_key.push('x');
    let answer = fixture.send(&forged, JOB.as_bytes()).await;
    assert_eq!(answer.error(), (403, "SignatureDoesNotMatch".to_owned()));
    // Signed, and replaced on the way by another job of the same length.
    let other = JOB.replace("/a/", "/b/");
    let answer = fixture.send(&post(JOB), other.as_bytes()).await;
    assert!((400..500).contains(&answer.status), "{} {}", answer.status, answer.text());
    let open = post(JOB).payload("UNSIGNED-PAYLOAD");
    let answer = fixture.send(&open, JOB.as_bytes()).await;
    assert!(answer.status == 403 && reason(&answer).contains("does not cover"), "{answer:?}");
    // A URL's signature covers no body, whatever hash comes with it.
    let hash = format!("x-amz-content-sha256: {}\r\n", sha256(JOB.as_bytes()));
    for besides in ["", &hash] {
        let headers = format!("\r\ncontent-length: {}\r\n{besides}", JOB.len());
        let presigned =
            Request::new("POST", "/v1/preload").presigned(&host, 60).replacen("\r\n", &headers, 1);
        let answer = fixture.exchange(&presigned, JOB.as_bytes()).await;
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    assert!(jobs.0.lock().is_empty(), "{:?}", jobs.0.lock());
}

#[tokio::test]
async fn a_key_of_that_path_in_a_bucket_is_a_key() {
    let jobs = AskedJobs::default();
    let fixture = start_fixture_with(Some(jobs.clone())).await;
    fixture.put("/data/v1/preload", b"an object").await;
    let by_host = Request::new("GET", "/v1/preload").signed("data.s3.test").0;
    assert_eq!(fixture.exchange(&by_host, b"").await.body, b"an object");
    assert_eq!(fixture.get("/data/v1/preload").await.body, b"an object");
    // `v1` itself is still no bucket.
    for path in ["/v1/preloads", "/v1/x", "/v1"] {
        assert_eq!(
            fixture.get(path).await.error(),
            (400, "InvalidBucketName".to_owned()),
            "{path}"
        );
    }
    assert!(jobs.0.lock().is_empty());
}

#[tokio::test]
async fn without_coordinators_or_beyond_bounds_the_answer_says_why() {
    let fixture = start_fixture_with(None).await;
    let answer = fixture.send(&post(JOB), JOB.as_bytes()).await;
    assert!(answer.status == 501 && reason(&answer).contains("coordinators"), "{answer:?}");
    let fixture = GatewayFixture::start_with(|setup| {
        setup.preload = Some(Arc::new(AskedJobs::default()));
        setup.settings.limits.preloads_in_flight_max = 0;
    })
    .await;
    let answer = fixture.send(&post(JOB), JOB.as_bytes()).await;
    assert!(answer.status == 503 && reason(&answer).contains("too many"), "{answer:?}");
    let fixture = start_fixture_with(Some(AskedJobs::default())).await;
    let long = format!("{{\"prefixes\":[\"s3://data/{}\"]}}", "a".repeat(200_000));
    let answer = fixture.send(&post(&long), long.as_bytes()).await;
    assert!(answer.status == 400 && reason(&answer).contains("more than"), "{answer:?}");
}

//! Traces towards a receiver of OTLP: what of a request is told, to whom the trace goes
//! on, and what a receiver costs that is away. The receiver here decodes with the official schema;
//! a separate process does in `tests/testbed/suite.sh`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpListener;
use verbs3_settings::{ConfigSecret, TimePeriod};
use verbs3_telemetry::{
    TelemetryHandle, TelemetryOtlpSettings, TelemetrySettings, TelemetrySource,
};

use crate::gateway_fixture::{GatewayFixture, until};
use crate::remote;
use crate::signing::Request;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;

/// What came in, and how it is answered.
#[derive(Default)]
struct Taken {
    spans: Vec<Span>,
    /// What the processes say of themselves.
    resources: Vec<KeyValue>,
    authorization: Vec<String>,
    /// Answered by 503 first.
    refuse: u32,
}

struct Receiver {
    address: SocketAddr,
    taken: Arc<Mutex<Taken>>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let taken = Arc::<Mutex<Taken>>::default();
        let shared = taken.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let taken = shared.clone();
                let service = service_fn(move |request| take(taken.clone(), request));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service),
                );
            }
        });
        Self { address, taken }
    }

    fn spans(&self) -> Vec<Span> {
        self.taken.lock().spans.clone()
    }
}

async fn take(
    taken: Arc<Mutex<Taken>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    assert_eq!(parts.headers["content-type"], "application/x-protobuf");
    let mut taken = taken.lock();
    let mut answer = hyper::Response::new(Full::default());
    if taken.refuse > 0 {
        taken.refuse -= 1;
        *answer.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
        return Ok(answer);
    }
    if let Some(value) = parts.headers.get("authorization") {
        taken.authorization.push(value.to_str().unwrap().to_owned());
    }
    match parts.uri.path() {
        "/v1/traces" => {
            let message = ExportTraceServiceRequest::decode(body).unwrap();
            for resource in message.resource_spans {
                taken.resources.extend(resource.resource.unwrap().attributes);
                let scopes = resource.scope_spans.into_iter();
                taken.spans.extend(scopes.flat_map(|scope| scope.spans));
            }
        }
        path => panic!("nobody exports to {path}"),
    }
    Ok(answer)
}

fn settings(address: SocketAddr) -> TelemetryOtlpSettings {
    TelemetryOtlpSettings {
        endpoint: Some(format!("http://{address}")),
        headers: vec![ConfigSecret::new("authorization: Bearer of good news")],
        sample_ratio: 0.0,
        interval: TimePeriod::from_millis(100),
        timeout: TimePeriod::from_seconds(5),
        queue_max: 64,
        batch_max: 16,
        spans_max: 8,
        ..TelemetryOtlpSettings::default()
    }
}

fn traced(fixture: &GatewayFixture, otlp: TelemetryOtlpSettings) -> TelemetryHandle {
    let source = TelemetrySource { service: "verbs3-test", instance: "one" };
    let telemetry =
        TelemetryHandle::start(&TelemetrySettings { otlp }, source, &fixture.registry).unwrap();
    let telemetry = telemetry.expect("there is an endpoint");
    fixture.gateway.trace_with(telemetry.request_tracer());
    telemetry
}

fn get(path: &str) -> Request {
    Request::new("GET", path).header("traceparent", PARENT).header("tracestate", "vendor=1")
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
    let found: Option<&KeyValue> = span.attributes.iter().find(|attribute| attribute.key == name);
    found?.value.as_ref()?.value.as_ref()
}

fn text(span: &Span, name: &str) -> String {
    match attribute(span, name) {
        Some(Value::StringValue(text)) => text.clone(),
        other => panic!("{name} of {span:?} is {other:?}"),
    }
}

/// An unset status is one that nobody has set.
fn has_status(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() != StatusCode::Unset)
}

#[tokio::test]
async fn a_clients_trace_contains_the_request_and_the_stores_part() {
    let (front, behind) = remote::start_fixtures().await;
    let receiver = Receiver::start().await;
    let (ours, theirs) =
        (traced(&front, settings(receiver.address)), traced(&behind, settings(receiver.address)));
    behind.put("/data/x", b"hello").await;
    let answer = front.send(&get("/far/x"), b"").await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    let missing = front.send(&get("/far/none"), b"").await;
    assert_eq!(missing.status, 404);
    // Neither sampled nor a part of anything.
    front.get("/far/x").await;
    ours.shutdown().await;
    theirs.shutdown().await;

    let taken = receiver.taken.lock();
    assert!(!taken.authorization.is_empty());
    assert!(taken.authorization.iter().all(|header| header == "Bearer of good news"));
    let named = |name: &str| taken.resources.iter().any(|attribute| attribute.key == name);
    assert!(["service.name", "service.instance.id", "service.version"].into_iter().all(named));
    drop(taken);
    let spans = receiver.spans();
    assert!(
        spans
            .iter()
            .all(|span| span.trace_id == TRACE.to_be_bytes() && span.trace_state == "vendor=1")
    );
    let of = |key: &str| -> Vec<&Span> {
        spans
            .iter()
            .filter(|span| matches!(attribute(span, "aws.s3.key"), Some(Value::StringValue(found)) if found == key))
            .collect()
    };
    let both = of("x");
    let root = both
        .iter()
        .find(|span| span.parent_span_id == 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes())
        .unwrap();
    assert_eq!((root.name.as_str(), root.kind), ("GetObject", 2));
    assert_eq!(
        (text(root, "aws.s3.bucket"), text(root, "rpc.method")),
        ("far".to_owned(), "GetObject".to_owned())
    );
    assert_eq!(text(root, "verbs3.request_id"), answer.headers["x-amz-request-id"]);
    assert_eq!(attribute(root, "http.response.status_code"), Some(&Value::IntValue(200)));
    assert_eq!(attribute(root, "http.response.body.size"), Some(&Value::IntValue(5)));
    assert!(!has_status(root) && root.start_time_unix_nano <= root.end_time_unix_nano);
    let call = spans.iter().find(|span| span.parent_span_id == root.span_id).unwrap();
    assert_eq!((call.kind, text(call, "verbs3.ufs")), (3, "remote".to_owned()));
    let far = both
        .iter()
        .find(|span| span.parent_span_id == call.span_id)
        .expect("the store's span hangs on the call");
    assert_eq!(text(far, "aws.s3.bucket"), "data");
    assert_eq!(both.len(), 2, "{both:#?}");

    let missing = of("none").into_iter().find(|span| text(span, "aws.s3.bucket") == "far").unwrap();
    assert_eq!(text(missing, "error.type"), "NoSuchKey");
    assert!(!has_status(missing), "a client's mistake is no failure of the server");
    let failed = spans.iter().find(|span| span.parent_span_id == missing.span_id).unwrap();
    assert_eq!(failed.status.as_ref().unwrap().message, "NoSuchKey");
}

#[tokio::test]
async fn a_receiver_that_refuses_for_a_while_is_told_later() {
    let fixture = GatewayFixture::start().await;
    let receiver = Receiver::start().await;
    receiver.taken.lock().refuse = 2;
    let telemetry = traced(&fixture, settings(receiver.address));
    fixture.send(&get("/data/none"), b"").await;
    until(|| !receiver.spans().is_empty()).await;
    until(|| fixture.metrics().sum("verbs3_telemetry_exports_total", &[]) > 2.5).await;
    assert!(fixture.metrics().sum("verbs3_telemetry_spans_dropped_total", &[]) < 0.5);
    until(|| fixture.metrics().sum("verbs3_telemetry_spans_exported_total", &[]) > 0.5).await;
    telemetry.shutdown().await;
}

/// What the queue has no place for is counted.
#[tokio::test]
async fn a_silent_receiver_costs_a_bounded_queue_and_a_bounded_end() {
    // Takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let fixture = GatewayFixture::start().await;
    let timeout = Duration::from_secs(60);
    let (queue_max, batch_max) = (4, 2);
    let telemetry = traced(
        &fixture,
        TelemetryOtlpSettings {
            flush_max: TimePeriod::from_millis(300),
            timeout: TimePeriod(timeout),
            queue_max,
            batch_max,
            ..settings(address)
        },
    );
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(fixture.send(&get("/data/none"), b"").await.status, 404);
    }
    assert!(began.elapsed() < timeout, "requests waited for the receiver: {:?}", began.elapsed());
    until(|| fixture.metrics().sum("verbs3_telemetry_spans_dropped_total", &[]) > 12.5).await;
    assert!(fixture.metrics().sum("verbs3_telemetry_queue_requests", &[]) <= 4.0);
    let began = Instant::now();
    telemetry.shutdown().await;
    assert!(began.elapsed() < timeout, "the end waited for the receiver: {:?}", began.elapsed());
    // Each request has its own span and one of its call on the store.
    assert_eq!(fixture.metrics().sum("verbs3_telemetry_spans_dropped_total", &[]) as u64, 40);
    assert_eq!(fixture.metrics().sum("verbs3_telemetry_queue_requests", &[]) as i64, 0);
}

//! HTTP/2 in the clear: what HTTP/1 does for a server by itself has to be done here.

use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::gateway_fixture::{GatewayFixture, until};
use crate::signing::Request;
use verbs3_settings::{ByteSize, TimePeriod};

/// One connection; `window` is what each answer may send before it is read.
async fn connect(fixture: &GatewayFixture, window: u32) -> SendRequest<Empty<Bytes>> {
    let socket = TcpStream::connect(fixture.address).await.unwrap();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(
    fixture: &GatewayFixture,
    sender: &mut SendRequest<Empty<Bytes>>,
    request: Request,
) -> Response<Incoming> {
    let (head, _) = request.signed(&fixture.host());
    let mut asked = http::Request::builder().method(request.method).uri(format!(
        "http://{}{}?{}",
        fixture.host(),
        request.path,
        request.query
    ));
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
        if !matches!(name, "host" | "connection" | "content-length") {
            asked = asked.header(name, value.trim());
        }
    }
    sender.send_request(asked.body(Empty::new()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn answers_that_have_no_body_have_none() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let mut sender = connect(&fixture, 1 << 20).await;
    let etag = "\"5d41402abc4b2a76b9719d911017c592\"";
    for (request, status, length) in [
        (Request::new("HEAD", "/data/absent"), StatusCode::NOT_FOUND, None),
        (Request::new("HEAD", "/unknown/k"), StatusCode::NOT_FOUND, None),
        (Request::new("HEAD", "/data/x").by("AKNOBODY", "x"), StatusCode::FORBIDDEN, None),
        (Request::new("HEAD", "/data/x"), StatusCode::OK, Some("5")),
        (
            Request::new("GET", "/data/x").header("if-none-match", etag),
            StatusCode::NOT_MODIFIED,
            None,
        ),
        (Request::new("DELETE", "/data/x"), StatusCode::NO_CONTENT, None),
    ] {
        let answer = ask(&fixture, &mut sender, request).await;
        assert_eq!(answer.status(), status);
        let text = answer.headers().get("content-length").map(|value| value.to_str().unwrap());
        assert!(text == length || (length.is_none() && text == Some("0")), "{status}: {text:?}");
        assert!(answer.into_body().collect().await.unwrap().to_bytes().is_empty(), "{status}");
    }
}

#[tokio::test]
async fn a_host_besides_the_authority_is_refused() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let mut sender = connect(&fixture, 1 << 20).await;
    // Signed for one host and sent to another: which of the two the signature is held against must
    // not matter.
    for (host, status) in [
        (fixture.host(), StatusCode::OK),
        ("data.s3.example.com".to_owned(), StatusCode::BAD_REQUEST),
    ] {
        let (head, _) = Request::new("GET", "/data/x").signed(&host);
        let mut asked = http::Request::builder().uri(format!("http://{}/data/x", fixture.host()));
        for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
            if name != "connection" {
                asked = asked.header(name, value.trim());
            }
        }
        let answer = sender.send_request(asked.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), status, "{host}");
    }
}

#[tokio::test]
async fn a_client_that_grants_no_window_is_cut_and_holds_nothing() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.timeouts.write_stall = TimePeriod(Duration::from_secs(3))
    })
    .await;
    fixture.put("/data/x", &vec![7; 4 << 20]).await;
    let mut sender = connect(&fixture, 1000).await;
    let unread = ask(&fixture, &mut sender, Request::new("GET", "/data/x")).await;
    assert_eq!(unread.status(), StatusCode::OK);
    assert!(fixture.gateway_metric("requests_in_flight") > 0.5);
    until(|| fixture.gateway_metric("connections_stalled_total") > 0.5).await;
    until(|| {
        fixture.gateway_metric("requests_in_flight") < 0.5
            && fixture.gateway_metric("connections") < 0.5
    })
    .await;
    assert!(unread.into_body().collect().await.is_err());
}

#[tokio::test]
async fn answers_in_memory_hold_no_admission_while_their_client_waits() {
    let fixture =
        GatewayFixture::start_with(|setup| setup.settings.limits.requests_in_flight_max = 1).await;
    let mut sender = connect(&fixture, 0).await;
    let unread = ask(&fixture, &mut sender, Request::new("GET", "/data/absent")).await;
    assert_eq!(unread.status(), StatusCode::NOT_FOUND);
    assert_eq!(fixture.put("/data/x", b"hello").await.status, 200);
    drop(unread);
}

/// The body is over for hyper once its last frame is in the queue, which a client that grants no
/// window never empties.
#[tokio::test]
async fn an_answer_is_under_way_until_its_queue_is_empty() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", &vec![7; 100_000]).await;
    let mut sender = connect(&fixture, 1000).await;
    let unread = ask(&fixture, &mut sender, Request::new("GET", "/data/x")).await;
    until(|| fixture.gateway_metric("http2_queued_bytes") > 90_000.0).await;
    assert!(fixture.gateway_metric("requests_in_flight") > 0.5);
    assert_eq!(unread.into_body().collect().await.unwrap().to_bytes().len(), 100_000);
    until(|| {
        fixture.gateway_metric("requests_in_flight") < 0.5
            && fixture.gateway_metric("http2_queued_bytes") < 0.5
    })
    .await;
}

#[tokio::test]
async fn small_answers_that_nobody_takes_are_bounded() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.limits.requests_in_flight_max = 2;
        setup.settings.limits.http2_answers_max = ByteSize(1024);
    })
    .await;
    let mut sender = connect(&fixture, 0).await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(ask(&fixture, &mut sender, Request::new("GET", "/data/absent")).await);
    }
    assert!(unread.iter().all(|answer| answer.status() == StatusCode::NOT_FOUND));
    assert!(
        fixture.gateway_metric("http2_answer_bytes") > 1023.0
            && fixture.gateway_metric("requests_in_flight") > 1.5
    );
    assert_eq!(fixture.put("/data/x", b"hello").await.error(), (503, "SlowDown".to_owned()));
    drop((unread, sender));
    until(|| {
        fixture.gateway_metric("requests_in_flight") < 0.5
            && fixture.gateway_metric("http2_answer_bytes") < 0.5
    })
    .await;
    assert_eq!(fixture.put("/data/x", b"hello").await.status, 200);
}

//! Listeners: TLS, virtual hosts, bounds, the admin endpoints, and the end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3s::dto::{GetObjectAclInput, GetObjectAclOutput, ListObjectsV2Input, ListObjectsV2Output};
use s3s::{S3, S3Request, S3Response, S3Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use verbs3_admin::{AdminLimits, ReadinessCheck};
use verbs3_gateway::TlsFiles;
use verbs3_ufs::{Ufs, UfsSettings};

use crate::gateway_fixture::{Answer, GatewayFixture, mount, until};
use crate::signing::Request;
use verbs3_settings::TimePeriod;

#[tokio::test]
async fn every_answer_carries_an_id_of_its_own() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let ids: Vec<String> = [
        fixture.get("/data/x").await,
        fixture.get("/data/absent").await,
        fixture.get("/BAD").await,
    ]
    .iter()
    .map(|answer| answer.headers["x-amz-request-id"].clone())
    .collect();
    assert!(ids.iter().all(|id| id.len() == 16) && ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
}

#[tokio::test]
async fn a_bucket_may_stand_in_the_host_name() {
    let fixture =
        GatewayFixture::start_with(|setup| setup.settings.domains = vec!["s3.test".to_owned()])
            .await;
    fixture.put("/data/x", b"hello").await;
    for (host, path) in
        [("data.s3.test:9000", "/x"), ("s3.test", "/data/x"), ("localhost", "/data/x")]
    {
        let (head, _) = Request::new("GET", path).signed(host);
        let answer = fixture.exchange(&head, b"").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"), "{host}{path}");
    }
}

#[tokio::test]
async fn tls_is_spoken_where_it_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let fixture = GatewayFixture::start_with(|setup| setup.tls = Some(files)).await;

    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpStream::connect(fixture.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
    let (head, _) =
        Request::new("PUT", "/data/x").header("content-length", "5").signed("localhost");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    assert_eq!(Answer::read(stream).await.status, 200);

    let mut plain = TcpStream::connect(fixture.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut plain, &mut rest).await;
    let text = fixture.metrics_text();
    assert!(text.contains("verbs3_gateway_tls_errors_total 1"), "{text}");
}

#[tokio::test]
async fn beyond_the_bound_requests_are_told_to_slow_down() {
    let fixture =
        GatewayFixture::start_with(|setup| setup.settings.limits.requests_in_flight_max = 1).await;
    let (head, _) =
        Request::new("PUT", "/data/x").header("content-length", "5").signed(&fixture.host());
    let mut slow = TcpStream::connect(fixture.address).await.unwrap();
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(b"he").await.unwrap();
    let refused = loop {
        let answer = fixture.get("/data/x").await;
        if answer.status == 503 {
            break answer;
        }
    };
    assert_eq!(refused.error(), (503, "SlowDown".to_owned()));
    assert_eq!(refused.headers["retry-after"], "1");
    slow.write_all(b"llo").await.unwrap();
    assert_eq!(Answer::read(slow).await.status, 200);
}

/// Found by random faults (SEED=1795305140851605695): a store refused a PUT at once, and its writer
/// saw a broken connection.
#[tokio::test]
async fn a_client_that_sends_before_it_reads_sees_an_early_refusal() {
    let fixture = GatewayFixture::start().await;
    for _ in 0..10 {
        let mut socket = TcpStream::connect(fixture.address).await.unwrap();
        let (pieces, piece) = (64, vec![7; 512 << 10]);
        let length = pieces * piece.len();
        let head =
            format!("PUT /data/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..pieces {
            socket.write_all(&piece).await.expect("what is sent after the answer is taken");
        }
        assert_eq!(Answer::read(socket).await.status, 403);
    }
}

/// Reads one answer without a body from a connection that stays open.
async fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let read = socket.read_buf(&mut head).await.unwrap();
        assert!(read > 0, "ended after {:?}", String::from_utf8_lossy(&head));
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Found by random faults (SEED=14861602045881865161): hyper ends a connection whose last body it
/// could not read to the end at once. A client that was not told sends its next request on it.
#[tokio::test]
async fn an_answer_before_the_end_of_its_request_ends_the_connection() {
    let fixture = GatewayFixture::start().await;
    for address in [fixture.address, fixture.on_threads] {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = "PUT /data/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhe";
        socket.write_all(head.as_bytes()).await.unwrap();
        let answer = Answer::read(socket).await;
        assert_eq!(answer.status, 403);
        assert_eq!(answer.headers["connection"], "close");
    }
}

#[tokio::test]
async fn a_request_that_was_read_to_its_end_keeps_the_connection() {
    let fixture = GatewayFixture::start().await;
    for address in [fixture.address, fixture.on_threads] {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let chunks = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
        let (length, framed) =
            (chunks.len(), format!("{:x}\r\n{chunks}\r\n0\r\n\r\n", chunks.len()));
        let plain = Request::new("PUT", "/data/x");
        let chunked = Request::new("PUT", "/data/x")
            .payload("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
            .header("content-encoding", "aws-chunked")
            .header("x-amz-decoded-content-length", "5")
            .header("x-amz-trailer", "x-amz-checksum-crc32");
        for (request, framing, body) in [
            (&plain, "content-length: 5", "hello"),
            (&chunked, &format!("content-length: {length}"), chunks),
            (&chunked, "transfer-encoding: chunked", &framed),
        ] {
            let (head, _) = request.signed(&fixture.host());
            let head = head.replace("connection: close", framing);
            // The rest comes later, so that the request is answered after its last byte.
            let (first, rest) = body.split_at(body.len() - 1);
            socket.write_all(head.as_bytes()).await.unwrap();
            socket.write_all(first.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            socket.write_all(rest.as_bytes()).await.unwrap();
            let answer = read_head(&mut socket).await;
            assert!(answer.starts_with("http/1.1 200"), "{framing}: {answer}");
            assert!(!answer.contains("connection: close"), "{framing}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_no_head_is_cut() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.timeouts.header = TimePeriod(Duration::from_millis(200))
    })
    .await;
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    socket.write_all(b"GET / HT").await.unwrap();
    let mut rest = Vec::new();
    let read = socket.read_to_end(&mut rest);
    let _ =
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("the connection is cut");
}

#[tokio::test]
async fn a_shutdown_lets_requests_under_way_end() {
    let fixture = GatewayFixture::start().await;
    let check = ReadinessCheck::new("tier", || Err("no worker".to_owned()));
    let admin_address = fixture.serve_admin(AdminLimits::default(), vec![check]).await;
    let ask = async |path: &str| {
        let mut socket = TcpStream::connect(admin_address).await.unwrap();
        socket
            .write_all(
                format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes(),
            )
            .await
            .unwrap();
        Answer::read(socket).await
    };
    assert_eq!(ask("/healthz").await.status, 200);
    let ready = ask("/readyz").await;
    assert_eq!((ready.status, ready.text().as_str()), (503, "tier: no worker\n"));
    assert!(ask("/metrics").await.text().contains("verbs3_gateway_requests_in_flight 0"));

    let (head, _) =
        Request::new("PUT", "/data/x").header("content-length", "5").signed(&fixture.host());
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(b"he").await.unwrap();
    while !ask("/metrics").await.text().contains("verbs3_gateway_requests_in_flight 1") {}
    let shutdown = fixture.gateway.shutdown(Duration::from_secs(20));
    let ending = async {
        while TcpStream::connect(fixture.address).await.is_ok() {}
        assert!(ask("/readyz").await.text().contains("shutdown"));
        socket.write_all(b"llo").await.unwrap();
        Answer::read(socket).await
    };
    let ((), answer) = tokio::join!(shutdown, ending);
    assert_eq!(answer.status, 200);
    assert!(fixture.visible("data", "x").await);
}

#[tokio::test]
async fn a_gateway_about_to_stop_serves_all_and_ends_each_connection() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.timeouts.farewell = TimePeriod(Duration::from_secs(60));
    })
    .await;
    let (head, _) = Request::new("GET", "/").signed(&fixture.host());
    let head = head.replace("connection: close\r\n", "");
    let ask = async |socket: &mut TcpStream| {
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"</ListAllMyBucketsResult>") {
            assert!(socket.read_buf(&mut answer).await.unwrap() > 0, "the connection has ended");
        }
        String::from_utf8(answer).unwrap().to_lowercase()
    };
    let idle = TcpStream::connect(fixture.address).await.unwrap();
    let mut kept = TcpStream::connect(fixture.address).await.unwrap();
    assert!(!ask(&mut kept).await.contains("connection: close"));
    let leaving = async {
        // It has been idle, and is not ended under the request.
        let mut answer = ask(&mut kept).await;
        while !answer.contains("connection: close") {
            answer = ask(&mut kept).await;
        }
        assert_eq!(kept.read(&mut [0]).await.unwrap(), 0);
        let mut late = TcpStream::connect(fixture.address).await.unwrap();
        assert!(ask(&mut late).await.contains("connection: close"));
        drop(idle);
    };
    // Over once nobody is connected, long before its time.
    let shutdown = fixture.gateway.shutdown(Duration::from_secs(120));
    tokio::time::timeout(Duration::from_secs(50), async { tokio::join!(shutdown, leaving) })
        .await
        .expect("the farewell ends");
    assert!(TcpStream::connect(fixture.address).await.is_err());
}

/// A store that never answers.
struct MuteStore;

#[async_trait]
impl S3 for MuteStore {
    async fn get_object_acl(
        &self,
        _: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        std::future::pending().await
    }

    async fn list_objects_v2(
        &self,
        _: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        std::future::pending().await
    }
}

async fn start_silent() -> GatewayFixture {
    GatewayFixture::start_with(|setup| {
        let ufs = Ufs::new(Arc::new(MuteStore), UfsSettings::with_name("silent"));
        setup.mounts = vec![mount("silent", ufs, "silent", "")];
    })
    .await
}

fn has_metric(fixture: &GatewayFixture, line: &str) -> bool {
    let text = fixture.metrics_text();
    text.lines().any(|shown| shown == line)
}

/// One is answered by the connection's thread, if it has one, and one by the shared runtime.
#[tokio::test]
async fn a_client_that_hangs_up_early_leaves_no_request_in_flight() {
    let fixture = start_silent().await;
    for (operation, path, query) in
        [("GetObjectAcl", "/silent/k", "acl="), ("ListObjectsV2", "/silent", "list-type=2")]
    {
        for (count, address) in [(1, fixture.address), (2, fixture.on_threads)] {
            let (head, _) = Request::new("GET", path).query(query).signed(&fixture.host());
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(head.as_bytes()).await.unwrap();
            until(|| has_metric(&fixture, "verbs3_gateway_requests_in_flight 1")).await;
            drop(socket);
            until(|| has_metric(&fixture, "verbs3_gateway_requests_in_flight 0")).await;
            let counted = format!("{{op=\"{operation}\",status=\"none\"}} {count}");
            let counted = format!("verbs3_gateway_requests_total{counted}");
            until(|| has_metric(&fixture, &counted)).await;
        }
    }
}

#[tokio::test]
async fn a_shutdown_cuts_what_does_not_end_and_waits_for_its_end() {
    for on_threads in [false, true] {
        let fixture = start_silent().await;
        let (head, _) = Request::new("GET", "/silent").query("list-type=2").signed(&fixture.host());
        let address = if on_threads { fixture.on_threads } else { fixture.address };
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        until(|| has_metric(&fixture, "verbs3_gateway_requests_in_flight 1")).await;
        fixture.gateway.shutdown(Duration::from_millis(10)).await;
        assert!(has_metric(&fixture, "verbs3_gateway_requests_in_flight 0"), "{on_threads}");
    }
}

//! Callers of every kind, over real connections.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;

use prometheus::Registry;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use verbs3_certificates::TlsFiles;
use verbs3_settings::{ByteSize, TimePeriod};

use super::*;

struct WebhookFixture {
    address: SocketAddr,
    metrics: Arc<WebhookMetrics>,
    connector: TlsConnector,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

fn write_certificate(folder: &Path) -> (TlsFiles, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = TlsFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let certificate = CertificateDer::from_pem_file(&files.certificate).unwrap();
    (files, certificate)
}

fn settings() -> WebhookSettings {
    WebhookSettings {
        connections_max: 8,
        connections_per_address_max: 8,
        deadline: TimePeriod::from_seconds(60),
        body_deadline: TimePeriod::from_seconds(60),
        review_max: ByteSize(4 << 10),
        reviews_max: 4,
        ..WebhookSettings::default()
    }
}

impl WebhookFixture {
    async fn start(settings: WebhookSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (files, certificate) = write_certificate(folder.path());
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let metrics = Arc::new(WebhookMetrics::new(&Registry::new()).unwrap());
        let stop = CancellationToken::new();
        let server = WebhookServer {
            settings,
            certificates: Arc::new(ListenerCertificates::read(&files, &["http/1.1"]).unwrap()),
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let served = tokio::spawn(server.serve_reviews(socket));
        let connector = TlsConnector::from(Arc::new(config));
        Self { address, metrics, connector, stop, served, _folder: folder }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        self.connector.connect(name, stream).await.unwrap()
    }

    /// Sends bytes, and reads until the other side ends.
    async fn exchange(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        read_all(&mut stream).await
    }

    fn outcome(&self, outcome: ReviewOutcome) -> u64 {
        self.metrics.reviews[outcome].get()
    }
}

async fn read_all(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    // A cut ends it without TLS's farewell.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

fn post(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST /inject HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn review(object: Value) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5", "operation": "CREATE", "object": object,
            "resource": { "group": "", "version": "v1", "resource": "pods" },
        },
    })
    .to_string()
}

#[tokio::test]
async fn a_review_is_answered_and_the_connection_ends() {
    let running = WebhookFixture::start(settings()).await;
    let pod = json!({ "spec": { "containers": [{ "name": "train" }] } });
    let answer = running.exchange(&post(&review(pod))).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"patchType\":\"JSONPatch\""), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(running.outcome(ReviewOutcome::Patched), 1);
    running.stop.cancel();
    running.served.await.unwrap();
    assert_eq!(running.metrics.connections.get(), 0);
}

#[tokio::test]
async fn what_is_no_review_gets_a_status_and_a_reason() {
    let running = WebhookFixture::start(settings()).await;
    let chunked = b"POST /inject HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n";
    let long = b"POST /inject HTTP/1.1\r\nhost: h\r\ncontent-length: 4097\r\n\r\n";
    for (request, status, reason) in [
        (post("no JSON"), "400", "no AdmissionReview"),
        (post("{}"), "400", "no AdmissionReview"),
        (post("[[[["), "400", "no AdmissionReview"),
        (chunked.to_vec(), "411", "Content-Length"),
        (long.to_vec(), "413", "webhook.review_max"),
        (b"GET /inject HTTP/1.1\r\nhost: h\r\n\r\n".to_vec(), "405", "posted"),
        (b"POST /other HTTP/1.1\r\nhost: h\r\n\r\n".to_vec(), "404", "/inject"),
    ] {
        let answer = running.exchange(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.contains(reason), "{answer}");
    }
    assert_eq!(running.outcome(ReviewOutcome::Malformed), 7);
    let answer = running.exchange(&post(&review(json!(7)))).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_body_that_does_not_come_has_a_deadline() {
    let settings = WebhookSettings { body_deadline: TimePeriod::from_millis(50), ..settings() };
    let running = WebhookFixture::start(settings).await;
    let head = b"POST /inject HTTP/1.1\r\nhost: h\r\ncontent-length: 400\r\n\r\n{";
    let answer = running.exchange(head).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(running.metrics.reviews_in_flight.get(), 0);
}

#[tokio::test]
async fn a_silent_connection_is_cut() {
    let within = |deadline| WebhookSettings { deadline, ..settings() };
    let running = WebhookFixture::start(within(TimePeriod::from_millis(200))).await;
    // Before the handshake, and after it.
    let mut bare = TcpStream::connect(running.address).await.unwrap();
    assert_eq!(bare.read(&mut [0; 1]).await.unwrap_or(0), 0);
    while running.metrics.connections_cut[WebhookConnectionCut::Late].get() < 1 {
        tokio::task::yield_now().await;
    }
    // A handshake may take longer than this on a slow machine.
    let running = WebhookFixture::start(within(TimePeriod::from_seconds(5))).await;
    assert_eq!(running.exchange(b"POST /inject HTT").await, "");
}

#[tokio::test]
async fn one_address_waits_beyond_three_quarters_of_the_bodies() {
    let running = WebhookFixture::start(settings()).await;
    let head = b"POST /inject HTTP/1.1\r\nhost: h\r\ncontent-length: 400\r\n\r\n{";
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut stream = running.connect().await;
        stream.write_all(head).await.unwrap();
        silent.push(stream);
    }
    while running.metrics.reviews_in_flight.get() < 3 {
        tokio::task::yield_now().await;
    }
    let mut waits = running.connect().await;
    waits.write_all(&post(&review(json!({})))).await.unwrap();
    let early = timeout(Duration::from_millis(100), waits.read_u8()).await;
    assert!(early.is_err(), "it is answered before it has a place");
    drop(silent.pop());
    let answer = read_all(&mut waits).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(running.outcome(ReviewOutcome::Busy), 0);
}

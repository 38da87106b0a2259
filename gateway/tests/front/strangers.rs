//! Those who have not proven who they are: what they can hold, for how long, and that they keep
//! nobody else out. Raw sockets: no client would do this.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use verbs3_admin::AdminLimits;

use crate::gateway_fixture::{Answer, GatewayFixture, until};
use crate::signing::Request;
use verbs3_settings::TimePeriod;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame (RFC 9113, section 6.5).
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// HEADERS of stream 1 without END_HEADERS: CONTINUATION has to follow, and never does.
const UNENDED_HEADERS: &[u8] = &[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82];
/// PING.
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// Returns when the other side has closed.
async fn closed(mut socket: TcpStream) {
    let mut rest = Vec::new();
    let read = socket.read_to_end(&mut rest);
    let _ = timeout(Duration::from_secs(60), read).await.expect("the connection is cut");
}

#[tokio::test]
async fn who_proves_nothing_is_cut_whatever_it_sends() {
    // Silence, half a preface, a preface, pings, headers without an end, half a request, and whole
    // ones that nobody has signed.
    let unsigned = b"GET /data/x HTTP/1.1\r\nhost: x\r\n\r\n".as_slice();
    let openings: [(&[u8], &[u8]); 7] = [
        (b"", b""),
        (&PREFACE[..12], b""),
        (PREFACE, b""),
        (&[PREFACE, SETTINGS].concat(), PING),
        (&[PREFACE, SETTINGS, UNENDED_HEADERS].concat(), b""),
        (b"GET /data/x HT", b""),
        (unsigned, unsigned),
    ];
    // Nothing else ends them in this test's time.
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.timeouts.proof = TimePeriod(Duration::from_millis(800))
    })
    .await;
    for (opening, every) in openings {
        let socket = TcpStream::connect(fixture.address).await.unwrap();
        let (read, mut write) = socket.into_split();
        write.write_all(opening).await.unwrap();
        let renewing = async {
            while write.write_all(every).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            std::future::pending().await
        };
        let ended = async {
            let mut read = read;
            let mut rest = Vec::new();
            let _ = read.read_to_end(&mut rest).await;
        };
        tokio::select! {
            () = renewing => {}
            ended = timeout(Duration::from_secs(30), ended) => ended.expect("the connection is cut"),
        }
    }
    assert!(
        fixture
            .metrics_text()
            .contains("verbs3_gateway_connections_cut_total{reason=\"unproven\"} 7")
    );
    until(|| fixture.metrics_text().contains("verbs3_gateway_connections_unproven 0\n")).await;
}

#[tokio::test]
async fn a_tls_connection_without_requests_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = verbs3_gateway::TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let fixture = GatewayFixture::start_with(|setup| {
        setup.tls = Some(files);
        setup.settings.timeouts.proof = TimePeriod(Duration::from_millis(800));
    })
    .await;
    // No handshake, and one that never ends: a record that is announced and does not come.
    for opening in [b"".as_slice(), &[22, 3, 1, 2, 0]] {
        let mut socket = TcpStream::connect(fixture.address).await.unwrap();
        socket.write_all(opening).await.unwrap();
        closed(socket).await;
    }
    // And one that is complete.
    use tokio_rustls::rustls::{
        ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName,
    };
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config =
        ClientConfig::builder_with_provider(std::sync::Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let socket = TcpStream::connect(fixture.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let mut stream =
        connector.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap();
    let mut rest = Vec::new();
    let _ = timeout(Duration::from_secs(30), stream.read_to_end(&mut rest))
        .await
        .expect("the connection is cut");
    assert!(
        fixture
            .metrics_text()
            .contains("verbs3_gateway_connections_cut_total{reason=\"unproven\"} 3")
    );
}

#[tokio::test]
async fn who_has_signed_a_request_may_stay() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.timeouts.proof = TimePeriod(Duration::from_millis(300))
    })
    .await;
    let (head, _) =
        Request::new("PUT", "/data/x").header("content-length", "5").signed(&fixture.host());
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    // A body that takes longer than a stranger may stay.
    for piece in [b"h", b"e", b"l", b"l", b"o"] {
        tokio::time::sleep(Duration::from_millis(200)).await;
        socket.write_all(piece).await.unwrap();
    }
    assert_eq!(Answer::read(socket).await.status, 200);
    assert!(!fixture.metrics_text().contains("reason=\"unproven\""));
}

#[tokio::test]
async fn strangers_keep_nobody_out() {
    let fixture =
        GatewayFixture::start_with(|setup| setup.settings.limits.connections_max = 8).await;
    assert_eq!(fixture.put("/data/x", b"hello").await.status, 200);
    let mut silent = Vec::new();
    while let Ok(socket) = TcpStream::connect(fixture.address).await {
        silent.push(socket);
        if fixture.metrics_text().contains("verbs3_gateway_connections 8\n") {
            break;
        }
        tokio::task::yield_now().await;
    }
    // As soon as the strangers have been there for a second. A refused connection ends without an
    // answer.
    let began = std::time::Instant::now();
    loop {
        let (head, _) = Request::new("GET", "/data/x").signed(&fixture.host());
        let mut socket = TcpStream::connect(fixture.address).await.unwrap();
        let _ = socket.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        if answer.starts_with(b"HTTP/1.1 200") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "strangers hold every connection");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(
        fixture
            .metrics_text()
            .contains("verbs3_gateway_connections_cut_total{reason=\"displaced\"}")
    );
}

#[tokio::test]
async fn nobody_known_gives_way_to_a_stranger_who_is_refused() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.limits.connections_max = 2;
        setup.settings.limits.unproven_connections_max = 1;
    })
    .await;
    let (closing, _) = Request::new("GET", "/data/none").signed(&fixture.host());
    let staying = closing.replace("connection: close\r\n", "");
    let mut known = TcpStream::connect(fixture.address).await.unwrap();
    known.write_all(staying.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    known.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
    // Idle for so long that it would give way to somebody who is let in.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let _young = TcpStream::connect(fixture.address).await.unwrap();
    closed(TcpStream::connect(fixture.address).await.unwrap()).await;
    known.write_all(closing.as_bytes()).await.unwrap();
    let mut rest = String::new();
    known.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("HTTP/1.1 404"), "the known connection is cut: {rest}");
}

#[tokio::test]
async fn one_address_has_its_share_of_connections() {
    let fixture =
        GatewayFixture::start_with(|setup| setup.settings.limits.connections_per_address_max = 2)
            .await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(TcpStream::connect(fixture.address).await.unwrap());
    }
    until(|| fixture.metrics_text().contains("verbs3_gateway_connections 2\n")).await;
    closed(TcpStream::connect(fixture.address).await.unwrap()).await;
    assert!(fixture.metrics_text().contains("verbs3_gateway_connections_refused_total 1"));
    held.clear();
    until(|| fixture.metrics_text().contains("verbs3_gateway_connections 0\n")).await;
    assert_eq!(fixture.put("/data/x", b"hello").await.status, 200);
}

/// Head of a form, of which nothing follows that anybody has signed.
fn form_head(fixture: &GatewayFixture, length: usize) -> String {
    let host = fixture.host();
    format!(
        "POST /data HTTP/1.1\r\nhost: {host}\r\ncontent-type: multipart/form-data; boundary=X\r\n\
         content-length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn unsigned_forms_hold_no_place_of_known_requests_and_no_memory() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.limits.requests_in_flight_max = 2;
        // A quarter for one address.
        setup.settings.limits.unproven_requests_max = 12;
        setup.settings.timeouts.proof = TimePeriod(Duration::from_secs(5));
    })
    .await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut socket = TcpStream::connect(fixture.address).await.unwrap();
        socket.write_all(form_head(&fixture, 60_000_000).as_bytes()).await.unwrap();
        socket
            .write_all(b"--X\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n")
            .await
            .unwrap();
        slow.push(socket);
    }
    until(|| fixture.metrics_text().contains("verbs3_gateway_requests_unproven 3\n")).await;
    let text = fixture.metrics_text();
    assert!(text.contains("verbs3_gateway_requests_in_flight 0\n"), "{text}");
    assert!(text.contains("verbs3_gateway_form_bytes 0\n"), "{text}");
    // One more stranger is told to come back, or the oldest is, once it is a second old. Who is known
    // is served.
    let (mut oldest, newest) = (slow.remove(0), form_head(&fixture, 100));
    let told = tokio::select! {
        answer = fixture.exchange(&newest, b"") => answer,
        answer = Answer::read(&mut oldest) => answer,
    };
    assert_eq!(told.error(), (503, "SlowDown".to_owned()));
    slow.push(oldest);
    assert_eq!(fixture.put("/data/x", b"hello").await.status, 200);
    for socket in slow {
        closed(socket).await;
    }
    until(|| fixture.metrics_text().contains("verbs3_gateway_requests_unproven 0\n")).await;
}

#[tokio::test]
async fn a_form_whose_signature_is_wrong_is_refused_before_its_file() {
    let fixture = GatewayFixture::start().await;
    let field = |name: &str, value: &str| {
        format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let fields = field("key", "k")
        + &field("signature", "x")
        + &field("awsaccesskeyid", "x")
        + &field("policy", "x");
    let head = "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    socket.write_all(form_head(&fixture, 60_000_000).as_bytes()).await.unwrap();
    socket.write_all((fields + head).as_bytes()).await.unwrap();
    // The answer comes though not a byte of the file has.
    let mut answer = [0; 12];
    timeout(Duration::from_secs(30), socket.read_exact(&mut answer))
        .await
        .expect("an answer")
        .unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 40"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn probes_are_answered_while_strangers_hold_admin_connections() {
    let limits =
        AdminLimits { connections_max: 8, per_address_max: 6, deadline: Duration::from_secs(60) };
    let fixture = GatewayFixture::start().await;
    let address = fixture.serve_admin(limits, Vec::new()).await;
    let mut silent = Vec::new();
    for number in 0..100 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(&b"GET /healthz HT"[..number % 15]).await.unwrap();
        silent.push(socket);
    }
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let answer = Answer::read(socket).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok\n"));
    // Who was there first has given way.
    closed(silent.remove(0)).await;
    let shown = fixture.metrics_text();
    assert!(shown.contains("verbs3_admin_connections_max 8\n"), "{shown}");
    let cut = "verbs3_admin_connections_cut_total{reason=\"displaced\"} ";
    let cut = shown.lines().find_map(|line| line.strip_prefix(cut)).unwrap();
    assert!(cut.parse::<u32>().unwrap() >= 92, "{cut}");
}

#[tokio::test]
async fn an_admin_connection_ends_in_time_whatever_it_sends() {
    let limits = AdminLimits { deadline: Duration::from_millis(500), ..AdminLimits::default() };
    let fixture = GatewayFixture::start().await;
    let address = fixture.serve_admin(limits, Vec::new()).await;
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let trickled = async {
        while socket.write_all(b"x: y\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), trickled).await.expect("the connection is cut");
}

/// s3s would read such a form itself, whole, before any signature: it takes the one value that is
/// text.
#[tokio::test]
async fn a_form_behind_another_content_type_is_a_form() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.timeouts.proof = TimePeriod(Duration::from_secs(600))
    })
    .await;
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    let head = b"POST /data HTTP/1.1\r\nhost: x\r\ncontent-type: \xff\r\n\
                 content-type: multipart/form-data; boundary=x\r\ncontent-length: 1000000\r\n\r\n";
    socket.write_all(head).await.unwrap();
    let mut answer = [0; 12];
    timeout(Duration::from_secs(60), socket.read_exact(&mut answer))
        .await
        .expect("no body is waited for")
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
}

//! TLS: which certificate a handshake shows while its files change, over the two libraries that
//! clients have; HTTP/2 by ALPN.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use verbs3_gateway::TlsFiles;

use crate::gateway_fixture::{GatewayFixture, until};
use crate::signing::Request;

/// Signs the certificates of a test.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate for localhost, and its key.
struct Made {
    name: String,
    certificate: String,
    key: String,
    not_after: OffsetDateTime,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn make(&self, name: &str, days: i64) -> Made {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after =
            OffsetDateTime::now_utc().replace_nanosecond(0).unwrap() + time::Duration::days(days);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Made {
            name: name.to_owned(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            not_after: params.not_after,
        }
    }

    async fn connect(&self, fixture: &GatewayFixture, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.0.der().to_vec())).unwrap();
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let socket = TcpStream::connect(fixture.address).await.unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from("localhost").unwrap(), socket)
            .await
            .unwrap()
    }

    /// The name in the certificate that a new handshake of rustls sees.
    async fn shown_to_rustls(&self, fixture: &GatewayFixture) -> String {
        let stream = self.connect(fixture, &[]).await;
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        let (_, certificate) = x509_parser::parse_x509_certificate(&shown).unwrap();
        certificate.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
    }

    /// The same with the `openssl` of this host, which verifies it too.
    async fn shown_to_openssl(&self, fixture: &GatewayFixture, folder: &Path) -> String {
        let authority = folder.join("authority.pem");
        std::fs::write(&authority, self.0.pem()).unwrap();
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-verify_return_error", "-servername", "localhost", "-CAfile"])
            .arg(authority);
        command.args(["-connect", &fixture.address.to_string()]).stdin(Stdio::null());
        let output =
            tokio::task::spawn_blocking(move || command.output().expect("openssl is installed"))
                .await
                .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let subject = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("subject="))
            .unwrap_or_else(|| {
                panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
            });
        subject.rsplit('=').next().unwrap().trim().to_owned()
    }
}

fn write(files: &TlsFiles, made: &Made) {
    std::fs::write(&files.certificate, &made.certificate).unwrap();
    std::fs::write(&files.key, &made.key).unwrap();
}

fn metric(fixture: &GatewayFixture, name: &str, label: Option<&str>) -> f64 {
    let label = label.map(|label| format!("=\"{label}\"")).unwrap_or_default();
    fixture.metrics().sum(&format!("verbs3_gateway_tls_{name}"), &[&label])
}

/// Asks over a connection that is kept, and reads the answer's head.
async fn ask(stream: &mut TlsStream<TcpStream>) -> String {
    let (head, _) = Request::new("HEAD", "/data/absent").signed("localhost");
    stream.write_all(head.replace("connection: close\r\n", "").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(Duration::from_secs(60), stream.read_u8()).await.unwrap();
        head.push(byte.expect("the connection lives"));
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn new_handshakes_use_changed_files_and_a_bad_pair_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (first, second, third) =
        (authority.make("first", 10), authority.make("second", 20), authority.make("third", 30));
    let files = TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    write(&files, &first);
    let fixture = GatewayFixture::start_with(|setup| setup.tls = Some(files.clone())).await;
    let in_force = |made: &Made| {
        (metric(&fixture, "certificate_not_after", None) as i64) == made.not_after.unix_timestamp()
    };
    until(|| in_force(&first)).await;
    let mut old = authority.connect(&fixture, &[]).await;
    assert!(ask(&mut old).await.starts_with("HTTP/1.1 404"));

    write(&files, &second);
    until(|| in_force(&second)).await;
    assert_eq!(authority.shown_to_rustls(&fixture).await, second.name);
    assert_eq!(authority.shown_to_openssl(&fixture, folder.path()).await, second.name);
    assert!(
        ask(&mut old).await.starts_with("HTTP/1.1 404"),
        "the connection of the first certificate lives on"
    );

    // A key that is not the certificate's, then no PEM at all, then no file.
    std::fs::write(&files.certificate, &third.certificate).unwrap();
    until(|| metric(&fixture, "reloads_total", Some("refused")) > 0.5).await;
    std::fs::write(&files.certificate, "nothing of the kind").unwrap();
    until(|| metric(&fixture, "reloads_total", Some("refused")) > 1.5).await;
    std::fs::remove_file(&files.key).unwrap();
    until(|| metric(&fixture, "reloads_total", Some("refused")) > 2.5).await;
    assert!(in_force(&second));
    assert_eq!(authority.shown_to_rustls(&fixture).await, second.name);
    assert_eq!(authority.shown_to_openssl(&fixture, folder.path()).await, second.name);

    // Mended, as orchestrators do it: new files moved into the place of the old ones.
    let beside =
        TlsFiles { certificate: folder.path().join("c.new"), key: folder.path().join("k.new") };
    write(&beside, &third);
    std::fs::rename(&beside.certificate, &files.certificate).unwrap();
    std::fs::rename(&beside.key, &files.key).unwrap();
    until(|| in_force(&third)).await;
    assert_eq!(authority.shown_to_openssl(&fixture, folder.path()).await, third.name);
    assert!(ask(&mut old).await.starts_with("HTTP/1.1 404"));
    assert!(metric(&fixture, "reloads_total", Some("taken")) < 2.5, "one reload for each change");
}

#[tokio::test]
async fn alpn_chooses_http_2_and_clients_that_do_not_ask_get_http_1() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    write(&files, &authority.make("only", 10));
    let fixture = GatewayFixture::start_with(|setup| setup.tls = Some(files)).await;
    let stream = authority.connect(&fixture, &[b"h2", b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) =
        builder.handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let (head, _) = Request::new("GET", "/data/absent").signed("localhost");
    let mut asked = http::Request::builder().uri("https://localhost/data/absent");
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
        if !matches!(name, "host" | "connection" | "content-length") {
            asked = asked.header(name, value.trim());
        }
    }
    let answer = sender.send_request(asked.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (404, http::Version::HTTP_2));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.windows(9).any(|window| window == b"NoSuchKey"));

    let stream = authority.connect(&fixture, &[b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut plain = authority.connect(&fixture, &[]).await;
    assert_eq!(plain.get_ref().1.alpn_protocol(), None);
    assert!(ask(&mut plain).await.starts_with("HTTP/1.1 404"));
}

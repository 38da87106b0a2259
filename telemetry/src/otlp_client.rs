//! Sends one message to the receiver and interprets its answer (OTLP 1.x, "OTLP/HTTP response").
//! Owns the HTTP client. Tries once: the caller decides about repeating.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use prost::Message;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

/// Most bytes of an answer that are read; a receiver sends a few.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long a connection stays open between exports.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Reason why the receiver can't be used at all.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the receiver {endpoint:?} is not a URL; write http://host:4318 or https://host:4318")]
    Endpoint { endpoint: String },
    #[error("export header {index} is not `name: value`; its text is a secret and not shown")]
    Header { index: usize },
    #[error("the receiver's certificates in {} can't be read", .path.display())]
    CaFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} holds no certificate in PEM form", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("the system has no root certificates for an https receiver; name a ca_file")]
    NoRoots,
    #[error("no TLS towards the receiver")]
    Tls(#[source] rustls::Error),
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// Outcome of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PostOutcome {
    /// The receiver took all but `rejected` spans or points.
    Taken { rejected: u64, why: String },
    /// The receiver will never take it.
    Refused(String),
    /// The receiver may take it later, after this long if it said so.
    Later { why: String, after: Option<Duration> },
}

pub(super) struct OtlpHttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    headers: HeaderMap,
    timeout: Duration,
}

impl OtlpHttpClient {
    /// Creates a client. `endpoint` is an http or https URL without a query. The client trusts the
    /// certificates in `ca_file` and no others. Fails on an address, header or certificate that
    /// can't be used.
    pub fn new(
        endpoint: &str,
        headers: &[String],
        ca_file: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self, TelemetryError> {
        let wrong = || TelemetryError::Endpoint { endpoint: endpoint.to_owned() };
        let base = endpoint.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|_| wrong())?;
        if uri.host().is_none_or(str::is_empty)
            || !matches!(uri.scheme_str(), Some("http" | "https"))
            || uri.query().is_some()
        {
            return Err(wrong());
        }
        let mut all = HeaderMap::new();
        for (index, line) in headers.iter().enumerate() {
            let (name, value) = parse_header(line).ok_or(TelemetryError::Header { index })?;
            all.append(name, value);
        }
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        all.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("verbs3/", env!("CARGO_PKG_VERSION"))),
        );
        let roots = load_roots(ca_file, uri.scheme_str() == Some("https"))?;
        // The provider is named, because a process-wide default may be absent, or be another
        // crate's choice.
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TelemetryError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(2)
            .build(connector);
        Ok(Self { client, base, headers: all, timeout })
    }

    /// Sends a message. `path` is `/v1/traces` or `/v1/metrics`.
    pub async fn send(&self, path: &str, message: &impl Message) -> PostOutcome {
        let mut request = Request::new(Full::new(Bytes::from(message.encode_to_vec())));
        *request.method_mut() = http::Method::POST;
        *request.headers_mut() = self.headers.clone();
        let Ok(uri) = format!("{}{path}", self.base).parse() else {
            return PostOutcome::Refused("its address is not a URL".to_owned());
        };
        *request.uri_mut() = uri;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| error_chain(&error))?;
            let (parts, body) = answer.into_parts();
            let body =
                Limited::new(body, ANSWER_BYTES_MAX).collect().await.map(|body| body.to_bytes());
            Ok((parts.status, parts.headers, body.unwrap_or_default()))
        };
        match tokio::time::timeout(self.timeout, exchange).await {
            Err(_) => PostOutcome::Later {
                why: format!("no answer within {} ms", self.timeout.as_millis()),
                after: None,
            },
            Ok(Err(why)) => PostOutcome::Later { why, after: None },
            Ok(Ok((status, headers, body))) => judge_answer(status, &headers, &body),
        }
    }
}

/// Parses `name: value`.
fn parse_header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let mut value = HeaderValue::from_str(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
}

fn load_roots(ca_file: Option<&Path>, tls: bool) -> Result<RootCertStore, TelemetryError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let unreadable = |source| TelemetryError::CaFile { path: path.to_owned(), source };
        for certificate in
            rustls_pemfile::certs(&mut BufReader::new(File::open(path).map_err(unreadable)?))
        {
            roots.add(certificate.map_err(unreadable)?).map_err(TelemetryError::Tls)?;
        }
        return if roots.is_empty() {
            Err(TelemetryError::NoCertificate { path: path.to_owned() })
        } else {
            Ok(roots)
        };
    }
    if tls {
        // Rustls may not know the form of some system certificates; the rest suffices.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(TelemetryError::NoRoots);
        }
    }
    Ok(roots)
}

/// Returns an error with its causes: hyper's own text says only "client error (Connect)".
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Part of a success's answer that both signals share: `partial_success { rejected = 1,
/// error_message = 2 }`.
#[derive(Clone, PartialEq, Message)]
struct OtlpPartialAnswer {
    #[prost(message, optional, tag = "1")]
    partial: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    why: String,
}

fn judge_answer(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> PostOutcome {
    match status.as_u16() {
        200..=299 => {
            let partial = OtlpPartialAnswer::decode(body)
                .ok()
                .and_then(|answered| answered.partial)
                .unwrap_or_default();
            PostOutcome::Taken {
                rejected: u64::try_from(partial.rejected).unwrap_or(0),
                why: partial.why,
            }
        }
        429 | 502 | 503 | 504 => {
            let after = headers
                .get(header::RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok());
            PostOutcome::Later {
                why: format!("it answered {status}"),
                after: after.map(Duration::from_secs),
            }
        }
        _ => PostOutcome::Refused(format!("it answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn answers_mean_what_the_protocol_says() {
        let none = HeaderMap::new();
        assert_eq!(
            judge_answer(StatusCode::OK, &none, b""),
            PostOutcome::Taken { rejected: 0, why: String::new() }
        );
        let partial = OtlpPartialAnswer {
            partial: Some(PartialSuccess { rejected: 3, why: "no".to_owned() }),
        }
        .encode_to_vec();
        assert_eq!(
            judge_answer(StatusCode::OK, &none, &partial),
            PostOutcome::Taken { rejected: 3, why: "no".to_owned() }
        );
        for status in [429, 502, 503, 504] {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(
                matches!(judge_answer(status, &none, b""), PostOutcome::Later { after: None, .. }),
                "{status}"
            );
        }
        let wait = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static("7"))]);
        let told = judge_answer(StatusCode::SERVICE_UNAVAILABLE, &wait, b"");
        assert!(
            matches!(told, PostOutcome::Later { after: Some(after), .. } if after.as_secs() == 7)
        );
        for status in [400, 401, 404, 413, 500] {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(
                matches!(judge_answer(status, &none, b""), PostOutcome::Refused(_)),
                "{status}"
            );
        }
    }

    #[test]
    fn what_can_not_be_an_endpoint_or_a_header_is_said_at_once() {
        let made = |endpoint: &str, headers: &[String]| {
            OtlpHttpClient::new(endpoint, headers, None, Duration::from_secs(1)).err()
        };
        for endpoint in ["", "localhost:4318", "ftp://host", "http://", "http://h/?x=1"] {
            assert!(
                matches!(made(endpoint, &[]), Some(TelemetryError::Endpoint { .. })),
                "{endpoint}"
            );
        }
        let wrong = made("http://h:4318", &["a: b".to_owned(), "s3cret".to_owned()]).unwrap();
        assert!(
            matches!(wrong, TelemetryError::Header { index: 1 })
                && !wrong.to_string().contains("s3cret")
        );
        assert!(made("http://h:4318/base/", &["authorization: Bearer x".to_owned()]).is_none());
    }
}

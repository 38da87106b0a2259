//! The HTTP client of OpenTelemetry's exporter. Owns TLS, the configured headers, the deadline of
//! one message, and what is counted and logged of an answer. Tries once: the exporter repeats.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use parking_lot::Mutex;
use prost::Message;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tracing::{info, warn};

use super::metrics::{ExportOutcome, TelemetryMetrics};
use super::settings::TelemetryOtlpSettings;
use super::telemetry_error::TelemetryError;

/// Most bytes of an answer that are read; a receiver sends a few.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long a connection stays open between exports.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// What the receiver did with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiverAnswer {
    /// It took all but `rejected` spans.
    Taken { rejected: u64 },
    /// It will never take it.
    Refused,
    /// It may take it later.
    Failed,
}

#[derive(Debug)]
pub(super) struct OtlpHttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: String,
    headers: HeaderMap,
    timeout: Duration,
    metrics: Arc<TelemetryMetrics>,
    health: Mutex<ReceiverHealth>,
}

/// The receiver's last known state.
#[derive(Debug)]
struct ReceiverHealth {
    answer: ReceiverAnswer,
    in_trouble: bool,
}

impl OtlpHttpClient {
    /// Creates a client. The endpoint is an http or https URL without a query. The client trusts
    /// the certificates in `ca_file` and no others. Fails on an address, header or certificate that
    /// can't be used.
    pub fn new(
        settings: &TelemetryOtlpSettings,
        metrics: Arc<TelemetryMetrics>,
    ) -> Result<Self, TelemetryError> {
        let endpoint = settings.endpoint.clone().unwrap_or_default();
        let is_receiver = |uri: &Uri| {
            uri.host().is_some_and(|host| !host.is_empty())
                && matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.query().is_none()
        };
        let Some(uri) = endpoint.parse().ok().filter(is_receiver) else {
            return Err(TelemetryError::Endpoint { endpoint });
        };
        let mut headers = HeaderMap::new();
        for (index, line) in settings.headers.iter().enumerate() {
            let (name, value) =
                parse_header(line.reveal_text()).ok_or(TelemetryError::Header { index })?;
            headers.append(name, value);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("verbs3/", env!("CARGO_PKG_VERSION"))),
        );
        let roots = load_roots(settings.ca_file.as_deref(), uri.scheme_str() == Some("https"))?;
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
        let (timeout, answer) = (settings.timeout.0, ReceiverAnswer::Failed);
        let health = Mutex::new(ReceiverHealth { answer, in_trouble: false });
        Ok(Self { client, endpoint, headers, timeout, metrics, health })
    }

    /// Returns what became of the last message.
    pub fn last_answer(&self) -> ReceiverAnswer {
        self.health.lock().answer
    }

    /// Counts a message, and logs when the receiver goes or comes back.
    fn note_answer(&self, answered: &Result<Response<Bytes>, HttpError>) {
        let (answer, trouble) = match answered {
            Ok(response) => judge_answer(response.status(), response.body()),
            Err(error) => (ReceiverAnswer::Failed, Some(describe_chain(error.as_ref()))),
        };
        let outcome = match answer {
            ReceiverAnswer::Taken { .. } => ExportOutcome::Ok,
            ReceiverAnswer::Refused => ExportOutcome::Refused,
            ReceiverAnswer::Failed => ExportOutcome::Failed,
        };
        self.metrics.exports[outcome].inc();
        let in_trouble = trouble.is_some();
        let before =
            std::mem::replace(&mut *self.health.lock(), ReceiverHealth { answer, in_trouble });
        let endpoint = &self.endpoint;
        match trouble {
            Some(why) if !before.in_trouble => warn!(
                endpoint,
                why,
                "the receiver of telemetry does not take all of it; what it does not take is \
                dropped and counted"
            ),
            None if before.in_trouble => {
                info!(endpoint, "the receiver of telemetry takes it again")
            }
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for OtlpHttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut request = request.map(Full::new);
        // The exporter's own headers are replaced: they hold what the environment says.
        request.headers_mut().clone_from(&self.headers);
        let exchange = async {
            let (head, body) = self.client.request(request).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            Ok(Response::from_parts(head, body.map(Collected::to_bytes).unwrap_or_default()))
        };
        let answered = tokio::time::timeout(self.timeout, exchange).await.unwrap_or_else(|_| {
            Err(format!("no answer within {} ms", self.timeout.as_millis()).into())
        });
        self.note_answer(&answered);
        answered
    }
}

/// Returns what an answer means (OTLP 1.x, "OTLP/HTTP response"), and what is wrong if anything is.
fn judge_answer(status: StatusCode, body: &[u8]) -> (ReceiverAnswer, Option<String>) {
    match status.as_u16() {
        200..=299 => {
            let decoded = ExportTraceServiceResponse::decode(body).unwrap_or_default();
            let partial = decoded.partial_success.unwrap_or_default();
            let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
            let trouble = (rejected > 0).then_some(partial.error_message);
            (ReceiverAnswer::Taken { rejected }, trouble)
        }
        429 | 502 | 503 | 504 => (ReceiverAnswer::Failed, Some(format!("it answered {status}"))),
        _ => (ReceiverAnswer::Refused, Some(format!("it answered {status}"))),
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
        for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
            roots.add(certificate.map_err(unreadable)?).map_err(TelemetryError::Tls)?;
        }
        if roots.is_empty() {
            return Err(TelemetryError::NoCertificate { path: path.to_owned() });
        }
    } else if tls {
        // Rustls may not know the form of some system certificates; the rest suffices.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(TelemetryError::NoRoots);
        }
    }
    Ok(roots)
}

/// Returns an error with its causes: hyper's own text says only "client error (Connect)".
fn describe_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
    use verbs3_settings::ConfigSecret;

    #[test]
    fn answers_mean_what_the_protocol_says() {
        let judged =
            |status, body: &[u8]| judge_answer(StatusCode::from_u16(status).unwrap(), body);
        assert_eq!(judged(200, b""), (ReceiverAnswer::Taken { rejected: 0 }, None));
        let (rejected_spans, error_message) = (3, "no".to_owned());
        let partial = ExportTracePartialSuccess { rejected_spans, error_message };
        let partial = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let some = (ReceiverAnswer::Taken { rejected: 3 }, Some("no".to_owned()));
        assert_eq!(judged(200, &partial), some);
        for status in [429, 502, 503, 504] {
            assert_eq!(judged(status, b"").0, ReceiverAnswer::Failed, "{status}");
        }
        for status in [400, 401, 404, 413, 500] {
            assert_eq!(judged(status, b"").0, ReceiverAnswer::Refused, "{status}");
        }
    }

    #[test]
    fn what_can_not_be_an_endpoint_or_a_header_is_said_at_once() {
        let made = |endpoint: &str, headers: &[&str]| {
            let headers = headers.iter().map(|&line| ConfigSecret::new(line)).collect();
            let endpoint = Some(endpoint.to_owned());
            let settings =
                TelemetryOtlpSettings { endpoint, headers, ..TelemetryOtlpSettings::default() };
            let metrics = TelemetryMetrics::new(&prometheus::Registry::new()).unwrap();
            OtlpHttpClient::new(&settings, Arc::new(metrics)).err()
        };
        for endpoint in ["", "localhost:4318", "ftp://host", "http://", "http://h/?x=1"] {
            assert!(
                matches!(made(endpoint, &[]), Some(TelemetryError::Endpoint { .. })),
                "{endpoint}"
            );
        }
        let wrong = made("http://h:4318", &["a: b", "s3cret"]).unwrap();
        assert!(
            matches!(wrong, TelemetryError::Header { index: 1 })
                && !wrong.to_string().contains("s3cret")
        );
        assert!(made("http://h:4318/base/", &["authorization: Bearer x"]).is_none());
    }
}

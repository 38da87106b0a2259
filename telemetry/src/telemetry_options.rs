//! Where telemetry goes, and why it can't.

use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::pem;

/// Where telemetry goes, and its bounds.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(Default))]
pub struct TelemetryOptions {
    /// Base URL; `/v1/traces` is appended.
    pub endpoint: String,
    /// Headers, each as `name: value`.
    pub headers: Vec<String>,
    pub ca_file: Option<PathBuf>,
    /// `service.name`.
    pub service: String,
    /// `service.instance.id`.
    pub instance: String,
    /// Ratio of sampled requests among those whose client does not decide.
    pub sample_ratio: f64,
    /// Longest time between two messages; a full batch is sent earlier.
    pub interval: Duration,
    /// Deadline of one message.
    pub timeout: Duration,
    /// Most finished requests that wait.
    pub queue_max: usize,
    /// Most requests in one message.
    pub batch_max: usize,
    /// Most spans of one request, besides its own.
    pub spans_max: usize,
    /// Longest time to send what is left at the end.
    pub flush_max: Duration,
}

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
        source: pem::Error,
    },
    #[error("{} holds no certificate in PEM form", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("the system has no root certificates for an https receiver; name a ca_file")]
    NoRoots,
    #[error("no TLS towards the receiver")]
    Tls(#[source] rustls::Error),
    #[error("no exporter of spans")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

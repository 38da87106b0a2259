//! Why telemetry can't go anywhere.

use std::path::PathBuf;

use rustls::pki_types::pem;

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

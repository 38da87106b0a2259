//! Owns the options and the wiring of S3 stores behind a network: one [`s3s::S3`] over aws-sdk-s3
//! that passes every operation on faithfully.
//!
//! `store` handles requests, `connection` connections, and `credentials` credentials.

mod answer_error;
mod answer_interceptor;
mod blank_key;
mod client_headers;
mod connection;
mod credentials;
mod select;
mod store;
mod upload_body;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    AppName, BehaviorVersion, Config, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, StalledStreamProtectionConfig,
};
use http::uri::InvalidUri;
use s3s::S3;

pub use credentials::{S3StoreCredentials, S3StoreSecret};

/// Options of an S3 store.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// `http://host:port` or `https://…`. `None` means AWS's own, by region.
    pub endpoint: Option<String>,
    pub region: String,
    pub credentials: S3StoreCredentials,
    /// `endpoint/bucket/key` instead of `bucket.endpoint/key`.
    pub path_style: bool,
    /// PEM file of the certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    pub deadlines: S3StoreDeadlines,
    /// Requests in flight at once, and so connections. Requests beyond it wait for
    /// `deadlines.connect`.
    pub connections_max: usize,
    /// Sends a checksum after the body where the client did so. Stores that refuse
    /// `STREAMING-UNSIGNED-PAYLOAD-TRAILER` (https) or `STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER`
    /// (http) need `false`. Ceph RGW up to 18.2 needs it too: it takes them, but keeps
    /// `aws-chunked` as the object's encoding. With `false` no such checksum is stored.
    pub trailing_checksums: bool,
}

/// Deadlines of one request. A client that sends or takes a body slowly breaks none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct S3StoreDeadlines {
    /// Deadline for a free place among `connections_max`, and then for a TCP and TLS connection.
    pub connect: Duration,
    /// Deadline for the answer's headers. It starts when the last available piece of the request
    /// was taken.
    pub answer: Duration,
    /// Deadline for the next piece of an answer's body.
    pub idle: Duration,
    /// Time that a connection without requests is kept. It is below that of common stores and load
    /// balancers (60 s), so that a request is rarely sent into a closing connection.
    pub keep_alive: Duration,
}

impl Default for S3StoreDeadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            keep_alive: Duration::from_secs(20),
        }
    }
}

impl S3Options {
    /// Makes options for a store at `endpoint`, with this crate's defaults.
    pub fn new(
        endpoint: Option<String>,
        region: impl Into<String>,
        credentials: S3StoreCredentials,
    ) -> Self {
        Self {
            endpoint,
            region: region.into(),
            credentials,
            path_style: true,
            ca_file: None,
            deadlines: S3StoreDeadlines::default(),
            connections_max: 512,
            trailing_checksums: true,
        }
    }
}

/// Reason why options can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "endpoint {endpoint:?} is not of the form http://host:port or https://host:port: {defect}"
    )]
    Endpoint { endpoint: String, defect: EndpointDefect },
    #[error("certificates can't be read from {}: {defect}", .path.display())]
    CaFile { path: PathBuf, defect: CaFileDefect },
    #[error("region is empty; name the store's region, or us-east-1 if it has none")]
    Region,
}

/// What is wrong with an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointDefect {
    #[error(transparent)]
    Uri(#[from] InvalidUri),
    #[error("credentials belong in `credentials`")]
    UserInformation,
    #[error("it names no host")]
    NoHost,
    #[error("it has a query")]
    Query,
    #[error("it is neither http nor https")]
    Scheme,
    /// The client of the metadata service does not take it.
    #[error("{0}")]
    Refused(Box<dyn std::error::Error + Send + Sync>),
}

/// What is wrong with a file of certificates.
#[derive(Debug, thiserror::Error)]
pub enum CaFileDefect {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
    #[error("no certificate in it")]
    Empty,
}

/// Makes a store behind a network. Sends nothing yet: only the first request shows that a store is
/// down.
pub async fn connect_store(options: S3Options) -> Result<Arc<dyn S3>, ConnectError> {
    if options.region.is_empty() {
        return Err(ConnectError::Region);
    }
    let tls = check_endpoint(options.endpoint.as_deref())?;
    let http = connection::build_http_client(&options, tls)?;
    let mut config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(options.region.clone()))
        .force_path_style(options.path_style)
        // For a bucket name that ends in --x-s3, the SDK would ask for sessions that only AWS has.
        .disable_s3_express_session_auth(true)
        .http_client(http.clone())
        // This crate retries reads, and the client everything else: a write is sent once.
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().connect_timeout(options.deadlines.connect).build())
        // It would cut a slow client's body. The deadlines above measure the store's slowness
        // alone.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        // The client's own checksums are passed on. None is added or removed.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .app_name(AppName::new("verbs3").expect("the name has only letters and a digit"))
        .interceptor(answer_interceptor::AnswerInterceptor);
    if let Some(endpoint) = &options.endpoint {
        config = config.endpoint_url(endpoint);
    }
    config = match credentials::credentials_provider(&options.credentials, &options.region, http)
        .await?
    {
        Some(provider) => config.credentials_provider(provider),
        None => config.allow_no_auth(),
    };
    let client = aws_sdk_s3::Client::from_conf(config.build());
    Ok(Arc::new(store::RemoteStore::new(client, options.trailing_checksums)))
}

/// Checks the endpoint. Returns true if it is reached by TLS.
fn check_endpoint(endpoint: Option<&str>) -> Result<bool, ConnectError> {
    let Some(endpoint) = endpoint else { return Ok(true) };
    let wrong = |defect| ConnectError::Endpoint { endpoint: endpoint.to_owned(), defect };
    let uri: http::Uri = endpoint.parse().map_err(|error: InvalidUri| wrong(error.into()))?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        // Not echoed: it would put a secret in the log.
        let endpoint = "(with user information)".to_owned();
        return Err(ConnectError::Endpoint { endpoint, defect: EndpointDefect::UserInformation });
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(wrong(EndpointDefect::NoHost));
    }
    if uri.query().is_some() {
        return Err(wrong(EndpointDefect::Query));
    }
    match uri.scheme_str() {
        Some("http") => Ok(false),
        Some("https") => Ok(true),
        _ => Err(wrong(EndpointDefect::Scheme)),
    }
}

#[cfg(test)]
mod tests;

//! Owns the wiring of S3 stores behind a network: one [`s3s::S3`] over aws-sdk-s3
//! that passes every operation on faithfully.
//!
//! `store` handles requests, and `cache_reads` those of them that the cache makes for itself.
//! `connection` handles connections, and `credentials` credentials.

mod answer_error;
mod answer_interceptor;
mod blank_key;
mod bucket_addresses;
mod cache_reads;
mod client_headers;
mod connection;
mod credentials;
mod current_credentials;
mod select;
mod store;
mod upload_body;

use std::path::PathBuf;
use std::sync::Arc;

use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    AppName, BehaviorVersion, Config, IdentityCache, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, StalledStreamProtectionConfig,
};
use http::uri::InvalidUri;
use s3s::S3;

use verbs3_settings::SecretError;

use crate::settings::UfsSettings;
use current_credentials::CurrentCredentials;

/// Reason why settings can't be used.
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
    #[error("credentials.{setting} is missing")]
    Credentials { setting: &'static str },
    #[error(transparent)]
    Secret(#[from] SecretError),
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
pub async fn connect_store(settings: &UfsSettings) -> Result<Arc<dyn S3>, ConnectError> {
    if settings.region.is_empty() {
        return Err(ConnectError::Region);
    }
    let tls = check_endpoint(settings.endpoint.as_deref())?;
    let connections = connection::build_connections(settings, tls)?;
    let http = connections.client;
    let mut config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(settings.region.clone()))
        .force_path_style(settings.path_style)
        // For a bucket name that ends in --x-s3, the SDK would ask for sessions that only AWS has.
        .disable_s3_express_session_auth(true)
        .http_client(http.clone())
        // This crate retries reads, and the client everything else: a write is sent once.
        .retry_config(RetryConfig::disabled())
        .timeout_config(
            TimeoutConfig::builder().connect_timeout(settings.deadlines.connect.0).build(),
        )
        // It would cut a slow client's body. The deadlines above measure the store's slowness
        // alone.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        // The client's own checksums are passed on. None is added or removed.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .app_name(AppName::new("verbs3").expect("the name has only letters and a digit"))
        .interceptor(answer_interceptor::AnswerInterceptor);
    if let Some(endpoint) = &settings.endpoint {
        config = config.endpoint_url(bucket_addresses::endpoint_base(endpoint));
    }
    let credentials = &settings.credentials;
    let provider = credentials::credentials_provider(credentials, &settings.region, http).await?;
    let current = provider.map(CurrentCredentials::new);
    config = match &current {
        // Kept there, for both ways to the store: a second cache would ask for as many keys again.
        Some(current) => {
            config.credentials_provider(current.clone()).identity_cache(IdentityCache::no_cache())
        }
        None => config.allow_no_auth(),
    };
    let client = aws_sdk_s3::Client::from_conf(config.build());
    let addresses = bucket_addresses::BucketAddresses::new(settings);
    let cache_reads = cache_reads::CacheReads::new(addresses, current, connections.connector);
    Ok(Arc::new(store::RemoteStore::new(client, cache_reads, settings.trailing_checksums)))
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

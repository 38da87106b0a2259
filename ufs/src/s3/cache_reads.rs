//! Owns the cache's own heads and reads of a store: they are made, signed and answered here,
//! without the SDK's layers, over the SDK's connections.
//!
//! An answer is kept as the store sent it. Only its body goes into the typed output. `store` sends
//! all other requests through the SDK, and these too where the bucket has no [`BucketAddress`].

use std::time::SystemTime;

use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use aws_smithy_runtime_api::client::identity::Identity;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::http::HttpError;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::{BodyExt, Collected};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result, StdError, s3_error};

use super::answer_error::{code_of, restore_error};
use super::answer_interceptor::without_framing;
use super::blank_key::put_key_back;
use super::bucket_addresses::{BucketAddress, BucketAddresses};
use super::current_credentials::CurrentCredentials;
use super::upload_body::BoundedAnswerBody;
use crate::error::RawAnswer;
use crate::headers::without_hop_by_hop;
use crate::raw_answer::{ERROR_BODY_BYTES_MAX, record_answer};
use crate::trace_propagation;

/// Bytes of a key that stay as they are in a path. The signature counts on the same set.
const IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const USER_AGENT: &str = concat!("verbs3/", env!("CARGO_PKG_VERSION"));

/// The way of the cache's own heads and reads to one store.
pub(super) struct CacheReads {
    pub(super) addresses: BucketAddresses,
    /// Requests are not signed if there are none.
    credentials: Option<CurrentCredentials>,
    connector: SharedHttpConnector,
}

/// Headers of a request, in lower case.
type RequestHeaders = Vec<(&'static str, String)>;

impl CacheReads {
    pub(super) fn new(
        addresses: BucketAddresses,
        credentials: Option<CurrentCredentials>,
        connector: SharedHttpConnector,
    ) -> Self {
        Self { addresses, credentials, connector }
    }

    /// Reads an object, or a range of it. Of the input, only what a
    /// [`ReadObject`](crate::ReadObject) has is sent.
    pub(super) async fn get_object(
        &self,
        address: &BucketAddress,
        input: GetObjectInput,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let url = object_url(address, &input.key, input.version_id.as_deref());
        let mut headers = condition_headers(input.if_match, input.checksum_mode);
        headers.extend(input.range.map(|range| ("range", range.to_header_string())));
        let body = self.send_request(Method::GET, address, &url, headers).await?;
        let body = StreamingBlob::from(s3s::Body::http_body_unsync(body));
        Ok(S3Response::new(GetObjectOutput { body: Some(body), ..Default::default() }))
    }

    /// Asks for an object's head.
    pub(super) async fn head_object(
        &self,
        address: &BucketAddress,
        input: HeadObjectInput,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let url = object_url(address, &input.key, input.version_id.as_deref());
        let headers = condition_headers(input.if_match, input.checksum_mode);
        self.send_request(Method::HEAD, address, &url, headers).await?;
        Ok(S3Response::new(HeadObjectOutput::default()))
    }

    /// Sends a request. Records the answer for the observer, and returns a success's body.
    async fn send_request(
        &self,
        method: Method,
        address: &BucketAddress,
        url: &str,
        headers: RequestHeaders,
    ) -> S3Result<SdkBody> {
        record_answer(None);
        let request = self.signed_request(&method, address, url, headers).await?;
        let response = self.connector.call(request).await.map_err(no_answer)?;
        let (parts, body) = response.try_into_http1x().map_err(no_answer)?.into_parts();
        let mut headers = without_hop_by_hop(parts.headers);
        remove_framing(&mut headers);
        let mut raw = RawAnswer { status: parts.status, headers, body: Bytes::new() };
        if raw.status.is_success() {
            record_answer(Some(raw));
            return Ok(body);
        }
        let code = code_of(raw.status);
        raw.body = read_error_body(body).await;
        record_answer(Some(raw.clone()));
        Err(restore_error(S3Error::new(code), Some(raw)))
    }

    async fn signed_request(
        &self,
        method: &Method,
        address: &BucketAddress,
        url: &str,
        mut headers: RequestHeaders,
    ) -> S3Result<HttpRequest> {
        if let Some(credentials) = &self.credentials {
            let identity = credentials.current().await.map_err(no_answer)?;
            let now = SystemTime::now();
            let signature = signature_headers(method, address, url, &headers, identity, now)
                .map_err(unsendable)?;
            headers.extend(signature);
        }
        unsigned_request(method, address, url, headers).map_err(unsendable)
    }
}

/// Lays out a request. What is added here is not part of its signature.
fn unsigned_request(
    method: &Method,
    address: &BucketAddress,
    url: &str,
    headers: RequestHeaders,
) -> Result<HttpRequest, HttpError> {
    let mut request = HttpRequest::new(SdkBody::empty());
    request.set_method(method.as_str())?;
    request.set_uri(url)?;
    let sent = request.headers_mut();
    for (name, value) in headers {
        sent.try_insert(name, value)?;
    }
    for (name, value) in &address.headers {
        sent.try_insert(name.clone(), value.clone())?;
    }
    sent.try_insert("user-agent", USER_AGENT)?;
    for (name, value) in trace_propagation::trace_headers() {
        sent.try_insert(name, value)?;
    }
    Ok(request)
}

/// Returns the headers that a signature adds. It covers `headers` and the host, as HTTP names it:
/// without the scheme's own port.
fn signature_headers(
    method: &Method,
    address: &BucketAddress,
    url: &str,
    headers: &RequestHeaders,
    identity: Identity,
    now: SystemTime,
) -> Result<RequestHeaders, StdError> {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(&address.signing_region)
        .name(&address.signing_name)
        .time(now)
        .settings(settings)
        .build()?
        .into();
    let signed = headers.iter().map(|(name, value)| (*name, &**value));
    let signable = SignableRequest::new(method.as_str(), url, signed, SignableBody::Bytes(b""))?;
    let (signature, _) = sign(signable, &parameters)?.into_parts();
    let (added, _) = signature.into_parts();
    Ok(added.iter().map(|header| (header.name(), header.value().to_owned())).collect())
}

/// Returns the URL of an object. Every byte that could mean something in it is escaped.
fn object_url(address: &BucketAddress, key: &str, version: Option<&str>) -> String {
    let mut url = address.url.clone();
    url.push('/');
    url.extend(utf8_percent_encode(key, IN_PATH));
    if let Some(version) = version {
        url.push_str("?versionId=");
        url.extend(utf8_percent_encode(version, NON_ALPHANUMERIC));
    }
    put_key_back(&url).unwrap_or(url)
}

fn condition_headers(
    if_match: Option<ETagCondition>,
    checksum_mode: Option<ChecksumMode>,
) -> RequestHeaders {
    let condition = if_match.map(|condition| match condition {
        ETagCondition::ETag(ETag::Strong(value)) => format!("\"{value}\""),
        ETagCondition::ETag(ETag::Weak(value)) => format!("W/\"{value}\""),
        ETagCondition::Any => "*".to_owned(),
    });
    let condition = condition.map(|value| ("if-match", value));
    let mode = checksum_mode.map(|mode| ("x-amz-checksum-mode", mode.as_str().to_owned()));
    condition.into_iter().chain(mode).collect()
}

/// Removes the framing of an upload from its object's encoding, as for the SDK's answers.
fn remove_framing(headers: &mut HeaderMap) {
    let encoding = headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    let Some(kept) = encoding.and_then(without_framing) else { return };
    headers.remove(header::CONTENT_ENCODING);
    // A part of a header's text is one, too.
    if let Some(kept) = HeaderValue::from_str(&kept).ok().filter(|kept| !kept.is_empty()) {
        headers.insert(header::CONTENT_ENCODING, kept);
    }
}

/// Reads an error's document. One that breaks off counts as none.
async fn read_error_body(body: SdkBody) -> Bytes {
    let bounded = BoundedAnswerBody::quietly_after(body, ERROR_BODY_BYTES_MAX);
    bounded.collect().await.map(Collected::to_bytes).unwrap_or_default()
}

/// Returns the error of a request that can't be sent, whatever the store does.
fn unsendable(cause: impl Into<StdError>) -> S3Error {
    s3_error!(InvalidRequest, "the request can't be passed on: {}", cause.into())
}

/// Returns the error of a request that got no answer.
fn no_answer(cause: impl Into<StdError>) -> S3Error {
    restore_error(S3Error::with_source(S3ErrorCode::InternalError, cause.into()), None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::UfsSettings;
    use aws_credential_types::Credentials;

    /// What a signature of one moment adds to a GET of a bucket behind this endpoint.
    fn signature_at(endpoint: &str, path_style: bool) -> RequestHeaders {
        let settings = UfsSettings {
            endpoint: Some(endpoint.into()),
            region: "us-east-1".into(),
            path_style,
            ..UfsSettings::default()
        };
        let address = BucketAddresses::new(&settings).of_bucket("bkt").unwrap();
        let url = object_url(&address, "key", None);
        let identity = Credentials::new("KEY", "secret", None, None, "test").into();
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        signature_headers(&Method::GET, &address, &url, &Vec::new(), identity, now).unwrap()
    }

    /// HTTP leaves it out of the host.
    #[test]
    fn a_schemes_own_port_is_not_signed() {
        for path_style in [true, false] {
            for (named, plain) in
                [("http://store:80", "http://store"), ("https://store:443", "https://store")]
            {
                assert_eq!(signature_at(named, path_style), signature_at(plain, path_style));
            }
            let other = signature_at("http://store:443", path_style);
            assert_ne!(other, signature_at("http://store", path_style));
        }
    }
}

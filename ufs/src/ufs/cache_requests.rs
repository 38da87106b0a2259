//! Owns the requests that the cache itself makes at a store, and what it reads of their answers.

use http::{HeaderMap, Method, StatusCode};
use s3s::S3Request;
use s3s::dto::{ChecksumMode, ETag, ETagCondition, GetObjectInput, HeadObjectInput, Range};

use super::s3_request;
use crate::error::RawAnswer;
use crate::object::ReadObject;
use crate::raw_answer::RawAnswerOnly;

/// Makes the request for an object's head.
pub(super) fn head_request(wanted: &ReadObject) -> S3Request<HeadObjectInput> {
    let input = HeadObjectInput {
        bucket: wanted.bucket.clone(),
        key: wanted.key.clone(),
        version_id: wanted.version_id.clone(),
        if_match: etag_condition(wanted),
        checksum_mode: checksum_mode(wanted),
        ..Default::default()
    };
    cache_request(Method::HEAD, input)
}

/// Makes the request for an object or its range.
pub(super) fn get_request(wanted: &ReadObject) -> S3Request<GetObjectInput> {
    let range = wanted.range.as_ref();
    let input = GetObjectInput {
        bucket: wanted.bucket.clone(),
        key: wanted.key.clone(),
        version_id: wanted.version_id.clone(),
        if_match: etag_condition(wanted),
        checksum_mode: checksum_mode(wanted),
        range: range.map(|range| Range::Int { first: *range.start(), last: Some(*range.end()) }),
        ..Default::default()
    };
    cache_request(Method::GET, input)
}

/// Returns status and headers as sent. For a local store, they come from its typed answer.
pub(super) fn answer_headers(
    raw: Option<RawAnswer>,
    status: Option<StatusCode>,
    own: HeaderMap,
    typed: impl FnOnce() -> HeaderMap,
    typed_status: Option<StatusCode>,
) -> (StatusCode, HeaderMap) {
    if let Some(raw) = raw {
        return (raw.status, raw.headers);
    }
    let mut headers = typed();
    // By s3s's rules, a response's own headers and status override those of its output.
    for name in own.keys() {
        headers.remove(name);
    }
    headers.extend(own);
    (status.or(typed_status).unwrap_or(StatusCode::OK), headers)
}

fn etag_condition(wanted: &ReadObject) -> Option<ETagCondition> {
    let etag = wanted.if_match.as_ref()?;
    // check_request has checked it. Without a condition, the comparison of the answer's ETag still
    // holds.
    ETag::parse_http_header(etag.as_bytes()).ok().map(ETagCondition::ETag)
}

fn checksum_mode(wanted: &ReadObject) -> Option<ChecksumMode> {
    wanted.checksums.then(|| ChecksumMode::from_static(ChecksumMode::ENABLED))
}

/// Makes a request of which [`answer_headers`] reads the answer.
fn cache_request<T>(method: Method, input: T) -> S3Request<T> {
    let mut request = s3_request(method, input);
    request.extensions.insert(RawAnswerOnly);
    request
}

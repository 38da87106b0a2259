//! Builds what a client is told: the headers of an object, and the answers that are no object. Asks
//! nobody.

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode};
use verbs3_protocol::{AnswerHeaders, HeadAttributes, UfsAnswer};
use verbs3_ufs::{RawAnswer, UfsError};

use super::request_plan::HeaderOverrides;
use crate::mount::MountNamePair;
use crate::mount::MountedBucket;
use crate::request_context::RequestContext;
use crate::ufs_answer;

/// Headers of a 304 (RFC 9110 section 15.4.5), and what S3 adds.
const OF_NOT_MODIFIED: [HeaderName; 6] = [
    header::ETAG,
    header::LAST_MODIFIED,
    header::CACHE_CONTROL,
    header::EXPIRES,
    header::VARY,
    HeaderName::from_static("x-amz-version-id"),
];

/// Headers of an object for which room is made at once: S3's own, and its metadata of 2 KiB.
const USUAL_HEADERS_MAX: usize = 128;
/// Headers that every answer gets besides: lengths, dates, ids, what the cache did.
const ADDED_HEADERS: usize = 10;

const CHECKSUM_PREFIX: &str = "x-amz-checksum-";

/// Returns the object's headers as the UFS sent them. Without `checksums` it omits even known ones:
/// S3 sends them on request, and for whole objects alone.
pub(super) fn object_headers(
    attributes: &HeadAttributes,
    checksums: bool,
    overrides: &HeaderOverrides,
) -> HeaderMap {
    let is_kept = |name: &str| checksums || !name.starts_with(CHECKSUM_PREFIX);
    let mut headers = build_header_map(&attributes.headers, is_kept);
    override_headers(&mut headers, overrides);
    headers
}

/// Makes headers of those that a worker has told, without a copy of their values. One that is
/// invalid came through a broken worker. The rest is still right, so only that one is left out.
fn build_header_map(told: &AnswerHeaders, is_kept: impl Fn(&str) -> bool) -> HeaderMap {
    // A map of more than some 24,000 panics: a broken worker may tell as many.
    let mut headers =
        HeaderMap::with_capacity(told.field_count().min(USUAL_HEADERS_MAX) + ADDED_HEADERS);
    for (name, value) in told.shared_fields().filter(|(name, _)| is_kept(name)) {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_maybe_shared(value);
        if let (Ok(name), Ok(value)) = (name, value) {
            // A map that is full takes no more.
            let _ = headers.try_append(name, value);
        }
    }
    headers
}

/// Applies `response-*` values. s3s would give the response's own headers precedence, and knows
/// these values for GET alone.
fn override_headers(headers: &mut HeaderMap, overrides: &HeaderOverrides) {
    let HeaderOverrides {
        cache_control,
        content_disposition,
        content_encoding,
        content_language,
        content_type,
        expires,
    } = overrides;
    let texts = [
        (header::CACHE_CONTROL, cache_control),
        (header::CONTENT_DISPOSITION, content_disposition),
        (header::CONTENT_ENCODING, content_encoding),
        (header::CONTENT_LANGUAGE, content_language),
        (header::CONTENT_TYPE, content_type),
    ];
    for (name, value) in texts {
        // s3s refused a value that can't be a header, with 400 for GET.
        if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    let mut date = Vec::new();
    if expires.as_ref().is_some_and(|expires: &Timestamp| {
        expires.format(TimestampFormat::HttpDate, &mut date).is_ok()
    }) && let Ok(value) = HeaderValue::from_bytes(&date)
    {
        headers.insert(header::EXPIRES, value);
    }
}

/// Makes a 304, with the headers that describe the client's own copy. Sent raw: s3s would give it a
/// body.
pub(super) fn not_modified(cx: &RequestContext, attributes: HeadAttributes) -> S3Error {
    let all = object_headers(&attributes, false, &HeaderOverrides::default());
    let mut kept = HeaderMap::new();
    for name in OF_NOT_MODIFIED {
        if let Some(value) = all.get(&name) {
            kept.insert(name, value.clone());
        }
    }
    cx.put_answer(RawAnswer {
        status: StatusCode::NOT_MODIFIED,
        headers: kept,
        body: bytes::Bytes::new(),
    });
    let mut error = S3Error::new(S3ErrorCode::NotModified);
    error.set_status_code(StatusCode::NOT_MODIFIED);
    error
}

pub(super) fn precondition_failed() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::PreconditionFailed,
        "At least one of the pre-conditions you specified did not hold",
    )
}

pub(super) fn invalid_range(object_bytes: u64) -> S3Error {
    let mut error =
        S3Error::with_message(S3ErrorCode::InvalidRange, "The requested range is not satisfiable");
    let mut headers = xml_headers();
    if let Ok(value) = HeaderValue::from_str(&format!("bytes */{object_bytes}")) {
        headers.insert(header::CONTENT_RANGE, value);
    }
    error.set_headers(headers);
    error
}

/// Makes a SlowDown: this gateway has no room.
pub(super) fn slow_down(message: &'static str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::SlowDown, message);
    let mut headers = xml_headers();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    error.set_headers(headers);
    error
}

/// Turns a worker's error from the UFS into the client's.
pub(super) fn of_worker(cx: &RequestContext, mount: &MountedBucket, answer: UfsAnswer) -> S3Error {
    let headers = build_header_map(&answer.headers, |_| true);
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    of_raw(cx, mount, RawAnswer { status, headers, body: answer.body.into() })
}

/// Turns the error of this gateway's own read into the client's.
pub(super) fn of_ufs_error(cx: &RequestContext, mount: &MountedBucket, error: UfsError) -> S3Error {
    match error {
        UfsError::Answer { answer, .. } => of_raw(cx, mount, *answer),
        UfsError::Throttled { .. } => {
            slow_down("too many reads of the store behind this endpoint are under way")
        }
        error @ (UfsError::Unreachable { .. }
        | UfsError::Truncated { .. }
        | UfsError::Untrusted { .. }
        | UfsError::Changed { .. }) => {
            tracing::warn!(request = %cx.request_id(), %error, "the store behind a mount can't be read");
            let mut unavailable = S3Error::with_message(
                S3ErrorCode::ServiceUnavailable,
                "the store behind this endpoint can't be read; try again",
            );
            let mut headers = xml_headers();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            unavailable.set_headers(headers);
            unavailable
        }
    }
}

/// Passes the UFS's own answer to the client, unless its document would show names behind the
/// mount.
fn of_raw(cx: &RequestContext, mount: &MountedBucket, answer: RawAnswer) -> S3Error {
    let body = String::from_utf8_lossy(&answer.body);
    let code = xml_element(&body, "<Code>").map_or_else(
        || code_of(answer.status),
        |code| S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InternalError),
    );
    let mut error = S3Error::new(code);
    if let Some(message) = xml_element(&body, "<Message>") {
        error.set_message(message.to_owned());
    }
    ufs_answer::of_ufs(cx, &MountNamePair::for_mount(mount), error, Some(answer))
}

/// Returns the code of an answer without a document (HEAD).
fn code_of(status: StatusCode) -> S3ErrorCode {
    match status {
        StatusCode::NOT_FOUND => S3ErrorCode::NoSuchKey,
        StatusCode::FORBIDDEN => S3ErrorCode::AccessDenied,
        StatusCode::NOT_MODIFIED => S3ErrorCode::NotModified,
        StatusCode::PRECONDITION_FAILED => S3ErrorCode::PreconditionFailed,
        StatusCode::RANGE_NOT_SATISFIABLE => S3ErrorCode::InvalidRange,
        StatusCode::SERVICE_UNAVAILABLE => S3ErrorCode::ServiceUnavailable,
        _ => S3ErrorCode::InternalError,
    }
}

/// Returns the text behind a tag of an S3 error document: flat, without attributes.
fn xml_element<'a>(document: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(tag)?;
    rest.split_once('<').map(|(text, _)| text)
}

fn xml_headers() -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"))])
}

//! Passes the UFS's own answers to the client. Owns which of their headers pass, and what a UFS's
//! error becomes. The only place that turns a store's error into a client's.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use s3s::S3Error;
use tracing::warn;
use verbs3_ufs::RawAnswer;
use verbs3_ufs::raw_answer::{self, RemoteFailure};

use crate::mount::MountNamePair;
use crate::request_context::RequestContext;

/// The UFS's own id of the request, for its operator. `x-amz-request-id` is this gateway's.
pub(crate) const UFS_REQUEST_ID: HeaderName = HeaderName::from_static("x-verbs3-ufs-request-id");
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// Returns whether a header is set by this gateway's own HTTP server, or speaks of the connection
/// to the UFS (RFC 9110, 7.6.1).
fn is_ours(name: &HeaderName) -> bool {
    const OURS: [HeaderName; 13] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::DATE,
        header::LOCATION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::SERVER,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::VIA,
        header::STRICT_TRANSPORT_SECURITY,
    ];
    OURS.contains(name) || name == "keep-alive" || name == "alt-svc"
}

/// Returns the UFS's headers for the client.
pub(crate) fn pass_headers(from: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(from.len());
    for (name, value) in from.iter().filter(|(name, _)| !is_ours(name)) {
        let name = if name == REQUEST_ID { UFS_REQUEST_ID } else { name.clone() };
        headers.append(name, value.clone());
    }
    headers
}

/// Keeps the headers of a success that the typed answer does not know.
pub(crate) fn keep_headers(headers: &mut HeaderMap, raw: Option<&RawAnswer>) {
    let Some(raw) = raw else {
        // A store within this process also sets an id; the client's id is the gateway's.
        headers.remove(REQUEST_ID);
        return;
    };
    *headers = pass_headers(&raw.headers);
}

/// Turns a UFS's error into the client's. Where names are the same on both sides, the client gets
/// the UFS's own document. Otherwise a new document gets its code, message, status and headers: the
/// UFS's own would show the bucket and prefix behind the mount.
pub(crate) fn of_ufs(
    cx: &RequestContext,
    names: &MountNamePair<'_>,
    mut error: S3Error,
    raw: Option<RawAnswer>,
) -> S3Error {
    match raw_answer::remote_failure(&error) {
        Some(RemoteFailure::Answer(_)) => {}
        Some(RemoteFailure::Unintelligible(reason)) => {
            warn!(
                request = %cx.request_id(), reason,
                "the store behind a mount gave an answer that is not S3's"
            );
            let message = "the store behind this endpoint gave an answer to this operation that is not S3's: it does not know the \
                           operation, or not this form of it; trying again won't help";
            // The only 5xx status that no client retries.
            return S3Error::with_message(s3s::S3ErrorCode::NotImplemented, message);
        }
        Some(RemoteFailure::NoAnswer(_)) => {
            let mut headers = xml_headers();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            let mut unavailable = S3Error::new(s3s::S3ErrorCode::ServiceUnavailable);
            unavailable.set_message("the store behind this endpoint can't be reached; try again");
            unavailable.set_headers(headers);
            return unavailable;
        }
        // The error of a store within this process is complete.
        None if raw.is_none() => return error,
        None => {}
    }
    let answer = raw_answer::answer_of(&error, raw);
    if !names.names_differ() {
        cx.put_answer(answer);
        return error;
    }
    let mut headers = pass_headers(&answer.headers);
    headers.extend(xml_headers());
    error.set_status_code(answer.status);
    error.set_headers(headers);
    error
}

fn xml_headers() -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"))])
}

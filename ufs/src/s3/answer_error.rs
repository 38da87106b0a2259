//! Owns the errors of a remote store: the store's own status, headers and document are put back
//! into what the SDK makes of them, and a missing answer gets an error that says why.

use std::error::Error as StdErrorTrait;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::result::ConnectorError;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use s3s::{S3Error, S3ErrorCode, s3_error};

use super::connection::NoPlace;
use crate::error::RawAnswer;
use crate::error_chain::error_chain;
use crate::raw_answer::{RemoteFailure, is_error};

/// Converts an error of the SDK like the proxy.
pub(super) fn sdk_error<E, R>(error: SdkError<E, R>) -> S3Error
where
    E: ProvideErrorMetadata + StdErrorTrait + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    let code = error.code().and_then(|code| S3ErrorCode::from_bytes(code.as_bytes()));
    let mut s3_error = S3Error::new(code.unwrap_or(S3ErrorCode::InternalError));
    if let Some(message) = error.message() {
        s3_error.set_message(message.to_owned());
    }
    s3_error.set_source(Box::new(error));
    s3_error
}

/// Returns the error with the store's own status and headers, and its whole answer as source.
pub(super) fn restore_error(mut error: S3Error, raw: Option<RawAnswer>) -> S3Error {
    let Some(raw) = raw else { return no_answer(&error) };
    if !is_error(&raw) {
        let reason = error_cause(&error);
        let failure = RemoteFailure::Unintelligible(format!(
            "{} with a body that is not S3: {reason}",
            raw.status
        ));
        let mut broken =
            s3_error!(InternalError, "the object store's answer could not be understood");
        broken.set_source(Box::new(failure));
        return broken;
    }
    if raw.body.is_empty() && error.code() == &S3ErrorCode::InternalError {
        error.set_code(code_of(raw.status));
    }
    error.set_status_code(raw.status);
    let mut headers = raw.headers.clone();
    // They fit the answer as it was sent; s3s writes another one from the code and the message.
    for name in [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::DATE, header::SERVER] {
        headers.remove(name);
    }
    error.set_headers(headers);
    error.set_source(Box::new(RemoteFailure::Answer(raw)));
    error
}

/// Renames the SDK's code for a 404 to a HEAD, which S3 does not use. Such an answer has no
/// document.
pub(super) fn rename_not_found(mut error: S3Error, code: S3ErrorCode) -> S3Error {
    if error.code().as_str() == "NotFound" {
        error.set_code(code);
    }
    error
}

/// Returns the code for HEAD answers and 304, which have no document to take it from.
pub(super) fn code_of(status: StatusCode) -> S3ErrorCode {
    match status.as_u16() {
        304 => S3ErrorCode::NotModified,
        400 => S3ErrorCode::InvalidRequest,
        403 => S3ErrorCode::AccessDenied,
        404 => S3ErrorCode::NoSuchKey,
        405 => S3ErrorCode::MethodNotAllowed,
        412 => S3ErrorCode::PreconditionFailed,
        416 => S3ErrorCode::InvalidRange,
        501 => S3ErrorCode::NotImplemented,
        503 => S3ErrorCode::ServiceUnavailable,
        _ => S3ErrorCode::InternalError,
    }
}

/// Makes the error of a missing answer. The store is out of reach or too slow, all places to it are
/// taken, or the request can't be sent.
fn no_answer(error: &S3Error) -> S3Error {
    let source = error.source();
    let Some(source) = source else {
        // Not the SDK's error: the request could not even be converted.
        return s3_error!(InvalidRequest, "the request can't be passed on: {error}");
    };
    let text = error_cause(error);
    let connector = find_source::<ConnectorError>(source);
    if connector.is_none() && text.starts_with("failed to construct request") {
        // An empty upload id can't be sent, and no upload has it.
        if text.contains("upload_id") {
            return s3_error!(NoSuchUpload);
        }
        return s3_error!(InvalidRequest, "the request can't be passed on: {text}");
    }
    let mut unavailable = if find_source::<NoPlace>(source).is_some() {
        s3_error!(SlowDown, "too many requests to the object store are under way; try again")
    } else if connector.is_some_and(ConnectorError::is_timeout) {
        s3_error!(
            ServiceUnavailable,
            "the object store behind this endpoint did not answer in time; try again"
        )
    } else {
        s3_error!(
            ServiceUnavailable,
            "the object store behind this endpoint can't be reached; try again"
        )
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    unavailable.set_headers(headers);
    unavailable.set_source(Box::new(RemoteFailure::NoAnswer(text)));
    unavailable
}

fn error_cause(error: &S3Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| error_chain(source))
}

fn find_source<'a, T: StdErrorTrait + 'static>(
    error: &'a (dyn StdErrorTrait + 'static),
) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

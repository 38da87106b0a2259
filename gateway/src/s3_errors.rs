//! Errors that several parts of the gateway answer with.

use http::{HeaderValue, header};
use s3s::{S3Error, S3ErrorCode};

pub(crate) fn slow_down() -> S3Error {
    let mut error =
        S3Error::with_message(S3ErrorCode::SlowDown, "Please reduce your request rate.");
    let retry = (header::RETRY_AFTER, HeaderValue::from_static("1"));
    error.set_headers(
        [retry, (header::CONTENT_TYPE, HeaderValue::from_static("application/xml"))]
            .into_iter()
            .collect(),
    );
    error
}

pub(crate) fn no_such_bucket() -> S3Error {
    S3Error::with_message(S3ErrorCode::NoSuchBucket, "The specified bucket does not exist")
}

pub(crate) fn access_denied() -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, "Access Denied")
}

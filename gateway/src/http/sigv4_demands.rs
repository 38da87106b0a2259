//! Owns the demands on a signature of version 4: `host` and every `x-amz-*` header is listed, the
//! scope is S3's, and a request is signed in one way ("Authenticating Requests", S3 reference). s3s
//! verifies a signature over the headers that its sender lists, and obeys the others, too. Verifies
//! no signature.
//!
//! These checks come before s3s, so that requests signed by header and by URL pass one place. A
//! form's fields are checked against its policy (`form::policy`), and its request headers are
//! dropped.

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use s3s::{Body, HttpResponse, S3Error, S3ErrorCode, S3Result};

use super::signed_url::{self, SignedUrl};
use crate::auth::ALGORITHM;

const AMZ: &str = "x-amz-";
/// Need not be listed: its value is the last line of what a header signs. In a URL's request it
/// only narrows which body is accepted.
const PAYLOAD_HASH: &str = "x-amz-content-sha256";

/// Unsigned headers, in S3's format: `x-amz-acl, x-amz-meta-a`. The source of an [`S3Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("headers that were not signed: {names}")]
pub(super) struct UnsignedHeaders {
    pub names: String,
}

/// Refuses a request whose signature does not cover what S3 demands. An unsigned request passes:
/// s3s refuses it.
pub(super) fn check_coverage(uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
    let by_url = signed_url::read(uri)?;
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let by_header = values.next();
    if values.next().is_some() || (by_header.is_some() && by_url.is_some()) {
        return Err(signed_url::signed_twice());
    }
    match (by_header, by_url) {
        (None, None) => Ok(()),
        (None, Some(SignedUrl::V4 { credential, headers: listed })) => {
            check_scope(&credential).map_err(|why| {
                let message = format!("Error parsing the X-Amz-Credential parameter; {why}");
                S3Error::with_message(S3ErrorCode::AuthorizationQueryParametersError, message)
            })?;
            check_amz_headers(headers, Some(&listed))?;
            check_signed_list(&listed, uri, headers)
        }
        // Version 2 signs every such header that is text.
        (None, Some(SignedUrl::V2)) => check_amz_headers(headers, None),
        (Some(value), _) if value.as_bytes().starts_with(b"AWS ") => {
            check_amz_headers(headers, None)
        }
        (Some(value), _) => {
            let (credential, listed) = read_header(value)?;
            check_scope(credential).map_err(|why| malformed_error(&why))?;
            check_amz_headers(headers, Some(listed))?;
            check_signed_list(listed, uri, headers)
        }
    }
}

/// Checks that the list of signed headers is the one that was signed: lower-case names in their
/// order, each of a header that is there, with no white space but spaces and tabs. s3s makes the
/// list anew from the headers that it finds, and folds every white space of Unicode. So a name could
/// be put into a signed list, and one white space be put for another.
fn check_signed_list(listed: &str, uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
    let is_plain = |value: &HeaderValue| {
        let text = String::from_utf8_lossy(value.as_bytes());
        !text.chars().any(|letter| letter.is_whitespace() && !matches!(letter, ' ' | '\t'))
    };
    let holds = |name: &str| {
        let mut values = headers.get_all(name).iter().peekable();
        let is_there = values.peek().is_some() || (name == "host" && uri.authority().is_some());
        is_there && !name.bytes().any(|byte| byte.is_ascii_uppercase()) && values.all(is_plain)
    };
    if listed.split(';').is_sorted_by(|one, next| one < next) && listed.split(';').all(holds) {
        return Ok(());
    }
    let message = "The request signature we calculated does not match the signature you provided. \
        SignedHeaders has to name headers of the request, in lower case and in their order.";
    Err(S3Error::with_message(S3ErrorCode::SignatureDoesNotMatch, message))
}

/// Returns the credential and the listed headers of an Authorization header. May accept less than
/// s3s, never more: what counts as listed here must be under the signature in s3s.
fn read_header(value: &HeaderValue) -> S3Result<(&str, &str)> {
    let text = value.to_str().map_err(|_| malformed_error("it is not text"))?;
    let Some(rest) = text.strip_prefix(ALGORITHM) else {
        return Err(if text.starts_with("AWS4-") {
            let message = "The authorization mechanism you have provided is not supported. Please \
                use AWS4-HMAC-SHA256.";
            S3Error::with_message(S3ErrorCode::InvalidRequest, message)
        } else {
            S3Error::with_message(S3ErrorCode::InvalidArgument, "Unsupported Authorization Type")
        });
    };
    let mut parts = rest.split(',');
    let mut part = |name: &str| parts.next()?.trim_start().strip_prefix(name)?.strip_prefix('=');
    let (credential, listed, signature) =
        (part("Credential"), part("SignedHeaders"), part("Signature"));
    match (credential, listed, signature, parts.next()) {
        (Some(credential), Some(listed), Some(_), None) => Ok((credential, listed)),
        _ => Err(malformed_error(
            "it is not \"AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…\"",
        )),
    }
}

/// Checks `KEY/DATE/REGION/s3/aws4_request`. Accepts any region: clients of one endpoint are
/// configured with many, and a key of the identities file is valid in all of them.
fn check_scope(credential: &str) -> Result<(), String> {
    let mut parts = credential.split('/');
    let mut next = || parts.next();
    let (Some(_), Some(_), Some(_), Some(service), Some(end)) =
        (next(), next(), next(), next(), next())
    else {
        return Err("the Credential is not \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."
            .to_owned());
    };
    if service != "s3" {
        return Err(format!("incorrect service {service:?}. This endpoint belongs to \"s3\"."));
    }
    if end != "aws4_request" || next().is_some() {
        return Err(format!("incorrect terminal {end:?}. This endpoint uses \"aws4_request\"."));
    }
    Ok(())
}

/// Checks that the headers are signed. `listed`: the covered names, separated by semicolons;
/// `None`: all are covered, and no host is needed. s3s skips values that are not UTF-8 when it
/// verifies, so these are never covered.
fn check_amz_headers(headers: &HeaderMap, listed: Option<&str>) -> S3Result<()> {
    let covers =
        |name: &str| listed.is_none_or(|listed| listed.split(';').any(|found| found == name));
    let signed = |name: &str, value: &HeaderValue| {
        covers(name) && std::str::from_utf8(value.as_bytes()).is_ok()
    };
    let amz = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .filter(|(name, _)| name.starts_with(AMZ));
    let open = amz
        .filter(|(name, value)| *name != PAYLOAD_HASH && !signed(name, value))
        .map(|(name, _)| name);
    let mut open: Vec<&str> = open.collect();
    if !covers("host") {
        open.push("host");
    }
    if open.is_empty() {
        return Ok(());
    }
    open.sort_unstable();
    open.dedup();
    let unsigned = UnsignedHeaders { names: open.join(", ") };
    let mut error = S3Error::with_source(S3ErrorCode::AccessDenied, Box::new(unsigned));
    error.set_message("There were headers present in the request which were not signed");
    Err(error)
}

/// Writes a refusal with S3's element for the names; s3s's errors have no place for it.
pub(super) fn unsigned_headers_response(error: &S3Error, names: &str) -> HttpResponse {
    let (code, message) = (error.code().as_str(), error.message().unwrap_or_default());
    // A header's name may have an ampersand, but no other character that XML escapes.
    let names = names.replace('&', "&amp;");
    let mut response = HttpResponse::new(Body::from(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
         <HeadersNotSigned>{names}</HeadersNotSigned></Error>"
    )));
    *response.status_mut() = error.status_code().unwrap_or(StatusCode::FORBIDDEN);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

fn malformed_error(why: &str) -> S3Error {
    let message = format!("The authorization header is malformed; {why}");
    S3Error::with_message(S3ErrorCode::AuthorizationHeaderMalformed, message)
}

#[cfg(test)]
mod tests;

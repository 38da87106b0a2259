//! Owns the parameters that sign a URL: checks what s3s does not, and strips them. Verifies no
//! signature.

use std::borrow::Cow;

use http::Uri;
use http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Longest validity: a week ("Authenticating Requests: Using Query Parameters", S3 reference).
pub(crate) const URL_EXPIRES_S_MAX: u64 = 7 * 24 * 60 * 60;

const EXPIRES: &str = "X-Amz-Expires";

/// Parameters of both signature versions. Version 4 comes first; its first six are mandatory.
const OF_SIGNATURES: [&str; 10] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Signature",
    "X-Amz-Date",
    "X-Amz-SignedHeaders",
    EXPIRES,
    "X-Amz-Security-Token",
    "AWSAccessKeyId",
    "Signature",
    "Expires",
];
/// Indexes into it.
const ALGORITHM: usize = 0;
const CREDENTIAL: usize = 1;
const SIGNATURE: usize = 2;
const LISTED: usize = 4;
const V4_NEEDS: usize = 6;
const V2_KEY: usize = 7;
const V2_SIGNATURE: usize = 8;

/// A URL's signature parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SignedUrl {
    V2,
    V4 {
        /// The claimed `KEY/DATE/REGION/SERVICE/aws4_request`.
        credential: String,
        /// The signed headers, separated by semicolons.
        headers: String,
    },
}

/// Returns how a URL is signed, if it is. Refuses a URL in which a signature parameter is missing,
/// or comes twice in any spelling.
pub(super) fn read(uri: &Uri) -> S3Result<Option<SignedUrl>> {
    let Some(query) = uri.query() else { return Ok(None) };
    let (mut values, mut counts) = ([None; OF_SIGNATURES.len()], [0u32; OF_SIGNATURES.len()]);
    for (name, value) in query_pairs(query) {
        let name = percent_decode(name);
        let Some(at) = OF_SIGNATURES.iter().position(|known| known.eq_ignore_ascii_case(&name))
        else {
            continue;
        };
        counts[at] += 1;
        // s3s knows this one spelling alone.
        if name == OF_SIGNATURES[at] {
            values[at] = Some(value);
        }
    }
    let has = |at: usize| values[at].is_some();
    let (v4, v2) = (has(ALGORITHM) || has(SIGNATURE), has(V2_KEY) || has(V2_SIGNATURE));
    if v4 && v2 {
        return Err(signed_twice());
    }
    if !v4 && !v2 {
        return Ok(None);
    }
    if let Some(at) = counts.iter().position(|count| *count > 1) {
        return Err(parameters_error(format!("the parameter {} comes twice", OF_SIGNATURES[at])));
    }
    if v2 {
        return Ok(Some(SignedUrl::V2));
    }
    if !(0..V4_NEEDS).all(has) {
        let names = OF_SIGNATURES[..V4_NEEDS].join(", ");
        return Err(parameters_error(format!(
            "Query-string authentication version 4 requires the parameters {names}"
        )));
    }
    let text = |at: usize| form_decoded(values[at].unwrap_or_default());
    Ok(Some(SignedUrl::V4 { credential: text(CREDENTIAL), headers: text(LISTED) }))
}

fn parameters_error(message: String) -> S3Error {
    S3Error::with_message(S3ErrorCode::AuthorizationQueryParametersError, message)
}

/// Refuses a URL that is signed for longer than S3 allows.
pub(super) fn check_expiry(uri: &Uri) -> S3Result<()> {
    let Some(query) = uri.query().filter(|query| query.contains("Expires") || query.contains('%'))
    else {
        return Ok(());
    };
    for (name, value) in query_pairs(query).filter(|(name, _)| percent_decode(name) == EXPIRES) {
        let value = percent_decode(value);
        let refused = match value.parse::<u64>() {
            Ok(seconds) if seconds <= URL_EXPIRES_S_MAX => continue,
            Ok(_) => {
                "must be less than a week (in seconds); that is, the given X-Amz-Expires must be \
                less than 604800 seconds"
            }
            Err(_) if value.starts_with('-') => "must be non-negative",
            Err(_) => "should be a number",
        };
        let message = format!("{} {refused}", percent_decode(name));
        return Err(S3Error::with_message(S3ErrorCode::AuthorizationQueryParametersError, message));
    }
    Ok(())
}

/// Returns the URL without its signature parameters.
pub(super) fn strip_signature(uri: &Uri) -> S3Result<Uri> {
    let Some(query) = uri.query() else { return Ok(uri.clone()) };
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| {
            !OF_SIGNATURES
                .contains(&&*percent_decode(pair.split_once('=').map_or(*pair, |(name, _)| name)))
        })
        .collect();
    let text =
        format!("{}{}{}", uri.path(), if kept.is_empty() { "" } else { "?" }, kept.join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(text).map_err(|_| S3ErrorCode::InvalidURI)?);
    Uri::from_parts(parts).map_err(|_| S3ErrorCode::InvalidURI.into())
}

fn query_pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Decodes names and values as s3s does. Text that is not UTF-8 is no name of ours.
pub(super) fn percent_decode(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// Decodes where a plus matters: s3s reads it as a space.
fn form_decoded(text: &str) -> String {
    percent_decode(&text.replace('+', " ")).into_owned()
}

/// Returns the error for a request that is signed in two ways.
pub(super) fn signed_twice() -> S3Error {
    let message = "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string \
                   parameter or the Authorization header should be specified";
    S3Error::with_message(S3ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn uri(query: &str) -> Uri {
        format!("/bucket/a%20key?{query}").parse().unwrap()
    }

    #[test]
    fn a_url_is_signed_for_a_week_at_most() {
        for taken in [
            "X-Amz-Expires=604800",
            "X-Amz-Expires=0",
            "x-id=GetObject",
            "Expires=99999999999",
            "prefix=%58",
        ] {
            assert!(check_expiry(&uri(taken)).is_ok(), "{taken}");
        }
        for refused in [
            "X-Amz-Expires=604801",
            "X-Amz-Expires=-1",
            "X-Amz-Expires=soon",
            "X-Amz-Expires=",
            "%58-Amz-Expires=%3904801",
        ] {
            let error = check_expiry(&uri(refused)).unwrap_err();
            assert_eq!(*error.code(), S3ErrorCode::AuthorizationQueryParametersError, "{refused}");
            assert_eq!(error.status_code().unwrap().as_u16(), 400);
        }
    }

    #[test]
    fn only_what_signs_a_url_is_taken_away() {
        let signed = uri(
            "X-Amz-Signature=a&versionId=b%2B&X%2DAmz-Date=c&list-type=2&Expires=9&X-Amz-Expires=5",
        );
        assert_eq!(strip_signature(&signed).unwrap(), uri("versionId=b%2B&list-type=2"));
        assert_eq!(
            strip_signature(&uri("AWSAccessKeyId=a&Signature=b")).unwrap(),
            "/bucket/a%20key"
        );
        let absolute: Uri = "http://host:1/bucket?Signature=b&acl".parse().unwrap();
        assert_eq!(strip_signature(&absolute).unwrap(), "http://host:1/bucket?acl");
    }
}

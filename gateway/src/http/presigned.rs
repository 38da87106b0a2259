//! The parameters that sign a URL: what s3s does not check of them, and the URL without them. Verifies no signature.

use std::borrow::Cow;

use http::Uri;
use http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// A week ("Authenticating Requests: Using Query Parameters", S3 reference).
const EXPIRES_S_MAX: u64 = 7 * 24 * 60 * 60;

const EXPIRES: &str = "X-Amz-Expires";

/// Of both versions of signatures.
const OF_SIGNATURES: [&str; 10] = [
    "AWSAccessKeyId",
    "Expires",
    "Signature",
    EXPIRES,
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];

/// Refuses a URL that is signed for longer than S3 lets one be.
pub(super) fn check(uri: &Uri) -> S3Result<()> {
    let Some(query) = uri.query().filter(|query| query.contains("Expires") || query.contains('%')) else {
        return Ok(());
    };
    for (name, value) in pairs(query).filter(|(name, _)| decoded(name) == EXPIRES) {
        let value = decoded(value);
        let refused = match value.parse::<u64>() {
            Ok(seconds) if seconds <= EXPIRES_S_MAX => continue,
            Ok(_) => {
                "must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds"
            }
            Err(_) if value.starts_with('-') => "must be non-negative",
            Err(_) => "should be a number",
        };
        let message = format!("{} {refused}", decoded(name));
        return Err(S3Error::with_message(S3ErrorCode::AuthorizationQueryParametersError, message));
    }
    Ok(())
}

/// The same without what signs it.
pub(super) fn unsigned(uri: &Uri) -> S3Result<Uri> {
    let Some(query) = uri.query() else { return Ok(uri.clone()) };
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| !OF_SIGNATURES.contains(&&*decoded(pair.split_once('=').map_or(*pair, |(name, _)| name))))
        .collect();
    let text = format!("{}{}{}", uri.path(), if kept.is_empty() { "" } else { "?" }, kept.join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(text).map_err(|_| S3ErrorCode::InvalidURI)?);
    Uri::from_parts(parts).map_err(|_| S3ErrorCode::InvalidURI.into())
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// As s3s decodes names and values; what is not text is none of ours.
fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
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
        for taken in ["X-Amz-Expires=604800", "X-Amz-Expires=0", "x-id=GetObject", "Expires=99999999999", "prefix=%58"]
        {
            assert!(check(&uri(taken)).is_ok(), "{taken}");
        }
        for refused in [
            "X-Amz-Expires=604801",
            "X-Amz-Expires=-1",
            "X-Amz-Expires=soon",
            "X-Amz-Expires=",
            "%58-Amz-Expires=%3904801",
        ] {
            let error = check(&uri(refused)).unwrap_err();
            assert_eq!(*error.code(), S3ErrorCode::AuthorizationQueryParametersError, "{refused}");
            assert_eq!(error.status_code().unwrap().as_u16(), 400);
        }
    }

    #[test]
    fn only_what_signs_a_url_is_taken_away() {
        let signed = uri("X-Amz-Signature=a&versionId=b%2B&X%2DAmz-Date=c&list-type=2&Expires=9&X-Amz-Expires=5");
        assert_eq!(unsigned(&signed).unwrap(), uri("versionId=b%2B&list-type=2"));
        assert_eq!(unsigned(&uri("AWSAccessKeyId=a&Signature=b")).unwrap(), "/bucket/a%20key");
        let absolute: Uri = "http://host:1/bucket?Signature=b&acl".parse().unwrap();
        assert_eq!(unsigned(&absolute).unwrap(), "http://host:1/bucket?acl");
    }
}

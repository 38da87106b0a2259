//! Decides whether signature version 2 is accepted, and checks what s3s does not check of it.
//! Verifies no signature.

use http::{HeaderMap, HeaderName, Uri, header};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result};
use time::{Duration, OffsetDateTime};

use super::signed_url::percent_decode;

/// Refuses with S3's answer in every region opened since 2014.
pub(super) fn ensure_enabled(enabled: bool) -> S3Result<()> {
    if enabled {
        return Ok(());
    }
    // botocore signs URLs and forms by version 2 for old regions or without one, unless it is told
    // otherwise.
    let message = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256; with boto3, \
                   Config(signature_version=\"s3v4\"). (gateway.sigv2 is off.)";
    Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message))
}

/// Refuses a request signed by version 2 if it is disabled or its clock is off. Otherwise changes
/// the path to what clients sign. Forms are checked where they are read.
pub(super) fn check_sigv2(
    uri: &mut Uri,
    headers: &HeaderMap,
    enabled: bool,
    skew_max: std::time::Duration,
) -> S3Result<()> {
    let mut parameters =
        uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split('=').next());
    // Decoded, because s3s compares them so.
    if parameters.any(|name| matches!(&*percent_decode(name), "Signature" | "AWSAccessKeyId")) {
        ensure_enabled(enabled)?;
        check_covered(uri, headers)?;
        return as_signed(uri);
    }
    let by_header = headers
        .get_all(header::AUTHORIZATION)
        .iter()
        .any(|value| value.as_bytes().starts_with(b"AWS "));
    if !by_header {
        return Ok(());
    }
    ensure_enabled(enabled)?;
    // A URL has an expiry; a signed request without a date would be valid for ever.
    let date = headers
        .get("x-amz-date")
        .or_else(|| headers.get(header::DATE))
        .and_then(|date| date.to_str().ok());
    let Some(date) = date.and_then(parse_moment) else {
        let message = "AWS authentication requires a valid Date or x-amz-date header";
        return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
    };
    if (OffsetDateTime::now_utc() - date).abs()
        > Duration::try_from(skew_max).unwrap_or(Duration::MAX)
    {
        let message = "The difference between the request time and the current time is too large.";
        return Err(S3Error::with_message(S3ErrorCode::RequestTimeTooSkewed, message));
    }
    check_covered(uri, headers)?;
    as_signed(uri)
}

/// Sub-resources that version 2 does not sign: they could be added to any signed URL.
const UNSIGNED: [&str; 10] = [
    "attributes",
    "encryption",
    "intelligent-tiering",
    "legal-hold",
    "metadataTable",
    "ownershipControls",
    "policyStatus",
    "publicAccessBlock",
    "retention",
    "session",
];
/// Headers other than `x-amz-*` that version 2 signs.
const SIGNED_HEADERS: [HeaderName; 3] =
    [header::CONTENT_TYPE, HeaderName::from_static("content-md5"), header::DATE];

/// Refuses what s3s would obey without verifying: unsigned sub-resources, and anything that comes
/// twice, which its verification takes for absent.
fn check_covered(uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
    let open = |what: &str| {
        let message =
            format!("Signature version 2 does not cover {what}. Please use AWS4-HMAC-SHA256.");
        Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message))
    };
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let mut names: Vec<_> =
        pairs.map(|pair| percent_decode(pair.split('=').next().unwrap_or_default())).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return open("a parameter that comes twice");
    }
    if let Some(name) = names.iter().find(|name| UNSIGNED.contains(&&***name)) {
        return open(&format!("the parameter {name}"));
    }
    match SIGNED_HEADERS.iter().find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
        Some(name) => open(&format!("two headers {name}")),
        None => Ok(()),
    }
}

/// Adds a slash to a bucket's path. Clients sign it so even if they send it without: botocore
/// (`authPath`), s3cmd and the SDK for Java. s3s verifies what was sent.
fn as_signed(uri: &mut Uri) -> S3Result<()> {
    let path = uri.path();
    if path.is_empty() || path.trim_start_matches('/').contains('/') || path.ends_with('/') {
        return Ok(());
    }
    let text = uri.query().map_or_else(|| format!("{path}/"), |query| format!("{path}/?{query}"));
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(text.parse().map_err(|_| S3ErrorCode::InvalidURI)?);
    *uri = Uri::from_parts(parts).map_err(|_| S3ErrorCode::InvalidURI)?;
    Ok(())
}

/// Parses `Tue, 27 Mar 2007 19:36:42 GMT`, also with `+0000`, as old clients write it.
fn parse_moment(text: &str) -> Option<OffsetDateTime> {
    let text = text.replace("+0000", "GMT");
    Timestamp::parse(TimestampFormat::HttpDate, &text).ok().map(OffsetDateTime::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SKEW: std::time::Duration = std::time::Duration::from_secs(900);

    fn dated(name: &'static str, date: OffsetDateTime) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "AWS AK:c2lnbmF0dXJl".parse().unwrap());
        let mut text = Vec::new();
        Timestamp::from(date).format(TimestampFormat::HttpDate, &mut text).unwrap();
        headers.insert(name, text.as_slice().try_into().unwrap());
        headers
    }

    #[test]
    fn both_forms_are_refused_by_default_and_nothing_else_is() {
        let (mut plain, none) = (Uri::from_static("/b/k"), HeaderMap::new());
        for query in [
            "/b/k?AWSAccessKeyId=a&Expires=1&Signature=b",
            "/b/k?x=1&Signature=",
            "/b/k?AWSAccessKey%49d=a&Expires=1&%53ignature=b",
            "/b/k?%53%69%67%6e%61%74%75%72%65",
        ] {
            let error = check_sigv2(&mut query.parse().unwrap(), &none, false, SKEW).unwrap_err();
            assert_eq!(*error.code(), S3ErrorCode::InvalidRequest);
            assert!(check_sigv2(&mut query.parse().unwrap(), &none, true, SKEW).is_ok());
        }
        assert!(
            check_sigv2(&mut plain, &dated("date", OffsetDateTime::now_utc()), false, SKEW)
                .is_err()
        );
        let mut v4 = HeaderMap::new();
        v4.insert(header::AUTHORIZATION, "AWS4-HMAC-SHA256 Credential=a".parse().unwrap());
        assert!(check_sigv2(&mut plain, &v4, false, SKEW).is_ok());
        assert!(
            check_sigv2(&mut "/b?X-Amz-Signature=1&Expires=2".parse().unwrap(), &none, false, SKEW)
                .is_ok()
        );
    }

    #[test]
    fn an_old_request_is_not_good_for_ever() {
        let mut uri = Uri::from_static("/b/k");
        let now = OffsetDateTime::now_utc();
        for name in ["date", "x-amz-date"] {
            assert!(check_sigv2(&mut uri, &dated(name, now), true, SKEW).is_ok(), "{name}");
            for wrong in [now - Duration::seconds(1000), now + Duration::seconds(1000)] {
                let error = check_sigv2(&mut uri, &dated(name, wrong), true, SKEW).unwrap_err();
                assert_eq!(*error.code(), S3ErrorCode::RequestTimeTooSkewed, "{name}");
            }
        }
        let mut headers = dated("date", now);
        headers.remove("date");
        assert_eq!(
            *check_sigv2(&mut uri, &headers, true, SKEW).unwrap_err().code(),
            S3ErrorCode::AccessDenied
        );
        assert_eq!(
            parse_moment("Tue, 27 Mar 2007 19:36:42 +0000"),
            parse_moment("Tue, 27 Mar 2007 19:36:42 GMT")
        );
        assert!(parse_moment("Tue, 27 Mar 2007 19:36:42 +0000").is_some());
    }

    #[test]
    fn what_version_2_leaves_unsigned_is_refused() {
        let refused = |query: &str, headers: &HeaderMap| {
            let mut uri: Uri =
                format!("/b/k?AWSAccessKeyId=a&Expires=1&Signature=b{query}").parse().unwrap();
            check_sigv2(&mut uri, headers, true, SKEW).is_err()
        };
        let none = HeaderMap::new();
        for query in [
            "&legal-hold",
            "&retention=",
            "&%65ncryption",
            "&acl&acl",
            "&acl&%61cl=",
            "&policy&x&policy=1",
        ] {
            assert!(refused(query, &none), "{query}");
        }
        for query in [
            "",
            "&acl",
            "&versionId=1",
            "&prefix=legal-hold",
            "&uploadId=1&partNumber=2",
            "&response-expires=a",
        ] {
            assert!(!refused(query, &none), "{query}");
        }
        let mut headers = HeaderMap::new();
        headers.append(header::CONTENT_TYPE, "a/b".parse().unwrap());
        assert!(!refused("", &headers));
        headers.append(header::CONTENT_TYPE, "c/d".parse().unwrap());
        assert!(refused("", &headers));
        let mut by_header = dated("date", OffsetDateTime::now_utc());
        assert!(
            check_sigv2(&mut Uri::from_static("/b/k?retention"), &by_header, true, SKEW).is_err()
        );
        by_header.append("date", by_header["date"].clone());
        assert!(check_sigv2(&mut Uri::from_static("/b/k"), &by_header, true, SKEW).is_err());
    }

    #[test]
    fn buckets_are_signed_with_a_slash() {
        for (sent, signed) in [
            ("/b?Signature=x&acl", "/b/?Signature=x&acl"),
            ("/b/?Signature=x", "/b/?Signature=x"),
            ("/b/k?Signature=x", "/b/k?Signature=x"),
            ("/?Signature=x", "/?Signature=x"),
            ("http://h:1/b?Signature=x", "http://h:1/b/?Signature=x"),
        ] {
            let mut uri: Uri = sent.parse().unwrap();
            check_sigv2(&mut uri, &HeaderMap::new(), true, SKEW).unwrap();
            assert_eq!(uri, signed);
        }
        let mut unsigned = Uri::from_static("/b?acl");
        check_sigv2(&mut unsigned, &HeaderMap::new(), true, SKEW).unwrap();
        assert_eq!(unsigned, "/b?acl");
    }
}

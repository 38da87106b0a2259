//! Signature version 2: whether it is taken at all, and what s3s does not check of it. Verifies no signature.

use http::{HeaderMap, Uri, header};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result};
use time::{Duration, OffsetDateTime};

/// S3's answer in every region that has come up since 2014.
pub(super) fn allowed(enabled: bool) -> S3Result<()> {
    if enabled {
        return Ok(());
    }
    let message = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256. (gateway.sigv2 is off.)";
    Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message))
}

/// Refuses a request that is signed so, where it is not taken or its clock is off; puts the path of others as clients sign it.
/// Forms are seen to where they are read.
pub(super) fn check(uri: &mut Uri, headers: &HeaderMap, enabled: bool, skew_max: std::time::Duration) -> S3Result<()> {
    let mut parameters = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split('=').next());
    if parameters.any(|name| matches!(name, "Signature" | "AWSAccessKeyId")) {
        allowed(enabled)?;
        return as_signed(uri);
    }
    let by_header = headers.get_all(header::AUTHORIZATION).iter().any(|value| value.as_bytes().starts_with(b"AWS "));
    if !by_header {
        return Ok(());
    }
    allowed(enabled)?;
    // A URL has an end; a signed request without one would be good for ever.
    let date = headers.get("x-amz-date").or_else(|| headers.get(header::DATE)).and_then(|date| date.to_str().ok());
    let Some(date) = date.and_then(moment) else {
        let message = "AWS authentication requires a valid Date or x-amz-date header";
        return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
    };
    if (OffsetDateTime::now_utc() - date).abs() > Duration::try_from(skew_max).unwrap_or(Duration::MAX) {
        let message = "The difference between the request time and the current time is too large.";
        return Err(S3Error::with_message(S3ErrorCode::RequestTimeTooSkewed, message));
    }
    as_signed(uri)
}

/// A bucket's path is signed with a slash at its end, also where it is sent without: so do botocore (`authPath`), s3cmd and the
/// SDK for Java. s3s signs what was sent.
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

/// `Tue, 27 Mar 2007 19:36:42 GMT`, or with `+0000`, as clients of that time write it.
fn moment(text: &str) -> Option<OffsetDateTime> {
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
        for query in ["/b/k?AWSAccessKeyId=a&Expires=1&Signature=b", "/b/k?x=1&Signature="] {
            let error = check(&mut query.parse().unwrap(), &none, false, SKEW).unwrap_err();
            assert_eq!(*error.code(), S3ErrorCode::InvalidRequest);
            assert!(check(&mut query.parse().unwrap(), &none, true, SKEW).is_ok());
        }
        assert!(check(&mut plain, &dated("date", OffsetDateTime::now_utc()), false, SKEW).is_err());
        let mut v4 = HeaderMap::new();
        v4.insert(header::AUTHORIZATION, "AWS4-HMAC-SHA256 Credential=a".parse().unwrap());
        assert!(check(&mut plain, &v4, false, SKEW).is_ok());
        assert!(check(&mut "/b?X-Amz-Signature=1&Expires=2".parse().unwrap(), &none, false, SKEW).is_ok());
    }

    #[test]
    fn an_old_request_is_not_good_for_ever() {
        let mut uri = Uri::from_static("/b/k");
        let now = OffsetDateTime::now_utc();
        for name in ["date", "x-amz-date"] {
            assert!(check(&mut uri, &dated(name, now), true, SKEW).is_ok(), "{name}");
            for wrong in [now - Duration::seconds(1000), now + Duration::seconds(1000)] {
                let error = check(&mut uri, &dated(name, wrong), true, SKEW).unwrap_err();
                assert_eq!(*error.code(), S3ErrorCode::RequestTimeTooSkewed, "{name}");
            }
        }
        let mut headers = dated("date", now);
        headers.remove("date");
        assert_eq!(*check(&mut uri, &headers, true, SKEW).unwrap_err().code(), S3ErrorCode::AccessDenied);
        assert_eq!(moment("Tue, 27 Mar 2007 19:36:42 +0000"), moment("Tue, 27 Mar 2007 19:36:42 GMT"));
        assert!(moment("Tue, 27 Mar 2007 19:36:42 +0000").is_some());
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
            check(&mut uri, &HeaderMap::new(), true, SKEW).unwrap();
            assert_eq!(uri, signed);
        }
        let mut unsigned = Uri::from_static("/b?acl");
        check(&mut unsigned, &HeaderMap::new(), true, SKEW).unwrap();
        assert_eq!(unsigned, "/b?acl");
    }
}

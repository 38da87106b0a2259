//! Handles headers of reads that S3 ignores when they make no sense: `Range`, `If-Modified-Since`,
//! `If-Unmodified-Since`. s3s refuses the whole request instead. The client may have signed them,
//! so they can't be removed before s3s. Owns the workaround: such a request is taken out of s3s
//! after its signature is verified, mended, and given to s3s again.

use std::sync::Arc;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, RANGE};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use s3s::dto::{Range, Timestamp, TimestampFormat};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::signed_url;
use crate::auth::IdentityStore;
use crate::http_exchange::HttpExchange;
use crate::s3_errors::access_denied;

/// A function that reads the value of a header.
type HeaderValueReader = fn(&str) -> HeaderTreatment;

/// The headers, and the reader of each.
const HEADERS: [(HeaderName, HeaderValueReader); 3] =
    [(RANGE, treat_range), (IF_MODIFIED_SINCE, treat_date), (IF_UNMODIFIED_SINCE, treat_date)];

/// What to do with a header.
#[derive(Debug, PartialEq, Eq)]
enum HeaderTreatment {
    /// Keep it: s3s reads it as S3 does.
    Plain,
    /// Rewrite it: it makes sense, but not to s3s.
    Rewritten(String),
    /// Drop it: S3 ignores it.
    Ignored,
}

/// A route that mends such requests and calls s3s again.
pub(crate) struct LenientRoute {
    /// s3s over the same operations.
    pub inner: S3Service,
    pub identities: Arc<IdentityStore>,
}

#[async_trait]
impl S3Route for LenientRoute {
    fn is_match(&self, method: &Method, _: &Uri, headers: &HeaderMap, _: &mut Extensions) -> bool {
        let reads = *method == Method::GET || *method == Method::HEAD;
        reads
            && HEADERS
                .iter()
                .any(|(name, read)| treat_header(headers, name, *read) != HeaderTreatment::Plain)
    }

    /// Notes who has signed, because the mended request does not say so. An unsigned request is
    /// refused later, like any other.
    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        let exchange = request.extensions.get::<Arc<HttpExchange>>().ok_or_else(access_denied)?;
        let signed = request.credentials.as_ref();
        if let Some(identity) = signed.and_then(|signed| self.identities.get(&signed.access_key)) {
            exchange.admit_identity(identity).await?;
        }
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let S3Request { input, method, uri, mut headers, extensions, .. } = request;
        mend_headers(&mut headers);
        headers.remove(AUTHORIZATION);
        let mut mended = Request::new(input);
        *mended.method_mut() = method;
        *mended.uri_mut() = signed_url::strip_signature(&uri)?;
        *mended.headers_mut() = headers;
        *mended.extensions_mut() = extensions;
        let answered = self.inner.call(mended).await;
        let answer = answered
            .map_err(|error| S3Error::with_source(S3ErrorCode::InternalError, error.into()))?;
        let (parts, body) = answer.into_parts();
        let mut response = S3Response::with_headers(body, parts.headers);
        response.status = Some(parts.status);
        response.extensions = parts.extensions;
        Ok(response)
    }
}

pub(super) fn mend_headers(headers: &mut HeaderMap) {
    for (name, read) in HEADERS {
        match treat_header(headers, &name, read) {
            HeaderTreatment::Plain => {}
            HeaderTreatment::Ignored => {
                headers.remove(name);
            }
            HeaderTreatment::Rewritten(text) => {
                let value =
                    HeaderValue::try_from(text).expect("numbers and dates are header values");
                headers.insert(name, value);
            }
        }
    }
}

/// Decides what to do with a header. One that comes twice reads as a list (RFC 9110, 5.3), which
/// none of these may be.
fn treat_header(
    headers: &HeaderMap,
    name: &HeaderName,
    read: fn(&str) -> HeaderTreatment,
) -> HeaderTreatment {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => HeaderTreatment::Plain,
        (Some(value), None) => value.to_str().map_or(HeaderTreatment::Ignored, read),
        (Some(_), Some(_)) => HeaderTreatment::Ignored,
    }
}

/// Largest number that s3s accepts. No object is as long.
const POSITION_MAX: u64 = i64::MAX as u64;

/// Reads a range (RFC 9110 section 14.1.2). S3 answers one range, and ignores several (S3
/// reference, GetObject, "Range").
fn treat_range(text: &str) -> HeaderTreatment {
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|spec| spec.split_once('-'))
    else {
        return HeaderTreatment::Ignored;
    };
    if [first, last].iter().any(|number| number.bytes().any(|byte| !byte.is_ascii_digit())) {
        return HeaderTreatment::Ignored;
    }
    let number = |digits: &str| (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX));
    let in_bounds = |number: Option<u64>| number.is_none_or(|number| number <= POSITION_MAX);
    match (number(first), number(last)) {
        (None, None) => HeaderTreatment::Ignored,
        (Some(first), Some(last)) if first > last => HeaderTreatment::Ignored,
        (first, last) if in_bounds(first) && in_bounds(last) => HeaderTreatment::Plain,
        (first, last) => {
            let text = |number: Option<u64>| {
                number.map_or_else(String::new, |number| number.min(POSITION_MAX).to_string())
            };
            HeaderTreatment::Rewritten(format!("bytes={}-{}", text(first), text(last)))
        }
    }
}

/// Reads a range that s3s reads as S3 does. `None`: it is none, or needs to be mended.
pub(crate) fn plain_range(value: &HeaderValue) -> Option<Range> {
    let text = value.to_str().ok()?;
    if treat_range(text) != HeaderTreatment::Plain {
        return None;
    }
    Range::parse(text).ok()
}

/// Reads a date (RFC 9110 section 5.6.7): one form that senders use, and two old ones that
/// recipients have to accept.
fn treat_date(text: &str) -> HeaderTreatment {
    if Timestamp::parse(TimestampFormat::HttpDate, text).is_ok() {
        return HeaderTreatment::Plain;
    }
    match httpdate::parse_http_date(text) {
        Ok(moment) => HeaderTreatment::Rewritten(httpdate::fmt_http_date(moment)),
        Err(_) => HeaderTreatment::Ignored,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_range_passes_and_what_is_none_is_ignored() {
        for plain in [
            "bytes=0-0",
            "bytes=5-",
            "bytes=-5",
            "bytes=-0",
            "bytes=007-8",
            "bytes=0-9223372036854775807",
        ] {
            assert_eq!(treat_range(plain), HeaderTreatment::Plain, "{plain}");
            assert!(s3s::dto::Range::parse(plain).is_ok(), "{plain}");
        }
        for ignored in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=--5",
            "bytes=+1-2",
            "bytes 0-5",
            "octets=0-5",
            "0-5",
            "bytes=0-1,5-6",
            "bytes=0-0, -1",
            "bytes=1-2-3",
            "bytes=٣-4",
        ] {
            assert_eq!(treat_range(ignored), HeaderTreatment::Ignored, "{ignored}");
        }
    }

    #[test]
    fn numbers_that_s3s_can_not_count_are_cut_to_those_it_can() {
        let huge = "99999999999999999999999";
        for (given, wanted) in [
            (format!("bytes=1-{huge}"), "bytes=1-9223372036854775807"),
            (format!("bytes={huge}-"), "bytes=9223372036854775807-"),
            (format!("bytes=-{huge}"), "bytes=-9223372036854775807"),
        ] {
            assert_eq!(treat_range(&given), HeaderTreatment::Rewritten(wanted.to_owned()));
            assert!(s3s::dto::Range::parse(wanted).is_ok(), "{wanted}");
        }
    }

    #[test]
    fn dates_of_all_three_forms_are_read_and_others_are_ignored() {
        let same = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(treat_date(same), HeaderTreatment::Plain);
        for old in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(treat_date(old), HeaderTreatment::Rewritten(same.to_owned()), "{old}");
        }
        for none in ["yesterday", "", "1994-11-06T08:49:37Z"] {
            assert_eq!(treat_date(none), HeaderTreatment::Ignored, "{none}");
        }
    }

    #[test]
    fn mending_leaves_nothing_to_mend() {
        let mut headers = HeaderMap::new();
        headers.append(RANGE, HeaderValue::from_static("bytes=0-1"));
        headers.append(RANGE, HeaderValue::from_static("bytes=3-4"));
        headers.append(IF_MODIFIED_SINCE, HeaderValue::from_static("Sun Nov  6 08:49:37 1994"));
        headers.append(IF_UNMODIFIED_SINCE, HeaderValue::from_bytes(b"\xff").unwrap());
        mend_headers(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), [IF_MODIFIED_SINCE]);
        assert!(
            HEADERS
                .iter()
                .all(|(name, read)| treat_header(&headers, name, *read) == HeaderTreatment::Plain)
        );
    }
}

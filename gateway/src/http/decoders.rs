//! Entry points for fuzzing, see `crate::decoders`.

use bytes::Bytes;
use http::header::{AUTHORIZATION, RANGE};
use http::{HeaderMap, HeaderValue, Uri};

use super::form::decoders::read;
use super::{lenient_headers, signed_url, sigv2_demands, sigv4_demands};

/// Reads a form upload, and checks it against its policy.
pub fn decode_form(bytes: &[u8]) {
    read(&Bytes::copy_from_slice(bytes), "boundary");
}

/// Reads a request's target, and the Authorization header after the first line's end.
pub fn decode_signatures(bytes: &[u8]) {
    let (target, header) =
        bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len()));
    let Ok(uri) = Uri::try_from(target) else { return };
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(header.get(1..).unwrap_or_default()) {
        headers.insert("x-amz-date", value.clone());
        headers.insert(AUTHORIZATION, value);
    }
    // A refusal is fine. But nothing may panic, and a URL without its signature must stay a URL.
    let _ = signed_url::check_expiry(&uri);
    let _ = sigv4_demands::check_coverage(&uri, &headers);
    if let Ok(unsigned) = signed_url::strip_signature(&uri) {
        assert_eq!(unsigned.path(), uri.path());
    }
    for enabled in [false, true] {
        let mut mended = uri.clone();
        let _ = sigv2_demands::check_sigv2(
            &mut mended,
            &headers,
            enabled,
            std::time::Duration::from_secs(900),
        );
    }
}

/// Mends `Range` and the dates of conditions. Mended headers must need no more mending.
pub fn decode_lenient_headers(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let mut headers = HeaderMap::new();
    for name in [RANGE, http::header::IF_MODIFIED_SINCE, http::header::IF_UNMODIFIED_SINCE] {
        headers.insert(name, value.clone());
    }
    lenient_headers::mend_headers(&mut headers);
    let once = headers.clone();
    lenient_headers::mend_headers(&mut headers);
    assert_eq!(once, headers, "mended twice");
}

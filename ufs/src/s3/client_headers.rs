//! Owns the choice of a client's headers that the typed input loses or changes, but that the store
//! must get. These are metadata that is not plain ASCII, checksums of algorithms that the typed
//! input has no field for, and the announcement of a checksum.
//!
//! Decides nothing about rights, so no header here can change one.

use std::borrow::Cow;

use http::HeaderMap;

use super::answer_interceptor::ExtraHeaders;

/// Checksums that neither s3s nor `s3s_aws` know. The caller checked their values, or the store
/// must.
const CHECKSUMS: [&str; 5] = [
    "x-amz-checksum-md5",
    "x-amz-checksum-sha512",
    "x-amz-checksum-xxhash3",
    "x-amz-checksum-xxhash64",
    "x-amz-checksum-xxhash128",
];

/// Returns metadata as the client wrote it. s3s decodes encoded words (RFC 2047), so the store
/// would keep and answer other bytes.
pub(super) fn metadata_headers(headers: &HeaderMap) -> ExtraHeaders {
    let written = headers.iter().filter(|(name, _)| name.as_str().starts_with("x-amz-meta-"));
    let written = written
        .filter_map(|(name, value)| Some((name, std::str::from_utf8(value.as_bytes()).ok()?)));
    written
        .filter(|(_, value)| !value.is_ascii() || value.contains("=?"))
        .map(|(name, value)| (Cow::from(name.as_str().to_owned()), value.to_owned()))
        .collect()
}

/// Returns the headers that go with the checksums of an upload. `known` says that the typed input
/// has one. Ceph RGW 20.2 keeps a checksum only if `x-amz-sdk-checksum-algorithm` comes with it.
/// The SDK sets that header only for checksums that it computes.
pub(super) fn checksum_headers(headers: &HeaderMap, known: bool) -> ExtraHeaders {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut passed: ExtraHeaders =
        CHECKSUMS.iter().filter_map(|&name| Some((Cow::from(name), text(name)?))).collect();
    if (known || !passed.is_empty())
        && let Some(algorithm) = text("x-amz-sdk-checksum-algorithm")
    {
        passed.push(("x-amz-sdk-checksum-algorithm".into(), algorithm));
    }
    passed
}

/// Returns a part's content type, which the typed input has no field for. Without one the SDK sends
/// application/octet-stream. Ceph RGW 20.2 keeps a part's type for reads of that part.
pub(super) fn part_type_header(headers: &HeaderMap) -> (Cow<'static, str>, String) {
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    ("content-type".into(), kind.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::HeaderValue;

    use super::*;

    fn map(pairs: &[(&'static str, &'static [u8])]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_bytes(value).unwrap()))
            .collect()
    }

    #[test]
    fn metadata_outside_ascii_is_sent_as_it_was_written() {
        let headers = map(&[
            ("x-amz-meta-plain", b"a b"),
            ("x-amz-meta-raw", "é".as_bytes()),
            ("x-amz-meta-word", b"=?UTF-8?B?w6k=?="),
            ("x-amz-acl", "é".as_bytes()),
        ]);
        let mut passed = metadata_headers(&headers);
        passed.sort();
        let wanted = [("x-amz-meta-raw", "é"), ("x-amz-meta-word", "=?UTF-8?B?w6k=?=")];
        assert_eq!(passed, wanted.map(|(name, value)| (name.into(), value.to_owned())));
    }

    #[test]
    fn an_algorithm_goes_only_with_a_checksum() {
        let named = map(&[("x-amz-sdk-checksum-algorithm", b"CRC32")]);
        assert!(checksum_headers(&named, false).is_empty());
        assert_eq!(
            checksum_headers(&named, true),
            [("x-amz-sdk-checksum-algorithm".into(), "CRC32".to_owned())]
        );
        let other =
            map(&[("x-amz-sdk-checksum-algorithm", b"SHA512"), ("x-amz-checksum-sha512", b"AA==")]);
        assert_eq!(checksum_headers(&other, false).len(), 2);
    }
}

//! Owns the headers of a GET or HEAD answer. They are made from the typed output where the store is
//! local. They are cut down to those that describe the object's version. Every header that S3 sends
//! for an object is named here once.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use s3s::dto::{ETag, GetObjectOutput, HeadObjectOutput, Metadata, Timestamp, TimestampFormat};

/// Headers of one answer or one connection, not of the object's version. The last four could send a
/// client past the gateway, or one client's session to another.
const NOT_REPRESENTATION: [&str; 24] = [
    "accept-ranges",
    "age",
    "connection",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-amz-id-2",
    "x-amz-mp-parts-count",
    "x-amz-request-charged",
    "x-amz-request-id",
    "alt-svc",
    "location",
    "set-cookie",
    "strict-transport-security",
];

/// Hop-by-hop headers (RFC 9110 §7.6.1). They concern one connection, also in errors.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Removes hop-by-hop headers, and those that `Connection` declares to be such.
pub(crate) fn without_hop_by_hop(mut headers: HeaderMap) -> HeaderMap {
    let declared: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in declared {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}

/// Keeps the headers that describe the object's version: see [`crate::ObjectHead::headers`].
/// `whole` says that the answer carries all of the object.
pub(crate) fn representation_headers(headers: HeaderMap, whole: bool) -> HeaderMap {
    let mut headers = without_hop_by_hop(headers);
    for name in NOT_REPRESENTATION {
        headers.remove(name);
    }
    // A range that matches a part of a multipart object is answered with that part's checksum. It
    // would be taken for the object's: S3 reference, GetObject, "checksum of the part" for aligned
    // ranges.
    if !whole || is_part_checksum(&headers) {
        let checksums: Vec<HeaderName> = headers
            .keys()
            .filter(|name| name.as_str().starts_with("x-amz-checksum-"))
            .cloned()
            .collect();
        for name in checksums {
            headers.remove(name);
        }
    }
    if !whole {
        headers.remove("content-md5");
    }
    headers
}

/// Returns true for a single part's checksum. A composite checksum reads `VALUE-PARTS`; one without
/// the number is that of a part.
fn is_part_checksum(headers: &HeaderMap) -> bool {
    let composite = headers.get("x-amz-checksum-type").is_some_and(|kind| kind == "COMPOSITE");
    composite
        && headers
            .iter()
            .filter(|(name, _)| {
                name.as_str().starts_with("x-amz-checksum-")
                    && name.as_str() != "x-amz-checksum-type"
            })
            .any(|(_, value)| !value.as_bytes().contains(&b'-'))
}

/// A collector of headers from typed fields. It leaves out a value that can't be a header (a local
/// store let one in). An answer without it beats no answer.
struct HeaderCollector(HeaderMap);

impl HeaderCollector {
    fn add_text(&mut self, name: &'static str, value: Option<&str>) {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            self.0.insert(HeaderName::from_static(name), value);
        }
    }

    fn add_number(&mut self, name: &'static str, value: Option<impl Into<HeaderValue>>) {
        if let Some(value) = value {
            self.0.insert(HeaderName::from_static(name), value.into());
        }
    }

    fn add_bool(&mut self, name: &'static str, value: Option<bool>) {
        self.add_text(name, value.map(|value| if value { "true" } else { "false" }));
    }

    fn add_time(&mut self, name: &'static str, value: Option<&Timestamp>, format: TimestampFormat) {
        let mut text = Vec::new();
        if value.is_some_and(|value| value.format(format, &mut text).is_ok()) {
            self.add_text(name, std::str::from_utf8(&text).ok());
        }
    }

    fn add_etag(&mut self, value: Option<&ETag>) {
        let text = value.map(|etag| match etag {
            ETag::Strong(value) => format!("\"{value}\""),
            ETag::Weak(value) => format!("W/\"{value}\""),
        });
        self.add_text("etag", text.as_deref());
    }

    fn add_metadata(&mut self, metadata: Option<&Metadata>) {
        for (key, value) in metadata.into_iter().flatten() {
            let name = HeaderName::from_bytes(format!("x-amz-meta-{key}").as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&metadata_value(value))) {
                self.0.insert(name, value);
            }
        }
    }
}

/// Encodes metadata like S3. Metadata outside ASCII becomes RFC 2047 words of at most 75
/// characters, so of 45 bytes of text each.
fn metadata_value(value: &str) -> String {
    if value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return value.to_owned();
    }
    let mut words = Vec::new();
    let mut rest = value;
    while !rest.is_empty() {
        let mut end = rest.len().min(45);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        words.push(format!("=?UTF-8?B?{}?=", STANDARD.encode(&rest[..end])));
        rest = &rest[end..];
    }
    words.join(" ")
}

/// Collects the fields that GetObjectOutput and HeadObjectOutput share. They have the same names
/// there, but no common type.
macro_rules! common_fields {
    ($output:ident, $headers:ident) => {
        $headers.add_text("accept-ranges", $output.accept_ranges.as_deref());
        $headers.add_bool(
            "x-amz-server-side-encryption-bucket-key-enabled",
            $output.bucket_key_enabled,
        );
        $headers.add_text("cache-control", $output.cache_control.as_deref());
        $headers.add_text("x-amz-checksum-crc32", $output.checksum_crc32.as_deref());
        $headers.add_text("x-amz-checksum-crc32c", $output.checksum_crc32c.as_deref());
        $headers.add_text("x-amz-checksum-crc64nvme", $output.checksum_crc64nvme.as_deref());
        $headers.add_text("x-amz-checksum-sha1", $output.checksum_sha1.as_deref());
        $headers.add_text("x-amz-checksum-sha256", $output.checksum_sha256.as_deref());
        $headers
            .add_text("x-amz-checksum-type", $output.checksum_type.as_ref().map(|v| v.as_str()));
        $headers.add_text("content-disposition", $output.content_disposition.as_deref());
        $headers.add_text("content-encoding", $output.content_encoding.as_deref());
        $headers.add_text("content-language", $output.content_language.as_deref());
        $headers.add_number("content-length", $output.content_length);
        $headers.add_text("content-range", $output.content_range.as_deref());
        $headers.add_text("content-type", $output.content_type.as_deref());
        $headers.add_bool("x-amz-delete-marker", $output.delete_marker);
        $headers.add_etag($output.e_tag.as_ref());
        $headers.add_text("x-amz-expiration", $output.expiration.as_deref());
        $headers.add_time("expires", $output.expires.as_ref(), TimestampFormat::HttpDate);
        $headers.add_time(
            "last-modified",
            $output.last_modified.as_ref(),
            TimestampFormat::HttpDate,
        );
        $headers.add_metadata($output.metadata.as_ref());
        $headers.add_number("x-amz-missing-meta", $output.missing_meta);
        let hold = $output.object_lock_legal_hold_status.as_ref();
        $headers.add_text("x-amz-object-lock-legal-hold", hold.map(|v| v.as_str()));
        $headers.add_text(
            "x-amz-object-lock-mode",
            $output.object_lock_mode.as_ref().map(|v| v.as_str()),
        );
        let until = $output.object_lock_retain_until_date.as_ref();
        $headers.add_time("x-amz-object-lock-retain-until-date", until, TimestampFormat::DateTime);
        $headers.add_number("x-amz-mp-parts-count", $output.parts_count);
        $headers.add_text(
            "x-amz-replication-status",
            $output.replication_status.as_ref().map(|v| v.as_str()),
        );
        $headers.add_text(
            "x-amz-request-charged",
            $output.request_charged.as_ref().map(|v| v.as_str()),
        );
        $headers.add_text("x-amz-restore", $output.restore.as_deref());
        let algorithm = $output.sse_customer_algorithm.as_deref();
        $headers.add_text("x-amz-server-side-encryption-customer-algorithm", algorithm);
        $headers.add_text(
            "x-amz-server-side-encryption-customer-key-md5",
            $output.sse_customer_key_md5.as_deref(),
        );
        $headers.add_text(
            "x-amz-server-side-encryption-aws-kms-key-id",
            $output.ssekms_key_id.as_deref(),
        );
        $headers.add_text(
            "x-amz-server-side-encryption",
            $output.server_side_encryption.as_ref().map(|v| v.as_str()),
        );
        $headers
            .add_text("x-amz-storage-class", $output.storage_class.as_ref().map(|v| v.as_str()));
        $headers.add_text("x-amz-version-id", $output.version_id.as_deref());
        $headers.add_text(
            "x-amz-website-redirect-location",
            $output.website_redirect_location.as_deref(),
        );
    };
}

/// Returns the headers of a GET's typed output.
pub fn of_get(output: &GetObjectOutput) -> HeaderMap {
    let mut headers = HeaderCollector(HeaderMap::new());
    common_fields!(output, headers);
    headers.add_number("x-amz-tagging-count", output.tag_count);
    headers.0
}

/// Returns the headers of a HEAD's typed output.
pub fn of_head(output: &HeadObjectOutput) -> HeaderMap {
    let mut headers = HeaderCollector(HeaderMap::new());
    common_fields!(output, headers);
    headers.add_text("x-amz-archive-status", output.archive_status.as_ref().map(|v| v.as_str()));
    headers.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v)))
            .collect()
    }

    #[test]
    fn representation_drops_only_headers_of_one_answer() {
        let kept = representation_headers(
            map(&[
                ("etag", "\"a\""),
                ("x-vendor-thing", "1"),
                ("date", "today"),
                ("connection", "close, x-hop"),
                ("x-hop", "1"),
                ("set-cookie", "a=b"),
                ("x-amz-request-id", "1"),
                ("content-range", "bytes 0-1/2"),
            ]),
            true,
        );
        assert_eq!(kept, map(&[("etag", "\"a\""), ("x-vendor-thing", "1")]));
    }

    #[test]
    fn a_ranges_checksum_is_not_taken_for_the_objects() {
        let sent = map(&[("x-amz-checksum-crc32", "AAAA"), ("x-amz-checksum-type", "FULL_OBJECT")]);
        assert_eq!(representation_headers(sent.clone(), true), sent);
        assert!(representation_headers(sent, false).is_empty());
        let part = map(&[("x-amz-checksum-crc32", "AAAA"), ("x-amz-checksum-type", "COMPOSITE")]);
        assert!(representation_headers(part, true).is_empty());
        let whole =
            map(&[("x-amz-checksum-crc32", "AAAA-2"), ("x-amz-checksum-type", "COMPOSITE")]);
        assert_eq!(representation_headers(whole.clone(), true), whole);
    }

    #[test]
    fn a_weak_etag_stays_weak() {
        let output = GetObjectOutput { e_tag: Some(ETag::Weak("a".into())), ..Default::default() };
        assert_eq!(of_get(&output)["etag"], "W/\"a\"");
    }

    #[test]
    fn metadata_outside_ascii_is_sent_in_words() {
        let value = "é".repeat(40);
        let metadata = Metadata::from_iter([
            ("note".to_owned(), value),
            ("plain".to_owned(), "a b".to_owned()),
        ]);
        let output = HeadObjectOutput { metadata: Some(metadata), ..Default::default() };
        let headers = of_head(&output);
        let words: Vec<&str> = headers["x-amz-meta-note"].to_str().unwrap().split(' ').collect();
        assert_eq!(words.len(), 2);
        let text: String = words
            .iter()
            .map(|word| {
                assert!(word.len() <= 75);
                let inner = word.strip_prefix("=?UTF-8?B?").unwrap().strip_suffix("?=").unwrap();
                String::from_utf8(STANDARD.decode(inner).unwrap()).unwrap()
            })
            .collect();
        assert_eq!(text, "é".repeat(40));
        assert_eq!(headers["x-amz-meta-plain"], "a b");
    }
}

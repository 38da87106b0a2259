//! Decides which answers of a UFS name a cacheable version, and which attributes are kept of them.
//! Pure.

use verbs3_protocol::{ContentVersion, HeadAttributes, is_strong_etag};
use verbs3_ufs::{ObjectHead, RawAnswer};

/// The reason why an object is not cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UncacheableError {
    #[error("the ufs sent no etag")]
    NoETag,
    #[error("the ufs sent a weak etag")]
    WeakETag,
    #[error("the ufs sent an etag that is not a quoted string")]
    BareETag,
    #[error("the object is encrypted with a client's key")]
    ClientKey,
    #[error("a version was named, and the ufs did not say that it answered with that one")]
    OtherVersion,
}

/// Returns the version that the answer names, if it can be cached.
pub(super) fn cacheable_version(
    head: &ObjectHead,
    named: Option<&str>,
) -> Result<ContentVersion, UncacheableError> {
    let etag = head.etag.as_deref().unwrap_or_default().trim();
    if etag.is_empty() || etag == "\"\"" {
        return Err(UncacheableError::NoETag);
    }
    if etag.starts_with("W/") {
        return Err(UncacheableError::WeakETag);
    }
    if !is_strong_etag(etag) {
        return Err(UncacheableError::BareETag);
    }
    if head.headers.contains_key("x-amz-server-side-encryption-customer-algorithm") {
        return Err(UncacheableError::ClientKey);
    }
    // `null` names no version: a suspended bucket overwrites it again and again.
    let version_id = head.version_id.clone().filter(|id| id != "null");
    if named.is_some() && named != version_id.as_deref() {
        return Err(UncacheableError::OtherVersion);
    }
    Ok(ContentVersion { etag: etag.into(), bytes: head.bytes, version_id })
}

/// Returns whether a 404 says that the key, or the version, is missing. Only such an absence may be
/// cached. A missing bucket says nothing of its keys, and an answer without a code could mean
/// either.
pub(super) fn names_an_absence(raw: &RawAnswer) -> bool {
    // A delete marker comes and goes by version ids, which no key's announcement names.
    if raw.status.as_u16() != 404 || is_delete_marker(raw) {
        return false;
    }
    matches!(error_code(&raw.body), Some("NoSuchKey" | "NoSuchVersion"))
}

pub(super) fn is_delete_marker(raw: &RawAnswer) -> bool {
    raw.headers.contains_key("x-amz-delete-marker")
}

/// Returns the content of an error document's first `Code` element.
fn error_code(body: &[u8]) -> Option<&str> {
    let body = std::str::from_utf8(body).ok()?;
    let (_, rest) = body.split_once("<Code>")?;
    rest.split_once("</Code>").map(|(code, _)| code.trim())
}

/// Builds the attributes that are kept of an answer. `trusted`: its checksums, or their absence,
/// are the object's.
pub(super) fn build_attributes(
    head: &ObjectHead,
    version: ContentVersion,
    trusted: bool,
) -> HeadAttributes {
    let headers = head
        .headers
        .iter()
        .filter(|(name, _)| trusted || !is_checksum(name.as_str()))
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect();
    HeadAttributes { version, last_modified: head.last_modified, headers, checksums_known: trusted }
}

/// Adds to `got` the checksums of a HEAD of the same version. Returns `None` if the metadata
/// changed between the two.
pub(super) fn with_checksums(got: HeadAttributes, head: &ObjectHead) -> Option<HeadAttributes> {
    if matches!((got.last_modified, head.last_modified), (Some(got), Some(now)) if got != now) {
        return None;
    }
    let mut headers = got.headers;
    headers.retain(|(name, _)| !is_checksum(name));
    let checksums = head.headers.iter().filter(|(name, _)| is_checksum(name.as_str()));
    headers.extend(
        checksums.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())),
    );
    Some(HeadAttributes { headers, checksums_known: true, ..got })
}

/// Returns whether a ranged answer carries the checksums of the whole object and not of a part. It
/// does if it covers the whole object, and if that was stored in one piece.
pub(super) fn has_own_checksums(head: &ObjectHead, covers_all: bool) -> bool {
    let in_one_piece = head.etag.as_deref().is_some_and(|etag| !etag.contains('-'));
    covers_all && in_one_piece && head.headers.keys().any(|name| is_checksum(name.as_str()))
}

fn is_checksum(name: &str) -> bool {
    name.starts_with("x-amz-checksum-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::{HeaderMap, HeaderValue};

    fn head(etag: Option<&str>, version_id: Option<&str>) -> ObjectHead {
        ObjectHead {
            etag: etag.map(Into::into),
            bytes: 5,
            version_id: version_id.map(Into::into),
            last_modified: Some(1),
            headers: HeaderMap::new(),
        }
    }

    #[test]
    fn only_strong_etags_are_identity() {
        assert_eq!(cacheable_version(&head(None, None), None), Err(UncacheableError::NoETag));
        assert_eq!(cacheable_version(&head(Some(""), None), None), Err(UncacheableError::NoETag));
        assert_eq!(
            cacheable_version(&head(Some("W/\"x\""), None), None),
            Err(UncacheableError::WeakETag)
        );
        for bare in ["x", "\"", "\"x", "x\"", "\"x\"y\"", "w/\"x\""] {
            assert_eq!(
                cacheable_version(&head(Some(bare), None), None),
                Err(UncacheableError::BareETag),
                "{bare}"
            );
        }
        assert_eq!(cacheable_version(&head(Some("\"x\""), None), None).unwrap().etag, "\"x\"");
    }

    #[test]
    fn the_null_version_is_no_identity() {
        assert_eq!(
            cacheable_version(&head(Some("\"x\""), Some("null")), None).unwrap().version_id,
            None
        );
        assert_eq!(
            cacheable_version(&head(Some("\"x\""), Some("null")), Some("null")),
            Err(UncacheableError::OtherVersion)
        );
    }

    #[test]
    fn a_named_version_must_be_the_one_that_answers() {
        assert_eq!(
            cacheable_version(&head(Some("\"x\""), Some("b")), Some("a")),
            Err(UncacheableError::OtherVersion)
        );
        assert_eq!(
            cacheable_version(&head(Some("\"x\""), None), Some("a")),
            Err(UncacheableError::OtherVersion)
        );
        assert!(cacheable_version(&head(Some("\"x\""), Some("a")), Some("a")).is_ok());
    }

    #[test]
    fn only_a_missing_key_or_version_is_an_absence() {
        let raw = |status: u16, body: &'static str| RawAnswer {
            status: http::StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::from_static(body.as_bytes()),
        };
        assert!(names_an_absence(&raw(404, "<Error><Code>NoSuchKey</Code></Error>")));
        assert!(names_an_absence(&raw(404, "<Error>\n <Code>NoSuchVersion</Code></Error>")));
        assert!(!names_an_absence(&raw(404, "<Error><Code>NoSuchBucket</Code></Error>")));
        assert!(!names_an_absence(&raw(404, "")));
        assert!(!names_an_absence(&raw(404, "<html>NoSuchKey</html>")));
        assert!(!names_an_absence(&raw(403, "<Error><Code>NoSuchKey</Code></Error>")));
        let mut marker = raw(404, "<Error><Code>NoSuchKey</Code></Error>");
        marker.headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
        assert!(!names_an_absence(&marker));
    }

    #[test]
    fn a_client_key_is_not_cached() {
        let mut head = head(Some("\"x\""), None);
        head.headers.insert(
            "x-amz-server-side-encryption-customer-algorithm",
            HeaderValue::from_static("AES256"),
        );
        assert_eq!(cacheable_version(&head, None), Err(UncacheableError::ClientKey));
    }

    #[test]
    fn a_head_adds_its_checksums_to_what_a_get_has_said() {
        let with = |headers: &[(&'static str, &'static str)]| {
            let mut head = head(Some("\"x\""), None);
            head.headers.extend(headers.iter().map(|&(name, value)| {
                (http::HeaderName::from_static(name), HeaderValue::from_static(value))
            }));
            head
        };
        let get = with(&[("cache-control", "no-store"), ("x-amz-meta-a", "1")]);
        let got = build_attributes(&get, cacheable_version(&get, None).unwrap(), false);
        let mut head =
            with(&[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-meta-a", "2"), ("x-other", "3")]);
        let all = with_checksums(got.clone(), &head).unwrap();
        assert!(all.checksums_known);
        let mut names: Vec<(&str, &[u8])> =
            all.headers.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        names.sort();
        let wanted: [(&str, &[u8]); 3] = [
            ("cache-control", b"no-store"),
            ("x-amz-checksum-crc32", b"AAAAAA=="),
            ("x-amz-meta-a", b"1"),
        ];
        assert_eq!(names, wanted);
        head.last_modified = Some(2);
        assert!(with_checksums(got.clone(), &head).is_none(), "its metadata have changed");
        head.last_modified = None;
        assert!(with_checksums(got, &head).is_some());
    }

    #[test]
    fn checksums_of_a_part_are_not_kept_as_the_objects() {
        let mut head = head(Some("\"x-2\""), None);
        head.headers.insert("x-amz-checksum-crc32", HeaderValue::from_static("AAAAAA=="));
        assert!(!has_own_checksums(&head, true));
        let version = cacheable_version(&head, None).unwrap();
        let kept = build_attributes(&head, version, false);
        assert!(kept.headers.is_empty() && !kept.checksums_known);
        head.etag = Some("\"x\"".into());
        assert!(has_own_checksums(&head, true) && !has_own_checksums(&head, false));
    }
}

//! Decides which attributes are kept of a UFS's answers, and which absences. Pure.

use verbs3_protocol::{AnswerHeaders, ContentVersion, HeadAttributes, StatedVersion};
use verbs3_ufs::{ObjectHead, RawAnswer};

/// Returns what an answer says of its version.
pub(super) fn stated_version(head: &ObjectHead) -> StatedVersion<'_> {
    StatedVersion {
        etag: head.etag.as_deref(),
        bytes: head.bytes,
        version_id: head.version_id.as_deref(),
        has_client_key: head.has_client_key(),
    }
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
    let kept = fields_of(head).filter(|(name, _)| trusted || !is_checksum(name));
    let headers = AnswerHeaders::copy_fields(kept);
    HeadAttributes { version, last_modified: head.last_modified, headers, checksums_known: trusted }
}

/// Adds to `got` the checksums of a HEAD of the same version. Returns `None` if the metadata
/// changed between the two.
pub(super) fn with_checksums(got: HeadAttributes, head: &ObjectHead) -> Option<HeadAttributes> {
    if matches!((got.last_modified, head.last_modified), (Some(got), Some(now)) if got != now) {
        return None;
    }
    let others = got.headers.fields().filter(|(name, _)| !is_checksum(name));
    let checksums = fields_of(head).filter(|(name, _)| is_checksum(name));
    let headers = AnswerHeaders::copy_fields(others.chain(checksums));
    Some(HeadAttributes { headers, checksums_known: true, ..got })
}

fn fields_of(head: &ObjectHead) -> impl Iterator<Item = (&str, &[u8])> {
    head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
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
    fn a_version_is_stated_as_the_answer_has_it() {
        let mut head = head(Some("\"x\""), Some("v"));
        let stated = stated_version(&head);
        assert_eq!((stated.etag, stated.bytes), (Some("\"x\""), 5));
        assert_eq!((stated.version_id, stated.has_client_key), (Some("v"), false));
        head.headers.insert(
            "x-amz-server-side-encryption-customer-algorithm",
            HeaderValue::from_static("AES256"),
        );
        assert!(stated_version(&head).has_client_key);
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
        let got =
            build_attributes(&get, stated_version(&get).cacheable_version(None).unwrap(), false);
        let mut head =
            with(&[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-meta-a", "2"), ("x-other", "3")]);
        let all = with_checksums(got.clone(), &head).unwrap();
        assert!(all.checksums_known);
        let mut names: Vec<(&str, &[u8])> = all.headers.fields().collect();
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
        let version = stated_version(&head).cacheable_version(None).unwrap();
        let kept = build_attributes(&head, version, false);
        assert!(kept.headers.field_count() == 0 && !kept.checksums_known);
        head.etag = Some("\"x\"".into());
        assert!(has_own_checksums(&head, true) && !has_own_checksums(&head, false));
    }
}

//! What becomes of answers that were asked for at once.
#![allow(clippy::unwrap_used)]
use super::*;
use http::{HeaderMap, HeaderName, HeaderValue};

fn head(etag: &str, crc32: &'static str) -> ObjectHead {
    let crc32 = (HeaderName::from_static("x-amz-checksum-crc32"), HeaderValue::from_static(crc32));
    ObjectHead {
        etag: Some(etag.into()),
        bytes: 5,
        version_id: None,
        last_modified: None,
        headers: HeaderMap::from_iter([crc32]),
    }
}

/// The two are asked for at once, so the object may be replaced in between.
#[test]
fn a_checksum_of_another_version_is_not_given() {
    let got = head("\"x\"", "");
    let version = kept_answers::stated_version(&got).cacheable_version(None).unwrap();
    let got = kept_answers::build_attributes(&got, version, false);
    let other = add_checksums(None, Ok(head("\"y\"", "AAAAAA==")), got.clone(), None);
    assert!(matches!(other, UfsAttributeAnswer::Changing));
    let own = add_checksums(None, Ok(head("\"x\"", "AAAAAA==")), got, None);
    let UfsAttributeAnswer::Present(own, None) = own else { panic!("it is the same version") };
    assert!(own.checksums_known && own.headers.fields().any(|(_, value)| value == b"AAAAAA=="));
}

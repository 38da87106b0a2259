//! Compares an object's bytes with the UFS's checksum of the whole object, if that can be computed
//! from the bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, Digest};
use md5::{Digest as _, Md5};
use verbs3_protocol::HeadAttributes;

/// Comparison that takes the object's bytes in order.
pub(crate) struct ChecksumComparison {
    state: ComparisonDigest,
    expected: String,
}

enum ComparisonDigest {
    /// The digest, and the checksum's bytes as the UFS shows them.
    Crc(Box<Digest>, usize),
    Md5(Box<Md5>),
}

impl ChecksumComparison {
    /// Starts a comparison. `None`: the UFS has no usable checksum.
    pub(crate) fn new(attributes: &HeadAttributes) -> Option<Self> {
        let header = |name: &str| {
            let (_, value) = attributes.headers.fields().find(|(known, _)| *known == name)?;
            std::str::from_utf8(value).ok()
        };
        let is_of_parts = header("x-amz-checksum-type")
            .is_some_and(|kind| kind.eq_ignore_ascii_case("COMPOSITE"));
        let crcs = [
            ("x-amz-checksum-crc64nvme", CrcAlgorithm::Crc64Nvme, 8),
            ("x-amz-checksum-crc32c", CrcAlgorithm::Crc32Iscsi, 4),
            ("x-amz-checksum-crc32", CrcAlgorithm::Crc32IsoHdlc, 4),
        ];
        for (name, algorithm, bytes) in crcs {
            // A checksum of parts ends in `-` and their number.
            if let Some(expected) =
                header(name).filter(|value| !is_of_parts && !value.contains('-'))
            {
                let state = ComparisonDigest::Crc(Box::new(Digest::new(algorithm)), bytes);
                return Some(Self { state, expected: expected.to_owned() });
            }
        }
        // An ETag is an MD5 if the object was written at once and no key service encrypts it.
        let is_encrypted =
            header("x-amz-server-side-encryption").is_some_and(|kind| kind.starts_with("aws:kms"));
        let etag = attributes.version.etag.trim_matches('"');
        let is_md5 =
            etag.len() == 32 && etag.bytes().all(|byte| byte.is_ascii_hexdigit()) && !is_encrypted;
        is_md5.then(|| Self {
            state: ComparisonDigest::Md5(Box::default()),
            expected: etag.to_ascii_lowercase(),
        })
    }

    pub(crate) fn update_digest(&mut self, bytes: &[u8]) {
        match &mut self.state {
            ComparisonDigest::Crc(digest, _) => digest.update(bytes),
            ComparisonDigest::Md5(digest) => digest.update(bytes),
        }
    }

    /// Returns whether the bytes match the UFS's checksum.
    pub(crate) fn matches_checksum(self) -> bool {
        let found = match self.state {
            ComparisonDigest::Crc(digest, bytes) => {
                STANDARD.encode(&digest.finalize().to_be_bytes()[8 - bytes..])
            }
            ComparisonDigest::Md5(digest) => {
                digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
            }
        };
        found == self.expected
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_protocol::{AnswerHeaders, ContentVersion};

    fn attributes(etag: &str, headers: &[(&str, &str)]) -> HeadAttributes {
        let version = ContentVersion { etag: etag.into(), bytes: 9, version_id: None };
        let fields = headers.iter().map(|&(name, value)| (name, value.as_bytes()));
        let headers = AnswerHeaders::copy_fields(fields);
        HeadAttributes { version, last_modified: None, headers, checksums_known: true }
    }

    fn is_equal(attributes: &HeadAttributes, bytes: &[u8]) -> Option<bool> {
        let mut compare = ChecksumComparison::new(attributes)?;
        bytes.chunks(4).for_each(|chunk| compare.update_digest(chunk));
        Some(compare.matches_checksum())
    }

    #[test]
    fn bytes_are_held_against_whatever_checksum_there_is() {
        // The check values of the algorithms, of "123456789".
        let known = [
            attributes("\"x\"", &[("x-amz-checksum-crc64nvme", "rosUhgp5mIg=")]),
            attributes("\"x\"", &[("x-amz-checksum-crc32c", "4waSgw==")]),
            attributes("\"x\"", &[("x-amz-checksum-crc32", "y/Q5Jg==")]),
            attributes("\"25f9e794323b453885f5181f1b624d0b\"", &[]),
        ];
        for known in known {
            assert_eq!(is_equal(&known, b"123456789"), Some(true), "{known:?}");
            assert_eq!(is_equal(&known, b"12345678x"), Some(false), "{known:?}");
        }
    }

    #[test]
    fn what_is_no_checksum_of_the_bytes_is_not_taken_for_one() {
        let md5 = "\"25f9e794323b453885f5181f1b624d0b\"";
        assert_eq!(
            is_equal(&attributes("\"25f9e794323b453885f5181f1b624d0b-2\"", &[]), b"x"),
            None
        );
        assert_eq!(
            is_equal(&attributes(md5, &[("x-amz-server-side-encryption", "aws:kms")]), b"x"),
            None
        );
        let of_parts = [("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-checksum-type", "COMPOSITE")];
        assert_eq!(is_equal(&attributes("\"x\"", &of_parts), b"x"), None);
        assert_eq!(
            is_equal(&attributes("\"x\"", &[("x-amz-checksum-crc32", "y/Q5Jg==-3")]), b"x"),
            None
        );
    }
}

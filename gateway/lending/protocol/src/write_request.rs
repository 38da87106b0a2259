//! Owns what one write asks for: bucket, key, the part that it is, and the headers that say what the
//! object is. They mean what the same request over HTTP means. Judges no name and no value.

use crate::read_request::{REQUEST_BYTES_MAX, RequestProblem};
use crate::wire_text::{WireReader, append_headers, append_text};

/// The first byte of a write. Those of reads and lists are lower.
pub(crate) const WRITE: u8 = 3;

/// Headers that a write may carry, in their order. Writes that need more go over HTTP.
pub const WRITE_HEADERS: [&str; 18] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
    "if-match",
    "if-none-match",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-server-side-encryption",
    "x-amz-storage-class",
    "x-amz-tagging",
];

/// Headers of an object's own metadata begin so.
const METADATA: &str = "x-amz-meta-";

/// One PutObject, or one UploadPart. Its body is named by the submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentWriteRequest {
    pub bucket: String,
    pub key: String,
    /// `None`: the body is the object.
    pub part: Option<LentPart>,
    /// Names for which [`is_write_header`] holds, each once.
    pub headers: Vec<(String, String)>,
}

/// Which part of an upload a body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentPart {
    pub upload_id: String,
    pub number: u32,
}

/// Returns whether a write may carry a header of this name. Names are in lower case.
pub fn is_write_header(name: &str) -> bool {
    WRITE_HEADERS.contains(&name) || name.starts_with(METADATA)
}

impl LentWriteRequest {
    /// Writes the request. `None`: it is longer than [`REQUEST_BYTES_MAX`].
    pub fn encode_request(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![WRITE, self.part.is_some().into()];
        bytes.push(u8::try_from(self.headers.len()).ok()?);
        append_text(&mut bytes, &self.bucket)?;
        append_text(&mut bytes, &self.key)?;
        if let Some(LentPart { upload_id, number }) = &self.part {
            append_text(&mut bytes, upload_id)?;
            bytes.extend(number.to_le_bytes());
        }
        append_headers(&mut bytes, &self.headers)?;
        (bytes.len() <= REQUEST_BYTES_MAX as usize).then_some(bytes)
    }

    /// Reads a request out of bytes that its sender can't change any more.
    pub fn decode_request(bytes: &[u8]) -> Result<Self, RequestProblem> {
        Self::read_request(bytes).ok_or(RequestProblem)
    }

    fn read_request(bytes: &[u8]) -> Option<Self> {
        let mut reader = WireReader::new(bytes);
        let [kind, has_part, count] = reader.take_array()?;
        if kind != WRITE || has_part > 1 {
            return None;
        }
        let bucket = reader.take_text()?.to_owned();
        let key = reader.take_text()?.to_owned();
        let part = match has_part {
            0 => None,
            _ => Some(LentPart {
                upload_id: reader.take_text()?.to_owned(),
                number: reader.take_u32()?,
            }),
        };
        let headers = reader.take_headers(count, is_write_header)?;
        let is_whole = reader.is_empty() && !bucket.is_empty() && !key.is_empty();
        is_whole.then_some(Self { bucket, key, part, headers })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn request(part: Option<LentPart>, headers: &[(&str, &str)]) -> LentWriteRequest {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let (bucket, key) = ("train".into(), "a/\u{e9} b.tar".into());
        LentWriteRequest { bucket, key, part, headers: headers.iter().map(own).collect() }
    }

    #[test]
    fn a_request_comes_back_as_it_was() {
        let part = LentPart { upload_id: "an upload".into(), number: 10_000 };
        for part in [None, Some(part)] {
            let asked = request(part, &[("content-type", "a/b"), ("x-amz-meta-run", "7")]);
            let bytes = asked.encode_request().unwrap();
            assert_eq!(LentWriteRequest::decode_request(&bytes), Ok(asked));
            for end in 0..bytes.len() {
                assert!(LentWriteRequest::decode_request(&bytes[..end]).is_err(), "{end}");
            }
        }
    }

    #[test]
    fn headers_that_are_unknown_or_come_twice_are_refused() {
        for headers in [
            &[("authorization", "x")][..],
            &[("x-amz-copy-source", "/other/key")],
            &[("x-amz-decoded-content-length", "1")],
            &[("transfer-encoding", "chunked")],
            &[("content-length", "1")],
            &[("content-type", "a/b"), ("content-type", "a/c")],
            &[("Content-Type", "a/b")],
        ] {
            let bytes = request(None, headers).encode_request().unwrap();
            assert!(LentWriteRequest::decode_request(&bytes).is_err(), "{headers:?}");
        }
        let endless = "k".repeat(REQUEST_BYTES_MAX as usize);
        assert_eq!(request(None, &[("x-amz-meta-long", &endless)]).encode_request(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let bytes = [vec![WRITE], bytes].concat();
            let _ = LentWriteRequest::decode_request(&bytes);
        }
    }
}

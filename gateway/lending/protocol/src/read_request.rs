//! Owns what one read asks for: method, bucket, key, and the headers that change the answer. They
//! mean what the same request over HTTP means. Judges no name and no value.

use crate::wire_text::{WireReader, append_headers, append_text};

/// Longest request: a key, a bucket, and headers.
pub const REQUEST_BYTES_MAX: u32 = 4096;

/// Headers that a request may carry, in their order. Reads that need more go over HTTP.
pub const FORWARDED_HEADERS: [&str; 7] = [
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "x-amz-checksum-mode",
];

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LentReadMethod {
    /// GetObject
    Get,
    /// HeadObject
    Head,
}

/// One read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentReadRequest {
    pub method: LentReadMethod,
    pub bucket: String,
    pub key: String,
    /// Names as in [`FORWARDED_HEADERS`], each once.
    pub headers: Vec<(String, String)>,
}

/// The request is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request in lent memory is malformed")]
pub struct RequestProblem;

impl LentReadRequest {
    /// Writes the request. `None`: it is longer than [`REQUEST_BYTES_MAX`].
    pub fn encode_request(&self) -> Option<Vec<u8>> {
        let method = match self.method {
            LentReadMethod::Get => 0,
            LentReadMethod::Head => 1,
        };
        let mut bytes = vec![method, u8::try_from(self.headers.len()).ok()?];
        append_text(&mut bytes, &self.bucket)?;
        append_text(&mut bytes, &self.key)?;
        append_headers(&mut bytes, &self.headers)?;
        (bytes.len() <= REQUEST_BYTES_MAX as usize).then_some(bytes)
    }

    /// Reads a request out of bytes that its sender can't change any more.
    pub fn decode_request(bytes: &[u8]) -> Result<Self, RequestProblem> {
        Self::read_request(bytes).ok_or(RequestProblem)
    }

    fn read_request(bytes: &[u8]) -> Option<Self> {
        let mut reader = WireReader::new(bytes);
        let [method, count] = reader.take_array()?;
        let method = match method {
            0 => LentReadMethod::Get,
            1 => LentReadMethod::Head,
            _ => return None,
        };
        let bucket = reader.take_text()?.to_owned();
        let key = reader.take_text()?.to_owned();
        let headers = reader.take_headers(count, |name| FORWARDED_HEADERS.contains(&name))?;
        let is_whole = reader.is_empty() && !bucket.is_empty() && !key.is_empty();
        is_whole.then_some(Self { method, bucket, key, headers })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn request(headers: &[(&str, &str)]) -> LentReadRequest {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        LentReadRequest {
            method: LentReadMethod::Get,
            bucket: "train".into(),
            key: "a/\u{e9} b.tar".into(),
            headers: headers.iter().map(own).collect(),
        }
    }

    #[test]
    fn a_request_comes_back_as_it_was() {
        let asked = request(&[("range", "bytes=0-9"), ("if-match", "\"e\"")]);
        let bytes = asked.encode_request().unwrap();
        assert_eq!(LentReadRequest::decode_request(&bytes), Ok(asked));
        for end in 0..bytes.len() {
            assert!(LentReadRequest::decode_request(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn headers_that_are_unknown_or_come_twice_are_refused() {
        for headers in [
            &[("authorization", "x")][..],
            &[("range", "bytes=0-1"), ("range", "bytes=0-2")],
            &[("Range", "bytes=0-1")],
        ] {
            let bytes = request(headers).encode_request().unwrap();
            assert!(LentReadRequest::decode_request(&bytes).is_err(), "{headers:?}");
        }
        let endless = "k".repeat(REQUEST_BYTES_MAX as usize);
        assert_eq!(request(&[("range", &endless)]).encode_request(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = LentReadRequest::decode_request(&bytes);
        }
    }
}

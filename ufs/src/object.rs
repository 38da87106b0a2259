//! Owns the types of the cache's requests to a UFS: one object's head, or a range of one version.
//!
//! Everything else goes through [`s3s::S3`]. Does not cache, and does not know blocks.

use std::ops::RangeInclusive;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::HeaderMap;

use crate::error::UfsError;

/// A read of one object, as a fill needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadObject {
    pub bucket: String,
    pub key: String,
    pub version_id: Option<String>,
    /// Strong ETag that the answer must have. It is sent as `If-Match` *and* compared with the
    /// answer's own ETag.
    pub if_match: Option<String>,
    /// Bytes wanted, both ends inclusive; `None` for the whole object.
    pub range: Option<RangeInclusive<u64>>,
    /// Requests the object's checksums (`x-amz-checksum-mode: ENABLED`).
    pub checksums: bool,
}

/// The head of one version: what HEAD answers, or GET beside its body.
#[derive(Debug, Clone)]
pub struct ObjectHead {
    /// As sent, quotes included; `None` if the UFS sent none.
    pub etag: Option<String>,
    /// Length of the whole object, also when a range was read.
    pub bytes: u64,
    pub version_id: Option<String>,
    /// Seconds since 1970.
    pub last_modified: Option<i64>,
    /// Representation headers in lower case, with unknown ones of the UFS. Hop-by-hop headers,
    /// Content-Length, Content-Range, Accept-Ranges, Date, Server and request ids are left out.
    pub headers: HeaderMap,
}

impl ObjectHead {
    /// Returns whether the object is encrypted with a key that the client alone has.
    pub fn has_client_key(&self) -> bool {
        self.headers.contains_key("x-amz-server-side-encryption-customer-algorithm")
    }
}

/// A body in transfer. Reading it to its end yields exactly `range`, or an error; it never ends
/// early in silence.
pub struct ObjectStream {
    pub head: ObjectHead,
    /// Bytes of the object that `body` carries.
    pub range: std::ops::Range<u64>,
    pub body: BoxStream<'static, Result<Bytes, UfsError>>,
}

impl ObjectStream {
    /// Leaves out what lies behind `end` of the object. If that is anything, the connection is
    /// dropped with the stream.
    pub fn cut_at(mut self, end: u64) -> Self {
        let Some(wanted) = end.checked_sub(self.range.start).filter(|_| end < self.range.end)
        else {
            return self;
        };
        self.range.end = end;
        let cut = stream::unfold((self.body, wanted), |(mut body, left)| async move {
            if left == 0 {
                return None;
            }
            let chunk = body.next().await?.map(|mut chunk| {
                chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                chunk
            });
            let taken = chunk.as_ref().map_or(left, |chunk| chunk.len() as u64);
            Some((chunk, (body, left - taken)))
        });
        self.body = cut.boxed();
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn read_cut(range: std::ops::Range<u64>, end: u64) -> (std::ops::Range<u64>, Vec<u8>) {
        let head = ObjectHead {
            etag: None,
            bytes: 100,
            version_id: None,
            last_modified: None,
            headers: HeaderMap::new(),
        };
        let bytes: Vec<u8> = range.clone().map(|at| at as u8).collect();
        let chunks: Vec<_> =
            bytes.chunks(7).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let stream = ObjectStream { head, range, body: stream::iter(chunks).boxed() };
        let cut = stream.cut_at(end);
        let read: Vec<Bytes> = cut.body.map(Result::unwrap).collect().await;
        (cut.range, read.concat())
    }

    #[tokio::test]
    async fn a_cut_body_has_the_bytes_before_the_cut_and_no_other() {
        for (range, end) in [(0..100, 7), (0..100, 10), (0..100, 0), (20..100, 95), (20..100, 20)] {
            let wanted: Vec<u8> = (range.start..end).map(|at| at as u8).collect();
            assert_eq!(read_cut(range.clone(), end).await, (range.start..end, wanted));
        }
        for end in [100, 101] {
            assert_eq!(read_cut(0..100, end).await, (0..100, (0..100).collect()));
        }
        // A cut before what there is leaves it as it is.
        assert_eq!(read_cut(20..100, 10).await.0, 20..100);
    }
}

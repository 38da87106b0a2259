//! Owns the types of the cache's requests to a UFS: one object's head, or a range of one version.
//!
//! Everything else goes through [`s3s::S3`]. Does not cache, and does not know blocks.

use std::ops::RangeInclusive;

use bytes::Bytes;
use futures::stream::BoxStream;
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

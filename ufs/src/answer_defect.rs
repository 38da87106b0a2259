//! Owns what makes an answer untrustworthy: it contradicts itself, or the request.

use std::ops::RangeInclusive;

use http::StatusCode;

/// What is wrong with an answer that is never cached and never passed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerDefect {
    /// The request names it, so no answer can be verified.
    #[error("{etag} is not a strong etag and identifies no version")]
    WeakEtag { etag: String },
    #[error("HEAD was answered with {0}")]
    HeadStatus(StatusCode),
    #[error("{method} has no content-length")]
    NoLength { method: &'static str },
    #[error("200 for a range, without content-length")]
    NoLengthForRange,
    #[error("bytes {first}-{last} came for {wanted:?} of {total}")]
    OtherRange { first: u64, last: u64, wanted: RangeInclusive<u64>, total: u64 },
    #[error("content-length {content_length} belongs to a range of {range_bytes} bytes")]
    RangeLength { content_length: u64, range_bytes: u64 },
    #[error("200 for a range from {first} of an object of {total} bytes")]
    RangePastEnd { first: u64, total: u64 },
    #[error("it ignores Range, and {first} bytes are more than skip_bytes_max {skip_bytes_max}")]
    RangeIgnored { first: u64, skip_bytes_max: u64 },
    #[error("status {status} with content-range {content_range:?} for range {wanted:?}")]
    Status {
        status: StatusCode,
        content_range: Option<String>,
        wanted: Option<RangeInclusive<u64>>,
    },
    #[error("a delete marker with a success status")]
    DeleteMarker,
    #[error("several {0} headers that differ")]
    HeadersDiffer(&'static str),
    #[error("a {0} header that is not text")]
    HeaderNotText(&'static str),
    #[error("{name} is {value:?}")]
    HeaderValue { name: &'static str, value: String },
    #[error("the body goes on after its {bytes} bytes")]
    ExcessBody { bytes: u64 },
    /// The answer is not S3; the text says what it is.
    #[error("{0}")]
    Unintelligible(String),
}

//! Why a UFS did not give what was asked. Keeps the UFS's own answer, so that a client gets exactly that.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// An error answer as the UFS sent it.
#[derive(Debug, Clone)]
pub struct RawAnswer {
    pub status: StatusCode,
    /// As sent, without hop-by-hop headers.
    pub headers: HeaderMap,
    /// At most 64 KiB; empty for HEAD.
    pub body: Bytes,
}

/// What to do after an error of the data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Asking again can't help.
    Never,
    /// Asking again later may help; the UFS said, or the connection broke.
    Later,
}

/// Why a UFS did not give what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UfsError {
    #[error("ufs {ufs} answered {}", .answer.status)]
    Answer { ufs: String, answer: Box<RawAnswer> },
    #[error("ufs {ufs} can't be reached: {reason}; check its endpoint, its credentials and the network")]
    Unreachable { ufs: String, reason: String },
    #[error("ufs {ufs} broke off after {got} of {want} bytes: {reason}")]
    Truncated { ufs: String, got: u64, want: u64, reason: String },
    /// The answer contradicts itself or the request: wrong ETag, length, range or version. Never cached, never passed on.
    #[error("ufs {ufs} gave an answer that can't be trusted: {reason}")]
    Untrusted { ufs: String, reason: String },
    #[error("ufs {ufs} has its configured {limit} requests under way and none ended within {waited_ms} ms; raise requests_in_flight_max or slow down")]
    Throttled { ufs: String, limit: usize, waited_ms: u64 },
}

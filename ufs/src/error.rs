//! Owns the errors of a UFS, and what may be done about them. Keeps the UFS's own answer, so that a
//! client gets exactly that. `raw_answer` turns an [`s3s::S3Error`] into one of these.
//!
//! A cause is part of its error's text, because a log line shows an error by that alone. It is no
//! `#[source]` beside that, or a chain of errors would say it twice.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use crate::answer_defect::AnswerDefect;
use crate::error_chain::error_chain;

/// An error answer as the UFS sent it.
#[derive(Debug, Clone)]
pub struct RawAnswer {
    pub status: StatusCode,
    /// As sent, without hop-by-hop headers.
    pub headers: HeaderMap,
    /// At most 64 KiB; empty for HEAD.
    pub body: Bytes,
}

/// Advice after an error of the data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// Another request can't help.
    Never,
    /// A later request may help: the UFS said so, or the connection broke.
    Later,
}

/// Reason why a UFS did not give what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UfsError {
    #[error("ufs {ufs} answered {}", .answer.status)]
    Answer { ufs: String, answer: Box<RawAnswer> },
    #[error(
        "ufs {ufs} can't be reached: {cause}; check its endpoint, its credentials and the network"
    )]
    Unreachable { ufs: String, cause: NoAnswerCause },
    #[error("ufs {ufs} broke off after {got} of {want} bytes: {cause}")]
    Truncated { ufs: String, got: u64, want: u64, cause: TruncationCause },
    /// The answer contradicts itself or the request: wrong length, range or version. It is never
    /// cached and never passed on.
    #[error("ufs {ufs} gave an answer that can't be trusted: {defect}")]
    Untrusted { ufs: String, defect: AnswerDefect },
    /// The UFS ignored `If-Match` and answered with another version than the requested one. The
    /// answer is never cached and never passed on.
    #[error(
        "ufs {ufs} answered with version {got} where {wanted} was asked for: the object was \
        replaced; read it anew"
    )]
    Changed { ufs: String, wanted: String, got: String },
    #[error(
        "ufs {ufs} has its configured {limit} requests under way and none ended within {waited_ms} \
        ms; raise ufs.limits.requests_in_flight_max or slow down"
    )]
    Throttled { ufs: String, limit: usize, waited_ms: u64 },
}

/// Reason why a UFS gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoAnswerCause {
    #[error("no answer within {} ms (ufs.deadlines.first_byte)", .0.as_millis())]
    FirstByte(Duration),
    /// The circuit is open: the UFS was not asked.
    #[error(
        "it failed {failures_max} times in a row and is asked again in {} ms",
        .wait.as_millis()
    )]
    CircuitOpen { failures_max: u32, wait: Duration },
    /// What the client of a remote store says of it.
    #[error("{0}")]
    Client(String),
}

/// Reason why a body ended before its last byte.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TruncationCause {
    #[error("{}", error_chain(.0.as_ref()))]
    Stream(Arc<dyn Error + Send + Sync>),
    #[error("nothing came for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the body ended early")]
    EndedEarly,
}

impl UfsError {
    /// Returns whether another request to the UFS may help. This crate has already done its own
    /// bounded retries before the first byte.
    pub fn retry_advice(&self) -> RetryAdvice {
        match self {
            Self::Answer { answer, .. } => answer.retry_advice(),
            Self::Unreachable { .. } | Self::Truncated { .. } | Self::Throttled { .. } => {
                RetryAdvice::Later
            }
            Self::Untrusted { .. } | Self::Changed { .. } => RetryAdvice::Never,
        }
    }

    /// Returns true if the requested version is no longer the object's. The UFS said so (412), or
    /// answered with another version.
    pub fn version_changed(&self) -> bool {
        match self {
            Self::Changed { .. } => true,
            Self::Answer { answer, .. } => answer.status == StatusCode::PRECONDITION_FAILED,
            Self::Unreachable { .. }
            | Self::Truncated { .. }
            | Self::Untrusted { .. }
            | Self::Throttled { .. } => false,
        }
    }

    /// Returns the UFS's own answer, where it gave one.
    pub fn raw_answer(&self) -> Option<&RawAnswer> {
        match self {
            Self::Answer { answer, .. } => Some(answer),
            Self::Unreachable { .. }
            | Self::Truncated { .. }
            | Self::Untrusted { .. }
            | Self::Changed { .. }
            | Self::Throttled { .. } => None,
        }
    }
}

impl RawAnswer {
    /// Returns whether the UFS invites a retry of a read. It does for its own trouble (500, 502,
    /// 503, 504), a timeout (408) and a throttle (429). It also does for a write that collides at
    /// the same moment (409: Ceph's ConcurrentModification, OperationAborted).
    pub fn retry_advice(&self) -> RetryAdvice {
        match self.status.as_u16() {
            408 | 409 | 429 | 500 | 502 | 503 | 504 => RetryAdvice::Later,
            _ => RetryAdvice::Never,
        }
    }

    /// Returns `Retry-After` in its form of seconds. Object stores don't use the date form; it is
    /// ignored.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds: u64 =
            self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

//! Why a request's body is not what was promised.

use std::error::Error;
use std::sync::Arc;

use parking_lot::Mutex;
use s3s::{S3Error, S3ErrorCode};

use super::chunk_scanner::ChunkRefusal;
use crate::metrics::BodyRefusal;
use crate::s3_errors::slow_down;

/// Reason why a body is not what was promised. [`BodyFault::into_error`] has the S3 code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    #[error("the body has {got} bytes, {declared} were announced")]
    Length { got: u64, declared: u64 },
    #[error("the Content-MD5 you specified did not match what we received")]
    Md5,
    #[error("the {name} you specified did not match the calculated checksum")]
    Checksum { name: &'static str },
    #[error("the trailer {name} that x-amz-trailer announced is missing or is no digest")]
    Trailer { name: &'static str },
    #[error("the signature of a chunk does not match")]
    ChunkSignature,
    #[error("the provided 'x-amz-content-sha256' header does not match what was computed")]
    Sha256,
    #[error(transparent)]
    Chunks(#[from] ChunkRefusal),
    #[error("there is no memory for the body: please reduce your request rate")]
    Busy,
    #[error("Your request was too big: documents have {bytes_max} bytes at most")]
    TooBig { bytes_max: u64 },
    #[error("the body did not arrive within {idle_ms} ms")]
    Idle { idle_ms: u64 },
    #[error("the body came more slowly than this endpoint waits for")]
    Slow,
    #[error("the body broke off: {0}")]
    Broken(#[source] BrokenSource),
}

/// What a body's source said when it gave no more. Two are equal if they say the same.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct BrokenSource(Arc<dyn Error + Send + Sync>);

impl PartialEq for BrokenSource {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for BrokenSource {}

impl BodyFault {
    /// Makes the fault of a body whose source failed.
    pub fn broken(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Broken(BrokenSource(cause.into().into()))
    }

    /// Returns what the metric calls it.
    pub(crate) fn body_refusal(&self) -> BodyRefusal {
        match self {
            Self::Length { .. } => BodyRefusal::Length,
            Self::Md5 => BodyRefusal::Md5,
            Self::Checksum { .. } => BodyRefusal::Checksum,
            Self::Trailer { .. } => BodyRefusal::Trailer,
            Self::ChunkSignature => BodyRefusal::ChunkSignature,
            Self::Sha256 => BodyRefusal::Sha256,
            Self::Chunks(refusal) => refusal.body_refusal(),
            Self::Busy => BodyRefusal::Busy,
            Self::TooBig { .. } => BodyRefusal::TooBig,
            Self::Idle { .. } => BodyRefusal::Idle,
            Self::Slow => BodyRefusal::Slow,
            Self::Broken(_) => BodyRefusal::Broken,
        }
    }

    /// Returns the answer that S3 gives.
    pub fn into_error(self) -> S3Error {
        use ChunkRefusal as Refusal;
        let code = match &self {
            Self::Length { .. } | Self::Broken(_) => S3ErrorCode::IncompleteBody,
            Self::Md5 | Self::Checksum { .. } => S3ErrorCode::BadDigest,
            Self::Trailer { .. } => custom_code("MalformedTrailerError"),
            Self::ChunkSignature => S3ErrorCode::SignatureDoesNotMatch,
            Self::Sha256 => custom_code("XAmzContentSHA256Mismatch"),
            Self::Chunks(Refusal::ChunkTooLarge { .. } | Refusal::Malformed { .. }) => {
                S3ErrorCode::InvalidRequest
            }
            Self::Chunks(
                Refusal::TooLong { .. } | Refusal::TooShort { .. } | Refusal::EndedEarly,
            ) => S3ErrorCode::IncompleteBody,
            Self::Busy => return slow_down(),
            Self::TooBig { .. } => S3ErrorCode::MaxMessageLengthExceeded,
            Self::Idle { .. } | Self::Slow => S3ErrorCode::RequestTimeout,
        };
        let mut error = S3Error::with_message(code, self.to_string());
        if error.status_code().is_none() {
            error.set_status_code(http::StatusCode::BAD_REQUEST);
        }
        error
    }
}

/// A fault that the inbound body found below s3s; s3s would only say that something broke.
pub(crate) type FaultSlot = Arc<Mutex<Option<BodyFault>>>;

fn custom_code(code: &'static str) -> S3ErrorCode {
    S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InvalidRequest)
}

//! What an object store can do: S3 stores through aws-sdk-s3, and a local directory. Every store is
//! an [`s3s::S3`].
#![forbid(unsafe_code)]

mod body;
pub mod capture;
mod circuit;
mod error;
pub mod fault;
pub mod headers;
mod identity;
pub mod local;
mod metered;
pub mod metrics;
mod object;
mod operations;
pub mod propagation;
mod retries;
pub mod s3;
mod ufs;

pub use circuit::{CircuitLimits, CircuitState};
pub use error::{RawAnswer, RetryAdvice, UfsError};
pub use object::{ObjectHead, ObjectStream, ReadObject};
pub use retries::RetryLimits;
pub use ufs::{RandomSource, Ufs, UfsLimits, s3_request};

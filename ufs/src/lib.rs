//! Owns access to object stores: S3 stores through aws-sdk-s3, and a local directory. Every store
//! is an [`s3s::S3`].
#![forbid(unsafe_code)]

mod answer_check;
mod answer_defect;
mod body;
mod circuit_breaker;
mod error;
mod error_chain;
pub mod faulty_store;
pub mod headers;
mod metered_store;
pub mod metrics;
mod object;
mod operations;
pub mod raw_answer;
mod retry_budget;
pub mod s3;
mod settings;
mod store_location;
mod store_reachability;
pub mod trace_propagation;
mod ufs;

pub use answer_defect::AnswerDefect;
pub use circuit_breaker::CircuitState;
pub use error::{NoAnswerCause, RawAnswer, RetryAdvice, TruncationCause, UfsError};
pub use object::{ObjectHead, ObjectStream, ReadObject};
pub use settings::{
    CredentialsKind, CredentialsSettings, UfsCircuitSettings, UfsDeadlinesSettings, UfsKind,
    UfsLimitsSettings, UfsRetriesSettings, UfsSettings,
};
pub use store_location::StoreLocation;
pub use store_reachability::StoreSilence;
pub use ufs::{RandomSource, Ufs, s3_request};
pub use verbs3_local_store as local;

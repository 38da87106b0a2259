//! What the controller needs of an S3 endpoint. The binary gives it one.

use std::fmt;

use async_trait::async_trait;
use verbs3_preload::api::{JobView, PreloadJobSpec};

/// An access key. Shows its secret to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct PreloadKey {
    pub access_key: String,
    pub secret_key: String,
}

impl fmt::Debug for PreloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreloadKey").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Asks an endpoint about jobs, each time with a key. Every question has a deadline.
#[async_trait]
pub trait PreloadGateway: Send + Sync + 'static {
    /// Begins a job, or finds it where it was begun under its id before.
    async fn begin_job(
        &self,
        key: &PreloadKey,
        spec: &PreloadJobSpec,
    ) -> Result<JobView, PreloadGatewayError>;

    /// Looks at a job.
    async fn look_at_job(&self, key: &PreloadKey, id: &str)
    -> Result<JobView, PreloadGatewayError>;

    /// Has a job end.
    async fn stop_job(&self, key: &PreloadKey, id: &str) -> Result<(), PreloadGatewayError>;
}

/// Why a question about a job got no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreloadGatewayError {
    #[error("the endpoint refuses the access key: {message}")]
    KeyRefused { message: String },
    #[error("the access key may not: {message}")]
    Denied { message: String },
    #[error("the job can't be begun: {message}")]
    Malformed { message: String },
    #[error("the endpoint knows no such job")]
    Unknown,
    #[error("too many jobs of this access key: {message}")]
    OwnerFull { message: String },
    /// The id is another job's.
    #[error("the job's id belongs to another job: {message}")]
    Taken { message: String },
    /// The endpoint answers, and the coordinators can't say or take anything now.
    #[error("the endpoint can't do it now: {message}")]
    Unavailable { message: String },
    #[error("the endpoint does not answer: {message}")]
    Away { message: String },
}

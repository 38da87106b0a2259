//! Preload jobs for holders of S3 keys: `/v1/preload` of this endpoint, signed like any request.
//! Owns who may begin which job: what it names needs the right `warm`, and what would take from
//! others is left to operators. Runs no job: [`PreloadJobs`] hands what was judged to those who do.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, StatusCode};
use s3s::S3Result;

mod preload_request;
mod preload_route;

pub(crate) use preload_route::PreloadRoute;

/// Path of the jobs. A bucket's name has at least three characters, so none is called `v1`.
pub(crate) const PATH: &str = "/v1/preload";
/// The bucket that a path of jobs seems to name.
pub(crate) const NO_BUCKET: &str = "v1";

/// A question about jobs, as the coordinators take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreloadQuestion {
    pub method: Method,
    /// Path and query, with the owner of the jobs that are asked about.
    pub path_and_query: String,
    /// JSON; empty where there is none.
    pub body: Bytes,
}

/// The coordinators' answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreloadAnswer {
    pub status: StatusCode,
    /// JSON.
    pub body: Bytes,
}

/// Those who run preload jobs.
#[async_trait]
pub trait PreloadJobs: Send + Sync {
    /// Asks them. Where nobody answers, the answer is a refusal with status 503.
    async fn ask_coordinators(&self, question: PreloadQuestion) -> PreloadAnswer;
}

/// Names as s3s checks them, and the bucket that is none.
pub(crate) struct PreloadPathNames;

impl s3s::validation::NameValidation for PreloadPathNames {
    fn validate_bucket_name(&self, name: &str) -> bool {
        name == NO_BUCKET || s3s::validation::AwsNameValidation::new().validate_bucket_name(name)
    }
}

/// Refuses an S3 operation on the bucket that is none, as s3s would without [`PreloadPathNames`].
pub(crate) fn check_bucket(bucket: &str) -> S3Result<()> {
    match bucket == NO_BUCKET {
        true => Err(s3s::S3ErrorCode::InvalidBucketName.into()),
        false => Ok(()),
    }
}

/// Makes a refusal in the coordinators' own form.
fn refuse(status: StatusCode, kind: &str, reason: &str) -> PreloadAnswer {
    let body = serde_json::json!({ "kind": kind, "reason": reason }).to_string();
    PreloadAnswer { status, body: body.into() }
}

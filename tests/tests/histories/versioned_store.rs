//! A store whose objects are versions of bodies that say what they are. It takes its time, before
//! it looks and after.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::SmallRng;
use s3s::dto::{
    ETag, ETagCondition, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, Range,
    StreamingBlob, Timestamp,
};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use tokio::time::sleep;
use verbs3_tests::{content, seed};
use verbs3_ufs::RawAnswer;
use verbs3_ufs::raw_answer::RemoteFailure;

use crate::key::{is_deletion, length};

pub struct VersionedStore {
    /// The version that is visible; none: never written.
    versions: Mutex<HashMap<String, u64>>,
    /// Longest time of half an answer, but for rare ones that take thirty times as long.
    slowness: u64,
    rng: Mutex<SmallRng>,
}

impl VersionedStore {
    pub fn new(seed: u64) -> Self {
        let mut rng = seed::rng(seed, 1);
        Self {
            versions: Mutex::default(),
            slowness: [2, 10, 40][rng.random_range(0..3)],
            rng: Mutex::new(rng),
        }
    }

    /// Becomes visible at some moment, and is answered at some later one.
    pub async fn put(&self, key: &str, version: u64) {
        self.pass().await;
        self.versions.lock().insert(key.to_owned(), version);
        self.pass().await;
    }

    /// What a reader past the cache gets.
    pub async fn get(&self, key: &str) -> u64 {
        self.pass().await;
        let version = self.versions.lock().get(key).copied().unwrap_or(0);
        self.pass().await;
        version
    }

    async fn pass(&self) {
        let rare = self.rng.lock().random_bool(0.02);
        let milliseconds =
            self.rng.lock().random_range(0..=self.slowness * if rare { 30 } else { 1 });
        sleep(Duration::from_millis(milliseconds)).await;
    }

    fn find(&self, key: &str, condition: Option<&ETagCondition>) -> S3Result<u64> {
        let version =
            self.versions.lock().get(key).copied().filter(|version| !is_deletion(*version));
        let version =
            version.ok_or_else(|| error(S3ErrorCode::NoSuchKey, StatusCode::NOT_FOUND))?;
        match condition {
            Some(ETagCondition::ETag(etag)) if etag.value() != format!("v{version}") => {
                Err(error(S3ErrorCode::PreconditionFailed, StatusCode::PRECONDITION_FAILED))
            }
            _ => Ok(version),
        }
    }
}

fn error(code: S3ErrorCode, status: StatusCode) -> S3Error {
    let mut error = S3Error::with_message(code, "said the store");
    error.set_status_code(status);
    error
}

fn etag(version: u64) -> ETag {
    ETag::Strong(format!("v{version}"))
}

/// Another second for each version.
fn modified(version: u64) -> Timestamp {
    Timestamp::from(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000 + version))
}

#[async_trait]
impl S3 for VersionedStore {
    async fn get_object(
        &self,
        req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = req.input;
        self.pass().await;
        let found = self.find(&input.key, input.if_match.as_ref());
        // It says what was so when it looked.
        self.pass().await;
        let version = found?;
        let all = content::body(&input.key, version, length(&input.key, version));
        let (range, content_range) = match input.range {
            None => (0..all.len(), None),
            Some(Range::Int { first, last }) if (first as usize) < all.len() => {
                let end = last.map_or(all.len(), |last| (last as usize + 1).min(all.len()));
                (first as usize..end, Some(format!("bytes {first}-{}/{}", end - 1, all.len())))
            }
            Some(_) => {
                return Err(error(S3ErrorCode::InvalidRange, StatusCode::RANGE_NOT_SATISFIABLE));
            }
        };
        let chunks: Vec<Bytes> = range
            .clone()
            .step_by(32 << 10)
            .map(|at| all.slice(at..(at + (32 << 10)).min(range.end)))
            .collect();
        let body = futures::stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>));
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(range.len() as i64),
            body: Some(StreamingBlob::wrap(body)),
            content_range,
            e_tag: Some(etag(version)),
            last_modified: Some(modified(version)),
            ..Default::default()
        }))
    }

    async fn head_object(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        self.pass().await;
        let found = self.find(&req.input.key, req.input.if_match.as_ref());
        self.pass().await;
        let version = found.map_err(|mut error| {
            // As over HTTP: the status, and no word of why.
            let status = error.status_code().unwrap();
            let answer = RawAnswer { status, headers: http::HeaderMap::new(), body: Bytes::new() };
            error.set_source(Box::new(RemoteFailure::Answer(answer)));
            error
        })?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(length(&req.input.key, version) as i64),
            e_tag: Some(etag(version)),
            last_modified: Some(modified(version)),
            ..Default::default()
        }))
    }
}

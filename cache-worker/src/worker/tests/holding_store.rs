//! A store whose objects are patterns: it counts what is asked, holds answers back, and breaks off
//! on request.

use std::collections::HashMap;
use std::ops::Range as ByteSpan;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use s3s::dto::{
    ETag, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, Range, StreamingBlob,
    Timestamp,
};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use tokio::sync::{Semaphore, watch};
use verbs3_ufs::RawAnswer;
use verbs3_ufs::raw_answer::RemoteFailure;

/// One version of one object. Its bytes follow from its seed.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) seed: u64,
    pub(super) bytes: u64,
    pub(super) weak: bool,
    pub(super) version_id: Option<String>,
    pub(super) modified_s: i64,
}

impl Stored {
    pub(super) fn new(seed: u64, bytes: u64) -> Self {
        Self { seed, bytes, weak: false, version_id: None, modified_s: 1_000_000 }
    }

    pub(super) fn etag(&self) -> String {
        format!("\"{:032x}\"", self.seed)
    }

    pub(super) fn content(&self, range: ByteSpan<u64>) -> Vec<u8> {
        // One number for each 64 bytes: enough to tell any two pages, versions and offsets apart,
        // and quickly made.
        let line = |line: u64| {
            line.wrapping_add(self.seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
        };
        let mut content = Vec::with_capacity((range.end - range.start) as usize + 128);
        for number in range.start / 64..range.end.div_ceil(64) {
            content.extend_from_slice(&line(number).repeat(8));
        }
        content.drain(..(range.start % 64) as usize);
        content.truncate((range.end - range.start) as usize);
        content
    }
}

/// How the next answers go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The body breaks off after as many bytes.
    Truncate(u64),
    Forbidden,
    DeleteMarker,
    /// An error whose page is as long as one may be.
    LongError,
    NoSuchBucket,
}

pub(super) struct HoldingStore {
    pub(super) objects: Mutex<HashMap<String, Stored>>,
    pub(super) fault: Mutex<Option<Fault>>,
    pub(super) ignores_conditions: Mutex<bool>,
    /// Answers wait while this is true; they say what was true when they were asked.
    hold: watch::Sender<bool>,
    held: watch::Sender<usize>,
    /// Bodies go on as permits are added, one for each 64 KiB; `None`: at once.
    drip: Mutex<Option<Arc<Semaphore>>>,
    /// How often an answer lets others run between what it saw and its being sent.
    pub(super) yields: AtomicUsize,
    pub(super) gets: AtomicUsize,
    pub(super) heads: AtomicUsize,
    pub(super) body_bytes: Arc<AtomicU64>,
}

impl Default for HoldingStore {
    fn default() -> Self {
        Self {
            objects: Mutex::default(),
            fault: Mutex::default(),
            ignores_conditions: Mutex::default(),
            hold: watch::Sender::new(false),
            held: watch::Sender::new(0),
            drip: Mutex::default(),
            yields: AtomicUsize::new(0),
            gets: AtomicUsize::new(0),
            heads: AtomicUsize::new(0),
            body_bytes: Arc::default(),
        }
    }
}

impl HoldingStore {
    pub(super) fn put(&self, key: &str, object: Stored) {
        self.objects.lock().insert(key.into(), object);
    }

    pub(super) fn hold(&self) {
        self.hold.send_replace(true);
    }

    pub(super) fn release(&self) {
        self.hold.send_replace(false);
    }

    pub(super) async fn wait_held(&self, requests: usize) {
        self.held.subscribe().wait_for(|held| *held >= requests).await.unwrap();
    }

    pub(super) fn drip(&self) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(0));
        *self.drip.lock() = Some(permits.clone());
        permits
    }

    /// GETs, HEADs.
    pub(super) fn asked(&self) -> (usize, usize) {
        (self.gets.load(Ordering::SeqCst), self.heads.load(Ordering::SeqCst))
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        for _ in 0..self.yields.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        if *self.hold.borrow() {
            self.held.send_modify(|held| *held += 1);
            self.hold.subscribe().wait_for(|hold| !hold).await.unwrap();
            self.held.send_modify(|held| *held -= 1);
        }
    }

    fn find(&self, key: &str, if_match: Option<&str>) -> S3Result<Stored> {
        match *self.fault.lock() {
            Some(Fault::Forbidden) => return Err(error(S3ErrorCode::AccessDenied, 403)),
            Some(Fault::LongError) => {
                let mut long = error(S3ErrorCode::AccessDenied, 403);
                long.set_message("x".repeat(63 << 10));
                return Err(long);
            }
            Some(Fault::NoSuchBucket) => return Err(error(S3ErrorCode::NoSuchBucket, 404)),
            Some(Fault::DeleteMarker) => {
                let mut gone = error(S3ErrorCode::NoSuchKey, 404);
                let mut headers = http::HeaderMap::new();
                headers.insert("x-amz-delete-marker", http::HeaderValue::from_static("true"));
                gone.set_headers(headers);
                return Err(gone);
            }
            _ => {}
        }
        let object = self
            .objects
            .lock()
            .get(key)
            .cloned()
            .ok_or_else(|| error(S3ErrorCode::NoSuchKey, 404))?;
        match if_match {
            Some(etag)
                if etag != object.etag().trim_matches('"') && !*self.ignores_conditions.lock() =>
            {
                Err(error(S3ErrorCode::PreconditionFailed, 412))
            }
            _ => Ok(object),
        }
    }

    fn body(&self, object: &Stored, range: ByteSpan<u64>) -> StreamingBlob {
        const CHUNK: u64 = 64 << 10;
        let (object, drip, count) =
            (object.clone(), self.drip.lock().clone(), self.body_bytes.clone());
        let cut = match *self.fault.lock() {
            Some(Fault::Truncate(bytes)) => Some(range.start + bytes),
            _ => None,
        };
        let starts: Vec<u64> = range.clone().step_by(CHUNK as usize).collect();
        let chunks = futures::stream::iter(starts).then(move |start| {
            let (object, drip, count) = (object.clone(), drip.clone(), count.clone());
            let end = (start + CHUNK).min(range.end);
            async move {
                if let Some(drip) = drip {
                    drip.acquire().await.unwrap().forget();
                }
                if cut.is_some_and(|cut| cut < end) {
                    return Err(std::io::Error::other("broken off"));
                }
                count.fetch_add(end - start, Ordering::SeqCst);
                Ok(Bytes::from(object.content(start..end)))
            }
        });
        StreamingBlob::wrap(Box::pin(chunks))
    }
}

fn error(code: S3ErrorCode, status: u16) -> S3Error {
    let mut error = S3Error::with_message(code, "said the store");
    error.set_status_code(http::StatusCode::from_u16(status).unwrap());
    error
}

fn condition(etag: Option<&s3s::dto::ETagCondition>) -> Option<String> {
    match etag? {
        s3s::dto::ETagCondition::ETag(etag) => Some(etag.value().into()),
        s3s::dto::ETagCondition::Any => None,
    }
}

fn etag(object: &Stored) -> ETag {
    let value = object.etag().trim_matches('"').to_owned();
    if object.weak { ETag::Weak(value) } else { ETag::Strong(value) }
}

fn modified(object: &Stored) -> Timestamp {
    Timestamp::from(
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(object.modified_s as u64),
    )
}

#[async_trait]
impl S3 for HoldingStore {
    async fn get_object(
        &self,
        req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        let found = self.find(&req.input.key, condition(req.input.if_match.as_ref()).as_deref());
        self.wait().await;
        let object = found?;
        let (range, content_range) = match req.input.range {
            None => (0..object.bytes, None),
            Some(Range::Int { first, last }) if first < object.bytes => {
                let end = last.map_or(object.bytes, |last| (last + 1).min(object.bytes));
                (first..end, Some(format!("bytes {first}-{}/{}", end - 1, object.bytes)))
            }
            Some(_) => return Err(error(S3ErrorCode::InvalidRange, 416)),
        };
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some((range.end - range.start) as i64),
            // As AWS has it: with whole objects alone.
            checksum_crc32: req
                .input
                .checksum_mode
                .filter(|_| content_range.is_none())
                .map(|_| "AAAAAA==".into()),
            body: Some(self.body(&object, range)),
            content_range,
            e_tag: Some(etag(&object)),
            last_modified: Some(modified(&object)),
            version_id: object.version_id.clone(),
            ..Default::default()
        }))
    }

    async fn head_object(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        self.heads.fetch_add(1, Ordering::SeqCst);
        let found = self.find(&req.input.key, condition(req.input.if_match.as_ref()).as_deref());
        self.wait().await;
        let object = match found {
            Ok(object) => object,
            // As over HTTP: the status and headers, and no word of why.
            Err(mut error) => {
                let status = error.status_code().unwrap();
                let headers = error.headers().cloned().unwrap_or_default();
                error.set_source(Box::new(RemoteFailure::Answer(RawAnswer {
                    status,
                    headers,
                    body: Bytes::new(),
                })));
                return Err(error);
            }
        };
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(object.bytes as i64),
            e_tag: Some(etag(&object)),
            last_modified: Some(modified(&object)),
            version_id: object.version_id.clone(),
            checksum_crc32: req.input.checksum_mode.map(|_| "AAAAAA==".into()),
            ..Default::default()
        }))
    }
}

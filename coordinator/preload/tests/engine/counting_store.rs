//! A store that counts what it is asked for, and fails, stalls or lies by key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use md5::{Digest, Md5};
use parking_lot::Mutex;
use s3s::dto::{
    ETag, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, Range, StreamingBlob,
};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

/// Hook that receives a store's request and its key.
pub type Meanwhile = Box<dyn FnMut(&CountingStore, &str, &str) + Send>;

/// Store of objects whose bytes follow from their names.
#[derive(Default)]
pub struct CountingStore {
    pub objects: Mutex<BTreeMap<String, u64>>,
    /// Text of some objects.
    pub texts: Mutex<BTreeMap<String, String>>,
    /// Keys whose bodies can't be had.
    pub fails: Mutex<BTreeSet<String>>,
    /// Keys whose ETags are the MD5 of something else.
    pub lies: Mutex<BTreeSet<String>>,
    pub gets: AtomicU64,
    pub heads: AtomicU64,
    pub lists: AtomicU64,
    pub body_bytes: AtomicU64,
    /// Delay of GETs in milliseconds, the GETs that wait now, and the most that ever waited.
    pub slow_ms: AtomicU64,
    pub under_way: AtomicU64,
    pub under_way_most: AtomicU64,
    /// Number of GETs after which all others wait for ever.
    pub stalls_after: AtomicU64,
    pub lists_fail: AtomicBool,
    /// Lists are answered with 503 SlowDown.
    pub lists_busy: AtomicBool,
    /// Keys, and how often each is answered with 503 SlowDown.
    pub busy: Mutex<BTreeMap<String, u32>>,
    /// Runs before a request is answered, with `list` or `get` and the key or prefix.
    pub meanwhile: Mutex<Option<Meanwhile>>,
}

impl CountingStore {
    pub fn content(&self, key: &str) -> Option<Vec<u8>> {
        if let Some(text) = self.texts.lock().get(key) {
            return Some(text.clone().into_bytes());
        }
        let bytes = *self.objects.lock().get(key)?;
        let seed =
            key.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        Some(
            (0..bytes)
                .map(|at| (at.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
                .collect(),
        )
    }

    fn etag(&self, key: &str, content: &[u8]) -> ETag {
        let mut digest = Md5::new();
        digest.update(content);
        if self.lies.lock().contains(key) {
            digest.update(b"and more");
        }
        ETag::Strong(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn happen(&self, what: &str, key: &str) {
        if let Some(meanwhile) = self.meanwhile.lock().as_mut() {
            meanwhile(self, what, key);
        }
    }

    /// Replaces an object.
    pub fn replace(&self, key: &str, text: &str) {
        self.objects.lock().insert(key.to_owned(), text.len() as u64);
        self.texts.lock().insert(key.to_owned(), text.to_owned());
    }

    pub fn asked(&self) -> (u64, u64) {
        (self.gets.load(Ordering::SeqCst), self.heads.load(Ordering::SeqCst))
    }

    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::SeqCst)
    }
}

fn error(code: S3ErrorCode, status: u16) -> S3Error {
    let mut error = S3Error::with_message(code, "said the store");
    error.set_status_code(http::StatusCode::from_u16(status).unwrap());
    error
}

#[async_trait]
impl S3 for CountingStore {
    async fn get_object(
        &self,
        req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let (key, gets) = (&req.input.key, self.gets.fetch_add(1, Ordering::SeqCst));
        let stalls_after = self.stalls_after.load(Ordering::SeqCst);
        if stalls_after > 0 && gets >= stalls_after {
            std::future::pending::<()>().await;
        }
        let slow = self.slow_ms.load(Ordering::SeqCst);
        if slow > 0 {
            let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            self.under_way_most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(slow)).await;
            self.under_way.fetch_sub(1, Ordering::SeqCst);
        }
        self.happen("get", key);
        if let Some(left) = self.busy.lock().get_mut(key).filter(|left| **left > 0) {
            *left -= 1;
            return Err(error(S3ErrorCode::SlowDown, 503));
        }
        if self.fails.lock().contains(key) {
            return Err(error(S3ErrorCode::InternalError, 500));
        }
        let content = self.content(key).ok_or_else(|| error(S3ErrorCode::NoSuchKey, 404))?;
        let bytes = content.len() as u64;
        let (range, content_range) = match req.input.range {
            None => (0..bytes, None),
            Some(Range::Int { first, last }) if first < bytes => {
                let end = last.map_or(bytes, |last| (last + 1).min(bytes));
                (first..end, Some(format!("bytes {first}-{}/{bytes}", end - 1)))
            }
            Some(_) => return Err(error(S3ErrorCode::InvalidRange, 416)),
        };
        let body = Bytes::from(content[range.start as usize..range.end as usize].to_vec());
        self.body_bytes.fetch_add(body.len() as u64, Ordering::SeqCst);
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(body.len() as i64),
            body: Some(StreamingBlob::from(s3s::Body::from(body))),
            content_range,
            e_tag: Some(self.etag(key, &content)),
            ..Default::default()
        }))
    }

    async fn head_object(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        self.heads.fetch_add(1, Ordering::SeqCst);
        let content =
            self.content(&req.input.key).ok_or_else(|| error(S3ErrorCode::NoSuchKey, 404))?;
        let e_tag = Some(self.etag(&req.input.key, &content));
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(content.len() as i64),
            e_tag,
            ..Default::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        if self.lists_fail.load(Ordering::SeqCst) {
            return Err(error(S3ErrorCode::AccessDenied, 403));
        }
        if self.lists_busy.load(Ordering::SeqCst) {
            return Err(error(S3ErrorCode::SlowDown, 503));
        }
        let prefix = req.input.prefix.unwrap_or_default();
        self.happen("list", &prefix);
        let after = req.input.start_after.unwrap_or_default();
        let most = req.input.max_keys.unwrap_or(1000) as usize;
        let keys: Vec<(String, u64)> = {
            let objects = self.objects.lock();
            let from = objects.range(prefix.clone()..).filter(|(key, _)| **key > after);
            let below = from.take_while(|(key, _)| key.starts_with(&prefix));
            below.take(most + 1).map(|(key, bytes)| (key.clone(), *bytes)).collect()
        };
        let contents = keys.iter().take(most).map(|(key, bytes)| Object {
            key: Some(key.clone()),
            size: Some(*bytes as i64),
            e_tag: Some(self.etag(key, &self.content(key).unwrap())),
            ..Object::default()
        });
        let contents = Some(contents.collect());
        let is_truncated = Some(keys.len() > most);
        Ok(S3Response::new(ListObjectsV2Output { contents, is_truncated, ..Default::default() }))
    }
}

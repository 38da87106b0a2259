//! Owns a store that fails on purpose, for tests: by a script, or at random from a seed. Wraps any
//! store; knows nothing of caches.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use s3s::dto::*;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, StdError};
use tokio::sync::watch;

use crate::operations::every_operation;
use crate::raw_answer::RemoteFailure;
use crate::ufs::s3_request;

/// An operation that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultyOp {
    Get,
    Head,
    /// PutObject and UploadPart.
    Put,
    /// ListObjects, ListObjectsV2 and ListObjectVersions.
    List,
    Copy,
    /// CompleteMultipartUpload.
    Complete,
    /// DeleteObject and DeleteObjects.
    Delete,
}

/// A way to fail.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreFault {
    /// The request does nothing and is answered with this status and code.
    Refused { status: u16, code: &'static str, retry_after: Option<u64> },
    /// The request takes effect and its answer is lost: a write of unknown outcome.
    AnswerLost,
    /// The body breaks off after `after` bytes: of a Get to its reader, of a Put to the store.
    BodyCut { after: u64 },
    /// Get: the body silently ends early, or goes on.
    BodyLength { by: i64 },
    /// Get, Head: the answer names another ETag.
    OtherEtag,
    /// Get, Head: the object is replaced just before, so that a condition fails.
    Replaced { with: &'static str },
    /// Nothing happens until [`FaultInjector::release_held`].
    Held,
}

/// The plan of the next faults. Clones share it.
#[derive(Clone)]
pub struct FaultInjector {
    shared: Arc<FaultInjectorInner>,
}

struct FaultInjectorInner {
    script: Mutex<VecDeque<(FaultyOp, StoreFault)>>,
    random: Mutex<Option<FaultRandom>>,
    released: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
    seen: Mutex<Vec<FaultyOp>>,
}

struct FaultRandom {
    state: u64,
    percent: u64,
    kinds: Vec<(FaultyOp, StoreFault)>,
}

impl FaultRandom {
    /// Returns the next SplitMix64 number, so that a test that prints its seed can be run again.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Default for FaultInjector {
    fn default() -> Self {
        let (script, random, seen) = (Mutex::default(), Mutex::new(None), Mutex::default());
        let (released, waiting) = (watch::Sender::new(false), watch::Sender::new(0));
        Self { shared: Arc::new(FaultInjectorInner { script, random, released, waiting, seen }) }
    }
}

impl FaultInjector {
    /// Makes every request of an operation in `kinds` fail with a chance of `percent`. Each fails
    /// in one of the ways that `kinds` has for it.
    pub fn with_seed(seed: u64, percent: u64, kinds: Vec<(FaultyOp, StoreFault)>) -> Self {
        let faults = Self::default();
        *faults.shared.random.lock() = Some(FaultRandom { state: seed, percent, kinds });
        faults
    }

    /// Makes the next request of this operation fail with `fault`. Calls add up, in order.
    pub fn next(&self, op: FaultyOp, fault: StoreFault) {
        self.shared.script.lock().push_back((op, fault));
    }

    /// Releases all held requests, now and later.
    pub fn release_held(&self) {
        self.shared.released.send_replace(true);
    }

    /// Waits until `count` requests are held.
    pub async fn wait_until_held(&self, count: usize) {
        let mut waiting = self.shared.waiting.subscribe();
        // The sender lives as long as `self`.
        let _ = waiting.wait_for(|waiting| *waiting >= count).await;
    }

    /// Returns the count of requests of an operation so far.
    pub fn count_requests(&self, op: FaultyOp) -> usize {
        self.shared.seen.lock().iter().filter(|seen| **seen == op).count()
    }

    fn take_fault(&self, op: FaultyOp) -> Option<StoreFault> {
        self.shared.seen.lock().push(op);
        let mut script = self.shared.script.lock();
        if let Some(at) = script.iter().position(|(scripted, _)| *scripted == op) {
            return script.remove(at).map(|(_, fault)| fault);
        }
        let mut random = self.shared.random.lock();
        let random = random.as_mut()?;
        let kinds: Vec<StoreFault> = random
            .kinds
            .iter()
            .filter(|(kind, _)| *kind == op)
            .map(|(_, fault)| fault.clone())
            .collect();
        if kinds.is_empty() || random.next() % 100 >= random.percent {
            return None;
        }
        let at = random.next() % kinds.len() as u64;
        kinds.into_iter().nth(usize::try_from(at).expect("less than a length"))
    }

    async fn hold_request(&self) {
        let mut released = self.shared.released.subscribe();
        self.shared.waiting.send_modify(|waiting| *waiting += 1);
        let _ = released.wait_for(|released| *released).await;
        self.shared.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

/// A store that fails as its [`FaultInjector`] says.
pub struct FaultyStore {
    inner: Arc<dyn S3>,
    faults: FaultInjector,
}

impl FaultyStore {
    /// Wraps a store. Requests pass unchanged where `faults` has nothing for them.
    pub fn new(inner: Arc<dyn S3>, faults: FaultInjector) -> Self {
        Self { inner, faults }
    }

    /// Applies the faults that all operations share. Returns `Some` for a fault that the operation
    /// itself must apply.
    async fn inject_before(&self, op: FaultyOp) -> S3Result<Option<StoreFault>> {
        let Some(fault) = self.faults.take_fault(op) else { return Ok(None) };
        match fault {
            StoreFault::Refused { status, code, retry_after } => {
                Err(refused_error(status, code, retry_after))
            }
            StoreFault::Held => {
                self.faults.hold_request().await;
                Ok(None)
            }
            other => Ok(Some(other)),
        }
    }

    async fn replace_object(&self, bucket: &str, key: &str, with: &'static str) -> S3Result<()> {
        let input = PutObjectInput {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            content_length: Some(with.len() as i64),
            body: Some(s3s::Body::from(Bytes::from_static(with.as_bytes())).into()),
            ..Default::default()
        };
        self.inner.put_object(s3_request(http::Method::PUT, input)).await.map(|_| ())
    }

    async fn get(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let fault = self.inject_before(FaultyOp::Get).await?;
        if let Some(StoreFault::Replaced { with }) = fault {
            self.replace_object(&req.input.bucket, &req.input.key, with).await?;
        }
        let mut response = self.inner.get_object(req).await?;
        // The raw answer, where there is one, would contradict the faulty answer.
        response.extensions = http::Extensions::new();
        let output = &mut response.output;
        match fault {
            Some(StoreFault::AnswerLost) => return Err(lost_answer_error()),
            Some(StoreFault::OtherEtag) => {
                output.e_tag = Some(ETag::Strong("another-version".into()))
            }
            Some(StoreFault::BodyCut { after }) => {
                output.body = output.body.take().map(|body| cut_body(body, after, true))
            }
            Some(StoreFault::BodyLength { by }) if by > 0 => {
                output.body = output.body.take().map(|body| {
                    let more =
                        Bytes::from(vec![b'x'; usize::try_from(by).expect("a test's number")]);
                    let more = futures::stream::iter([Ok::<Bytes, StdError>(more)]);
                    StreamingBlob::new(FaultyBody { inner: Box::pin(body.chain(more)) })
                });
            }
            Some(StoreFault::BodyLength { by }) => {
                let length = output.content_length.unwrap_or_default();
                let left = u64::try_from(length.saturating_add(by)).unwrap_or(0);
                output.body = output.body.take().map(|body| cut_body(body, left, false));
            }
            Some(StoreFault::Refused { .. } | StoreFault::Replaced { .. } | StoreFault::Held)
            | None => {}
        }
        Ok(response)
    }

    async fn head_with_fault(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let fault = self.inject_before(FaultyOp::Head).await?;
        if let Some(StoreFault::Replaced { with }) = fault {
            self.replace_object(&req.input.bucket, &req.input.key, with).await?;
        }
        let mut response = self.inner.head_object(req).await?;
        match fault {
            Some(StoreFault::AnswerLost) => return Err(lost_answer_error()),
            Some(StoreFault::OtherEtag) => {
                response.output.e_tag = Some(ETag::Strong("another-version".into()))
            }
            _ => {}
        }
        Ok(response)
    }

    async fn call_with_fault<T>(
        &self,
        fault: Option<StoreFault>,
        call: impl Future<Output = S3Result<S3Response<T>>>,
    ) -> S3Result<S3Response<T>> {
        let response = call.await?;
        if fault == Some(StoreFault::AnswerLost) { Err(lost_answer_error()) } else { Ok(response) }
    }
}

fn refused_error(status: u16, code: &'static str, retry_after: Option<u64>) -> S3Error {
    let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
    let mut error = S3Error::with_message(code, "refused on purpose");
    error
        .set_status_code(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    let mut headers = HeaderMap::new();
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    error.set_headers(headers);
    error
}

fn lost_answer_error() -> S3Error {
    let mut error = S3Error::new(S3ErrorCode::ServiceUnavailable);
    error.set_source(Box::new(RemoteFailure::NoAnswer("the answer was lost on purpose".into())));
    error
}

/// Cuts a body after `left` bytes, with an error or in silence.
fn cut_body(body: StreamingBlob, left: u64, loudly: bool) -> StreamingBlob {
    let pieces =
        futures::stream::unfold((body, left, false), move |(mut body, left, ended)| async move {
            if ended {
                return None;
            }
            if left == 0 {
                let error: StdError = std::io::Error::other("cut on purpose").into();
                return loudly.then_some((Err(error), (body, 0, true)));
            }
            let mut piece = match body.next().await? {
                Ok(piece) => piece,
                Err(error) => return Some((Err(error), (body, 0, true))),
            };
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - piece.len() as u64;
            Some((Ok(piece), (body, left, false)))
        });
    StreamingBlob::new(FaultyBody { inner: Box::pin(pieces) })
}

type FaultyPieces = Pin<Box<dyn Stream<Item = Result<Bytes, StdError>> + Send + Sync>>;

struct FaultyBody {
    inner: FaultyPieces,
}

impl Stream for FaultyBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.as_mut().poll_next(cx)
    }
}

impl ByteStream for FaultyBody {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::unknown()
    }
}

macro_rules! dispatch {
    (get_object $self:ident $req:ident) => {
        $self.get($req).await
    };
    (head_object $self:ident $req:ident) => {
        $self.head_with_fault($req).await
    };
    (put_object $self:ident $req:ident) => {
        dispatch!(body put_object $self $req)
    };
    (upload_part $self:ident $req:ident) => {
        dispatch!(body upload_part $self $req)
    };
    (list_objects $self:ident $req:ident) => {
        dispatch!(List list_objects $self $req)
    };
    (list_objects_v2 $self:ident $req:ident) => {
        dispatch!(List list_objects_v2 $self $req)
    };
    (list_object_versions $self:ident $req:ident) => {
        dispatch!(List list_object_versions $self $req)
    };
    (copy_object $self:ident $req:ident) => {
        dispatch!(Copy copy_object $self $req)
    };
    (complete_multipart_upload $self:ident $req:ident) => {
        dispatch!(Complete complete_multipart_upload $self $req)
    };
    (delete_object $self:ident $req:ident) => {
        dispatch!(Delete delete_object $self $req)
    };
    (delete_objects $self:ident $req:ident) => {
        dispatch!(Delete delete_objects $self $req)
    };
    (body $op:ident $self:ident $req:ident) => {{
        let fault = $self.inject_before(FaultyOp::Put).await?;
        if let Some(StoreFault::BodyCut { after }) = fault {
            $req.input.body = $req.input.body.take().map(|body| cut_body(body, after, true));
        }
        $self.call_with_fault(fault, $self.inner.$op($req)).await
    }};
    ($kind:ident $op:ident $self:ident $req:ident) => {{
        let fault = $self.inject_before(FaultyOp::$kind).await?;
        $self.call_with_fault(fault, $self.inner.$op($req)).await
    }};
    ($op:ident $self:ident $req:ident) => {
        $self.inner.$op($req).await
    };
}

macro_rules! faulty {
    ($($op:ident $input:ident $output:ident,)*) => {
        #[async_trait::async_trait]
        impl S3 for FaultyStore {
            $(
                #[allow(unused_mut)]
                async fn $op(&self, mut req: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    dispatch!($op self req)
                }
            )*
        }
    };
}

every_operation!(faulty);

#[cfg(test)]
mod tests;

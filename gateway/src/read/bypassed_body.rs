//! Owns a body that the UFS streams past the tier. If it breaks off, the rest is asked for under
//! the ETag of its head: bytes of two versions never follow each other.

use std::fmt::Display;
use std::ops;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use http::Method;
use parking_lot::Mutex;
use s3s::dto::{
    ContentLength, ETag, ETagCondition, GetObjectInput, GetObjectOutput, Range, StreamingBlob,
};
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3Error, StdError};
use tokio::time::Instant;
use verbs3_ufs::raw_answer::observe_answer;
use verbs3_ufs::{RetryAdvice, s3_request};

use super::ObjectReaderInner;
use super::admission::BypassPermit;
use super::resumption_backoff::ResumptionBackoff;
use crate::mount::MountedBucket;
use crate::request_context::RequestContext;

/// A body past the tier that can ask for its rest.
pub(super) struct BypassedBody {
    shared: Arc<ObjectReaderInner>,
    cx: Arc<RequestContext>,
    inner: StreamingBlob,
    /// `None`: the rest can't be asked for.
    rest: Option<BypassBodyRest>,
    /// The lock is never locked: a response's body has to be `Sync`, and a call is not.
    asking: Option<Mutex<BoxFuture<'static, Result<StreamingBlob, RestRefusal>>>>,
    _place: BypassPermit,
}

/// What a body still has to bring, and how to ask for it.
pub(super) struct BypassBodyRest {
    mount: Arc<MountedBucket>,
    /// Asks for the same version, without any other condition.
    input: GetObjectInput,
    etag: ETag,
    bytes: ops::Range<u64>,
    resumption: ResumptionBackoff,
}

/// Reason why the rest did not come.
#[derive(Debug, thiserror::Error)]
enum RestRefusal {
    #[error("{source}")]
    Store { source: S3Error, is_final: bool },
    #[error("the ufs answered with something else")]
    OtherBytes,
}

impl RestRefusal {
    /// Returns whether another try would get the same refusal.
    fn is_final(&self) -> bool {
        match self {
            Self::Store { is_final, .. } => *is_final,
            Self::OtherBytes => true,
        }
    }
}

impl BypassBodyRest {
    /// Reads the rest from `input`, which the UFS was asked, and its answer `output`. `None`: the
    /// rest can't be asked for by itself.
    pub(super) fn from_answer(
        mount: &Arc<MountedBucket>,
        input: GetObjectInput,
        output: &GetObjectOutput,
    ) -> Option<Self> {
        let etag = output.e_tag.clone().filter(|etag| matches!(etag, ETag::Strong(_)))?;
        let length = u64::try_from(output.content_length?).ok()?;
        let first = match &output.content_range {
            Some(range) => first_byte(range)?,
            None => 0,
        };
        if input.part_number.is_some() {
            return None;
        }
        let input = GetObjectInput {
            if_match: Some(ETagCondition::ETag(etag.clone())),
            if_none_match: None,
            if_modified_since: None,
            if_unmodified_since: None,
            checksum_mode: None,
            ..input
        };
        let bytes = first..first.checked_add(length)?;
        Some(Self {
            mount: mount.clone(),
            input,
            etag,
            bytes,
            resumption: ResumptionBackoff::default(),
        })
    }

    /// Asks for the rest after a pause.
    fn ask_rest(
        &self,
        pause: Duration,
        cx: Arc<RequestContext>,
    ) -> BoxFuture<'static, Result<StreamingBlob, RestRefusal>> {
        let ops::Range { start, end } = self.bytes;
        let (mount, etag) = (self.mount.clone(), self.etag.clone());
        let range = Some(Range::Int { first: start, last: Some(end - 1) });
        let input = GetObjectInput { range, ..self.input.clone() };
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            let call =
                observe_answer(mount.ufs.s3_store().get_object(s3_request(Method::GET, input)));
            let failed = |(result, _): &(s3s::S3Result<_>, _)| {
                result.as_ref().err().map(ToString::to_string)
            };
            let (result, raw) = cx.ask_ufs(mount.ufs.ufs_name(), "GetObject", call, failed).await;
            let output = result.map_err(|source| RestRefusal::Store {
                source,
                is_final: raw.is_some_and(|raw| {
                    raw.status.is_client_error() && raw.retry_advice() == RetryAdvice::Never
                }),
            })?;
            let output = output.output;
            let is_rest = output.e_tag.as_ref() == Some(&etag)
                && output.content_range.as_deref().and_then(first_byte) == Some(start)
                && output.content_length == ContentLength::try_from(end - start).ok();
            match output.body.filter(|_| is_rest) {
                Some(body) => Ok(body),
                None => Err(RestRefusal::OtherBytes),
            }
        })
    }
}

/// Returns the first byte of a `Content-Range`.
fn first_byte(range: &str) -> Option<u64> {
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

impl BypassedBody {
    pub(super) fn new(
        shared: &Arc<ObjectReaderInner>,
        cx: &Arc<RequestContext>,
        inner: StreamingBlob,
        rest: Option<BypassBodyRest>,
        place: BypassPermit,
    ) -> Self {
        Self { shared: shared.clone(), cx: cx.clone(), inner, rest, asking: None, _place: place }
    }

    /// Tries again to get the rest. Returns whether a try was left.
    fn resume_body(&mut self, reason: &dyn Display) -> bool {
        let wait_max = self.shared.settings.resume_wait_max.0;
        let Some(rest) = self.rest.as_mut().filter(|rest| !rest.bytes.is_empty()) else {
            return false;
        };
        let Some(pause) = rest.resumption.next_pause(Instant::now(), wait_max) else {
            return false;
        };
        tracing::debug!(
            request = %self.cx.request_id(), at = rest.bytes.start, %reason,
            "the rest of a body is asked for again"
        );
        self.shared.metrics.resumptions.inc();
        self.asking = Some(Mutex::new(rest.ask_rest(pause, self.cx.clone())));
        true
    }

    fn cut_body(&self, error: StdError) -> Poll<Option<Result<Bytes, StdError>>> {
        self.shared.metrics.cut_bodies.inc();
        tracing::warn!(request = %self.cx.request_id(), %error, "a body from the ufs is cut");
        Poll::Ready(Some(Err(error)))
    }

    fn is_short(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| !rest.bytes.is_empty())
    }
}

impl Stream for BypassedBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(asking) = &mut this.asking {
                let asked = ready!(asking.get_mut().as_mut().poll(cx));
                this.asking = None;
                match asked {
                    Ok(body) => this.inner = body,
                    Err(refusal) => {
                        if refusal.is_final() || !this.resume_body(&refusal) {
                            return this.cut_body(refusal.into());
                        }
                        continue;
                    }
                }
            }
            let error: StdError = match ready!(Pin::new(&mut this.inner).poll_next(cx)) {
                Some(Ok(data)) => {
                    this.cx.add_ufs_bytes(data.len() as u64);
                    this.shared.metrics.ufs_bytes.inc_by(data.len() as u64);
                    if let Some(rest) = &mut this.rest {
                        rest.bytes.start += data.len() as u64;
                        rest.resumption.note_progress();
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
                Some(Err(error)) => error,
                None if this.is_short() => "the body ended early".into(),
                None => return Poll::Ready(None),
            };
            if !this.resume_body(&error) {
                return this.cut_body(error);
            }
        }
    }
}

impl ByteStream for BypassedBody {
    fn remaining_length(&self) -> RemainingLength {
        match &self.rest {
            Some(BypassBodyRest { bytes, .. }) => RemainingLength::new_exact(
                usize::try_from(bytes.end.saturating_sub(bytes.start)).unwrap_or(usize::MAX),
            ),
            None => self.inner.remaining_length(),
        }
    }
}

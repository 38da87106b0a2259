//! Owns the body of a response: the bytes at hand, then the fetched ones, of an exact length.
//!
//! Bytes are passed on as they lie in the arena. Dropping them after the socket has them frees the
//! memory.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use s3s::StdError;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};

use super::ObjectReaderInner;
use super::admission::ReadBytesPermit;
use super::object_fetch::ObjectFetch;
use crate::request_context::RequestContext;

/// A body out of the tier.
pub(super) struct AssembledBody {
    pub(super) shared: Arc<ObjectReaderInner>,
    pub(super) cx: Arc<RequestContext>,
    /// Bytes at hand.
    pub(super) ready: VecDeque<Bytes>,
    /// The lock is never locked: a response's body has to be `Sync`, and a fetch is not.
    pub(super) fetch: Option<Mutex<Box<ObjectFetch>>>,
    pub(super) remaining: u64,
    pub(super) _admitted: ReadBytesPermit,
}

/// The body ended before its declared length. It must not pass for a whole one.
#[derive(Debug, thiserror::Error)]
#[error("the body ended {missing} bytes before its end")]
struct ShortBodyError {
    missing: u64,
}

impl AssembledBody {
    pub(super) fn into_blob(self) -> StreamingBlob {
        StreamingBlob::new(self)
    }

    fn cut_body(&mut self, error: StdError) -> Poll<Option<Result<Bytes, StdError>>> {
        self.shared.metrics.cut_bodies.inc();
        tracing::warn!(request = %self.cx.request_id(), %error, missing = self.remaining, "a body is cut");
        self.fetch = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl Stream for AssembledBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.remaining == 0 {
            return Poll::Ready(None);
        }
        let next = match this.ready.pop_front() {
            Some(data) => Some(Ok(data)),
            None => match this.fetch.as_mut().map(|fetch| fetch.get_mut().poll_next(cx)) {
                Some(Poll::Pending) => return Poll::Pending,
                Some(Poll::Ready(next)) => next,
                None => None,
            },
        };
        match next {
            Some(Ok(data)) if data.len() as u64 <= this.remaining => {
                this.remaining -= data.len() as u64;
                if this.remaining == 0 {
                    this.fetch = None;
                }
                Poll::Ready(Some(Ok(data)))
            }
            Some(Err(error)) => this.cut_body(error.into()),
            Some(Ok(_)) | None => {
                let missing = this.remaining;
                this.cut_body(ShortBodyError { missing }.into())
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, None)
    }
}

impl ByteStream for AssembledBody {
    fn remaining_length(&self) -> RemainingLength {
        // A target without 64-bit addresses can't use objects that are too large for it to count.
        RemainingLength::new_exact(usize::try_from(self.remaining).unwrap_or(usize::MAX))
    }
}

//! Copies a body's bytes for populate on write while they pass to the store, without changing them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use s3s::StdError;
use s3s::stream::{ByteStream, RemainingLength};

use super::staged_body::PopulateFeed;
use crate::write::verified_body::VerifiedBody;

/// A verified body, of which each frame that the store gets is copied.
pub(crate) struct CopiedBody {
    inner: VerifiedBody,
    feed: PopulateFeed,
}

impl CopiedBody {
    pub(crate) fn new(inner: VerifiedBody, feed: PopulateFeed) -> Self {
        Self { inner, feed }
    }
}

impl Stream for CopiedBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_next(cx));
        if let Some(Ok(bytes)) = &frame {
            this.feed.copy_bytes(bytes);
        }
        Poll::Ready(frame)
    }
}

impl ByteStream for CopiedBody {
    fn remaining_length(&self) -> RemainingLength {
        self.inner.remaining_length()
    }
}

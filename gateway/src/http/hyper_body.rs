//! Wraps hyper's body of a request. Owns one fact: whether its sender may still be sending.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::client_progress::ClientProgress;

pub(crate) struct HttpRequestBody {
    inner: Incoming,
    over: bool,
    /// `None` over HTTP/2, where one body says nothing about the others of its connection.
    progress: Option<Arc<ClientProgress>>,
}

impl HttpRequestBody {
    /// Wraps hyper's body. Over HTTP/1 the connection counts as unread until its end was read.
    pub fn new(inner: Incoming, version: Version, progress: &Arc<ClientProgress>) -> Self {
        let progress = (version < Version::HTTP_2).then(|| progress.clone());
        if let Some(progress) = &progress {
            progress.left_unread(!inner.is_end_stream());
        }
        Self { inner, over: false, progress }
    }
}

impl Body for HttpRequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        this.over |= matches!(polled, Poll::Ready(None));
        if let Some(progress) = &this.progress
            && this.is_end_stream()
        {
            progress.left_unread(false);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

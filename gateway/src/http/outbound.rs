//! An answer's body on its way to the socket. Owns the request's end: when the body is over, or its connection is, the request
//! is counted, logged, and leaves the admission. Changes no byte and copies none.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Uri};
use http_body::{Body, Frame, SizeHint};
use s3s::StdError;
use tokio::sync::OwnedSemaphorePermit;
use tracing::info;

use crate::exchange::Exchange;
use crate::metrics::Metrics;
use crate::operations::TABLE;

/// What is logged of a request when it ends.
pub(crate) struct Ending {
    pub exchange: Arc<Exchange>,
    pub metrics: Arc<Metrics>,
    pub method: Method,
    pub uri: Uri,
    pub status: u16,
    /// S3's code of an error.
    pub code: Option<Box<str>>,
    /// Dropped last: the admission counts requests until their end.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// See the module.
pub(crate) struct Outbound {
    inner: s3s::Body,
    bytes: u64,
    complete: bool,
    ending: Ending,
}

impl Outbound {
    pub fn new(inner: s3s::Body, ending: Ending) -> Self {
        Self { inner, bytes: 0, complete: false, ending }
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => this.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Poll::Ready(None) => this.complete = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        // hyper does not ask for the end of a body whose length it knows.
        let complete = self.complete || self.inner.is_end_stream() || self.ending.method == Method::HEAD;
        self.ending.end(self.bytes, complete);
    }
}

impl Ending {
    fn end(&self, bytes: u64, complete: bool) {
        let cx = &self.exchange.cx;
        let operation = self.exchange.row.get().copied();
        let seconds = cx.started().elapsed().as_secs_f64();
        let verdict = cx.verdict().map_or("none", |verdict| verdict.as_str());
        let transport = cx.via().map_or("none", |via| via.as_str());
        cx.add_body_bytes(bytes);
        self.metrics.answered(operation, self.status);
        self.metrics.seconds.observe(seconds);
        self.metrics.sent(verdict, transport, bytes);
        self.metrics.in_flight.dec();
        if !tracing::enabled!(target: "verbs3::access", tracing::Level::INFO) {
            return;
        }
        let (bucket, key) = self.exchange.target.get().map_or(("", ""), |(bucket, key)| (bucket, key));
        let path = if bucket.is_empty() { self.uri.path() } else { "" };
        info!(
            target: "verbs3::access",
            request = %cx.id(),
            method = %self.method,
            op = operation.and_then(|index| TABLE.get(index)).map_or("none", |row| row.name),
            bucket,
            key,
            path,
            status = self.status,
            code = self.code.as_deref().unwrap_or(""),
            bytes,
            complete,
            cache = verdict,
            transport,
            seconds,
            principal = self.exchange.identity.get().map_or("", |identity| identity.name()),
            "request",
        );
    }
}

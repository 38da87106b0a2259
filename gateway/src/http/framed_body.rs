//! An aws-chunked body as s3s gets it: with its framing, which is scanned on the way. The body
//! stays in the exchange. PutObject and UploadPart take it from there and unwrap it as it comes
//! (`write::chunked`).
//!
//! Other operations carry documents, which s3s reads whole. They read from here: s3s would accept a
//! body that ends between two chunks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use s3s::{S3Error, S3ErrorCode, S3Result, StdError};

use crate::http_exchange::HttpExchange;
use crate::write::body_fault::BodyFault;
use crate::write::chunk_scanner::ChunkScanner;

/// An aws-chunked body in the exchange, read through a framing scan.
pub(crate) struct FramedBody {
    exchange: Arc<HttpExchange>,
    scanner: ChunkScanner,
    over: bool,
}

/// Returns the decoded length of an aws-chunked body; `None` if it is not one. Every body that s3s
/// may unwrap must be scanned: s3s reads `5x` as 5.
pub(super) fn decoded_length(headers: &HeaderMap) -> S3Result<Option<u64>> {
    let forms = headers.get_all("x-amz-content-sha256");
    if !forms.iter().any(|form| form.as_bytes().starts_with(b"STREAMING-")) {
        return Ok(None);
    }
    let mut lengths = headers.get_all("x-amz-decoded-content-length").iter();
    let Some(length) = lengths.next() else { return Err(S3ErrorCode::MissingContentLength.into()) };
    let digits = length
        .to_str()
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(length) if lengths.next().is_none() => Ok(Some(length)),
        _ => Err(S3Error::with_message(
            S3ErrorCode::InvalidRequest,
            "x-amz-decoded-content-length is not one number",
        )),
    }
}

impl FramedBody {
    /// Wraps the body in `exchange`. `chunk_bytes_max` bounds a chunk, because s3s holds it whole.
    pub fn new(exchange: Arc<HttpExchange>, declared: u64, chunk_bytes_max: u64) -> Self {
        Self { exchange, scanner: ChunkScanner::new(declared, chunk_bytes_max), over: false }
    }

    fn fail_body(&mut self, fault: BodyFault) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        self.over = true;
        *self.exchange.fault.lock() = Some(fault.clone());
        Poll::Ready(Some(Err(Box::new(fault))))
    }
}

impl Body for FramedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(None);
        }
        let polled = match &mut *this.exchange.chunked.lock() {
            Some(inner) => ready!(Pin::new(inner).poll_frame(cx)),
            None => None,
        };
        match polled {
            Some(Ok(frame)) => {
                match frame.data_ref().map_or(Ok(()), |data| this.scanner.scan_bytes(data)) {
                    Ok(()) => Poll::Ready(Some(Ok(frame))),
                    Err(refusal) => this.fail_body(refusal.into()),
                }
            }
            Some(Err(error)) => {
                this.over = true;
                Poll::Ready(Some(Err(error)))
            }
            None => match this.scanner.finish() {
                Err(refusal) => this.fail_body(refusal.into()),
                Ok(()) => {
                    this.over = true;
                    Poll::Ready(None)
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }
}

//! A request's body as it comes from the socket: counted, bounded in time between frames and in
//! slowness, guarded if it is aws-chunked, and
//! checked if it is a document. Owns the fault slot's writing. Does not verify the bytes of objects.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use s3s::{S3Error, S3ErrorCode, S3Result, StdError};
use tokio::time::{Instant, Sleep, sleep};

use super::arriving::Arriving;
use super::rate_floor::{RateFloor, RateMin};
use crate::metrics::Metrics;
use crate::write::checks::{BodyFault, Checks};
use crate::write::chunk_guard::ChunkScanner;
use crate::write::verified::FaultSlot;

/// What is demanded of bodies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InboundOptions {
    pub chunk_bytes_max: u64,
    /// Between two frames.
    pub idle_max: Duration,
    pub rate_min: RateMin,
}

/// See the module.
pub(crate) struct Inbound {
    inner: Arriving,
    scanner: Option<ChunkScanner>,
    /// Of a document.
    checks: Option<Checks>,
    got: u64,
    idle_max: Duration,
    /// Made when the socket first has nothing to give.
    idle: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    floor: RateFloor,
    fault: FaultSlot,
    metrics: Arc<Metrics>,
    over: bool,
}

impl Inbound {
    pub fn new(
        inner: Arriving,
        headers: &HeaderMap,
        checks: Option<Checks>,
        options: InboundOptions,
        fault: FaultSlot,
        metrics: Arc<Metrics>,
    ) -> S3Result<Self> {
        let InboundOptions { chunk_bytes_max, idle_max, rate_min } = options;
        let floor = RateFloor::new(rate_min);
        let scanner = decoded_length(headers)?.map(|declared| ChunkScanner::new(declared, chunk_bytes_max));
        let (got, idle, waiting, over) = (0, None, false, false);
        Ok(Self { inner, scanner, checks, got, idle_max, idle, waiting, floor, fault, metrics, over })
    }

    fn fail(&mut self, fault: BodyFault) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        if let BodyFault::Chunks(refusal) = &fault {
            self.metrics.chunked_refused.with_label_values(&[refusal.reason()]).inc();
        }
        self.over = true;
        *self.fault.lock() = Some(fault.clone());
        Poll::Ready(Some(Err(Box::new(fault))))
    }

    fn frame(&mut self, frame: Frame<Bytes>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        self.waiting = false;
        if let Some(data) = frame.data_ref() {
            self.metrics.bytes_in.inc_by(data.len() as u64);
            self.got += data.len() as u64;
            if self.floor.arrive(data.len() as u64, Instant::now()) {
                return self.fail(BodyFault::Slow);
            }
            if let Some(checks) = &mut self.checks {
                checks.update(data);
            }
            if let Some(Err(refusal)) = self.scanner.as_mut().map(|scanner| scanner.scan(data)) {
                return self.fail(refusal.into());
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn end(&mut self) -> Result<(), BodyFault> {
        if let Some(scanner) = self.scanner.take() {
            scanner.finish()?;
        }
        self.checks.take().map_or(Ok(()), |checks| checks.finish(self.got))
    }

    fn idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.floor.wait(Instant::now());
        let idle_max = self.idle_max;
        let timer = self.idle.get_or_insert_with(|| Box::pin(sleep(idle_max)));
        if !self.waiting {
            self.waiting = true;
            timer.as_mut().reset(Instant::now() + idle_max);
        }
        timer.as_mut().poll(cx)
    }
}

/// What an aws-chunked body will hold; `None` if this is not one. No body that s3s may unwrap goes unscanned: s3s reads `5x` as 5.
fn decoded_length(headers: &HeaderMap) -> S3Result<Option<u64>> {
    let forms = headers.get_all("x-amz-content-sha256");
    if !forms.iter().any(|form| form.as_bytes().starts_with(b"STREAMING-")) {
        return Ok(None);
    }
    let mut lengths = headers.get_all("x-amz-decoded-content-length").iter();
    let Some(length) = lengths.next() else { return Err(S3ErrorCode::MissingContentLength.into()) };
    let digits = length.to_str().ok().filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(length) if lengths.next().is_none() => Ok(Some(length)),
        _ => Err(S3Error::with_message(S3ErrorCode::InvalidRequest, "x-amz-decoded-content-length is not one number")),
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => this.frame(frame),
            Poll::Ready(Some(Err(error))) => this.fail(BodyFault::Broken { reason: error.to_string() }),
            Poll::Ready(None) => match this.end() {
                Err(fault) => this.fail(fault),
                Ok(()) => {
                    this.over = true;
                    Poll::Ready(None)
                }
            },
            Poll::Pending => match this.idle(cx) {
                Poll::Ready(()) => {
                    let idle_ms = u64::try_from(this.idle_max.as_millis()).unwrap_or(u64::MAX);
                    this.fail(BodyFault::Idle { idle_ms })
                }
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        // A guarded body is not over before it was found complete.
        self.over || (self.scanner.is_none() && self.checks.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

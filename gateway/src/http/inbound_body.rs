//! Owns a request's body as it comes from the socket. Counts it, bounds its idle time, rate and
//! memory, and checks documents. Writes the fault slot. Does not verify the bytes of objects.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use s3s::StdError;
use tokio::time::{Instant, Sleep, sleep};

use super::document_checks;
use super::hyper_body::HttpRequestBody;
use super::rate_floor::{RateFloor, RateMin};
use crate::metrics::GatewayHttpMetrics;
use crate::request_context::RequestContext;
use crate::write::body_budget::{BodyBudget, BodyReservation};
use crate::write::body_fault::{BodyFault, FaultSlot};
use crate::write::checks::BodyChecks;

/// Bounds of all bodies of a gateway.
pub(crate) struct InboundBounds {
    /// Longest time between two frames.
    pub idle_max: Duration,
    pub rate_min: RateMin,
    pub budget: Arc<BodyBudget>,
    /// Memory of an object's body, whatever its length: the socket's buffer, the frame held back,
    /// and what is on its way to the UFS.
    pub upload_bytes: u64,
    /// Memory of a document, which s3s holds whole.
    pub document_bytes_max: u64,
}

/// What a body needs of its request.
pub(crate) struct BodyRequest {
    pub cx: Arc<RequestContext>,
    /// Receives the body's fault.
    pub fault: FaultSlot,
    /// Gives its memory. `None`: that is counted elsewhere.
    pub reservation: Option<Arc<BodyReservation>>,
}

/// A request's body, bounded and counted.
pub(crate) struct InboundBody {
    inner: HttpRequestBody,
    /// Set for documents.
    checks: Option<BodyChecks>,
    got: u64,
    idle_max: Duration,
    /// Made when the socket first has nothing to give.
    idle: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    floor: RateFloor,
    fault: FaultSlot,
    /// `None`: memory is counted elsewhere, or is taken already.
    reservation: Option<Arc<BodyReservation>>,
    cx: Arc<RequestContext>,
    metrics: Arc<GatewayHttpMetrics>,
    over: bool,
}

impl InboundBounds {
    /// Returns the reservation for a request's body. An aws-chunked document may be in memory
    /// twice: unwrapped, and a chunk of it.
    pub fn make_reservation(
        &self,
        cx: &Arc<RequestContext>,
        parts: &Parts,
    ) -> Arc<BodyReservation> {
        let length = parts
            .headers
            .get("content-length")
            .and_then(|length| length.to_str().ok()?.parse().ok());
        let bound = match document_checks::is_upload(&parts.method, &parts.uri) {
            true => self.upload_bytes,
            false => self.document_bytes_max.saturating_mul(2),
        };
        BodyReservation::new(
            self.budget.clone(),
            cx.clone(),
            length.map_or(bound, |length: u64| length.min(bound)),
        )
    }
}

impl InboundBody {
    /// Wraps a body of a request.
    pub fn new(
        inner: HttpRequestBody,
        checks: Option<BodyChecks>,
        bounds: &InboundBounds,
        request: BodyRequest,
        metrics: Arc<GatewayHttpMetrics>,
    ) -> Self {
        let BodyRequest { cx, fault, reservation } = request;
        let (idle_max, floor) = (bounds.idle_max, RateFloor::new(bounds.rate_min));
        let (got, idle, waiting, over) = (0, None, false, false);
        Self {
            inner,
            checks,
            got,
            idle_max,
            idle,
            waiting,
            floor,
            fault,
            reservation,
            cx,
            metrics,
            over,
        }
    }

    fn fail_body(&mut self, fault: BodyFault) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        self.over = true;
        *self.fault.lock() = Some(fault.clone());
        Poll::Ready(Some(Err(Box::new(fault))))
    }

    fn accept_frame(
        &mut self,
        frame: Frame<Bytes>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        self.waiting = false;
        if let Some(data) = frame.data_ref() {
            self.metrics.bytes_in.inc_by(data.len() as u64);
            self.cx.tenant().metrics().bytes_received.inc_by(data.len() as u64);
            self.got += data.len() as u64;
            if self.floor.note_arrival(data.len() as u64, Instant::now()) {
                return self.fail_body(BodyFault::Slow);
            }
            if let Some(checks) = &mut self.checks {
                checks.update(data);
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn finish_checks(&mut self) -> Result<(), BodyFault> {
        self.checks.take().map_or(Ok(()), |checks| checks.finish(self.got))
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.floor.begin_wait(Instant::now());
        let idle_max = self.idle_max;
        let timer = self.idle.get_or_insert_with(|| Box::pin(sleep(idle_max)));
        if !self.waiting {
            self.waiting = true;
            timer.as_mut().reset(Instant::now() + idle_max);
        }
        timer.as_mut().poll(cx)
    }
}

impl Body for InboundBody {
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
        // Nobody asks for a frame before the request's signature is verified.
        if let Some(reservation) = this.reservation.take()
            && !reservation.ensure_place()
        {
            return this.fail_body(BodyFault::Busy);
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => this.accept_frame(frame),
            Poll::Ready(Some(Err(error))) => this.fail_body(BodyFault::broken(error)),
            Poll::Ready(None) => match this.finish_checks() {
                Err(fault) => this.fail_body(fault),
                Ok(()) => {
                    this.over = true;
                    Poll::Ready(None)
                }
            },
            Poll::Pending => match this.poll_idle(cx) {
                Poll::Ready(()) => {
                    let idle_ms = u64::try_from(this.idle_max.as_millis()).unwrap_or(u64::MAX);
                    this.fail_body(BodyFault::Idle { idle_ms })
                }
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        // A checked body is over only once it was found complete.
        self.over || (self.checks.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

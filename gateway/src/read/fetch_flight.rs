//! Owns one block span of a body under way: its source, what came before its turn, and why it can't
//! go on. `object_fetch` decides where the rest of it comes from.

use std::collections::VecDeque;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::StatusCode;
use verbs3_client::{BypassReason, SpanItem, SpanRead};
use verbs3_protocol::CacheVerdict;
use verbs3_telemetry::ActiveTraceSpan;
use verbs3_ufs::{ObjectStream, RetryAdvice, UfsError};

use super::admission::{BypassPermit, ReadBytesPermit};
use super::resumption_backoff::ResumptionBackoff;
use crate::request_context::{BytesOrigin, ReadVerdict};

/// Reason why a body can't go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("the object was replaced or deleted while it was read")]
    VersionGone,
    #[error(transparent)]
    Ufs(UfsError),
    #[error(
        "too many reads past the cache tier are under way; raise gateway.read.bypass_in_flight_max"
    )]
    NoPlace,
}

pub(super) struct FetchFlight {
    /// Bytes of the object that it still has to give.
    pub(super) range: Range<u64>,
    pub(super) from: FlightSource,
    pub(super) resumption: ResumptionBackoff,
    /// Bytes that came before it was this flight's turn; no more than the range.
    pub(super) early: VecDeque<Bytes>,
    pub(super) ended: Option<FlightStep>,
    /// From its beginning to its end. In a box, because most reads are not traced.
    pub(super) trace_span: Option<Box<ActiveTraceSpan>>,
    /// Set for flights that began ahead.
    _admitted: Option<ReadBytesPermit>,
}

pub(super) enum FlightSource {
    /// Boxed: flights move within their queue, and a span has only one.
    Tier(Box<SpanRead>),
    Ufs(UfsRest),
    /// No source: the last one failed, and the next is asked after a pause.
    Pause(BoxFuture<'static, ()>),
}

pub(super) enum FlightStep {
    Bytes(Vec<Bytes>),
    End,
    /// The rest has to come from the UFS.
    Bypass(BypassReason),
    /// The pause is over: ask the tier for the rest.
    Resume,
    Failed(FetchError),
}

/// The rest of a span, read from the UFS.
pub(super) enum UfsRest {
    Opening(BoxFuture<'static, Result<(ObjectStream, BypassPermit), FetchError>>),
    Streaming { body: BoxStream<'static, Result<Bytes, UfsError>>, _place: BypassPermit },
}

impl FetchFlight {
    pub(super) fn new(
        range: Range<u64>,
        read: SpanRead,
        trace_span: Option<Box<ActiveTraceSpan>>,
        admitted: Option<ReadBytesPermit>,
    ) -> Self {
        let from = FlightSource::Tier(Box::new(read));
        let resumption = ResumptionBackoff::default();
        Self {
            range,
            from,
            resumption,
            early: VecDeque::new(),
            ended: None,
            trace_span,
            _admitted: admitted,
        }
    }

    /// Notes in the trace how the bytes came.
    pub(super) fn trace_origin(mut self) {
        let (Some(mut trace_span), origin) = (self.trace_span.take(), self.bytes_origin()) else {
            return;
        };
        if let Some((verdict, via)) = origin {
            trace_span.set_attribute("verbs3.cache", verdict.as_str());
            trace_span.set_attribute("verbs3.transport", via.as_str());
        }
    }

    pub(super) fn bytes_origin(&self) -> Option<(ReadVerdict, BytesOrigin)> {
        match &self.from {
            FlightSource::Tier(read) => read.bytes_origin().map(|(verdict, kind)| {
                (verdict_of(verdict), kind.map_or(BytesOrigin::Gateway, BytesOrigin::Tier))
            }),
            FlightSource::Ufs(_) => Some((ReadVerdict::Bypass, BytesOrigin::Ufs)),
            FlightSource::Pause(_) => None,
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FlightStep> {
        if !self.early.is_empty() {
            return Poll::Ready(FlightStep::Bytes(std::mem::take(&mut self.early).into()));
        }
        match self.ended.take() {
            Some(step) => Poll::Ready(step),
            None => self.poll_source(cx),
        }
    }

    /// Returns whether nobody was asked yet for want of memory.
    pub(super) fn lacks_memory(&self) -> bool {
        matches!(&self.from, FlightSource::Tier(read) if read.lacks_memory())
    }

    /// Drives a flight whose turn has not come.
    pub(super) fn drive_ahead(&mut self, cx: &mut Context<'_>) {
        while self.ended.is_none() {
            match self.poll_source(cx) {
                Poll::Ready(FlightStep::Bytes(data)) => self.early.extend(data),
                Poll::Ready(step) => self.ended = Some(step),
                Poll::Pending => return,
            }
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<FlightStep> {
        let step = ready!(match &mut self.from {
            FlightSource::Tier(read) => read.poll_next(cx).map(|item| match item {
                SpanItem::Bytes(data) => FlightStep::Bytes(data),
                SpanItem::End => FlightStep::End,
                SpanItem::VersionGone => FlightStep::Failed(FetchError::VersionGone),
                SpanItem::Bypass(reason) => FlightStep::Bypass(reason),
            }),
            FlightSource::Ufs(rest) => rest.poll(cx),
            FlightSource::Pause(pause) => pause.as_mut().poll(cx).map(|()| FlightStep::Resume),
        });
        if let FlightStep::Bytes(data) = &step {
            self.range.start += data.iter().map(|data| data.len() as u64).sum::<u64>();
            self.resumption.note_progress();
        }
        Poll::Ready(step)
    }
}

impl UfsRest {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FlightStep> {
        loop {
            match self {
                Self::Opening(opening) => match opening.as_mut().poll(cx) {
                    Poll::Ready(Ok((stream, place))) => {
                        *self = Self::Streaming { body: stream.body, _place: place }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(FlightStep::Failed(error)),
                    Poll::Pending => return Poll::Pending,
                },
                Self::Streaming { body, .. } => {
                    return body.poll_next_unpin(cx).map(|item| match item {
                        Some(Ok(data)) => FlightStep::Bytes(vec![data]),
                        Some(Err(error)) => FlightStep::Failed(FetchError::from_ufs(error)),
                        None => FlightStep::End,
                    });
                }
            }
        }
    }
}

impl FetchError {
    pub(super) fn from_ufs(error: UfsError) -> Self {
        let gone = match &error {
            UfsError::Changed { .. } => true,
            // The range lies within the version, so a 416 means another version.
            UfsError::Answer { answer, .. } => matches!(
                answer.status,
                StatusCode::PRECONDITION_FAILED
                    | StatusCode::NOT_FOUND
                    | StatusCode::RANGE_NOT_SATISFIABLE
            ),
            UfsError::Unreachable { .. }
            | UfsError::Truncated { .. }
            | UfsError::Untrusted { .. }
            | UfsError::Throttled { .. } => false,
        };
        if gone { Self::VersionGone } else { Self::Ufs(error) }
    }

    /// Returns whether the rest may come from elsewhere, or from the same store a moment later.
    pub(super) fn leaves_other_sources(&self) -> bool {
        match self {
            Self::VersionGone => false,
            Self::NoPlace => true,
            Self::Ufs(error) => error.retry_advice() == RetryAdvice::Later,
        }
    }
}

pub(super) fn verdict_of(verdict: CacheVerdict) -> ReadVerdict {
    match verdict {
        CacheVerdict::Hit => ReadVerdict::Hit,
        CacheVerdict::Partial => ReadVerdict::Partial,
        CacheVerdict::Miss => ReadVerdict::Miss,
    }
}

#[cfg(test)]
mod tests {
    use verbs3_ufs::RawAnswer;

    use super::*;

    #[test]
    fn only_a_replaced_shortened_or_deleted_version_counts_as_gone() {
        for (status, gone) in [(404, true), (412, true), (416, true), (403, false), (503, false)] {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            let answer =
                Box::new(RawAnswer { status, headers: http::HeaderMap::new(), body: Bytes::new() });
            let error = FetchError::from_ufs(UfsError::Answer { ufs: "store".to_owned(), answer });
            assert_eq!(matches!(error, FetchError::VersionGone), gone, "{status}");
        }
    }
}

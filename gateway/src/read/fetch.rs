//! The bytes of one body, in order: a window of spans in flight, each from the tier or, where that
//! can't help, from the UFS.
//!
//! The first span is the client's; those behind it begin only where memory is free right now, and
//! are driven by the same poll: no task, no channel. A version that is gone ends the body; bytes of
//! two versions are never mixed, since every span names the version, and every read of the UFS is
//! held against it. Any other failure after the first byte is followed by another source, from the
//! byte reached on ([`Resumption`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::StatusCode;
use tokio::time::Instant;
use verbs3_client::{BypassReason, SpanItem, SpanRead, SpanRequest};
use verbs3_protocol::{CacheVerdict, Geometry, ObjectKey, Span, Version};
use verbs3_telemetry::{Child, Value};
use verbs3_ufs::{ObjectStream, ReadObject, Retry, UfsError};

use super::Shared;
use super::admission::{Admitted, Place};
use super::resumption::Resumption;
use crate::mount::Mount;
use crate::request::{RequestContext, Verdict, Via};

/// Why a body can't go on.
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

/// What a body is of.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) shared: Arc<Shared>,
    pub(super) cx: Arc<RequestContext>,
    pub(super) mount: Arc<Mount>,
    pub(super) object: Arc<ObjectKey>,
    pub(super) version: Arc<Version>,
    /// The client itself named the version.
    pub(super) version_named: bool,
}

/// The bytes of one body under way.
pub(super) struct Fetch {
    subject: Subject,
    flights: VecDeque<Flight>,
    /// First byte for which no flight was begun.
    next: u64,
    end: u64,
    /// Flights at once: grows as the client drains.
    window: usize,
    window_max: usize,
    /// The reader goes on where others stopped.
    ahead_bytes_max: u32,
    ready: VecDeque<Bytes>,
    origin: Option<(Verdict, Via)>,
    /// The client has, or is about to have, the head of the answer: a failure can no longer be one.
    answer_left: bool,
    /// The home is told that its version is gone, before the body is cut: who reads again then sees
    /// the new one.
    telling: Option<BoxFuture<'static, ()>>,
}

struct Flight {
    /// Bytes of the object that it has still to give.
    range: Range<u64>,
    from: From,
    resumption: Resumption,
    /// Came before it was this flight's turn; no more than the range.
    early: VecDeque<Bytes>,
    ended: Option<Step>,
    /// From its beginning to its end; in a box, since most reads have none.
    span: Option<Box<Child>>,
    /// For flights that were begun ahead.
    _admitted: Option<Admitted>,
}

enum From {
    /// Boxed: one a span, and flights move within their queue.
    Tier(Box<SpanRead>),
    Ufs(UfsRest),
    /// Nobody: what gave it has failed, and the next source is asked after a pause.
    Pause(BoxFuture<'static, ()>),
}

enum Step {
    Bytes(Vec<Bytes>),
    End,
    /// The rest has to come from the UFS.
    Bypass(BypassReason),
    /// The pause is over: the rest is asked of the tier again.
    Resume,
    Failed(FetchError),
}

/// The rest of a span, read at the UFS.
enum UfsRest {
    Opening(BoxFuture<'static, Result<(ObjectStream, Place), FetchError>>),
    Streaming { body: BoxStream<'static, Result<Bytes, UfsError>>, _place: Place },
}

/// Flights of a body at its beginning: one for the client, and one so that the next bytes are on
/// their way meanwhile.
const WINDOW_MIN: usize = 2;

impl Fetch {
    /// Bytes `range` of the object; `begun` is a read of its beginning that is under way.
    pub(super) fn new(
        subject: Subject,
        range: Range<u64>,
        begun: Option<SpanRead>,
        ahead_bytes_max: u32,
    ) -> Self {
        let block_bytes = u64::from(subject.shared.geometry().block_bytes);
        let window_max = usize::try_from(subject.shared.options.window_bytes / block_bytes)
            .unwrap_or(usize::MAX)
            .max(1);
        let mut fetch = Self {
            subject,
            flights: VecDeque::new(),
            next: range.start,
            end: range.end,
            window: WINDOW_MIN.min(window_max),
            window_max,
            ahead_bytes_max,
            ready: VecDeque::new(),
            origin: None,
            answer_left: false,
            telling: None,
        };
        if let Some(read) = begun {
            let bytes = absolute(fetch.subject.shared.geometry(), &read.request().span);
            fetch.next = bytes.end;
            let span = fetch.subject.span(&bytes);
            fetch.flights.push_back(Flight::new(bytes, read, span, None));
        }
        fetch
    }

    /// How the first bytes were found and came, once there are some.
    pub(super) fn origin(&self) -> Option<(Verdict, Via)> {
        self.origin
    }

    /// Waits for the first bytes. A failure is an answer until they are there.
    pub(super) async fn prime(&mut self) -> Result<(), FetchError> {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await?;
        self.note_answer_left();
        Ok(())
    }

    /// The answer goes to the client now.
    pub(super) fn note_answer_left(&mut self) {
        self.answer_left = true;
    }

    /// The next bytes. `None` after the last.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, FetchError>>> {
        match self.poll_ready(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(self.ready.pop_front().map(Ok)),
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FetchError>> {
        loop {
            if let Some(telling) = &mut self.telling {
                ready!(telling.as_mut().poll(cx));
                self.telling = None;
                return Poll::Ready(Err(FetchError::VersionGone));
            }
            if !self.ready.is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.launch(cx);
            let Some(front) = self.flights.front_mut() else { return Poll::Ready(Ok(())) };
            match front.poll(cx) {
                Poll::Ready(Step::Bytes(data)) => {
                    if self.origin.is_none() {
                        self.origin = front.origin();
                    }
                    self.ready.extend(data.into_iter().filter(|data| !data.is_empty()));
                }
                Poll::Ready(Step::End) => {
                    if let Some(flight) = self.flights.pop_front() {
                        flight.tell();
                    }
                    self.window = (self.window + 1).min(self.window_max);
                }
                Poll::Ready(Step::Bypass(reason)) => {
                    tracing::debug!(
                        request = %self.subject.cx.id(), object = %self.subject.object,
                        reason = reason.as_str(
                    ),
                        "a span comes from the ufs");
                    if let Some(span) = &mut front.span {
                        span.set("verbs3.bypass", Value::Name(reason.as_str()));
                    }
                    front.from = From::Ufs(self.subject.read_at_ufs(front.range.clone()));
                }
                Poll::Ready(Step::Resume) => match self.subject.read_rest(front) {
                    Some(read) => front.from = From::Tier(Box::new(read)),
                    None => front.ended = Some(Step::End),
                },
                // All of it is there: what its source says afterwards is of no use to anybody.
                Poll::Ready(Step::Failed(_)) if front.range.is_empty() => {
                    front.ended = Some(Step::End)
                }
                Poll::Ready(Step::Failed(error)) => {
                    if let Some(pause) = self.subject.pause_after(front, &error, self.answer_left) {
                        front.from = From::Pause(pause);
                        continue;
                    }
                    if let Some(span) = &mut front.span {
                        span.fail(error.to_string());
                    }
                    if let FetchError::VersionGone = error {
                        self.telling = Some(self.subject.tell_version_gone());
                        continue;
                    }
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    for flight in self.flights.iter_mut().skip(1) {
                        flight.drive(cx);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Begins flights up to the window. The first always begins; others only if there is room for
    /// them now.
    fn launch(&mut self, cx: &mut Context<'_>) {
        while self.flights.len() < self.window && self.next < self.end {
            let geometry = self.subject.shared.geometry();
            let Some(span) = geometry.spans(self.next..self.end).next() else { return };
            let bytes = absolute(geometry, &span);
            let ahead = !self.flights.is_empty();
            let admitted = if ahead {
                let Some(admitted) =
                    self.subject.shared.admission.try_enter(bytes.end - bytes.start)
                else {
                    return;
                };
                Some(admitted)
            } else {
                None
            };
            let past_end = if bytes.end == self.end {
                self.ahead_bytes_max.min(geometry.block_bytes - span.range.end)
            } else {
                0
            };
            let noted = self.subject.span(&bytes);
            let mut read = self.subject.shared.tier.read_span(SpanRequest {
                object: self.subject.object.clone(),
                version: self.subject.version.clone(),
                span,
                ahead_bytes: past_end,
                trace: self.subject.cx.onward(noted.as_deref()),
            });
            if ahead && !read.start() {
                if let Some(noted) = noted {
                    noted.discard();
                }
                return;
            }
            self.next = bytes.end;
            let mut flight = Flight::new(bytes, read, noted, admitted);
            if ahead {
                flight.drive(cx);
            }
            self.flights.push_back(flight);
        }
    }
}

impl Flight {
    fn new(
        range: Range<u64>,
        read: SpanRead,
        span: Option<Box<Child>>,
        admitted: Option<Admitted>,
    ) -> Self {
        let from = From::Tier(Box::new(read));
        let resumption = Resumption::default();
        Self {
            range,
            from,
            resumption,
            early: VecDeque::new(),
            ended: None,
            span,
            _admitted: admitted,
        }
    }

    /// Notes how it came, for the trace.
    fn tell(mut self) {
        let (Some(mut span), origin) = (self.span.take(), self.origin()) else { return };
        if let Some((verdict, via)) = origin {
            span.set("verbs3.cache", Value::Name(verdict.as_str()));
            span.set("verbs3.transport", Value::Name(via.as_str()));
        }
    }

    fn origin(&self) -> Option<(Verdict, Via)> {
        match &self.from {
            From::Tier(read) => {
                read.origin().map(|(verdict, kind)| (verdict_of(verdict), Via::Tier(kind)))
            }
            From::Ufs(_) => Some((Verdict::Bypass, Via::Ufs)),
            From::Pause(_) => None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if !self.early.is_empty() {
            return Poll::Ready(Step::Bytes(std::mem::take(&mut self.early).into()));
        }
        match self.ended.take() {
            Some(step) => Poll::Ready(step),
            None => self.poll_source(cx),
        }
    }

    /// Lets a flight go on whose turn has not come.
    fn drive(&mut self, cx: &mut Context<'_>) {
        while self.ended.is_none() {
            match self.poll_source(cx) {
                Poll::Ready(Step::Bytes(data)) => self.early.extend(data),
                Poll::Ready(step) => self.ended = Some(step),
                Poll::Pending => return,
            }
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let step = ready!(match &mut self.from {
            From::Tier(read) => read.poll_next(cx).map(|item| match item {
                SpanItem::Bytes(data) => Step::Bytes(data),
                SpanItem::End => Step::End,
                SpanItem::VersionGone => Step::Failed(FetchError::VersionGone),
                SpanItem::Bypass(reason) => Step::Bypass(reason),
            }),
            From::Ufs(rest) => rest.poll(cx),
            From::Pause(pause) => pause.as_mut().poll(cx).map(|()| Step::Resume),
        });
        if let Step::Bytes(data) = &step {
            self.range.start += data.iter().map(|data| data.len() as u64).sum::<u64>();
            self.resumption.note_progress();
        }
        Poll::Ready(step)
    }
}

impl UfsRest {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            match self {
                Self::Opening(opening) => match opening.as_mut().poll(cx) {
                    Poll::Ready(Ok((stream, place))) => {
                        *self = Self::Streaming { body: stream.body, _place: place }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Step::Failed(error)),
                    Poll::Pending => return Poll::Pending,
                },
                Self::Streaming { body, .. } => {
                    return body.poll_next_unpin(cx).map(|item| match item {
                        Some(Ok(data)) => Step::Bytes(vec![data]),
                        Some(Err(error)) => Step::Failed(FetchError::of(error)),
                        None => Step::End,
                    });
                }
            }
        }
    }
}

impl Subject {
    /// A part of the trace, if there is one.
    fn span(&self, bytes: &Range<u64>) -> Option<Box<Child>> {
        let mut span = self.cx.span("verbs3.span")?;
        span.set("verbs3.first_byte", Value::from(bytes.start));
        span.set("verbs3.bytes", Value::from(bytes.end - bytes.start));
        Some(Box::new(span))
    }

    /// Asks the tier anew for what a flight has still to give. `None`: it has given all.
    fn read_rest(&self, flight: &Flight) -> Option<SpanRead> {
        let span = self.shared.geometry().spans(flight.range.clone()).next()?;
        let trace = self.cx.onward(flight.span.as_deref());
        let (object, version) = (self.object.clone(), self.version.clone());
        Some(self.shared.tier.read_span(SpanRequest {
            object,
            version,
            span,
            ahead_bytes: 0,
            trace,
        }))
    }

    /// How long to wait before another source is asked for the rest of a flight. `None`: the
    /// failure is final.
    fn pause_after(
        &self,
        flight: &mut Flight,
        error: &FetchError,
        answer_left: bool,
    ) -> Option<BoxFuture<'static, ()>> {
        if !answer_left || !error.leaves_other_sources() {
            return None;
        }
        let pause =
            flight.resumption.next_pause(Instant::now(), self.shared.options.resume_wait_max)?;
        self.shared.metrics.resumptions.inc();
        tracing::debug!(request = %self.cx.id(), object = %self.object, at = flight.range.start, %error,
            "a body goes on from another source");
        Some(Box::pin(tokio::time::sleep(pause)))
    }

    fn tell_version_gone(&self) -> BoxFuture<'static, ()> {
        let Self { shared, object, version, .. } = self.clone();
        Box::pin(async move { shared.tier.tell_version_gone(&object, &version).await })
    }

    /// Bounded by `ufs_bypass_in_flight_max`; the answer is held against the version.
    fn read_at_ufs(&self, range: Range<u64>) -> UfsRest {
        let Self { shared, cx, mount, object, version, version_named } = self.clone();
        shared.metrics.fallback_spans.inc();
        UfsRest::Opening(Box::pin(async move {
            let place = shared.places.enter(cx.principal()).await.ok_or(FetchError::NoPlace)?;
            let wanted = ReadObject {
                bucket: mount.bucket.clone(),
                key: object.key.clone(),
                version_id: version.version_id.clone(),
                if_match: Some(version.etag.clone()),
                // Never empty: a flight ends before.
                range: Some(range.start..=range.end - 1),
                checksums: false,
            };
            let ask = async |wanted: ReadObject| {
                let call = mount.ufs.read(wanted);
                cx.ask_ufs((mount.ufs.name(), "GetObject"), call, |read| {
                    read.as_ref().err().map(ToString::to_string)
                })
                .await
            };
            let mut read = ask(wanted.clone()).await;
            if !version_named
                && version.version_id.is_some()
                && read.as_ref().is_err_and(is_forbidden)
            {
                // Naming a version takes a right of its own (s3:GetObjectVersion), which reading
                // the object does not.
                read = ask(ReadObject { version_id: None, ..wanted }).await;
            }
            let mut stream = read.map_err(FetchError::of)?;
            let other_id =
                |id: &String| version.version_id.as_ref().is_some_and(|wanted| wanted != id);
            let other = stream.head.version_id.as_ref().is_some_and(other_id);
            if other || stream.head.bytes != version.bytes || stream.range != range {
                return Err(FetchError::VersionGone);
            }
            let counted = stream.body.inspect(move |item| {
                if let Ok(data) = item {
                    cx.add_ufs_bytes(data.len() as u64);
                    shared.metrics.ufs_bytes.inc_by(data.len() as u64);
                }
            });
            stream.body = counted.boxed();
            Ok((stream, place))
        }))
    }
}

impl FetchError {
    fn of(error: UfsError) -> Self {
        let gone = match &error {
            UfsError::Changed { .. } => true,
            // A range of the version itself is within it.
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

    /// Whether the rest may come from elsewhere, or from the same store a moment later.
    fn leaves_other_sources(&self) -> bool {
        match self {
            Self::VersionGone => false,
            Self::NoPlace => true,
            Self::Ufs(error) => error.retry() == Retry::Later,
        }
    }
}

fn is_forbidden(error: &UfsError) -> bool {
    error.answer().is_some_and(|answer| answer.status == StatusCode::FORBIDDEN)
}

pub(super) fn verdict_of(verdict: CacheVerdict) -> Verdict {
    match verdict {
        CacheVerdict::Hit => Verdict::Hit,
        CacheVerdict::Partial => Verdict::Partial,
        CacheVerdict::Miss => Verdict::Miss,
    }
}

fn absolute(geometry: Geometry, span: &Span) -> Range<u64> {
    let base = u64::from(span.block.0) * u64::from(geometry.block_bytes);
    base + u64::from(span.range.start)..base + u64::from(span.range.end)
}

#[cfg(test)]
mod tests {
    use verbs3_ufs::RawAnswer;

    use super::*;

    #[test]
    fn a_version_that_is_replaced_or_shorter_or_deleted_is_gone_and_one_that_is_forbidden_is_not() {
        for (status, gone) in [(404, true), (412, true), (416, true), (403, false), (503, false)] {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            let answer =
                Box::new(RawAnswer { status, headers: http::HeaderMap::new(), body: Bytes::new() });
            let error = FetchError::of(UfsError::Answer { ufs: "store".to_owned(), answer });
            assert_eq!(matches!(error, FetchError::VersionGone), gone, "{status}");
        }
    }
}

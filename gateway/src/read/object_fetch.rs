//! Owns the bytes of one body, in order: a window of spans in flight, each from the tier or, where
//! the tier can't help, from the UFS.
//!
//! The client waits for the first span. Later ones begin only where memory is free now, and the
//! same poll drives them: no task, no channel. If the version is gone, the body ends. Bytes of two
//! versions are never mixed: every span names the version, and every read of the UFS is checked
//! against it. After any other failure behind the first byte, another source goes on from the byte
//! reached (`ResumptionBackoff`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::StatusCode;
use tokio::time::Instant;
use verbs3_client::{ObjectBytesPlace, SpanRead, SpanRequest};
use verbs3_protocol::{BlockGeometry, BlockSpan, ContentVersion, ObjectKey};
use verbs3_rdma::foreign_memory::BodyPlace;
use verbs3_telemetry::{ActiveTraceSpan, clamp_number};
use verbs3_ufs::{ReadObject, UfsError};

use super::ObjectReaderInner;
use super::fetch_flight::{FetchError, FetchFlight, FlightSource, FlightStep, UfsRest};
use crate::mount::MountedBucket;
use crate::request_context::{BytesOrigin, ReadVerdict, RequestContext};

/// The object and version of a body, and what its reads need.
#[derive(Clone)]
pub(super) struct FetchSubject {
    pub(super) shared: Arc<ObjectReaderInner>,
    pub(super) cx: Arc<RequestContext>,
    pub(super) mount: Arc<MountedBucket>,
    pub(super) object: Arc<ObjectKey>,
    pub(super) version: Arc<ContentVersion>,
    /// True if the client itself named the version.
    pub(super) version_named: bool,
}

/// The bytes of one body under way.
pub(super) struct ObjectFetch {
    subject: FetchSubject,
    flights: VecDeque<FetchFlight>,
    /// First byte for which no flight has begun.
    next: u64,
    /// The bytes of the body, told to workers so that they ask the UFS for them at once.
    request_range: Range<u64>,
    /// Flights at once; it grows as the client drains.
    window: usize,
    window_max: usize,
    /// Bytes of readahead, because the reader goes on where others stopped.
    ahead_bytes_max: u32,
    /// Where the client has the bytes land, where it has lent memory.
    place: Option<ObjectBytesPlace>,
    ready: VecDeque<Bytes>,
    origin: Option<(ReadVerdict, BytesOrigin)>,
    /// True once the client has, or is about to get, the head of the answer. A failure can't be an
    /// answer any more.
    answer_left: bool,
    /// Tells the home that its version is gone, before the body is cut. The next read then sees the
    /// new version.
    telling: Option<BoxFuture<'static, ()>>,
}

/// Flights of a body at its beginning: one for the client, and one so that the next bytes are
/// already on their way.
const WINDOW_MIN: usize = 2;

impl ObjectFetch {
    /// Fetches bytes `range` of the object. `begun`: a read of its beginning that is under way.
    /// `first_byte`: the first byte of the answer's body, which may be before the range.
    pub(super) fn new(
        subject: FetchSubject,
        range: Range<u64>,
        begun: Option<SpanRead>,
        ahead_bytes_max: u32,
        first_byte: u64,
    ) -> Self {
        let takes_body = |body: &&Arc<BodyPlace>| range.end - first_byte <= body.len_bytes();
        let place = subject.cx.body_place().filter(takes_body).cloned();
        let place = place.map(|body| ObjectBytesPlace { body, first_byte });
        let block_bytes = u64::from(subject.shared.block_geometry().block_bytes);
        let window_max = usize::try_from(subject.shared.settings.window.0 / block_bytes)
            .unwrap_or(usize::MAX)
            .max(1);
        let mut fetch = Self {
            subject,
            flights: VecDeque::new(),
            next: range.start,
            request_range: range,
            window: WINDOW_MIN.min(window_max),
            window_max,
            ahead_bytes_max,
            place,
            ready: VecDeque::new(),
            origin: None,
            answer_left: false,
            telling: None,
        };
        if let Some(read) = begun {
            let bytes =
                object_range(fetch.subject.shared.block_geometry(), &read.span_request().span);
            fetch.next = bytes.end;
            let trace_span = fetch.subject.begin_trace_span(&bytes);
            let read = read.land_in(fetch.place.clone());
            fetch.flights.push_back(FetchFlight::new(bytes, read, trace_span, None));
        }
        fetch
    }

    /// Returns how the first bytes were found, and over what they came. `None` before that.
    pub(super) fn bytes_origin(&self) -> Option<(ReadVerdict, BytesOrigin)> {
        self.origin
    }

    /// Waits for the first bytes. Until then a failure can be an answer.
    pub(super) async fn await_first_bytes(&mut self) -> Result<(), FetchError> {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await?;
        self.note_answer_left();
        Ok(())
    }

    /// Notes that the answer goes to the client now.
    pub(super) fn note_answer_left(&mut self) {
        self.answer_left = true;
    }

    /// Returns the next bytes. `None` after the last.
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
            self.launch_flights(cx);
            let Some(front) = self.flights.front_mut() else { return Poll::Ready(Ok(())) };
            match front.poll(cx) {
                Poll::Ready(FlightStep::Bytes(data)) => {
                    if self.origin.is_none() {
                        self.origin = front.bytes_origin();
                    }
                    self.ready.extend(data.into_iter().filter(|data| !data.is_empty()));
                }
                Poll::Ready(FlightStep::End) => {
                    if let Some(flight) = self.flights.pop_front() {
                        flight.trace_origin();
                    }
                    self.window = (self.window + 1).min(self.window_max);
                }
                Poll::Ready(FlightStep::Bypass(reason)) => {
                    tracing::debug!(
                        request = %self.subject.cx.request_id(), object = %self.subject.object,
                        reason = reason.as_str(),
                        "a span comes from the ufs"
                    );
                    if let Some(trace_span) = &mut front.trace_span {
                        trace_span.set_attribute("verbs3.bypass", reason.as_str());
                    }
                    front.from = FlightSource::Ufs(self.subject.read_at_ufs(front.range.clone()));
                }
                Poll::Ready(FlightStep::Resume) => {
                    match self.subject.read_rest(front, &self.request_range) {
                        Some(read) => front.from = FlightSource::Tier(Box::new(read)),
                        None => front.ended = Some(FlightStep::End),
                    }
                }
                // All bytes are there, so a later failure of the source does not matter.
                Poll::Ready(FlightStep::Failed(_)) if front.range.is_empty() => {
                    front.ended = Some(FlightStep::End)
                }
                Poll::Ready(FlightStep::Failed(error)) => {
                    if let Some(pause) = self.subject.pause_after(front, &error, self.answer_left) {
                        front.from = FlightSource::Pause(pause);
                        continue;
                    }
                    if let Some(trace_span) = &mut front.trace_span {
                        trace_span.mark_failed(error.to_string());
                    }
                    if let FetchError::VersionGone = error {
                        self.telling = Some(self.subject.tell_version_gone());
                        continue;
                    }
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    for flight in self.flights.iter_mut().skip(1) {
                        flight.drive_ahead(cx);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Begins flights up to the window. The first always begins, and waits for memory if there is
    /// none; others only if there is memory now, and the first has its own.
    fn launch_flights(&mut self, cx: &mut Context<'_>) {
        while self.flights.len() < self.window && self.next < self.request_range.end {
            let geometry = self.subject.shared.block_geometry();
            let Some(span) = geometry.cut_spans(self.next..self.request_range.end).next() else {
                return;
            };
            let bytes = object_range(geometry, &span);
            let ahead = match self.flights.front() {
                Some(front) if front.lacks_memory() => return,
                front => front.is_some(),
            };
            let admitted = if ahead {
                let FetchSubject { shared, cx, .. } = &self.subject;
                let admitted = shared.admission.try_admit(cx, bytes.end - bytes.start);
                let Some(admitted) = admitted else { return };
                Some(admitted)
            } else {
                None
            };
            let past_end = if bytes.end == self.request_range.end {
                self.ahead_bytes_max.min(geometry.block_bytes - span.range.end)
            } else {
                0
            };
            let trace_span = self.subject.begin_trace_span(&bytes);
            let mut read = self.subject.shared.tier.read_span(SpanRequest {
                object: self.subject.object.clone(),
                version: self.subject.version.clone(),
                span,
                ahead_bytes: past_end,
                request_range: self.request_range.clone(),
                trace: self.subject.cx.outgoing_trace(trace_span.as_deref()),
                tenant: self.subject.cx.tenant().worker_tag(),
                place: self.place.clone(),
            });
            let has_begun = read.start();
            if ahead && !has_begun {
                if let Some(trace_span) = trace_span {
                    trace_span.discard_span();
                }
                return;
            }
            self.next = bytes.end;
            let mut flight = FetchFlight::new(bytes, read, trace_span, admitted);
            if ahead {
                flight.drive_ahead(cx);
            }
            self.flights.push_back(flight);
        }
    }
}

impl FetchSubject {
    /// Begins the trace's span of a flight, if the request is traced.
    fn begin_trace_span(&self, bytes: &Range<u64>) -> Option<Box<ActiveTraceSpan>> {
        let mut trace_span = self.cx.begin_trace_span("verbs3.span")?;
        trace_span.set_attribute("verbs3.first_byte", clamp_number(bytes.start));
        trace_span.set_attribute("verbs3.bytes", clamp_number(bytes.end - bytes.start));
        Some(Box::new(trace_span))
    }

    /// Asks the tier for what a flight still has to give. `None`: it has given everything.
    fn read_rest(&self, flight: &FetchFlight, request_range: &Range<u64>) -> Option<SpanRead> {
        let span = self.shared.block_geometry().cut_spans(flight.range.clone()).next()?;
        let trace = self.cx.outgoing_trace(flight.trace_span.as_deref());
        let (object, version) = (self.object.clone(), self.version.clone());
        Some(self.shared.tier.read_span(SpanRequest {
            object,
            version,
            span,
            ahead_bytes: 0,
            request_range: request_range.clone(),
            trace,
            tenant: self.cx.tenant().worker_tag(),
            // Its place was claimed before.
            place: None,
        }))
    }

    /// Returns a pause before another source is asked for the rest of a flight. `None`: the failure
    /// is final.
    fn pause_after(
        &self,
        flight: &mut FetchFlight,
        error: &FetchError,
        answer_left: bool,
    ) -> Option<BoxFuture<'static, ()>> {
        if !answer_left || !error.leaves_other_sources() {
            return None;
        }
        let pause =
            flight.resumption.next_pause(Instant::now(), self.shared.settings.resume_wait_max.0)?;
        self.shared.metrics.resumptions.inc();
        tracing::debug!(request = %self.cx.request_id(), object = %self.object, at = flight.range.start, %error,
            "a body goes on from another source");
        Some(Box::pin(tokio::time::sleep(pause)))
    }

    fn tell_version_gone(&self) -> BoxFuture<'static, ()> {
        let Self { shared, object, version, .. } = self.clone();
        Box::pin(async move { shared.tier.tell_version_gone(&object, &version).await })
    }

    /// Reads a range from the UFS, bounded by `gateway.read.bypass_in_flight_max`. The answer is
    /// checked against the version.
    fn read_at_ufs(&self, range: Range<u64>) -> UfsRest {
        let Self { shared, cx, mount, object, version, version_named } = self.clone();
        shared.metrics.fallback_spans.inc();
        UfsRest::Opening(Box::pin(async move {
            shared.rates.take_bytes(&mount.ufs, cx.tenant(), range.end - range.start).await;
            let place = shared.places.take_permit(&cx).await.ok_or(FetchError::NoPlace)?;
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
                cx.ask_ufs(mount.ufs.ufs_name(), "GetObject", call, |read| {
                    read.as_ref().err().map(ToString::to_string)
                })
                .await
            };
            let mut read = ask(wanted.clone()).await;
            if !version_named
                && version.version_id.is_some()
                && read.as_ref().is_err_and(is_forbidden)
            {
                // Naming a version needs a right of its own (s3:GetObjectVersion); reading the
                // object does not.
                read = ask(ReadObject { version_id: None, ..wanted }).await;
            }
            let mut stream = read.map_err(FetchError::from_ufs)?;
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

fn is_forbidden(error: &UfsError) -> bool {
    error.raw_answer().is_some_and(|answer| answer.status == StatusCode::FORBIDDEN)
}

fn object_range(geometry: BlockGeometry, span: &BlockSpan) -> Range<u64> {
    let base = u64::from(span.block.0) * u64::from(geometry.block_bytes);
    base + u64::from(span.range.start)..base + u64::from(span.range.end)
}

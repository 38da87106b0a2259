//! Records the spans of a request while it is served, and hands them over when it ends. Owns
//! sampling, the bound on spans, and a trace's clock. Never blocks: a trace that finds the queue
//! full is dropped and counted.
//!
//! The spans are OpenTelemetry's data. Its `Tracer` does not make them: a span of its can't be
//! taken back, and is exported by itself instead of with its request.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use http::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::metrics::{SpanDropReason, TelemetryMetrics};
use super::trace_context::read_trace_headers;

/// All spans of a finished request; the request's own span comes last.
pub(super) type FinishedTrace = Vec<SpanData>;

/// Starts traces. Each process has one.
#[derive(Debug)]
pub struct RequestTracer {
    pub(super) queue: mpsc::Sender<FinishedTrace>,
    /// Ratio of sampled requests among those whose client does not decide.
    pub(super) sample_ratio: f64,
    /// Most spans of one request, besides its own.
    pub(super) spans_max: usize,
    pub(super) metrics: Arc<TelemetryMetrics>,
}

/// Trace of one request.
#[derive(Debug)]
pub struct RequestTrace {
    tracer: Arc<RequestTracer>,
    /// The caller's span. If it is not sampled, the trace is only passed on.
    parent: SpanContext,
    own: SpanId,
    wall: SystemTime,
    clock: Instant,
    begun: AtomicUsize,
    over: Mutex<FinishedTrace>,
}

/// Span in progress. Dropping it ends it.
#[derive(Debug)]
pub struct ActiveTraceSpan {
    trace: Arc<RequestTrace>,
    id: SpanId,
    /// `None`: nothing is left to hand over.
    data: Option<SpanData>,
    /// Handed over by itself, not with its request.
    detached: bool,
}

/// Facts about a request that are known when it ends.
pub struct RequestFacts {
    pub name: &'static str,
    pub attributes: Vec<KeyValue>,
    pub failed: Option<Box<str>>,
}

/// Returns a number as an attribute's value, which is signed.
pub fn clamp_number(number: u64) -> Value {
    Value::I64(i64::try_from(number).unwrap_or(i64::MAX))
}

impl RequestTracer {
    /// Starts the trace of a request. `None`: it is not traced, and there is nothing to pass on. A
    /// client's own decision counts.
    pub fn begin_trace(self: &Arc<Self>, headers: &HeaderMap) -> Option<Arc<RequestTrace>> {
        match read_trace_headers(headers) {
            Some(parent) => Some(self.join_trace(parent)),
            None if rand::random::<f64>() < self.sample_ratio => {
                let (id, state) = (RandomIdGenerator::default().new_trace_id(), TraceState::NONE);
                let (no_span, flags) = (SpanId::INVALID, TraceFlags::SAMPLED);
                Some(self.join_trace(SpanContext::new(id, no_span, flags, false, state)))
            }
            None => None,
        }
    }

    /// Starts this process's part of a trace, under a span of another process.
    pub fn join_trace(self: &Arc<Self>, parent: SpanContext) -> Arc<RequestTrace> {
        Arc::new(RequestTrace {
            tracer: self.clone(),
            parent,
            own: RandomIdGenerator::default().new_span_id(),
            wall: SystemTime::now(),
            clock: Instant::now(),
            begun: AtomicUsize::new(0),
            over: Mutex::default(),
        })
    }

    /// Queues a trace, or drops and counts it if the queue is full.
    fn enqueue_trace(&self, finished: FinishedTrace) {
        let (count, metrics) = (finished.len(), &self.metrics);
        // Counted before sending, because the receiver counts down and may be faster.
        metrics.queue.inc();
        if self.queue.try_send(finished).is_err() {
            metrics.queue.dec();
            metrics.count_dropped(SpanDropReason::QueueFull, count);
        }
    }
}

impl RequestTrace {
    /// Starts a span below the request's. `None`: the trace is not recorded, or has too many spans.
    pub fn begin_child(self: &Arc<Self>, name: &'static str) -> Option<ActiveTraceSpan> {
        self.begin_span(name, false)
    }

    /// Starts a span that may outlive the request, such as work that others have joined. It is
    /// handed over by itself.
    pub fn begin_detached(self: &Arc<Self>, name: &'static str) -> Option<ActiveTraceSpan> {
        self.begin_span(name, true)
    }

    fn begin_span(self: &Arc<Self>, name: &'static str, detached: bool) -> Option<ActiveTraceSpan> {
        if !self.parent.is_sampled() {
            return None;
        }
        if self.begun.fetch_add(1, Ordering::Relaxed) >= self.tracer.spans_max {
            self.tracer.metrics.count_dropped(SpanDropReason::RequestBound, 1);
            return None;
        }
        let (trace, id) = (self.clone(), RandomIdGenerator::default().new_span_id());
        let data = SpanData {
            parent_span_id: self.own,
            start_time: self.wall_time(),
            ..self.span_data(id, name, SpanKind::Client)
        };
        Some(ActiveTraceSpan { trace, id, data: Some(data), detached })
    }

    /// Returns the context for an outgoing call. `span` is the call's parent; without it, the
    /// request's own span is.
    pub fn outgoing_context(&self, span: Option<&ActiveTraceSpan>) -> SpanContext {
        self.context_of(span.map_or(self.own, |span| span.id))
    }

    fn context_of(&self, span: SpanId) -> SpanContext {
        let (trace, flags) = (self.parent.trace_id(), self.parent.trace_flags());
        SpanContext::new(trace, span, flags, false, self.parent.trace_state().clone())
    }

    /// Ends the request's own span, and hands all over. Spans that end later are lost.
    pub fn finish_trace(&self, facts: impl FnOnce() -> RequestFacts) {
        if !self.parent.is_sampled() {
            return;
        }
        let RequestFacts { name, mut attributes, failed } = facts();
        let begun = self.begun.load(Ordering::Relaxed);
        if let Some(dropped @ 1..) = begun.checked_sub(self.tracer.spans_max) {
            attributes.push(KeyValue::new("verbs3.spans.dropped", clamp_number(dropped as u64)));
        }
        let mut spans = std::mem::take(&mut *self.over.lock());
        spans.push(SpanData {
            parent_span_is_remote: self.parent.is_remote(),
            attributes,
            status: failed.map_or(Status::Unset, |why| Status::error(String::from(why))),
            ..self.span_data(self.own, name, SpanKind::Server)
        });
        self.tracer.enqueue_trace(spans);
    }

    /// Returns a span from the request's begin until now, below the caller's.
    fn span_data(&self, id: SpanId, name: &'static str, span_kind: SpanKind) -> SpanData {
        SpanData {
            span_context: self.context_of(id),
            parent_span_id: self.parent.span_id(),
            parent_span_is_remote: false,
            span_kind,
            name: Cow::Borrowed(name),
            start_time: self.wall,
            end_time: self.wall_time(),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("verbs3")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }

    /// Returns the time by the trace's one reading of the wall clock: a step of that clock must not
    /// reorder spans.
    fn wall_time(&self) -> SystemTime {
        self.wall + self.clock.elapsed()
    }
}

impl ActiveTraceSpan {
    /// Adds an attribute. A name that is set twice is sent twice.
    pub fn set_attribute(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(data) = &mut self.data {
            data.attributes.push(KeyValue::new(name, value));
        }
    }

    /// Records why the span failed. The last reason counts.
    pub fn mark_failed(&mut self, why: impl Into<Cow<'static, str>>) {
        if let Some(data) = &mut self.data {
            data.status = Status::error(why);
        }
    }

    /// Drops the span as if it had never begun.
    pub fn discard_span(mut self) {
        self.data = None;
        self.trace.begun.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ActiveTraceSpan {
    fn drop(&mut self) {
        let Some(mut span) = self.data.take() else { return };
        span.end_time = self.trace.wall_time();
        if self.detached {
            self.trace.tracer.enqueue_trace(vec![span]);
        } else {
            self.trace.over.lock().push(span);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::trace_context::{build_remote_context, write_trace_headers};
    use http::HeaderValue;
    use opentelemetry::trace::TraceId;
    use prometheus::Registry;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn tracer(
        sample_ratio: f64,
        queue_max: usize,
    ) -> (Arc<RequestTracer>, mpsc::Receiver<FinishedTrace>, Registry) {
        let registry = Registry::new();
        let metrics = Arc::new(TelemetryMetrics::with_queue_max(&registry, queue_max).unwrap());
        let (queue, taken) = mpsc::channel(queue_max);
        (Arc::new(RequestTracer { queue, sample_ratio, spans_max: 2, metrics }), taken, registry)
    }

    fn headers(traceparent: &'static str) -> HeaderMap {
        let name = http::HeaderName::from_static("traceparent");
        HeaderMap::from_iter([(name, HeaderValue::from_static(traceparent))])
    }

    fn facts() -> RequestFacts {
        RequestFacts { name: "GetObject", attributes: Vec::new(), failed: None }
    }

    #[test]
    fn the_clients_decision_counts_and_otherwise_the_ratio() {
        let (never, ..) = tracer(0.0, 1);
        let (always, ..) = tracer(1.0, 1);
        assert!(never.begin_trace(&HeaderMap::new()).is_none());
        assert!(always.begin_trace(&HeaderMap::new()).unwrap().parent.is_sampled());
        assert!(never.begin_trace(&headers(SAMPLED)).unwrap().parent.is_sampled());
        let unsampled = always.begin_trace(&headers(UNSAMPLED)).unwrap();
        assert!(!unsampled.parent.is_sampled());
        let onward = write_trace_headers(&unsampled.outgoing_context(None)).0;
        let onward = onward.to_str().unwrap();
        assert!(
            onward.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && onward.ends_with("-00"),
            "{onward}"
        );
        assert!(!onward.contains("00f067aa0ba902b7"), "the UFS's parent is this gateway: {onward}");
    }

    #[test]
    fn a_trace_keeps_spans_up_to_the_bound_and_counts_the_rest() {
        let (tracer, mut taken, _registry) = tracer(0.0, 4);
        let trace = tracer.begin_trace(&headers(SAMPLED)).unwrap();
        let mut first = trace.begin_child("one").unwrap();
        first.mark_failed("away");
        let second = trace.begin_child("two").unwrap();
        assert!(trace.begin_child("three").is_none());
        drop((first, second));
        trace.finish_trace(facts);
        let finished = taken.try_recv().unwrap();
        let names: Vec<_> = finished.iter().map(|span| span.name.as_ref()).collect();
        assert_eq!(names, ["one", "two", "GetObject"]);
        assert_eq!(finished[0].status, Status::error("away"));
        assert_eq!(finished[0].parent_span_id, finished[2].span_context.span_id());
        assert_eq!(finished[2].parent_span_id, SpanId::from(0x00f0_67aa_0ba9_02b7));
        assert_eq!(finished[2].attributes, [KeyValue::new("verbs3.spans.dropped", 1)]);
        assert!(finished[0].start_time <= finished[0].end_time);
        assert_eq!(tracer.metrics.queue.get(), 1);
    }

    /// One that never began is not handed over at all.
    #[test]
    fn a_span_that_outlives_its_request_is_handed_over_by_itself() {
        let (tracer, mut taken, _registry) = tracer(0.0, 4);
        let trace = tracer.join_trace(build_remote_context(7, 9, true, Some("a=1")).unwrap());
        let fill = trace.begin_detached("GetObject").unwrap();
        trace.begin_child("never").unwrap().discard_span();
        trace.finish_trace(facts);
        drop(fill);
        let (request, fill) = (taken.try_recv().unwrap(), taken.try_recv().unwrap());
        assert_eq!((request.len(), fill.len()), (1, 1));
        let (request, fill) = (&request[0], &fill[0]);
        let traces = [request.span_context.trace_id(), fill.span_context.trace_id()];
        assert_eq!(traces, [TraceId::from(7); 2]);
        assert_eq!(request.parent_span_id, SpanId::from(9));
        assert_eq!(fill.parent_span_id, request.span_context.span_id());
        assert!(taken.try_recv().is_err());
        // The one that never began counts against no bound.
        assert!(trace.begin_child("second").is_some() && trace.begin_child("third").is_none());
    }

    #[test]
    fn a_full_queue_drops_counts_and_does_not_wait() {
        let (tracer, mut taken, registry) = tracer(1.0, 1);
        for _ in 0..3 {
            tracer.begin_trace(&HeaderMap::new()).unwrap().finish_trace(facts);
        }
        assert!(taken.try_recv().is_ok() && taken.try_recv().is_err());
        let families = registry.gather();
        let dropped = families
            .iter()
            .find(|family| family.name() == "verbs3_telemetry_spans_dropped_total")
            .unwrap();
        assert_eq!(dropped.get_metric()[0].get_counter().get_value() as u64, 2);
    }
}

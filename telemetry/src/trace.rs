//! Records the spans of a request while it is served, and hands them over when it ends. Owns
//! sampling, the bound on spans, and a trace's clock. Makes no OTLP and never blocks: a trace that
//! finds the queue full is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::metrics::TelemetryMetrics;
use super::trace_parent::{SpanId, TraceId, TraceParent};

/// Starts traces. Each process has one.
pub struct RequestTracer {
    pub(super) queue: mpsc::Sender<FinishedTrace>,
    /// Ratio of sampled requests among those whose client does not decide.
    pub(super) sample_ratio: f64,
    /// Most spans of one request, besides its own.
    pub(super) spans_max: usize,
    pub(super) metrics: Arc<TelemetryMetrics>,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceValue {
    Name(&'static str),
    Text(Box<str>),
    Number(i64),
    Truth(bool),
}

impl From<u64> for TraceValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

pub(super) type TraceAttributes = Vec<(&'static str, TraceValue)>;

/// Which side of a call a span describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceSpanKind {
    Server,
    Client,
}

/// Finished span.
pub(super) struct TraceSpan {
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub kind: TraceSpanKind,
    pub name: &'static str,
    pub began_ns: u64,
    pub ended_ns: u64,
    pub attributes: TraceAttributes,
    /// Reason of its failure, if it failed.
    pub failed: Option<Box<str>>,
}

/// All spans of a finished request; the request's own span comes last.
pub(super) struct FinishedTrace {
    pub trace: TraceId,
    pub state: Option<HeaderValue>,
    pub spans: Vec<TraceSpan>,
}

/// Trace of one request.
pub struct RequestTrace {
    tracer: Arc<RequestTracer>,
    id: TraceId,
    own: SpanId,
    parent: Option<SpanId>,
    state: Option<HeaderValue>,
    /// Spans are recorded; if not set, the trace is only passed on.
    sampled: bool,
    wall: SystemTime,
    clock: Instant,
    begun: AtomicUsize,
    over: Mutex<Vec<TraceSpan>>,
}

impl std::fmt::Debug for RequestTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("id", &self.id)
            .field("own", &self.own)
            .field("sampled", &self.sampled)
            .finish()
    }
}

/// Span in progress. Dropping it ends it.
#[derive(Debug)]
pub struct ActiveTraceSpan {
    trace: Arc<RequestTrace>,
    id: SpanId,
    name: &'static str,
    began: Instant,
    attributes: TraceAttributes,
    failed: Option<Box<str>>,
    /// Handed over by itself, not with its request.
    detached: bool,
    noted: bool,
}

/// Facts about a request that are known when it ends.
pub struct RequestFacts {
    pub name: &'static str,
    pub attributes: Vec<(&'static str, TraceValue)>,
    pub failed: Option<Box<str>>,
}

impl RequestTracer {
    /// Starts the trace of a request. `None`: it is not traced, and there is nothing to pass on. A
    /// client's own decision counts.
    pub fn begin_trace(self: &Arc<Self>, headers: &HeaderMap) -> Option<Arc<RequestTrace>> {
        match TraceParent::from_headers(headers) {
            Some(parent) => Some(self.join_trace(parent)),
            None if rand::random::<f64>() < self.sample_ratio => {
                Some(self.new_trace(TraceId::generate(), None, true, None))
            }
            None => None,
        }
    }

    /// Starts this process's part of a trace, under a span of another process.
    pub fn join_trace(self: &Arc<Self>, parent: TraceParent) -> Arc<RequestTrace> {
        self.new_trace(parent.trace, Some(parent.span), parent.sampled, parent.state)
    }

    fn new_trace(
        self: &Arc<Self>,
        id: TraceId,
        parent: Option<SpanId>,
        sampled: bool,
        state: Option<HeaderValue>,
    ) -> Arc<RequestTrace> {
        Arc::new(RequestTrace {
            tracer: self.clone(),
            id,
            own: SpanId::generate(),
            parent,
            state,
            sampled,
            wall: SystemTime::now(),
            clock: Instant::now(),
            begun: AtomicUsize::new(0),
            over: Mutex::default(),
        })
    }

    /// Queues a trace, or drops and counts it if the queue is full.
    fn enqueue_trace(&self, finished: FinishedTrace) {
        let (count, metrics) = (finished.spans.len(), &self.metrics);
        // Counted before sending, because the receiver counts down and may be faster.
        metrics.queue.inc();
        if self.queue.try_send(finished).is_err() {
            metrics.queue.dec();
            metrics.count_dropped("queue_full", count);
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
        if !self.sampled {
            return None;
        }
        if self.begun.fetch_add(1, Ordering::Relaxed) >= self.tracer.spans_max {
            self.tracer.metrics.count_dropped("request_bound", 1);
            return None;
        }
        let (attributes, failed) = (TraceAttributes::new(), None);
        let (trace, id, began) = (self.clone(), SpanId::generate(), Instant::now());
        Some(ActiveTraceSpan { trace, id, name, began, attributes, failed, detached, noted: true })
    }

    /// Returns the context for an outgoing call. `span` is the call's parent; without it, the
    /// request's own span is.
    pub fn outgoing_parent(&self, span: Option<&ActiveTraceSpan>) -> TraceParent {
        let span = span.map_or(self.own, |span| span.id);
        TraceParent { trace: self.id, span, sampled: self.sampled, state: self.state.clone() }
    }

    /// Ends the request's own span, and hands all over. Spans that end later are lost.
    pub fn finish_trace(&self, facts: impl FnOnce() -> RequestFacts) {
        if !self.sampled {
            return;
        }
        let RequestFacts { name, mut attributes, failed } = facts();
        let begun = self.begun.load(Ordering::Relaxed);
        if begun > self.tracer.spans_max {
            attributes.push((
                "verbs3.spans.dropped",
                TraceValue::from((begun - self.tracer.spans_max) as u64),
            ));
        }
        let mut spans = std::mem::take(&mut *self.over.lock());
        spans.push(TraceSpan {
            id: self.own,
            parent: self.parent,
            kind: TraceSpanKind::Server,
            name,
            began_ns: self.unix_nanos(self.clock),
            ended_ns: self.unix_nanos(Instant::now()),
            attributes,
            failed,
        });
        self.tracer.enqueue_trace(self.collect_finished(spans));
    }

    fn collect_finished(&self, spans: Vec<TraceSpan>) -> FinishedTrace {
        FinishedTrace { trace: self.id, state: self.state.clone(), spans }
    }

    /// Converts to nanoseconds since 1970 with the trace's one reading of the wall clock: a step of
    /// that clock must not reorder spans.
    fn unix_nanos(&self, at: Instant) -> u64 {
        let since = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default()
            + at.saturating_duration_since(self.clock);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl ActiveTraceSpan {
    /// Adds an attribute. A name that is set twice is sent twice.
    pub fn set_attribute(&mut self, name: &'static str, value: TraceValue) {
        self.attributes.push((name, value));
    }

    /// Records why the span failed. The last reason counts.
    pub fn mark_failed(&mut self, why: impl Into<Box<str>>) {
        self.failed = Some(why.into());
    }

    /// Drops the span as if it had never begun.
    pub fn discard_span(mut self) {
        self.noted = false;
        self.trace.begun.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ActiveTraceSpan {
    fn drop(&mut self) {
        if !self.noted {
            return;
        }
        let span = TraceSpan {
            id: self.id,
            parent: Some(self.trace.own),
            kind: TraceSpanKind::Client,
            name: self.name,
            began_ns: self.trace.unix_nanos(self.began),
            ended_ns: self.trace.unix_nanos(Instant::now()),
            attributes: std::mem::take(&mut self.attributes),
            failed: self.failed.take(),
        };
        if self.detached {
            self.trace.tracer.enqueue_trace(self.trace.collect_finished(vec![span]));
        } else {
            self.trace.over.lock().push(span);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use prometheus::Registry;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn tracer(
        sample_ratio: f64,
        queue_max: usize,
    ) -> (Arc<RequestTracer>, mpsc::Receiver<FinishedTrace>, Registry) {
        let registry = Registry::new();
        let metrics = Arc::new(TelemetryMetrics::new(&registry, queue_max).unwrap());
        let (queue, taken) = mpsc::channel(queue_max);
        (Arc::new(RequestTracer { queue, sample_ratio, spans_max: 2, metrics }), taken, registry)
    }

    fn headers(traceparent: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(
            crate::trace_parent::TRACEPARENT,
            HeaderValue::from_static(traceparent),
        )])
    }

    fn facts() -> RequestFacts {
        RequestFacts { name: "GetObject", attributes: Vec::new(), failed: None }
    }

    #[test]
    fn the_clients_decision_counts_and_the_ratio_where_there_is_none() {
        let (never, ..) = tracer(0.0, 1);
        let (always, ..) = tracer(1.0, 1);
        assert!(never.begin_trace(&HeaderMap::new()).is_none());
        assert!(always.begin_trace(&HeaderMap::new()).unwrap().sampled);
        assert!(never.begin_trace(&headers(SAMPLED)).unwrap().sampled);
        let unsampled = always.begin_trace(&headers(UNSAMPLED)).unwrap();
        assert!(!unsampled.sampled);
        let onward = unsampled.outgoing_parent(None).to_headers().0;
        let onward = onward.to_str().unwrap();
        assert!(
            onward.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && onward.ends_with("-00"),
            "{onward}"
        );
        assert!(!onward.contains("00f067aa0ba902b7"), "the UFS's parent is this gateway: {onward}");
    }

    #[test]
    fn spans_over_the_bound_are_counted_and_the_rest_is_handed_over_with_the_requests_own() {
        let (tracer, mut taken, _registry) = tracer(0.0, 4);
        let trace = tracer.begin_trace(&headers(SAMPLED)).unwrap();
        let mut first = trace.begin_child("one").unwrap();
        first.mark_failed("away");
        let second = trace.begin_child("two").unwrap();
        assert!(trace.begin_child("three").is_none());
        drop((first, second));
        trace.finish_trace(facts);
        let finished = taken.try_recv().unwrap();
        let names: Vec<_> = finished.spans.iter().map(|span| span.name).collect();
        assert_eq!(names, ["one", "two", "GetObject"]);
        assert_eq!(finished.spans[0].failed.as_deref(), Some("away"));
        assert_eq!(finished.spans[0].parent, Some(finished.spans[2].id));
        assert_eq!(finished.spans[2].parent, Some(SpanId(0x00f0_67aa_0ba9_02b7)));
        assert_eq!(finished.spans[2].attributes, [("verbs3.spans.dropped", TraceValue::Number(1))]);
        assert!(finished.spans[0].began_ns <= finished.spans[0].ended_ns);
        assert_eq!(tracer.metrics.queue.get(), 1);
    }

    #[test]
    fn what_outlives_its_request_is_handed_over_by_itself_and_what_never_began_not_at_all() {
        let (tracer, mut taken, _registry) = tracer(0.0, 4);
        let trace = tracer.join_trace(TraceParent::new(7, 9, true, Some("a=1")).unwrap());
        let fill = trace.begin_detached("GetObject").unwrap();
        trace.begin_child("never").unwrap().discard_span();
        trace.finish_trace(facts);
        drop(fill);
        let (request, fill) = (taken.try_recv().unwrap(), taken.try_recv().unwrap());
        assert_eq!((request.spans.len(), fill.spans.len()), (1, 1));
        assert_eq!((request.trace, fill.trace), (TraceId(7), TraceId(7)));
        assert_eq!(request.spans[0].parent, Some(SpanId(9)));
        assert_eq!(fill.spans[0].parent, Some(request.spans[0].id));
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

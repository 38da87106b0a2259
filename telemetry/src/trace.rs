//! The spans of one request, noted while it is served and handed over when it ends. Owns sampling,
//! the bound on spans, and the clock of a trace. Makes no OTLP and waits for nobody: what finds the
//! queue full is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::context::{Context, SpanId, TraceId};
use super::metrics::Metrics;

/// Begins traces. One for a process.
pub struct Tracer {
    pub(super) queue: mpsc::Sender<Finished>,
    /// Of requests whose client does not say.
    pub(super) sample_ratio: f64,
    /// Of one request, besides its own.
    pub(super) spans_max: usize,
    pub(super) metrics: Arc<Metrics>,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Name(&'static str),
    Text(Box<str>),
    Number(i64),
    Truth(bool),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

pub(super) type Attributes = Vec<(&'static str, Value)>;

/// Who is asked by a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Client,
}

/// A span that is over.
pub(super) struct Span {
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub kind: Kind,
    pub name: &'static str,
    pub began_ns: u64,
    pub ended_ns: u64,
    pub attributes: Attributes,
    /// Why it failed, if it did.
    pub failed: Option<Box<str>>,
}

/// All spans of a request that is over; its own is the last.
pub(super) struct Finished {
    pub trace: TraceId,
    pub state: Option<HeaderValue>,
    pub spans: Vec<Span>,
}

/// One request's trace.
pub struct Trace {
    tracer: Arc<Tracer>,
    id: TraceId,
    own: SpanId,
    parent: Option<SpanId>,
    state: Option<HeaderValue>,
    /// If not, it is passed on and nothing is noted.
    sampled: bool,
    wall: SystemTime,
    clock: Instant,
    begun: AtomicUsize,
    over: Mutex<Vec<Span>>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("id", &self.id)
            .field("own", &self.own)
            .field("sampled", &self.sampled)
            .finish()
    }
}

/// A span under way. Ends when it is dropped.
#[derive(Debug)]
pub struct Child {
    trace: Arc<Trace>,
    id: SpanId,
    name: &'static str,
    began: Instant,
    attributes: Attributes,
    failed: Option<Box<str>>,
    /// Handed over by itself, not with its request.
    detached: bool,
    noted: bool,
}

/// What is known of a request when it ends.
pub struct Facts {
    pub name: &'static str,
    pub attributes: Vec<(&'static str, Value)>,
    pub failed: Option<Box<str>>,
}

impl Tracer {
    /// The trace of a request. `None`: it is not traced, and there is nothing to pass on. A
    /// client's own decision counts.
    pub fn begin(self: &Arc<Self>, headers: &HeaderMap) -> Option<Arc<Trace>> {
        match Context::of(headers) {
            Some(parent) => Some(self.join(parent)),
            None if rand::random::<f64>() < self.sample_ratio => {
                Some(self.trace(TraceId::generate(), None, true, None))
            }
            None => None,
        }
    }

    /// The part of a trace that this process has, on behalf of a span of another one.
    pub fn join(self: &Arc<Self>, parent: Context) -> Arc<Trace> {
        self.trace(parent.trace, Some(parent.span), parent.sampled, parent.state)
    }

    fn trace(
        self: &Arc<Self>,
        id: TraceId,
        parent: Option<SpanId>,
        sampled: bool,
        state: Option<HeaderValue>,
    ) -> Arc<Trace> {
        Arc::new(Trace {
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

    /// Hands over, or drops and counts.
    fn queue(&self, finished: Finished) {
        let (count, metrics) = (finished.spans.len(), &self.metrics);
        // Counted before: the other side counts down, and may be faster.
        metrics.queue.inc();
        if self.queue.try_send(finished).is_err() {
            metrics.queue.dec();
            metrics.dropped("queue_full", count);
        }
    }
}

impl Trace {
    /// A span within the request's. `None`: it is not noted, because the trace is not, or has too
    /// many.
    pub fn child(self: &Arc<Self>, name: &'static str) -> Option<Child> {
        self.span(name, false)
    }

    /// The same for what may go on when the request is over, such as what others have joined:
    /// handed over by itself.
    pub fn detached(self: &Arc<Self>, name: &'static str) -> Option<Child> {
        self.span(name, true)
    }

    fn span(self: &Arc<Self>, name: &'static str, detached: bool) -> Option<Child> {
        if !self.sampled {
            return None;
        }
        if self.begun.fetch_add(1, Ordering::Relaxed) >= self.tracer.spans_max {
            self.tracer.metrics.dropped("request_bound", 1);
            return None;
        }
        let (attributes, failed) = (Attributes::new(), None);
        let (trace, id, began) = (self.clone(), SpanId::generate(), Instant::now());
        Some(Child { trace, id, name, began, attributes, failed, detached, noted: true })
    }

    /// What is told to who is asked. `span`: on whose behalf; else the request's own.
    pub fn onward(&self, span: Option<&Child>) -> Context {
        let span = span.map_or(self.own, |span| span.id);
        Context { trace: self.id, span, sampled: self.sampled, state: self.state.clone() }
    }

    /// Ends the request's own span, and hands all over. Spans that end later are lost.
    pub fn finish(&self, facts: impl FnOnce() -> Facts) {
        if !self.sampled {
            return;
        }
        let Facts { name, mut attributes, failed } = facts();
        let begun = self.begun.load(Ordering::Relaxed);
        if begun > self.tracer.spans_max {
            attributes.push((
                "verbs3.spans.dropped",
                Value::from((begun - self.tracer.spans_max) as u64),
            ));
        }
        let mut spans = std::mem::take(&mut *self.over.lock());
        spans.push(Span {
            id: self.own,
            parent: self.parent,
            kind: Kind::Server,
            name,
            began_ns: self.moment(self.clock),
            ended_ns: self.moment(Instant::now()),
            attributes,
            failed,
        });
        self.tracer.queue(self.finished(spans));
    }

    fn finished(&self, spans: Vec<Span>) -> Finished {
        Finished { trace: self.id, state: self.state.clone(), spans }
    }

    /// Nanoseconds since 1970, by one reading of the wall clock: a step of it must not turn spans
    /// around.
    fn moment(&self, at: Instant) -> u64 {
        let since = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default()
            + at.saturating_duration_since(self.clock);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Child {
    pub fn set(&mut self, name: &'static str, value: Value) {
        self.attributes.push((name, value));
    }

    pub fn fail(&mut self, why: impl Into<Box<str>>) {
        self.failed = Some(why.into());
    }

    /// As if it had never begun.
    pub fn discard(mut self) {
        self.noted = false;
        self.trace.begun.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.noted {
            return;
        }
        let span = Span {
            id: self.id,
            parent: Some(self.trace.own),
            kind: Kind::Client,
            name: self.name,
            began_ns: self.trace.moment(self.began),
            ended_ns: self.trace.moment(Instant::now()),
            attributes: std::mem::take(&mut self.attributes),
            failed: self.failed.take(),
        };
        if self.detached {
            self.trace.tracer.queue(self.trace.finished(vec![span]));
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
    ) -> (Arc<Tracer>, mpsc::Receiver<Finished>, Registry) {
        let registry = Registry::new();
        let metrics = Arc::new(Metrics::new(&registry, queue_max).unwrap());
        let (queue, taken) = mpsc::channel(queue_max);
        (Arc::new(Tracer { queue, sample_ratio, spans_max: 2, metrics }), taken, registry)
    }

    fn headers(traceparent: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(crate::context::TRACEPARENT, HeaderValue::from_static(traceparent))])
    }

    fn facts() -> Facts {
        Facts { name: "GetObject", attributes: Vec::new(), failed: None }
    }

    #[test]
    fn the_clients_decision_counts_and_the_ratio_where_there_is_none() {
        let (never, ..) = tracer(0.0, 1);
        let (always, ..) = tracer(1.0, 1);
        assert!(never.begin(&HeaderMap::new()).is_none());
        assert!(always.begin(&HeaderMap::new()).unwrap().sampled);
        assert!(never.begin(&headers(SAMPLED)).unwrap().sampled);
        let unsampled = always.begin(&headers(UNSAMPLED)).unwrap();
        assert!(!unsampled.sampled);
        let onward = unsampled.onward(None).headers().0;
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
        let trace = tracer.begin(&headers(SAMPLED)).unwrap();
        let mut first = trace.child("one").unwrap();
        first.fail("away");
        let second = trace.child("two").unwrap();
        assert!(trace.child("three").is_none());
        drop((first, second));
        trace.finish(facts);
        let finished = taken.try_recv().unwrap();
        let names: Vec<_> = finished.spans.iter().map(|span| span.name).collect();
        assert_eq!(names, ["one", "two", "GetObject"]);
        assert_eq!(finished.spans[0].failed.as_deref(), Some("away"));
        assert_eq!(finished.spans[0].parent, Some(finished.spans[2].id));
        assert_eq!(finished.spans[2].parent, Some(SpanId(0x00f0_67aa_0ba9_02b7)));
        assert_eq!(finished.spans[2].attributes, [("verbs3.spans.dropped", Value::Number(1))]);
        assert!(finished.spans[0].began_ns <= finished.spans[0].ended_ns);
        assert_eq!(tracer.metrics.queue.get(), 1);
    }

    #[test]
    fn what_outlives_its_request_is_handed_over_by_itself_and_what_never_began_not_at_all() {
        let (tracer, mut taken, _registry) = tracer(0.0, 4);
        let trace = tracer.join(Context::new(7, 9, true, Some("a=1")).unwrap());
        let fill = trace.detached("GetObject").unwrap();
        trace.child("never").unwrap().discard();
        trace.finish(facts);
        drop(fill);
        let (request, fill) = (taken.try_recv().unwrap(), taken.try_recv().unwrap());
        assert_eq!((request.spans.len(), fill.spans.len()), (1, 1));
        assert_eq!((request.trace, fill.trace), (TraceId(7), TraceId(7)));
        assert_eq!(request.spans[0].parent, Some(SpanId(9)));
        assert_eq!(fill.spans[0].parent, Some(request.spans[0].id));
        assert!(taken.try_recv().is_err());
        // The one that never began counts against no bound.
        assert!(trace.child("second").is_some() && trace.child("third").is_none());
    }

    #[test]
    fn a_full_queue_drops_counts_and_does_not_wait() {
        let (tracer, mut taken, registry) = tracer(1.0, 1);
        for _ in 0..3 {
            tracer.begin(&HeaderMap::new()).unwrap().finish(facts);
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

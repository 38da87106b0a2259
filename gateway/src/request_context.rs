//! Owns what is known of one client request while it is served: its caller, its start, its outcome.
//!
//! `http` makes it for each request and puts it into its extensions as `Arc<RequestContext>`.
//! `read` and `write` note what they did. `http` writes headers, the access log, metrics and the
//! trace from it. Decides nothing.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use verbs3_metrics::{LabelValue, MetricLabel};
use verbs3_protocol::TraceContext;
use verbs3_rdma::foreign_memory::BodyPlace;
use verbs3_rdma::transport::TransportKind;
use verbs3_telemetry::{ActiveTraceSpan, RequestTrace, write_trace_headers};
use verbs3_ufs::RawAnswer;
use verbs3_ufs::trace_propagation::{StoreTraceContext, propagate_trace};

use crate::auth::Tenant;
use crate::write::NoticeRoute;

/// Name of one request in headers, logs and traces: 16 upper-case hexadecimal digits, like S3's own
/// ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// Draws 64 random bits.
    pub fn generate() -> Self {
        Self(rand::random())
    }

    /// Returns the id's digits, as headers show them.
    pub fn hex_digits(self) -> [u8; 16] {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        std::array::from_fn(|at| DIGITS[(self.0 >> (60 - 4 * at)) as usize & 0xf])
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The cache's part in a read: the value of `x-verbs3-cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, MetricLabel)]
pub enum ReadVerdict {
    Hit,
    Partial,
    Miss,
    Bypass,
}

impl ReadVerdict {
    /// Returns the value of the header and of the metric's label.
    pub fn as_str(self) -> &'static str {
        self.label_text()
    }
}

/// The source of the first bytes: the value of `x-verbs3-transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BytesOrigin {
    Tier(TransportKind),
    /// This gateway's own memory: a small object that is held under a lease.
    Gateway,
    Ufs,
}

impl BytesOrigin {
    /// Returns the value of the header and of the metric's label: a transport's name, `gateway` or
    /// `ufs`.
    pub fn as_str(self) -> &'static str {
        self.label_text()
    }
}

impl MetricLabel for BytesOrigin {
    const VALUES: &'static [LabelValue] = &{
        let held = "a small object that the gateway holds under a lease";
        let mut values = [LabelValue { text: "gateway", documentation: held }; 5];
        values[4] = LabelValue { text: "ufs", documentation: "" };
        let (transports, _) = values.split_at_mut(TransportKind::VALUES.len());
        transports.copy_from_slice(TransportKind::VALUES);
        values
    };

    fn value_index(self) -> usize {
        match self {
            Self::Tier(kind) => kind.value_index(),
            Self::Gateway => TransportKind::VALUES.len(),
            Self::Ufs => TransportKind::VALUES.len() + 1,
        }
    }
}

/// One request under way. Shared by everything that serves it.
#[derive(Debug)]
pub struct RequestContext {
    id: RequestId,
    started: Instant,
    /// `None`: not traced.
    trace: Option<Arc<RequestTrace>>,
    tenant: OnceLock<Arc<Tenant>>,
    answer: Mutex<Option<RawAnswer>>,
    verdict: OnceLock<ReadVerdict>,
    via: OnceLock<BytesOrigin>,
    /// True if a home was told of this write through the coordinators.
    relayed: AtomicBool,
    /// True once the cache tier had no answer to a read.
    tier_declined: AtomicBool,
    /// Where the client has the body land, where it has lent memory.
    body_place: Option<Arc<BodyPlace>>,
    body_bytes: AtomicU64,
    ufs_bytes: AtomicU64,
}

impl RequestContext {
    /// Makes an untraced request with its id and its start alone.
    pub fn new(id: RequestId, started: Instant) -> Self {
        Self {
            id,
            started,
            trace: None,
            tenant: OnceLock::new(),
            answer: Mutex::new(None),
            verdict: OnceLock::new(),
            via: OnceLock::new(),
            relayed: AtomicBool::new(false),
            tier_declined: AtomicBool::new(false),
            body_place: None,
            body_bytes: AtomicU64::new(0),
            ufs_bytes: AtomicU64::new(0),
        }
    }

    /// Sets the trace; `None` leaves the request untraced.
    #[must_use]
    pub fn with_trace(self, trace: Option<Arc<RequestTrace>>) -> Self {
        Self { trace, ..self }
    }

    /// Has the body land in memory that its client has lent, where it can.
    #[must_use]
    pub(crate) fn with_body_place(self, body_place: Option<Arc<BodyPlace>>) -> Self {
        Self { body_place, ..self }
    }

    /// Returns where the body is to land. `None`: it goes into a socket, or is copied.
    pub(crate) fn body_place(&self) -> Option<&Arc<BodyPlace>> {
        self.body_place.as_ref()
    }

    pub(crate) fn request_trace(&self) -> Option<&Arc<RequestTrace>> {
        self.trace.as_ref()
    }

    /// Begins a span of the trace, if there is one.
    pub(crate) fn begin_trace_span(&self, name: &'static str) -> Option<ActiveTraceSpan> {
        self.trace.as_ref()?.begin_child(name)
    }

    /// Returns the trace context for workers: under `trace_span`, or under the request itself
    /// without one.
    pub(crate) fn outgoing_trace(
        &self,
        trace_span: Option<&ActiveTraceSpan>,
    ) -> Option<TraceContext> {
        let context = self.trace.as_ref()?.outgoing_context(trace_span);
        Some(TraceContext {
            trace: u128::from_be_bytes(context.trace_id().to_bytes()),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            sampled: context.is_sampled(),
            state: Some(context.trace_state().header()).filter(|state| !state.is_empty()),
        })
    }

    /// Sends a request to the UFS under a trace span, which the UFS is told of. `failed`: returns
    /// what went wrong by the outcome.
    pub(crate) async fn ask_ufs<F: Future>(
        &self,
        ufs: &str,
        operation: &'static str,
        call: F,
        failed: impl FnOnce(&F::Output) -> Option<String>,
    ) -> F::Output {
        let Some(trace) = &self.trace else { return call.await };
        let mut trace_span = trace.begin_child(operation);
        let context = trace.outgoing_context(trace_span.as_ref());
        let (traceparent, tracestate) = write_trace_headers(&context);
        let output = propagate_trace(StoreTraceContext { traceparent, tracestate }, call).await;
        if let Some(trace_span) = &mut trace_span {
            trace_span.set_attribute("verbs3.ufs", ufs.to_owned());
            if let Some(why) = failed(&output) {
                trace_span.mark_failed(why);
            }
        }
        output
    }

    /// Returns the id that headers, logs and traces show.
    pub fn request_id(&self) -> RequestId {
        self.id
    }

    /// Returns when the request's head had been read.
    pub fn started_at(&self) -> Instant {
        self.started
    }

    /// Sets who is accounted for the request, once its signature is verified. Later calls are
    /// ignored.
    pub(crate) fn set_tenant(&self, tenant: Arc<Tenant>) {
        let _ = self.tenant.set(tenant);
    }

    /// Returns who is accounted for the request: nobody known before a signature has held.
    pub(crate) fn tenant(&self) -> &Arc<Tenant> {
        self.tenant.get().unwrap_or_else(|| Tenant::unknown())
    }

    /// Keeps the UFS's own answer, to be sent instead of s3s's error.
    pub fn put_answer(&self, answer: RawAnswer) {
        *self.answer.lock() = Some(answer);
    }

    /// Returns whether an answer of the UFS is kept.
    pub(crate) fn has_answer(&self) -> bool {
        self.answer.lock().is_some()
    }

    /// Takes the UFS's own answer, if the request's failure came with one.
    pub fn take_answer(&self) -> Option<RawAnswer> {
        self.answer.lock().take()
    }

    /// Notes the outcome. The first one counts: it is what the headers say.
    pub fn note_outcome(&self, verdict: ReadVerdict, via: BytesOrigin) {
        let _ = self.verdict.set(verdict);
        let _ = self.via.set(via);
    }

    /// Notes how the homes of a write were told. Once relayed, it stays so.
    pub fn note_way(&self, way: NoticeRoute) {
        self.relayed.fetch_or(way == NoticeRoute::Relayed, Ordering::Relaxed);
    }

    /// Returns whether a home was told of this write through the coordinators.
    pub fn is_relayed(&self) -> bool {
        self.relayed.load(Ordering::Relaxed)
    }

    /// Notes that the cache tier had no answer. It is not asked again for this request.
    pub fn note_tier_declined(&self) {
        self.tier_declined.store(true, Ordering::Relaxed);
    }

    /// Returns whether the cache tier had no answer.
    pub fn has_tier_declined(&self) -> bool {
        self.tier_declined.load(Ordering::Relaxed)
    }

    /// Returns the cache's part. `None`: the request read no object.
    pub fn cache_verdict(&self) -> Option<ReadVerdict> {
        self.verdict.get().copied()
    }

    /// Returns the source of the first bytes. `None`: the request read no object.
    pub fn bytes_origin(&self) -> Option<BytesOrigin> {
        self.via.get().copied()
    }

    /// Adds to the bytes of the response's body that were handed to the socket.
    pub fn add_body_bytes(&self, bytes: u64) {
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the answer's body that were handed to the socket.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// Adds to the bytes that this gateway itself read from the UFS for this request.
    pub fn add_ufs_bytes(&self, bytes: u64) {
        self.ufs_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.tenant().metrics().store_bytes.inc_by(bytes);
    }

    /// Returns the bytes that this gateway itself read from the UFS for this request.
    pub fn ufs_bytes(&self) -> u64 {
        self.ufs_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_sixteen_digits() {
        for (id, digits) in [(10, "000000000000000A"), (0xfedc_ba98_7654_3210, "FEDCBA9876543210")]
        {
            assert_eq!(RequestId(id).to_string(), digits);
            assert_eq!(RequestId(id).hex_digits(), digits.as_bytes());
        }
    }

    #[test]
    fn the_first_outcome_counts() {
        let cx = RequestContext::new(RequestId(1), Instant::now());
        cx.note_outcome(ReadVerdict::Hit, BytesOrigin::Tier(TransportKind::Tcp));
        cx.note_outcome(ReadVerdict::Bypass, BytesOrigin::Ufs);
        assert_eq!(
            (cx.cache_verdict(), cx.bytes_origin()),
            (Some(ReadVerdict::Hit), Some(BytesOrigin::Tier(TransportKind::Tcp)))
        );
    }
}

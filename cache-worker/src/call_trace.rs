//! The trace context of a call: from the caller, through the tasks that the call starts, to the
//! UFS.
//!
//! Owns the propagation of the context within this worker. A fill or a check serves every waiter;
//! it belongs to the trace of the call that started it. Without a tracer, contexts are passed on
//! unchanged.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use verbs3_protocol::TraceContext;
use verbs3_telemetry::{
    KeyValue, RequestFacts, RequestTrace, RequestTracer, SpanContext, build_remote_context,
    clamp_number, write_trace_headers,
};
use verbs3_ufs::trace_propagation::{StoreTraceContext, propagate_trace};
use verbs3_ufs::{Ufs, UfsError};

tokio::task_local! {
    static CURRENT: Option<Arc<CallTraceContext>>;
}

/// The trace that a call is part of.
pub(crate) struct CallTraceContext {
    /// The caller's context.
    asked: SpanContext,
    /// `None`: this worker records no spans.
    trace: Option<Arc<RequestTrace>>,
    noted: Mutex<CallTraceNotes>,
}

#[derive(Default)]
struct CallTraceNotes {
    verdict: Option<&'static str>,
    bytes: u64,
    refused: Option<String>,
}

/// The tracer that records this worker's spans. Set once.
#[derive(Default)]
pub(crate) struct WorkerCallTracer(OnceLock<Arc<RequestTracer>>);

impl WorkerCallTracer {
    pub(crate) fn set_tracer(&self, tracer: Arc<RequestTracer>) {
        // The first tracer stays: a second one would split traces.
        let _ = self.0.set(tracer);
    }

    /// Runs a call's handler within the call's trace.
    pub(crate) async fn serve_traced(
        &self,
        context: &TraceContext,
        name: &'static str,
        serve: impl Future<Output = ()>,
    ) {
        let TraceContext { trace, span, sampled, state } = context;
        let Some(asked) = build_remote_context(*trace, *span, *sampled, state.as_deref()) else {
            // An invalid context is treated as absent.
            return serve.await;
        };
        let trace = self.0.get().map(|tracer| tracer.join_trace(asked.clone()));
        let current = Arc::new(CallTraceContext { asked, trace, noted: Mutex::default() });
        // The trace ends on drop, so a cancelled call ends its trace too.
        let _ending = CallTraceGuard { current: current.clone(), name };
        CURRENT.scope(Some(current), serve).await;
    }
}

struct CallTraceGuard {
    current: Arc<CallTraceContext>,
    name: &'static str,
}

impl Drop for CallTraceGuard {
    fn drop(&mut self) {
        let Some(trace) = &self.current.trace else { return };
        let CallTraceNotes { verdict, bytes, refused } =
            std::mem::take(&mut *self.current.noted.lock());
        trace.finish_trace(|| {
            let mut attributes = vec![KeyValue::new("verbs3.bytes", clamp_number(bytes))];
            if let Some(verdict) = verdict {
                attributes.push(KeyValue::new("verbs3.cache", verdict));
            }
            if let Some(refused) = refused {
                attributes.push(KeyValue::new("verbs3.refused", refused));
            }
            RequestFacts { name: self.name, attributes, failed: None }
        });
    }
}

fn current_context() -> Option<Arc<CallTraceContext>> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

fn update_notes(with: impl FnOnce(&mut CallTraceNotes)) {
    // This does not use `current_context()`: it runs for every part of an answer, and should not
    // raise a reference count.
    let _ = CURRENT.try_with(|current| {
        if let Some(current) = current.as_ref().filter(|current| current.trace.is_some()) {
            with(&mut current.noted.lock());
        }
    });
}

/// Records bytes sent to the caller, and the cache verdict of the first of them.
pub(crate) fn note_served(verdict: &'static str, bytes: u64) {
    update_notes(|noted| {
        noted.verdict.get_or_insert(verdict);
        noted.bytes += bytes;
    });
}

/// Records why a call was refused. This is no failure: the caller knows what to do instead.
pub(crate) fn note_refused(reason: &str) {
    update_notes(|noted| noted.refused = Some(reason.to_owned()));
}

/// Wraps a task's future so that it runs within the caller's trace.
pub(crate) fn carry_context<F: Future>(task: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(current_context(), task)
}

/// Sends a request to the UFS within the current trace, and records its span.
pub(crate) async fn ask_ufs<T>(
    ufs: &Ufs,
    operation: &'static str,
    call: impl Future<Output = Result<T, UfsError>>,
) -> Result<T, UfsError> {
    let Some(current) = current_context() else { return call.await };
    // The span may outlive the call: other readers may have joined, and a fill does not stop when
    // its reader leaves.
    let mut span = current.trace.as_ref().and_then(|trace| trace.begin_detached(operation));
    let context = current.trace.as_ref().map(|trace| trace.outgoing_context(span.as_ref()));
    let (traceparent, tracestate) = write_trace_headers(context.as_ref().unwrap_or(&current.asked));
    let answer = propagate_trace(StoreTraceContext { traceparent, tracestate }, call).await;
    if let Some(span) = &mut span {
        span.set_attribute("verbs3.ufs", ufs.ufs_name().to_owned());
        if let Err(error) = &answer {
            span.mark_failed(error.to_string());
        }
    }
    answer
}

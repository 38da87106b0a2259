//! The trace that a call belongs to: from who asked, through the tasks that the call begins, to the
//! UFS.
//!
//! Owns the way of a context through this worker. A fill or a check serves everybody who wants it;
//! it belongs to the trace of the call that began it. Without a tracer, contexts are passed on as
//! they came.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use verbs3_protocol::TraceContext;
use verbs3_telemetry::{RequestFacts, RequestTrace, RequestTracer, TraceParent, TraceValue};
use verbs3_ufs::trace_propagation::{StoreTraceContext, propagate_trace};
use verbs3_ufs::{Ufs, UfsError};

tokio::task_local! {
    static CURRENT: Option<Arc<CallTraceContext>>;
}

/// What a call is a part of.
pub(crate) struct CallTraceContext {
    /// Of who asked.
    asked: TraceParent,
    /// `None`: this worker notes nothing.
    trace: Option<Arc<RequestTrace>>,
    noted: Mutex<CallTraceNotes>,
}

#[derive(Default)]
struct CallTraceNotes {
    verdict: Option<&'static str>,
    bytes: u64,
    refused: Option<String>,
}

/// Where a worker notes its spans. Set once.
#[derive(Default)]
pub(crate) struct WorkerCallTracer(OnceLock<Arc<RequestTracer>>);

impl WorkerCallTracer {
    pub(crate) fn set_tracer(&self, tracer: Arc<RequestTracer>) {
        // A second one would split traces: the first stays.
        let _ = self.0.set(tracer);
    }

    /// Runs what answers a call, within its trace.
    pub(crate) async fn serve_traced(
        &self,
        context: &TraceContext,
        name: &'static str,
        serve: impl Future<Output = ()>,
    ) {
        let TraceContext { trace, span, sampled, state } = context;
        let Some(asked) = TraceParent::new(*trace, *span, *sampled, state.as_deref()) else {
            // What is no context is as if it were not there.
            return serve.await;
        };
        let trace = self.0.get().map(|tracer| tracer.join_trace(asked.clone()));
        let current = Arc::new(CallTraceContext { asked, trace, noted: Mutex::default() });
        // Ended when dropped: a call that is cancelled ends, too.
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
            let mut attributes = vec![("verbs3.bytes", TraceValue::from(bytes))];
            if let Some(verdict) = verdict {
                attributes.push(("verbs3.cache", TraceValue::Name(verdict)));
            }
            if let Some(refused) = &refused {
                attributes.push(("verbs3.refused", TraceValue::Text(refused.as_str().into())));
            }
            RequestFacts { name: self.name, attributes, failed: None }
        });
    }
}

fn current_context() -> Option<Arc<CallTraceContext>> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

fn update_notes(with: impl FnOnce(&mut CallTraceNotes)) {
    // Not by `current_context()`: this is on the way of every part of an answer, and a count is not needed.
    let _ = CURRENT.try_with(|current| {
        if let Some(current) = current.as_ref().filter(|current| current.trace.is_some()) {
            with(&mut current.noted.lock());
        }
    });
}

/// Notes bytes that go to who asked, and how the first of them were found.
pub(crate) fn note_served(verdict: &'static str, bytes: u64) {
    update_notes(|noted| {
        noted.verdict.get_or_insert(verdict);
        noted.bytes += bytes;
    });
}

/// Notes why a call is not answered. No failure: the asker knows what to do instead.
pub(crate) fn note_refused(reason: &str) {
    update_notes(|noted| noted.refused = Some(reason.to_owned()));
}

/// A task's future, within the trace of who begins it.
pub(crate) fn carry_context<F: Future>(task: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(current_context(), task)
}

/// A request to the UFS, which is told of the trace, and noted.
pub(crate) async fn ask_ufs<T>(
    ufs: &Ufs,
    operation: &'static str,
    call: impl Future<Output = Result<T, UfsError>>,
) -> Result<T, UfsError> {
    let Some(current) = current_context() else { return call.await };
    // It may outlive the call: others may have joined, and a fill is not stopped when its reader
    // goes.
    let mut span = current.trace.as_ref().and_then(|trace| trace.begin_detached(operation));
    let context = current.trace.as_ref().map(|trace| trace.outgoing_parent(span.as_ref()));
    let (traceparent, tracestate) = context.as_ref().unwrap_or(&current.asked).to_headers();
    let answer = propagate_trace(StoreTraceContext { traceparent, tracestate }, call).await;
    if let Some(span) = &mut span {
        span.set_attribute("verbs3.ufs", TraceValue::Text(ufs.ufs_name().into()));
        if let Err(error) = &answer {
            span.mark_failed(error.to_string());
        }
    }
    answer
}

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
use verbs3_telemetry::{Context, Facts, Trace, Tracer, Value};
use verbs3_ufs::propagation::{Propagated, propagate};
use verbs3_ufs::{Ufs, UfsError};

tokio::task_local! {
    static CURRENT: Option<Arc<Current>>;
}

/// What a call is a part of.
pub(crate) struct Current {
    /// Of who asked.
    asked: Context,
    /// `None`: this worker notes nothing.
    trace: Option<Arc<Trace>>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    verdict: Option<&'static str>,
    bytes: u64,
    refused: Option<String>,
}

/// Where a worker notes its spans. Set once.
#[derive(Default)]
pub(crate) struct Tracing(OnceLock<Arc<Tracer>>);

impl Tracing {
    pub(crate) fn set(&self, tracer: Arc<Tracer>) {
        // A second one would split traces: the first stays.
        let _ = self.0.set(tracer);
    }

    /// Runs what answers a call, within its trace.
    pub(crate) async fn serve(
        &self,
        context: &TraceContext,
        name: &'static str,
        serve: impl Future<Output = ()>,
    ) {
        let TraceContext { trace, span, sampled, state } = context;
        let Some(asked) = Context::new(*trace, *span, *sampled, state.as_deref()) else {
            // What is no context is as if it were not there.
            return serve.await;
        };
        let trace = self.0.get().map(|tracer| tracer.join(asked.clone()));
        let current = Arc::new(Current { asked, trace, noted: Mutex::default() });
        // Ended when dropped: a call that is cancelled ends, too.
        let _ending = Ending { current: current.clone(), name };
        CURRENT.scope(Some(current), serve).await;
    }
}

struct Ending {
    current: Arc<Current>,
    name: &'static str,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(trace) = &self.current.trace else { return };
        let Noted { verdict, bytes, refused } = std::mem::take(&mut *self.current.noted.lock());
        trace.finish(|| {
            let mut attributes = vec![("verbs3.bytes", Value::from(bytes))];
            if let Some(verdict) = verdict {
                attributes.push(("verbs3.cache", Value::Name(verdict)));
            }
            if let Some(refused) = &refused {
                attributes.push(("verbs3.refused", Value::Text(refused.as_str().into())));
            }
            Facts { name: self.name, attributes, failed: None }
        });
    }
}

fn current() -> Option<Arc<Current>> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

fn note(with: impl FnOnce(&mut Noted)) {
    // Not by `current()`: this is on the way of every part of an answer, and a count is not needed.
    let _ = CURRENT.try_with(|current| {
        if let Some(current) = current.as_ref().filter(|current| current.trace.is_some()) {
            with(&mut current.noted.lock());
        }
    });
}

/// Notes bytes that go to who asked, and how the first of them were found.
pub(crate) fn note_served(verdict: &'static str, bytes: u64) {
    note(|noted| {
        noted.verdict.get_or_insert(verdict);
        noted.bytes += bytes;
    });
}

/// Notes why a call is not answered. No failure: the asker knows what to do instead.
pub(crate) fn note_refused(reason: &str) {
    note(|noted| noted.refused = Some(reason.to_owned()));
}

/// A task's future, within the trace of who begins it.
pub(crate) fn carried<F: Future>(task: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(current(), task)
}

/// A request to the UFS, which is told of the trace, and noted.
pub(crate) async fn ask_ufs<T>(
    ufs: &Ufs,
    operation: &'static str,
    call: impl Future<Output = Result<T, UfsError>>,
) -> Result<T, UfsError> {
    let Some(current) = current() else { return call.await };
    // It may outlive the call: others may have joined, and a fill is not stopped when its reader
    // goes.
    let mut span = current.trace.as_ref().and_then(|trace| trace.detached(operation));
    let context = current.trace.as_ref().map(|trace| trace.onward(span.as_ref()));
    let (traceparent, tracestate) = context.as_ref().unwrap_or(&current.asked).headers();
    let answer = propagate(Propagated { traceparent, tracestate }, call).await;
    if let Some(span) = &mut span {
        span.set("verbs3.ufs", Value::Text(ufs.name().into()));
        if let Err(error) = &answer {
            span.fail(error.to_string());
        }
    }
    answer
}

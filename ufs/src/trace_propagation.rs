//! Trace context on requests to a store (W3C). Owns how it gets from a caller to the request: the
//! header is put on after the request was signed, so that no signature depends on it. Makes no ids
//! and notes no spans.

use http::HeaderValue;

/// What the store is told of the trace that a request belongs to.
#[derive(Debug, Clone)]
pub struct StoreTraceContext {
    pub traceparent: HeaderValue,
    pub tracestate: Option<HeaderValue>,
}

tokio::task_local! {
    static PROPAGATED: StoreTraceContext;
}

/// Runs a call on a store. Requests that it makes within `call` itself carry the context; a store
/// within this process has none.
pub async fn propagate_trace<F: Future>(context: StoreTraceContext, call: F) -> F::Output {
    PROPAGATED.scope(context, call).await
}

/// Headers to be added; none where nobody traces.
pub(crate) fn trace_headers() -> Vec<(&'static str, HeaderValue)> {
    let context = PROPAGATED.try_with(Clone::clone).ok();
    let headers = context.map(|context| {
        [("traceparent", Some(context.traceparent)), ("tracestate", context.tracestate)]
    });
    headers.into_iter().flatten().filter_map(|(name, value)| Some((name, value?))).collect()
}

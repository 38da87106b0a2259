//! Owns how trace context (W3C) gets from a caller to its requests to a store. The header is added
//! after signing, so no signature depends on it. Makes no ids and records no spans.

use http::HeaderValue;

/// The trace that a request to a store belongs to.
#[derive(Debug, Clone)]
pub struct StoreTraceContext {
    pub traceparent: HeaderValue,
    pub tracestate: Option<HeaderValue>,
}

tokio::task_local! {
    static PROPAGATED: StoreTraceContext;
}

/// Runs a call on a store. Requests that `call` itself makes carry the context. A store within this
/// process sends no requests.
pub async fn propagate_trace<F: Future>(context: StoreTraceContext, call: F) -> F::Output {
    PROPAGATED.scope(context, call).await
}

/// Returns the headers to add; none where nobody traces.
pub(crate) fn trace_headers() -> Vec<(&'static str, HeaderValue)> {
    let context = PROPAGATED.try_with(Clone::clone).ok();
    let headers = context.map(|context| {
        [("traceparent", Some(context.traceparent)), ("tracestate", context.tracestate)]
    });
    headers.into_iter().flatten().filter_map(|(name, value)| Some((name, value?))).collect()
}

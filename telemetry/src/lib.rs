//! Traces and metrics for an OpenTelemetry receiver (OTLP over HTTP, protobuf). `context` reads and
//! writes W3C trace context, `trace` notes the spans of one request, `export` owns the queue and
//! the tasks that deliver, `spans` and `figures` make OTLP of them, `post` sends.
//!
//! Off unless configured, and then nothing of it is on a request's way but a look whether it is on.
//! Metrics are those of `/metrics`, from the same registry: there is one source of them. Knows no
//! S3 and no worker.

#![forbid(unsafe_code)]

mod context;
mod export;
mod figures;
mod metrics;
mod post;
mod spans;
mod trace;

pub use context::{SpanId, TraceId, TraceParent};
pub use export::{TelemetryError, TelemetryHandle, TelemetryOptions};
pub use metrics::TABLE;
pub use trace::{ActiveTraceSpan, RequestFacts, RequestTrace, RequestTracer, TraceValue};

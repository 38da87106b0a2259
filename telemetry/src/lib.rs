//! Traces and metrics for an OpenTelemetry receiver (OTLP over HTTP, protobuf). `context` reads and
//! writes W3C trace context, `trace` notes the spans of one request, `export` owns the queue and
//! the tasks that deliver, `spans` and `figures` make OTLP of them, `post` sends.
//!
//! Off unless configured, and then nothing of it is on a request's way but a look whether it is on.
//! Metrics are those of `/metrics`, from the same registry: there is one source of them. Knows no
//! S3 and no worker.

#![forbid(unsafe_code)]

mod metrics;
mod otlp_client;
mod otlp_metrics;
mod otlp_spans;
mod telemetry_export;
mod trace;
mod trace_parent;

pub use metrics::TABLE;
pub use telemetry_export::{TelemetryError, TelemetryHandle, TelemetryOptions};
pub use trace::{ActiveTraceSpan, RequestFacts, RequestTrace, RequestTracer, TraceValue};
pub use trace_parent::{SpanId, TraceId, TraceParent};

//! Sends traces and metrics to an OpenTelemetry receiver (OTLP over HTTP, protobuf). `trace_parent`
//! reads and writes W3C trace context. `trace` records the spans of one request. `telemetry_export`
//! owns the queue and the tasks that deliver. `otlp_spans` and `otlp_metrics` convert to OTLP, and
//! `otlp_client` sends.
//!
//! Off unless configured; a request then only pays for the check whether it is on. The metrics are
//! those of `/metrics`, from the same registry, so they have one source. Knows neither S3 nor
//! workers.

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

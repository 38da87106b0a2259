//! Sends traces to an OpenTelemetry receiver (OTLP over HTTP, protobuf). `trace_context` reads and
//! writes W3C trace context. `trace` records the spans of one request. `span_export` owns the queue
//! and the task that hands spans to OpenTelemetry's exporter. `otlp_client` is that exporter's HTTP
//! client.
//!
//! Off unless configured; a request then only pays for the check whether it is on. Exports no
//! metrics: collectors ask `/metrics` for them. Knows neither S3 nor workers.

#![forbid(unsafe_code)]

mod metrics;
mod otlp_client;
mod settings;
mod span_export;
mod telemetry_error;
mod trace;
mod trace_context;

pub use metrics::describe_metrics;
pub use opentelemetry::KeyValue;
pub use opentelemetry::trace::SpanContext;
pub use settings::{OtlpProtocol, TelemetryOtlpSettings, TelemetrySettings};
pub use span_export::{TelemetryHandle, TelemetrySource};
pub use telemetry_error::TelemetryError;
pub use trace::{ActiveTraceSpan, RequestFacts, RequestTrace, RequestTracer, clamp_number};
pub use trace_context::{build_remote_context, write_trace_headers};

//! Converts finished requests to OTLP. Owns the meaning of each field. The recorders of attributes
//! choose their names.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{
    ResourceSpans, ScopeSpans, Span as Wire, Status, span, status,
};

use super::trace::{FinishedTrace, TraceSpan, TraceSpanKind, TraceValue};

/// `trace_flags`: bit 0 means sampled. Bit 8 means that it is known whether the parent is remote;
/// bit 9 means that it is.
const SAMPLED: u32 = 1;
const REMOTE_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

pub(super) fn text_attribute(key: &str, value: &str) -> KeyValue {
    attribute_pair(key, any_value::Value::StringValue(value.to_owned()))
}

fn attribute_pair(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

pub(super) fn instrumentation_scope() -> InstrumentationScope {
    let (name, version) = ("verbs3".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}

/// Builds one message from all spans of a batch.
pub(super) fn spans_message(
    resource: &Resource,
    batch: &[FinishedTrace],
) -> ExportTraceServiceRequest {
    let spans = batch
        .iter()
        .flat_map(|finished| finished.spans.iter().map(|span| wire_span(finished, span)))
        .collect();
    let scope_spans =
        vec![ScopeSpans { scope: Some(instrumentation_scope()), spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans {
        resource: Some(resource.clone()),
        scope_spans,
        ..ResourceSpans::default()
    }];
    ExportTraceServiceRequest { resource_spans }
}

fn wire_span(finished: &FinishedTrace, span: &TraceSpan) -> Wire {
    let (kind, remote) = match span.kind {
        TraceSpanKind::Server => (span::SpanKind::Server, span.parent.is_some()),
        TraceSpanKind::Client => (span::SpanKind::Client, false),
    };
    Wire {
        trace_id: finished.trace.0.to_be_bytes().to_vec(),
        span_id: span.id.0.to_be_bytes().to_vec(),
        trace_state: finished
            .state
            .as_ref()
            .and_then(|state| state.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
        parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.0.to_be_bytes().to_vec()),
        flags: SAMPLED | REMOTE_KNOWN | if remote { REMOTE } else { 0 },
        name: span.name.to_owned(),
        kind: kind as i32,
        start_time_unix_nano: span.began_ns,
        end_time_unix_nano: span.ended_ns,
        attributes: span
            .attributes
            .iter()
            .map(|(key, value)| attribute_pair(key, otlp_value(value)))
            .collect(),
        status: span
            .failed
            .as_deref()
            .map(|why| Status { message: why.to_owned(), code: status::StatusCode::Error as i32 }),
        ..Wire::default()
    }
}

fn otlp_value(value: &TraceValue) -> any_value::Value {
    match value {
        TraceValue::Name(text) => any_value::Value::StringValue((*text).to_owned()),
        TraceValue::Text(text) => any_value::Value::StringValue(text.to_string()),
        TraceValue::Number(number) => any_value::Value::IntValue(*number),
        TraceValue::Truth(truth) => any_value::Value::BoolValue(*truth),
    }
}

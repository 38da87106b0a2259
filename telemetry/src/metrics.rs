//! Owns the metrics of the telemetry export itself, declared once. Registered only if it is on.

use prometheus::{IntCounter, IntGauge, Registry};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription};

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![TelemetryMetrics::describe_table()]
}

/// The export of traces.
#[derive(Debug, MetricsTable)]
#[metrics(prefix = "verbs3_telemetry")]
pub(super) struct TelemetryMetrics {
    /// Spans that the OpenTelemetry receiver has taken.
    pub spans_exported: IntCounter,
    /// Spans that never reached the receiver, by reason.
    #[metric(labels(reason))]
    spans_dropped: MetricFamily<SpanDropReason, IntCounter>,
    /// Traced requests that wait for their export.
    #[metric("verbs3_telemetry_queue_requests")]
    pub queue: IntGauge,
    /// The configured bound; beyond it spans are dropped and counted.
    #[metric("verbs3_telemetry_queue_requests_max")]
    queue_max: IntGauge,
    /// Messages to the receiver, by outcome.
    #[metric(labels(outcome))]
    pub exports: MetricFamily<ExportOutcome, IntCounter>,
}

impl TelemetryMetrics {
    /// Registers the metrics. Fails if a name is taken in the registry. `queue_max` is shown as the
    /// queue's bound.
    pub fn with_queue_max(
        registry: &Registry,
        queue_max: usize,
    ) -> Result<Self, prometheus::Error> {
        let metrics = Self::new(registry)?;
        metrics.queue_max.set(i64::try_from(queue_max).unwrap_or(i64::MAX));
        Ok(metrics)
    }

    /// Counts spans that never reach the receiver. 0 spans count nothing.
    pub fn count_dropped(&self, reason: SpanDropReason, spans: usize) {
        if spans > 0 {
            self.spans_dropped[reason].inc_by(spans as u64);
        }
    }
}

/// Why a span never reached the receiver.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(super) enum SpanDropReason {
    QueueFull,
    Undeliverable,
    /// By the receiver.
    Rejected,
    Shutdown,
    /// Over the bound of their request.
    RequestBound,
}

/// What the receiver said to a message.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(super) enum ExportOutcome {
    Ok,
    Refused,
    Failed,
}

//! Metrics of the telemetry export itself. Registered only if it is on.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Declares this crate's metrics: rows as fields of `TelemetryMetricRows`, which registers them
/// all, and as `TABLE`.
macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        /// Holds one value for each row.
        struct TelemetryMetricRows { $($field: $kind,)* }

        impl TelemetryMetricRows {
            fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
                let rows = Self { $($field: table!(@make $kind, $name, [$($label),*], $help)?,)* };
                $(registry.register(Box::new(rows.$field.clone()))?;)*
                Ok(rows)
            }
        }

        /// Name, labels and meaning of every metric, for the documentation and its test.
        pub const TABLE: &[(&str, &[&str], &str)] = &[$(($name, &[$($label),*], $help)),*];
    };
    (@make IntCounterVec, $name:literal, [$($label:literal),*], $help:literal) => {
        IntCounterVec::new(Opts::new($name, $help), &[$($label),*])
    };
    (@make $kind:ident, $name:literal, [], $help:literal) => { $kind::new($name, $help) };
}

table! {
    spans_exported: IntCounter, "verbs3_telemetry_spans_exported_total", [],
        "Spans that the OpenTelemetry receiver has taken.";
    spans_dropped: IntCounterVec, "verbs3_telemetry_spans_dropped_total", ["reason"],
        "Spans that never reached the receiver: queue_full, undeliverable, rejected by it, \
        shutdown, or over the bound of their request.";
    queue: IntGauge, "verbs3_telemetry_queue_requests", [],
        "Traced requests that wait for their export.";
    queue_max: IntGauge, "verbs3_telemetry_queue_requests_max", [],
        "The configured bound; beyond it spans are dropped and counted.";
    exports: IntCounterVec, "verbs3_telemetry_exports_total", ["outcome"],
        "Messages to the receiver, by outcome (ok, refused, failed).";
}

#[derive(Debug)]
pub(super) struct TelemetryMetrics {
    pub spans_exported: IntCounter,
    spans_dropped: IntCounterVec,
    pub queue: IntGauge,
    exports: IntCounterVec,
}

impl TelemetryMetrics {
    /// Registers the metrics. Fails if a name is taken in the registry. `queue_max` is shown as the
    /// queue's bound.
    pub fn new(registry: &Registry, queue_max: usize) -> Result<Self, prometheus::Error> {
        let TelemetryMetricRows { spans_exported, spans_dropped, queue, queue_max: bound, exports } =
            TelemetryMetricRows::new(registry)?;
        bound.set(i64::try_from(queue_max).unwrap_or(i64::MAX));
        Ok(Self { spans_exported, spans_dropped, queue, exports })
    }

    /// Counts spans that never reach the receiver. `reason` is the label's value; 0 spans count
    /// nothing.
    pub fn count_dropped(&self, reason: &str, spans: usize) {
        if spans > 0 {
            self.spans_dropped.with_label_values(&[reason]).inc_by(spans as u64);
        }
    }

    /// Counts one message to the receiver, by outcome.
    pub fn count_export(&self, outcome: &str) {
        self.exports.with_label_values(&[outcome]).inc();
    }
}

//! Owns the metrics of populate on write, declared once.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable};

/// Copies of writes to workers (docs/populate.md).
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_populate")]
pub(crate) struct PopulateMetrics {
    /// Pages that are read from workers because a write brought them.
    pub(super) pages: IntCounter,
    /// Pages of writes that were not kept, by reason. The writes themselves went on.
    #[metric("verbs3_populate_given_up_pages_total", labels(reason), from_zero)]
    pub(super) given_up: MetricFamily<GiveUpReason, IntCounter>,
    /// Memory of pages on their way to workers.
    pub(super) queued_bytes: IntGauge,
    /// The configured bound on it: gateway.populate.queue_max.
    pub(super) queued_bytes_max: IntGauge,
    /// Multipart uploads whose parts are remembered, of `gateway.populate.uploads_max`.
    pub(super) uploads: IntGauge,
    /// Their parts, of `gateway.populate.parts_max`.
    pub(super) parts: IntGauge,
}

/// Why a page of a write is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum GiveUpReason {
    /// As many bytes wait for workers as may. This page and the rest of its body are left out.
    QueueFull,
    /// Nobody owns its block, or its owner rests after failures.
    NoOwner,
    /// The owner does not take it.
    Refused,
    /// The owner did not answer, or not in time. No more is pushed to it in this write.
    Failed,
    /// It had not been settled when the write's client had to be told.
    Late,
    /// The write failed, or nobody knows whether it did.
    Unconfirmed,
    /// The store's answer names no version that can be cached.
    Uncacheable,
    /// The part lies elsewhere in the object than was guessed.
    Misplaced,
    /// The upload was not completed here, or too many others were begun since.
    Forgotten,
}

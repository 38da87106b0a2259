//! Owns every metric of the read path, declared once.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricsTable};

use crate::request_context::ReadVerdict;

/// The read path of a gateway.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_read")]
pub(crate) struct ReadMetrics {
    /// GET and HEAD by what the cache did.
    #[metric("verbs3_read_requests_total", labels(cache), from_zero)]
    pub(super) reads: MetricFamily<ReadVerdict, IntCounter>,
    /// Spans that the gateway read at the UFS itself, because no worker could give the rest.
    pub(super) fallback_spans: IntCounter,
    /// Bytes that the gateway read from UFSs itself.
    pub(super) ufs_bytes: IntCounter,
    /// HEADs at stores for objects whose homes could not say what they are; reads at the same time
    /// share them.
    pub(super) store_heads: IntCounter,
    /// Opens whose store was asked beside a home that showed no sign of life.
    pub(super) hedged_opens: IntCounter,
    /// Reads answered with 503 SlowDown.
    pub(super) slow_downs: IntCounter,
    /// Bodies cut after their first byte.
    pub(super) cut_bodies: IntCounter,
    /// Pauses after which a body that had begun asked another source for its rest.
    pub(super) resumptions: IntCounter,
    /// Objects opened again because their version was gone before its first byte was sent.
    pub(super) reopens: IntCounter,
    /// Bytes admitted under bytes_in_flight_max.
    pub(super) bytes_in_flight: IntGauge,
    /// Reads past the tier under way, of `gateway.read.bypass_in_flight_max`.
    pub(super) bypasses_in_flight: IntGauge,
}

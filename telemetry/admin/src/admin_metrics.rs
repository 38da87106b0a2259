//! Owns the metrics of the admin endpoints, declared once.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable};

/// The admin endpoints of a process.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_admin")]
pub struct AdminMetrics {
    /// Connections of probes and scrapers.
    pub(crate) connections: IntGauge,
    /// Most of them at once: `process.admin_connections_max`.
    #[metric("verbs3_admin_connections_max")]
    pub(crate) connections_max: IntGauge,
    /// Connections that were cut before their answer was taken.
    #[metric(labels(reason))]
    pub(crate) connections_cut: MetricFamily<AdminConnectionCut, IntCounter>,
}

/// Why a connection to an admin endpoint is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum AdminConnectionCut {
    /// Others wanted its place.
    Displaced,
    /// It lasted for `process.admin_deadline`.
    Late,
}

//! Owns the metrics of a process's certificates within its cluster.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription};

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![CertificateMetrics::describe_table()]
}

/// The certificates of one process.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_certificates")]
pub struct CertificateMetrics {
    /// When this process's certificate within the cluster ends, in seconds since 1970; 0 without
    /// one.
    #[metric("verbs3_certificates_not_after")]
    pub(crate) not_after: IntGauge,
    /// Changed files of `cluster.tls`, by what became of them.
    #[metric(labels(outcome))]
    pub(crate) reloads: MetricFamily<ReloadOutcome, IntCounter>,
}

/// What became of changed certificate files.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub enum ReloadOutcome {
    Taken,
    /// Those before were kept.
    Refused,
}

//! What the crates declare of their metrics.

use verbs3_metrics::{MetricDescription, MetricsTableDescription};

/// Every table, in the order of the document.
pub fn describe_tables() -> Vec<MetricsTableDescription> {
    [
        verbs3_admin::describe_metrics(),
        verbs3_gateway::metrics::describe_metrics(),
        verbs3_client::metrics::describe_metrics(),
        verbs3_cache_worker::metrics::describe_metrics(),
        verbs3_rdma::metrics::describe_metrics(),
        verbs3_certificates::metrics::describe_metrics(),
        verbs3_ufs::metrics::describe_metrics(),
        verbs3_coordinator::metrics::describe_metrics(),
        verbs3_preload::metrics::describe_metrics(),
        verbs3_telemetry::describe_metrics(),
        verbs3_kubernetes::metrics::describe_metrics(),
    ]
    .concat()
}

/// Every metric of them.
pub fn describe_metrics() -> impl Iterator<Item = MetricDescription> {
    describe_tables().into_iter().flat_map(|table| table.metrics)
}

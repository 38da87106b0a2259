//! What the crates declare of their metrics.

use verbs3_metrics::{LabelDescription, MetricDescription, MetricKind, MetricsTableDescription};

/// Every table, in the order of the document.
pub fn describe_tables() -> Vec<MetricsTableDescription> {
    [
        verbs3_gateway::metrics::describe_metrics(),
        verbs3_client::metrics::describe_metrics(),
        verbs3_cache_worker::metrics::describe_metrics(),
        verbs3_rdma::metrics::describe_metrics(),
        verbs3_ufs::metrics::describe_metrics(),
        verbs3_coordinator::metrics::describe_metrics(),
        verbs3_preload::metrics::describe_metrics(),
        vec![describe_telemetry()],
    ]
    .concat()
}

/// Every metric of them.
pub fn describe_metrics() -> impl Iterator<Item = MetricDescription> {
    describe_tables().into_iter().flat_map(|table| table.metrics)
}

fn describe_telemetry() -> MetricsTableDescription {
    let describe = |&(name, labels, help): &(&'static str, &[&'static str], &'static str)| {
        let labels = labels.iter().map(|name| LabelDescription { name, values: &[] }).collect();
        let is_counter = name.ends_with("_total");
        let kind = if is_counter { MetricKind::Counter } else { MetricKind::Gauge };
        MetricDescription { name, help, kind, labels }
    };
    MetricsTableDescription {
        documentation: "The export of traces.",
        file: "telemetry/src/metrics.rs",
        metrics: verbs3_telemetry::TABLE.iter().map(describe).collect(),
    }
}

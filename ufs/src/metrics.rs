//! Owns this crate's metrics, declared once. They are kept per process and carry the UFS's name, so
//! that a store can be built before there is a registry to show it in. The embedded store has its
//! own table.

use std::sync::LazyLock;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};
use verbs3_metrics::{
    MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription, TableFamily,
};

use crate::operations::every_operation;

/// Bounds of seconds to the first byte: from a store on the same machine to one in trouble.
const FIRST_BYTE_SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    let mut tables = vec![UfsMetrics::describe_table()];
    tables.extend(verbs3_local_store::describe_metrics());
    tables
}

/// Shows this crate's metrics in `registry`. Call it once for each registry.
pub fn register(registry: &Registry) -> Result<(), prometheus::Error> {
    registry.register(Box::new(METRICS.clone()))
}

/// Returns the metrics of one UFS. Keep them.
pub(crate) fn metrics_of_ufs(name: &str) -> UfsMetrics {
    METRICS.select_table(name)
}

static METRICS: LazyLock<TableFamily<UfsMetrics>> = LazyLock::new(TableFamily::default);

/// The stores behind the cache.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_ufs", each = "ufs")]
pub(crate) struct UfsMetrics {
    /// Requests to a UFS by S3 operation and outcome.
    #[metric(labels(op, outcome))]
    pub requests: MetricFamily<(StoreOperation, RequestOutcome), IntCounter>,
    /// Bytes of bodies read from a UFS.
    pub bytes_read: IntCounter,
    /// Bytes of bodies sent to a UFS.
    pub bytes_written: IntCounter,
    /// Reads and heads of the cache that hold a place.
    pub in_flight: IntGauge,
    /// Reads and heads given up because no place came free in time.
    pub throttled: IntCounter,
    /// Reads and heads that were tried again.
    #[metric(labels(op))]
    pub retries: MetricFamily<ReadOperation, IntCounter>,
    /// Answers that contradicted their request or themselves.
    #[metric("verbs3_ufs_answers_refused_total", labels(reason))]
    pub refused: MetricFamily<RefusalReason, IntCounter>,
    /// 0 closed, 1 half open, 2 open.
    #[metric("verbs3_ufs_circuit_state")]
    pub circuit: IntGauge,
    /// 1 where the UFS answered the last request, with an error too; 0 where no answer came.
    pub reachable: IntGauge,
    /// 1 where the UFS answered the last ranged read with the whole object.
    pub ignores_range: IntGauge,
    /// Seconds from sending a read or head to its answer's headers.
    #[metric(labels(op), buckets = FIRST_BYTE_SECONDS)]
    pub first_byte: MetricFamily<ReadOperation, Histogram>,
}

macro_rules! store_operations {
    ($($op:ident $input:ident $output:ident,)*) => {
        /// An S3 operation, as `s3s` spells it.
        #[derive(Debug, Clone, Copy, MetricLabel)]
        #[allow(non_camel_case_types, reason = "the names come from the list of operations")]
        pub(crate) enum StoreOperation { $($op,)* }
    };
}

every_operation!(store_operations);

/// What a UFS answered.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum RequestOutcome {
    Ok,
    #[label("3xx")]
    Redirection,
    #[label("4xx")]
    ClientError,
    #[label("5xx")]
    ServerError,
    Unreachable,
    Untrusted,
    /// Its caller dropped it.
    Abandoned,
}

/// What the cache asks for.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum ReadOperation {
    GetObject,
    HeadObject,
}

/// Why an answer is not used.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum RefusalReason {
    Untrusted,
    /// It is of another version.
    Changed,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_table_can_be_shown_in_several_registries() {
        for _ in 0..2 {
            let registry = Registry::new();
            register(&registry).unwrap();
            let metrics = metrics_of_ufs("m");
            metrics.requests[(StoreOperation::get_object, RequestOutcome::Ok)].inc();
            assert!(
                registry.gather().iter().any(|family| family.name() == "verbs3_ufs_requests_total")
            );
            assert!(register(&registry).is_err());
        }
    }
}

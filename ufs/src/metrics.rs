//! The one table of this crate's metrics. They are kept per process and carry the UFS's name, so that a store can be built
//! before there is a registry to show it in.

use std::sync::LazyLock;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// Every metric of this crate.
pub(crate) struct Metrics {
    pub requests: IntCounterVec,
    pub bytes_read: IntCounterVec,
    pub bytes_written: IntCounterVec,
    pub in_flight: IntGaugeVec,
    pub throttled: IntCounterVec,
    pub retries: IntCounterVec,
    pub refused: IntCounterVec,
    pub circuit: IntGaugeVec,
    pub first_byte: HistogramVec,
}

pub(crate) static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// Seconds to the first byte: from a store on the same machine to one that is in trouble.
const FIRST_BYTE_SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Metrics {
    fn new() -> Self {
        const WHY: &str = "the metric's name and labels are constants";
        let counter =
            |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels).expect(WHY);
        let gauge =
            |name: &str, help: &str, labels: &[&str]| IntGaugeVec::new(Opts::new(name, help), labels).expect(WHY);
        let first_byte = HistogramOpts::new(
            "verbs3_ufs_first_byte_seconds",
            "Seconds from sending a read or head to its answer's headers.",
        )
        .buckets(FIRST_BYTE_SECONDS.to_vec());
        Self {
            requests: counter(
                "verbs3_ufs_requests_total",
                "Requests to a UFS by S3 operation; outcome: ok, 3xx, 4xx, 5xx, unreachable, untrusted or abandoned.",
                &["ufs", "op", "outcome"],
            ),
            bytes_read: counter("verbs3_ufs_bytes_read_total", "Bytes of bodies read from a UFS.", &["ufs"]),
            bytes_written: counter("verbs3_ufs_bytes_written_total", "Bytes of bodies sent to a UFS.", &["ufs"]),
            in_flight: gauge("verbs3_ufs_in_flight", "Reads and heads of the cache that hold a place.", &["ufs"]),
            throttled: counter(
                "verbs3_ufs_throttled_total",
                "Reads and heads given up because no place came free in time.",
                &["ufs"],
            ),
            retries: counter("verbs3_ufs_retries_total", "Reads and heads that were tried again.", &["ufs", "op"]),
            refused: counter(
                "verbs3_ufs_answers_refused_total",
                "Answers that contradicted their request or themselves; reason: untrusted, changed or truncated.",
                &["ufs", "reason"],
            ),
            circuit: gauge("verbs3_ufs_circuit_state", "0 closed, 1 half open, 2 open.", &["ufs"]),
            first_byte: HistogramVec::new(first_byte, &["ufs", "op"]).expect(WHY),
        }
    }
}

/// Shows this crate's metrics in `registry`. Call it once for each registry.
pub fn register(registry: &Registry) -> Result<(), prometheus::Error> {
    let Metrics { requests, bytes_read, bytes_written, in_flight, throttled, retries, refused, circuit, first_byte } =
        &*METRICS;
    for counter in [requests, bytes_read, bytes_written, throttled, retries, refused] {
        registry.register(Box::new(counter.clone()))?;
    }
    for gauge in [in_flight, circuit] {
        registry.register(Box::new(gauge.clone()))?;
    }
    registry.register(Box::new(first_byte.clone()))
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
            METRICS.requests.with_label_values(&["m", "get_object", "ok"]).inc();
            assert!(registry.gather().iter().any(|family| family.name() == "verbs3_ufs_requests_total"));
            assert!(register(&registry).is_err());
        }
    }
}

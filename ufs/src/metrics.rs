//! Owns this crate's metrics: name, labels and meaning in one table. They are kept per process and
//! carry the UFS's name, so that a store can be built before there is a registry to show it in. The
//! embedded store has its own table.

use std::sync::LazyLock;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

pub use crate::local::METRICS as LOCAL_TABLE;

/// Bounds of seconds to the first byte: from a store on the same machine to one in trouble.
const FIRST_BYTE_SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        /// Metrics of this crate, one field for each row, all labelled with the UFS.
        pub(crate) struct StoreMetrics { $(#[doc = $help] pub $field: $kind,)* }

        impl StoreMetrics {
            fn new() -> Result<Self, prometheus::Error> {
                Ok(Self { $($field: table!(@make $kind, $name, [$($label),*], $help)?,)* })
            }
        }

        /// Shows this crate's metrics in `registry`. Call it once for each registry.
        pub fn register(registry: &Registry) -> Result<(), prometheus::Error> {
            $(registry.register(Box::new(METRICS.$field.clone()))?;)*
            Ok(())
        }

        /// Name, labels and meaning of every metric, for the documentation and its test.
        pub const TABLE: &[(&str, &[&str], &str)] = &[$(($name, &[$($label),*], $help)),*];
    };
    (@make HistogramVec, $name:literal, [$($label:literal),*], $help:literal) => {
        HistogramVec::new(
            HistogramOpts::new($name, $help).buckets(FIRST_BYTE_SECONDS.to_vec()),
            &[$($label),*],
        )
    };
    (@make $kind:ident, $name:literal, [$($label:literal),*], $help:literal) => {
        $kind::new(Opts::new($name, $help), &[$($label),*])
    };
}

table! {
    requests: IntCounterVec, "verbs3_ufs_requests_total", ["ufs", "op", "outcome"],
        "Requests to a UFS by S3 operation; outcome: ok, 3xx, 4xx, 5xx, unreachable, untrusted or \
        abandoned.";
    bytes_read: IntCounterVec, "verbs3_ufs_bytes_read_total", ["ufs"],
        "Bytes of bodies read from a UFS.";
    bytes_written: IntCounterVec, "verbs3_ufs_bytes_written_total", ["ufs"],
        "Bytes of bodies sent to a UFS.";
    in_flight: IntGaugeVec, "verbs3_ufs_in_flight", ["ufs"],
        "Reads and heads of the cache that hold a place.";
    throttled: IntCounterVec, "verbs3_ufs_throttled_total", ["ufs"],
        "Reads and heads given up because no place came free in time.";
    retries: IntCounterVec, "verbs3_ufs_retries_total", ["ufs", "op"],
        "Reads and heads that were tried again.";
    refused: IntCounterVec, "verbs3_ufs_answers_refused_total", ["ufs", "reason"],
        "Answers that contradicted their request or themselves; reason: untrusted, changed or \
        truncated.";
    circuit: IntGaugeVec, "verbs3_ufs_circuit_state", ["ufs"], "0 closed, 1 half open, 2 open.";
    ignores_range: IntGaugeVec, "verbs3_ufs_ignores_range", ["ufs"],
        "1 where the UFS answered the last ranged read with the whole object.";
    first_byte: HistogramVec, "verbs3_ufs_first_byte_seconds", ["ufs", "op"],
        "Seconds from sending a read or head to its answer's headers.";
}

pub(crate) static METRICS: LazyLock<StoreMetrics> = LazyLock::new(|| {
    StoreMetrics::new().expect("the table's names and labels are valid; a test makes them all")
});

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
            assert!(
                registry.gather().iter().any(|family| family.name() == "verbs3_ufs_requests_total")
            );
            assert!(register(&registry).is_err());
        }
    }
}

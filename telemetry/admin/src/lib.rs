//! What probes and scrapers ask of any process: `/metrics`, `/healthz` and `/readyz`.
#![forbid(unsafe_code)]

mod admin_endpoints;
mod admin_metrics;
mod readiness_check;

pub use admin_endpoints::{AdminEndpoints, AdminLimits, AdminSockets};
pub use admin_metrics::AdminMetrics;
pub use readiness_check::{ReadinessCheck, ReadinessList};

use verbs3_metrics::{MetricsTable as _, MetricsTableDescription};

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![AdminMetrics::describe_table()]
}

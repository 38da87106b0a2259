//! Metrics that are declared once: name, type, labels and meaning at the field that holds the
//! values. Registering them, and the document of them, follow.
//!
//! Owns the typed families over `prometheus`, and what is declared of a metric. Owns no metric, and
//! serves none.

#![forbid(unsafe_code)]

mod gauge_guard;
mod metric_declaration;
mod metric_family;
mod metric_field;
mod metric_label;
mod metrics_table;
mod sampled_metrics;
mod table_family;

#[doc(hidden)]
pub use prometheus;

pub use gauge_guard::GaugeGuard;
pub use metric_declaration::{MetricDeclaration, check_metric_name};
pub use metric_family::{FamilyMember, MetricFamily};
pub use metric_field::MetricField;
pub use metric_label::{LabelSet, LabelValue, MetricLabel};
pub use metrics_table::{
    LabelDescription, MetricDescription, MetricKind, MetricsTable, MetricsTableDescription,
};
pub use sampled_metrics::register_sampled;
pub use table_family::TableFamily;
pub use verbs3_metrics_derive::{MetricLabel, MetricsTable};

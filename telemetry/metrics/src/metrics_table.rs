//! Owns what is declared of a table of metrics: the trait that `#[derive(MetricsTable)]`
//! implements, and the description that the document is made of.

use prometheus::core::Collector;

use crate::metric_label::LabelValue;

/// A struct whose fields are metrics. Clones share the values.
pub trait MetricsTable: Collector + Clone + 'static {
    /// The label by which tables of this type differ (`folder`). `None`: a registry has one.
    const TABLE_LABEL: Option<&'static str>;

    /// Makes every metric at zero. `outer`: labels of the whole table.
    fn create_table(outer: &[(&str, &str)]) -> Self;

    /// What the document says of its metrics.
    fn describe_table() -> MetricsTableDescription;
}

/// A table, as it is declared.
#[derive(Debug, Clone)]
pub struct MetricsTableDescription {
    /// The doc comment of its struct as one line of Markdown.
    pub documentation: &'static str,
    /// Where it is declared.
    pub file: &'static str,
    /// In the order in which they are declared.
    pub metrics: Vec<MetricDescription>,
}

/// A metric, as it is declared.
#[derive(Debug, Clone)]
pub struct MetricDescription {
    /// Its name on `/metrics`.
    pub name: &'static str,
    /// What it means, as one line of Markdown.
    pub help: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// In the order in which they are declared.
    pub labels: Vec<LabelDescription>,
}

/// A label, as it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelDescription {
    /// Its name.
    pub name: &'static str,
    /// Empty where only the running process knows them.
    pub values: &'static [LabelValue],
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Goes up only.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by buckets.
    Histogram,
}

impl MetricKind {
    /// What `/metrics` calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

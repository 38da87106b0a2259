//! Owns what is declared of a metric, as the derive writes it down.

use prometheus::{HistogramOpts, Opts};

use crate::metrics_table::{LabelDescription, MetricDescription, MetricKind};

/// What `#[metric(…)]` and the doc comment of a field say.
#[derive(Debug, Clone, Copy, Default)]
pub struct MetricDeclaration {
    /// Its name on `/metrics`. Empty for tables in a table.
    pub name: &'static str,
    /// Its doc comment as one line.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The upper bounds of a histogram's buckets.
    pub buckets: &'static [f64],
    /// Whether every series shows from the start. An alert sees no increase in a series that begins
    /// with 1.
    pub from_zero: bool,
}

impl MetricDeclaration {
    pub(crate) fn options(&self, outer: &[(&str, &str)]) -> Opts {
        outer.iter().fold(Opts::new(self.name, self.help), |options, (label, value)| {
            options.const_label(*label, *value)
        })
    }

    pub(crate) fn histogram_options(&self, outer: &[(&str, &str)]) -> HistogramOpts {
        HistogramOpts::from(self.options(outer)).buckets(self.buckets.to_vec())
    }

    pub(crate) fn describe_metric(
        &self,
        kind: MetricKind,
        labels: Vec<LabelDescription>,
    ) -> MetricDescription {
        MetricDescription { name: self.name, help: self.help, kind, labels }
    }
}

/// Fails to compile where a name does not end as Prometheus's convention wants for its type.
pub const fn check_metric_name(name: &str, kind: Option<MetricKind>) {
    let (total, seconds) = (ends_with(name, "_total"), ends_with(name, "_seconds"));
    let fits = match kind {
        Some(MetricKind::Counter) => total,
        Some(MetricKind::Histogram) => seconds,
        Some(MetricKind::Gauge) => !total && !seconds,
        None => name.is_empty(),
    };
    assert!(
        fits,
        "a counter's name ends in _total, a histogram's in _seconds, a gauge's in neither"
    );
}

const fn ends_with(name: &str, end: &str) -> bool {
    let (name, end) = (name.as_bytes(), end.as_bytes());
    if name.len() < end.len() {
        return false;
    }
    let mut index = 0;
    while index < end.len() {
        if name[name.len() - end.len() + index] != end[index] {
            return false;
        }
        index += 1;
    }
    true
}

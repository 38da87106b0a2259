//! Owns tables whose values are looked up when they are asked for.

use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

struct SampledMetrics<T, F> {
    table: T,
    sample: F,
}

/// Shows `table` in `registry`. `sample` sets its values at each scrape; where it answers `false`,
/// the table shows nothing.
pub fn register_sampled<T, F>(
    registry: &Registry,
    table: T,
    sample: F,
) -> Result<(), prometheus::Error>
where
    T: Collector + 'static,
    F: Fn(&T) -> bool + Send + Sync + 'static,
{
    registry.register(Box::new(SampledMetrics { table, sample }))
}

impl<T: Collector, F: Fn(&T) -> bool + Send + Sync> Collector for SampledMetrics<T, F> {
    fn desc(&self) -> Vec<&Desc> {
        self.table.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if (self.sample)(&self.table) { self.table.collect() } else { Vec::new() }
    }
}

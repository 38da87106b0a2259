//! Owns a gauge's share that lasts as long as a value.

use prometheus::IntGauge;

/// A guard that adds to a gauge now, and subtracts the same on drop.
#[derive(Debug)]
pub struct GaugeGuard {
    gauge: IntGauge,
    by: i64,
}

impl GaugeGuard {
    /// Adds `by` to the gauge.
    pub fn add_to(gauge: &IntGauge, by: u64) -> Self {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        gauge.add(by);
        Self { gauge: gauge.clone(), by }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.sub(self.by);
    }
}

//! Latencies as histograms count them: a number of measurements for each upper bound. Sums those of
//! several processes, and reads percentiles.

use std::collections::BTreeMap;

use verbs3_coordinator_client::api::LatencyBucket;

/// Most bounds that are told apart: gateways have 14, stores about as many.
pub(crate) const BUCKETS_MAX: usize = 32;

/// Measurements up to each bound in microseconds, those of smaller bounds included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LatencyCounts(BTreeMap<u64, u64>);

impl LatencyCounts {
    /// Adds what was measured between two reports of one process.
    pub(crate) fn add_progress(&mut self, now: &[LatencyBucket], before: &[LatencyBucket]) {
        for bucket in now {
            let known = before.iter().find(|known| known.up_to_us == bucket.up_to_us);
            let known = known.map_or(0, |known| known.count);
            self.add_bucket(bucket.up_to_us, bucket.count.saturating_sub(known));
        }
    }

    /// Adds all of `other`.
    pub(crate) fn add_counts(&mut self, other: &Self) {
        for (&up_to_us, &count) in &other.0 {
            self.add_bucket(up_to_us, count);
        }
    }

    fn add_bucket(&mut self, up_to_us: u64, count: u64) {
        if let Some(sum) = self.0.get_mut(&up_to_us) {
            *sum = sum.saturating_add(count);
        } else if self.0.len() < BUCKETS_MAX {
            self.0.insert(up_to_us, count);
        }
    }

    /// Returns the number of measurements.
    pub(crate) fn total_count(&self) -> u64 {
        self.0.values().copied().max().unwrap_or(0)
    }

    /// Returns the microseconds that a part of the measurements (0 to 1) did not exceed, as near as
    /// the bounds allow: between two of them it goes in a straight line. `None`: nothing was
    /// measured.
    pub(crate) fn quantile_us(&self, part: f64) -> Option<f64> {
        let wanted = self.total_count() as f64 * part;
        if wanted <= 0.0 {
            return None;
        }
        let (mut lower, mut below) = (0_u64, 0_u64);
        for (&upper, &count) in &self.0 {
            if count as f64 >= wanted {
                // Nothing is known of what lies beyond the last bound.
                if upper == u64::MAX || count == below {
                    return Some(lower as f64);
                }
                let within = (wanted - below as f64) / (count - below) as f64;
                return Some(lower as f64 + (upper - lower) as f64 * within);
            }
            (lower, below) = (upper, count);
        }
        Some(lower as f64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn buckets(counts: &[[u64; 2]]) -> Vec<LatencyBucket> {
        counts.iter().map(|&[up_to_us, count]| LatencyBucket { up_to_us, count }).collect()
    }

    #[test]
    fn percentiles_lie_between_the_bounds_around_them() {
        let mut counts = LatencyCounts::default();
        assert_eq!(counts.quantile_us(0.5), None);
        counts.add_progress(&buckets(&[[100, 50], [1000, 90], [10_000, 100]]), &[]);
        assert_eq!(counts.total_count(), 100);
        assert_eq!(counts.quantile_us(0.5), Some(100.0));
        assert_eq!(counts.quantile_us(0.7), Some(550.0));
        assert_eq!(counts.quantile_us(0.9), Some(1000.0));
        assert_eq!(counts.quantile_us(1.0), Some(10_000.0));
    }

    #[test]
    fn what_lies_beyond_all_bounds_is_said_to_be_at_the_last_one() {
        let mut counts = LatencyCounts::default();
        counts.add_progress(&buckets(&[[100, 1], [u64::MAX, 100]]), &[]);
        assert_eq!(counts.quantile_us(0.99), Some(100.0));
    }

    #[test]
    fn only_progress_counts_and_bounds_are_not_without_end() {
        let mut counts = LatencyCounts::default();
        counts.add_progress(&buckets(&[[100, 7], [200, 9]]), &buckets(&[[100, 5], [200, 6]]));
        assert_eq!(counts.total_count(), 3);
        let many: Vec<LatencyBucket> =
            (0..1000).map(|up_to_us| LatencyBucket { up_to_us, count: 1 }).collect();
        counts.add_progress(&many, &[]);
        assert_eq!(counts.0.len(), BUCKETS_MAX);
    }
}

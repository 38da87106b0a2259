//! A histogram with high dynamic range: it keeps three digits of every value, in bounded memory.
//!
//! Uses log-linear buckets like HdrHistogram (Gil Tene). Below 2,048 every value has its own;
//! above, each doubling has 1,024. That crate is not used because it would change features of
//! shared dependencies; this code is 60 lines.

use serde::{Deserialize, Serialize};

/// Buckets of each doubling.
const HALF: u64 = 1 << 10;
/// 2^32 µs are 71 minutes.
const BITS_MAX: u32 = 32;
/// Largest value that is distinguished from larger ones: 2^32 - 1.
pub const VALUE_MAX: u64 = (1 << BITS_MAX) - 1;

/// Counts of values by bucket. Takes no memory before the first value, and some 90 KiB after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SparseHistogram", into = "SparseHistogram")]
pub struct BenchHistogram {
    /// Empty until the first value is recorded.
    counts: Vec<u32>,
    all: u64,
    max: u64,
}

/// A histogram as another process gets it: the buckets that are not empty, in their order.
#[derive(Debug, Serialize, Deserialize)]
struct SparseHistogram {
    max: u64,
    /// Index and count.
    buckets: Vec<(u32, u32)>,
}

/// What is wrong with a histogram of another process.
#[derive(Debug, thiserror::Error)]
enum SparseHistogramError {
    #[error("histogram's buckets are out of order or none: {0}")]
    Order(u32),
    #[error("histogram's greatest value {0} is not in its last bucket")]
    Max(u64),
}

impl From<BenchHistogram> for SparseHistogram {
    fn from(histogram: BenchHistogram) -> Self {
        let counts = histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        // An index is below `bucket_index(VALUE_MAX)`, some 23,000.
        let buckets = counts.map(|(index, count)| (index as u32, *count)).collect();
        Self { max: histogram.max, buckets }
    }
}

impl TryFrom<SparseHistogram> for BenchHistogram {
    type Error = SparseHistogramError;

    fn try_from(sparse: SparseHistogram) -> Result<Self, Self::Error> {
        let Some((last, _)) = sparse.buckets.last().copied() else {
            return Ok(Self::default());
        };
        let mut counts = vec![0; bucket_index(VALUE_MAX) + 1];
        let (mut all, mut before) = (0, None);
        for (index, count) in sparse.buckets {
            let place = counts.get_mut(index as usize);
            let place = place.filter(|_| before < Some(index) && count > 0);
            *place.ok_or(SparseHistogramError::Order(index))? = count;
            (all, before) = (all + u64::from(count), Some(index));
        }
        if sparse.max > VALUE_MAX || bucket_index(sparse.max) != last as usize {
            return Err(SparseHistogramError::Max(sparse.max));
        }
        Ok(Self { counts, all, max: sparse.max })
    }
}

impl BenchHistogram {
    /// Records a value. Larger ones than `VALUE_MAX` count as that.
    pub fn record_value(&mut self, value: u64) {
        let value = value.min(VALUE_MAX);
        if self.counts.is_empty() {
            self.counts = vec![0; bucket_index(VALUE_MAX) + 1];
        }
        let count = &mut self.counts[bucket_index(value)];
        *count = count.saturating_add(1);
        self.all += 1;
        self.max = self.max.max(value);
    }

    /// Adds the values of another histogram.
    pub fn merge_from(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.counts = other.counts.clone();
        } else {
            self.counts
                .iter_mut()
                .zip(&other.counts)
                .for_each(|(ours, theirs)| *ours = ours.saturating_add(*theirs));
        }
        self.all += other.all;
        self.max = self.max.max(other.max);
    }

    /// Returns the number of recorded values.
    pub fn len(&self) -> u64 {
        self.all
    }

    /// Returns the largest recorded value; `None`: there is none.
    pub fn max_value(&self) -> Option<u64> {
        (self.all > 0).then_some(self.max)
    }

    /// Returns the least value that `percentile` of the values do not exceed, as its bucket's upper
    /// bound.
    pub fn value_at_percentile(&self, percentile: f64) -> Option<u64> {
        let rank = ((percentile / 100.0 * self.all as f64).ceil() as u64).clamp(1, self.all.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Some(bucket_upper_bound(index).min(self.max));
            }
        }
        None
    }

    /// Returns how many values are above `value`, without those in its bucket.
    pub fn count_above(&self, value: u64) -> u64 {
        self.counts
            .iter()
            .skip(bucket_index(value.min(VALUE_MAX)) + 1)
            .map(|count| u64::from(*count))
            .sum()
    }
}

fn bucket_index(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(HALF.ilog2() + 1);
    (u64::from(shift) * HALF + (value >> shift)) as usize
}

/// Returns the largest value of a bucket.
fn bucket_upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / HALF).saturating_sub(1);
    ((bucket - shift * HALF + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::SplitMixRandom;

    #[test]
    fn buckets_are_in_order_without_gaps_and_a_thousandth_wide() {
        let mut next = 0;
        for index in 0..=bucket_index(VALUE_MAX) {
            assert_eq!(bucket_index(next), index, "{next}");
            assert_eq!(bucket_index(bucket_upper_bound(index)), index);
            let wide = bucket_upper_bound(index) - next;
            assert!(
                wide == 0 || (wide as f64) < next as f64 / 1000.0,
                "{next} to {}",
                bucket_upper_bound(index)
            );
            next = bucket_upper_bound(index) + 1;
        }
        assert_eq!(next, VALUE_MAX + 1);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let mut random = SplitMixRandom::new(3);
        let mut values: Vec<u64> =
            (0..50_000).map(|_| (random.next_exponential() * 20_000.0) as u64).collect();
        let (mut one, mut two) = (BenchHistogram::default(), BenchHistogram::default());
        values.iter().enumerate().for_each(|(at, value)| {
            if at % 3 == 0 { one.record_value(*value) } else { two.record_value(*value) }
        });
        one.merge_from(&two);
        values.sort_unstable();
        for percentile in [0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
            let rank = ((percentile / 100.0 * 50_000.0_f64).ceil() as usize).max(1);
            let (got, wanted) =
                (one.value_at_percentile(percentile).unwrap() as f64, values[rank - 1] as f64);
            assert!(got >= wanted && got <= wanted * 1.001 + 0.5, "{percentile}: {got}, {wanted}");
        }
        assert_eq!(
            (one.len(), one.max_value(), one.value_at_percentile(100.0)),
            (50_000, values.last().copied(), values.last().copied())
        );
        let above = values.iter().filter(|value| **value > 20_000).count() as f64;
        assert!((one.count_above(20_000) as f64 / above - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_histogram_survives_the_way_to_another_process() {
        let mut random = SplitMixRandom::new(5);
        let mut histogram = BenchHistogram::default();
        for text in [false, true] {
            let sent = serde_json::to_string(&histogram).unwrap();
            let came: BenchHistogram = serde_json::from_str(&sent).unwrap();
            assert_eq!(came, histogram, "{text}");
            (0..5000).for_each(|_| histogram.record_value(random.next_below(1 << 30)));
        }
        for wrong in [
            r#"{"max":1,"buckets":[[1,1],[1,1]]}"#,
            r#"{"max":1,"buckets":[[2,1],[1,1]]}"#,
            r#"{"max":1,"buckets":[[1,0]]}"#,
            r#"{"max":1,"buckets":[[4000000,1]]}"#,
            r#"{"max":7,"buckets":[[1,1]]}"#,
            r#"{"max":99999999999,"buckets":[[1,1]]}"#,
        ] {
            assert!(serde_json::from_str::<BenchHistogram>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_has_no_percentiles_and_too_much_is_kept_as_the_most() {
        let mut histogram = BenchHistogram::default();
        assert_eq!(
            (
                histogram.value_at_percentile(50.0),
                histogram.max_value(),
                histogram.count_above(0),
                histogram.len()
            ),
            (None, None, 0, 0)
        );
        histogram.record_value(u64::MAX);
        histogram.merge_from(&BenchHistogram::default());
        assert_eq!((histogram.value_at_percentile(50.0), histogram.len()), (Some(VALUE_MAX), 1));
    }
}

//! Counts a round: histograms by kind of exchange, errors by kind, and the cache's verdicts.
//! Bounded, whatever the load.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::BenchStepResult;
use crate::histogram::BenchHistogram;
use crate::printable_text::printable_text;
use crate::request_plan::ExchangeKind;
use crate::schedule::StartLateness;

/// Number of explanations that are kept: the first ones, which mostly cause the others.
const EXAMPLES_MAX: usize = 5;
/// Most different texts of a header or an error kind; the rest is counted together.
const NAMES_MAX: usize = 32;

/// Times of one kind in microseconds, at least 1 µs each.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LatencyTally(BenchHistogram);

impl LatencyTally {
    /// Adds one time; below 1 µs counts as 1 µs.
    pub fn record_time(&mut self, time: Duration) {
        self.0.record_value(whole_micros(time).max(1));
    }

    /// Adds the times of another tally.
    pub fn merge_from(&mut self, other: &Self) {
        self.0.merge_from(&other.0);
    }

    /// Returns the number of recorded times.
    pub fn sample_count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the time that `percentile` (0 to 100) of all do not exceed; `None`: there are no
    /// times.
    pub fn time_at_percentile(&self, percentile: f64) -> Option<Duration> {
        self.0.value_at_percentile(percentile).map(Duration::from_micros)
    }

    /// Returns the longest time; `None`: there is none.
    pub fn max_time(&self) -> Option<Duration> {
        self.0.max_value().map(Duration::from_micros)
    }

    /// Returns how many times are above a bound.
    pub fn count_above(&self, bound: Duration) -> u64 {
        self.0.count_above(whole_micros(bound))
    }
}

fn whole_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Counts of successful exchanges of one kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExchangeKindTally {
    pub bytes: u64,
    /// From the intended start to the last byte.
    pub latency: LatencyTally,
    /// From the intended start to the body's first byte.
    pub first_byte: LatencyTally,
}

impl ExchangeKindTally {
    fn merge_from(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.latency.merge_from(&other.latency);
        self.first_byte.merge_from(&other.first_byte);
    }
}

/// Counts of one round, or of some of its connections.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BenchRoundTally {
    pub kinds: BTreeMap<ExchangeKind, ExchangeKindTally>,
    pub errors: BTreeMap<String, u64>,
    pub examples: Vec<String>,
    /// Errors in which the answer was not the object.
    pub wrong: u64,
    /// Counts by value of `x-verbs3-cache`.
    pub cache: BTreeMap<String, u64>,
    /// Open loop: delays of connections that woke up late, and of operations that found none free.
    pub woken_late: LatencyTally,
    pub queued: LatencyTally,
}

impl BenchRoundTally {
    /// Records one exchange that began, or was due, at `intended`. All times count from the round's
    /// start.
    pub fn record_exchange(
        &mut self,
        kind: ExchangeKind,
        intended: Duration,
        first_byte: Option<Duration>,
        ended: Duration,
        done: BenchStepResult,
    ) {
        if let Some(cache) = done.cache {
            count_name(&mut self.cache, cache, 1);
        }
        match done.outcome {
            Ok(()) => {
                let of_kind = self.kinds.entry(kind).or_default();
                of_kind.bytes += done.bytes;
                of_kind.latency.record_time(ended.saturating_sub(intended));
                if let Some(first) = first_byte {
                    of_kind.first_byte.record_time(first.saturating_sub(intended));
                }
            }
            Err(failure) => {
                self.wrong += u64::from(failure.is_wrong_answer());
                count_name(&mut self.errors, failure.kind_label(), 1);
                if self.examples.len() < EXAMPLES_MAX {
                    self.examples.push(format!("{}: {failure}", kind.as_str()));
                }
            }
        }
    }

    /// Counts how late an operation started. A closed loop counts nothing.
    pub fn record_lateness(&mut self, late: StartLateness) {
        match late {
            StartLateness::Woken(by) => self.woken_late.record_time(by),
            StartLateness::Queued(by) => self.queued.record_time(by),
            StartLateness::Closed => {}
        }
    }

    /// Makes what another host counted fit for a terminal, and bounds how much text it is.
    pub fn make_printable(&mut self) {
        for names in [&mut self.errors, &mut self.cache] {
            for (name, count) in std::mem::take(names) {
                count_name(names, printable_text(&name), count);
            }
        }
        self.examples.truncate(EXAMPLES_MAX);
        self.examples.iter_mut().for_each(|example| *example = printable_text(example));
    }

    /// Adds another tally, such as that of other connections or of another round. Sums that are too
    /// large stay at the most: another host may have counted anything.
    pub fn merge_from(&mut self, other: &Self) {
        for (kind, theirs) in &other.kinds {
            let ours = self.kinds.entry(*kind).or_default();
            ours.merge_from(theirs);
        }
        for (names, theirs) in [(&mut self.errors, &other.errors), (&mut self.cache, &other.cache)]
        {
            theirs.iter().for_each(|(name, count)| count_name(names, name.clone(), *count));
        }
        self.wrong = self.wrong.saturating_add(other.wrong);
        self.examples.extend(
            other.examples.iter().take(EXAMPLES_MAX.saturating_sub(self.examples.len())).cloned(),
        );
        self.woken_late.merge_from(&other.woken_late);
        self.queued.merge_from(&other.queued);
    }

    /// Returns the sum of all kinds except reading back.
    pub fn sum_kinds(&self) -> ExchangeKindTally {
        let mut sum = ExchangeKindTally::default();
        for of_kind in self
            .kinds
            .iter()
            .filter(|(kind, _)| **kind != ExchangeKind::ReadBack)
            .map(|(_, of_kind)| of_kind)
        {
            sum.merge_from(of_kind);
        }
        sum
    }

    /// Returns the sum of the errors of all kinds.
    pub fn errors_in_all(&self) -> u64 {
        sum_counts(&self.errors)
    }
}

/// Returns the sum of all counts, or the most.
pub fn sum_counts(names: &BTreeMap<String, u64>) -> u64 {
    names.values().copied().fold(0, u64::saturating_add)
}

fn count_name(names: &mut BTreeMap<String, u64>, name: String, count: u64) {
    let full = names.len() >= NAMES_MAX && !names.contains_key(&name);
    let ours = names.entry(if full { "others".into() } else { name }).or_default();
    *ours = ours.saturating_add(count);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use super::*;
    use crate::exchange_error::BenchExchangeError;

    fn done(outcome: Result<(), BenchExchangeError>) -> BenchStepResult {
        BenchStepResult {
            bytes: 10,
            first_byte: None,
            ended: Instant::now(),
            cache: Some("hit".into()),
            outcome,
        }
    }

    #[test]
    fn percentiles_are_within_a_thousandth_of_the_truth() {
        let mut latencies = LatencyTally::default();
        (1..=100_000).for_each(|micros| latencies.record_time(Duration::from_micros(micros)));
        for (percentile, wanted) in
            [(50.0, 50_000.0), (90.0, 90_000.0), (99.0, 99_000.0), (99.9, 99_900.0)]
        {
            let got = latencies.time_at_percentile(percentile).unwrap().as_micros() as f64;
            assert!((got / wanted - 1.0).abs() < 0.001, "{percentile}: {got}");
        }
        assert_eq!(
            (latencies.sample_count(), LatencyTally::default().time_at_percentile(50.0)),
            (100_000, None)
        );
        let above = latencies.count_above(Duration::from_millis(90));
        assert!((9_900..=10_100).contains(&above), "{above}");
        latencies.record_time(Duration::from_secs(100_000));
        assert!(
            latencies.max_time().unwrap() >= Duration::from_secs(3595),
            "too long is kept as the longest"
        );
    }

    #[test]
    fn latency_counts_from_when_it_should_have_begun() {
        let mut tally = BenchRoundTally::default();
        let ms = Duration::from_millis;
        tally.record_exchange(ExchangeKind::Get, ms(100), Some(ms(350)), ms(400), done(Ok(())));
        assert_eq!(tally.kinds[&ExchangeKind::Get].latency.max_time().unwrap().as_millis(), 300);
        assert_eq!(tally.kinds[&ExchangeKind::Get].first_byte.max_time().unwrap().as_millis(), 250);
    }

    #[test]
    fn tallies_add_up_and_reading_back_stays_out_of_the_sum() {
        let mut one = BenchRoundTally::default();
        let mut two = BenchRoundTally::default();
        for _ in 0..3 {
            one.record_exchange(
                ExchangeKind::Put,
                Duration::ZERO,
                None,
                Duration::from_millis(1),
                done(Ok(())),
            );
            two.record_exchange(
                ExchangeKind::ReadBack,
                Duration::ZERO,
                None,
                Duration::from_millis(9),
                done(Ok(())),
            );
            two.record_exchange(
                ExchangeKind::Put,
                Duration::ZERO,
                None,
                Duration::from_millis(2),
                done(Err(BenchExchangeError::Timeout)),
            );
            two.record_exchange(
                ExchangeKind::Get,
                Duration::ZERO,
                None,
                Duration::ZERO,
                done(Err(BenchExchangeError::Bytes("x".into()))),
            );
        }
        one.merge_from(&two);
        assert_eq!((one.sum_kinds().latency.sample_count(), one.sum_kinds().bytes), (3, 30));
        assert_eq!(one.sum_kinds().latency.max_time().unwrap().as_millis(), 1);
        assert_eq!(
            (one.errors["timeout"], one.errors["wrong bytes"], one.wrong, one.cache["hit"]),
            (3, 3, 3, 12)
        );
        assert_eq!((one.examples.len(), one.errors_in_all()), (5, 6));
    }

    #[test]
    fn names_from_servers_do_not_grow_without_bound() {
        let mut names = BTreeMap::new();
        (0..1000).for_each(|name| count_name(&mut names, name.to_string(), 1));
        assert_eq!((names.len(), names.values().sum::<u64>()), (NAMES_MAX + 1, 1000));
    }
}

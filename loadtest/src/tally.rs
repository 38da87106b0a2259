//! What a round counted: histograms by kind of exchange, errors by kind, what the cache said.
//! Bounded, whatever the load.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::Done;
use crate::histogram::Histogram;
use crate::plan::Kind;
use crate::schedule::Late;

/// Explanations that are kept: the first ones, which are mostly the cause of the others.
const EXAMPLES_MAX: usize = 5;
/// Different texts that a header or an error kind may have before the rest is counted together.
const NAMES_MAX: usize = 32;

/// Times of one kind, in microseconds, from 1 µs.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Histogram);

impl Latencies {
    pub fn record(&mut self, time: Duration) {
        self.0.record(micros(time).max(1));
    }

    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0);
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn at(&self, percentile: f64) -> Option<Duration> {
        self.0.at(percentile).map(Duration::from_micros)
    }

    pub fn max(&self) -> Option<Duration> {
        self.0.max().map(Duration::from_micros)
    }

    /// Recorded above a bound.
    pub fn above(&self, bound: Duration) -> u64 {
        self.0.above(micros(bound))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone, Default)]
pub struct OfKind {
    pub bytes: u64,
    /// From when it should have started to the last byte.
    pub latency: Latencies,
    /// To the first byte of the body.
    pub first_byte: Latencies,
}

#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub kinds: BTreeMap<Kind, OfKind>,
    pub errors: BTreeMap<String, u64>,
    pub examples: Vec<String>,
    /// Answers that were not the object, among the errors.
    pub wrong: u64,
    /// Values of `x-verbs3-cache`.
    pub cache: BTreeMap<String, u64>,
    /// Open loop: connections that woke up after their time, and operations that found none free.
    pub woken_late: Latencies,
    pub queued: Latencies,
}

impl Tally {
    /// One exchange, begun (or due) at `intended`, all times since the round's start.
    pub fn record(
        &mut self,
        kind: Kind,
        intended: Duration,
        first_byte: Option<Duration>,
        ended: Duration,
        done: Done,
    ) {
        if let Some(cache) = done.cache {
            count(&mut self.cache, cache);
        }
        match done.outcome {
            Ok(()) => {
                let of_kind = self.kinds.entry(kind).or_default();
                of_kind.bytes += done.bytes;
                of_kind.latency.record(ended.saturating_sub(intended));
                if let Some(first) = first_byte {
                    of_kind.first_byte.record(first.saturating_sub(intended));
                }
            }
            Err(failure) => {
                self.wrong += u64::from(failure.is_wrong_answer());
                count(&mut self.errors, failure.kind());
                if self.examples.len() < EXAMPLES_MAX {
                    self.examples.push(format!("{}: {failure}", kind.as_str()));
                }
            }
        }
    }

    pub fn late(&mut self, late: Late) {
        match late {
            Late::Woken(by) => self.woken_late.record(by),
            Late::Queued(by) => self.queued.record(by),
            Late::Closed => {}
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (kind, theirs) in &other.kinds {
            let ours = self.kinds.entry(*kind).or_default();
            ours.bytes += theirs.bytes;
            ours.latency.add(&theirs.latency);
            ours.first_byte.add(&theirs.first_byte);
        }
        for (names, theirs) in [(&mut self.errors, &other.errors), (&mut self.cache, &other.cache)]
        {
            theirs
                .iter()
                .for_each(|(name, count)| *names.entry(name.clone()).or_default() += count);
        }
        self.wrong += other.wrong;
        self.examples.extend(
            other.examples.iter().take(EXAMPLES_MAX.saturating_sub(self.examples.len())).cloned(),
        );
        self.woken_late.add(&other.woken_late);
        self.queued.add(&other.queued);
    }

    /// All kinds but reading back, together.
    pub fn sum(&self) -> OfKind {
        let mut sum = OfKind::default();
        for of_kind in self
            .kinds
            .iter()
            .filter(|(kind, _)| **kind != Kind::ReadBack)
            .map(|(_, of_kind)| of_kind)
        {
            sum.bytes += of_kind.bytes;
            sum.latency.add(&of_kind.latency);
            sum.first_byte.add(&of_kind.first_byte);
        }
        sum
    }

    pub fn errors_in_all(&self) -> u64 {
        self.errors.values().sum()
    }
}

fn count(names: &mut BTreeMap<String, u64>, name: String) {
    let full = names.len() >= NAMES_MAX && !names.contains_key(&name);
    *names.entry(if full { "others".into() } else { name }).or_default() += 1;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use super::*;
    use crate::failure::Failure;

    fn done(outcome: Result<(), Failure>) -> Done {
        Done {
            bytes: 10,
            first_byte: None,
            ended: Instant::now(),
            cache: Some("hit".into()),
            outcome,
        }
    }

    #[test]
    fn percentiles_are_within_a_thousandth_of_the_truth() {
        let mut latencies = Latencies::default();
        (1..=100_000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        for (percentile, wanted) in
            [(50.0, 50_000.0), (90.0, 90_000.0), (99.0, 99_000.0), (99.9, 99_900.0)]
        {
            let got = latencies.at(percentile).unwrap().as_micros() as f64;
            assert!((got / wanted - 1.0).abs() < 0.001, "{percentile}: {got}");
        }
        assert_eq!((latencies.count(), Latencies::default().at(50.0)), (100_000, None));
        let above = latencies.above(Duration::from_millis(90));
        assert!((9_900..=10_100).contains(&above), "{above}");
        latencies.record(Duration::from_secs(100_000));
        assert!(
            latencies.max().unwrap() >= Duration::from_secs(3595),
            "too long is kept as the longest"
        );
    }

    #[test]
    fn latency_counts_from_when_it_should_have_begun() {
        let mut tally = Tally::default();
        let ms = Duration::from_millis;
        tally.record(Kind::Get, ms(100), Some(ms(350)), ms(400), done(Ok(())));
        assert_eq!(tally.kinds[&Kind::Get].latency.max().unwrap().as_millis(), 300);
        assert_eq!(tally.kinds[&Kind::Get].first_byte.max().unwrap().as_millis(), 250);
    }

    #[test]
    fn tallies_add_up_and_reading_back_stays_out_of_the_sum() {
        let mut one = Tally::default();
        let mut two = Tally::default();
        for _ in 0..3 {
            one.record(Kind::Put, Duration::ZERO, None, Duration::from_millis(1), done(Ok(())));
            two.record(
                Kind::ReadBack,
                Duration::ZERO,
                None,
                Duration::from_millis(9),
                done(Ok(())),
            );
            two.record(
                Kind::Put,
                Duration::ZERO,
                None,
                Duration::from_millis(2),
                done(Err(Failure::Timeout)),
            );
            two.record(
                Kind::Get,
                Duration::ZERO,
                None,
                Duration::ZERO,
                done(Err(Failure::Bytes("x".into()))),
            );
        }
        one.add(&two);
        assert_eq!((one.sum().latency.count(), one.sum().bytes), (3, 30));
        assert_eq!(one.sum().latency.max().unwrap().as_millis(), 1);
        assert_eq!(
            (one.errors["timeout"], one.errors["wrong bytes"], one.wrong, one.cache["hit"]),
            (3, 3, 3, 12)
        );
        assert_eq!((one.examples.len(), one.errors_in_all()), (5, 6));
    }

    #[test]
    fn names_from_servers_do_not_grow_without_bound() {
        let mut names = BTreeMap::new();
        (0..1000).for_each(|name| count(&mut names, name.to_string()));
        assert_eq!((names.len(), names.values().sum::<u64>()), (NAMES_MAX + 1, 1000));
    }
}

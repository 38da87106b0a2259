//! Computes medians, paired ratios and their confidence intervals over rounds. Pure.

use serde::Serialize;

use crate::random::SplitMixRandom;

/// Resamples of a bootstrap: a 95 % interval then ends at the 250th on each side.
const RESAMPLES: usize = 10_000;

/// Returns the median; for an even number of figures, the mean of the two in the middle.
pub fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        even if even % 2 == 0 => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        _ => Some(sorted[middle]),
    }
}

/// Ratio target ÷ reference over the rounds of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RatioEstimate {
    /// Geometric mean of the rounds' ratios, so that the mean of the reciprocals is its reciprocal.
    pub mean: f64,
    /// 95 % percentile bootstrap over rounds. For a single round it equals the mean, which says
    /// nothing.
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
}

/// Estimates the ratio of paired rounds: what slowed the machine in one round slowed both sides.
/// Leaves out rounds without a figure above 0 on both sides.
pub fn estimate_ratio(target: &[f64], reference: &[f64], seed: u64) -> Option<RatioEstimate> {
    let usable = |figure: &f64| figure.is_finite() && *figure > 0.0;
    let pairs =
        target.iter().zip(reference).filter(|(ours, theirs)| usable(ours) && usable(theirs));
    let logs: Vec<f64> = pairs.map(|(ours, theirs)| (ours / theirs).ln()).collect();
    if logs.is_empty() {
        return None;
    }
    let (low, high) = bootstrap_interval(&logs, seed);
    Some(RatioEstimate {
        mean: mean(&logs).exp(),
        low: low.exp(),
        high: high.exp(),
        rounds: logs.len(),
    })
}

fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

/// Returns the 2.5th and 97.5th percentile of the resamples' means.
fn bootstrap_interval(figures: &[f64], seed: u64) -> (f64, f64) {
    let mut random = SplitMixRandom::new(seed);
    let count = figures.len();
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            (0..count).map(|_| figures[random.next_below(count as u64) as usize]).sum::<f64>()
                / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_are_paired_by_round() {
        // Both sides slow down tenfold together: unpaired, this would be noise; paired, it is
        // exact.
        let reference = [100.0, 10.0, 55.0, 100.0];
        let target = reference.map(|figure| figure * 0.8);
        let ratio = estimate_ratio(&target, &reference, 1).unwrap();
        assert!(
            (ratio.mean - 0.8).abs() < 1e-12
                && (ratio.low - 0.8).abs() < 1e-12
                && (ratio.high - 0.8).abs() < 1e-12
        );
        assert_eq!(ratio.rounds, 4);
    }

    #[test]
    fn a_ratio_and_its_reciprocal_agree() {
        let (a, b) = ([1.0, 2.0, 5.0, 3.0, 2.0], [2.0, 2.5, 4.0, 6.0, 1.5]);
        let (forth, back) =
            (estimate_ratio(&a, &b, 1).unwrap(), estimate_ratio(&b, &a, 1).unwrap());
        assert!((forth.mean * back.mean - 1.0).abs() < 1e-12);
        assert!(
            (forth.low * back.high - 1.0).abs() < 0.01
                && forth.low < forth.mean
                && forth.mean < forth.high
        );
    }

    #[test]
    fn rounds_without_figures_are_left_out() {
        let found = estimate_ratio(&[1.0, 0.0, f64::NAN, 4.0], &[1.0, 1.0, 1.0, 0.0], 1).unwrap();
        assert_eq!((found.mean, found.low, found.high, found.rounds), (1.0, 1.0, 1.0, 1));
        assert_eq!(estimate_ratio(&[], &[], 1), None);
        assert_eq!(estimate_ratio(&[0.0], &[1.0], 1), None);
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        // 400 experiments of 12 rounds whose true ratio is 1: a 95 % bootstrap of 12 covers
        // somewhat less than 95 %.
        let mut random = SplitMixRandom::new(11);
        let covered = (0..400)
            .filter(|experiment| {
                let mut noise = || (1..=12).map(|_| random.next_unit()).sum::<f64>() / 12.0 + 0.5;
                let target: Vec<f64> = (0..12).map(|_| noise()).collect();
                let reference: Vec<f64> = (0..12).map(|_| noise()).collect();
                let ratio = estimate_ratio(&target, &reference, *experiment).unwrap();
                ratio.low <= 1.0 && 1.0 <= ratio.high
            })
            .count();
        assert!((340..=395).contains(&covered), "{covered} of 400");
    }
}

//! Draws Zipf-distributed ranks without a table: rejection-inversion (Hörmann and Derflinger,
//! 1996).
//!
//! Owns only the draw. O(1) memory for any number of objects, one to two draws a rank.

use crate::random::SplitMixRandom;

/// Ranks 0..count, the first one the likeliest: P(rank) ∝ (rank + 1)^-exponent.
#[derive(Debug, Clone)]
pub struct ZipfDistribution {
    count: f64,
    exponent: f64,
    /// The integral's value below rank 1's part, its value above the last rank's part, and the
    /// width within which no rejection is needed.
    low: f64,
    high: f64,
    sure: f64,
}

impl ZipfDistribution {
    /// Creates a distribution. `count` is at least 1, `exponent` above 0.
    pub fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self { count: count as f64, exponent, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral_at(1.5) - 1.0;
        zipf.high = zipf.integral_at(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse_integral(zipf.integral_at(2.5) - 2f64.powf(-exponent));
        zipf
    }

    /// Draws a rank from `0..count`.
    pub fn draw_rank(&self, random: &mut SplitMixRandom) -> u64 {
        loop {
            let at = self.high + random.next_unit() * (self.low - self.high);
            let x = self.inverse_integral(at);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.sure
                || at >= self.integral_at(rank + 0.5) - rank.powf(-self.exponent)
            {
                return rank as u64 - 1;
            }
        }
    }

    /// Returns ∫ x^-exponent, in a form that loses no digits for exponents near 1.
    fn integral_at(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over(log * (1.0 - self.exponent)) * log
    }

    fn inverse_integral(&self, value: f64) -> f64 {
        let t = (value * (1.0 - self.exponent)).max(-1.0);
        (ln1p_over(t) * value).exp()
    }
}

/// Returns (e^x − 1) ÷ x.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// Returns ln(1 + x) ÷ x.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for (count, exponent) in [(1000u64, 1.0), (1000, 0.8), (50, 1.3), (1, 1.0), (2, 2.0)] {
            let (zipf, mut random) =
                (ZipfDistribution::new(count, exponent), SplitMixRandom::new(5));
            let draws = 200_000;
            let mut seen = vec![0u64; count as usize];
            for _ in 0..draws {
                seen[zipf.draw_rank(&mut random) as usize] += 1;
            }
            let weights: f64 = (1..=count).map(|rank| (rank as f64).powf(-exponent)).sum();
            for rank in [1, 2, 5, 20].into_iter().filter(|&rank| rank <= count) {
                let wanted = draws as f64 * (rank as f64).powf(-exponent) / weights;
                let got = seen[rank as usize - 1] as f64;
                // Five standard deviations of a binomial draw.
                assert!(
                    (got - wanted).abs() < 5.0 * wanted.sqrt() + 1.0,
                    "{count} {exponent} {rank}: {got} {wanted}"
                );
            }
        }
    }
}

//! Orders 0..count randomly without memory: a Feistel network over the next power of four, walked
//! until the result is inside.
//!
//! Owns only the bijection. It shuffles an epoch of any number of objects in O(1) memory.

use crate::random::hash;

/// Rounds of the network. They suffice for orders that look random; four make a pseudorandom
/// permutation (Luby and Rackoff).
const ROUNDS: u64 = 4;

/// A pseudorandom order of `0..count`. Takes 24 bytes, whatever the count.
#[derive(Debug, Clone, Copy)]
pub struct FeistelPermutation {
    seed: u64,
    count: u64,
    /// Bits of each half.
    half: u32,
}

impl FeistelPermutation {
    /// Creates an order. `count` is at least 1.
    pub fn new(seed: u64, count: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { seed, count, half: bits.div_ceil(2).max(1) }
    }

    /// Returns the place of `index`, which is below `count`. Takes fewer than four steps on
    /// average.
    pub fn permute_index(&self, index: u64) -> u64 {
        let mut at = index;
        loop {
            at = self.feistel_step(at);
            if at < self.count {
                return at;
            }
        }
    }

    fn feistel_step(&self, word: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (word >> self.half, word & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (hash(&[self.seed, round, right]) & mask));
        }
        (left << self.half) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_taken_once_and_orders_differ_by_seed() {
        for count in [1, 2, 3, 4, 5, 16, 17, 1000, 4097] {
            for seed in [0, 1] {
                let permutation = FeistelPermutation::new(seed, count);
                let mut seen = vec![false; count as usize];
                for index in 0..count {
                    let at = permutation.permute_index(index) as usize;
                    assert!(!seen[at], "{count}: {at} twice");
                    seen[at] = true;
                }
            }
        }
        let order = |seed| {
            (0..1000)
                .map(|index| FeistelPermutation::new(seed, 1000).permute_index(index))
                .collect::<Vec<_>>()
        };
        assert_ne!(order(1), order(2));
        let fixed = order(1).iter().enumerate().filter(|(index, at)| *index as u64 == **at).count();
        assert!(fixed < 10, "{fixed} stayed where they were");
    }
}

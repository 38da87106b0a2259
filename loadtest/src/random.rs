//! Reproducible randomness: equal seeds give equal load in every version of this tool, whatever
//! `rand` does.
//!
//! Owns SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
//! Not for secrets.

/// The increment of SplitMix64: 2^64 divided by the golden ratio, odd.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a word with SplitMix64's finaliser: every bit of the input changes half of the output's
/// bits.
pub fn mix_word(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Hashes a list of words to one word.
pub fn hash(words: &[u64]) -> u64 {
    words.iter().fold(GOLDEN, |state, word| {
        mix_word(state.wrapping_add(GOLDEN) ^ mix_word(word.wrapping_add(GOLDEN)))
    })
}

/// SplitMix64, a generator with 64 bits of state.
#[derive(Debug, Clone)]
pub struct SplitMixRandom(u64);

impl SplitMixRandom {
    /// Creates a generator. Equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix_word(self.0)
    }

    /// Returns a number uniform in 0..1, with 53 bits.
    pub fn next_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number uniform below `bound`; 0 for 0. Biased by less than bound ÷ 2^64.
    pub fn next_below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an exponential number with mean 1: the gap between arrivals of a Poisson process of
    /// rate 1.
    pub fn next_exponential(&mut self) -> f64 {
        -(1.0 - self.next_unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_are_those_of_the_publication() {
        // Reference values of SplitMix64 seeded with 1234567 (Vigna's splitmix64.c).
        let mut random = SplitMixRandom::new(1_234_567);
        let words = [random.next(), random.next(), random.next()];
        assert_eq!(
            words,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn draws_have_the_means_they_promise() {
        let mut random = SplitMixRandom::new(7);
        let count = 100_000;
        let mean = |draws: Vec<f64>| draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean((0..count).map(|_| random.next_unit()).collect()) - 0.5).abs() < 0.01);
        assert!((mean((0..count).map(|_| random.next_exponential()).collect()) - 1.0).abs() < 0.02);
        assert!(
            (mean((0..count).map(|_| random.next_below(10) as f64).collect()) - 4.5).abs() < 0.05
        );
        assert_eq!(random.next_below(0), 0);
    }
}

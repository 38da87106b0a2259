//! Seeds of randomised tests: printed, and taken from `SEED` when set, so that a failure can be run
//! again.

use rand::SeedableRng;
use rand::rngs::SmallRng;

/// The seed of this run: `SEED` if set, else a random one. Printed either way.
pub fn from_environment() -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(text) => text.parse().expect("SEED is a decimal number"),
        Err(_) => rand::random(),
    };
    println!("SEED={seed}");
    seed
}

/// How many rounds a randomised test runs: `ROUNDS` if set, else `default`.
pub fn rounds(default: usize) -> usize {
    std::env::var("ROUNDS")
        .map_or(default, |text| text.parse().expect("ROUNDS is a decimal number"))
}

/// A generator for one part of a run, so that parts don't disturb each other's sequence.
pub fn rng(seed: u64, part: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

//! Owns how a unit test counts the instructions of one step of the hot path. `tests/instructions/`
//! runs such tests under an emulated CPU, and knows what to expect. Elsewhere, they run the step
//! once and check its result as other tests do.
//!
//! Such a test is called `instruction_counts_of_…`.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Names the file in which the emulator counts: eight bytes, little-endian.
const COUNT_FILE: &str = "VERBS3_INSTRUCTION_COUNT";

/// Runs that fill caches and tables before the counted ones.
const WARM_UPS: u64 = 50;

const COUNTED_RUNS: u64 = 500;

/// Runs `step`. Under the emulator, runs it many times, and prints `instructions NAME COUNT` with
/// the mean of one run. A name is of lower-case words and hyphens.
///
/// # Panics
///
/// Where the emulator's file can't be read.
pub fn count_instructions(name: &str, mut step: impl FnMut()) {
    let Some(path) = std::env::var_os(COUNT_FILE) else { return step() };
    let file = File::open(path).expect("the emulator's file is there");
    let executed = || {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).expect("the emulator's file has a count");
        u64::from_le_bytes(bytes)
    };
    (0..WARM_UPS).for_each(|_| step());
    let begun = executed();
    (0..COUNTED_RUNS).for_each(|_| step());
    println!("instructions {name} {}", (executed() - begun) / COUNTED_RUNS);
}

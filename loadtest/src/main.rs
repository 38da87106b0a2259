//! Measures S3 endpoints against references, interleaved, in ratios and in server CPU per request.
//!
//! `hot`: GETs of cached objects, SigV4 on, against nginx sending the same bytes from tmpfs.
//! `memory`: many readers of large objects and many writers at once, while resident memory is sampled.
#![forbid(unsafe_code)]

mod connection;
mod cpu;
mod hot;
mod memory;
mod reference;
mod sign;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "verbs3-loadtest", version, about)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// Hot GETs against nginx: `verbs3-loadtest hot --endpoint 127.0.0.1:9000 --pids 123 --access-key A --secret-key S`
    Hot(hot::Options),
    /// Resident memory under many large reads and writes, against the bound that the configuration promises.
    Memory(memory::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().scenario {
        Scenario::Hot(options) => hot::run(&options),
        Scenario::Memory(options) => memory::run(&options),
    }
}

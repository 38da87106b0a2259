//! `verbs3 bench`: figures of the network alone, and of the whole as clients see it.

mod arguments;
pub mod fabric;
mod figures;
mod plot;
mod record;
pub mod s3;
mod s3_agents;
mod s3_arguments;

use clap::Subcommand;

pub use record::{FabricRecord, median_micros, mib_per_second};

/// The subcommands of `verbs3 bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Latency and bandwidth between two hosts, over each transport that works
    Fabric(Box<arguments::FabricArguments>),
    /// What clients of an S3 endpoint get, by scenario, alone or held against another endpoint
    S3(Box<s3_arguments::S3Arguments>),
}

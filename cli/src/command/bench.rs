//! `verbs3 bench`: figures of parts, without the whole.

mod arguments;
pub mod fabric;
mod figures;
mod plot;
mod record;
mod sizes;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Latency and bandwidth between two hosts, over each transport that works
    Fabric(arguments::FabricArguments),
}

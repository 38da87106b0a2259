//! The one binary. Owns the choice of what to run. Composes, and does none of the work itself.
//!
//! The allocator is the system's: mimalloc 0.1.52 held 90 to 110 MiB more after the demonstration,
//! and was not faster.
#![forbid(unsafe_code)]

mod arguments;
mod command;
mod demo;
mod dev;
mod logging;
mod process;
mod reactors;
mod wiring;

use std::process::ExitCode;

use arguments::{Arguments, Command, ConfigCommand, WorkerArguments};
use clap::Parser;
use command::bench::BenchCommand;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Dev(arguments) => {
            process::run(&arguments.layers(), verbs3_config::Role::Dev, |config, started| {
                dev::run(config, arguments.demo_only, started)
            })
        }
        Command::Gateway(arguments) => {
            process::run(&arguments.layers(), verbs3_config::Role::Gateway, wiring::gateway::run)
        }
        Command::Worker(WorkerArguments { action: Some(action), .. }) => {
            command::membership::run(&action)
        }
        Command::Worker(arguments) => {
            process::run(&arguments.layers(), verbs3_config::Role::Worker, wiring::worker::run)
        }
        Command::Coordinator(arguments) => process::run(
            &arguments.layers(),
            verbs3_config::Role::Coordinator,
            wiring::coordinator::run,
        ),
        Command::Config(ConfigCommand::Check(arguments)) => command::config::check(&arguments),
        Command::Config(ConfigCommand::Show(arguments)) => command::config::show(&arguments),
        Command::Status(arguments) => command::status::run(&arguments),
        Command::Doctor(arguments) => command::doctor::run(&arguments),
        Command::Bench(BenchCommand::Fabric(arguments)) => command::bench::fabric::run(&arguments),
        Command::Bench(BenchCommand::S3(arguments)) => command::bench::s3::run(&arguments),
        Command::Cache(arguments) => command::cache::run(&arguments),
        Command::Preload(arguments) => command::preload::run(&arguments),
        Command::Version => command::version::run(),
    }
}

//! The one binary. Owns the process: arguments, the allocator, the runtime, and the exit status. Composes, and does none of
//! the work itself.
#![forbid(unsafe_code)]

mod admin;
mod arguments;
mod command;
mod demo;
mod dev;
mod logging;
mod process;
mod wiring;

use std::process::ExitCode;

use arguments::{Arguments, Command, ConfigCommand};
use clap::Parser;

/// Many threads free what others allocated (bodies, messages): the system's allocator keeps such memory in arenas of its own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Dev(arguments) => process::run(&arguments.layers(), verbs3_config::Role::Dev, |config, started| {
            dev::run(config, arguments.demo_only, started)
        }),
        Command::Gateway(arguments) => {
            process::run(&arguments.layers(), verbs3_config::Role::Gateway, wiring::gateway::run)
        }
        Command::Worker(arguments) => {
            process::run(&arguments.layers(), verbs3_config::Role::Worker, wiring::worker::run)
        }
        Command::Config(ConfigCommand::Check(arguments)) => command::config::check(&arguments),
        Command::Config(ConfigCommand::Show(arguments)) => command::config::show(&arguments),
        Command::Doctor => command::doctor::run(),
        Command::Version => command::version::run(),
    }
}

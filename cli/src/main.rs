//! The one binary. Owns the choice of what to run. Composes, and does none of the work itself.
//!
//! The allocator is jemalloc: what a worker keeps of small objects lies between what fills take and
//! give back, and glibc's keeps two to three times as much in between (docs/decisions/memory.md).
#![forbid(unsafe_code)]

mod arguments;
mod bounded_process;
mod command;
mod demo;
mod dev;
mod host_port;
mod logging;
mod process;
mod reactor_threads;
mod signed_request;
mod ssh;
mod wiring;

use std::process::ExitCode;

use arguments::config::ConfigCommand;
use arguments::{CommandLine, TopLevelCommand, WorkerArguments};
use clap::Parser;
use command::bench::BenchCommand;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match CommandLine::parse().command {
        TopLevelCommand::Dev(arguments) => process::run_process(
            &arguments.launch_options(),
            verbs3_config::ProcessRole::Dev,
            |config, started| dev::run_dev(config, arguments.demo_only, started),
        ),
        TopLevelCommand::Gateway(arguments) => process::run_process(
            &arguments.launch_options(),
            verbs3_config::ProcessRole::Gateway,
            wiring::gateway::run_gateway,
        ),
        TopLevelCommand::Worker(WorkerArguments { action: Some(action), .. }) => {
            command::membership::run_worker_action(&action)
        }
        TopLevelCommand::Worker(arguments) => process::run_process(
            &arguments.launch_options(),
            verbs3_config::ProcessRole::Worker,
            wiring::worker::run_worker,
        ),
        TopLevelCommand::Coordinator(arguments) => process::run_process(
            &arguments.launch_options(),
            verbs3_config::ProcessRole::Coordinator,
            wiring::coordinator::run_coordinator,
        ),
        TopLevelCommand::Webhook(arguments) => process::run_process(
            &arguments.launch_options(),
            verbs3_config::ProcessRole::Webhook,
            wiring::webhook::run_webhook,
        ),
        TopLevelCommand::Controller(arguments) => process::run_process(
            &arguments.launch_options(),
            verbs3_config::ProcessRole::Controller,
            wiring::controller::run_controller,
        ),
        TopLevelCommand::Config(ConfigCommand::Check(arguments)) => {
            command::config::check_config(&arguments)
        }
        TopLevelCommand::Config(ConfigCommand::Show(arguments)) => {
            command::config::show_config(&arguments)
        }
        TopLevelCommand::Probe(arguments) => command::probe::run_probe(&arguments),
        TopLevelCommand::Status(arguments) => command::status::run_status(&arguments),
        TopLevelCommand::ConsoleUser(arguments) => {
            command::console_user::print_user_entry(&arguments)
        }
        TopLevelCommand::Plan(arguments) => command::plan::run_plan(&arguments),
        TopLevelCommand::Doctor(arguments) => command::doctor::run_doctor(&arguments),
        TopLevelCommand::Bench(BenchCommand::Fabric(arguments)) => {
            command::bench::fabric::run_fabric_bench(&arguments)
        }
        TopLevelCommand::Bench(BenchCommand::S3(arguments)) => {
            command::bench::s3::run_s3_bench(&arguments)
        }
        TopLevelCommand::Cache(arguments) => command::cache::run_cache_command(&arguments),
        TopLevelCommand::Preload(arguments) => command::preload::run_preload(&arguments),
        TopLevelCommand::Version => command::version::print_version(),
    }
}

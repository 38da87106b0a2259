//! `verbs3 config`: checks and shows configuration files.

use std::process::ExitCode;

use verbs3_config::load;

use crate::arguments::ConfigArguments;
use crate::process::MISCONFIGURED;

/// Prints all problems; 2 if one of them keeps a process from starting.
pub fn check(arguments: &ConfigArguments) -> ExitCode {
    match load(&arguments.layers(), &arguments.roles()) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                println!("{warning}");
            }
            println!("{} is fine", arguments.file.display());
            ExitCode::SUCCESS
        }
        Err(problems) => {
            println!("{problems}");
            ExitCode::from(MISCONFIGURED)
        }
    }
}

/// Prints the effective configuration.
pub fn show(arguments: &ConfigArguments) -> ExitCode {
    match load(&arguments.layers(), &arguments.roles()) {
        Ok(loaded) => {
            print!("{}", loaded.show());
            ExitCode::SUCCESS
        }
        Err(problems) => {
            eprintln!("{problems}");
            ExitCode::from(MISCONFIGURED)
        }
    }
}

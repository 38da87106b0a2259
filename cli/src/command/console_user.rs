//! `verbs3 console-user`: makes an entry of the users file of the coordinators' console.

use std::io::BufRead;
use std::process::ExitCode;

use verbs3_coordinator::{ConsoleRole, make_user_entry};

use crate::arguments::ConsoleUserArguments;
use crate::process::MISCONFIGURED;

/// Reads a password from standard input and prints the entry. Status 2: it can't be used.
pub fn print_user_entry(arguments: &ConsoleUserArguments) -> ExitCode {
    let mut password = String::new();
    if let Err(error) = std::io::stdin().lock().read_line(&mut password) {
        eprintln!("the password can't be read from standard input: {error}");
        return ExitCode::from(MISCONFIGURED);
    }
    let role = match arguments.role.as_str() {
        "operator" => ConsoleRole::Operator,
        _ => ConsoleRole::Viewer,
    };
    match make_user_entry(&arguments.name, role, password.trim_end_matches(['\r', '\n'])) {
        Ok(entry) => {
            println!("{entry}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(MISCONFIGURED)
        }
    }
}

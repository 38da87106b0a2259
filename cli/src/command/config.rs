//! `verbs3 config`: checks and shows configuration files.

use std::fs::File;
use std::process::ExitCode;

use verbs3_config::{ProcessRole, RootSettings, load_config, roles_in};
use verbs3_gateway::auth::{IdentitiesError, IdentityStore};

use crate::arguments::config::ConfigArguments;
use crate::process::MISCONFIGURED;

/// Prints all problems, and for whom they were looked for; 2 if one of them keeps a process from
/// starting.
pub fn check_config(arguments: &ConfigArguments) -> ExitCode {
    let file = arguments.file.display();
    let named = arguments.process_roles();
    let roles = match if named.is_empty() { roles_in(&arguments.file) } else { Ok(named) } {
        Ok(roles) => roles,
        Err(problems) => {
            println!("{problems}");
            return ExitCode::from(MISCONFIGURED);
        }
    };
    match load_config(&arguments.config_layers(), &roles) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                println!("{warning}");
            }
            if let Err(error) = check_identities(&loaded.config, &roles) {
                println!("gateway.identities: {error}");
                return ExitCode::from(MISCONFIGURED);
            }
            match roles.is_empty() {
                true => {
                    println!(
                        "{file} is fine, and for nobody: it has no role's section; --role says who \
                        starts from it"
                    )
                }
                false => println!("{file} is fine for {}", join_role_names(&roles)),
            }
            ExitCode::SUCCESS
        }
        Err(problems) => {
            println!("{problems}");
            if !roles.is_empty() {
                println!("{file} was checked for {}; --role names others", join_role_names(&roles));
            }
            ExitCode::from(MISCONFIGURED)
        }
    }
}

/// Reads the identities file of a gateway as its start would, where this user may: a configuration
/// may be checked on another host, and by others than the gateway's user.
fn check_identities(config: &RootSettings, roles: &[ProcessRole]) -> Result<(), IdentitiesError> {
    let named = config.gateway.identities.as_deref();
    let Some(path) = named.filter(|_| roles.contains(&ProcessRole::Gateway)) else {
        return Ok(());
    };
    match File::open(path) {
        Ok(_) => IdentityStore::load_file(path).map(drop),
        Err(error) => {
            println!("gateway.identities is not checked: {}: {error}", path.display());
            Ok(())
        }
    }
}

/// `gateway, worker and coordinator`
fn join_role_names(roles: &[ProcessRole]) -> String {
    let names: Vec<String> = roles.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Prints the effective configuration, complete or not.
pub fn show_config(arguments: &ConfigArguments) -> ExitCode {
    match load_config(&arguments.config_layers(), &arguments.process_roles()) {
        Ok(loaded) => {
            print!("{}", loaded.show_settings());
            ExitCode::SUCCESS
        }
        Err(problems) => {
            eprintln!("{problems}");
            ExitCode::from(MISCONFIGURED)
        }
    }
}

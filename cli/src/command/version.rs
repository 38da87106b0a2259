//! `verbs3 version`.

use std::process::ExitCode;

use verbs3_rdma::calls::PROTOCOL_VERSION;

/// Prints the version of the binary and of its protocol.
pub fn print_version() -> ExitCode {
    println!("verbs3 {} (protocol {PROTOCOL_VERSION})", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}

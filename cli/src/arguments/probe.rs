//! Arguments of `verbs3 probe`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `verbs3 probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  verbs3 probe ready --socket /run/verbs3-probe/probe.sock    (gateway.probe_socket)

Exit status: 0 it is so, 1 it is not, or nobody answers.")]
pub struct ProbeArguments {
    /// What to ask
    pub question: ProbeQuestion,
    /// Socket file of the process
    #[arg(long, value_name = "FILE")]
    pub socket: PathBuf,
}

/// What a process can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProbeQuestion {
    /// Whether it lives
    Alive,
    /// Whether it serves, and if not, why
    Ready,
}

impl ProbeQuestion {
    /// Returns the path of the admin endpoint that answers.
    pub fn path(self) -> &'static str {
        match self {
            Self::Alive => "/healthz",
            Self::Ready => "/readyz",
        }
    }
}

//! What a process is.

use std::fmt::{self, Display};

/// What a process is; decides which sections must be complete, and which files must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessRole {
    Gateway,
    Worker,
    Coordinator,
    Dev,
    Webhook,
    Controller,
}

impl Display for ProcessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gateway => "gateway",
            Self::Worker => "worker",
            Self::Coordinator => "coordinator",
            Self::Dev => "dev",
            Self::Webhook => "webhook",
            Self::Controller => "controller",
        })
    }
}

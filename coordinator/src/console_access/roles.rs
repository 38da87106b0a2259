//! What users of the console may do.

use serde::{Deserialize, Serialize};

/// Role of a user of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsoleRole {
    /// May see everything, and change nothing.
    Viewer,
    /// May also begin and end jobs.
    Operator,
}

impl ConsoleRole {
    pub(crate) fn role_text(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }
}

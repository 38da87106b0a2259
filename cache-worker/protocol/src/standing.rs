//! Asks a worker by which map it answers.

use serde::{Deserialize, Serialize};

use crate::ids::Epoch;

/// Asks under which epoch a worker answers, and whether it holds a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingQuestion;

/// Reply to [`StandingQuestion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingReply {
    /// 0: none, the worker is between two maps.
    pub epoch: Epoch,
    pub leased: bool,
}

//! Defines the messages that grant and recall leases on attributes.
//!
//! A gateway polls a home of which it holds leases, or would like to. The home grants leases only
//! to pollers, because a recall needs a way to them. The next poll confirms that the gateway has
//! dropped what the last answer recalled.

use serde::{Deserialize, Serialize};

use crate::ids::{HolderId, KeyHash};

/// Longest lease, in milliseconds. It is a constant, not a setting: a restarted worker waits this
/// long, because it does not know what the process before it has granted. Longer leases would save
/// little: a key with a hundred reads a second is asked for once in two hundred reads.
pub const LEASE_MS_MAX: u32 = 2000;

/// Most keys that one answer recalls: some 10 KiB. The rest comes with the next answer, or as
/// `all`.
pub const RECALLED_KEYS_MAX: usize = 1000;

/// Longest wait of a poll for a recall, in milliseconds. Then it is answered without any, and
/// repeated.
pub const RECALLS_WAIT_MS: u64 = 1000;

/// Client that would hold a lease on the attributes that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    pub id: HolderId,
    /// Reads of this key that the holder answered under its last lease and has not reported to the
    /// home yet.
    pub answered: u32,
}

/// Waits for recalls of this holder's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallPollMessage {
    pub holder: HolderId,
    /// Life of the home's process in the last answer; 0: there was none. Recalls of another process
    /// do not count here.
    pub life: u64,
    /// The last answer's `through`: everything up to it is dropped. No answer to an earlier
    /// question will be used.
    pub through: u64,
}

/// Reply to [`RecallPollMessage`]. It is repeated until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallReply {
    /// Life of the home's process.
    pub life: u64,
    pub through: u64,
    pub keys: Vec<KeyHash>,
    /// Recalls every lease of this home, whatever the key.
    pub all: bool,
}

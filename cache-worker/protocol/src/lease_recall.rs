//! Leases on attributes: what a gateway that holds some says, and hears when they are recalled.
//!
//! A gateway polls a home of which it holds leases, or would like to. The home grants to nobody
//! else: a recall has to find its way. Polling again says that what the last answer recalled is
//! dropped.

use serde::{Deserialize, Serialize};

use crate::ids::{HolderId, KeyHash};

/// Longest lease, in milliseconds. A constant and no setting: a worker that was started again waits
/// for as long, because it does not know what the process before it has granted. Longer ones would
/// spare little: a key that is read a hundred times a second is asked for once in two hundred
/// reads.
pub const LEASE_MS_MAX: u32 = 2000;

/// Keys that one answer recalls: some 10 KiB. What is left comes with the next, or as "all of
/// yours".
pub const RECALLED_KEYS_MAX: usize = 1000;

/// Longest wait of a poll for a recall, in milliseconds; then it is answered without any, and comes
/// again.
pub const RECALLS_WAIT_MS: u64 = 1000;

/// Who would hold a lease on the attributes that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    pub id: HolderId,
    /// Reads of this key that it has answered by its last lease, of which the home has not heard.
    pub answered: u32,
}

/// Waits for leases of this holder to be recalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallPollMessage {
    pub holder: HolderId,
    /// Of the last answer; 0: there was none. What another process of the home recalled does not
    /// count here.
    pub life: u64,
    /// The last answer's: all up to there is dropped, and no answer to a question of before will be
    /// used.
    pub through: u64,
}

/// To [`RecallPollMessage`]. Said again until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallReply {
    /// The home's process.
    pub life: u64,
    pub through: u64,
    pub keys: Vec<KeyHash>,
    /// Every lease of this home, whatever the key.
    pub all: bool,
}

//! Messages about hot blocks: what the leader wants to know, what workers report, and the list that
//! gateways follow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verbs3_protocol::{BlockHash, BlockIndex, ObjectKey};

/// What the leader wants to know of hot blocks; sent with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotWish {
    /// Least time between two reports.
    pub every_ms: u64,
    /// Least rate of a reported block, in bytes a second.
    pub rate_min: u64,
    /// Most blocks in a report; the hottest are chosen.
    pub blocks_max: u64,
}

/// A block and the rate at which the worker serves it; sent with a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotBlockRate {
    pub object: ObjectKey,
    pub block: BlockIndex,
    pub bytes_per_second: u64,
}

/// The leader's answer to `GET /v1/hot?seen=VERSION&wait_ms=W`: 200 with another list, or 204 if
/// none appears in that time.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct HotList {
    /// Identifies this list; versions have no order. 0: there is no list yet.
    pub version: u64,
    /// How long the list may be used while the coordinators are away.
    pub good_for_ms: u64,
    /// Blocks, and how many workers each has, its owner included; at least two.
    #[schemars(with = "Vec<[u64; 2]>")]
    pub blocks: Vec<(BlockHash, u16)>,
}

/// Hot blocks in `GET /v1/cluster`.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct HotView {
    /// Number of blocks that have several workers.
    pub blocks: u64,
    /// The hottest of them.
    pub hottest: Vec<HotBlockView>,
}

/// Hot block as `GET /v1/cluster` shows it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct HotBlockView {
    pub volume: String,
    pub key: String,
    pub block: u32,
    pub workers: u16,
    /// Summed over all its workers.
    pub bytes_per_second: u64,
}

//! Inspects blocks, drops them, and unpins them, for an operator.

use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::{BlockIndex, ContentVersion, ObjectKey};

/// Most blocks in one [`TendMessage`], so that the answer fits one message.
pub const TENDED_BLOCKS_MAX: u16 = 1024;

/// Asks a worker about blocks of one version, of which it may have some. The answer is
/// [`TendBlocksReply`]. Fills nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TendMessage {
    pub object: ObjectKey,
    pub version: ContentVersion,
    pub geometry: BlockGeometry,
    pub first_block: BlockIndex,
    /// Number of blocks, up to [`TENDED_BLOCKS_MAX`]; those past the object's end are left out.
    pub blocks: u16,
    pub act: TendAct,
}

/// Action on the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TendAct {
    /// Reports what is there.
    Look,
    /// Drops what is there, pinned or not.
    Evict,
    /// Unpins pages on disk, so that they may be evicted again.
    Unpin,
}

/// What was there, block by block. Absent blocks are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TendBlocksReply {
    pub blocks: Vec<TendedBlock>,
}

/// What a worker had of one block. Bytes include whole and cut pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TendedBlock {
    pub block: BlockIndex,
    pub memory_bytes: u32,
    pub disk_bytes: u32,
    /// Pinned part of the bytes on disk.
    pub pinned_bytes: u32,
    /// Uses of its most used page since it came or was last passed over: 0 to 3.
    pub uses: u8,
    /// Seconds since one of its pages was used last, or came.
    pub idle_s: u32,
}

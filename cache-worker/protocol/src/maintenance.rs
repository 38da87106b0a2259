//! What people and other processes want of pages that are there, and of attributes that may be
//! wrong.

use serde::{Deserialize, Serialize};

use crate::{BlockGeometry, BlockIndex, ContentVersion, ObjectKey, ObjectVolume};

/// Most blocks in one [`TendMessage`]: what is said of them fits one message.
pub const TENDED_BLOCKS_MAX: u16 = 1024;

/// Blocks of one version, at a worker that may have some of them. Answered with [`TendBlocksReply`]. Fills
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TendMessage {
    pub object: ObjectKey,
    pub version: ContentVersion,
    pub geometry: BlockGeometry,
    pub first_block: BlockIndex,
    /// Up to [`TENDED_BLOCKS_MAX`]; those past the object's end are left out.
    pub blocks: u16,
    pub act: TendAct,
}

/// What is to be done with the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TendAct {
    /// Says what is there.
    Look,
    /// Gives up what is there, pinned or not.
    Evict,
    /// Pages on disk may be given up again.
    Unpin,
}

/// What was there, block by block. Blocks of which nothing was there are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TendBlocksReply {
    pub blocks: Vec<TendedBlock>,
}

/// What a worker had of one block. Bytes are those of whole and cut pages alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TendedBlock {
    pub block: BlockIndex,
    pub memory_bytes: u32,
    pub disk_bytes: u32,
    /// Of those on disk.
    pub pinned_bytes: u32,
    /// The most uses of one of its pages since it came or was last passed over: 0 to 3.
    pub uses: u8,
    /// Seconds since one of its pages was used last, or came.
    pub idle_s: u32,
}

/// Whatever is known of objects whose names begin so is to be asked anew. Blocks stay. Answered
/// with `Done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetPrefix {
    pub volume: ObjectVolume,
    /// Empty: the whole volume.
    pub prefix: String,
}

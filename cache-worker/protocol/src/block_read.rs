//! Reads bytes of blocks: the questions of readers, and those of workers to each other while blocks
//! move.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::{BlockIndex, ContentVersion, Epoch, ObjectKey, PageIndex};

/// Asks for bytes of one block of one version. Each part of the answer is a [`BlockPiece`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMessage {
    pub object: ObjectKey,
    pub version: ContentVersion,
    pub geometry: BlockGeometry,
    pub block: BlockIndex,
    /// Bytes within the block.
    pub start: u32,
    pub end: u32,
    /// Bytes past `end` in this block that the reader will probably want next; a hint for the fill.
    pub ahead_bytes: u32,
    /// Bytes of the object that the reader goes through, of which this read is a part: what is
    /// missing of them may come by one request to the store. Empty: this read alone.
    pub request_range: Range<u64>,
    pub from: ReadSource,
}

/// Where a worker may take the bytes of a read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadSource {
    /// The worker is asked as the block's owner: it fills what it lacks.
    Owner,
    /// The block is hot, and the worker is asked beside its owner. It asks the owner for what it
    /// lacks, and fills nothing.
    Replica,
    /// From another worker: the pages of the range that this worker holds, in memory or on disk.
    /// The range begins and ends at page borders. The answer has whole pages, with gaps for absent
    /// ones, and an empty last part.
    Held,
}

/// Run of bytes of one block, which lies in the landing beside the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPiece {
    pub block: BlockIndex,
    /// Bytes within the block.
    pub start: u32,
    pub length: u32,
    /// CRC64NVME of each page's part of the run, in order. For a whole page it is the one stored at
    /// fill; for a cut page the worker computes it.
    pub checksums: Vec<u64>,
    pub verdict: CacheVerdict,
}

/// Where the bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheVerdict {
    Hit,
    /// Some pages were there.
    Partial,
    Miss,
}

/// Asks another worker whether it seems to hold a page of an object's block 0, of the version that
/// it last knew. A hint: the UFS decides which version is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldsMessage {
    pub object: ObjectKey,
    pub version_id: Option<String>,
    pub geometry: BlockGeometry,
    pub page: PageIndex,
}

/// Tells a block's owner to fetch it from its former owner now, not at the first read. Never asks
/// the UFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOver {
    pub object: ObjectKey,
    pub version: ContentVersion,
    /// Epoch of the map by which the receiver owns the block.
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    pub block: BlockIndex,
    /// Heat of the block: bytes read from it, with older reads weighted less.
    pub heat_bytes: u64,
}

/// Reply to [`HoldsMessage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldsReply {
    pub likely: bool,
}

/// Reply to [`TakeOver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOverReply {
    /// Bytes of the block that came from its former owner.
    pub bytes: u64,
}

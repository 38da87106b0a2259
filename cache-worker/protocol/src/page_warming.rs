//! Has workers load pages before anybody reads them.

use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::{BlockIndex, ContentVersion, Epoch, ObjectKey};
use crate::object_open::AbsentReply;

/// Makes pages of one block present before anybody reads them. The answer is [`WarmAnswer`], after
/// signs of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmMessage {
    pub object: ObjectKey,
    /// `None`: the UFS's present version, whose attributes come with it. Only for block 0, at its
    /// home.
    pub version: Option<ContentVersion>,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    pub block: BlockIndex,
    /// First page in the block. Pages past the block's end are left out. An empty run asks only for
    /// attributes.
    pub first_page: u16,
    pub pages: u16,
    /// See `OpenMessage`; used without a version.
    pub attributes_age_ms_max: u64,
    pub tier: WarmTier,
    /// Time up to which the pages are kept, in milliseconds since 1970; 0: no longer than others.
    pub pin_until_ms: u64,
    /// Fills nothing, and only reports what is here.
    pub look_only: bool,
    /// The object's length in a listing; used without a version. If it fits into the pages, the
    /// worker asks for the whole object.
    pub listed_bytes: Option<u64>,
}

/// Tier that warmed pages go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarmTier {
    Memory,
    Disk,
}

/// Answer to [`WarmMessage`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarmAnswer {
    Warmed(WarmPagesReply),
    /// The UFS says that the object does not exist.
    Absent(AbsentReply),
}

/// Result of warming pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmPagesReply {
    /// Version of the pages.
    pub version: ContentVersion,
    /// Bytes that were there already.
    pub held_bytes: u32,
    /// Bytes that came from the UFS meanwhile, for any reader.
    pub loaded_bytes: u32,
    /// Bytes that are not there; only with `look_only`.
    pub missing_bytes: u32,
    /// Random number drawn at the start of the worker's process. What it reported under another
    /// number may be gone.
    pub life: u64,
}

//! Has workers take pages of an object from a gateway that is writing it (populate on write).
//!
//! Staged pages have no version yet, so nobody can read them. They become a version's pages only
//! when the gateway names the version that the store has answered with.

use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::{BlockIndex, ContentVersion, Epoch, ObjectKey};

/// Most pages of one [`StageMessage`].
pub const STAGED_PAGES_MAX: usize = 16;

/// Most tokens of one [`SettleMessage`], so that it fits one message beside a key.
pub const SETTLED_TOKENS_MAX: usize = 1000;

/// Names the staged pages of one body: 128 random bits, drawn by the gateway. Whoever does not know
/// them can't settle its pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PopulateToken(pub u128);

/// A token opens what it names, so logs don't show it.
impl std::fmt::Debug for PopulateToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PopulateToken(..)")
    }
}

/// Has the owner of a block keep pages of it that no version has yet. The worker asks for their
/// bytes by `Wanted`, checks them against the checksums, and answers [`StagedPages`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageMessage {
    pub object: ObjectKey,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    pub token: PopulateToken,
    pub block: BlockIndex,
    /// First page in the block.
    pub first_page: u16,
    /// Bytes of all pages. Only the last page may be shorter than a whole one: it is then the
    /// object's last.
    pub bytes: u32,
    /// CRC64NVME of each page.
    pub checksums: Vec<u64>,
}

/// Answer to [`StageMessage`]: the pages are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedPages {
    /// Bytes of the pages that came with this question.
    pub bytes: u64,
}

/// Makes staged pages those of a version, or gives them up. Tokens that are not known, or no more,
/// are left out: a repeat does nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleMessage {
    /// The object that the pages were staged for.
    pub object: ObjectKey,
    /// 1 to [`SETTLED_TOKENS_MAX`].
    pub tokens: Vec<PopulateToken>,
    /// `None`: the pages are given up.
    pub version: Option<ContentVersion>,
}

/// Answer to [`SettleMessage`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledPages {
    /// Pages that belong to the version now.
    pub pages: u32,
}

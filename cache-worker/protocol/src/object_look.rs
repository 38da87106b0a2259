//! Asks a home in one message what it has of many objects, to check that all of them are there.

use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::{ContentVersion, Epoch, ObjectVolume};
use crate::page_warming::WarmTier;

/// Most objects in one [`ObjectLookMessage`]. The answer then fits one message, unless the ETags
/// are unusually long.
pub const LOOKED_OBJECTS_MAX: usize = 256;

/// Asks about objects of one home. The answer is [`ObjectLookReply`]. Does not ask the UFS, and
/// fills nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLookMessage {
    pub volume: ObjectVolume,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    /// Largest age of attributes; older ones count as unknown. `u64::MAX`: none is too old.
    pub attributes_age_ms_max: u64,
    pub tier: WarmTier,
    /// Up to [`LOOKED_OBJECTS_MAX`].
    pub objects: Vec<LookedFor>,
}

/// One object, and pages of its block 0; those past its end are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedFor {
    pub key: String,
    pub first_page: u16,
    pub pages: u16,
}

/// Reply to `ObjectLookMessage`: what the home has of each object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLookReply {
    /// See [`crate::WarmPagesReply`].
    pub life: u64,
    /// Answers in the order of the questions. `None`: the home does not know the attributes, or may
    /// not answer from them.
    pub objects: Vec<Option<ObjectHoldings>>,
}

/// What the home has of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectHoldings {
    pub version: ContentVersion,
    /// Held bytes of the pages that were asked about.
    pub held_bytes: u32,
    pub missing_bytes: u32,
}

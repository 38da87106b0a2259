//! What a home has of many objects, in one message: for whoever checks that all of them are there.

use serde::{Deserialize, Serialize};

use crate::{BlockGeometry, ContentVersion, Epoch, ObjectVolume, WarmTier};

/// Most objects in one [`ObjectLookMessage`]: what is said of them fits one message, unless their ETags are
/// uncommonly long.
pub const LOOKED_OBJECTS_MAX: usize = 256;

/// Objects of one home. Answered with [`ObjectLookReply`]. Asks the UFS for nothing, and fills nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLookMessage {
    pub volume: ObjectVolume,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    /// Attributes older than this are as good as none; `u64::MAX`: none is too old.
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

/// The answer to `ObjectLookMessage`: what the home has of each object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLookReply {
    /// As [`crate::Warmed`] has it.
    pub life: u64,
    /// In the order in which they were asked about. `None`: its attributes are not known here, or
    /// may not be answered from.
    pub objects: Vec<Option<ObjectHoldings>>,
}

/// What there is of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectHoldings {
    pub version: ContentVersion,
    /// Of the pages that were asked about.
    pub held_bytes: u32,
    pub missing_bytes: u32,
}

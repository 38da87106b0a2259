//! What a home has of many objects, in one message: for whoever checks that all of them are there.

use serde::{Deserialize, Serialize};

use crate::{Epoch, Geometry, Version, Volume, WarmTier};

/// Most objects in one [`Look`]: what is said of them fits one message, unless their ETags are
/// uncommonly long.
pub const LOOKED_OBJECTS_MAX: usize = 256;

/// Objects of one home. Answered with [`Looked`]. Asks the UFS for nothing, and fills nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub volume: Volume,
    pub epoch: Epoch,
    pub geometry: Geometry,
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// As [`crate::Warmed`] has it.
    pub life: u64,
    /// In the order in which they were asked about. `None`: its attributes are not known here, or
    /// may not be answered from.
    pub objects: Vec<Option<Here>>,
}

/// What there is of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    pub version: Version,
    /// Of the pages that were asked about.
    pub held_bytes: u32,
    pub missing_bytes: u32,
}

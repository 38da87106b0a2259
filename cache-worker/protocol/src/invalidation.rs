//! Tells homes that what they know of objects may be wrong. Blocks stay: they belong to versions.

use serde::{Deserialize, Serialize};

use crate::ids::{ContentVersion, ObjectKey, ObjectVolume};

/// Drops what is cached of these keys (explicit invalidation).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetMessage {
    pub volume: ObjectVolume,
    pub keys: Vec<String>,
}

/// Reports that the UFS no longer has this version. The home drops what it knows of the key if that
/// is of this version. Then the next read asks the UFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneVersion {
    pub object: ObjectKey,
    pub version: ContentVersion,
}

/// Makes a home ask anew about all objects with this prefix. Blocks stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetPrefix {
    pub volume: ObjectVolume,
    /// Empty: the whole volume.
    pub prefix: String,
}

//! The memory that a process maps for its data.

use serde::{Deserialize, Serialize};
use verbs3_settings_derive::SettingsTable;

use crate::quantity::ByteSize;

/// A `memory` table: an arena, mapped once at start.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySettings {
    /// Bytes to map.
    #[setting(default = "1GiB", range = "16MiB"..="16TiB")]
    pub capacity: ByteSize,
    /// Touch all of it at start: a lack of memory then shows at once, not under load.
    #[setting(default = false)]
    pub populate: bool,
}

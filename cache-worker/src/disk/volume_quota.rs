//! Volumes that are kept apart on a disk: the bytes and the age that each may have.

use std::time::Duration;

/// The quota and the age limit of a volume.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VolumeQuotaRule {
    pub(crate) bytes_max: Option<u64>,
    pub(crate) age_max: Option<Duration>,
}

pub(super) struct VolumeUse {
    pub(super) hash: u64,
    pub(super) rule: VolumeQuotaRule,
    /// Bytes of the volume's slots, as wide as they are.
    pub(super) slot_bytes: u64,
    /// Where the search for a page of the volume continues: segment, slot.
    pub(super) hand: (u32, u32),
}

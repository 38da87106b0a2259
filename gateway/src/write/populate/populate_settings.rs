//! Owns the settings of populate on write at a gateway.

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

/// The `[gateway.populate]` table: bounds for mounts with `populate_on_write = "on"`
/// (docs/populate.md). Workers have to take the pages: `worker.populate.staged_max`.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayPopulateSettings {
    /// Memory of pages on their way to workers, besides `gateway.memory`. Where it is used up, the
    /// rest of a body is not copied; the write goes on.
    #[setting(default = "256MiB", range = "1MiB"..="64GiB")]
    pub queue_max: ByteSize,
    /// Questions to workers under way at once, each with 1 MiB of pages.
    #[setting(default = 16, range = 1..=1024)]
    pub questions_in_flight_max: u32,
    /// How long a worker may take for one of them.
    #[setting(default = "2s", range = "10ms"..="1m")]
    pub stage_wait_max: TimePeriod,
    /// How long a client waits, after its write has succeeded, for the pages to become readable;
    /// then they are given up.
    #[setting(default = "250ms", range = "1ms"..="10s")]
    pub commit_wait_max: TimePeriod,
    /// Multipart uploads whose parts are remembered until they are completed.
    #[setting(default = 1024, range = 1..=1_000_000)]
    pub uploads_max: u32,
    /// Parts of all of them, some KiB each: their names, and each worker that has pages of them.
    #[setting(default = 100_000, range = 1..=10_000_000)]
    pub parts_max: u32,
}

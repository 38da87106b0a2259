//! The settings of hot blocks: when one worker is not enough for a block, and how many it may have.

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

/// The `[coordinator.hot]` table. A block that is read more than one worker should serve gets more
/// workers, over which gateways spread its reads; these take it from its owner, not from the UFS.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorHotSettings {
    /// Bytes of one block in a second that one worker should serve; above, the block gets another
    /// worker.
    #[setting(default = "256MiB", range = "1KiB"..="1TiB")]
    pub rate: ByteSize,
    /// Workers of one block, its owner included; `1`: its owner alone, however hot it is.
    #[setting(default = 8, range = 1..=64)]
    pub workers_max: u16,
    /// Blocks that have several workers at once; the hottest come first.
    #[setting(default = 256, range = 1..=1000)]
    pub blocks_max: u32,
    /// Blocks that a worker tells of at most.
    #[setting(default = 64, range = 1..=256)]
    pub reported_max: u32,
    /// How often workers tell of them, with the renewals of their leases.
    #[setting(default = "2s", range = "100ms"..="1m")]
    pub report_every: TimePeriod,
    /// How long a block keeps a worker that it does not need any more.
    #[setting(default = "30s", range = "0"..="1d")]
    pub cool_for: TimePeriod,
    /// How long gateways go on spreading reads while no coordinator answers them.
    #[setting(default = "1m", range = "1s"..="1d")]
    pub good_for: TimePeriod,
}

//! Hot blocks: when one worker is not enough for a block, and how many it may have.

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, TimePeriod};

/// The `[coordinator.hot]` table. A block that is read more than one worker should serve gets more
/// workers, over which gateways spread its reads; these take it from its owner, not from the UFS.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorHotSettings {
    /// Bytes of one block in a second that one worker should serve; above, the block gets another
    /// worker. Default: `"256MiB"`. Range: `"1KiB"` to `"1TiB"`.
    pub rate: ByteSize,
    /// Workers of one block, its owner included; `1`: its owner alone, however hot it is. Default:
    /// `8`. Range: `1` to `64`.
    pub workers_max: u16,
    /// Blocks that have several workers at once; the hottest come first. Default: `256`. Range: `1`
    /// to `1000`.
    pub blocks_max: u32,
    /// Blocks that a worker tells of at most. Default: `64`. Range: `1` to `256`.
    pub reported_max: u32,
    /// How often workers tell of them, with the renewals of their leases. Default: `"2s"`. Range:
    /// `"100ms"` to `"1m"`.
    pub report_every: TimePeriod,
    /// How long a block keeps a worker that it does not need any more. Default: `"30s"`. Range:
    /// `"0"` to `"1d"`.
    pub cool_for: TimePeriod,
    /// How long gateways go on spreading reads while no coordinator answers them. Default: `"1m"`.
    /// Range: `"1s"` to `"1d"`.
    pub good_for: TimePeriod,
}

impl Default for CoordinatorHotSettings {
    fn default() -> Self {
        Self {
            rate: ByteSize::from_mib(256),
            workers_max: 8,
            blocks_max: 256,
            reported_max: 64,
            report_every: TimePeriod::from_seconds(2),
            cool_for: TimePeriod::from_seconds(30),
            good_for: TimePeriod::from_seconds(60),
        }
    }
}

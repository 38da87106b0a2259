//! Reports to the coordinators which blocks this worker serves most. The coordinators decide which
//! workers serve them.

use std::time::Duration;

use verbs3_protocol::{BlockIndex, ObjectKey, SPREAD_BYTES_MIN};

use crate::worker::CacheWorker;

/// The rate at which this worker recently served a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRate {
    pub object: ObjectKey,
    pub block: BlockIndex,
    pub bytes_per_second: u64,
}

impl CacheWorker {
    /// Returns the blocks served most since the last call, which was `since` ago: the hottest
    /// first, at most `blocks_max`, and none below `rate_min`. Small first blocks are left out:
    /// they come with their object's attributes, which only the home gives.
    pub fn block_rates(&self, since: Duration, rate_min: u64, blocks_max: usize) -> Vec<BlockRate> {
        // A handful of reads within a very short time would give an absurd rate.
        let seconds = since.as_secs_f64().max(0.01);
        let fresh = self
            .pages
            .heat
            .take_fresh((rate_min as f64 * seconds) as u64, blocks_max.saturating_mul(2));
        let is_spread = |block: BlockIndex, bytes: u64| {
            block.0 > 0 || self.checks.geometry.block_len(bytes, block) >= SPREAD_BYTES_MIN
        };
        let told = fresh
            .into_iter()
            .filter(|hot| is_spread(hot.block, hot.target.version.bytes))
            .take(blocks_max);
        let rate = |bytes: u64| (bytes as f64 / seconds) as u64;
        told.map(|hot| BlockRate {
            object: hot.target.object.clone(),
            block: hot.block,
            bytes_per_second: rate(hot.bytes),
        })
        .collect()
    }
}

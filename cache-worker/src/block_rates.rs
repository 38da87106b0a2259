//! What this worker tells the coordinators of the blocks that it serves most. Who is to serve them,
//! too, is theirs to say.

use std::time::Duration;

use verbs3_protocol::{BlockIndex, ObjectKey, SPREAD_BYTES_MIN};

use crate::worker::CacheWorker;

/// How much of a block this worker has served of late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRate {
    pub object: ObjectKey,
    pub block: BlockIndex,
    pub bytes_per_second: u64,
}

impl CacheWorker {
    /// The blocks that were served most since this was asked last, which was `since` ago: the most
    /// first, `blocks_max` at most, and none of a lower rate. Small first blocks are left out: they
    /// come with their object's attributes, which only the home gives.
    pub fn block_rates(&self, since: Duration, rate_min: u64, blocks_max: usize) -> Vec<BlockRate> {
        // A moment in which a handful of reads fell would tell of rates that nobody has.
        let seconds = since.as_secs_f64().max(0.01);
        let fresh =
            self.heat.take_fresh((rate_min as f64 * seconds) as u64, blocks_max.saturating_mul(2));
        let is_spread = |block: BlockIndex, bytes: u64| {
            block.0 > 0 || self.geometry.block_len(bytes, block) >= SPREAD_BYTES_MIN
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

//! The read heat of blocks, by object name. Pages are known by hashes alone, which mean nothing to
//! other workers.
//!
//! The table is bounded: when it is full, it forgets the colder half. A block that is read often is
//! soon back. A forgotten block counts from zero, so heat is never overstated.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use verbs3_protocol::BlockIndex;

use crate::digest::DigestState;
use crate::fill::FillTarget;

/// Locks of the table. Enough that two cores rarely meet in one.
const SHARDS: usize = 16;

/// Seconds after which a read counts half. This spans several epochs of a small data set, so the
/// read order within one epoch does not matter.
const HALF_LIFE_S: u32 = 600;

struct BlockHeatEntry {
    target: Arc<FillTarget>,
    block: BlockIndex,
    heat: DecayingByteCount,
    /// Bytes read since the last report to the coordinators.
    fresh: u64,
}

/// A count of bytes read that halves with every half-life.
#[derive(Debug, Clone, Copy, Default)]
struct DecayingByteCount {
    bytes: u64,
    /// The second that `bytes` refers to.
    at_s: u32,
}

impl DecayingByteCount {
    fn bytes_at(self, now_s: u32) -> u64 {
        let halvings = now_s.saturating_sub(self.at_s) / HALF_LIFE_S;
        self.bytes.checked_shr(halvings).unwrap_or(0)
    }

    fn add_bytes(&mut self, bytes: u64, now_s: u32) {
        let halvings = now_s.saturating_sub(self.at_s) / HALF_LIFE_S;
        self.bytes = self.bytes_at(now_s).saturating_add(bytes);
        self.at_s = self.at_s.saturating_add(halvings * HALF_LIFE_S);
    }
}

type BlockHeatMap = HashMap<u128, BlockHeatEntry, DigestState>;

/// A bounded table of the blocks that were read.
pub(crate) struct BlockHeatTable {
    shards: Vec<Mutex<BlockHeatMap>>,
    blocks_per_shard_max: usize,
}

/// A block and how hot it is.
pub(crate) struct RankedHotBlock {
    pub(crate) target: Arc<FillTarget>,
    pub(crate) block: BlockIndex,
    pub(crate) bytes: u64,
}

impl BlockHeatTable {
    pub(crate) fn new(blocks_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, blocks_per_shard_max: blocks_max.div_ceil(SHARDS).max(1) }
    }

    /// Counts a read of a block.
    pub(crate) fn read(&self, target: &Arc<FillTarget>, block: BlockIndex, bytes: u32, now_s: u32) {
        self.record_bytes(target, block, bytes, u64::from(bytes), now_s);
    }

    /// Adds heat that a block gained on another worker, before it came here.
    pub(crate) fn record_inherited(
        &self,
        target: &Arc<FillTarget>,
        block: BlockIndex,
        bytes: u32,
        now_s: u32,
    ) {
        self.record_bytes(target, block, bytes, 0, now_s);
    }

    fn record_bytes(
        &self,
        target: &Arc<FillTarget>,
        block: BlockIndex,
        bytes: u32,
        fresh: u64,
        now_s: u32,
    ) {
        let key = target.digest.page_key(block, 0).0;
        // The hash map uses the low bits; the shard is chosen by the highest.
        let mut blocks = self.shards[(key >> 124) as usize % SHARDS].lock();
        if let Some(known) = blocks.get_mut(&key) {
            known.fresh = known.fresh.saturating_add(fresh);
            return known.heat.add_bytes(u64::from(bytes), now_s);
        }
        if blocks.len() >= self.blocks_per_shard_max {
            forget_colder_half(&mut blocks, now_s);
        }
        let heat = DecayingByteCount { bytes: u64::from(bytes), at_s: now_s };
        blocks.insert(key, BlockHeatEntry { target: target.clone(), block, heat, fresh });
    }

    /// Returns all blocks, the hottest first.
    pub(crate) fn hottest_blocks(&self, now_s: u32) -> Vec<RankedHotBlock> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let blocks = shard.lock();
            let hot = |known: &BlockHeatEntry| RankedHotBlock {
                target: known.target.clone(),
                block: known.block,
                bytes: known.heat.bytes_at(now_s),
            };
            all.extend(blocks.values().map(hot));
        }
        all.sort_by_key(|hot| std::cmp::Reverse(hot.bytes));
        all
    }

    /// Returns the blocks read most since the last call, the hottest first: at most `blocks_max`,
    /// and none below `bytes_min`.
    pub(crate) fn take_fresh(&self, bytes_min: u64, blocks_max: usize) -> Vec<RankedHotBlock> {
        let mut found: Vec<RankedHotBlock> = Vec::new();
        for shard in &self.shards {
            for known in shard.lock().values_mut() {
                let bytes = std::mem::take(&mut known.fresh);
                if bytes > 0 && bytes >= bytes_min {
                    found.push(RankedHotBlock {
                        target: known.target.clone(),
                        block: known.block,
                        bytes,
                    });
                }
            }
        }
        found.sort_by_key(|hot| std::cmp::Reverse(hot.bytes));
        found.truncate(blocks_max);
        found
    }
}

fn forget_colder_half(blocks: &mut BlockHeatMap, now_s: u32) {
    let mut heats: Vec<u64> = blocks.values().map(|block| block.heat.bytes_at(now_s)).collect();
    let middle = heats.len() / 2;
    let (_, &mut border, _) = heats.select_nth_unstable(middle);
    // Keeps only so many of the blocks at the threshold that the count fits.
    let mut surplus = blocks.len() - middle;
    blocks.retain(|_, block| {
        let goes = surplus > 0 && block.heat.bytes_at(now_s) <= border;
        surplus -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::digest::{DigestSecret, KeyedDigester};
    use crate::fill::VolumeSource;
    use verbs3_protocol::{ContentVersion, ObjectKey, ObjectVolume};
    use verbs3_ufs::local::{LocalOptions, LocalStore};
    use verbs3_ufs::{Ufs, UfsSettings};

    fn target(source: &Arc<VolumeSource>, key: &str) -> Arc<FillTarget> {
        let object = ObjectKey { volume: ObjectVolume::new("u", "b"), key: key.into() };
        let version = ContentVersion { etag: "\"e\"".into(), bytes: 1 << 30, version_id: None };
        let digest = KeyedDigester::new(DigestSecret(1, 2)).digest_version(&object, &version);
        let account = crate::tenants::TenantAccount::NOBODY;
        Arc::new(FillTarget { source: source.clone(), object, version, digest, account })
    }

    fn source(folder: &std::path::Path) -> Arc<VolumeSource> {
        let store = LocalStore::open_store(LocalOptions::new(folder)).unwrap();
        Arc::new(VolumeSource {
            ufs: Ufs::new(Arc::new(store), UfsSettings::with_name("u")),
            bucket: "b".into(),
        })
    }

    #[test]
    fn what_is_read_often_outlives_a_scan_and_the_table_stays_small() {
        let folder = tempfile::tempdir().unwrap();
        let (heat, source) = (BlockHeatTable::new(320), source(folder.path()));
        let hot = target(&source, "hot");
        for scanned in 0..20_000u32 {
            heat.read(&target(&source, "scan"), BlockIndex(scanned), 1000, 0);
            heat.read(&hot, BlockIndex(scanned % 10), 1000, 0);
        }
        let hottest = heat.hottest_blocks(0);
        assert!(hottest.len() <= 320, "{}", hottest.len());
        let first: Vec<&str> =
            hottest.iter().take(10).map(|hot| hot.target.object.key.as_str()).collect();
        assert_eq!(first, ["hot"; 10]);
    }

    #[test]
    fn fresh_heat_is_reported_once_hottest_first_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (heat, source) = (BlockHeatTable::new(320), source(folder.path()));
        let block = target(&source, "k");
        for number in 0..10u32 {
            heat.read(&block, BlockIndex(number), 100 * number, 0);
            heat.read(&block, BlockIndex(number), 50, 5);
        }
        heat.record_inherited(&block, BlockIndex(3), 1 << 30, 5);
        let fresh = |bytes_min, blocks_max| -> Vec<(u32, u64)> {
            heat.take_fresh(bytes_min, blocks_max)
                .iter()
                .map(|hot| (hot.block.0, hot.bytes))
                .collect()
        };
        assert_eq!(fresh(750, 2), [(9, 950), (8, 850)]);
        assert_eq!(fresh(0, 9), [], "what was told, and what was too little, counts no more");
        heat.read(&block, BlockIndex(7), 10, 6);
        assert_eq!(fresh(0, 9), [(7, 10)]);
        assert_eq!(heat.hottest_blocks(6)[0].block, BlockIndex(3));
    }

    #[test]
    fn what_was_read_long_ago_is_colder_than_what_is_read_now() {
        let folder = tempfile::tempdir().unwrap();
        let (heat, source) = (BlockHeatTable::new(320), source(folder.path()));
        heat.read(&target(&source, "then"), BlockIndex(0), 4000, 0);
        heat.read(&target(&source, "now"), BlockIndex(0), 1500, 2 * HALF_LIFE_S);
        heat.read(&target(&source, "both"), BlockIndex(0), 4000, 0);
        heat.read(&target(&source, "both"), BlockIndex(0), 1000, 2 * HALF_LIFE_S);
        let found = heat.hottest_blocks(2 * HALF_LIFE_S);
        let found: Vec<_> =
            found.iter().map(|hot| (hot.target.object.key.as_str(), hot.bytes)).collect();
        assert_eq!(found, [("both", 2000), ("now", 1500), ("then", 1000)]);
    }
}

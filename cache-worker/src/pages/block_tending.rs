//! Answers `TendMessage`: says what is here of blocks, and evicts or unpins it on request. Fills
//! nothing.
//!
//! A page that is filled, read or written to disk at this very moment may be here again afterwards.
//! Nothing waits for it.

use verbs3_protocol::{
    BlockIndex, PageIndex, TENDED_BLOCKS_MAX, TendAct, TendBlocksReply, TendMessage, TendedBlock,
};

use super::PageServer;
use crate::digest::VersionDigest;
use crate::serve_refusal::ServeRefusal;

impl PageServer {
    pub(crate) async fn tend_blocks(
        &self,
        tend: TendMessage,
    ) -> Result<TendBlocksReply, ServeRefusal> {
        self.checks.check_geometry(tend.geometry)?;
        self.checks.check_volume(&tend.object.volume)?;
        if tend.blocks > TENDED_BLOCKS_MAX {
            return Err(ServeRefusal::BlockCount(tend.blocks));
        }
        let digest = self.digests.digest_version(&tend.object, &tend.version);
        let all = tend.version.bytes.div_ceil(u64::from(self.checks.geometry.block_bytes));
        let first = tend.first_block.0;
        let end = all.min(u64::from(first) + u64::from(tend.blocks));
        let mut tended = TendBlocksReply::default();
        for block in u64::from(first)..end {
            let block = BlockIndex(u32::try_from(block).unwrap_or(u32::MAX));
            let block_len = self.checks.geometry.block_len(tend.version.bytes, block);
            let (found, on_disk) = self.look_at(digest, block, block_len);
            if let Some(found) = found {
                tended.blocks.push(found);
            }
            if tend.act != TendAct::Look {
                self.act_on(tend.act, digest, block, block_len, on_disk).await;
            }
            tokio::task::yield_now().await;
        }
        Ok(tended)
    }

    /// Returns what is here of a block, and whether some of it is on disk.
    fn look_at(
        &self,
        digest: VersionDigest,
        block: BlockIndex,
        block_len: u32,
    ) -> (Option<TendedBlock>, bool) {
        let now_s = self.clock.now().as_secs();
        let (mut memory_bytes, mut disk_bytes, mut pinned_bytes, mut uses) = (0, 0, 0, 0);
        let mut idle_s: Option<u32> = None;
        for page in self.checks.geometry.touched_pages(&(0..block_len)) {
            let (key, length) = (
                digest.page_key(block, page),
                self.checks.geometry.page_len(block_len, PageIndex(page)),
            );
            let in_memory = self.filler.memory_tier().page_heat(key, now_s);
            let on_disk = self.filler.disk_tier().and_then(|disk| disk.page_heat(key));
            memory_bytes += in_memory.map_or(0, |_| length);
            disk_bytes += on_disk.map_or(0, |_| length);
            pinned_bytes += on_disk.filter(|(_, pinned)| *pinned).map_or(0, |_| length);
            for heat in in_memory.into_iter().chain(on_disk.map(|(heat, _)| heat)) {
                uses = uses.max(heat.uses);
                idle_s = Some(idle_s.unwrap_or(u32::MAX).min(heat.idle_s));
            }
        }
        let found = idle_s.map(|idle_s| TendedBlock {
            block,
            memory_bytes,
            disk_bytes,
            pinned_bytes,
            uses,
            idle_s,
        });
        (found, disk_bytes > 0)
    }

    async fn act_on(
        &self,
        act: TendAct,
        digest: VersionDigest,
        block: BlockIndex,
        block_len: u32,
        on_disk: bool,
    ) {
        let keys = self
            .checks
            .geometry
            .touched_pages(&(0..block_len))
            .map(|page| digest.page_key(block, page));
        if act == TendAct::Evict {
            keys.clone().for_each(|key| self.filler.memory_tier().give_up(key));
            let pages = self.checks.geometry.touched_pages(&(0..block_len));
            pages.for_each(|page| self.filler.drop_parts(digest, block, page));
        }
        let Some(disk) = self.filler.disk_tier().filter(|_| on_disk).cloned() else { return };
        if act == TendAct::Unpin {
            disk.pin_pages(keys, None);
            return;
        }
        let keys: Vec<_> = keys.collect();
        // An error means that the runtime ends, and this process with it.
        let _ = tokio::task::spawn_blocking(move || {
            keys.into_iter().for_each(|key| disk.evict_page(key))
        })
        .await;
    }
}

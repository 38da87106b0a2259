//! Runs jobs that load nothing: all owners evict or unpin the pages of objects.

use std::collections::BTreeSet;

use tokio::time::{Instant, sleep};
use verbs3_client::TendError;
use verbs3_protocol::{
    BlockIndex, ContentVersion, ObjectKey, TENDED_BLOCKS_MAX, TendAct, TendedBlock, WorkerId,
};

use crate::api::PreloadJobAction;
use crate::load_object::{PreloadItemError, PreloadPiece};
use crate::object_list::PreloadListItem;
use crate::preload_run::PreloadRun;

impl PreloadRun<'_> {
    /// Takes the version that the object's home knows, or else the UFS's.
    pub(crate) async fn tend_object(&self, item: &PreloadListItem) -> Result<(), PreloadItemError> {
        let act = match self.plan.action {
            PreloadJobAction::Load => return Ok(()),
            PreloadJobAction::Evict => TendAct::Evict,
            PreloadJobAction::Unpin => TendAct::Unpin,
        };
        let (mount, object) = (&item.mount, item.mount.object_key(&item.key));
        let first = PreloadPiece {
            object: object.clone(),
            version: None,
            block: BlockIndex(0),
            pages: 0..0,
            replica: 0,
        };
        let version = self
            .warm_with_retries(mount, &self.build_warm_request(mount, first, true), 0)
            .await?
            .version;
        let geometry = self.environment.tier.tier_options().geometry;
        let blocks = version.bytes.div_ceil(u64::from(geometry.block_bytes));
        for first in (0..blocks).step_by(usize::from(TENDED_BLOCKS_MAX)) {
            let count = (blocks - first).min(u64::from(TENDED_BLOCKS_MAX)) as u16;
            // An object of 5 TiB has 5 million blocks of the smallest size, so the number fits.
            let first = first as u32;
            let owners = (first..first + u32::from(count))
                .flat_map(|at| self.environment.tier.owner_ids(&object, BlockIndex(at)));
            for worker in owners.collect::<BTreeSet<_>>() {
                let tended =
                    self.tend_at(&worker, &object, &version, BlockIndex(first), count, act).await?;
                if act == TendAct::Evict {
                    let bytes = |block: &TendedBlock| {
                        u64::from(block.memory_bytes) + u64::from(block.disk_bytes)
                    };
                    self.job.update_counters(|page| {
                        page.bytes_evicted += tended.iter().map(bytes).sum::<u64>()
                    });
                }
            }
        }
        Ok(())
    }

    async fn tend_at(
        &self,
        worker: &WorkerId,
        object: &ObjectKey,
        version: &ContentVersion,
        first_block: BlockIndex,
        blocks: u16,
        act: TendAct,
    ) -> Result<Vec<TendedBlock>, PreloadItemError> {
        let (began, mut pause) = (Instant::now(), self.environment.options.pauses);
        loop {
            match self
                .environment
                .tier
                .tend_blocks(worker, object, version, first_block, blocks, act)
                .await
            {
                Ok(tended) => return Ok(tended),
                // The worker has left meanwhile, and takes its pages with it.
                Err(TendError::Unknown { .. }) => return Ok(Vec::new()),
                Err(error @ TendError::Away { .. })
                    if began.elapsed() < self.environment.options.settings.patience.0 =>
                {
                    tracing::debug!(%error, "a worker is asked again");
                    self.job.update_counters(|page| page.retries += 1);
                    self.environment.metrics.retries.inc();
                    sleep(pause.next_jittered(rand::random())).await;
                }
                Err(error) => return Err(PreloadItemError::Failed(error.to_string())),
            }
        }
    }
}

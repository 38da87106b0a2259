//! Jobs that load nothing: pages of objects are given up, or may be given up again, at all who own
//! them by the map.

use std::collections::BTreeSet;

use tokio::time::{Instant, sleep};
use verbs3_client::TendError;
use verbs3_protocol::{
    BlockIndex, ObjectKey, TENDED_BLOCKS_MAX, TendAct, TendedBlock, Version, WorkerId,
};

use crate::api::Action;
use crate::list::Item;
use crate::load::{Piece, Trouble, spread};
use crate::run::Run;

impl Run<'_> {
    /// Of the version that the object's home knows, or else the UFS.
    pub(crate) async fn tend(&self, item: &Item) -> Result<(), Trouble> {
        let act = match self.plan.action {
            Action::Load => return Ok(()),
            Action::Evict => TendAct::Evict,
            Action::Unpin => TendAct::Unpin,
        };
        let (mount, object) = (&item.mount, item.mount.object(&item.key));
        let first = Piece {
            object: object.clone(),
            version: None,
            block: BlockIndex(0),
            pages: 0..0,
            replica: 0,
        };
        let version = self.ask(mount, &self.request(mount, first, true), 0).await?.version;
        let geometry = self.engine.tier.options().geometry;
        let blocks = version.bytes.div_ceil(u64::from(geometry.block_bytes));
        for first in (0..blocks).step_by(usize::from(TENDED_BLOCKS_MAX)) {
            let count = (blocks - first).min(u64::from(TENDED_BLOCKS_MAX)) as u16;
            // Of an object of 5 TiB in the smallest blocks there are 5 million.
            let first = first as u32;
            let owners = (first..first + u32::from(count))
                .flat_map(|at| self.engine.tier.owner_ids(&object, BlockIndex(at)));
            for worker in owners.collect::<BTreeSet<_>>() {
                let tended = self
                    .tend_at(&worker, (&object, &version), (BlockIndex(first), count), act)
                    .await?;
                if act == TendAct::Evict {
                    let bytes = |block: &TendedBlock| {
                        u64::from(block.memory_bytes) + u64::from(block.disk_bytes)
                    };
                    self.job
                        .count(|page| page.bytes_evicted += tended.iter().map(bytes).sum::<u64>());
                }
            }
        }
        Ok(())
    }

    async fn tend_at(
        &self,
        worker: &WorkerId,
        what: (&ObjectKey, &Version),
        blocks: (BlockIndex, u16),
        act: TendAct,
    ) -> Result<Vec<TendedBlock>, Trouble> {
        let (began, mut pause) = (Instant::now(), self.engine.options.pause_min);
        loop {
            match self.engine.tier.tend(worker, what, blocks, act).await {
                Ok(tended) => return Ok(tended),
                // It has left meanwhile, and takes what it had with it.
                Err(TendError::Unknown { .. }) => return Ok(Vec::new()),
                Err(error @ TendError::Away { .. })
                    if began.elapsed() < self.engine.options.patience =>
                {
                    tracing::debug!(%error, "a worker is asked again");
                    self.job.count(|page| page.retries += 1);
                    self.engine.metrics.retries.inc();
                    sleep(spread(pause)).await;
                    pause = (pause * 2).min(self.engine.options.pause_max);
                }
                Err(error) => return Err(Trouble::Failed(error.to_string())),
            }
        }
    }
}

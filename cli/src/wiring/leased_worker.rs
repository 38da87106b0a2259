//! The cache worker of this process as the keeper of its lease sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use verbs3_cache_worker::{BlockRate, CacheWorker, MapActivation, NotedWrite, WorkerDrainProgress};
use verbs3_coordinator_client::api::{DrainProgress, OpenWriteReport};
use verbs3_coordinator_client::hot_blocks::{HotBlockRate, HotWish};
use verbs3_coordinator_client::{
    LeasedWorker, PlacementActivation, WorkerLeaseRest, WorkerLeaseTerm,
};
use verbs3_protocol::{ClusterMember, NoticeAnswer, TenantNotice};

use super::neighbourhood::WorkerNeighbourhood;
use super::transports::WorkerRailAddresses;

/// A cache worker, its rails, and the other workers that it asks.
pub struct LeasedCacheWorker {
    pub cache: Arc<CacheWorker>,
    pub rails: WorkerRailAddresses,
    /// `None`: former owners are not to be asked.
    pub neighbourhood: Option<Arc<WorkerNeighbourhood>>,
}

#[async_trait]
impl LeasedWorker for LeasedCacheWorker {
    fn expect_predecessor(&self) {
        self.cache.follows_another();
    }

    fn give_up_epoch(&self, writes_max: usize) -> Option<Vec<OpenWriteReport>> {
        let report = |noted: NotedWrite| {
            let NotedWrite { hash, write, remaining, tenant } = noted;
            OpenWriteReport::new(hash, write, remaining, tenant)
        };
        Some(self.cache.give_up_epoch(writes_max)?.into_iter().map(report).collect())
    }

    async fn wait_for_recalls(&self) {
        self.cache.leases_over().await;
    }

    fn end_leases(&self) {
        self.cache.end_leases();
    }

    fn uncertain_for(&self) -> Duration {
        self.cache.uncertain_for()
    }

    fn hold_lease(&self, term: WorkerLeaseTerm) {
        self.cache.hold_lease(|| {
            let WorkerLeaseRest { lease, outage } = term.time_left();
            (lease, outage)
        });
    }

    fn activate_map(&self, activation: PlacementActivation<'_>) {
        let PlacementActivation {
            map,
            worker,
            former,
            handed_over,
            open_writes,
            resumes,
            uncertain,
            restarted,
        } = activation;
        self.cache.activate_map(MapActivation {
            map,
            me: worker,
            former,
            handed_over,
            open_writes: to_noted_writes(open_writes),
            resumes: resumes.map(to_noted_writes),
            uncertain,
            restarted,
        });
    }

    fn apply_relayed_word(&self, notice: &TenantNotice) -> NoticeAnswer {
        self.cache.apply_relayed_word(notice)
    }

    fn drain_progress(&self) -> Option<DrainProgress> {
        let WorkerDrainProgress { blocks, blocks_left, bytes } = self.cache.handing_over()?;
        Some(DrainProgress { blocks, blocks_left, bytes })
    }

    /// A worker that reaches no others can't take a hot block from its owner, and in a cluster of
    /// such nobody has use for replicas.
    fn collect_hot_blocks(&self, wish: HotWish, since: Duration) -> Option<Vec<HotBlockRate>> {
        self.neighbourhood.as_ref()?;
        let HotWish { every_ms: _, rate_min, blocks_max } = wish;
        let blocks_max = usize::try_from(blocks_max).unwrap_or(usize::MAX);
        let hottest = self.cache.block_rates(since, rate_min, blocks_max);
        let rate = |BlockRate { object, block, bytes_per_second }| HotBlockRate {
            object,
            block,
            bytes_per_second,
        };
        Some(hottest.into_iter().map(rate).collect())
    }

    fn rail_addresses(&self) -> Vec<String> {
        let rails = self.rails.current_addresses().into_iter();
        rails.map(|rail| rail.map(|address| address.to_string()).unwrap_or_default()).collect()
    }

    async fn find_neighbours(&self, members: Vec<ClusterMember>) {
        if let Some(neighbourhood) = &self.neighbourhood {
            neighbourhood.adopt_members(&members).await;
        }
    }
}

fn to_noted_writes(writes: Vec<OpenWriteReport>) -> Vec<NotedWrite> {
    let parts = writes.into_iter().map(OpenWriteReport::into_parts);
    let note = |(hash, write, remaining, tenant)| NotedWrite { hash, write, remaining, tenant };
    parts.map(note).collect()
}

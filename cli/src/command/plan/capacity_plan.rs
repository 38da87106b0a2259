//! What a capacity plan says, in the order in which it is printed. `formulas` fills it in.

use serde::Serialize;

/// What the data set is, in the cache's units.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataSetExtent {
    pub objects: u64,
    pub bytes: u64,
    pub blocks: u64,
    pub pages: u64,
    /// Bytes that one copy of each page takes in arenas, and on drives.
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub copies: u32,
    /// Bytes of further copies of hot blocks, at most (`coordinator.hot`).
    pub hot_bytes: u64,
}

/// Where a node's memory goes, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeMemoryPlan {
    /// `worker.memory.capacity`.
    pub worker_arena: u64,
    /// `gateway.memory.capacity`: landings.
    pub landing: u64,
    pub memory_index: u64,
    pub disk_index: u64,
    /// Attributes and generations.
    pub object_index: u64,
    /// `worker.neighbours.memory`.
    pub neighbours: u64,
    /// Bodies, forms and answers: `gateway.limits`.
    pub gateway_bodies: u64,
    pub verbs_buffers: u64,
    pub processes: u64,
}

/// A tier, over all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierFill {
    pub capacity_bytes: u64,
    /// What data, copies and hot copies take in it.
    pub needed_bytes: u64,
    /// The same with headroom.
    pub planned_bytes: u64,
    /// needed ÷ capacity; `None`: there is no such tier.
    pub part: Option<f64>,
}

/// What a NIC of a node holds. Queue pairs are those of gateway and worker together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NicPlan {
    pub nics: u32,
    /// One connection over each NIC to each peer.
    pub queue_pairs: u64,
    /// With the further ones that are opened under load.
    pub queue_pairs_max: u64,
    /// Of one process, over all NICs, at most: what `verbs.connections_max` has to hold.
    pub process_queue_pairs_max: u64,
    pub registered_bytes: u64,
    /// Of all NICs: what counts against RLIMIT_MEMLOCK.
    pub locked_bytes: u64,
}

/// What the coordinators keep in etcd.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterStorePlan {
    /// The cluster's document, as it is written.
    pub document_bytes: u64,
    /// With an hour of history in which every worker is restarted and the data is warmed.
    pub etcd_bytes: u64,
}

/// How long the data takes from the store to the cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WarmUpPlan {
    pub seconds: f64,
    /// What bounds it.
    pub limit: WarmUpLimit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WarmUpLimit {
    StoreBandwidth,
    /// `coordinator.preload.blocks_per_ufs_max` blocks at once, each after the store's first byte.
    StoreRequests,
    Network,
}

/// What an epoch finds in the cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochForecast {
    pub epoch: u32,
    pub hit_ratio_min: f64,
    pub hit_ratio_max: f64,
    /// Part that memory alone answers, at most.
    pub memory_ratio_max: f64,
    pub store_bytes_max: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityPlan {
    pub data: DataSetExtent,
    pub node_memory: NodeMemoryPlan,
    pub memory_tier: TierFill,
    pub disk_tier: TierFill,
    /// `worker.disk.folders[].capacity`.
    pub folder_bytes: u64,
    /// `worker.disk.pages_max` and `worker.index.attributes_max`.
    pub disk_pages_max: u64,
    pub attributes_max: u64,
    /// Nodes of this kind that hold the data with headroom; `None`: no number does.
    pub nodes_needed: Option<u64>,
    pub nic: NicPlan,
    pub store: ClusterStorePlan,
    pub warm_up: WarmUpPlan,
    pub epochs: Vec<EpochForecast>,
}

impl CapacityPlan {
    /// The tier that holds the data. Pages in memory are on the drives, too (docs/disk-tier.md), so
    /// capacities do not add up.
    pub fn holding_tier(&self) -> &TierFill {
        if self.disk_tier.capacity_bytes > self.memory_tier.capacity_bytes {
            &self.disk_tier
        } else {
            &self.memory_tier
        }
    }
}

impl NodeMemoryPlan {
    /// Returns all of it.
    pub fn sum_bytes(&self) -> u64 {
        let Self {
            worker_arena,
            landing,
            memory_index,
            disk_index,
            object_index,
            neighbours,
            gateway_bodies,
            verbs_buffers,
            processes,
        } = self;
        worker_arena
            + landing
            + memory_index
            + disk_index
            + object_index
            + neighbours
            + gateway_bodies
            + verbs_buffers
            + processes
    }
}

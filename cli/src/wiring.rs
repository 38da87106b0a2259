//! From the configuration to the parts of each process. What nothing reads of a setting shows in
//! the stage `lint`.
//!
//! Owns the composition of each process. Knows defaults of none.

mod activity_report;
pub mod activity_reporter;
pub mod admin_server;
pub mod client_rails;
pub mod controller;
pub mod coordinator;
pub mod coordinator_client;
pub mod followers;
pub mod gateway;
pub mod leased_worker;
pub mod listen_endpoint;
pub mod mounts;
pub mod neighbourhood;
pub mod passed_sockets;
pub mod preload;
pub mod preload_jobs;
pub mod relay;
pub mod socket_handover;
pub mod stores;
pub mod tier;
pub mod transports;
pub mod trusted_cluster;
pub mod webhook;
pub mod worker;

use anyhow::Context;
use verbs3_config::{ClusterSettings, MemorySettings};
use verbs3_protocol::BlockGeometry;
use verbs3_rdma::arena::{Arena, ArenaOptions};

/// Block and page size of the cluster.
pub fn cluster_geometry(cluster: &ClusterSettings) -> anyhow::Result<BlockGeometry> {
    let bytes = |size: verbs3_config::ByteSize| u32::try_from(size.0).unwrap_or(u32::MAX);
    BlockGeometry::new(bytes(cluster.block), bytes(cluster.page))
        .context("cluster.block and cluster.page can't be used")
}

/// Maps the arena of a process, or of one of `shares` workers in it.
pub fn map_arena(
    memory: &MemorySettings,
    shares: u16,
    geometry: BlockGeometry,
) -> anyhow::Result<Arena> {
    let MemorySettings { capacity, populate } = memory;
    let options = ArenaOptions {
        capacity_bytes: capacity.as_usize() / usize::from(shares.max(1)),
        cell_bytes_max: geometry.page_bytes as usize,
        populate: *populate,
    };
    Arena::map_memory(options).context("can't map the arena")
}

//! What a coordinator needs to run preload jobs: stores, mounts, and the way to the workers.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_client::{CacheTierClient, TierSettings};
use verbs3_config::{MemorySettings, MountSettings};
use verbs3_coordinator::PreloadSetup;
use verbs3_preload::metrics::PreloadMetrics;
use verbs3_preload::{CoordinatorPreloadSettings, PreloadOptions};
use verbs3_rdma::settings::{PeerSettings, TcpSettings, VerbsSettings};
use verbs3_ufs::{Ufs, UfsSettings};

use super::tier::WorkerConnector;
use super::trusted_cluster::TrustedCluster;
use super::{cluster_geometry, coordinator_client, followers, map_arena, mounts, stores, tier};

/// The settings that preload jobs are made of.
pub struct PreloadWiring<'a> {
    /// URL at which this process reaches its own coordinator.
    pub own: String,
    pub cluster: &'a TrustedCluster,
    pub ufs: &'a [UfsSettings],
    pub mounts: &'a [MountSettings],
    pub tcp: &'a TcpSettings,
    pub verbs: &'a VerbsSettings,
    pub preload: &'a CoordinatorPreloadSettings,
}

/// What goes on beside the jobs until they are over.
pub struct PreloadBackground {
    ways: Arc<WorkerConnector>,
    following: Option<(CancellationToken, JoinHandle<()>)>,
}

impl PreloadBackground {
    /// Stops following the map, then closes the connections to the workers.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        if let Some((unfollow, following)) = self.following {
            unfollow.cancel();
            following.await.context("the following of the placement map ended badly")?;
        }
        self.ways.shutdown().await;
        Ok(())
    }
}

/// `None` where the configuration has nothing that could be loaded. Workers are those of the
/// configuration, or of this coordinator's own map, which it follows as gateways do: whichever
/// coordinator leads.
pub async fn start_preload(
    settings: &PreloadWiring<'_>,
    registry: &Registry,
) -> anyhow::Result<Option<(PreloadSetup, PreloadBackground)>> {
    let PreloadWiring { own, cluster, ufs, mounts, tcp, verbs, preload } = settings;
    if mounts.is_empty() {
        tracing::info!("no preload jobs: they need [[ufs]] and [[mount]]");
        return Ok(None);
    }
    let mut cluster = TrustedCluster::clone(cluster);
    cluster.settings.coordinators =
        if cluster.workers.is_empty() { vec![own.clone()] } else { Vec::new() };
    let cluster = &cluster;
    verbs3_ufs::metrics::register(registry)?;
    verbs3_rdma::metrics::register_metrics(registry)?;
    let geometry = cluster_geometry(cluster)?;
    let memory = MemorySettings { capacity: preload.memory, populate: false };
    let arena = map_arena(&memory, 1, geometry)?;
    verbs3_rdma::metrics::register_arena(registry, arena.clone())?;
    let stores = stores::open_stores(ufs, registry).await?;
    let ways = Arc::new(
        WorkerConnector::to_workers(cluster, tcp, verbs, &PeerSettings::default(), &arena).await?,
    );
    let tier =
        tier::start_tier(TierSettings::default(), cluster, geometry, &ways, arena, registry)?;
    let following = coordinator_client::build_client(cluster).map(|client| {
        let stop = CancellationToken::new();
        (
            stop.clone(),
            tokio::spawn(followers::follow_map(client, tier.clone(), ways.clone(), stop)),
        )
    });
    let made = build_preload(preload, tier, mounts, &stores, registry)?;
    Ok(Some((made, PreloadBackground { ways, following })))
}

/// Jobs over a tier that is there.
pub fn build_preload(
    preload: &CoordinatorPreloadSettings,
    tier: Arc<CacheTierClient>,
    mounts: &[MountSettings],
    stores: &HashMap<String, Ufs>,
    registry: &Registry,
) -> anyhow::Result<PreloadSetup> {
    Ok(PreloadSetup {
        options: PreloadOptions::new(preload.clone()),
        tier,
        mounts: Arc::new(mounts::build_preload_mounts(mounts, stores)?),
        metrics: PreloadMetrics::new(registry)
            .context("can't register the metrics of preload jobs")?,
    })
}

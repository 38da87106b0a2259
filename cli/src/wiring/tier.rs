//! The way from a gateway to the workers: the placement map, the connections, and the client over
//! both.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use verbs3_client::{CacheTierClient, TierOptions, TierSettings};
use verbs3_config::{ClusterSettings, ClusterWorkerSettings};
use verbs3_coordinator_client::{PeerSource, resolve_address};
use verbs3_protocol::{BlockGeometry, PlacementMap, PlacementMember, WorkerId};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::peer::{PeerOptions, QueuePairs, TransportPeer};
use verbs3_rdma::settings::{PeerSettings, TcpSettings, VerbsSettings};
use verbs3_rdma::transport::PeerAddress;

use super::transports::RequesterTransports;
use super::trusted_cluster::TrustedCluster;

/// The workers that the configuration lists.
pub fn cluster_members(cluster: &ClusterSettings) -> Vec<PlacementMember> {
    let member =
        |ClusterWorkerSettings { id, address: _, weight, zone }: &ClusterWorkerSettings| {
            PlacementMember {
                zone: zone.clone(),
                ..PlacementMember::new(WorkerId(id.clone()), *weight)
            }
        };
    cluster.workers.iter().map(member).collect()
}

/// What a process needs to ask workers.
pub struct WorkerConnector {
    members: Vec<PlacementMember>,
    peers: HashMap<WorkerId, Arc<TransportPeer>>,
    /// `None` within one process.
    dialling: Option<PeerFactory>,
}

/// How peers are made.
struct PeerFactory {
    requesters: RequesterTransports,
    options: PeerOptions,
}

impl PeerSource for WorkerConnector {
    type Peer = TransportPeer;

    /// Returns `None` within one process.
    fn make_peer(&self, id: &WorkerId, address: SocketAddr) -> Option<Arc<TransportPeer>> {
        let PeerFactory { requesters, options } = self.dialling.as_ref()?;
        let address = PeerAddress::with_name(address, id.0.clone());
        Some(Arc::new(TransportPeer::new(
            id.0.clone(),
            address,
            requesters.transports.clone(),
            options.clone(),
        )))
    }
}

impl WorkerConnector {
    /// Ways to the workers that the configuration lists, over whatever transport both hosts have.
    /// Landings lie in `arena`.
    pub async fn to_workers(
        cluster: &TrustedCluster,
        tcp: &TcpSettings,
        verbs: &VerbsSettings,
        peers: &PeerSettings,
        arena: &Arena,
    ) -> anyhow::Result<Self> {
        let requesters =
            RequesterTransports::new(tcp, verbs, cluster, &gateway_name(), arena).await?;
        let queue_pairs = QueuePairs::new(verbs.connections_max as usize);
        let options = PeerOptions { settings: *peers, queue_pairs };
        let dialling = Some(PeerFactory { requesters, options });
        let mut ways = Self { members: cluster_members(cluster), peers: HashMap::new(), dialling };
        for ClusterWorkerSettings { id, address, weight: _, zone: _ } in &cluster.workers {
            let tcp = resolve_address(address)
                .await
                .with_context(|| format!("worker {id}: can't find the address {address}"))?;
            let id = WorkerId(id.clone());
            if let Some(peer) = ways.make_peer(&id, tcp) {
                ways.peers.insert(id, peer);
            }
        }
        Ok(ways)
    }

    /// Ways within this process.
    pub fn in_process(peers: impl IntoIterator<Item = (WorkerId, TransportPeer)>) -> Self {
        let peers: HashMap<_, _> =
            peers.into_iter().map(|(id, peer)| (id, Arc::new(peer))).collect();
        let members = peers.keys().map(|id| PlacementMember::new(id.clone(), 1.0)).collect();
        Self { members, peers, dialling: None }
    }

    /// Closes what is idle and waits for the peers' tasks.
    pub async fn shutdown(&self) {
        for peer in self.peers.values() {
            peer.shutdown().await;
        }
    }
}

/// The client of the tier; landings are loaned from `arena`.
pub fn start_tier(
    settings: TierSettings,
    cluster: &ClusterSettings,
    geometry: BlockGeometry,
    ways: &WorkerConnector,
    arena: Arena,
    registry: &Registry,
) -> anyhow::Result<Arc<CacheTierClient>> {
    let coordinated = !cluster.coordinators.is_empty();
    let in_process = ways.dialling.is_none();
    let options = TierOptions { settings, geometry, coordinated, in_process };
    if options.coordinated {
        let none = (PlacementMap::without_members(), HashMap::new());
        return CacheTierClient::new(options, none.0, none.1, arena, registry)
            .context("can't make the client of the tier");
    }
    let replicas = usize::from(cluster.replicas);
    let epoch = PlacementMap::static_epoch(&ways.members, replicas);
    let placement = PlacementMap::new(epoch, ways.members.clone(), replicas)
        .context("cluster.workers can't be used")?;
    CacheTierClient::new(options, placement, ways.peers.clone(), arena, registry)
        .context("can't make the client of the tier")
}

/// For the workers' logs.
fn gateway_name() -> String {
    format!("gateway@{}:{}", host_name(), std::process::id())
}

/// Name of this host, as its kernel has it.
pub fn host_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_owned()
}

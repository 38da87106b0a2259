//! A worker's ways to the other workers, which it asks for what has moved here from them.

use std::sync::Arc;

use tokio::sync::Mutex;
use verbs3_client::NeighbourClient;
use verbs3_config::{MemorySettings, WorkerSettings};
use verbs3_coordinator_client::{MemberPeers, RESOLVE_PAUSE};
use verbs3_protocol::{BlockGeometry, ClusterMember, WorkerId};
use verbs3_rdma::settings::{PeerSettings, TcpSettings, VerbsSettings};

use super::map_arena;
use super::tier::WorkerConnector;
use super::trusted_cluster::TrustedCluster;

/// The other workers, as they are reached.
pub struct WorkerNeighbourhood {
    me: WorkerId,
    neighbours: Arc<NeighbourClient>,
    peers: Mutex<MemberPeers<WorkerConnector>>,
}

/// `None`: former owners are not to be asked.
pub async fn start_neighbourhood(
    worker: &WorkerSettings,
    cluster: &TrustedCluster,
    tcp: &TcpSettings,
    verbs: &VerbsSettings,
    geometry: BlockGeometry,
) -> anyhow::Result<Option<Arc<WorkerNeighbourhood>>> {
    let settings = &worker.neighbours;
    if settings.asked_for.0.is_zero() {
        return Ok(None);
    }
    let memory = MemorySettings { capacity: settings.memory, populate: false };
    let arena = map_arena(&memory, 1, geometry)?;
    // As gateways reach workers by default.
    let ways =
        WorkerConnector::to_workers(cluster, tcp, verbs, &PeerSettings::default(), &arena).await?;
    let me = WorkerId(worker.id.clone());
    let neighbours = NeighbourClient::new(settings.clone(), geometry, arena);
    let peers = Mutex::new(MemberPeers::new(Arc::new(ways)));
    Ok(Some(Arc::new(WorkerNeighbourhood { me, neighbours, peers })))
}

impl WorkerNeighbourhood {
    /// The other workers as the cache asks them. Clones share one table.
    pub fn neighbour_table(&self) -> Arc<NeighbourClient> {
        self.neighbours.clone()
    }

    /// These are asked from here on; returns once all have an address. May be cancelled at any
    /// time.
    pub async fn adopt_members(&self, members: &[ClusterMember]) {
        let others: Vec<ClusterMember> =
            members.iter().filter(|member| member.id != self.me).cloned().collect();
        loop {
            let mut peers = self.peers.lock().await;
            let Some(known) = peers.adopt_members(&others).await else { return };
            self.neighbours.adopt_peers(&known);
            if peers.are_all_found() {
                return;
            }
            drop(peers);
            tokio::time::sleep(RESOLVE_PAUSE).await;
        }
    }
}

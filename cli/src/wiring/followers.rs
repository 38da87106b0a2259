//! The tier's client adopts what the coordinators say: the map, and the list of hot blocks.

use std::error::Error;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use verbs3_client::{CacheTierClient, HotBlockReplicas};
use verbs3_coordinator_client::{
    CoordinatorClient, HotFollower, PeersByWorker, PlacementAdopter, follow_placement,
};
use verbs3_protocol::PlacementMap;
use verbs3_rdma::peer::TransportPeer;

use super::tier::WorkerConnector;

struct TierAdopter(Arc<CacheTierClient>);

impl PlacementAdopter<TransportPeer> for TierAdopter {
    fn adopt_placement(
        &self,
        placement: PlacementMap,
        peers: &PeersByWorker<TransportPeer>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.0.adopt_map(placement, peers)?)
    }
}

/// Follows the map until told to stop. May be cancelled at any time.
pub async fn follow_map(
    client: Arc<CoordinatorClient>,
    tier: Arc<CacheTierClient>,
    ways: Arc<WorkerConnector>,
    stop: CancellationToken,
) {
    follow_placement(client, ways, Arc::new(TierAdopter(tier)), stop).await;
}

/// Follows the list of hot blocks until told to stop. The client should be nobody else's. May be
/// cancelled at any time.
pub async fn follow_hot(
    client: Arc<CoordinatorClient>,
    tier: Arc<CacheTierClient>,
    stop: CancellationToken,
) {
    HotFollower::new(client, |blocks| tier.adopt_hot(HotBlockReplicas(blocks))).run(stop).await;
}

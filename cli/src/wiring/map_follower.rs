//! A gateway that follows the coordinators' map, with which peers come and go, and their list of
//! hot blocks: the tier's client adopts both.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use verbs3_client::{CacheTierClient, HotBlockReplicas};
use verbs3_coordinator_client::{CoordinatorClient, HotFollower, MapFollower};
use verbs3_protocol::{ClusterMember, MemberRoster, PlacementMap, WorkerId};
use verbs3_rdma::peer::TransportPeer;

use super::tier::{WorkerConnector, resolve_address};

/// Pause before names that could not be resolved are looked up again.
pub const RESOLVE_PAUSE: Duration = Duration::from_secs(2);
/// Stands for an address that could not be found. Nothing connects to it.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9);

/// Peers of the map that was adopted last, by worker, with the address that the map says and what
/// was found for it.
pub type KnownPeers = HashMap<WorkerId, (String, SocketAddr, Arc<TransportPeer>)>;

/// Follows until it is told to stop. May be cancelled at any time.
pub async fn follow_map(
    client: Arc<CoordinatorClient>,
    tier: Arc<CacheTierClient>,
    ways: Arc<WorkerConnector>,
    stop: CancellationToken,
) {
    let (follower, mut maps) = MapFollower::new(client);
    let adopting = async {
        let mut known = KnownPeers::new();
        loop {
            let newest = maps.borrow_and_update().clone();
            let unresolved = match &newest {
                Some(membership) => !adopt_membership(membership, &tier, &ways, &mut known).await,
                None => false,
            };
            tokio::select! {
                changed = maps.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep(RESOLVE_PAUSE), if unresolved => {}
            }
        }
    };
    tokio::join!(follower.run(stop.clone()), stop.run_until_cancelled(adopting));
}

/// Follows the list of hot blocks until it is told to stop. The client should be nobody else's. May
/// be cancelled at any time.
pub async fn follow_hot(
    client: Arc<CoordinatorClient>,
    tier: Arc<CacheTierClient>,
    stop: CancellationToken,
) {
    HotFollower::new(client, |blocks| tier.adopt_hot(HotBlockReplicas(blocks))).run(stop).await;
}

/// Says whether every worker of the map has an address.
async fn adopt_membership(
    membership: &Arc<MemberRoster>,
    tier: &CacheTierClient,
    ways: &WorkerConnector,
    known: &mut KnownPeers,
) -> bool {
    let list = membership.clone();
    let placement = tokio::task::spawn_blocking(move || list.build_placement()).await;
    let placement: PlacementMap = match placement {
        Ok(Ok(placement)) => placement,
        Ok(Err(error)) => {
            tracing::error!(
                %error, epoch = membership.epoch.0,
                "a placement map makes no sense; the last one stands"
            );
            return true;
        }
        Err(error) => {
            tracing::error!(%error, "a placement map could not be computed");
            return true;
        }
    };
    let Some(peers) = peers_of(&membership.members, ways, known).await else { return true };
    let all: HashMap<WorkerId, Arc<TransportPeer>> =
        peers.iter().map(|(id, (_, _, peer))| (id.clone(), peer.clone())).collect();
    if let Err(error) = tier.adopt_map(placement, &all) {
        tracing::error!(%error, "a placement map could not be adopted; the last one stands");
    }
    // Peers that are in neither close by being dropped, once their calls have ended.
    *known = peers;
    all_found(known)
}

/// Whether every worker has an address.
pub fn all_found(known: &KnownPeers) -> bool {
    known.values().all(|(_, found, _)| *found != NOWHERE)
}

/// Peers of these members: those that are known at the same address, and new ones. `None`: peers
/// can't be made here.
pub async fn peers_of(
    members: &[ClusterMember],
    ways: &WorkerConnector,
    known: &KnownPeers,
) -> Option<KnownPeers> {
    let mut peers = KnownPeers::new();
    for member in members {
        let kept = known
            .get(&member.id)
            .filter(|(address, found, _)| *address == member.address && *found != NOWHERE);
        let made = match kept {
            Some(kept) => kept.clone(),
            None => {
                let found = resolve_address(&member.address).await.unwrap_or_else(|error| {
                    tracing::warn!(
                        worker = %member.id, address = member.address, %error,
                        "a worker's address can't be found"
                    );
                    NOWHERE
                });
                (member.address.clone(), found, ways.make_peer(&member.id, found)?)
            }
        };
        peers.insert(member.id.clone(), made);
    }
    Some(peers)
}

//! Follows the map of the coordinators, with which peers come and go. The process adopts both.

use std::error::Error;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use verbs3_protocol::{MemberRoster, PlacementMap};

use crate::client::CoordinatorClient;
use crate::map_follower::MapFollower;
use crate::member_peers::{MemberPeers, PeerSource, PeersByWorker, RESOLVE_PAUSE};

/// Takes a computed map and the peers of its members.
pub trait PlacementAdopter<P>: Send + Sync {
    /// Places requests by this map from here on. If it fails, the last map stands.
    fn adopt_placement(
        &self,
        placement: PlacementMap,
        peers: &PeersByWorker<P>,
    ) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Follows until told to stop. May be cancelled at any time.
pub async fn follow_placement<S: PeerSource>(
    client: Arc<CoordinatorClient>,
    source: Arc<S>,
    adopter: Arc<impl PlacementAdopter<S::Peer>>,
    stop: CancellationToken,
) {
    let (follower, mut maps) = MapFollower::new(client);
    let adopting = async {
        let mut peers = MemberPeers::new(source);
        loop {
            let newest = maps.borrow_and_update().clone();
            let unresolved = match &newest {
                Some(membership) => !adopt_membership(membership, &*adopter, &mut peers).await,
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

/// Returns whether every worker of the map has an address.
async fn adopt_membership<S: PeerSource>(
    membership: &Arc<MemberRoster>,
    adopter: &impl PlacementAdopter<S::Peer>,
    peers: &mut MemberPeers<S>,
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
    let Some(known) = peers.adopt_members(&membership.members).await else { return true };
    if let Err(error) = adopter.adopt_placement(placement, &known) {
        tracing::error!(%error, "a placement map could not be adopted; the last one stands");
    }
    peers.are_all_found()
}

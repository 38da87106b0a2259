//! The members of a map as peers: looks their addresses up, and keeps what is known.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use verbs3_protocol::{ClusterMember, WorkerId};

/// Pause before names that could not be resolved are looked up again.
pub const RESOLVE_PAUSE: Duration = Duration::from_secs(2);
/// Stands for an address that could not be found. Nothing connects to it.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9);

/// Makes peers: the part that a process hands in.
pub trait PeerSource: Send + Sync {
    /// What requests go through.
    type Peer: Send + Sync;

    /// Makes a peer that is reached at this address. `None`: peers can't be made here.
    fn make_peer(&self, worker: &WorkerId, address: SocketAddr) -> Option<Arc<Self::Peer>>;
}

/// Peers by worker.
pub type PeersByWorker<P> = HashMap<WorkerId, Arc<P>>;

/// Peers of the map that was adopted last.
pub struct MemberPeers<S: PeerSource> {
    source: Arc<S>,
    known: HashMap<WorkerId, KnownPeer<S::Peer>>,
}

struct KnownPeer<P> {
    /// As the map says it.
    address: String,
    /// What was found for it, or [`NOWHERE`].
    found: SocketAddr,
    peer: Arc<P>,
}

impl<S: PeerSource> MemberPeers<S> {
    /// Knows nobody.
    pub fn new(source: Arc<S>) -> Self {
        Self { source, known: HashMap::new() }
    }

    /// Returns peers of these members: those that are known at the same address, and new ones.
    /// `None`: peers can't be made here. May be cancelled at any time.
    pub async fn adopt_members(
        &mut self,
        members: &[ClusterMember],
    ) -> Option<PeersByWorker<S::Peer>> {
        let mut peers = HashMap::new();
        for member in members {
            let kept = self.known.get(&member.id);
            let kept = kept.filter(|kept| kept.address == member.address && kept.found != NOWHERE);
            let (found, peer) = match kept {
                Some(kept) => (kept.found, kept.peer.clone()),
                None => {
                    let found = find_member(member).await;
                    (found, self.source.make_peer(&member.id, found)?)
                }
            };
            let address = member.address.clone();
            peers.insert(member.id.clone(), KnownPeer { address, found, peer });
        }
        // Peers that are in neither close by being dropped, once their calls have ended.
        self.known = peers;
        let known = self.known.iter();
        Some(known.map(|(id, known)| (id.clone(), known.peer.clone())).collect())
    }

    /// Returns whether every worker has an address.
    pub fn are_all_found(&self) -> bool {
        self.known.values().all(|known| known.found != NOWHERE)
    }
}

async fn find_member(member: &ClusterMember) -> SocketAddr {
    resolve_address(&member.address).await.unwrap_or_else(|error| {
        tracing::warn!(
            worker = %member.id, address = member.address, %error,
            "a worker's address can't be found"
        );
        NOWHERE
    })
}

/// Looks a `host:port` up and prefers IPv4. Fails when the name has no address.
pub async fn resolve_address(address: &str) -> io::Result<SocketAddr> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host(address).await?.collect();
    let preferred = found.iter().find(|found| found.is_ipv4()).or(found.first());
    preferred.copied().ok_or_else(|| io::Error::other("the name has no address"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Addresses;

    impl PeerSource for Addresses {
        type Peer = SocketAddr;

        fn make_peer(&self, _: &WorkerId, address: SocketAddr) -> Option<Arc<SocketAddr>> {
            Some(Arc::new(address))
        }
    }

    fn member(id: &str, address: &str) -> ClusterMember {
        ClusterMember {
            id: WorkerId(id.into()),
            address: address.into(),
            weight: 1.0,
            zone: String::new(),
            draining: false,
        }
    }

    #[tokio::test]
    async fn a_peer_stays_while_its_address_does() {
        let mut peers = MemberPeers::new(Arc::new(Addresses));
        let (one, other) = (member("a", "127.0.0.1:1"), member("b", "127.0.0.1:2"));
        let before = peers.adopt_members(&[one.clone(), other]).await.unwrap();
        let moved = member("b", "127.0.0.1:3");
        let after = peers.adopt_members(&[one.clone(), moved.clone()]).await.unwrap();
        assert!(Arc::ptr_eq(&before[&one.id], &after[&one.id]));
        assert_eq!(*after[&moved.id], "127.0.0.1:3".parse().unwrap());
        assert!(peers.are_all_found());
        // It can be asked for nothing, and is looked up again.
        let nowhere = member("a", "no port");
        let after = peers.adopt_members(&[nowhere]).await.unwrap();
        assert_eq!((after.len(), peers.are_all_found()), (1, false));
        peers.adopt_members(&[one]).await.unwrap();
        assert!(peers.are_all_found());
    }
}

//! Owns the map that is current: the workers by placement, and the spread of hot blocks. Tells
//! whoever waits for another map when it comes.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::watch;
use verbs3_protocol::{Epoch, PlacementMap, WorkerId};
use verbs3_rdma::peer::TransportPeer;

use crate::asking::hot_blocks::{HotBlockReplicas, HotBlockSpread};
use crate::asking::worker::TierWorker;
use crate::asking::worker_map::TierWorkerMap;

/// Error: a placement map names a worker that can't be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("worker {0} is in the placement map, but there is no way to reach it; give its address")]
pub struct MissingPeer(pub WorkerId);

pub(crate) struct TierPlacement {
    map: ArcSwap<TierWorkerMap>,
    /// The hot blocks, whatever the map is. Locked while another map or another list is installed.
    hot: Mutex<HotBlockReplicas>,
    /// Epoch of the map, for callers that wait for another one.
    epochs: watch::Sender<Epoch>,
    hot_blocks: IntGauge,
}

impl TierPlacement {
    /// Creates the first map. `peers` must reach every member of `placement`.
    pub(crate) fn new(
        placement: PlacementMap,
        peers: &HashMap<WorkerId, Arc<TransportPeer>>,
        hot_blocks: IntGauge,
    ) -> Result<Self, MissingPeer> {
        let workers = join_peers(&placement, peers)?;
        let epochs = watch::channel(placement.map_epoch()).0;
        let spread = HotBlockSpread::default();
        let map = TierWorkerMap { placement: Arc::new(placement), workers, spread };
        Ok(Self { map: ArcSwap::from_pointee(map), hot: Mutex::default(), epochs, hot_blocks })
    }

    /// Replaces the map. Workers that both maps have under the same peer keep their state, health
    /// included. Calls under way to others end by themselves.
    pub(crate) fn adopt_map(
        &self,
        placement: PlacementMap,
        peers: &HashMap<WorkerId, Arc<TransportPeer>>,
    ) -> Result<(), MissingPeer> {
        let mut workers = join_peers(&placement, peers)?;
        let hot = self.hot.lock();
        let before = self.map.load_full();
        for worker in &mut workers {
            let known = before.workers.iter().find(|known| known.id == worker.id);
            if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.peer, &worker.peer)) {
                *worker = known.clone();
            }
        }
        let epoch = placement.map_epoch();
        self.install_map(Arc::new(placement), workers, &hot);
        self.epochs.send_replace(epoch);
        Ok(())
    }

    /// Replaces the list of hot blocks. Takes some milliseconds for hundreds of blocks and a
    /// thousand workers.
    pub(crate) fn adopt_hot(&self, hot: HotBlockReplicas) {
        let mut known = self.hot.lock();
        if *known == hot {
            return;
        }
        *known = hot;
        let map = self.map.load_full();
        self.install_map(map.placement.clone(), map.workers.clone(), &known);
    }

    /// Stores a map with its spread of hot blocks. `hot` is [`TierPlacement::hot`], locked.
    fn install_map(
        &self,
        placement: Arc<PlacementMap>,
        workers: Vec<Arc<TierWorker>>,
        hot: &HotBlockReplicas,
    ) {
        let spread = HotBlockSpread::new(hot, &placement);
        self.hot_blocks.set(spread.len() as i64);
        self.map.store(Arc::new(TierWorkerMap { placement, workers, spread }));
    }

    /// Returns the current map, for a moment.
    pub(crate) fn load_map(&self) -> Guard<Arc<TierWorkerMap>> {
        self.map.load()
    }

    /// Returns the current map, for a whole call.
    pub(crate) fn current_map(&self) -> Arc<TierWorkerMap> {
        self.map.load_full()
    }

    /// Returns a receiver of the current map's epoch.
    pub(crate) fn watch_epochs(&self) -> watch::Receiver<Epoch> {
        self.epochs.subscribe()
    }
}

fn join_peers(
    placement: &PlacementMap,
    peers: &HashMap<WorkerId, Arc<TransportPeer>>,
) -> Result<Vec<Arc<TierWorker>>, MissingPeer> {
    let workers = placement.map_members().iter().map(|member| {
        let peer = peers.get(&member.id).ok_or_else(|| MissingPeer(member.id.clone()))?.clone();
        Ok(Arc::new(TierWorker::new(member.id.clone(), peer)))
    });
    workers.collect()
}

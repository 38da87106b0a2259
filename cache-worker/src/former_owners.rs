//! Who owned a slot before this worker did, and who owns it now: whom to ask for its pages before
//! the UFS is asked, or instead.
//!
//! Owns the last maps, and the ways to the workers of the present one. Pages belong to versions:
//! who held them last has them right or not at all. Attributes are nobody's business here.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use verbs3_client::{HeldRead, HeldRequest, NeighbourClient, NeighbourError, TakeOverOutcome};
use verbs3_protocol::{
    BlockGeometry, Epoch, HashSlot, HoldsMessage, ObjectKey, PageIndex, PlacementMap, TakeOver,
    WorkerId,
};

use crate::clock::WorkerInstant;

/// Maps that are remembered, the present one included: 128 KiB for each replica of each. More
/// changes within the time that former owners are asked come from a cluster that restarts one
/// worker after the other; who missed a step finds the page at the UFS.
const MAPS_MAX: usize = 32;

/// Former owners that are asked for one page: the last one, and the one before, if the slot has
/// moved on quickly.
pub(crate) const ASKED_MAX: usize = 2;

/// The workers that owned slots before.
pub(crate) struct FormerOwners {
    /// How long after a change of the map.
    asked_for: Duration,
    history: RwLock<PlacementHistory>,
    neighbours: OnceLock<Arc<NeighbourClient>>,
}

#[derive(Default)]
struct PlacementHistory {
    me: Option<WorkerId>,
    /// The present one first; each with the moment up to which it was in force, as far as this
    /// worker knows.
    maps: VecDeque<(Arc<PlacementMap>, WorkerInstant)>,
}

impl FormerOwners {
    pub(crate) fn new(asked_for: Duration) -> Self {
        Self { asked_for, history: RwLock::default(), neighbours: OnceLock::new() }
    }

    /// Asks these from now on. The first word holds.
    pub(crate) fn set_neighbours(&self, neighbours: Arc<NeighbourClient>) {
        let _known_already = self.neighbours.set(neighbours);
    }

    /// Another map is in force, after `former`.
    pub(crate) fn adopt_map(
        &self,
        map: &PlacementMap,
        former: Option<&PlacementMap>,
        me: &WorkerId,
        now: WorkerInstant,
    ) {
        let mut history = self.history.write();
        history.me = Some(me.clone());
        if history.maps.front().is_some_and(|(last, _)| last.map_epoch() == map.map_epoch()) {
            return;
        }
        if let Some((_, until)) = history.maps.front_mut() {
            *until = now;
        }
        // Who joins, or has missed a map, has not followed the one before.
        let missed = former.filter(|former| {
            history.maps.iter().all(|(known, _)| known.map_epoch() != former.map_epoch())
        });
        if let Some(former) = missed {
            history.maps.push_front((Arc::new(former.clone()), now));
        }
        history.maps.push_front((Arc::new(map.clone()), now));
        history.maps.truncate(MAPS_MAX);
    }

    /// Former owners of a slot that is this worker's now, the last one first. Empty for most slots
    /// at most times.
    pub(crate) fn former_owners(&self, slot: HashSlot, now: WorkerInstant) -> Vec<WorkerId> {
        let mut found = Vec::new();
        let Some(neighbours) = self.neighbours.get() else { return found };
        let history = self.history.read();
        let mut maps = history.maps.iter();
        let (Some(me), Some((present, _))) = (&history.me, maps.next()) else { return found };
        if present.map_members().is_empty() || present.first_owner(slot).id != *me {
            return found;
        }
        for (map, _) in maps.take_while(|(_, until)| now.duration_since(*until) < self.asked_for) {
            // A map of nobody has no owners.
            let Some(&owner) = map.slot_owners(slot).first() else { continue };
            let id = &map.map_members()[usize::from(owner)].id;
            if id != me && !found.contains(id) && neighbours.knows_worker(id) {
                found.push(id.clone());
                if found.len() == ASKED_MAX {
                    break;
                }
            }
        }
        found
    }

    /// Whether there is anybody to ask.
    pub(crate) fn reaches_others(&self) -> bool {
        self.neighbours.get().is_some()
    }

    /// Whether this worker owns a slot by the present map.
    pub(crate) fn is_mine(&self, slot: HashSlot) -> bool {
        let history = self.history.read();
        let (Some(me), Some((map, _))) = (&history.me, history.maps.front()) else { return false };
        !map.map_members().is_empty() && map.first_owner(slot).id == *me
    }

    /// Who owns a slot by the present map, if that is another worker that can be asked.
    pub(crate) fn other_owner(&self, slot: HashSlot) -> Option<WorkerId> {
        let neighbours = self.neighbours.get()?;
        let (owner, _) = self.present_owner(slot)?;
        (!self.is_mine(slot) && neighbours.knows_worker(&owner)).then_some(owner)
    }

    /// Who owns a slot by the present map, and its epoch.
    pub(crate) fn present_owner(&self, slot: HashSlot) -> Option<(WorkerId, Epoch)> {
        let history = self.history.read();
        let (map, _) = history.maps.front()?;
        (!map.map_members().is_empty()).then(|| (map.first_owner(slot).id.clone(), map.map_epoch()))
    }

    pub(crate) async fn have_taken_over(
        &self,
        id: &WorkerId,
        asked: TakeOver,
    ) -> Result<TakeOverOutcome, NeighbourError> {
        match self.neighbours.get() {
            Some(neighbours) => neighbours.take_over(id, asked).await,
            None => Err(NeighbourError::Resting(id.clone())),
        }
    }

    pub(crate) async fn read_held(
        &self,
        id: &WorkerId,
        request: HeldRequest,
    ) -> Result<HeldRead, NeighbourError> {
        match self.neighbours.get() {
            Some(neighbours) => neighbours.read_held(id, request).await,
            None => Err(NeighbourError::Resting(id.clone())),
        }
    }

    /// Whether a former owner of the object's home slot seems to hold this page of its block 0.
    pub(crate) async fn former_owner_holds(
        &self,
        object: &ObjectKey,
        version_id: Option<&str>,
        geometry: BlockGeometry,
        page: u16,
        now: WorkerInstant,
    ) -> bool {
        let Some(neighbours) = self.neighbours.get() else { return false };
        for id in self.former_owners(object.home_slot(), now) {
            let version_id = version_id.map(str::to_owned);
            let holds = HoldsMessage {
                object: object.clone(),
                version_id,
                geometry,
                page: PageIndex(page),
            };
            if neighbours.likely_holds(&id, holds).await {
                return true;
            }
        }
        false
    }
}

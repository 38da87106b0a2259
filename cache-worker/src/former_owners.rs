//! The former owners of slots, and their present owners: the workers to ask for a slot's pages
//! before the UFS, or instead of it.
//!
//! Owns the recent maps and the connections to the workers of the present one. A page belongs to a
//! version, so a former owner has it right or not at all. This module does not handle attributes.

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

/// Maps that are remembered, the present one included: 128 KiB each for every rank. More changes
/// than that come only from a cluster that restarts one worker after the other. A worker that
/// missed a map gets the page from the UFS.
const MAPS_MAX: usize = 32;

/// Former owners that are asked for one page: the last one, and the one before it, in case the slot
/// moved again quickly.
pub(crate) const ASKED_MAX: usize = 2;

/// The history of slot ownership, and the workers that can be asked.
pub(crate) struct FormerOwners {
    /// How long after a map change former owners are asked.
    asked_for: Duration,
    history: RwLock<PlacementHistory>,
    neighbours: OnceLock<Arc<NeighbourClient>>,
}

#[derive(Default)]
struct PlacementHistory {
    me: Option<WorkerId>,
    /// The present map first. Each has the moment up to which it was in force, as far as this
    /// worker knows.
    maps: VecDeque<(Arc<PlacementMap>, WorkerInstant)>,
}

impl FormerOwners {
    pub(crate) fn new(asked_for: Duration) -> Self {
        Self { asked_for, history: RwLock::default(), neighbours: OnceLock::new() }
    }

    /// Sets the workers to ask. Only the first call has an effect.
    pub(crate) fn set_neighbours(&self, neighbours: Arc<NeighbourClient>) {
        let _known_already = self.neighbours.set(neighbours);
    }

    /// Puts another map in force, after `former`.
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
        // A worker that joins, or that missed a map, has not followed the one before.
        let missed = former.filter(|former| {
            history.maps.iter().all(|(known, _)| known.map_epoch() != former.map_epoch())
        });
        if let Some(former) = missed {
            history.maps.push_front((Arc::new(former.clone()), now));
        }
        history.maps.push_front((Arc::new(map.clone()), now));
        history.maps.truncate(MAPS_MAX);
    }

    /// Returns the former owners of a slot that this worker owns now, the last one first. Mostly
    /// empty.
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
            // A map without members has no owners.
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

    /// Returns whether other workers can be asked.
    pub(crate) fn reaches_others(&self) -> bool {
        self.neighbours.get().is_some()
    }

    /// Returns whether this worker owns a slot by the present map.
    pub(crate) fn is_mine(&self, slot: HashSlot) -> bool {
        let history = self.history.read();
        let (Some(me), Some((map, _))) = (&history.me, history.maps.front()) else { return false };
        !map.map_members().is_empty() && map.first_owner(slot).id == *me
    }

    /// Returns a slot's owner by the present map, if that is another worker that can be asked.
    pub(crate) fn other_owner(&self, slot: HashSlot) -> Option<WorkerId> {
        let neighbours = self.neighbours.get()?;
        let (owner, _) = self.present_owner(slot)?;
        (!self.is_mine(slot) && neighbours.knows_worker(&owner)).then_some(owner)
    }

    /// Returns a slot's owner by the present map, and the map's epoch.
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

    /// Returns whether a former owner of the object's home slot seems to hold this page of its
    /// block 0.
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

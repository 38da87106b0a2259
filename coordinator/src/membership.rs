//! Owns membership as the leader decides it: who holds a lease, which map is in force, and when the
//! next one may be. Pure: takes events and the time, and returns what to persist.
//!
//! # A change of the map
//! 1. The leader takes an unused epoch (persisted). It asks every worker to prepare, which means to
//!    stop answering under the present epoch.
//! 2. The new map comes into force (persisted) once every member of the present map has prepared or
//!    its lease is over. At least one must have prepared or left. If none has, they may all be cut
//!    off from the coordinators only, and go on with writes among themselves. Then the leader also
//!    waits for their outage time.
//! 3. Workers and gateways receive the map. No worker answers under the old map once the first one
//!    answers under the new map.
//!
//! A new leader assumes that every member holds a lease granted just before the election.

mod cluster_document;
mod cluster_view;
mod lease_grant;
mod lost_maps;
mod map_change;
mod member_record;
mod registration;
mod relay_check;
mod share_pacing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use verbs3_coordinator_client::api::{
    OpenWriteReport, RelinquishedEpoch, WorkerDeparture, WorkerIncarnation, WorkerLeaseGrant,
    WorkerLeaseRenewal,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{ClusterMember, WorkerId};

use crate::settings::CoordinatorSettings;
pub use cluster_document::{ClusterDocument, SlotShareMove};
use lease_grant::{MapAnnouncement, ReportedEpochs};
use lost_maps::LostMaps;
use map_change::PendingMapChange;
use member_record::{MemberRecord, OpenWriteHandover};
use registration::{RegistrationFlaw, are_rails};
use share_pacing::{STEPS, SharePacing};

/// By what the leader decides membership.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub settings: CoordinatorSettings,
    /// Workers that may serve a block.
    pub replicas: u16,
}

impl ClusterOptions {
    /// Returns the least time between two steps of one worker's share.
    fn step_time(&self) -> Duration {
        self.settings.move_for.0 / u32::from(STEPS)
    }
}

/// Reason for refusing a worker's request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    #[error("worker {0} is not registered here")]
    Unknown(WorkerId),
    #[error(
        "worker id {id} is held by another process, at {address}, for another {left_ms} ms; give \
        this worker another worker.id, or wait if it has moved"
    )]
    Taken { id: WorkerId, address: String, left_ms: u64 },
    #[error("another process has registered as worker {0}; give each its own worker.id")]
    Superseded(WorkerId),
    #[error("worker {id} can't be registered: {flaw}")]
    Malformed { id: WorkerId, flaw: RegistrationFlaw },
    #[error("{0} workers are registered, as many as there may be; raise coordinator.workers_max")]
    TooMany(usize),
    #[error("a new map is coming into force this moment; ask again")]
    Changing,
}

/// Next action of the leader.
#[derive(Debug, Clone, PartialEq)]
pub enum MembershipStep {
    /// Do nothing before this moment or the next event.
    Wait(LeaseInstant),
    /// Persist the document, then call [`MembershipController::confirm_persisted`].
    Persist(Box<ClusterDocument>),
}

/// The leader's state of the membership.
pub struct MembershipController {
    options: ClusterOptions,
    document: ClusterDocument,
    records: BTreeMap<WorkerId, MemberRecord>,
    change: Option<PendingMapChange>,
    /// The map of `change` is being persisted: members that have not prepared get no more leases.
    activating: bool,
    /// Since when the live workers differ from the map's.
    differs_since: Option<LeaseInstant>,
    /// What members of the former map handed over when they gave it up. A new leader does not have
    /// it.
    handed_over: BTreeMap<WorkerId, OpenWriteHandover>,
    /// Announcement of the map in force, shared by all answers.
    told: MapAnnouncement,
    /// Members that shut down in order, and what they handed over (`None`: not everything of the
    /// map in force). Kept until a map without them is in force.
    left: BTreeMap<WorkerId, Option<OpenWriteHandover>>,
    /// Members that a person declared dead. Kept until a map without them is in force.
    forgotten: BTreeSet<WorkerId>,
    /// Places that members of the map in force reported and that are not persisted yet. Until then
    /// these members get no lease: a next leader would grant one to another process at once.
    new_places: BTreeMap<WorkerId, u64>,
    pace: SharePacing,
    lost: LostMaps,
}

impl MembershipController {
    /// Creates the state of a leader that was elected at `now` and has persisted `document` in its
    /// own term.
    pub fn new(options: ClusterOptions, document: ClusterDocument, now: LeaseInstant) -> Self {
        let moving = |member: &ClusterMember| document.moving.get(&member.id);
        let is_drained =
            |member: &ClusterMember| moving(member).is_some_and(|moving| moving.draining);
        let lease_until = now.saturating_add(options.settings.lease.0);
        let record = |member: &ClusterMember| {
            // The weight may be a part of the whole, until the worker reports the whole.
            let draining = member.draining || is_drained(member);
            let place = document.places.get(&member.id).copied().unwrap_or(0);
            MemberRecord {
                stepped: moving(member).map(|_| now),
                ..MemberRecord::new(
                    ClusterMember { draining, ..member.clone() },
                    place,
                    lease_until,
                )
            }
        };
        let records = document
            .active
            .members
            .iter()
            .map(|member| (member.id.clone(), record(member)))
            .collect();
        let told = MapAnnouncement::new(&document, &BTreeMap::new());
        let pace = SharePacing::new(&document, options.step_time(), now);
        let lost = LostMaps::new(&document, now);
        Self {
            options,
            document,
            told,
            records,
            change: None,
            activating: false,
            differs_since: None,
            handed_over: BTreeMap::new(),
            left: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            new_places: BTreeMap::new(),
            pace,
            lost,
        }
    }

    /// Returns the document that was persisted last; it holds the map in force.
    pub fn cluster_document(&self) -> &ClusterDocument {
        &self.document
    }

    /// Renews the lease of a live worker, which reports its active and its prepared epoch.
    pub fn renew_lease(
        &mut self,
        id: &WorkerId,
        asked: &WorkerLeaseRenewal,
        now: LeaseInstant,
    ) -> Result<WorkerLeaseGrant, MembershipError> {
        let lease_until = now.saturating_add(self.options.settings.lease.0);
        let gave_up = self.change.as_ref().is_some_and(|change| change.prepared.contains_key(id));
        let changing = self.activating && !gave_up;
        let in_force = self.document.active.epoch;
        let record = self.find_record_mut(id, &asked.incarnation)?;
        if changing {
            return Err(MembershipError::Changing);
        }
        record.lease_until = lease_until;
        record.active = asked.active;
        if asked.active == in_force {
            // It has these writes now, and others since.
            record.resumes = None;
        }
        record.handing_over = asked.handing_over;
        // A bad list of rails does not cost the lease.
        if let Some(rails) = asked.rails.as_ref().filter(|rails| are_rails(rails)) {
            record.rails.clone_from(rails);
        }
        self.hear_lost_map(asked.active.max(asked.knows));
        self.hear_lost_map_given_up(asked);
        let noted = self.open_write_handover(id, asked.open_writes.as_ref(), asked.given_up);
        if let Some(change) = &mut self.change
            && change.membership.epoch == asked.prepared
        {
            change.prepared.insert(id.clone(), noted);
        }
        Ok(self.build_grant(id, ReportedEpochs::from_renewal(asked)))
    }

    /// Returns the news for a worker that has waited. Like [`MembershipController::renew_lease`],
    /// but without a new lease.
    pub fn lease_news(&self, id: &WorkerId, asked: &WorkerLeaseRenewal) -> WorkerLeaseGrant {
        self.build_grant(id, ReportedEpochs::from_renewal(asked))
    }

    /// Records that a worker ends and answers nobody any more.
    pub fn record_departure(
        &mut self,
        id: &WorkerId,
        asked: WorkerDeparture,
    ) -> Result<(), MembershipError> {
        let record = self.find_record_mut(id, &asked.incarnation)?;
        record.gone = true;
        // The map names another process, which may only be cut off. A process elsewhere can't speak
        // for it.
        if self.names(id).is_some() {
            self.left.insert(
                id.clone(),
                self.open_write_handover(id, asked.open_writes.as_ref(), asked.given_up),
            );
        }
        Ok(())
    }

    /// Returns what a departing process hands over. A process that never answered under the map in
    /// force does not know what was handed to it under that map. Then the report of the process
    /// before it is still complete.
    fn open_write_handover(
        &self,
        id: &WorkerId,
        open_writes: Option<&Vec<OpenWriteReport>>,
        given_up: RelinquishedEpoch,
    ) -> Option<OpenWriteHandover> {
        if given_up.epoch != self.document.active.epoch {
            return self.records.get(id).and_then(|record| record.resumes.clone());
        }
        open_writes.map(|all| OpenWriteHandover {
            open_writes: all.clone(),
            uncertain_ms: given_up.uncertain_ms,
        })
    }

    /// Marks a worker dead on a person's word. The leader still waits for its lease to end.
    pub fn forget_worker(&mut self, id: &WorkerId) -> Result<(), MembershipError> {
        let is_missing = self.document.missing.iter().any(|missing| missing.id == *id);
        match self.records.get_mut(id) {
            Some(record) => record.gone = true,
            None if is_missing => {}
            None => return Err(MembershipError::Unknown(id.clone())),
        }
        self.forgotten.insert(id.clone());
        Ok(())
    }

    /// Takes a worker's slots away, or gives them back. The worker stays a member.
    pub fn set_draining(&mut self, id: &WorkerId, draining: bool) -> Result<(), MembershipError> {
        let record =
            self.records.get_mut(id).ok_or_else(|| MembershipError::Unknown(id.clone()))?;
        record.member.draining = draining;
        Ok(())
    }

    /// Returns a live worker of another name that is reached at the same host and port, but not at
    /// the same place: that one is this process under its former name. Workers of one process have
    /// no such address.
    pub fn other_at_address(
        &self,
        id: &WorkerId,
        address: &str,
        now: LeaseInstant,
    ) -> Option<WorkerId> {
        if !address.contains(':') {
            return None;
        }
        let place = self.records.get(id).map_or(0, |record| record.place);
        let is_other = |(other, record): &(&WorkerId, &MemberRecord)| {
            let is_former = place != 0 && record.place == place;
            let is_live = record.is_live(now) && !is_former;
            *other != id && is_live && record.member.address == address
        };
        self.records.iter().find(is_other).map(|(other, _)| other.clone())
    }

    fn find_record_mut(
        &mut self,
        id: &WorkerId,
        incarnation: &WorkerIncarnation,
    ) -> Result<&mut MemberRecord, MembershipError> {
        let record = self.records.get_mut(id).filter(|record| !record.gone);
        let record = record.ok_or_else(|| MembershipError::Unknown(id.clone()))?;
        match &record.incarnation {
            Some(known) if known == incarnation => Ok(record),
            Some(_) => Err(MembershipError::Superseded(id.clone())),
            None => Err(MembershipError::Unknown(id.clone())),
        }
    }
}

#[cfg(test)]
mod tests;

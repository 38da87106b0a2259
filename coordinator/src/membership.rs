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

mod cluster_view;
mod map_change;
mod relay_check;
mod share_pacing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbs3_coordinator_client::api::{
    ActivationNews, DrainProgress, HandedOver, MapAnswer, OpenWriteReport, RelinquishedEpoch,
    WorkerDeparture, WorkerIncarnation, WorkerLeaseGrant, WorkerLeaseRenewal, WorkerRegistration,
    WorkerTierCapacity,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{ClusterMember, Epoch, MemberRoster, MembershipChange, WorkerId};

use crate::settings::CoordinatorSettings;
use map_change::PendingMapChange;
pub use share_pacing::SlotShareMove;
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

/// The persisted state of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterDocument {
    /// Number of won elections. A leader's first write raises it, which ends every write of the
    /// leader before.
    pub term: u64,
    /// Highest epoch that was ever used.
    pub highest: Epoch,
    /// The map in force.
    pub active: MemberRoster,
    /// The map before it.
    pub former: MemberRoster,
    /// Members of the map in force that have only a part of their share.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moving: BTreeMap<WorkerId, SlotShareMove>,
    /// Places where members of the map in force listen, as far as known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<WorkerId, u64>,
    /// Members of earlier maps that went without notice, so that a person learns of them. At most
    /// [`MISSING_MAX`].
    #[serde(default)]
    pub missing: Vec<ClusterMember>,
}

/// Most rails of one worker, and longest address of one. More than that is a mistake.
const RAILS_MAX: usize = 64;
const RAIL_BYTES_MAX: usize = 64;
/// Most missing workers that are remembered; nobody would read a longer list.
const MISSING_MAX: usize = 200;

impl ClusterDocument {
    /// Creates the document of a new cluster. Epochs start from the time, so followers of an
    /// earlier cluster of this name accept them.
    pub fn new(epoch: Epoch, replicas: u16) -> Self {
        let none = MemberRoster::new(Epoch(0), replicas, Vec::new());
        let moving = BTreeMap::new();
        let places = BTreeMap::new();
        Self {
            term: 0,
            highest: epoch,
            active: none.clone(),
            former: none,
            moving,
            places,
            missing: Vec::new(),
        }
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

/// What is wrong with a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationFlaw {
    #[error("an id has 1 to 64 bytes, and no slash or control character")]
    Id,
    #[error("its weight is not above 0")]
    Weight,
    #[error("its address, zone, tiers or rails make no sense")]
    Description,
}

struct MemberRecord {
    /// `None`: known only from the persisted map.
    incarnation: Option<WorkerIncarnation>,
    member: ClusterMember,
    /// 0: not reported.
    place: u64,
    tiers: Vec<WorkerTierCapacity>,
    rails: Vec<String>,
    lease_until: LeaseInstant,
    /// It left by itself, or a person declared it dead.
    gone: bool,
    /// Epoch under which it last said that it answers.
    active: Epoch,
    handing_over: Option<DrainProgress>,
    /// Set if the process before this one, under the present map, shut down in order: what it
    /// handed over.
    resumes: Option<OpenWriteHandover>,
    /// A process before this one may have answered under the present map.
    restarted: bool,
    /// When the lease of the process that the map names ends or ended. Set if this process has come
    /// up elsewhere.
    elsewhere_until: LeaseInstant,
    /// When its share last moved by a step.
    stepped: Option<LeaseInstant>,
    /// Number of steps that it takes at once when it joins.
    returns: u8,
}

impl MemberRecord {
    fn is_live(&self, now: LeaseInstant) -> bool {
        !self.gone && self.lease_until > now
    }
}

/// Everything that a member knew of writes when it gave up the map in force.
#[derive(Clone)]
struct OpenWriteHandover {
    open_writes: Vec<OpenWriteReport>,
    /// For this long there may be other writes, which it was not told of.
    uncertain_ms: u64,
}

/// Prepared answer that announces the map in force.
struct MapAnnouncement {
    from_former: MembershipChange,
    to_former: MembershipChange,
    handed_over: HandedOver,
}

impl MapAnnouncement {
    fn new(
        document: &ClusterDocument,
        handed_over: &BTreeMap<WorkerId, OpenWriteHandover>,
    ) -> Self {
        let ClusterDocument { active, former, .. } = document;
        let ids = || former.members.iter().map(|member| &member.id);
        let silent: Vec<WorkerId> =
            ids().filter(|id| !handed_over.contains_key(id)).cloned().collect();
        let handed_over = if silent.len() <= handed_over.len() {
            HandedOver::AllBut(silent)
        } else {
            HandedOver::Only(handed_over.keys().cloned().collect())
        };
        Self {
            from_former: former.change_to(active),
            to_former: active.change_to(former),
            handed_over,
        }
    }
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
}

impl MembershipController {
    /// Creates the state of a leader that was elected at `now` and has persisted `document` in its
    /// own term.
    pub fn new(options: ClusterOptions, document: ClusterDocument, now: LeaseInstant) -> Self {
        let moving = |member: &ClusterMember| document.moving.get(&member.id);
        let is_drained =
            |member: &ClusterMember| moving(member).is_some_and(|moving| moving.draining);
        let record = |member: &ClusterMember| MemberRecord {
            incarnation: None,
            // The weight may be a part of the whole, until the worker reports the whole.
            member: ClusterMember {
                draining: member.draining || is_drained(member),
                ..member.clone()
            },
            place: document.places.get(&member.id).copied().unwrap_or(0),
            tiers: Vec::new(),
            rails: Vec::new(),
            lease_until: now.saturating_add(options.settings.lease.0),
            gone: false,
            active: Epoch(0),
            handing_over: None,
            resumes: None,
            restarted: true,
            elsewhere_until: LeaseInstant::default(),
            stepped: moving(member).map(|_| now),
            returns: 0,
        };
        let records = document
            .active
            .members
            .iter()
            .map(|member| (member.id.clone(), record(member)))
            .collect();
        let told = MapAnnouncement::new(&document, &BTreeMap::new());
        let pace = SharePacing::new(&document, options.step_time(), now);
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
        }
    }

    /// Returns the document that was persisted last; it holds the map in force.
    pub fn cluster_document(&self) -> &ClusterDocument {
        &self.document
    }

    /// Returns the options that this leader was created with.
    pub fn cluster_options(&self) -> &ClusterOptions {
        &self.options
    }

    /// Registers a worker that joins, or a new process of a known worker.
    pub fn register_worker(
        &mut self,
        asked: WorkerRegistration,
        now: LeaseInstant,
    ) -> Result<WorkerLeaseGrant, MembershipError> {
        let WorkerRegistration {
            id,
            incarnation,
            address,
            weight,
            zone,
            tiers,
            rails,
            knows,
            place,
        } = asked;
        let malformed = |flaw| Err(MembershipError::Malformed { id: id.clone(), flaw });
        if id.0.is_empty() || id.0.len() > 64 || id.0.contains(|c: char| c.is_control() || c == '/')
        {
            return malformed(RegistrationFlaw::Id);
        }
        if !weight.is_finite() || weight <= 0.0 {
            return malformed(RegistrationFlaw::Weight);
        }
        if address.is_empty()
            || address.len() > 256
            || zone.len() > 256
            || tiers.len() > 16
            || !are_rails(&rails)
        {
            return malformed(RegistrationFlaw::Description);
        }
        // A process at the same place is the old one started again, because a place has one
        // listener. An address alone is no place: a name or a service may lead to two processes.
        // The first of them answers from its knowledge until its lease is over.
        let other = |record: &&MemberRecord| {
            let is_elsewhere =
                record.member.address != address || (record.place != 0 && record.place != place);
            record.incarnation.as_ref() != Some(&incarnation) && is_elsewhere
        };
        match self.records.get(&id) {
            Some(record) if record.is_live(now) && other(&record) => {
                let left = record.lease_until.saturating_duration_since(now).as_millis();
                let (address, left_ms) =
                    (record.member.address.clone(), u64::try_from(left).unwrap_or(u64::MAX));
                return Err(MembershipError::Taken { id, address, left_ms });
            }
            None if self.records.len() >= self.options.settings.workers_max as usize => {
                return Err(MembershipError::TooMany(self.records.len()));
            }
            Some(_) | None => {}
        }
        if self.activating {
            return Err(MembershipError::Changing);
        }
        let is_named = self.is_named(&id, &address, place);
        if is_named && place != 0 && !self.document.places.contains_key(&id) {
            self.new_places.insert(id, place);
            return Err(MembershipError::Changing);
        }
        // The new process has given up nothing, and answers in the place of the one before.
        let (mut resumes, mut restarted) = (None, false);
        if is_named {
            resumes = self.left.remove(&id).flatten();
            restarted = true;
            // The same process asks again, because the answer was lost.
            if let Some(same) = self
                .records
                .get(&id)
                .filter(|record| record.incarnation.as_ref() == Some(&incarnation))
            {
                (resumes, restarted) = (resumes.or_else(|| same.resumes.clone()), same.restarted);
            }
            self.forgotten.remove(&id);
            if let Some(change) = &mut self.change {
                change.prepared.remove(&id);
            }
        }
        // A worker that was told to drain stays so until it leaves: a restart must not bring its
        // slots back.
        let before = self.records.get(&id);
        let draining = before.is_some_and(|record| record.member.draining && record.is_live(now));
        let stepped = before.and_then(|record| record.stepped);
        let returns = self.pace.returning_steps(&id, &address, now);
        let member = ClusterMember { id: id.clone(), address, weight, zone, draining };
        let lease_until = now.saturating_add(self.options.settings.lease.0);
        let active = Epoch(0);
        let elsewhere_until = self.end_at_the_map(&id);
        let known = Some(incarnation.clone());
        let record = MemberRecord {
            incarnation: known,
            member,
            place,
            tiers,
            rails,
            lease_until,
            gone: false,
            active,
            handing_over: None,
            resumes,
            restarted,
            elsewhere_until,
            stepped,
            returns,
        };
        self.records.insert(id.clone(), record);
        let asked = WorkerLeaseRenewal {
            incarnation,
            active,
            prepared: Epoch(0),
            open_writes: None,
            wait_ms: 0,
            knows,
            handing_over: None,
            heard: Vec::new(),
            hot: None,
            given_up: RelinquishedEpoch::default(),
            rails: None,
        };
        Ok(self.build_grant(&id, &asked))
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
        let noted = self.open_write_handover(id, asked.open_writes.as_ref(), asked.given_up);
        if let Some(change) = &mut self.change
            && change.membership.epoch == asked.prepared
        {
            change.prepared.insert(id.clone(), noted);
        }
        Ok(self.build_grant(id, asked))
    }

    /// Returns the news for a worker that has waited. Like [`MembershipController::renew_lease`],
    /// but without a new lease.
    pub fn lease_news(&self, id: &WorkerId, asked: &WorkerLeaseRenewal) -> WorkerLeaseGrant {
        self.build_grant(id, asked)
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

    /// Returns whether the map in force means the process that listens here. If the map holds no
    /// place for the worker, it means any process at the address.
    fn is_named(&self, id: &WorkerId, address: &str, place: u64) -> bool {
        let named = self.document.active.get(id).is_some_and(|member| member.address == address);
        named && self.document.places.get(id).is_none_or(|known| *known == place)
    }

    /// Returns the record of the process that the map in force names. `None` if another one has
    /// come up elsewhere since.
    fn names(&self, id: &WorkerId) -> Option<&MemberRecord> {
        let record = self.records.get(id)?;
        self.is_named(id, &record.member.address, record.place).then_some(record)
    }

    /// Returns when the lease of the process that the map names ends or ended.
    fn end_at_the_map(&self, id: &WorkerId) -> LeaseInstant {
        let elsewhere = || self.records.get(id).map(|record| record.elsewhere_until);
        let named = self.names(id).map(|record| record.lease_until);
        named.or_else(elsewhere).unwrap_or_default()
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

    fn build_grant(&self, id: &WorkerId, asked: &WorkerLeaseRenewal) -> WorkerLeaseGrant {
        let &WorkerLeaseRenewal { active, prepared, knows, .. } = asked;
        let map = &self.document.active;
        // A process elsewhere is not the one that the map means.
        let member = self.names(id);
        let prepare = self
            .change
            .as_ref()
            .map(|change| change.membership.epoch)
            .filter(|&epoch| epoch != prepared);
        // No worker may begin to answer under a map that is being given up.
        let activation = member.filter(|_| active != map.epoch).filter(|_| self.change.is_none());
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        WorkerLeaseGrant {
            lease_ms: ms(self.options.settings.lease.0),
            outage_ms: ms(self.options.settings.outage.0),
            active: map.epoch,
            activation: activation.map(|record| self.build_activation(record, knows)),
            prepare: prepare.filter(|_| member.is_some()),
            words: Vec::new(),
            // The caller adds the leader's wish; membership does not decide it.
            hot: None,
        }
    }

    fn build_activation(&self, record: &MemberRecord, knows: Epoch) -> ActivationNews {
        let ClusterDocument { active, former, .. } = &self.document;
        let map = if knows == former.epoch && knows.0 > 0 {
            MapAnswer::Change(self.told.from_former.clone())
        } else if knows == active.epoch {
            MapAnswer::Change(active.change_to(active))
        } else {
            MapAnswer::Membership(active.clone())
        };
        let uncertain_ms = match &record.resumes {
            Some(noted) => noted.uncertain_ms,
            None => self.handed_over.values().map(|noted| noted.uncertain_ms).max().unwrap_or(0),
        };
        ActivationNews {
            map,
            former: self.told.to_former.clone(),
            handed_over: self.told.handed_over.clone(),
            open_writes: self
                .handed_over
                .values()
                .flat_map(|noted| &noted.open_writes)
                .copied()
                .collect(),
            resumes: record.resumes.as_ref().map(|noted| noted.open_writes.clone()),
            uncertain_ms,
            restarted: record.restarted,
        }
    }
}

/// Returns whether a list of rails is valid.
fn are_rails(rails: &[String]) -> bool {
    rails.len() <= RAILS_MAX && rails.iter().all(|rail| rail.len() <= RAIL_BYTES_MAX)
}

#[cfg(test)]
mod tests;

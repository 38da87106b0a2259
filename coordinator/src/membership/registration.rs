//! Registers workers: which process an id belongs to, and what it takes over from the one before.

use verbs3_coordinator_client::api::{WorkerIncarnation, WorkerLeaseGrant, WorkerRegistration};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{ClusterMember, Epoch, WorkerId};

use super::lease_grant::ReportedEpochs;
use super::member_record::{MemberRecord, OpenWriteHandover};
use super::{MembershipController, MembershipError};

/// Most rails of one worker, and longest address of one. More than that is a mistake.
pub(super) const RAILS_MAX: usize = 64;
const RAIL_BYTES_MAX: usize = 64;

/// What is wrong with a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationFlaw {
    #[error("an id has 1 to 64 bytes, and no slash or control character")]
    Id,
    #[error("its weight is not above 0")]
    Weight,
    #[error("its address, zone, tiers or rails make no sense")]
    Description,
    #[error("it follows a map that no coordinator has given out; start it again")]
    Epoch,
}

impl MembershipController {
    /// Registers a worker that joins, or a new process of a known worker.
    pub fn register_worker(
        &mut self,
        asked: WorkerRegistration,
        now: LeaseInstant,
    ) -> Result<WorkerLeaseGrant, MembershipError> {
        if let Some(flaw) = find_flaw(&asked) {
            return Err(MembershipError::Malformed { id: asked.id, flaw });
        }
        self.require_free_id(&asked, now)?;
        self.hear_lost_map(asked.knows);
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
        if self.activating {
            return Err(MembershipError::Changing);
        }
        let is_named = self.is_named(&id, &address, place);
        if is_named && place != 0 && !self.document.places.contains_key(&id) {
            self.new_places.insert(id, place);
            return Err(MembershipError::Changing);
        }
        let (resumes, restarted) =
            if is_named { self.succeed_process(&id, &incarnation) } else { (None, false) };
        // A worker that was told to drain stays so until it leaves: a restart must not bring its
        // slots back.
        let before = self.records.get(&id);
        let draining = before.is_some_and(|record| record.member.draining && record.is_live(now));
        let stepped = before.and_then(|record| record.stepped);
        let returns = self.pace.returning_steps(&id, &address, now);
        let member = ClusterMember { id: id.clone(), address, weight, zone, draining };
        let lease_until = now.saturating_add(self.options.settings.lease.0);
        let record = MemberRecord {
            incarnation: Some(incarnation),
            tiers,
            rails,
            resumes,
            restarted,
            elsewhere_until: self.end_at_the_map(&id),
            stepped,
            returns,
            ..MemberRecord::new(member, place, lease_until)
        };
        self.records.insert(id.clone(), record);
        Ok(self.build_grant(&id, ReportedEpochs { knows, ..ReportedEpochs::default() }))
    }

    /// Refuses a worker whose id another process holds, and one worker too many.
    fn require_free_id(
        &self,
        asked: &WorkerRegistration,
        now: LeaseInstant,
    ) -> Result<(), MembershipError> {
        let WorkerRegistration { id, incarnation, address, place, .. } = asked;
        // A process at the same place is the old one started again, because a place has one
        // listener. An address alone is no place: a name or a service may lead to two processes.
        // The first of them answers from its knowledge until its lease is over.
        let is_other = |record: &MemberRecord| {
            let is_elsewhere =
                record.member.address != *address || (record.place != 0 && record.place != *place);
            record.incarnation.as_ref() != Some(incarnation) && is_elsewhere
        };
        match self.records.get(id) {
            Some(record) if record.is_live(now) && is_other(record) => {
                let left = record.lease_until.saturating_duration_since(now).as_millis();
                Err(MembershipError::Taken {
                    id: id.clone(),
                    address: record.member.address.clone(),
                    left_ms: u64::try_from(left).unwrap_or(u64::MAX),
                })
            }
            None if self.records.len() >= self.options.settings.workers_max as usize => {
                Err(MembershipError::TooMany(self.records.len()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Puts a new process in the place of the one that the map names. Returns what that one handed
    /// over, and whether it may have answered. The new process has given up nothing.
    fn succeed_process(
        &mut self,
        id: &WorkerId,
        incarnation: &WorkerIncarnation,
    ) -> (Option<OpenWriteHandover>, bool) {
        let (mut resumes, mut restarted) = (self.left.remove(id).flatten(), true);
        // The same process asks again, because the answer was lost.
        let same = self.records.get(id);
        if let Some(same) = same.filter(|record| record.incarnation.as_ref() == Some(incarnation)) {
            (resumes, restarted) = (resumes.or_else(|| same.resumes.clone()), same.restarted);
        }
        self.forgotten.remove(id);
        if let Some(change) = &mut self.change {
            change.prepared.remove(id);
        }
        (resumes, restarted)
    }

    /// Returns whether the map in force means the process that listens here. If the map holds no
    /// place for the worker, it means any process at the address.
    fn is_named(&self, id: &WorkerId, address: &str, place: u64) -> bool {
        let named = self.document.active.get(id).is_some_and(|member| member.address == address);
        named && self.document.places.get(id).is_none_or(|known| *known == place)
    }

    /// Returns the record of the process that the map in force names. `None` if another one has
    /// come up elsewhere since.
    pub(super) fn names(&self, id: &WorkerId) -> Option<&MemberRecord> {
        let record = self.records.get(id)?;
        self.is_named(id, &record.member.address, record.place).then_some(record)
    }

    /// Returns when the lease of the process that the map names ends or ended.
    pub(super) fn end_at_the_map(&self, id: &WorkerId) -> LeaseInstant {
        let elsewhere = || self.records.get(id).map(|record| record.elsewhere_until);
        let named = self.names(id).map(|record| record.lease_until);
        named.or_else(elsewhere).unwrap_or_default()
    }
}

/// Returns what is wrong with a registration, whoever asks.
fn find_flaw(asked: &WorkerRegistration) -> Option<RegistrationFlaw> {
    let WorkerRegistration { id, address, weight, zone, tiers, rails, knows, .. } = asked;
    let is_odd = |c: char| c.is_control() || c == '/';
    if id.0.is_empty() || id.0.len() > 64 || id.0.contains(is_odd) {
        return Some(RegistrationFlaw::Id);
    }
    if !weight.is_finite() || *weight <= 0.0 {
        return Some(RegistrationFlaw::Weight);
    }
    if *knows >= Epoch::STATIC_MIN {
        return Some(RegistrationFlaw::Epoch);
    }
    let is_addressed = !address.is_empty() && address.len() <= 256;
    let is_described = is_addressed && zone.len() <= 256 && tiers.len() <= 16 && are_rails(rails);
    (!is_described).then_some(RegistrationFlaw::Description)
}

/// Returns whether a list of rails is valid.
pub(super) fn are_rails(rails: &[String]) -> bool {
    rails.len() <= RAILS_MAX && rails.iter().all(|rail| rail.len() <= RAIL_BYTES_MAX)
}

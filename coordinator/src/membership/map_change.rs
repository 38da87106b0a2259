//! Owns the change from one map to the next: when it is wanted, and when it may come into force.

use std::collections::BTreeMap;

use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{ClusterMember, Epoch, MemberRoster, WorkerId};

use super::cluster_document::MISSING_MAX;
use super::lease_grant::MapAnnouncement;
use super::member_record::OpenWriteHandover;
use super::share_pacing::TargetMembers;
use super::{ClusterDocument, MembershipController, MembershipStep, SlotShareMove};

/// Map on its way into force. Its epoch is persisted as used.
pub(super) struct PendingMapChange {
    pub(super) membership: MemberRoster,
    /// Members that have only a part of their share.
    pub(super) moving: BTreeMap<WorkerId, SlotShareMove>,
    /// Members that no longer answer under the present map, with their open writes (`None`: too
    /// many to report).
    pub(super) prepared: BTreeMap<WorkerId, Option<OpenWriteHandover>>,
}

/// Most open writes that one map's announcement carries: about 2 MB of JSON, sent to each member
/// within a lease.
pub(super) const HANDED_OVER_WRITES_MAX: usize = 20_000;

/// Drops the hand-overs of members with many open writes if the total is too large. These members
/// count as silent: for a while their slots are looked up at the UFS.
fn limit_handover_writes(
    mut handed: Vec<(WorkerId, OpenWriteHandover)>,
) -> BTreeMap<WorkerId, OpenWriteHandover> {
    handed.sort_by_key(|(_, noted)| noted.open_writes.len());
    let mut writes = 0;
    let told = handed.into_iter().take_while(|(_, noted)| {
        writes += noted.open_writes.len();
        writes <= HANDED_OVER_WRITES_MAX
    });
    told.collect()
}

/// Progress of a change towards coming into force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChangeReadiness {
    Ready,
    /// It waits for these members, until this moment at the latest.
    WaitsFor(Vec<WorkerId>, LeaseInstant),
}

impl MembershipController {
    /// Returns the leader's next action. Call it after every event, and at the moment that it
    /// returned. The caller must persist what it is told to. A leader whose write fails, or may
    /// have failed, must step down.
    pub fn decide_step(&mut self, now: LeaseInstant) -> MembershipStep {
        // Beside a change: a member gives up the present map only once it has a lease.
        let mut new_places = std::mem::take(&mut self.new_places);
        // The first place of an id is durable. It refuses a second process that came meanwhile.
        new_places.retain(|id, _| !self.document.places.contains_key(id));
        if !new_places.is_empty() {
            let mut places = self.document.places.clone();
            places.extend(new_places);
            return MembershipStep::Persist(Box::new(ClusterDocument {
                places,
                ..self.document.clone()
            }));
        }
        if let Some(document) = self.document_of_loss() {
            return MembershipStep::Persist(Box::new(document));
        }
        if let Some(change) = &self.change {
            if let ChangeReadiness::WaitsFor(_, until) = self.change_readiness(change, now) {
                return MembershipStep::Wait(until);
            }
            let (active, moving) = self.replan_map(change, now);
            let former = self.map_before(&active);
            self.activating = true;
            let missing = self.missing_members(&active, &former);
            let places = self.listen_places(&active);
            return MembershipStep::Persist(Box::new(ClusterDocument {
                active,
                former,
                moving,
                lost: None,
                places,
                missing,
                ..self.document.clone()
            }));
        }
        self.records
            .retain(|id, record| record.is_live(now) || self.document.active.get(id).is_some());
        if !self.is_wanted(&self.target_members(now)) {
            self.differs_since = None;
            // Only workers that are in no map are forgotten: the others' reports are still needed.
            let missing = self.missing_members(&self.document.active, &self.document.active);
            if missing != self.document.missing {
                return MembershipStep::Persist(Box::new(ClusterDocument {
                    missing,
                    ..self.document.clone()
                }));
            }
            self.forgotten.retain(|id| self.document.active.get(id).is_some());
            return MembershipStep::Wait(self.next_end(now));
        }
        let since = *self.differs_since.get_or_insert(now);
        let due = since.saturating_add(self.options.settings.gather.0);
        if now < due {
            return MembershipStep::Wait(due.min(self.next_end(now)));
        }
        MembershipStep::Persist(Box::new(ClusterDocument {
            highest: self.lost.plan_epoch(self.document.highest),
            ..self.document.clone()
        }))
    }

    /// Adds everybody who is there by now to a map that nobody was told of yet. So a rack that dies
    /// is one change, though its leases end one after the other. So is a crowd that joins.
    fn replan_map(
        &self,
        planned: &PendingMapChange,
        now: LeaseInstant,
    ) -> (MemberRoster, BTreeMap<WorkerId, SlotShareMove>) {
        let wanted = self.target_members(now);
        if wanted.is_owned() {
            (
                MemberRoster::new(planned.membership.epoch, self.options.replicas, wanted.members),
                wanted.moving,
            )
        } else {
            (planned.membership.clone(), planned.moving.clone())
        }
    }

    /// Records that the last step's document is durable.
    pub fn confirm_persisted(&mut self, document: ClusterDocument, now: LeaseInstant) {
        let before = std::mem::replace(&mut self.document, document);
        // A former process without a known place is taken to be where its successor is.
        for (id, record) in self.records.iter_mut().filter(|(_, record)| record.place == 0) {
            if !before.places.contains_key(id) {
                record.place = self.document.places.get(id).copied().unwrap_or(0);
            }
        }
        if self.document.active.epoch != before.active.epoch {
            self.finish_activation(&before.active);
            self.shares_moved(&before, now);
        } else if self.document.highest != before.highest {
            let wanted = self.target_members(now);
            // Workers may have come or gone during this write. A map that is no longer wanted has
            // only used up an epoch.
            if self.is_wanted(&wanted) && self.lost.is_planned(self.document.highest) {
                let TargetMembers { members, moving } = wanted;
                let membership =
                    MemberRoster::new(self.document.highest, self.options.replicas, members);
                self.change =
                    Some(PendingMapChange { membership, moving, prepared: BTreeMap::new() });
            }
            self.differs_since = None;
        }
    }

    /// Returns where members listen. From that the next leader tells a restarted process from
    /// another one.
    fn listen_places(&self, active: &MemberRoster) -> BTreeMap<WorkerId, u64> {
        let place = |id: &WorkerId| self.records.get(id).map_or(0, |record| record.place);
        let all = active.members.iter().map(|member| (member.id.clone(), place(&member.id)));
        all.filter(|(_, place)| *place != 0).collect()
    }

    /// Returns members that went without notice when `active` followed `former`.
    fn missing_members(&self, active: &MemberRoster, former: &MemberRoster) -> Vec<ClusterMember> {
        let silent = former.members.iter().filter(|member| !self.left.contains_key(&member.id));
        let known =
            self.document.missing.iter().filter(|missing| former.get(&missing.id).is_none());
        let back = |id: &WorkerId| active.get(id).is_some() || self.forgotten.contains(id);
        let mut missing: Vec<ClusterMember> =
            known.chain(silent).filter(|member| !back(&member.id)).cloned().collect();
        let too_many = missing.len().saturating_sub(MISSING_MAX);
        missing.drain(..too_many);
        missing
    }

    /// Returns the members that the present change waits for.
    pub(super) fn waiting_for(&self, now: LeaseInstant) -> Option<(Epoch, Vec<WorkerId>)> {
        let change = self.change.as_ref()?;
        let waiting = match self.change_readiness(change, now) {
            ChangeReadiness::Ready => Vec::new(),
            ChangeReadiness::WaitsFor(waiting, _) => waiting,
        };
        Some((change.membership.epoch, waiting))
    }

    fn finish_activation(&mut self, former: &MemberRoster) {
        self.activating = false;
        // After a loss nobody's report is complete, and nobody's knowledge.
        let has_lost = self.lost.is_due();
        self.lost.record_replacement();
        for record in self.records.values_mut() {
            (record.resumes, record.restarted) = (None, has_lost);
        }
        let Some(change) = self.change.take() else { return };
        let all = change.prepared.into_iter().chain(self.left.clone());
        // Only members count, and only those that could report everything.
        let handed =
            all.filter_map(|(id, noted)| former.get(&id).and(noted).map(|noted| (id, noted)));
        let handed = handed.filter(|_| !has_lost);
        self.handed_over = limit_handover_writes(handed.collect());
        self.told = MapAnnouncement::new(&self.document, &self.handed_over);
        // A departed process answers neither under the old map nor under the new one. A process
        // that has come up elsewhere since is a different one.
        let (left, forgotten) =
            (std::mem::take(&mut self.left), std::mem::take(&mut self.forgotten));
        let is_gone = |id: &WorkerId| self.names(id).is_some_and(|record| record.gone);
        // Their hand-overs concerned only the map before.
        let left = left.into_keys().filter(is_gone).map(|id| (id, None)).collect();
        let forgotten = forgotten.into_iter().filter(is_gone).collect();
        (self.left, self.forgotten) = (left, forgotten);
    }

    fn change_readiness(&self, change: &PendingMapChange, now: LeaseInstant) -> ChangeReadiness {
        let mut waiting = Vec::new();
        let (mut gave_up, mut latest_end) = (0, LeaseInstant::default());
        for member in &self.document.active.members {
            // A process elsewhere is not the one that the present map means.
            let record = self.names(&member.id);
            let end = self.end_at_the_map(&member.id);
            latest_end = latest_end.max(end);
            if self.left.contains_key(&member.id)
                || (record.is_some() && change.prepared.contains_key(&member.id))
            {
                gave_up += 1;
            } else if end > now {
                waiting.push((member.id.clone(), end));
            } else if self.forgotten.contains(&member.id) {
                gave_up += 1;
            }
        }
        let lost_until = self.lost_leases_end();
        if !waiting.is_empty() || lost_until > now {
            let until = waiting.iter().map(|(_, end)| *end).fold(lost_until, LeaseInstant::max);
            return ChangeReadiness::WaitsFor(
                waiting.into_iter().map(|(id, _)| id).collect(),
                until,
            );
        }
        let certain = latest_end.saturating_add(self.options.settings.outage.0);
        // A later map was given up: nobody answers under the one before it.
        let gave_up_later = self.lost.is_given_up();
        let has_members = !self.document.active.members.is_empty();
        if gave_up > 0 || gave_up_later || !has_members || now >= certain {
            return ChangeReadiness::Ready;
        }
        let all = self.document.active.members.iter().map(|member| member.id.clone()).collect();
        ChangeReadiness::WaitsFor(all, certain)
    }

    /// Returns whether the wanted map differs from the present one and has an owner for its slots.
    fn is_wanted(&self, wanted: &TargetMembers) -> bool {
        let MemberRoster { members, replicas, .. } = &self.document.active;
        // The map must name the process that is at a member's address now.
        let is_another = |member: &ClusterMember| {
            self.document.active.get(&member.id).is_some() && self.names(&member.id).is_none()
        };
        wanted.is_owned()
            && (self.lost.is_due()
                || wanted.members != *members
                || *replicas != self.options.replicas
                || wanted.members.iter().any(is_another))
    }

    /// Returns the next moment at which a lease ends or a share may move.
    fn next_end(&self, now: LeaseInstant) -> LeaseInstant {
        let ends = self
            .records
            .values()
            .filter(|record| record.is_live(now))
            .map(|record| record.lease_until);
        ends.min().unwrap_or(LeaseInstant::END).min(self.next_step(now))
    }
}

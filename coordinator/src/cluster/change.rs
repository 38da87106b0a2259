//! From one map to the next: when it is wanted, and when it may come into force.

use std::collections::BTreeMap;

use verbs3_coordinator_client::clock::Moment;
use verbs3_protocol::{ClusterMember, Epoch, Membership, WorkerId};

use super::share::Wanted;
use super::{Cluster, Document, MISSING_MAX, Moving, Noted, Step, Told};

/// A map on its way into force. Its epoch is persisted as used.
pub(super) struct Change {
    pub(super) membership: Membership,
    /// Its members that have a part of their share.
    pub(super) moving: BTreeMap<WorkerId, Moving>,
    /// Members of the present map that answer under it no more, with their open writes (`None`:
    /// they could not say all).
    pub(super) prepared: BTreeMap<WorkerId, Option<Noted>>,
}

/// Open writes that members are told of with a map, in all: about 2 MB in JSON, to each of them,
/// within a lease.
pub(super) const HANDED_OVER_WRITES_MAX: usize = 20_000;

/// Leaves out members with many open writes where there are too many in all: these count as silent,
/// so that their slots are asked at the UFS for a while.
fn as_can_be_told(mut handed: Vec<(WorkerId, Noted)>) -> BTreeMap<WorkerId, Noted> {
    handed.sort_by_key(|(_, noted)| noted.open_writes.len());
    let mut writes = 0;
    let told = handed.into_iter().take_while(|(_, noted)| {
        writes += noted.open_writes.len();
        writes <= HANDED_OVER_WRITES_MAX
    });
    told.collect()
}

/// Whether a change may come into force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// Of these members, until then at the latest.
    WaitsFor(Vec<WorkerId>, Moment),
}

impl Cluster {
    /// What is to be done now. Called after every event, and when its moment has come. What is to
    /// be persisted must be: a leader whose write fails, or may have failed, has to step down.
    pub fn step(&mut self, now: Moment) -> Step {
        // Beside a change: a member gives up the present map only once it has a lease.
        let new_places = std::mem::take(&mut self.new_places);
        if !new_places.is_empty() {
            let mut places = self.document.places.clone();
            places.extend(new_places);
            return Step::Persist(Box::new(Document { places, ..self.document.clone() }));
        }
        if let Some(change) = &self.change {
            if let Readiness::WaitsFor(_, until) = self.readiness(change, now) {
                return Step::Wait(until);
            }
            let ((active, moving), former) =
                (self.newest(change, now), self.document.active.clone());
            self.activating = true;
            let missing = self.missing(&active, &former);
            let places = self.places(&active);
            return Step::Persist(Box::new(Document {
                active,
                former,
                moving,
                places,
                missing,
                ..self.document.clone()
            }));
        }
        self.records
            .retain(|id, record| record.is_live(now) || self.document.active.get(id).is_some());
        if !self.is_wanted(&self.wanted(now)) {
            self.differs_since = None;
            // Only of who is in no map: the others' word is still needed.
            let missing = self.missing(&self.document.active, &self.document.active);
            if missing != self.document.missing {
                return Step::Persist(Box::new(Document { missing, ..self.document.clone() }));
            }
            self.forgotten.retain(|id| self.document.active.get(id).is_some());
            return Step::Wait(self.next_end(now));
        }
        let since = *self.differs_since.get_or_insert(now);
        let due = since.after(self.options.gather);
        if now < due {
            return Step::Wait(due.min(self.next_end(now)));
        }
        Step::Persist(Box::new(Document {
            highest: Epoch(self.document.highest.0 + 1),
            ..self.document.clone()
        }))
    }

    /// A map that nobody was told of yet, with whoever is there by now: a rack that dies is one
    /// change, though its leases end one after the other, and so is a crowd that joins.
    fn newest(&self, planned: &Change, now: Moment) -> (Membership, BTreeMap<WorkerId, Moving>) {
        let wanted = self.wanted(now);
        if wanted.is_owned() {
            (
                Membership::new(planned.membership.epoch, self.options.replicas, wanted.members),
                wanted.moving,
            )
        } else {
            (planned.membership.clone(), planned.moving.clone())
        }
    }

    /// The document of the last step is durable.
    pub fn persisted(&mut self, document: Document, now: Moment) {
        let before = std::mem::replace(&mut self.document, document);
        // The process before, which did not say, is taken to be where its next one is.
        for (id, record) in self.records.iter_mut().filter(|(_, record)| record.place == 0) {
            if !before.places.contains_key(id) {
                record.place = self.document.places.get(id).copied().unwrap_or(0);
            }
        }
        if self.document.active.epoch != before.active.epoch {
            self.activated(&before.active);
            self.shares_moved(&before, now);
        } else if self.document.highest != before.highest {
            let wanted = self.wanted(now);
            // A worker may have come or gone while this was written; what is not wanted any more
            // has only used up a number.
            if self.is_wanted(&wanted) {
                let Wanted { members, moving } = wanted;
                let membership =
                    Membership::new(self.document.highest, self.options.replicas, members);
                self.change = Some(Change { membership, moving, prepared: BTreeMap::new() });
            }
            self.differs_since = None;
        }
    }

    /// The next leader knows by them who was started again, and who is another.
    fn places(&self, active: &Membership) -> BTreeMap<WorkerId, u64> {
        let place = |id: &WorkerId| self.records.get(id).map_or(0, |record| record.place);
        let all = active.members.iter().map(|member| (member.id.clone(), place(&member.id)));
        all.filter(|(_, place)| *place != 0).collect()
    }

    /// Members that went without a word, once `active` has come after `former`.
    fn missing(&self, active: &Membership, former: &Membership) -> Vec<ClusterMember> {
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

    /// Members that the present change waits for.
    pub(super) fn waiting_for(&self, now: Moment) -> Option<(Epoch, Vec<WorkerId>)> {
        let change = self.change.as_ref()?;
        let waiting = match self.readiness(change, now) {
            Readiness::Ready => Vec::new(),
            Readiness::WaitsFor(waiting, _) => waiting,
        };
        Some((change.membership.epoch, waiting))
    }

    fn activated(&mut self, former: &Membership) {
        self.activating = false;
        for record in self.records.values_mut() {
            (record.resumes, record.restarted) = (None, false);
        }
        let Some(change) = self.change.take() else { return };
        let all = change.prepared.into_iter().chain(self.left.clone());
        // Only of members, and only of those that could say all.
        let handed =
            all.filter_map(|(id, noted)| former.get(&id).and(noted).map(|noted| (id, noted)));
        self.handed_over = as_can_be_told(handed.collect());
        self.told = Told::new(&self.document, &self.handed_over);
        // Who has left answers under the new map as little as under the old one.
        // A process that has come up since, elsewhere, is another one.
        let (left, forgotten) =
            (std::mem::take(&mut self.left), std::mem::take(&mut self.forgotten));
        let is_gone = |id: &WorkerId| self.names(id).is_some_and(|record| record.gone);
        // What they said was all of the map before.
        let left = left.into_keys().filter(is_gone).map(|id| (id, None)).collect();
        let forgotten = forgotten.into_iter().filter(is_gone).collect();
        (self.left, self.forgotten) = (left, forgotten);
    }

    fn readiness(&self, change: &Change, now: Moment) -> Readiness {
        let mut waiting = Vec::new();
        let (mut gave_up, mut latest_end) = (0, Moment::default());
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
        if !waiting.is_empty() {
            let until = waiting.iter().map(|(_, end)| *end).max().unwrap_or(now);
            return Readiness::WaitsFor(waiting.into_iter().map(|(id, _)| id).collect(), until);
        }
        let certain = latest_end.after(self.options.outage);
        if gave_up > 0 || self.document.active.members.is_empty() || now >= certain {
            return Readiness::Ready;
        }
        let all = self.document.active.members.iter().map(|member| member.id.clone()).collect();
        Readiness::WaitsFor(all, certain)
    }

    /// Another map than the present one, that somebody owns.
    fn is_wanted(&self, wanted: &Wanted) -> bool {
        let Membership { members, replicas, .. } = &self.document.active;
        // Where a process is another one at a member's address, the map has to mean that.
        let is_another = |member: &ClusterMember| {
            self.document.active.get(&member.id).is_some() && self.names(&member.id).is_none()
        };
        wanted.is_owned()
            && (wanted.members != *members
                || *replicas != self.options.replicas
                || wanted.members.iter().any(is_another))
    }

    /// The next moment at which a lease ends, or a share may move.
    fn next_end(&self, now: Moment) -> Moment {
        let ends = self
            .records
            .values()
            .filter(|record| record.is_live(now))
            .map(|record| record.lease_until);
        ends.min().unwrap_or(Moment::END).min(self.next_step(now))
    }
}

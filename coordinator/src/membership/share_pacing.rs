//! Moves slots at a bounded rate. A joining worker gets its share in four steps, and a drained one
//! gives it up in four. Each step is a map in which the worker has a part of its weight.
//!
//! Owns the part that each worker has in the map in force, and when the part may change. Does not
//! pace the loss of a worker: its slots move at once.

use std::collections::BTreeMap;
use std::time::Duration;

use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{ClusterMember, WorkerId};

use super::member_record::MemberRecord;
use super::{ClusterDocument, MembershipController, SlotShareMove};

/// Steps of a whole share. One map moves a worker by one step at most.
pub(super) const STEPS: u8 = 4;

/// Worker that was in an earlier map and is not in the one in force.
struct DepartedWorker {
    address: String,
    /// Steps that it had.
    steps: u8,
    until: LeaseInstant,
}

/// State of the pacing. It is lost with the leader: the next one goes on from the document, a
/// step's time after its election.
#[derive(Default)]
pub(super) struct SharePacing {
    /// No share moves before this moment. All shares move together, so that a joining crowd needs a
    /// few maps, and not a few for each worker.
    next: LeaseInstant,
    /// Until this moment the cluster is new and has nothing to move: a worker that joins gets its
    /// share at once.
    begins_until: LeaseInstant,
    /// Workers that left recently. One that comes back soon to the same place gets its share at
    /// once: as many slots moved when it left, and its disk still has the blocks.
    away: BTreeMap<WorkerId, DepartedWorker>,
}

/// The members that a map should have.
pub(super) struct TargetMembers {
    /// Ordered by id. A member with a part of its share has that part of its weight.
    pub(super) members: Vec<ClusterMember>,
    pub(super) moving: BTreeMap<WorkerId, SlotShareMove>,
}

impl TargetMembers {
    /// Returns whether somebody would own slots: a map without owners is worse than a map of absent
    /// workers.
    pub(super) fn is_owned(&self) -> bool {
        self.members.iter().any(|member| !member.draining)
    }
}

impl ClusterDocument {
    /// Returns how many steps of its share a worker has in the map in force.
    pub(super) fn steps_of(&self, id: &WorkerId) -> u8 {
        match (self.active.get(id), self.moving.get(id)) {
            (None, _) => 0,
            (Some(_), Some(moving)) => moving.steps.clamp(1, STEPS - 1),
            (Some(member), None) if member.draining => 0,
            (Some(_), None) => STEPS,
        }
    }

    /// Returns a worker's part of its share in percent, for people.
    pub(super) fn share_percent(&self, id: &WorkerId) -> u8 {
        self.steps_of(id) * (100 / STEPS)
    }

    fn is_owned(&self) -> bool {
        self.active.members.iter().any(|member| !member.draining)
    }
}

impl SharePacing {
    /// Creates the pacing of a leader that starts from this document.
    pub(super) fn new(document: &ClusterDocument, step: Duration, now: LeaseInstant) -> Self {
        let next = if document.moving.is_empty() {
            LeaseInstant::default()
        } else {
            now.saturating_add(step)
        };
        Self { next, ..Self::default() }
    }

    /// Returns whether joining workers get their share at once.
    pub(super) fn is_cluster_start(&self, now: LeaseInstant) -> bool {
        now < self.begins_until
    }

    /// Returns the steps that a worker gets at once when it joins, because it had them a moment
    /// ago.
    pub(super) fn returning_steps(&self, id: &WorkerId, address: &str, now: LeaseInstant) -> u8 {
        let away = self.away.get(id).filter(|away| away.address == address && now < away.until);
        away.map_or(0, |away| away.steps)
    }
}

impl MembershipController {
    /// Returns the least time between two steps of one worker.
    pub(super) fn step_time(&self) -> Duration {
        self.options.step_time()
    }

    /// Returns the present workers, each with as much of its share as it may have now.
    pub(super) fn target_members(&self, now: LeaseInstant) -> TargetMembers {
        let live = || self.records.values().filter(|record| record.is_live(now));
        let remains = live().any(|record| !record.member.draining);
        let mut wanted = TargetMembers { members: Vec::new(), moving: BTreeMap::new() };
        for record in live() {
            let id = &record.member.id;
            // This worker has not asked this leader yet. Only the map is known, which may hold a
            // part of its weight.
            if let (None, Some(member)) = (&record.incarnation, self.document.active.get(id)) {
                wanted.members.push(member.clone());
                wanted
                    .moving
                    .extend(self.document.moving.get(id).map(|moving| (id.clone(), *moving)));
                continue;
            }
            let steps = self.steps_now(record, remains, now);
            let mut member = ClusterMember { draining: steps == 0, ..record.member.clone() };
            if steps > 0 && steps < STEPS {
                let part = f64::from(steps) / f64::from(STEPS);
                // No weight may be 0, however small it was.
                member.weight = (member.weight * part).max(f64::MIN_POSITIVE);
                wanted
                    .moving
                    .insert(id.clone(), SlotShareMove { steps, draining: record.member.draining });
            }
            wanted.members.push(member);
        }
        wanted
    }

    /// Returns the steps that a worker may have in a map of this moment. `remains`: somebody else
    /// owns slots.
    fn steps_now(&self, record: &MemberRecord, remains: bool, now: LeaseInstant) -> u8 {
        let has = self.document.steps_of(&record.member.id);
        if record.member.draining {
            return match self.share_move_due(record) {
                _ if self.step_time().is_zero() => 0,
                Some(due) if due <= now && remains => has - 1,
                _ => has,
            };
        }
        let at_once = self.step_time().is_zero()
            || !self.document.is_owned()
            || self.pace.is_cluster_start(now);
        match self.share_move_due(record) {
            Some(_) if at_once => STEPS,
            Some(due) if due <= now => (has + 1).max(record.returns),
            _ => has,
        }
    }

    /// Returns when the worker's share may move by a step; `None`: it has reached its target.
    fn share_move_due(&self, record: &MemberRecord) -> Option<LeaseInstant> {
        let has = self.document.steps_of(&record.member.id);
        let wanted = if record.member.draining { 0 } else { STEPS };
        let rests = has == 0 || has == STEPS;
        let own = record
            .stepped
            .map_or(LeaseInstant::default(), |stepped| stepped.saturating_add(self.step_time()));
        (has != wanted).then(|| if rests { own } else { own.max(self.pace.next) })
    }

    /// Returns the next moment at which a share may move.
    pub(super) fn next_step(&self, now: LeaseInstant) -> LeaseInstant {
        let asks = self
            .records
            .values()
            .filter(|record| record.is_live(now) && record.incarnation.is_some());
        // A step that is due already is in the wanted map, unless nobody else could own slots.
        asks.filter_map(|record| self.share_move_due(record))
            .filter(|due| *due > now)
            .min()
            .unwrap_or(LeaseInstant::END)
    }

    /// Records that a new map is in force after that of `before`.
    pub(super) fn shares_moved(&mut self, before: &ClusterDocument, now: LeaseInstant) {
        let (step, move_for) = (self.step_time(), self.options.settings.move_for.0);
        let (document, pace) = (&self.document, &mut self.pace);
        let mut stepped = false;
        for (id, record) in
            self.records.iter_mut().filter(|(id, _)| document.active.get(id).is_some())
        {
            let moved = before.steps_of(id).abs_diff(document.steps_of(id));
            if moved > 0 && moved < STEPS {
                (record.stepped, stepped) = (Some(now), true);
            }
            record.returns = 0;
        }
        if stepped && now >= pace.next {
            pace.next = now.saturating_add(step);
        }
        if !before.is_owned() {
            pace.begins_until = now.saturating_add(move_for);
        }
        pace.away.retain(|id, away| now < away.until && document.active.get(id).is_none());
        let gone =
            before.active.members.iter().filter(|member| document.active.get(&member.id).is_none());
        for member in
            gone.take((self.options.settings.workers_max as usize).saturating_sub(pace.away.len()))
        {
            let (address, steps) = (member.address.clone(), before.steps_of(&member.id));
            pace.away.insert(
                member.id.clone(),
                DepartedWorker { address, steps, until: now.saturating_add(move_for) },
            );
        }
    }
}

//! How slots come and go at a bounded rate: a worker that joins gets its share of them in four
//! steps, and one that is drained gives it up in as many. Each step is a map, in which it has a
//! part of its weight.
//!
//! Owns which part each worker has in the map in force, and when it may have another. A worker that
//! is lost is no matter of this: its slots move at once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{ClusterMember, WorkerId};

use super::{ClusterDocument, MemberRecord, MembershipController};

/// Steps of a whole share. No map takes a worker further than one.
pub(super) const STEPS: u8 = 4;

/// A member of the map in force that has a part of its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotShareMove {
    /// Above 0, and not all.
    pub steps: u8,
    /// On its way to none.
    pub draining: bool,
}

/// A worker that was in a map before the one in force.
struct DepartedWorker {
    address: String,
    /// What it had.
    steps: u8,
    until: LeaseInstant,
}

/// What the leader goes by. Lost with it: the next one goes on from the document, a step's time
/// after its election.
#[derive(Default)]
pub(super) struct SharePacing {
    /// Shares on their way go on together, so that a crowd that joins is a few maps and not a few
    /// for each: not before this.
    next: LeaseInstant,
    /// The cluster has just begun, and has nothing that could be moved: whoever joins until then
    /// has its share at once.
    begins_until: LeaseInstant,
    /// Who comes back soon, to the same place, has its share at once: as much moved when it went,
    /// and its disk has the blocks.
    away: BTreeMap<WorkerId, DepartedWorker>,
}

/// The members that a map should have.
pub(super) struct TargetMembers {
    /// In the order of their ids. One with a part of its share has that part of its weight.
    pub(super) members: Vec<ClusterMember>,
    pub(super) moving: BTreeMap<WorkerId, SlotShareMove>,
}

impl TargetMembers {
    /// A map of nobody would be worse than one of absent workers.
    pub(super) fn is_owned(&self) -> bool {
        self.members.iter().any(|member| !member.draining)
    }
}

impl ClusterDocument {
    /// Steps of its share that a worker has in the map in force.
    pub(super) fn steps_of(&self, id: &WorkerId) -> u8 {
        match (self.active.get(id), self.moving.get(id)) {
            (None, _) => 0,
            (Some(_), Some(moving)) => moving.steps.clamp(1, STEPS - 1),
            (Some(member), None) if member.draining => 0,
            (Some(_), None) => STEPS,
        }
    }

    /// The same, for people.
    pub(super) fn share_percent(&self, id: &WorkerId) -> u8 {
        self.steps_of(id) * (100 / STEPS)
    }

    fn is_owned(&self) -> bool {
        self.active.members.iter().any(|member| !member.draining)
    }
}

impl SharePacing {
    /// Of a leader that finds this document.
    pub(super) fn new(document: &ClusterDocument, step: Duration, now: LeaseInstant) -> Self {
        let next = if document.moving.is_empty() {
            LeaseInstant::default()
        } else {
            now.saturating_add(step)
        };
        Self { next, ..Self::default() }
    }

    /// Whether whoever joins has its share at once.
    pub(super) fn is_cluster_start(&self, now: LeaseInstant) -> bool {
        now < self.begins_until
    }

    /// Steps that a worker takes at once when it joins, since it had them a moment ago.
    pub(super) fn returning_steps(&self, id: &WorkerId, address: &str, now: LeaseInstant) -> u8 {
        let away = self.away.get(id).filter(|away| away.address == address && now < away.until);
        away.map_or(0, |away| away.steps)
    }
}

impl MembershipController {
    /// The least time between two steps of one worker.
    pub(super) fn step_time(&self) -> Duration {
        self.options.step_time()
    }

    /// Who is here, each with as much of its share as it may have now.
    pub(super) fn target_members(&self, now: LeaseInstant) -> TargetMembers {
        let live = || self.records.values().filter(|record| record.is_live(now));
        let remains = live().any(|record| !record.member.draining);
        let mut wanted = TargetMembers { members: Vec::new(), moving: BTreeMap::new() };
        for record in live() {
            let id = &record.member.id;
            // Of one that has not asked this leader yet, only the map is known, which may have a
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
                // No weight is 0, however small it was.
                member.weight = (member.weight * part).max(f64::MIN_POSITIVE);
                wanted
                    .moving
                    .insert(id.clone(), SlotShareMove { steps, draining: record.member.draining });
            }
            wanted.members.push(member);
        }
        wanted
    }

    /// Steps that a worker may have in a map of this moment. `remains`: somebody is to own slots.
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

    /// When its share may move by a step; `None`: it is where it is to be.
    fn share_move_due(&self, record: &MemberRecord) -> Option<LeaseInstant> {
        let has = self.document.steps_of(&record.member.id);
        let wanted = if record.member.draining { 0 } else { STEPS };
        let rests = has == 0 || has == STEPS;
        let own = record
            .stepped
            .map_or(LeaseInstant::default(), |stepped| stepped.saturating_add(self.step_time()));
        (has != wanted).then(|| if rests { own } else { own.max(self.pace.next) })
    }

    /// The next moment at which a share may move.
    pub(super) fn next_step(&self, now: LeaseInstant) -> LeaseInstant {
        let asks = self
            .records
            .values()
            .filter(|record| record.is_live(now) && record.incarnation.is_some());
        // What is due already is in the map that is wanted, unless nobody else is there to own
        // anything.
        asks.filter_map(|record| self.share_move_due(record))
            .filter(|due| *due > now)
            .min()
            .unwrap_or(LeaseInstant::END)
    }

    /// A map is in force after that of `before`.
    pub(super) fn shares_moved(&mut self, before: &ClusterDocument, now: LeaseInstant) {
        let (step, move_for) = (self.step_time(), self.options.move_for);
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
        for member in gone.take(self.options.workers_max.saturating_sub(pace.away.len())) {
            let (address, steps) = (member.address.clone(), before.steps_of(&member.id));
            pace.away.insert(
                member.id.clone(),
                DepartedWorker { address, steps, until: now.saturating_add(move_for) },
            );
        }
    }
}

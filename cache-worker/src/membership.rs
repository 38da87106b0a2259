//! What a coordinated worker is told by whoever speaks with the coordinators for it: its lease, and
//! which map it answers under.
//!
//! Owns the ways in. What follows from them is [`crate::standing`]'s.

use std::collections::HashSet;
use std::time::Duration;

use verbs3_protocol::{KeyHash, PlacementMap, WorkerId, WriteId};

use crate::attributes::RecallScope;
use crate::standing::{CoordinatedStanding, MapHandover, WorkerStanding};
use crate::worker::CacheWorker;

/// A write that is announced and not reported, on its way from one home to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedWrite {
    pub hash: KeyHash,
    pub write: WriteId,
    /// How long it may still be under way.
    pub remaining: Duration,
}

/// A map that comes into force.
pub struct MapActivation<'a> {
    pub map: &'a PlacementMap,
    pub me: &'a WorkerId,
    /// The map before; `None`: there was none.
    pub former: Option<&'a PlacementMap>,
    /// Members of the former map that have handed over all their open writes.
    pub handed_over: HashSet<WorkerId>,
    /// These.
    pub open_writes: Vec<NotedWrite>,
    /// The open writes of the process before this one, if it ended in order under this very map.
    pub resumes: Option<Vec<NotedWrite>>,
    /// For so long there may be writes in slots that were handed over, or are resumed, which nobody
    /// could tell of.
    pub uncertain: Duration,
    /// Another process of this worker may have answered under this very map.
    pub restarted: bool,
}

impl CacheWorker {
    /// For so long the worker answers from what it knows, and for so long it takes part in writes.
    /// `left` is asked after this worker's clock: a process that is stopped between the two has
    /// less of the lease then, never more.
    pub fn hold_lease(&self, left: impl FnOnce() -> (Duration, Duration)) {
        let latest = self.clock.read_times().latest;
        let (lease, outage) = left();
        self.with_standing(|standing| {
            standing.set_lease(latest.saturating_add(lease), latest.saturating_add(outage))
        });
    }

    /// Answers under the present epoch no more, and recalls what gateways may answer by themselves:
    /// nobody may be told of it before [`CacheWorker::leases_over`]. The open writes, for the next
    /// homes; `None`: more than `max`.
    pub fn give_up_epoch(&self, max: usize) -> Option<Vec<NotedWrite>> {
        self.with_standing(CoordinatedStanding::give_up_epoch);
        self.grants.recall_all();
        let list = self.coherence.open_list(max, self.clock.now())?;
        Some(
            list.into_iter()
                .map(|(hash, write, remaining)| NotedWrite { hash, write, remaining })
                .collect(),
        )
    }

    /// Waits until no gateway answers by a lease that was recalled; no longer than leases last. May
    /// be cancelled.
    pub async fn leases_over(&self) {
        self.grants.wait_for_recalls(&RecallScope::All, &*self.clock).await;
    }

    /// Grants no more leases, and answers no poll for recalls: the worker ends.
    pub fn end_leases(&self) {
        self.grants.close_polls();
    }

    /// A process of this worker's name may have been killed a moment ago, and its leases live on:
    /// until that is known ([`MapActivation::restarted`]), or until they must be over, no write is
    /// acknowledged and no epoch given up. Said once, before anything is asked of the coordinators.
    pub fn follows_another(&self) {
        self.grants.follow_another(self.clock.now());
    }

    /// For so long there may be writes in some of this worker's slots that nobody could tell it of.
    /// Whoever is handed the open writes has to know this as well.
    pub fn uncertain_for(&self) -> Duration {
        match &self.standing {
            WorkerStanding::Coordinated(standing) => standing.uncertain_for(self.clock.now()),
            WorkerStanding::Fixed(_) => Duration::ZERO,
        }
    }

    /// Answers under this map.
    pub fn activate_map(&self, activation: MapActivation<'_>) {
        let MapActivation {
            map,
            me,
            former,
            mut handed_over,
            open_writes,
            resumes,
            uncertain,
            restarted,
        } = activation;
        let now = self.clock.now();
        if !restarted || resumes.is_some() {
            // Who handed over has waited for its leases; who did not, was waited for by the
            // coordinators.
            self.grants.follow_none();
        }
        let resumes = resumes.is_some_and(|writes| self.take_over(&writes));
        if !self.take_over(&open_writes) {
            // Some found no place: their slots are as if nobody had handed them over.
            handed_over.clear();
        }
        self.former.adopt_map(map, former, me, now);
        let (silent, inherited) = (self.uncertain_max, uncertain.min(self.uncertain_max));
        let handover = MapHandover {
            map,
            me,
            former,
            handed_over: &handed_over,
            resumes,
            restarted,
            inherited,
            silent,
        };
        self.with_standing(|standing| standing.activate_map(&handover, now));
        let draining = map.map_members().iter().any(|member| member.id == *me && member.draining);
        self.leaver.set_draining(draining, now.as_secs());
    }

    fn take_over(&self, writes: &[NotedWrite]) -> bool {
        let now = self.clock.now();
        let mut all = writes.iter();
        all.all(|noted| {
            self.coherence
                .inherit_write(noted.hash, noted.write, noted.remaining, self.uncertain_max, now)
                .is_ok()
        })
    }

    /// Nothing is told to a worker of a map that never changes.
    fn with_standing(&self, tell: impl FnOnce(&CoordinatedStanding)) {
        match &self.standing {
            WorkerStanding::Coordinated(standing) => tell(standing),
            WorkerStanding::Fixed(_) => {}
        }
    }
}

//! Runs the simulation's events in their order, until a time or until all agree.

use std::time::Duration;

use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::WorkerId;

use super::events::SimulationEvent;
use super::world::SimulatedWorld;

/// Longest time that anything may take.
const LIMIT: Duration = Duration::from_secs(300);

impl SimulatedWorld {
    /// Runs the next event. Returns `false` if it is later than `until`.
    fn run_next_event(&mut self, until: LeaseInstant) -> bool {
        if self.planned.peek().is_none_or(|due| due.at > until) {
            self.now = self.now.max(until);
            return false;
        }
        let Some(due) = self.planned.pop() else { return false };
        self.now = due.at;
        match due.event {
            SimulationEvent::LeaderWakes { term } if term == self.document.term => {
                self.run_leader_step()
            }
            SimulationEvent::Persisted { term, document } if term == self.document.term => {
                self.confirm_persisted(*document)
            }
            SimulationEvent::LeaderWakes { .. } | SimulationEvent::Persisted { .. } => {}
            SimulationEvent::Elected => self.elect_leader(),
            SimulationEvent::Published { coordinator, membership } => {
                self.publish_map(coordinator, &membership)
            }
            SimulationEvent::Worker { at, life, what } => self.handle_worker_event(at, life, what),
            SimulationEvent::Gateway { at, what } => self.handle_gateway_event(at, what),
        }
        true
    }

    /// Lets time pass.
    pub(super) fn pass_time(&mut self, time: Duration) {
        let until = self.now.saturating_add(time);
        while self.run_next_event(until) {}
    }

    /// Runs until all agree and each worker has its whole share. Returns when they first agreed,
    /// and when they had converged.
    pub(super) fn run_until_converged(&mut self) -> (LeaseInstant, LeaseInstant) {
        let (until, mut agreed) = (self.now.saturating_add(LIMIT), None);
        while !self.is_converged() {
            assert!(
                self.run_next_event(until),
                "no agreement within {LIMIT:?}: map {}",
                self.active_map().epoch.0
            );
            if agreed.is_none() && self.all_agree() {
                agreed = Some(self.now);
            }
        }
        (agreed.unwrap_or(self.now), self.now)
    }

    pub(super) fn is_converged(&self) -> bool {
        self.shares_rest() && self.all_agree()
    }

    /// Returns whether all agree. The map holds exactly the live workers. Each has a lease of the
    /// present leader and answers under the map. Every gateway places by it.
    fn all_agree(&self) -> bool {
        let map = self.active_map();
        if self.leader.is_none() || self.gateways_at.get(&map.epoch) != Some(&self.gateways.len()) {
            return false;
        }
        let living = self.workers.iter().filter(|worker| worker.alive);
        let mut count = 0;
        for worker in living {
            if worker.active != map.epoch || worker.term != self.current_term() {
                return false;
            }
            count += 1;
        }
        count == map.members.len() && map.members.iter().all(|member| self.is_alive(&member.id))
    }

    fn is_alive(&self, id: &WorkerId) -> bool {
        let at: Option<usize> = id.0.strip_prefix("gpu-").and_then(|at| at.parse().ok());
        at.is_some_and(|at| self.workers[at].alive)
    }
}

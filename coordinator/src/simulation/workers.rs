//! Workers of the simulation. Each does with its [`WorkerLease`] what
//! `WorkerLeaseKeeper` does, under the simulation's clock.

use std::time::Duration;

use rand::RngExt;
use verbs3_coordinator_client::api::{OpenWriteReport, WorkerIncarnation, WorkerLeaseGrant};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_coordinator_client::worker_lease::{WorkerLease, WorkerLeaseDuty};
use verbs3_protocol::{Epoch, WorkerId};

use super::events::{SimulatedQuestion, SimulatedWorkerEvent};
use super::world::{SimulatedWorker, SimulatedWorld};
use crate::membership::MembershipError;

/// Matches `WorkerLeaseKeeper`'s value.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

impl SimulatedWorld {
    /// Adds a worker that has not started yet.
    pub(super) fn add_worker(&mut self, zone: String) -> usize {
        let at = self.workers.len();
        self.workers.push(SimulatedWorker {
            id: WorkerId(format!("gpu-{at:04}")),
            zone,
            // Two generations of machines.
            weight: if at % 10 < 7 { 512.0 } else { 1024.0 },
            life: 0,
            alive: false,
            tenure: WorkerLease::new(WorkerIncarnation(String::new())),
            registered: false,
            pause: PAUSE_MIN,
            active: Epoch(0),
            computed: Epoch(0),
            lease_until: self.now,
            asks_since: None,
            term: 0,
            questions: 0,
        });
        at
    }

    /// Starts a new process of a worker.
    pub(super) fn start_worker(&mut self, at: usize, after: Duration) {
        let worker = &mut self.workers[at];
        worker.life += 1;
        let incarnation = WorkerIncarnation(format!("{:026x}{at:04x}{:02x}", 0, worker.life));
        (worker.alive, worker.tenure, worker.registered) =
            (true, WorkerLease::new(incarnation), false);
        (worker.active, worker.computed, worker.pause) = (Epoch(0), Epoch(0), PAUSE_MIN);
        // The worker serves nobody before it has joined, so no reader notices what it lacks.
        worker.asks_since = None;
        self.plan_worker(at, after, SimulatedWorkerEvent::Asks);
    }

    pub(super) fn kill_worker(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        (worker.alive, worker.active) = (false, Epoch(0));
    }

    /// Shuts a worker down in order: it answers nobody any more, and reports that.
    pub(super) fn end_worker(&mut self, at: usize) {
        let leave = self.workers[at].tenure.make_departure(Some(Vec::new()), Duration::ZERO);
        let id = self.workers[at].id.clone();
        self.kill_worker(at);
        if let Some(leader) = &mut self.leader {
            let _ = leader.cluster.record_departure(&id, leave);
        }
        self.run_leader_step();
    }

    pub(super) fn handle_worker_event(&mut self, at: usize, life: u32, what: SimulatedWorkerEvent) {
        if self.workers[at].life != life || !self.workers[at].alive {
            return;
        }
        match what {
            SimulatedWorkerEvent::Asks => {
                let worker = &self.workers[at];
                let question = if worker.registered {
                    SimulatedQuestion::Renew(worker.tenure.next_renewal())
                } else {
                    SimulatedQuestion::Register
                };
                let (sent, latency) = (self.now, self.draw_latency());
                self.counts.requests += 1;
                self.plan_worker(at, latency, SimulatedWorkerEvent::Arrives { question, sent });
            }
            SimulatedWorkerEvent::Arrives { question, sent } => {
                self.handle_question(at, question, sent)
            }
            SimulatedWorkerEvent::WaitOver { question } => {
                let Some(leader) = &mut self.leader else { return };
                let found = leader
                    .waiting
                    .iter()
                    .position(|one| (one.worker, one.question) == (at, question));
                if let Some(found) = found {
                    let patient = leader.waiting.swap_remove(found);
                    self.send_grant(at, patient.granted, patient.sent);
                }
            }
            SimulatedWorkerEvent::Answered { granted, sent } => {
                self.handle_grant(at, *granted, sent)
            }
            SimulatedWorkerEvent::Refused { error } => {
                self.workers[at].registered = false;
                let known = matches!(error, MembershipError::Unknown(_));
                self.plan_worker(
                    at,
                    if known { Duration::ZERO } else { REFUSED_PAUSE },
                    SimulatedWorkerEvent::Asks,
                );
            }
            SimulatedWorkerEvent::Away => {
                let pause = self.workers[at].pause;
                self.workers[at].pause = (pause * 2).min(PAUSE_MAX);
                let rest = pause.mul_f64(self.rng.random_range(0.5..1.0));
                self.plan_worker(at, rest, SimulatedWorkerEvent::Asks);
            }
            SimulatedWorkerEvent::Computed { epoch } => {
                self.workers[at].tenure.confirm_activation(epoch);
                (self.workers[at].active, self.workers[at].computed) = (epoch, epoch);
                self.close_asking_period(at);
                self.plan_worker(at, Duration::ZERO, SimulatedWorkerEvent::Asks);
            }
        }
    }

    fn handle_grant(&mut self, at: usize, granted: WorkerLeaseGrant, sent: LeaseInstant) {
        let (now, term) = (self.now, self.current_term());
        let news = granted.prepare.is_some() || granted.activation.is_some();
        let worker = &mut self.workers[at];
        // An answer from a leader that has died since says nothing about the next leader.
        worker.term = if self.leader.is_some() { term } else { 0 };
        (worker.registered, worker.pause) = (true, PAUSE_MIN);
        if worker.active.0 != 0 && worker.lease_until <= now {
            worker.asks_since.get_or_insert(worker.lease_until);
        }
        let mut computes = None;
        for duty in worker.tenure.apply_grant(sent, granted) {
            match duty {
                WorkerLeaseDuty::GiveUp => {
                    worker.active = Epoch(0);
                    worker.asks_since.get_or_insert(now);
                }
                WorkerLeaseDuty::Prepare(epoch) => {
                    if worker.active.0 != 0 {
                        worker.asks_since.get_or_insert(now);
                    }
                    worker.active = Epoch(0);
                    let open = |_| OpenWriteReport {
                        hash: self.rng.random(),
                        gateway: self.rng.random(),
                        sequence: self.rng.random_range(0..1_000_000),
                        remaining_ms: self.rng.random_range(0..60_000),
                        tenant: 0,
                    };
                    let open_writes = (0..self.scale.open_writes).map(open).collect();
                    worker.tenure.confirm_prepare(epoch, Some(open_writes), Duration::ZERO);
                }
                WorkerLeaseDuty::Activate(activation) => computes = Some(activation),
                WorkerLeaseDuty::Lease { until, .. } => worker.lease_until = until,
                // Nobody writes in the simulation.
                WorkerLeaseDuty::Hear(_) => {}
            }
        }
        let Some(activation) = computes else {
            self.close_asking_period(at);
            let rest = if news { Duration::ZERO } else { self.workers[at].tenure.renewal_pause() };
            return self.plan_worker(at, rest, SimulatedWorkerEvent::Asks);
        };
        let known = |epoch| epoch == worker.computed || epoch == Epoch(0);
        let maps = [activation.membership.epoch, activation.former.epoch]
            .into_iter()
            .filter(|&e| !known(e))
            .count();
        let after = Duration::from_millis(self.scale.compute_ms) * maps as u32;
        self.plan_worker(
            at,
            after,
            SimulatedWorkerEvent::Computed { epoch: activation.membership.epoch },
        );
    }

    /// Ends the worker's asking period once it has both a map and a lease.
    fn close_asking_period(&mut self, at: usize) {
        let now = self.now;
        let worker = &mut self.workers[at];
        if worker.active.0 != 0
            && worker.lease_until > now
            && let Some(since) = worker.asks_since.take()
        {
            self.counts.asking_longest =
                self.counts.asking_longest.max(now.saturating_duration_since(since));
        }
    }
}

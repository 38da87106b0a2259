//! Workers of the simulation. Each does with its [`WorkerLease`] what the command line's
//! `WorkerLeaseKeeper` does, under the simulation's clock.

use std::time::Duration;

use rand::RngExt;
use verbs3_coordinator_client::api::{
    OpenWriteReport, WorkerIncarnation, WorkerLeaseGrant, WorkerLeaseRenewal, WorkerRegistration,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_coordinator_client::worker_lease::{WorkerLease, WorkerLeaseDuty};
use verbs3_protocol::{Epoch, WorkerId};

use super::world::{SimulatedWorld, SimulationEvent};
use crate::membership::MembershipError;

/// Matches `WorkerLeaseKeeper`'s value.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct SimulatedWorker {
    pub(super) id: WorkerId,
    pub(super) zone: String,
    weight: f64,
    pub(super) life: u32,
    pub(super) alive: bool,
    tenure: WorkerLease,
    registered: bool,
    pause: Duration,
    /// Epoch under which it answers; 0: none.
    pub(super) active: Epoch,
    /// The last map that was computed.
    computed: Epoch,
    lease_until: LeaseInstant,
    /// Since when it must ask the UFS instead of answering from what it knows; `None`: it need not.
    asks_since: Option<LeaseInstant>,
    /// Term of the leader that granted the lease.
    pub(super) term: u64,
    questions: u64,
}

#[derive(Clone)]
pub(super) enum SimulatedQuestion {
    Register,
    Renew(WorkerLeaseRenewal),
}

pub(super) enum SimulatedWorkerEvent {
    Asks,
    Arrives {
        question: SimulatedQuestion,
        sent: LeaseInstant,
    },
    /// The coordinator waited for news in vain.
    WaitOver {
        question: u64,
    },
    Answered {
        granted: Box<WorkerLeaseGrant>,
        sent: LeaseInstant,
    },
    Refused {
        error: MembershipError,
    },
    Away,
    Computed {
        epoch: Epoch,
    },
}

/// Worker whose question waits for news.
pub(super) struct WaitingRenewal {
    worker: usize,
    life: u32,
    question: u64,
    renewal: WorkerLeaseRenewal,
    granted: WorkerLeaseGrant,
    sent: LeaseInstant,
}

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

    fn plan_worker(&mut self, at: usize, after: Duration, what: SimulatedWorkerEvent) {
        let life = self.workers[at].life;
        self.plan_event(after, SimulationEvent::Worker { at, life, what });
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

    /// Handles a question as the API's routes for registering and renewing do.
    fn handle_question(&mut self, at: usize, question: SimulatedQuestion, sent: LeaseInstant) {
        let (now, latency) = (self.now, self.draw_latency());
        let worker = &mut self.workers[at];
        let Some(leader) = &mut self.leader else {
            return self.plan_worker(at, latency, SimulatedWorkerEvent::Away);
        };
        let result = match &question {
            SimulatedQuestion::Register => leader.cluster.register_worker(
                WorkerRegistration {
                    id: worker.id.clone(),
                    incarnation: worker.tenure.worker_incarnation().clone(),
                    address: format!("{}.cluster.example:9400", worker.id),
                    weight: worker.weight,
                    zone: worker.zone.clone(),
                    tiers: Vec::new(),
                    rails: Vec::new(),
                    knows: worker.tenure.known_epoch(),
                    place: 0,
                },
                now,
            ),
            SimulatedQuestion::Renew(renewal) => {
                leader.cluster.renew_lease(&worker.id, renewal, now)
            }
        };
        match (result, question) {
            (Ok(granted), SimulatedQuestion::Renew(renewal))
                if granted.activation.is_none() && granted.prepare.is_none() =>
            {
                worker.questions += 1;
                let (life, question) = (worker.life, worker.questions);
                let wait = Duration::from_millis(renewal.wait_ms);
                let news = renewal.prepared.0 > 0;
                leader.waiting.push(WaitingRenewal {
                    worker: at,
                    life,
                    question,
                    renewal,
                    granted,
                    sent,
                });
                self.plan_worker(at, wait, SimulatedWorkerEvent::WaitOver { question });
                if news {
                    self.run_leader_step();
                }
            }
            (Ok(granted), _) => {
                self.send_grant(at, granted, sent);
                self.run_leader_step();
            }
            (Err(MembershipError::TooMany(_) | MembershipError::Changing), _) => {
                self.plan_worker(at, latency, SimulatedWorkerEvent::Away);
            }
            (Err(error), _) => {
                self.plan_worker(at, latency, SimulatedWorkerEvent::Refused { error })
            }
        }
    }

    /// Answers the workers whose questions wait for news.
    pub(super) fn tell_workers(&mut self) {
        let Some(leader) = &mut self.leader else { return };
        let waiting = std::mem::take(&mut leader.waiting);
        let mut told = Vec::new();
        for patient in waiting {
            let news =
                leader.cluster.lease_news(&self.workers[patient.worker].id, &patient.renewal);
            if news.activation.is_some() || news.prepare.is_some() {
                told.push((patient, news));
            } else {
                leader.waiting.push(patient);
            }
        }
        for (patient, news) in told {
            if self.workers[patient.worker].life == patient.life {
                self.send_grant(patient.worker, news, patient.sent);
            }
        }
    }

    pub(super) fn worker_lost(&mut self, patient: &WaitingRenewal) {
        if self.workers[patient.worker].life == patient.life {
            let latency = self.draw_latency();
            self.plan_worker(patient.worker, latency, SimulatedWorkerEvent::Away);
        }
    }

    fn send_grant(&mut self, at: usize, granted: WorkerLeaseGrant, sent: LeaseInstant) {
        let bytes = serde_json::to_vec(&granted).expect("answers can be encoded").len();
        self.counts.bytes_to_workers += bytes as u64;
        let Some(coordinator) = self.leader.as_ref().map(|leader| leader.coordinator) else {
            return;
        };
        let after = self.transfer_time(coordinator, bytes);
        self.plan_worker(
            at,
            after,
            SimulatedWorkerEvent::Answered { granted: Box::new(granted), sent },
        );
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

//! Coordinators of the simulation: the leader's loop over the real membership, and the answers to
//! workers and gateways. Each distinct answer to a gateway is decoded once for all that receive it.
//!
//! Made up: a write to the store takes 5 ms, and other coordinators hear of it 5 ms later; a leader
//! that dies is followed by another between three quarters of `coordinator.leadership` and all of
//! it.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use verbs3_coordinator_client::api::{MapAnswer, WorkerLeaseGrant, WorkerRegistration};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{Epoch, MemberRoster};

use super::events::{
    SimulatedGatewayEvent, SimulatedQuestion, SimulatedWorkerEvent, SimulationEvent,
};
use super::world::{COORDINATORS, SimulatedLeader, SimulatedWorld, WaitingGateway, WaitingRenewal};
use crate::membership::{ClusterDocument, ClusterOptions, MembershipController};
use crate::membership::{MembershipError, MembershipStep};
use crate::published_map::PublishedMap;
use crate::settings::CoordinatorSettings;

const STORE: Duration = Duration::from_millis(5);
const LEADERSHIP: Duration = Duration::from_secs(2);
/// Matches the longest sleep of the leader's loop.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Returns the configuration's defaults.
pub(super) fn simulation_options() -> ClusterOptions {
    ClusterOptions { settings: CoordinatorSettings::default(), replicas: 2 }
}

impl SimulatedWorld {
    /// Kills the leader's process; its host refuses connections.
    pub(super) fn kill_leader(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        let dead = &mut self.coordinators[leader.coordinator];
        dead.alive = false;
        let waiters = std::mem::take(&mut dead.waiting);
        for WaitingGateway { gateway, .. } in waiters {
            self.gateway_lost(gateway);
        }
        for patient in leader.waiting {
            self.worker_lost(&patient);
        }
        let after = LEADERSHIP.mul_f64(self.rng.random_range(0.75..1.0)) + STORE;
        self.plan_event(after, SimulationEvent::Elected);
    }

    pub(super) fn revive_coordinators(&mut self) {
        let current = Arc::new(self.document.active.clone());
        for coordinator in self.coordinators.iter_mut().filter(|coordinator| !coordinator.alive) {
            (coordinator.alive, coordinator.published) = (true, PublishedMap::new());
            coordinator.published.publish_map(&current);
        }
    }

    pub(super) fn elect_leader(&mut self) {
        let alive: Vec<usize> =
            (0..COORDINATORS).filter(|&at| self.coordinators[at].alive).collect();
        let coordinator = alive[self.rng.random_range(0..alive.len())];
        self.document.term += 1;
        let cluster =
            MembershipController::new(simulation_options(), self.document.clone(), self.now);
        let waiting = Vec::new();
        self.leader = Some(SimulatedLeader {
            coordinator,
            cluster,
            writing: false,
            wakes: LeaseInstant::END,
            waiting,
        });
        self.run_leader_step();
    }

    /// Runs one step, as the leader's loop does.
    pub(super) fn run_leader_step(&mut self) {
        let (now, term) = (self.now, self.document.term);
        let Some(leader) = self.leader.as_mut().filter(|leader| !leader.writing) else { return };
        match leader.cluster.decide_step(now) {
            MembershipStep::Persist(document) => {
                leader.writing = true;
                self.plan_event(STORE, SimulationEvent::Persisted { term, document });
            }
            MembershipStep::Wait(until) => {
                let until = until
                    .min(now.saturating_add(SLEEP_MAX))
                    .max(now.saturating_add(Duration::from_micros(1)));
                // Every event wakes the loop, so one planned look is enough.
                if leader.wakes <= now || until < leader.wakes {
                    leader.wakes = until;
                    self.plan_event(
                        until.saturating_duration_since(now),
                        SimulationEvent::LeaderWakes { term },
                    );
                }
            }
        }
    }

    pub(super) fn confirm_persisted(&mut self, document: ClusterDocument) {
        let Some(leader) = &mut self.leader else { return };
        leader.writing = false;
        leader.cluster.confirm_persisted(document.clone(), self.now);
        let new_map = document.active.epoch != self.document.active.epoch;
        let coordinator = leader.coordinator;
        self.document = document;
        if new_map {
            let membership = Arc::new(self.document.active.clone());
            self.maps.push(membership.clone());
            self.publish_map(coordinator, &membership);
            for other in (0..COORDINATORS).filter(|&other| other != coordinator) {
                self.plan_event(
                    STORE,
                    SimulationEvent::Published {
                        coordinator: other,
                        membership: membership.clone(),
                    },
                );
            }
        }
        self.tell_workers();
        self.run_leader_step();
    }

    pub(super) fn publish_map(&mut self, coordinator: usize, membership: &MemberRoster) {
        if self.coordinators[coordinator].alive {
            self.coordinators[coordinator].published.publish_map(membership);
            self.tell_gateways(coordinator);
        }
    }

    /// Handles a question as the API's routes for registering and renewing do.
    pub(super) fn handle_question(
        &mut self,
        at: usize,
        question: SimulatedQuestion,
        sent: LeaseInstant,
    ) {
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
    fn tell_workers(&mut self) {
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

    fn worker_lost(&mut self, patient: &WaitingRenewal) {
        if self.workers[patient.worker].life == patient.life {
            let latency = self.draw_latency();
            self.plan_worker(patient.worker, latency, SimulatedWorkerEvent::Away);
        }
    }

    pub(super) fn send_grant(&mut self, at: usize, granted: WorkerLeaseGrant, sent: LeaseInstant) {
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

    /// Handles a lost coordinator: its gateway asks another one at once.
    pub(super) fn gateway_lost(&mut self, at: usize) {
        let after = self.draw_latency();
        self.plan_event(after, SimulationEvent::Gateway { at, what: SimulatedGatewayEvent::Asks });
    }

    fn tell_gateways(&mut self, coordinator: usize) {
        let waiting = std::mem::take(&mut self.coordinators[coordinator].waiting);
        for waiter in waiting {
            if !self.tell_gateway(coordinator, waiter.gateway) {
                self.coordinators[coordinator].waiting.push(waiter);
            }
        }
    }

    /// Answers a gateway. Returns whether there was news.
    pub(super) fn tell_gateway(&mut self, coordinator: usize, at: usize) -> bool {
        let known = self.gateways[at].known.clone();
        let published = &self.coordinators[coordinator].published;
        let (current, epoch) =
            (published.current_map(), known.as_ref().map_or(Epoch(0), |known| known.epoch));
        if current.epoch <= epoch {
            return false;
        }
        let encoded = published.encode_answer(epoch, &current);
        let decoded = self.decoded.entry((epoch, current.epoch)).or_insert_with(|| {
            let answer: MapAnswer =
                serde_json::from_slice(&encoded).expect("answers can be decoded");
            let membership =
                answer.resolve_membership(known.as_deref()).expect("the answer fits what is known");
            assert_eq!(membership, *current, "what is told is the map in force");
            Arc::new(membership)
        });
        let membership = decoded.clone();
        self.counts.bytes_to_gateways += encoded.len() as u64;
        let after = self.transfer_time(coordinator, encoded.len());
        self.plan_event(
            after,
            SimulationEvent::Gateway { at, what: SimulatedGatewayEvent::Told { membership } },
        );
        true
    }
}

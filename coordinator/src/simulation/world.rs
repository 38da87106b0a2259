//! Owns the simulation's time, coordinators, network and store. Workers and gateways have files of
//! their own.
//!
//! Made up: a message takes 0.1 to 1 ms, and each coordinator sends at 10 Gb/s; a write to the
//! store takes 5 ms, and other coordinators hear of it 5 ms later; a leader that dies is followed
//! by another between three quarters of `coordinator.leadership` and all of it; computing a map
//! takes as long as [`SimulationScale::compute_ms`] says.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{Epoch, MemberRoster};

use super::gateways::{SimulatedGateway, WaitingGateway};
use super::scenario::SimulationScale;
use super::workers::{SimulatedWorker, WaitingRenewal};
use crate::membership::{ClusterDocument, ClusterOptions, MembershipController, MembershipStep};
use crate::published_map::PublishedMap;

pub(super) const COORDINATORS: usize = 3;
const BYTES_PER_SECOND: u64 = 1_250_000_000;
const STORE: Duration = Duration::from_millis(5);
const LEADERSHIP: Duration = Duration::from_secs(2);
/// Matches the longest sleep of the leader's loop.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Returns the configuration's defaults.
pub(super) fn simulation_options() -> ClusterOptions {
    ClusterOptions {
        lease: Duration::from_secs(6),
        outage: Duration::from_secs(600),
        gather: Duration::from_millis(200),
        move_for: Duration::from_secs(15),
        replicas: 2,
        workers_max: 4000,
    }
}

/// Event of the simulation. Its worker or coordinator may have died since; `life` and
/// `current_term` tell.
pub(super) enum SimulationEvent {
    LeaderWakes { term: u64 },
    Persisted { term: u64, document: Box<ClusterDocument> },
    Elected,
    Published { coordinator: usize, membership: Arc<MemberRoster> },
    Worker { at: usize, life: u32, what: super::workers::SimulatedWorkerEvent },
    Gateway { at: usize, what: super::gateways::SimulatedGatewayEvent },
}

struct PlannedEvent {
    at: LeaseInstant,
    serial: u64,
    event: SimulationEvent,
}

impl PartialEq for PlannedEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for PlannedEvent {}
impl PartialOrd for PlannedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for PlannedEvent {
    /// Orders the earliest event first; at one moment, in the order of planning.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

pub(super) struct SimulatedLeader {
    pub(super) coordinator: usize,
    pub(super) cluster: MembershipController,
    writing: bool,
    /// The next planned look at the clock.
    wakes: LeaseInstant,
    pub(super) waiting: Vec<WaitingRenewal>,
}

pub(super) struct SimulatedCoordinator {
    pub(super) alive: bool,
    pub(super) published: PublishedMap,
    pub(super) waiting: Vec<WaitingGateway>,
    link_free: LeaseInstant,
}

/// Counts of the simulation.
#[derive(Default, Clone)]
pub(super) struct SimulationCounts {
    /// Bytes of encoded answers.
    pub(super) bytes_to_workers: u64,
    pub(super) bytes_to_gateways: u64,
    pub(super) requests: u64,
    /// Longest time that one worker had to ask the UFS about attributes.
    pub(super) asking_longest: Duration,
}

pub(super) struct SimulatedWorld {
    pub(super) now: LeaseInstant,
    pub(super) scale: SimulationScale,
    pub(super) rng: SmallRng,
    planned: BinaryHeap<PlannedEvent>,
    serial: u64,
    /// Document as the store has it.
    document: ClusterDocument,
    pub(super) leader: Option<SimulatedLeader>,
    pub(super) coordinators: Vec<SimulatedCoordinator>,
    pub(super) workers: Vec<SimulatedWorker>,
    pub(super) gateways: Vec<SimulatedGateway>,
    pub(super) gateways_at: BTreeMap<Epoch, usize>,
    /// Maps that gateways received, by the epochs before and after.
    pub(super) decoded: BTreeMap<(Epoch, Epoch), Arc<MemberRoster>>,
    /// All maps that came into force.
    pub(super) maps: Vec<Arc<MemberRoster>>,
    pub(super) counts: SimulationCounts,
}

impl SimulatedWorld {
    pub(super) fn new(scale: SimulationScale, seed: u64) -> Self {
        let fresh = || SimulatedCoordinator {
            alive: true,
            published: PublishedMap::new(),
            waiting: Vec::new(),
            link_free: LeaseInstant::default(),
        };
        let mut world = Self {
            now: LeaseInstant::default().saturating_add(Duration::from_secs(1000)),
            scale,
            rng: SmallRng::seed_from_u64(seed),
            planned: BinaryHeap::new(),
            serial: 0,
            document: ClusterDocument::new(Epoch(1_790_000_000), 2),
            leader: None,
            coordinators: (0..COORDINATORS).map(|_| fresh()).collect(),
            workers: Vec::new(),
            gateways: Vec::new(),
            gateways_at: BTreeMap::new(),
            decoded: BTreeMap::new(),
            maps: Vec::new(),
            counts: SimulationCounts::default(),
        };
        world.elect_leader();
        world
    }

    pub(super) fn plan_event(&mut self, after: Duration, event: SimulationEvent) {
        self.serial += 1;
        self.planned.push(PlannedEvent {
            at: self.now.saturating_add(after),
            serial: self.serial,
            event,
        });
    }

    /// Runs the next event. Returns `false` if it is later than `until`.
    pub(super) fn run_next_event(&mut self, until: LeaseInstant) -> bool {
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

    pub(super) fn draw_latency(&mut self) -> Duration {
        Duration::from_micros(self.rng.random_range(100..1000))
    }

    /// Returns how long `bytes` take from a coordinator to a client.
    pub(super) fn transfer_time(&mut self, coordinator: usize, bytes: usize) -> Duration {
        let wire = Duration::from_nanos(bytes as u64 * 1_000_000_000 / BYTES_PER_SECOND);
        let link = &mut self.coordinators[coordinator].link_free;
        *link = self.now.max(*link).saturating_add(wire);
        let queued = link.saturating_duration_since(self.now);
        queued + self.draw_latency()
    }

    pub(super) fn current_term(&self) -> u64 {
        self.document.term
    }

    /// Returns whether no worker's share of the slots is moving.
    pub(super) fn shares_rest(&self) -> bool {
        self.document.moving.is_empty()
    }

    pub(super) fn active_map(&self) -> &MemberRoster {
        &self.document.active
    }

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

    fn elect_leader(&mut self) {
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

    fn confirm_persisted(&mut self, document: ClusterDocument) {
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

    fn publish_map(&mut self, coordinator: usize, membership: &MemberRoster) {
        if self.coordinators[coordinator].alive {
            self.coordinators[coordinator].published.publish_map(membership);
            self.tell_gateways(coordinator);
        }
    }
}

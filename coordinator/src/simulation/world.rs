//! Owns the simulation's state, its time and its network. Coordinators, workers and gateways have
//! files of their own.
//!
//! Made up: a message takes 0.1 to 1 ms, and each coordinator sends at 10 Gb/s; computing a map
//! takes as long as [`SimulationScale::compute_ms`] says. [`super::coordinators`] has the store's
//! delays.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use verbs3_coordinator_client::api::{WorkerLeaseGrant, WorkerLeaseRenewal};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_coordinator_client::worker_lease::WorkerLease;
use verbs3_protocol::{Epoch, MemberRoster, WorkerId};

use super::events::{PlannedEvent, SimulatedGatewayEvent, SimulatedWorkerEvent, SimulationEvent};
use crate::membership::{ClusterDocument, MembershipController};
use crate::published_map::PublishedMap;

pub(super) const COORDINATORS: usize = 3;
const BYTES_PER_SECOND: u64 = 1_250_000_000;

#[derive(Debug, Clone, Copy)]
pub(super) struct SimulationScale {
    pub(super) workers: usize,
    pub(super) gateways: usize,
    pub(super) racks: usize,
    /// Racks that are upgraded one after the other; further racks would repeat the result.
    pub(super) upgraded: usize,
    /// Workers that join at once.
    pub(super) joining: usize,
    /// Writes that each worker has open whenever it gives up a map.
    pub(super) open_writes: usize,
    /// Time to compute one map.
    pub(super) compute_ms: u64,
}

pub(super) struct SimulatedWorker {
    pub(super) id: WorkerId,
    pub(super) zone: String,
    pub(super) weight: f64,
    pub(super) life: u32,
    pub(super) alive: bool,
    pub(super) tenure: WorkerLease,
    pub(super) registered: bool,
    pub(super) pause: Duration,
    /// Epoch under which it answers; 0: none.
    pub(super) active: Epoch,
    /// The last map that was computed.
    pub(super) computed: Epoch,
    pub(super) lease_until: LeaseInstant,
    /// Since when it must ask the UFS instead of answering from what it knows; `None`: it need not.
    pub(super) asks_since: Option<LeaseInstant>,
    /// Term of the leader that granted the lease.
    pub(super) term: u64,
    pub(super) questions: u64,
}

/// Worker whose question waits for news.
pub(super) struct WaitingRenewal {
    pub(super) worker: usize,
    pub(super) life: u32,
    pub(super) question: u64,
    pub(super) renewal: WorkerLeaseRenewal,
    pub(super) granted: WorkerLeaseGrant,
    pub(super) sent: LeaseInstant,
}

pub(super) struct SimulatedGateway {
    pub(super) coordinator: usize,
    pub(super) known: Option<Arc<MemberRoster>>,
    /// Epoch by which it places requests.
    pub(super) adopted: Epoch,
    pub(super) questions: u64,
}

/// Gateway whose question waits for news.
pub(super) struct WaitingGateway {
    pub(super) gateway: usize,
    pub(super) question: u64,
}

pub(super) struct SimulatedLeader {
    pub(super) coordinator: usize,
    pub(super) cluster: MembershipController,
    pub(super) writing: bool,
    /// The next planned look at the clock.
    pub(super) wakes: LeaseInstant,
    pub(super) waiting: Vec<WaitingRenewal>,
}

pub(super) struct SimulatedCoordinator {
    pub(super) alive: bool,
    pub(super) published: PublishedMap,
    pub(super) waiting: Vec<WaitingGateway>,
    pub(super) link_free: LeaseInstant,
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
    pub(super) planned: BinaryHeap<PlannedEvent>,
    pub(super) serial: u64,
    /// Document as the store has it.
    pub(super) document: ClusterDocument,
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
        Self {
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
        }
    }

    pub(super) fn plan_event(&mut self, after: Duration, event: SimulationEvent) {
        self.serial += 1;
        self.planned.push(PlannedEvent {
            at: self.now.saturating_add(after),
            serial: self.serial,
            event,
        });
    }

    pub(super) fn plan_worker(&mut self, at: usize, after: Duration, what: SimulatedWorkerEvent) {
        let life = self.workers[at].life;
        self.plan_event(after, SimulationEvent::Worker { at, life, what });
    }

    pub(super) fn plan_gateway(&mut self, at: usize, after: Duration, what: SimulatedGatewayEvent) {
        self.plan_event(after, SimulationEvent::Gateway { at, what });
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
}

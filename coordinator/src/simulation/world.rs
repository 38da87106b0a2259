//! Time, the coordinators and what lies between everybody. Workers and gateways are in files of
//! their own.
//!
//! Made up: a message takes 0.1 to 1 ms, and each coordinator sends at 10 Gb/s; a write to the
//! store takes 5 ms, and other coordinators hear of it 5 ms later; a leader that dies is followed
//! by another between three quarters of `coordinator.leadership` and all of it; computing a map
//! takes as long as [`Scale::compute_ms`] says.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use verbs3_coordinator_client::clock::Moment;
use verbs3_protocol::{Epoch, Membership};

use super::gateways::{Gateway, Waiter};
use super::scenario::Scale;
use super::workers::{Patient, Worker};
use crate::cluster::{Cluster, ClusterOptions, Document, Step};
use crate::publish::Published;

pub(super) const COORDINATORS: usize = 3;
const BYTES_PER_SECOND: u64 = 1_250_000_000;
const STORE: Duration = Duration::from_millis(5);
const LEADERSHIP: Duration = Duration::from_secs(2);
/// As the leader's loop sleeps at most.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The configuration's defaults.
pub(super) fn options() -> ClusterOptions {
    ClusterOptions {
        lease: Duration::from_secs(6),
        outage: Duration::from_secs(600),
        gather: Duration::from_millis(200),
        move_for: Duration::from_secs(15),
        replicas: 2,
        workers_max: 4000,
    }
}

/// What happens to whom. Workers and coordinators may have died since: `life` and `term` tell.
pub(super) enum Event {
    LeaderWakes { term: u64 },
    Persisted { term: u64, document: Box<Document> },
    Elected,
    Published { coordinator: usize, membership: Arc<Membership> },
    Worker { at: usize, life: u32, what: super::workers::Happening },
    Gateway { at: usize, what: super::gateways::Happening },
}

struct Due {
    at: Moment,
    serial: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    /// The earliest first; at one moment, in the order in which they were planned.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

pub(super) struct Leader {
    pub(super) coordinator: usize,
    pub(super) cluster: Cluster,
    writing: bool,
    /// The next planned look at the clock.
    wakes: Moment,
    pub(super) waiting: Vec<Patient>,
}

pub(super) struct Coordinator {
    pub(super) alive: bool,
    pub(super) published: Published,
    pub(super) waiting: Vec<Waiter>,
    link_free: Moment,
}

/// What is counted.
#[derive(Default, Clone)]
pub(super) struct Counts {
    /// Of encoded answers.
    pub(super) bytes_to_workers: u64,
    pub(super) bytes_to_gateways: u64,
    pub(super) requests: u64,
    /// Longest time that one worker had to ask the UFS about attributes.
    pub(super) asking_longest: Duration,
}

pub(super) struct World {
    pub(super) now: Moment,
    pub(super) scale: Scale,
    pub(super) rng: SmallRng,
    planned: BinaryHeap<Due>,
    serial: u64,
    /// As the store has it.
    document: Document,
    pub(super) leader: Option<Leader>,
    pub(super) coordinators: Vec<Coordinator>,
    pub(super) workers: Vec<Worker>,
    pub(super) gateways: Vec<Gateway>,
    pub(super) gateways_at: BTreeMap<Epoch, usize>,
    /// What gateways were told, by what they knew.
    pub(super) decoded: BTreeMap<(Epoch, Epoch), Arc<Membership>>,
    /// All that came into force.
    pub(super) maps: Vec<Arc<Membership>>,
    pub(super) counts: Counts,
}

impl World {
    pub(super) fn new(scale: Scale, seed: u64) -> Self {
        let fresh = || Coordinator {
            alive: true,
            published: Published::new(),
            waiting: Vec::new(),
            link_free: Moment::default(),
        };
        let mut world = Self {
            now: Moment::default().after(Duration::from_secs(1000)),
            scale,
            rng: SmallRng::seed_from_u64(seed),
            planned: BinaryHeap::new(),
            serial: 0,
            document: Document::new(Epoch(1_790_000_000), 2),
            leader: None,
            coordinators: (0..COORDINATORS).map(|_| fresh()).collect(),
            workers: Vec::new(),
            gateways: Vec::new(),
            gateways_at: BTreeMap::new(),
            decoded: BTreeMap::new(),
            maps: Vec::new(),
            counts: Counts::default(),
        };
        world.elected();
        world
    }

    pub(super) fn plan(&mut self, after: Duration, event: Event) {
        self.serial += 1;
        self.planned.push(Due { at: self.now.after(after), serial: self.serial, event });
    }

    /// Lets the next thing happen; `false`: it is later than `until`.
    pub(super) fn step(&mut self, until: Moment) -> bool {
        if self.planned.peek().is_none_or(|due| due.at > until) {
            self.now = self.now.max(until);
            return false;
        }
        let Some(due) = self.planned.pop() else { return false };
        self.now = due.at;
        match due.event {
            Event::LeaderWakes { term } if term == self.document.term => self.decide(),
            Event::Persisted { term, document } if term == self.document.term => {
                self.persisted(*document)
            }
            Event::LeaderWakes { .. } | Event::Persisted { .. } => {}
            Event::Elected => self.elected(),
            Event::Published { coordinator, membership } => self.publish(coordinator, &membership),
            Event::Worker { at, life, what } => self.worker(at, life, what),
            Event::Gateway { at, what } => self.gateway(at, what),
        }
        true
    }

    pub(super) fn latency(&mut self) -> Duration {
        Duration::from_micros(self.rng.random_range(100..1000))
    }

    /// How long `bytes` take from a coordinator to whoever asked.
    pub(super) fn sent(&mut self, coordinator: usize, bytes: usize) -> Duration {
        let wire = Duration::from_nanos(bytes as u64 * 1_000_000_000 / BYTES_PER_SECOND);
        let link = &mut self.coordinators[coordinator].link_free;
        *link = self.now.max(*link).after(wire);
        let queued = link.since(self.now);
        queued + self.latency()
    }

    pub(super) fn term(&self) -> u64 {
        self.document.term
    }

    /// No worker's share of the slots is on its way.
    pub(super) fn rests(&self) -> bool {
        self.document.moving.is_empty()
    }

    pub(super) fn map(&self) -> &Membership {
        &self.document.active
    }

    /// The leader's process is killed; its host answers that nobody listens.
    pub(super) fn kill_leader(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        let dead = &mut self.coordinators[leader.coordinator];
        dead.alive = false;
        let waiters = std::mem::take(&mut dead.waiting);
        for Waiter { gateway, .. } in waiters {
            self.gateway_lost(gateway);
        }
        for patient in leader.waiting {
            self.worker_lost(&patient);
        }
        let after = LEADERSHIP.mul_f64(self.rng.random_range(0.75..1.0)) + STORE;
        self.plan(after, Event::Elected);
    }

    pub(super) fn revive_coordinators(&mut self) {
        let current = Arc::new(self.document.active.clone());
        for coordinator in self.coordinators.iter_mut().filter(|coordinator| !coordinator.alive) {
            (coordinator.alive, coordinator.published) = (true, Published::new());
            coordinator.published.publish(&current);
        }
    }

    fn elected(&mut self) {
        let alive: Vec<usize> =
            (0..COORDINATORS).filter(|&at| self.coordinators[at].alive).collect();
        let coordinator = alive[self.rng.random_range(0..alive.len())];
        self.document.term += 1;
        let cluster = Cluster::new(options(), self.document.clone(), self.now);
        let waiting = Vec::new();
        self.leader =
            Some(Leader { coordinator, cluster, writing: false, wakes: Moment::END, waiting });
        self.decide();
    }

    /// As the leader's loop does.
    pub(super) fn decide(&mut self) {
        let (now, term) = (self.now, self.document.term);
        let Some(leader) = self.leader.as_mut().filter(|leader| !leader.writing) else { return };
        match leader.cluster.step(now) {
            Step::Persist(document) => {
                leader.writing = true;
                self.plan(STORE, Event::Persisted { term, document });
            }
            Step::Wait(until) => {
                let until =
                    until.min(now.after(SLEEP_MAX)).max(now.after(Duration::from_micros(1)));
                // Woken by every event: one planned look is enough.
                if leader.wakes <= now || until < leader.wakes {
                    leader.wakes = until;
                    self.plan(until.since(now), Event::LeaderWakes { term });
                }
            }
        }
    }

    fn persisted(&mut self, document: Document) {
        let Some(leader) = &mut self.leader else { return };
        leader.writing = false;
        leader.cluster.persisted(document.clone(), self.now);
        let new_map = document.active.epoch != self.document.active.epoch;
        let coordinator = leader.coordinator;
        self.document = document;
        if new_map {
            let membership = Arc::new(self.document.active.clone());
            self.maps.push(membership.clone());
            self.publish(coordinator, &membership);
            for other in (0..COORDINATORS).filter(|&other| other != coordinator) {
                self.plan(
                    STORE,
                    Event::Published { coordinator: other, membership: membership.clone() },
                );
            }
        }
        self.tell_workers();
        self.decide();
    }

    fn publish(&mut self, coordinator: usize, membership: &Membership) {
        if self.coordinators[coordinator].alive {
            self.coordinators[coordinator].published.publish(membership);
            self.tell_gateways(coordinator);
        }
    }
}

//! The coordinators, as workers and gateways see them: the leader's `MembershipController`, what it has
//! persisted, and the way there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::time::{Instant, sleep};
use verbs3_coordinator::CoordinatorSettings;
use verbs3_coordinator::membership::{
    ClusterDocument, ClusterOptions, MembershipController, MembershipError, MembershipStep,
};
use verbs3_coordinator_client::api::{
    WorkerDeparture, WorkerLeaseGrant, WorkerLeaseRenewal, WorkerRegistration,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{Epoch, MemberRoster, PlacementMap, WorkerId};
use verbs3_settings::TimePeriod;
use verbs3_tests::seed;

pub const LEASE: Duration = Duration::from_secs(1);

/// The way between one worker and the coordinators.
pub struct Way {
    pub is_heard: AtomicBool,
    pub hears: AtomicBool,
}

impl Way {
    pub fn pass(&self, is_heard: bool, hears: bool) {
        self.is_heard.store(is_heard, Ordering::SeqCst);
        self.hears.store(hears, Ordering::SeqCst);
    }
}

struct Leader {
    cluster: MembershipController,
    /// In the store.
    document: ClusterDocument,
    maps: u64,
}

pub struct Control {
    leader: Mutex<Leader>,
    pub ways: Vec<Way>,
    placements: Mutex<HashMap<Epoch, Arc<PlacementMap>>>,
    start: Instant,
    /// Longest way of a question or an answer, but for rare ones that take thirty times as long.
    slowness: u64,
    rng: Mutex<SmallRng>,
}

pub enum Question {
    Register(WorkerRegistration),
    Renew(WorkerId, WorkerLeaseRenewal),
}

/// What a worker hears.
pub enum Answer {
    Granted(Box<WorkerLeaseGrant>),
    /// It has to register.
    Unknown,
    /// Nothing, or that it is to ask again later.
    None,
}

impl Control {
    pub fn new(workers: usize, seed: u64) -> Self {
        let (start, mut rng) = (Instant::now(), seed::rng(seed, 2));
        let document = ClusterDocument::new(Epoch(100), 2);
        let cluster =
            MembershipController::new(options(), document.clone(), LeaseInstant::default());
        let way = || Way { is_heard: AtomicBool::new(true), hears: AtomicBool::new(true) };
        Self {
            leader: Mutex::new(Leader { cluster, document, maps: 0 }),
            ways: (0..workers).map(|_| way()).collect(),
            placements: Mutex::default(),
            start,
            slowness: [10, 60, 300][rng.random_range(0..3)],
            rng: Mutex::new(rng),
        }
    }

    pub fn now(&self) -> LeaseInstant {
        LeaseInstant::default().saturating_add(self.start.elapsed())
    }

    /// Does what the leader does, until it is dropped.
    pub async fn lead(&self) {
        loop {
            let step = {
                let (mut leader, now) = (self.leader.lock(), self.now());
                let step = leader.cluster.decide_step(now);
                if let MembershipStep::Persist(document) = &step {
                    // Durable at once, and known to be so later: the worst for all others.
                    leader.maps += u64::from(document.active.epoch != leader.document.active.epoch);
                    leader.document = ClusterDocument::clone(document);
                }
                step
            };
            match step {
                MembershipStep::Persist(document) => {
                    self.pass().await;
                    let (mut leader, now) = (self.leader.lock(), self.now());
                    // Not by another leader.
                    if leader.document == *document {
                        leader.cluster.confirm_persisted(*document, now);
                    }
                }
                MembershipStep::Wait(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Another one leads, and knows what was persisted.
    pub fn depose(&self) {
        let (mut leader, now) = (self.leader.lock(), self.now());
        leader.document.term += 1;
        leader.cluster = MembershipController::new(options(), leader.document.clone(), now);
    }

    pub fn drain(&self, worker: &WorkerId, draining: bool) {
        let _ = self.leader.lock().cluster.set_draining(worker, draining);
    }

    pub fn leave(&self, worker: &WorkerId, leave: WorkerDeparture) {
        let _ = self.leader.lock().cluster.record_departure(worker, leave);
    }

    /// Asks by the worker's way. May take longer than the lease.
    pub async fn ask(&self, way: usize, question: Question) -> Answer {
        self.pass().await;
        let way = &self.ways[way];
        if !way.is_heard.load(Ordering::SeqCst) {
            sleep(LEASE / 5).await;
            return Answer::None;
        }
        let granted = {
            let (mut leader, now) = (self.leader.lock(), self.now());
            match question {
                Question::Register(registration) => {
                    leader.cluster.register_worker(registration, now)
                }
                Question::Renew(id, renewal) => leader.cluster.renew_lease(&id, &renewal, now),
            }
        };
        self.pass().await;
        match granted {
            _ if !way.hears.load(Ordering::SeqCst) => Answer::None,
            Ok(granted) => Answer::Granted(Box::new(granted)),
            Err(MembershipError::Unknown(_) | MembershipError::Superseded(_)) => Answer::Unknown,
            Err(_) => Answer::None,
        }
    }

    /// The map in force.
    pub fn map(&self) -> MemberRoster {
        self.leader.lock().document.active.clone()
    }

    pub fn maps(&self) -> u64 {
        self.leader.lock().maps
    }

    /// Of a membership of this cluster, computed once.
    pub fn placement(&self, membership: &MemberRoster) -> Option<Arc<PlacementMap>> {
        let mut placements = self.placements.lock();
        if let Some(placement) = placements.get(&membership.epoch) {
            return Some(placement.clone());
        }
        let placement = Arc::new(membership.build_placement().ok()?);
        placements.insert(membership.epoch, placement.clone());
        Some(placement)
    }

    async fn pass(&self) {
        let rare = self.rng.lock().random_bool(0.02);
        let milliseconds =
            self.rng.lock().random_range(0..=self.slowness * if rare { 30 } else { 1 });
        sleep(Duration::from_millis(milliseconds)).await;
    }
}

fn options() -> ClusterOptions {
    let settings = CoordinatorSettings {
        lease: TimePeriod(LEASE),
        outage: TimePeriod::from_seconds(20),
        gather: TimePeriod::from_millis(100),
        // Shares move in steps, of which several may fall into one trouble.
        move_for: TimePeriod(LEASE),
        workers_max: 10,
        ..CoordinatorSettings::default()
    };
    ClusterOptions { settings, replicas: 2 }
}

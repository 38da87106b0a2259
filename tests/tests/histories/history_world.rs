//! One history: a cluster, writers and readers, and what is done to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use verbs3_protocol::ByteRange;
use verbs3_tests::seed;

use crate::control::{Control, LEASE};
use crate::gateway::{Gateway, How, ReadEnd, Wanted};
use crate::key::Key;
use crate::process::{Process, UNCERTAIN};
use crate::versioned_store::VersionedStore;

const WORKERS: usize = 3;
const GATEWAYS: usize = 3;
const KEYS: usize = 4;
const READERS: u64 = 5;
const TROUBLES: usize = 12;

/// What has happened.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    pub acknowledged: u64,
    /// Refused, or not acknowledged.
    pub failed: u64,
    /// Whose writers went away in the middle.
    pub lost: u64,
    pub known: u64,
    pub asked: u64,
    pub past_the_tier: u64,
    /// Opens answered by leases of homes, those of them that found nothing, and leases that were
    /// recalled.
    pub leased: u64,
    pub absences: u64,
    pub recalled: u64,
    /// Opens answered with bytes that a gateway holds.
    pub held: u64,
    pub maps: u64,
    pub troubles: u64,
}

impl Summary {
    pub fn add(&mut self, other: &Self) {
        let Self {
            acknowledged,
            failed,
            lost,
            known,
            asked,
            past_the_tier,
            leased,
            absences,
            recalled,
            held,
            maps,
            troubles,
        } = other;
        self.acknowledged += acknowledged;
        self.failed += failed;
        self.lost += lost;
        self.known += known;
        self.asked += asked;
        self.past_the_tier += past_the_tier;
        self.leased += leased;
        self.absences += absences;
        self.recalled += recalled;
        self.held += held;
        self.maps += maps;
        self.troubles += troubles;
    }
}

#[derive(Default)]
struct Counts {
    acknowledged: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
    known: AtomicU64,
    asked: AtomicU64,
    past_the_tier: AtomicU64,
}

/// What all tasks of a history share.
struct Shared {
    processes: Vec<Process>,
    gateways: Vec<Gateway>,
    control: Arc<Control>,
    store: Arc<VersionedStore>,
    keys: Vec<Key>,
    counts: Counts,
    over: AtomicBool,
}

pub struct HistoryWorld {
    shared: Arc<Shared>,
    seed: u64,
    rng: SmallRng,
    tasks: JoinSet<()>,
}

/// What is done to the cluster for a while.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Kill,
    Stop,
    Leave,
    Drain,
    Depose,
    /// Both ways, or one of them.
    CutFromGateway,
    CutFromAllGateways,
    CutFromCoordinators,
    GatewayFollowsNot,
    /// Some workers and gateways on one side, the others and the coordinators on the other.
    Partition,
    None,
}

const ALL: [Trouble; 14] = [
    // The one that asks most of everybody.
    Trouble::Partition,
    Trouble::Partition,
    Trouble::Partition,
    Trouble::Partition,
    Trouble::Kill,
    Trouble::Stop,
    Trouble::Leave,
    Trouble::Drain,
    Trouble::Depose,
    Trouble::CutFromGateway,
    Trouble::CutFromAllGateways,
    Trouble::CutFromCoordinators,
    Trouble::GatewayFollowsNot,
    Trouble::None,
];

async fn milliseconds(rng: &mut SmallRng, range: std::ops::Range<u64>) {
    sleep(Duration::from_millis(rng.random_range(range))).await;
}

impl HistoryWorld {
    pub fn new(seed: u64) -> Self {
        let (control, store) =
            (Arc::new(Control::new(WORKERS, seed)), Arc::new(VersionedStore::new(seed)));
        let processes: Vec<Process> =
            (0..WORKERS).map(|index| Process::new(index, control.clone(), store.clone())).collect();
        let gateway = |index| Gateway::new(index, &processes, control.clone(), store.clone(), seed);
        let gateways = (0..GATEWAYS).map(gateway).collect();
        let keys = (0..KEYS).map(|n| Key::new(format!("key-{}", "x".repeat(n)))).collect();
        let (counts, over) = (Counts::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { processes, gateways, control, store, keys, counts, over });
        Self { shared, seed, rng: seed::rng(seed, 0), tasks: JoinSet::new() }
    }

    pub async fn run(mut self) -> Summary {
        self.start().await;
        for _ in 0..TROUBLES {
            self.trouble().await;
        }
        self.mend();
        self.end().await;
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Summary {
            acknowledged: read(&counts.acknowledged),
            failed: read(&counts.failed),
            lost: read(&counts.lost),
            known: read(&counts.known),
            asked: read(&counts.asked),
            past_the_tier: read(&counts.past_the_tier),
            leased: self.shared.gateways.iter().map(Gateway::leased).sum(),
            absences: self.shared.gateways.iter().map(Gateway::leased_absences).sum(),
            recalled: self.shared.gateways.iter().map(Gateway::recalled).sum(),
            held: self.shared.gateways.iter().map(Gateway::held_reads).sum(),
            maps: self.shared.control.maps(),
            troubles: TROUBLES as u64,
        }
    }

    /// All is well, before anything is done to it.
    async fn start(&mut self) {
        self.shared.processes.iter().for_each(Process::launch);
        let control = self.shared.control.clone();
        tokio::spawn(async move { control.lead().await });
        for index in 0..GATEWAYS {
            let shared = self.shared.clone();
            tokio::spawn(async move { shared.gateways[index].follow().await });
        }
        self.wait_until_well().await;
        for index in 0..KEYS {
            let (shared, rng) = (self.shared.clone(), seed::rng(self.seed, 100 + index as u64));
            self.tasks.spawn(async move { shared.write_versions(index, rng).await });
        }
        for reader in 0..READERS {
            let (shared, rng) = (self.shared.clone(), seed::rng(self.seed, 200 + reader));
            self.tasks.spawn(async move { shared.read_all(rng).await });
        }
    }

    /// Every worker is in the map, and through every gateway a write succeeds.
    async fn wait_until_well(&self) {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let map = self.shared.control.map();
            if map.members.iter().filter(|member| !member.draining).count() == WORKERS {
                let mut well = true;
                for gateway in &self.shared.gateways {
                    well &= match gateway.announce("nobody's").await {
                        Ok(announced) => gateway.report(announced).await.is_ok(),
                        Err(()) => false,
                    };
                }
                if well {
                    return;
                }
            }
            assert!(Instant::now() < until, "the cluster is not well again: {map:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// For a while, and perhaps into the next one.
    async fn trouble(&mut self) {
        let what = ALL[self.rng.random_range(0..ALL.len())];
        let (worker, gateway) =
            (self.rng.random_range(0..WORKERS), self.rng.random_range(0..GATEWAYS));
        let ways = [(false, false), (true, false), (false, true)][self.rng.random_range(0..3)];
        let shared = self.shared.clone();
        let process = &shared.processes[worker];
        match what {
            Trouble::Kill => process.kill(),
            Trouble::Stop => {
                process.goes_on(false);
                shared.gateways.iter().for_each(|gateway| gateway.links[worker].pass(false, false));
            }
            Trouble::Leave => process.leave().await,
            Trouble::Drain => shared.control.drain(&process.id, true),
            Trouble::Depose => shared.control.depose(),
            Trouble::CutFromGateway => shared.gateways[gateway].links[worker].pass(ways.0, ways.1),
            Trouble::CutFromAllGateways => {
                shared
                    .gateways
                    .iter()
                    .for_each(|gateway| gateway.links[worker].pass(ways.0, ways.1));
            }
            Trouble::CutFromCoordinators => shared.control.ways[worker].pass(ways.0, ways.1),
            Trouble::GatewayFollowsNot => {
                shared.gateways[gateway].follows.store(false, Ordering::SeqCst)
            }
            Trouble::Partition => self.partition(),
            Trouble::None => {}
        }
        let longest = if self.rng.random_bool(0.3) { 6000 } else { 2000 };
        milliseconds(&mut self.rng, 0..longest).await;
        // Else the next comes on top of it.
        if self.rng.random_bool(0.6) {
            self.mend();
        }
        milliseconds(&mut self.rng, 0..500).await;
        self.look_at_tasks();
    }

    fn partition(&mut self) {
        let side = |rng: &mut SmallRng, count: usize| -> Vec<bool> {
            (0..count).map(|_| rng.random_bool(0.5)).collect()
        };
        let (workers, gateways) = (side(&mut self.rng, WORKERS), side(&mut self.rng, GATEWAYS));
        for (gateway, has_coordinators) in self.shared.gateways.iter().zip(gateways) {
            gateway.follows.store(has_coordinators, Ordering::SeqCst);
            for (link, &other) in gateway.links.iter().zip(&workers) {
                link.pass(other == has_coordinators, other == has_coordinators);
            }
        }
        for (way, has_coordinators) in self.shared.control.ways.iter().zip(workers) {
            way.pass(has_coordinators, has_coordinators);
        }
    }

    fn mend(&self) {
        for (index, process) in self.shared.processes.iter().enumerate() {
            if !process.is_running() {
                process.launch();
            }
            process.goes_on(true);
            self.shared.gateways.iter().for_each(|gateway| gateway.links[index].pass(true, true));
            self.shared.control.drain(&process.id, false);
            self.shared.control.ways[index].pass(true, true);
        }
        self.shared
            .gateways
            .iter()
            .for_each(|gateway| gateway.follows.store(true, Ordering::SeqCst));
    }

    fn look_at_tasks(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            ended.expect("a writer or reader saw what can't be");
        }
    }

    /// All is well again, and stays right.
    async fn end(&mut self) {
        self.wait_until_well().await;
        milliseconds(&mut self.rng, 0..1000).await;
        self.shared.over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a writer or reader saw what can't be");
        }
        for key in &self.shared.keys {
            for gateway in &self.shared.gateways {
                self.shared.read_once(key, gateway, Wanted::Bytes(ByteRange::All)).await;
            }
        }
    }
}

impl Shared {
    async fn write_versions(&self, index: usize, mut rng: SmallRng) {
        let key = &self.keys[index];
        while !self.over.load(Ordering::Relaxed) {
            // Some are quiet for a while.
            let longest = if rng.random_bool(0.3) { 1500 } else { 60 };
            milliseconds(&mut rng, 0..longest).await;
            let gateway = &self.gateways[rng.random_range(0..GATEWAYS)];
            let Ok(announced) = gateway.announce(&key.name).await else {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let version = key.begin();
            if rng.random_bool(0.02) {
                self.lose(key, version, announced, &mut rng).await;
                continue;
            }
            self.store.put(&key.name, version).await;
            match gateway.report(announced).await {
                Ok(()) => {
                    key.promise(version);
                    self.counts.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(()) => {
                    self.counts.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// The writer goes away before the store has answered. It was announced: who reads while it may
    /// become visible asks the store, so that what is visible is seen from then on, acknowledged or
    /// not.
    async fn lose(
        &self,
        key: &Key,
        version: u64,
        announced: verbs3_client::TierWriteGuard,
        rng: &mut SmallRng,
    ) {
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
        let announced_at = Instant::now();
        drop(announced);
        milliseconds(rng, 0..UNCERTAIN.as_millis() as u64 / 3).await;
        self.store.put(&key.name, version).await;
        // Leases are recalled by an announcement, and waited for by a report alone: nobody was told
        // of this write.
        sleep_until(announced_at + LEASE).await;
        if announced_at.elapsed() < UNCERTAIN / 2 {
            key.promise(version);
        }
    }

    async fn read_all(&self, mut rng: SmallRng) {
        while !self.over.load(Ordering::Relaxed) {
            milliseconds(&mut rng, 0..60).await;
            let key = &self.keys[rng.random_range(0..KEYS)];
            let wanted = match rng.random_range(0..6) {
                0..=1 => Wanted::Attributes,
                2..=3 => Wanted::Bytes(ByteRange::All),
                4 => {
                    let first = rng.random_range(0..40_000);
                    let last = Some(first + rng.random_range(0..40_000));
                    Wanted::Bytes(ByteRange::From { first, last })
                }
                _ => Wanted::Bytes(ByteRange::Suffix { bytes: rng.random_range(1..40_000) }),
            };
            self.read_once(key, &self.gateways[rng.random_range(0..GATEWAYS)], wanted).await;
        }
    }

    async fn read_once(&self, key: &Key, gateway: &Gateway, wanted: Wanted) {
        let promised = key.promised();
        let ReadEnd { seen, how } = gateway.read(&key.name, wanted).await;
        key.check(promised, &seen, &format!("{how:?}"));
        let count = match how {
            How::Known => &self.counts.known,
            How::Asked => &self.counts.asked,
            How::PastTheTier => &self.counts.past_the_tier,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

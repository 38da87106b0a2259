//! A worker's process: the real worker, and its talk with the coordinators as `cli` has it, without
//! HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::Registry;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use verbs3_cache_worker::{
    CacheWorker, MapActivation, NotedWrite, WorkerAskers, WorkerClock, WorkerComponents,
    WorkerInstant, WorkerSettings,
};
use verbs3_coordinator_client::api::{
    self, HeardWord, OPEN_WRITES_MAX, OpenWriteReport, WorkerIncarnation, WorkerRegistration,
};
use verbs3_coordinator_client::worker_lease::{WorkerLease, WorkerLeaseDuty};
use verbs3_protocol::{BlockGeometry, Epoch, ObjectVolume, PlacementMap, WorkerId};
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_settings::TimePeriod;
use verbs3_ufs::{Ufs, UfsSettings};

use crate::control::{Answer, Control, LEASE, Question};
use crate::network::{Place, Running};
use crate::versioned_store::VersionedStore;

pub const GEOMETRY: BlockGeometry = BlockGeometry { block_bytes: 1 << 20, page_bytes: 64 << 10 };
/// For gateways to drop leases, at each renewal.
const LEASES_WAIT: Duration = Duration::from_millis(100);
/// How long the keys of a write stay uncertain that nobody reports.
pub const UNCERTAIN: Duration = Duration::from_secs(3);

pub fn volume() -> ObjectVolume {
    ObjectVolume::new("main", "bucket")
}

pub fn arena(mebibytes: usize) -> Arena {
    let options = ArenaOptions {
        capacity_bytes: mebibytes << 20,
        cell_bytes_max: GEOMETRY.page_bytes as usize,
        populate: false,
    };
    Arena::map_memory(options).unwrap()
}

/// The time of the runtime. Clocks of hosts have nothing to do with each other.
struct Virtual {
    start: Instant,
    offset: Duration,
}

impl WorkerClock for Virtual {
    fn now(&self) -> WorkerInstant {
        WorkerInstant::default().saturating_add(self.offset + self.start.elapsed())
    }
}

/// One worker of the cluster, of which there may be a process.
pub struct Process {
    pub id: WorkerId,
    index: usize,
    control: Arc<Control>,
    store: Arc<VersionedStore>,
    pub place: Arc<Place>,
    /// Stopped, it does nothing.
    goes_on: watch::Sender<bool>,
    start: Instant,
    /// Processes so far.
    launches: AtomicU64,
}

impl Process {
    pub fn new(index: usize, control: Arc<Control>, store: Arc<VersionedStore>) -> Self {
        let (id, place) = (WorkerId(format!("worker-{index}")), Arc::default());
        Self {
            id,
            index,
            control,
            store,
            place,
            goes_on: watch::Sender::new(true),
            start: Instant::now(),
            launches: AtomicU64::new(0),
        }
    }

    /// Where the next process listens: every third one is at another place than the one before.
    fn listens_at(&self) -> u64 {
        let launches = self.launches.fetch_add(1, Ordering::SeqCst);
        1000 * (self.index as u64 + 1) + (launches + 1) / 3
    }

    pub fn is_running(&self) -> bool {
        self.place.get().is_some()
    }

    pub fn goes_on(&self, goes_on: bool) {
        self.goes_on.send_replace(goes_on);
    }

    pub fn launch(&self) {
        let mut settings = UfsSettings::with_name("main");
        settings.retries.attempts_max = 1;
        let ufs = Ufs::new(self.store.clone(), settings);
        let volumes = HashMap::from([(volume(), (ufs, "bucket".to_owned()))]);
        let mut settings = WorkerSettings::default();
        settings.writes.uncertain_for_max = TimePeriod(UNCERTAIN);
        (settings.index.generation_slots, settings.index.attributes_max) = (1 << 10, 1000);
        // As soon as anything is known: one that outlives a write shows.
        settings.leases.length = TimePeriod::from_seconds(2);
        settings.leases.reads_min = 2;
        settings.leases.quiet_for = TimePeriod::from_seconds(0);
        let components = WorkerComponents {
            geometry: GEOMETRY,
            askers: WorkerAskers::Coordinated,
            arena: arena(24),
            volumes: volumes.into(),
        };
        let clock =
            Virtual { start: self.start, offset: Duration::from_secs(1000 * self.index as u64) };
        let worker =
            CacheWorker::with_clock(&settings, components, &Registry::new(), Arc::new(clock))
                .unwrap();
        worker.follows_another();
        let (killed, leaves) = (CancellationToken::new(), CancellationToken::new());
        let tenant = Tenant {
            id: self.id.clone(),
            index: self.index,
            listens_at: self.listens_at(),
            control: self.control.clone(),
            worker: worker.clone(),
            tenure: WorkerLease::new(WorkerIncarnation::new()),
            registered: false,
            map: None,
            goes_on: self.goes_on.subscribe(),
            leaves: leaves.clone(),
        };
        self.place.set(Some(Running { worker, killed: killed.clone(), leaves }));
        tokio::spawn(async move { killed.run_until_cancelled(tenant.run()).await });
    }

    /// It does nothing any more, and says nothing.
    pub fn kill(&self) {
        let Some(Running { worker, killed, .. }) = self.place.get() else { return };
        self.place.set(None);
        killed.cancel();
        tokio::spawn(async move { worker.shutdown().await });
    }

    /// Ends in order: hands over what it knows of writes, and answers no more.
    pub async fn leave(&self) {
        let Some(running) = self.place.get() else { return };
        running.leaves.cancel();
        // A question to the coordinators may be under way.
        sleep(Duration::from_millis(500)).await;
        self.kill();
    }
}

/// The worker's talk with the coordinators.
struct Tenant {
    id: WorkerId,
    index: usize,
    listens_at: u64,
    control: Arc<Control>,
    worker: Arc<CacheWorker>,
    tenure: WorkerLease,
    registered: bool,
    /// That it answered under last.
    map: Option<Arc<PlacementMap>>,
    goes_on: watch::Receiver<bool>,
    leaves: CancellationToken,
}

impl Tenant {
    async fn run(mut self) {
        while !self.leaves.is_cancelled() {
            let sent = self.control.now();
            let answer = self.control.ask(self.index, self.question()).await;
            // An answer waits, if need be, in the socket of a process that is stopped.
            let _ = self.goes_on.wait_for(|goes_on| *goes_on).await;
            let news = match answer {
                Answer::Granted(granted) => {
                    self.registered = true;
                    let news = granted.prepare.is_some() || granted.activation.is_some();
                    for duty in self.tenure.apply_grant(sent, *granted) {
                        self.perform(duty).await;
                    }
                    news
                }
                Answer::Unknown => {
                    self.registered = false;
                    true
                }
                Answer::None => false,
            };
            sleep(if news { Duration::ZERO } else { LEASE / 10 }).await;
        }
        let writes = self.worker.give_up_epoch(OPEN_WRITES_MAX).map(told);
        self.worker.leases_over().await;
        self.worker.end_leases();
        if self.registered {
            self.control
                .leave(&self.id, self.tenure.make_departure(writes, self.worker.uncertain_for()));
        }
    }

    fn question(&self) -> Question {
        if self.registered {
            return Question::Renew(self.id.clone(), self.tenure.next_renewal());
        }
        Question::Register(WorkerRegistration {
            id: self.id.clone(),
            incarnation: self.tenure.worker_incarnation().clone(),
            address: format!("{}:9400", self.id),
            weight: 1.0,
            zone: String::new(),
            tiers: Vec::new(),
            rails: Vec::new(),
            knows: self.tenure.known_epoch(),
            place: self.listens_at,
        })
    }

    async fn perform(&mut self, duty: WorkerLeaseDuty) {
        match duty {
            WorkerLeaseDuty::GiveUp => {
                self.worker.give_up_epoch(0);
            }
            WorkerLeaseDuty::Prepare(epoch) => {
                let writes = self.worker.give_up_epoch(OPEN_WRITES_MAX);
                let over = timeout(LEASES_WAIT, self.worker.leases_over()).await.is_ok();
                let given_up = if over { epoch } else { Epoch(0) };
                self.tenure.confirm_prepare(
                    given_up,
                    writes.map(told),
                    self.worker.uncertain_for(),
                );
            }
            WorkerLeaseDuty::Activate(activation) => self.activate(*activation),
            WorkerLeaseDuty::Lease { until, outage_until } => {
                let left = || {
                    let now = self.control.now();
                    (
                        until.saturating_duration_since(now),
                        outage_until.saturating_duration_since(now),
                    )
                };
                self.worker.hold_lease(left);
            }
            WorkerLeaseDuty::Hear(words) => {
                let hear = |word: api::RelayedWord| HeardWord {
                    id: word.id,
                    heard: self.worker.apply_relayed_word(&word.notice),
                };
                let heard = words.into_iter().map(hear).collect();
                self.tenure.record_heard_words(heard);
            }
        }
    }

    fn activate(&mut self, activation: api::MembershipActivation) {
        let api::MembershipActivation {
            membership,
            former,
            handed_over,
            open_writes,
            resumes,
            uncertain_ms,
            restarted,
        } = activation;
        let Some(map) = self.control.placement(&membership) else { return };
        let known = self.map.clone().filter(|known| known.map_epoch() == former.epoch);
        let former = known.or_else(|| self.control.placement(&former));
        self.map = Some(map.clone());
        self.worker.activate_map(MapActivation {
            map: &map,
            me: &self.id,
            former: former.as_deref(),
            handed_over: handed_over.into_iter().collect(),
            open_writes: noted(open_writes),
            resumes: resumes.map(noted),
            uncertain: Duration::from_millis(uncertain_ms),
            restarted,
        });
        self.tenure.confirm_activation(membership.epoch);
    }
}

fn told(writes: Vec<NotedWrite>) -> Vec<OpenWriteReport> {
    writes
        .into_iter()
        .map(|noted| OpenWriteReport::new(noted.hash, noted.write, noted.remaining, noted.tenant))
        .collect()
}

fn noted(writes: Vec<OpenWriteReport>) -> Vec<NotedWrite> {
    let parts = writes.into_iter().map(OpenWriteReport::into_parts);
    let note = |(hash, write, remaining, tenant)| NotedWrite { hash, write, remaining, tenant };
    parts.map(note).collect()
}

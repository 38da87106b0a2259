//! A coordinator, put together: its store, its part in the election, and what its API needs of
//! both.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_coordinator_client::lease_clock::{BootLeaseClock, LeaseInstant, SharedLeaseClock};
use verbs3_coordinator_client::proof::{ClusterSecret, ProofRecipient, ReplayGuard};

use crate::cluster_claim::{ClusterClaimError, claim_store};
use crate::hot_block_table::{HotBlockTable, HotOptions};
use crate::http::RelayDispatcher;
use crate::leader_preload::PreloadHandles;
use crate::membership::{ClusterOptions, MembershipController};
use crate::metrics::CoordinatorMetrics;
use crate::published_map::{HotPublished, PublishedMap};
use crate::relay_queues::RelayQueueOptions;
use crate::store::{LeadershipGuard, SharedClusterStore};

/// What one coordinator is started with: its cluster, its secret, its address and its bounds.
#[derive(Debug, Clone)]
pub struct CoordinatorOptions {
    /// Name of the cluster.
    pub name: String,
    pub secret: ClusterSecret,
    /// What stores show that send notifications. `None`: they need the proof, too.
    pub notification_token: Option<ClusterSecret>,
    /// Where others reach this one: `http://host:port`.
    pub advertise: String,
    pub cluster: ClusterOptions,
    pub hot: HotOptions,
    /// How long the leadership outlives a leader that vanishes.
    pub leadership: Duration,
    /// How far clocks may be apart in requests that change something.
    pub clock_skew: Duration,
    pub connections_max: usize,
    /// Connections over which nothing has been proved yet. Beyond it the oldest gives way.
    pub unproven_connections_max: usize,
    /// The same of one address.
    pub unproven_per_address_max: usize,
    /// From a connection's beginning until something is proved.
    pub proof_deadline: Duration,
    /// Longest time that a request may ask to wait for news.
    pub wait_max: Duration,
    /// Of writers' words to workers that they can't reach.
    pub relays: RelayQueueOptions,
}

/// Why a coordinator does not start.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    #[error(transparent)]
    Claim(#[from] ClusterClaimError),
    #[error("can't register the coordinator's metrics")]
    Metrics(#[from] prometheus::Error),
}

/// While this coordinator leads.
pub(crate) struct LeaderState {
    pub(crate) cluster: MembershipController,
    pub(crate) leadership: Arc<LeadershipGuard>,
    pub(crate) hot: HotBlockTable,
}

/// Who leads, or why that can't be known; and when it was asked.
pub(crate) type CachedLeaderHint = (LeaseInstant, Result<Option<String>, String>);

/// One of the coordinators of a cluster.
pub struct CoordinatorServer {
    pub(crate) options: CoordinatorOptions,
    pub(crate) store: SharedClusterStore,
    pub(crate) clock: SharedLeaseClock,
    pub(crate) metrics: CoordinatorMetrics,
    pub(crate) seen: ReplayGuard,
    /// What this run of this coordinator calls itself.
    pub(crate) recipient: ProofRecipient,
    pub(crate) published: PublishedMap,
    pub(crate) hot_published: HotPublished,
    /// `None`: another leads, or nobody does.
    pub(crate) leading: Mutex<Option<LeaderState>>,
    /// Something has happened that the leader's loop has to look at.
    pub(crate) happened: Notify,
    /// Counts what workers may wait for.
    pub(crate) news: watch::Sender<u64>,
    /// What was found last of the leader.
    pub(crate) hint: tokio::sync::Mutex<Option<CachedLeaderHint>>,
    pub(crate) preloading: PreloadHandles,
    /// Words for workers.
    pub(crate) desk: RelayDispatcher,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl CoordinatorServer {
    /// Claims the store for the cluster. Serves and takes part in the election from
    /// [`CoordinatorServer::start`] on.
    pub async fn new(
        options: CoordinatorOptions,
        store: SharedClusterStore,
        registry: &Registry,
    ) -> Result<Arc<Self>, CoordinatorError> {
        claim_store(&*store, &options.name, &options.secret).await?;
        let metrics = CoordinatorMetrics::new(registry)?;
        Ok(Arc::new(Self {
            seen: ReplayGuard::new(options.clock_skew),
            recipient: ProofRecipient::draw_random(),
            desk: RelayDispatcher::new(options.relays, metrics.clone()),
            metrics,
            options,
            store,
            clock: Arc::new(BootLeaseClock),
            published: PublishedMap::new(),
            hot_published: HotPublished::new(),
            leading: Mutex::new(None),
            happened: Notify::new(),
            news: watch::channel(0).0,
            hint: tokio::sync::Mutex::default(),
            preloading: PreloadHandles::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Serves the API, follows the store, and stands for election.
    pub fn start(self: &Arc<Self>, socket: TcpListener) {
        self.tasks.spawn(self.clone().accept_connections(socket));
        self.tasks.spawn(self.clone().follow_store());
        self.tasks.spawn(self.clone().stand_for_election());
        self.tasks.spawn(self.clone().weigh_hot());
    }

    /// Resigns, ends the API, and waits for both.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Whether this coordinator leads, or can say who does.
    pub fn is_ready(&self) -> Result<(), String> {
        if self.leading.lock().is_some() || self.published.current_map().epoch.0 > 0 {
            return Ok(());
        }
        Err("leads not, and knows no map yet".to_owned())
    }

    /// Whether this coordinator won the last election that it knows of. Says nothing about the next
    /// moment; `as_leader` does.
    pub fn is_leader(&self) -> bool {
        self.leading.lock().is_some()
    }

    /// Runs `act` as leader; `None`: this one leads not, or can't be certain.
    pub(crate) fn as_leader<T>(
        &self,
        act: impl FnOnce(&mut MembershipController, LeaseInstant) -> T,
    ) -> Option<T> {
        self.with_leader_state(|leading, now| act(&mut leading.cluster, now))
    }

    /// As [`CoordinatorServer::as_leader`], with all that a leader has.
    pub(crate) fn with_leader_state<T>(
        &self,
        act: impl FnOnce(&mut LeaderState, LeaseInstant) -> T,
    ) -> Option<T> {
        let mut leading = self.leading.lock();
        // Read under the lock: what is granted now is granted before the leadership ends.
        let (now, latest) = (self.clock.now(), self.clock.latest_now());
        let leading = leading.as_mut().filter(|leading| !leading.leadership.is_lost())?;
        (leading.leadership.certain_until() > latest).then(|| act(leading, now))
    }
}

//! Assembles a coordinator: its store, its part in the election, and its API.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_coordinator_client::lease_clock::BootLeaseClock;
use verbs3_coordinator_client::proof::{ProofRecipient, ReplayGuard};
use verbs3_preload::ObjectAdmin;

use crate::activity_board::ActivityBoard;
use crate::cluster_claim::{ClusterClaimError, claim_store};
use crate::console_access::Console;
use crate::coordinator_state::{CoordinatorOptions, CoordinatorState, PreloadHandles};
use crate::leader_preload::PreloadSetup;
use crate::metrics::CoordinatorMetrics;
use crate::published_map::{HotPublished, PublishedMap};
use crate::relay_dispatcher::RelayDispatcher;
use crate::store::SharedClusterStore;

/// Error that keeps a coordinator from starting.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    #[error(transparent)]
    Claim(#[from] ClusterClaimError),
    #[error("can't register the coordinator's metrics")]
    Metrics(#[from] prometheus::Error),
}

/// One coordinator of a cluster.
pub struct CoordinatorServer {
    state: Arc<CoordinatorState>,
}

impl CoordinatorServer {
    /// Claims the store for the cluster. The coordinator serves and stands for election only from
    /// [`CoordinatorServer::start`] on.
    pub async fn new(
        options: CoordinatorOptions,
        store: SharedClusterStore,
        registry: &Registry,
    ) -> Result<Arc<Self>, CoordinatorError> {
        claim_store(&*store, &options.name, &options.secrets).await?;
        let metrics = CoordinatorMetrics::new(registry)?;
        let state = CoordinatorState {
            seen: ReplayGuard::new(options.settings.clock_skew.0),
            recipient: ProofRecipient::draw_random(),
            desk: RelayDispatcher::new(&options.settings, metrics.clone()),
            metrics,
            console: options
                .console_users
                .clone()
                .map(|users| Console::new(users, options.settings.console.clone())),
            activity: Mutex::new(ActivityBoard::new(
                options
                    .console_users
                    .as_ref()
                    .map(|_| options.settings.console.report_every.0)
                    .unwrap_or_default(),
            )),
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
        };
        Ok(Arc::new(Self { state: Arc::new(state) }))
    }

    /// Serves the API, follows the store, and stands for election.
    pub fn start(&self, socket: TcpListener) {
        let state = &self.state;
        state.tasks.spawn(state.clone().accept_connections(socket));
        state.tasks.spawn(state.clone().follow_store());
        state.tasks.spawn(state.clone().stand_for_election());
        state.tasks.spawn(state.clone().weigh_hot());
        state.tasks.spawn(state.clone().renew_claim());
        if let Some(console) = &state.console {
            state.tasks.spawn(console.console_users().follow_file(state.stop.clone()));
            state.tasks.spawn(state.clone().watch_console());
        }
    }

    /// Starts a task that runs jobs whenever this coordinator leads. Shutdown joins it.
    pub fn preload_with(&self, preload: PreloadSetup) {
        let objects = ObjectAdmin::new(preload.tier.clone(), preload.mounts.clone());
        let _ = self.state.preloading.objects.set(objects);
        self.state.tasks.spawn(self.state.clone().run_preload_jobs(preload));
    }

    /// Resigns, ends the API, and waits for both.
    pub async fn shutdown(&self) {
        self.state.stop.cancel();
        self.state.tasks.close();
        self.state.tasks.wait().await;
    }

    /// Returns `Ok` if this coordinator leads, or knows who does.
    pub fn is_ready(&self) -> Result<(), String> {
        if self.is_leader() || self.state.published.current_map().epoch.0 > 0 {
            return Ok(());
        }
        Err("leads not, and knows no map yet".to_owned())
    }

    /// Returns whether this coordinator won the last election that it knows of. That may be over
    /// already.
    pub fn is_leader(&self) -> bool {
        self.state.is_leader()
    }
}

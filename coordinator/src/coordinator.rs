//! Assembles a coordinator: its part in the election, its jobs, and its API.

use std::sync::Arc;

use prometheus::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_certificates::ClientDemand;
use verbs3_coordinator_client::lease_clock::{BootLeaseClock, SharedLeaseClock};

use crate::activity_reports::ActivityReports;
use crate::cluster_claim::{ClusterClaimError, StoreClaim};
use crate::console_access::Console;
use crate::coordinator_options::CoordinatorOptions;
use crate::hot_block_table::HotBlockTable;
use crate::http::{
    ApiContext, ApiOptions, CallerHandshake, ConnectionPlaces, ConsoleSite, CoordinatorApi,
    RequestAdmission,
};
use crate::leader_preload::{LeaderPreload, PreloadSetup};
use crate::leadership::{ClusterLeadership, LeaderElection};
use crate::map_publication::MapPublication;
use crate::membership::ClusterOptions;
use crate::metrics::CoordinatorMetrics;
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

/// One coordinator of a cluster. Each part owns its state.
pub struct CoordinatorServer {
    claim: Arc<StoreClaim>,
    election: Arc<LeaderElection>,
    preload: Arc<LeaderPreload>,
    api: Arc<CoordinatorApi>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl CoordinatorServer {
    /// Claims the store for the cluster. The coordinator serves and stands for election only from
    /// [`CoordinatorServer::start`] on.
    pub async fn new(
        options: CoordinatorOptions,
        store: SharedClusterStore,
        registry: &Registry,
    ) -> Result<Arc<Self>, CoordinatorError> {
        let claim = Arc::new(StoreClaim {
            store: store.clone(),
            name: options.name.clone(),
            secrets: options.secrets.clone(),
        });
        claim.claim_store().await?;
        let metrics = CoordinatorMetrics::new(registry)?;
        if let Some(certificate) = &options.settings.store.certificate {
            match verbs3_certificates::certificate_end(certificate) {
                Ok(end) => metrics.store_certificate_not_after.set(end),
                Err(error) => {
                    tracing::warn!(%error, "nobody knows when the certificate for etcd ends")
                }
            }
        }
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let election = Arc::new(build_election(&options, &store, &metrics, &tasks));
        let leadership = election.leadership.clone();
        let preload = Arc::new(LeaderPreload::new(leadership, store, stop.clone()));
        let context = Arc::new(build_context(&options, &election, &preload));
        let api = Arc::new(build_api(options, context, metrics, tasks.clone(), stop.clone()));
        Ok(Arc::new(Self { claim, election, preload, api, tasks, stop }))
    }

    /// Serves the API, follows the store, and stands for election.
    pub fn start(&self, socket: TcpListener) {
        let Self { claim, election, api, tasks, stop, .. } = self;
        tasks.spawn(api.clone().accept_connections(socket));
        tasks.spawn(election.maps.clone().follow_store(stop.clone()));
        tasks.spawn(election.clone().stand_for_election(stop.clone()));
        tasks.spawn(election.clone().weigh_hot(stop.clone()));
        tasks.spawn(claim.clone().renew_claim(stop.clone()));
        if let Some(site) = &api.console {
            tasks.spawn(site.console.console_users().follow_file(stop.clone()));
            tasks.spawn(site.clone().watch_console(stop.clone()));
        }
    }

    /// Starts a task that runs jobs whenever this coordinator leads. Shutdown joins it.
    pub fn preload_with(&self, preload: PreloadSetup) {
        self.preload.offer_objects(&preload);
        self.tasks.spawn(self.preload.clone().run_jobs(preload));
    }

    /// Resigns, ends the API, and waits for both.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns `Ok` if this coordinator leads, or knows who does.
    pub fn is_ready(&self) -> Result<(), String> {
        if self.is_leader() || self.election.maps.published.current_map().epoch.0 > 0 {
            return Ok(());
        }
        Err("this coordinator does not lead, and knows no map yet".to_owned())
    }

    /// Returns whether this coordinator won the last election that it knows of. That may be over
    /// already.
    pub fn is_leader(&self) -> bool {
        self.election.leadership.is_leader()
    }
}

fn build_election(
    options: &CoordinatorOptions,
    store: &SharedClusterStore,
    metrics: &CoordinatorMetrics,
    tasks: &TaskTracker,
) -> LeaderElection {
    let CoordinatorOptions { advertise, replicas, console_users, settings, .. } = options;
    let clock: SharedLeaseClock = Arc::new(BootLeaseClock);
    // Reports are wanted only where a console shows them.
    let report_every = console_users.as_ref().map(|_| settings.console.report_every.0);
    LeaderElection {
        options: ClusterOptions { settings: settings.clone(), replicas: *replicas },
        advertise: advertise.clone(),
        leadership: Arc::new(ClusterLeadership::new(
            store.clone(),
            clock.clone(),
            advertise.clone(),
        )),
        maps: Arc::new(MapPublication::new(store.clone(), metrics.clone(), tasks.clone())),
        relays: Arc::new(RelayDispatcher::new(settings, metrics.clone())),
        activity: Arc::new(ActivityReports::new(report_every, clock)),
        store: store.clone(),
        metrics: metrics.clone(),
    }
}

fn build_context(
    options: &CoordinatorOptions,
    election: &LeaderElection,
    preload: &Arc<LeaderPreload>,
) -> ApiContext {
    ApiContext {
        options: ApiOptions {
            cluster_name: options.name.clone(),
            advertise: options.advertise.clone(),
            wait_max: options.settings.wait_max.0,
            hot_wish: HotBlockTable::report_wish(&options.settings.hot),
        },
        leadership: election.leadership.clone(),
        maps: election.maps.clone(),
        relays: election.relays.clone(),
        preload: preload.clone(),
        activity: election.activity.clone(),
    }
}

fn build_api(
    options: CoordinatorOptions,
    context: Arc<ApiContext>,
    metrics: CoordinatorMetrics,
    tasks: TaskTracker,
    stop: CancellationToken,
) -> CoordinatorApi {
    let CoordinatorOptions { secrets, tls, notification_token, console_users, settings, .. } =
        options;
    // Stores have a token in place of a certificate, and browsers a session.
    let is_optional = notification_token.is_some() || console_users.is_some();
    let demand = if is_optional { ClientDemand::Optional } else { ClientDemand::Required };
    let console = console_users.map(|users| ConsoleSite {
        console: Console::new(users, settings.console.clone()),
        context: context.clone(),
        metrics: metrics.clone(),
    });
    CoordinatorApi {
        context,
        console: console.map(Arc::new),
        admission: RequestAdmission::new(
            secrets,
            notification_token,
            settings.clock_skew.0,
            metrics.clone(),
        ),
        handshake: CallerHandshake::new(tls, demand),
        places: ConnectionPlaces::new(&settings),
        proof_deadline: settings.proof_deadline.0,
        metrics,
        tasks,
        stop,
    }
}

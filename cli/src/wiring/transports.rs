//! The transports of a process: what the configuration wants and this host has. What it has not is
//! said once, and done without, unless the configuration insists.
//!
//! Owns the making of both sides. Which of them carries a call is the peer's to choose.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, Shared, join_all};
use futures::stream::FuturesUnordered;
use tokio::runtime::Handle;
use verbs3_config::{ProcessSettings, WorkerSettings};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::calls::CallOptions;
use verbs3_rdma::peer::{ShmWay, TransportWays, WaysProvider};
use verbs3_rdma::rails::{self, ChosenRail, RailPort, RailRules};
use verbs3_rdma::settings::{TcpSettings, VerbsMode, VerbsSettings};
use verbs3_rdma::shm::{ShmServer, ShmServerOptions, ShmTransport};
use verbs3_rdma::tcp::{TcpOptions, TcpServer, TcpServerOptions, TcpTransport};
use verbs3_rdma::transport::{CallService, PeerTransport};
use verbs3_rdma::verbs::{
    self, FirstAttempt, NoRdma, RailAddress, RailDriver, RailDrivers, RailIdentity, RailPlace,
    VerbsOptions, VerbsServer, VerbsServerOptions, VerbsTransport,
};

use super::trusted_cluster::TrustedCluster;

/// Wait for the rails at the start. Small memory is registered within it, and all gateways then
/// begin with verbs; large memory takes longer, and nobody waits for it.
const RAILS_HEAD_START: Duration = Duration::from_secs(3);

/// What a gateway reaches workers by.
pub struct RequesterTransports {
    pub transports: Vec<Arc<dyn PeerTransport>>,
    /// Live as long as the connections that they drive.
    _drivers: RailDrivers,
}

impl RequesterTransports {
    /// Landings lie in `arena`. Waits for the rails only where the configuration insists on them.
    pub async fn new(
        tcp: &TcpSettings,
        verbs: &VerbsSettings,
        cluster: &TrustedCluster,
        name: &str,
        arena: &Arena,
    ) -> anyhow::Result<Self> {
        let options = tcp_options(tcp, cluster, name);
        if let Err(error) = options.check_binding() {
            tracing::warn!(%error, "workers can't be reached");
        }
        let calls = options.calls.clone();
        let shm = ShmTransport::new(calls.clone());
        let mut transports: Vec<Arc<dyn PeerTransport>> =
            vec![Arc::new(TcpTransport::new(options)), Arc::new(shm)];
        let places = places_of(verbs)?;
        let drivers = start_drivers(verbs, &places)?;
        let mut attempts = Vec::new();
        for (rail, place) in places.iter().enumerate() {
            let options = verbs_options(verbs, calls.clone(), drivers.driver_of(rail));
            let (transport, attempt) = VerbsTransport::start(place.clone(), options, arena.clone());
            attempts.push((place.rail_name().to_owned(), attempt));
            transports.push(Arc::new(transport));
        }
        let attempts = RailAttempts::new(verbs, attempts);
        attempts.give_head_start().await;
        attempts.require_rail().await?;
        Ok(Self { transports, _drivers: drivers })
    }
}

/// Fails if this host has not the device or the address by which workers are to be reached.
pub fn check_tcp_binding(tcp: &TcpSettings, cluster: &TrustedCluster) -> anyhow::Result<()> {
    tcp_options(tcp, cluster, "").check_binding().context("workers can't be reached")
}

/// What a worker is reached by.
pub struct WorkerServers {
    tcp: TcpServer,
    shm: Option<ShmServer>,
    rails: Vec<VerbsServer>,
    attempts: RailAttempts,
    /// Live as long as the connections that they drive.
    drivers: RailDrivers,
}

/// The addresses of a worker's rails, in their order; `None` while one is down.
#[derive(Clone)]
pub struct WorkerRailAddresses(Vec<RailAddress>);

impl WorkerRailAddresses {
    /// Of a worker that others reach in another way, or not at all.
    pub fn no_rails() -> Self {
        Self(Vec::new())
    }

    /// One entry for each rail, in the configured order. `None` while a rail is down.
    pub fn current_addresses(&self) -> Vec<Option<SocketAddr>> {
        self.0.iter().map(RailAddress::get).collect()
    }
}

/// The settings that a worker's servers are made of, besides its own.
pub struct ServerSettings<'a> {
    pub tcp: &'a TcpSettings,
    pub verbs: &'a VerbsSettings,
    pub cluster: &'a TrustedCluster,
    pub process: &'a ProcessSettings,
}

impl WorkerServers {
    /// Listens on every way that there is. Tcp, which tells of the others, comes last.
    pub async fn start(
        worker: &WorkerSettings,
        settings: ServerSettings<'_>,
        arena: &Arena,
        service: Arc<dyn CallService>,
        runtimes: Vec<Handle>,
    ) -> anyhow::Result<Self> {
        let ServerSettings { tcp, verbs, cluster, process } = settings;
        let tcp_options = tcp_options(tcp, cluster, &worker.id);
        let (calls, drain_deadline) = (tcp_options.calls.clone(), process.drain_for.0);
        let shm = serve_shm(worker, calls.clone(), drain_deadline, arena, &service).await;
        let (rails, attempts, drivers) =
            serve_rails(verbs, calls, drain_deadline, arena, &service)?;
        attempts.give_head_start().await;
        let socket = shm.as_ref().and_then(|shm| ShmWay::of_this_host(shm.socket_path()).ok());
        let addresses = WorkerRailAddresses(rails.iter().map(VerbsServer::rail_address).collect());
        let ways = WaysProvider::new(move || TransportWays {
            shm: socket.clone(),
            rails: addresses.current_addresses(),
            ticket: None,
        });
        let options =
            TcpServerOptions { tcp: tcp_options, ways: ways.clone(), drain_deadline, runtimes };
        let tcp =
            TcpServer::bind(worker.listen, options, service).await.context("worker.listen")?;
        let socket = shm.as_ref().map(|shm| shm.socket_path().display().to_string());
        tracing::info!(
            tcp = %tcp.local_addr(), shm = socket, rails = rails.len(),
            "gateways can reach this worker; its rails follow once its memory is registered"
        );
        Ok(Self { tcp, shm, rails, attempts, drivers })
    }

    /// Waits for the rails where the configuration insists on them. Fails if none can be used.
    pub async fn require_rail(&self) -> anyhow::Result<()> {
        self.attempts.require_rail().await
    }

    /// Address of tcp, the one that everybody needs.
    pub fn local_addr(&self) -> SocketAddr {
        self.tcp.local_addr()
    }

    /// The addresses as they change. Clones see the changes too.
    pub fn rail_addresses(&self) -> WorkerRailAddresses {
        WorkerRailAddresses(self.rails.iter().map(VerbsServer::rail_address).collect())
    }

    /// Lets calls under way end, on all ways at once.
    pub async fn shutdown(self) {
        let Self { tcp, shm, rails, attempts: _, drivers } = self;
        let shm = async {
            if let Some(shm) = shm {
                shm.shutdown().await;
            }
        };
        tokio::join!(tcp.shutdown(), shm, join_all(rails.into_iter().map(VerbsServer::shutdown)));
        drop(drivers);
    }
}

async fn serve_shm(
    worker: &WorkerSettings,
    calls: CallOptions,
    drain_deadline: Duration,
    arena: &Arena,
    service: &Arc<dyn CallService>,
) -> Option<ShmServer> {
    let settings = &worker.shm;
    if !settings.enabled {
        return None;
    }
    let socket = &settings.socket;
    let options = ShmServerOptions {
        drain_deadline,
        settings: settings.clone(),
        ..ShmServerOptions::new(calls)
    };
    let path = socket.clone().unwrap_or_else(|| default_socket(&worker.id));
    let made = async {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("can't make {}", folder.display()))?;
        }
        anyhow::Ok(ShmServer::bind(&path, options, arena.clone(), service.clone()).await?)
    };
    match made.await {
        Ok(server) => Some(server),
        // Who has named a socket wants to know.
        Err(error) if socket.is_some() => {
            tracing::warn!(
                error = format!("{error:#}"),
                "no shared memory for gateways of this host; they use the network"
            );
            None
        }
        Err(error) => {
            tracing::info!(
                error = format!("{error:#}"),
                "no shared memory for gateways of this host; set worker.shm.socket"
            );
            None
        }
    }
}

/// An id may have characters that make no file name.
fn default_socket(id: &str) -> PathBuf {
    let name: String = id
        .chars()
        .map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    Path::new("/run/verbs3").join(format!("{name}.sock"))
}

fn serve_rails(
    verbs: &VerbsSettings,
    calls: CallOptions,
    drain_deadline: Duration,
    arena: &Arena,
    service: &Arc<dyn CallService>,
) -> anyhow::Result<(Vec<VerbsServer>, RailAttempts, RailDrivers)> {
    let places = places_of(verbs)?;
    let drivers = start_drivers(verbs, &places)?;
    let (mut servers, mut attempts) = (Vec::new(), Vec::new());
    for (rail, place) in places.iter().enumerate() {
        let options = VerbsServerOptions {
            verbs: verbs_options(verbs, calls.clone(), drivers.driver_of(rail)),
            connections_max: (verbs.connections_max as usize).div_ceil(places.len()),
            drain_deadline,
        };
        let name = place.rail_name().to_owned();
        let (place, port) = (place.clone(), verbs.port);
        let (server, attempt) =
            VerbsServer::start(place, port, options, arena.clone(), service.clone());
        attempts.push((name, attempt));
        servers.push(server);
    }
    Ok((servers, RailAttempts::new(verbs, attempts), drivers))
}

/// Threads of their own for the connections of the rails, where the configuration names CPUs.
fn start_drivers(verbs: &VerbsSettings, rails: &[RailPlace]) -> anyhow::Result<RailDrivers> {
    let cpus: Vec<usize> = verbs.poll_cpus.iter().map(|&cpu| usize::from(cpu)).collect();
    RailDrivers::start(&cpus, rails).context("verbs.poll_cpus")
}

/// Each rail that is to be used, there or not; empty where verbs are off, or there is no RDMA and
/// nobody insists.
pub(super) fn places_of(verbs: &VerbsSettings) -> anyhow::Result<Vec<RailPlace>> {
    let insists = match verbs.mode {
        VerbsMode::Off => return Ok(Vec::new()),
        VerbsMode::Auto => false,
        VerbsMode::On => true,
    };
    let rules = RailRules::from_entries(&verbs.rails, &verbs.rails_except);
    if let Err(reason) = verbs::probe_devices() {
        if insists {
            bail!("verbs.mode is \"on\", and there is {reason}");
        }
        // Who names a device waits for it; without the library, in vain.
        if !rules.names_a_rail() || reason == NoRdma::NoLibrary {
            tracing::info!(%reason, "verbs are not used");
            return Ok(Vec::new());
        }
    }
    let interfaces = rails::list_interfaces().context("can't list the network devices")?;
    let chosen = rules.choose_rails(&interfaces, find_rail_port);
    let names: Vec<&str> = chosen.iter().map(ChosenRail::rail_name).collect();
    match names.as_slice() {
        [] => tracing::warn!(
            "no RDMA port of this host has an address that verbs.rails means: verbs are not used \
            until the next start"
        ),
        rails => tracing::info!(?rails, "rails of this host"),
    }
    if chosen.is_empty() && insists {
        bail!(
            "verbs.mode is \"on\", and no RDMA port has an IP address that verbs.rails and \
            verbs.rails_except allow; `verbs3 doctor` says more"
        );
    }
    let place = |index: usize| {
        let (rules, all) = (rules.clone(), chosen.clone());
        let find = move || {
            let mut found = rules.resolve_rails(&all, &rails::list_interfaces()?, find_rail_port);
            found.swap_remove(index).map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))
        };
        RailPlace::new(index, chosen[index].rail_name(), find)
    };
    Ok((0..chosen.len()).map(place).collect())
}

/// Returns the port of an RDMA NIC that an address of this host belongs to.
pub(crate) fn find_rail_port(address: IpAddr) -> Option<RailPort> {
    let RailIdentity { device, port, address: _ } =
        RailIdentity::find_by_address(address).ok().flatten()?;
    Some(RailPort { device, port })
}

/// The first attempts to open the rails.
struct RailAttempts {
    /// The configuration insists on one rail that works.
    insists: bool,
    /// The error of each; `None` for a rail that is open.
    outcomes: Vec<Shared<BoxFuture<'static, Option<String>>>>,
}

impl RailAttempts {
    fn new(verbs: &VerbsSettings, attempts: Vec<(String, FirstAttempt)>) -> Self {
        let outcomes = attempts.into_iter().map(|(name, attempt)| {
            let told =
                async move { attempt.first_error().await.map(|error| format!("{name}: {error}")) };
            told.boxed().shared()
        });
        Self { insists: verbs.mode == VerbsMode::On, outcomes: outcomes.collect() }
    }

    /// Waits for the rails, but not for long: whoever asks for them meanwhile would do without them
    /// for a while.
    async fn give_head_start(&self) {
        // Without them it goes on as well.
        let _ = tokio::time::timeout(RAILS_HEAD_START, join_all(self.outcomes.clone())).await;
    }

    /// Waits for the rails where the configuration insists. One that works is enough: the others
    /// were told of, and are tried again.
    async fn require_rail(&self) -> anyhow::Result<()> {
        if !self.insists {
            return Ok(());
        }
        let mut outcomes: FuturesUnordered<_> = self.outcomes.iter().cloned().collect();
        let mut told = Vec::new();
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Some(error) => told.push(error),
                None => return Ok(()),
            }
        }
        if told.is_empty() {
            return Ok(());
        }
        bail!(
            "verbs.mode is \"on\", and no rail can be used ({}); `verbs3 doctor` says more",
            told.join("; ")
        );
    }
}

fn verbs_options(
    verbs: &VerbsSettings,
    calls: CallOptions,
    driver: Option<RailDriver>,
) -> VerbsOptions {
    VerbsOptions { calls, settings: verbs.clone(), driver }
}

/// The TCP transport of a process that calls itself `name`.
fn tcp_options(tcp: &TcpSettings, cluster: &TrustedCluster, name: &str) -> TcpOptions {
    let calls = CallOptions {
        secret: cluster.handshake_secret(),
        name: name.to_owned(),
        settings: tcp.clone(),
        tickets: cluster.ticket_rules(),
    };
    TcpOptions { calls, tls: cluster.tcp_tls() }
}

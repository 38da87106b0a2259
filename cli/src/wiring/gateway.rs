//! The gateway process, and the part of it that the development process shares.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus::Registry;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use verbs3_admin::ReadinessCheck;
use verbs3_certificates::NodeRole;
use verbs3_client::CacheTierClient;
use verbs3_config::{ProcessSettings, RootSettings};
use verbs3_coordinator_client::api::ActivityRole;
use verbs3_doors::{NamedSocket, SocketFileOptions};
use verbs3_gateway::auth::IdentityStore;
use verbs3_gateway::{GatewayParts, GatewaySettings, GatewayTlsSettings, HttpListener, TlsFiles};
use verbs3_rdma::settings::VerbsSettings;
use verbs3_telemetry::{TelemetryHandle, TelemetrySource};

use super::activity_reporter::ActivityReporter;
use super::admin_server::{AdminServer, ProcessSockets};
use super::client_rails::ClientRails;
use super::listen_endpoint::ListenEndpoint;
use super::preload_jobs::CoordinatorJobs;
use super::socket_handover::{HandoverGreeting, OfferedSockets, Predecessor};
use super::tier::{WorkerConnector, host_name};
use super::transports::check_tcp_binding;
use super::trusted_cluster::TrustedCluster;
use super::{
    cluster_geometry, coordinator_client, followers, map_arena, mounts, relay, stores, tier,
};
use crate::process::RunningProcess;
use crate::reactor_threads::ReactorThreads;

/// Who knows no worker after so long is told so: more than an election and a join take.
const WORKERS_WITHIN: Duration = Duration::from_secs(10);
/// Setting that is named where a handover fails.
const HANDOVER: &str = "gateway.handover_socket";

/// A gateway that serves.
pub struct ServingGateway {
    gateway: verbs3_gateway::GatewayService,
    client_rails: ClientRails,
    tier: Arc<CacheTierClient>,
    telemetry: Option<TelemetryHandle>,
    pub listen: SocketAddr,
}

/// Serves until it is told to stop, then lets requests under way end.
pub async fn run_gateway(config: RootSettings, started: RunningProcess) -> anyhow::Result<()> {
    // The sections that other processes read, and those that `process` has read.
    let RootSettings {
        cluster,
        ufs,
        mount,
        gateway,
        worker: _,
        coordinator: _,
        tcp,
        verbs,
        dev: _,
        process,
        log: _,
        telemetry,
        webhook: _,
        controller: _,
    } = config;
    let registry = Registry::new();
    verbs3_ufs::metrics::register(&registry)?;
    verbs3_rdma::metrics::register_metrics(&registry)?;
    let cluster = TrustedCluster::load(cluster)?;
    cluster.require_certificate(NodeRole::Gateway, None)?;
    let followed = cluster.follow_files(&registry, CancellationToken::new())?;
    let geometry = cluster_geometry(&cluster)?;
    check_tcp_binding(&tcp, &cluster)?;
    let handover = gateway.handover_socket.clone();
    let greeting = HandoverGreeting::of_gateway(&gateway, &cluster);
    let predecessor = match &handover {
        Some(path) => Predecessor::take_over(path, &greeting).await.context(HANDOVER)?,
        None => None,
    };
    let succeeds = predecessor.is_some();
    let EarlyAdmin { admin, address: admin_address, socket: admin_socket } =
        start_admin(&gateway, &registry, &process, succeeds)?;
    // Until this process serves, the one before answers at the admin address.
    let serves = predecessor.map(|it| it.follow(admin.cession()));
    let memory = gateway.memory.clone();
    let mapping = tokio::task::spawn_blocking(move || map_arena(&memory, 1, geometry));
    let arena = mapping.await.context("the mapping of memory broke down")??;
    verbs3_rdma::metrics::register_arena(&registry, arena.clone())?;
    let stores = stores::open_stores(&ufs, &registry).await?;
    let ways = Arc::new(
        WorkerConnector::to_workers(&cluster, &tcp, &verbs, &gateway.peers, &arena).await?,
    );
    let tier = tier::start_tier(gateway.tier.clone(), &cluster, geometry, &ways, arena, &registry)?;
    relay::start_relay(&tier, &cluster);
    let unfollow = CancellationToken::new();
    // Without a map yet, or with the last one while no coordinator answers, clients are served all
    // the same.
    let following = coordinator_client::build_client(&cluster).map(|client| {
        let known = tier.clone();
        let missing = warn_without_workers(WORKERS_WITHIN, move || known.workers_up().1);
        let missing = unfollow.clone().run_until_cancelled_owned(missing);
        let follow = followers::follow_map(client, tier.clone(), ways.clone(), unfollow.clone());
        tokio::spawn(async move { tokio::join!(follow, missing) })
    });
    let following_hot = coordinator_client::build_client(&cluster)
        .map(|client| tokio::spawn(followers::follow_hot(client, tier.clone(), unfollow.clone())));
    let Some(file) = &gateway.identities else { bail!("gateway.identities is missing") };
    let identities = IdentityStore::load_file(file)?;
    let instance = random_instance_id();
    let source = TelemetrySource { service: "verbs3-gateway", instance: &instance };
    let exported = TelemetryHandle::start(&telemetry, source, &registry)?;
    let parts = GatewayParts {
        mounts: mounts::build_gateway_mounts(&mount, &stores)?,
        identities,
        preload: CoordinatorJobs::for_gateway(coordinator_client::build_client(&cluster)),
        registry: &registry,
    };
    let reactors = ReactorThreads::for_process(&process)?;
    let threads = reactors.runtime_handles();
    if started.stop.is_cancelled() {
        // Before anything of a gateway that serves becomes this one's.
        return Ok(());
    }
    let (mut serving, socket) =
        serve_gateway(&gateway, parts, tier, threads, exported, &admin, succeeds)?;
    serving.start_client_rails(&gateway, &verbs)?;
    if let Some(path) = handover {
        let (sockets, admin) = ([socket, admin_socket], admin.cession());
        let offer = OfferedSockets { path, greeting, sockets, admin };
        offer.start_offer(started.stop.clone()).context(HANDOVER)?;
    }
    let reporting = coordinator_client::build_client(&cluster).map(|client| {
        let name = format!("{}:{}", host_name(), serving.listen.port());
        ActivityReporter::new(client, registry.clone(), ActivityRole::Gateway, name)
            .start(unfollow.clone())
    });
    started.signal_ready(serving.listen, Some(admin_address))?;
    if let Some(serves) = serves {
        serves.cancel();
    }
    started.stop.cancelled().await;
    serving.drain_gateway(process.drain_for.0).await;
    unfollow.cancel();
    if let Some(following) = following {
        following.await.context("the following of the placement map ended badly")?;
    }
    if let Some(following) = following_hot {
        following.await.context("the following of hot blocks ended badly")?;
    }
    if let Some(reporting) = reporting {
        reporting.await.context("the reports for the console ended badly")?;
    }
    ways.shutdown().await;
    reactors.shutdown();
    followed.shutdown().await?;
    admin.shutdown().await
}

/// Admin endpoints before there is a gateway.
pub struct EarlyAdmin {
    pub admin: AdminServer,
    pub address: SocketAddr,
    /// What listens there, once more.
    pub socket: OwnedFd,
}

/// Serves the admin endpoints; at their address not while it is `ceded`. Not ready before
/// [`serve_gateway`].
pub fn start_admin(
    config: &GatewaySettings,
    registry: &Registry,
    process: &ProcessSettings,
    ceded: bool,
) -> anyhow::Result<EarlyAdmin> {
    let GatewaySettings { admin_listen, admin_bind_device, probe_socket, .. } = config;
    let control = ListenEndpoint {
        address: *admin_listen,
        address_setting: "gateway.admin_listen",
        device: admin_bind_device.as_deref(),
        device_setting: "gateway.admin_bind_device",
    };
    let listener = control.open_listener()?;
    let (address, socket) = (listener.local_addr()?, listener.as_fd().try_clone_to_owned()?);
    let probes = probe_socket.as_deref().map(open_probes).transpose()?;
    let reason = "memory is being mapped, and workers are looked for";
    let sockets = ProcessSockets { address: listener, probes, ceded };
    let admin = AdminServer::start_early(sockets, registry.clone(), reason, process)?;
    Ok(EarlyAdmin { admin, address, socket })
}

/// The socket of probes. Its name is this process' alone, so whoever has it is one before.
fn open_probes(path: &Path) -> anyhow::Result<NamedSocket> {
    let path = path.to_owned();
    let said = path.display().to_string();
    NamedSocket::open(SocketFileOptions { path, mode: 0o600, owner: None, group: None })
        .with_context(|| format!("can't make {said}; is its folder there? (gateway.probe_socket)"))
}

/// Serves S3, connections of clients by `threads`. The tier is the gateway's from here on. With
/// `succeeds`, it takes the place of a gateway that serves still. What listens comes once more, for
/// the next one.
pub fn serve_gateway(
    config: &GatewaySettings,
    parts: GatewayParts<'_>,
    tier: Arc<CacheTierClient>,
    threads: Vec<Handle>,
    telemetry: Option<TelemetryHandle>,
    admin: &AdminServer,
    succeeds: bool,
) -> anyhow::Result<(ServingGateway, OwnedFd)> {
    let GatewaySettings { listen, bind_device, tls, .. } = config;
    let http = ListenEndpoint {
        address: *listen,
        address_setting: "gateway.listen",
        device: bind_device.as_deref(),
        device_setting: "gateway.bind_device",
    };
    let listener = http.open_listener()?;
    let socket = listener.as_fd().try_clone_to_owned()?;
    let listener = HttpListener::from_socket(listener, tls_files(tls).as_ref())
        .context("gateway.tls")?
        .served_by(threads);
    let listen = listener.local_address()?;
    let gateway = verbs3_gateway::GatewayService::new(config, parts, tier.clone())?;
    if let Some(tracer) = telemetry.as_ref().map(TelemetryHandle::request_tracer) {
        gateway.trace_with(tracer);
    }
    gateway.serve_s3(listener);
    gateway.open_lending(succeeds).context("gateway.lending.socket")?;
    let mut readiness = gateway.start_readiness();
    readiness.push(workers_are_up(tier.clone()));
    admin.mark_started(readiness);
    let client_rails = ClientRails::default();
    Ok((ServingGateway { gateway, client_rails, tier, telemetry, listen }, socket))
}

impl ServingGateway {
    /// Serves clients of other hosts by RDMA, if the settings want it. Waits for no rail.
    pub fn start_client_rails(
        &mut self,
        config: &GatewaySettings,
        verbs: &VerbsSettings,
    ) -> anyhow::Result<()> {
        self.client_rails = ClientRails::start(&config.s3_over_rdma, verbs)?;
        self.gateway.serve_by_rdma(self.client_rails.shared_rails());
        Ok(())
    }

    /// Requests under way may end for up to `drain_for`; then the words to the homes are waited
    /// for, and telemetry's last ones.
    pub async fn drain_gateway(self, drain_for: Duration) {
        self.gateway.shutdown(drain_for).await;
        self.client_rails.shutdown().await;
        self.tier.shutdown().await;
        if let Some(telemetry) = self.telemetry {
            telemetry.shutdown().await;
        }
    }
}

/// Without a home to tell, no write is taken: others may join and cache the key meanwhile.
async fn warn_without_workers(within: Duration, workers: impl Fn() -> usize) {
    tokio::time::sleep(within).await;
    if workers() == 0 {
        tracing::warn!(
            "no worker of this cluster is known: reads go to the store, and writes get 503, \
            through mounts that are not cached, too; start a worker, or say coherence = \"ttl\" on \
            mounts whose objects no gateway caches"
        );
    }
}

/// Tells gateways apart where nobody has named them.
pub fn random_instance_id() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// One worker is enough: without it every read goes to the UFS and strict writes are refused.
fn workers_are_up(tier: Arc<CacheTierClient>) -> ReadinessCheck {
    let check = move || match tier.workers_up() {
        (0, all) => Err(format!("none of {all} workers answers")),
        _ => Ok(()),
    };
    ReadinessCheck::new("workers", check)
}

fn tls_files(tls: &GatewayTlsSettings) -> Option<TlsFiles> {
    let GatewayTlsSettings { certificate, key } = tls;
    Some(TlsFiles { certificate: certificate.clone()?, key: key.clone()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use super::*;

    /// What was logged meanwhile.
    async fn logged(workers: usize) -> String {
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let written = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || Lines(written.clone()));
        let _logging = tracing::subscriber::set_default(subscriber.finish());
        warn_without_workers(Duration::ZERO, move || workers).await;
        String::from_utf8(lines.lock().unwrap().clone()).unwrap()
    }

    #[tokio::test]
    async fn a_gateway_that_knows_no_worker_says_so() {
        let said = logged(0).await;
        assert!(said.contains("WARN") && said.contains("writes get 503"), "{said}");
        assert_eq!(logged(1).await, "");
    }
}

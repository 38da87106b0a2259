//! The coordinator process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use verbs3_admin::ReadinessCheck;
use verbs3_certificates::NodeRole;
use verbs3_config::RootSettings;
use verbs3_coordinator::store::SharedClusterStore;
use verbs3_coordinator::store::etcd::{EtcdOptions, EtcdStore, EtcdUser};
use verbs3_coordinator::store::file::FileStore;
use verbs3_coordinator::{
    ClusterClaimError, ConsoleUsers, CoordinatorError, CoordinatorOptions, CoordinatorSettings,
    CoordinatorStoreKind, CoordinatorStoreSettings,
};
use verbs3_coordinator_client::proof::ClusterSecret;

use super::admin_server::AdminServer;
use super::listen_endpoint::{ListenEndpoint, advertised_address};
use super::preload::PreloadWiring;
use super::trusted_cluster::TrustedCluster;
use crate::process::RunningProcess;

/// Pause before a store that is away is asked again at start.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Serves until it is told to stop.
pub async fn run_coordinator(config: RootSettings, started: RunningProcess) -> anyhow::Result<()> {
    // The sections that other processes read, and those that `process` has read. A coordinator
    // serves no requests that are traced.
    let RootSettings {
        cluster,
        coordinator,
        ufs,
        mount,
        gateway: _,
        worker: _,
        tcp,
        verbs,
        dev: _,
        process,
        log: _,
        telemetry: _,
        webhook: _,
        controller: _,
    } = config;
    let registry = Registry::new();
    let cluster = TrustedCluster::load(cluster)?;
    cluster.require_certificate(NodeRole::Coordinator, None)?;
    let followed = cluster.follow_files(&registry, CancellationToken::new())?;
    let open = |address, setting| ListenEndpoint::over_any_device(address, setting).open_listener();
    let socket = open(coordinator.listen, "coordinator.listen")?;
    let listen = socket.local_addr()?;
    let store = open_store(&coordinator.store).await?;
    let options = coordinator_options(&coordinator, &cluster, listen)?;
    let made =
        started.stop.run_until_cancelled(create_coordinator(options, store, &registry)).await;
    let Some(made) = made else { return Ok(()) };
    let serving = made?;
    let admin_socket = open(coordinator.admin_listen, "coordinator.admin_listen")?;
    let admin_address = admin_socket.local_addr()?;
    let preload = &coordinator.preload;
    let own = format!("{}://{}", cluster.tls.url_scheme(), loopback_address(listen));
    let settings = PreloadWiring {
        own,
        cluster: &cluster,
        ufs: &ufs,
        mounts: &mount,
        tcp: &tcp,
        verbs: &verbs,
        preload,
    };
    let beside = match super::preload::start_preload(&settings, &registry).await? {
        Some((preload, beside)) => {
            serving.preload_with(preload);
            Some(beside)
        }
        None => None,
    };
    serving.start(socket);
    let ready = serving.clone();
    let readiness = vec![
        ReadinessCheck::until_shutdown(started.stop.clone()),
        ReadinessCheck::new("map", move || ready.is_ready()),
    ];
    let admin = AdminServer::start(admin_socket, registry, readiness, &process)?;
    started.signal_ready(listen, Some(admin_address))?;
    started.stop.cancelled().await;
    serving.shutdown().await;
    if let Some(beside) = beside {
        beside.shutdown().await?;
    }
    followed.shutdown().await?;
    admin.shutdown().await
}

/// Waits for a store that is away: coordinators and etcd may be started in any order.
async fn create_coordinator(
    options: CoordinatorOptions,
    store: SharedClusterStore,
    registry: &Registry,
) -> anyhow::Result<Arc<verbs3_coordinator::CoordinatorServer>> {
    loop {
        match verbs3_coordinator::CoordinatorServer::new(options.clone(), store.clone(), registry)
            .await
        {
            Ok(made) => return Ok(made),
            Err(CoordinatorError::Claim(ClusterClaimError::Store(error))) => {
                tracing::warn!(%error, "waiting for the coordinators' store");
                tokio::time::sleep(STORE_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn read_token(file: &Path) -> anyhow::Result<ClusterSecret> {
    let token = verbs3_config::ConfigSecret::read(file)?;
    if token.reveal_text().len() < 16 {
        bail!("the token in {} has less than 16 characters", file.display());
    }
    Ok(ClusterSecret::from_token(token.reveal_text()))
}

/// The library's options. Errors when the secret, the token or the addresses can't be used.
pub fn coordinator_options(
    coordinator: &CoordinatorSettings,
    cluster: &TrustedCluster,
    listen: SocketAddr,
) -> anyhow::Result<CoordinatorOptions> {
    let advertise = match &coordinator.advertise {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => format!("{}://{}", cluster.tls.url_scheme(), advertised_address(listen, None)?),
    };
    let token = coordinator.notification_token_file.as_deref().map(read_token).transpose()?;
    let users = coordinator.console.users.as_deref().map(ConsoleUsers::read_file).transpose();
    Ok(CoordinatorOptions {
        name: cluster.name.clone(),
        secrets: cluster.proof_secrets(),
        tls: cluster.coordinator_tls(),
        notification_token: token,
        advertise,
        replicas: cluster.replicas,
        console_users: users.context("coordinator.console.users")?,
        settings: coordinator.clone(),
    })
}

/// Where this process reaches what it listens at itself.
fn loopback_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn open_store(store: &CoordinatorStoreSettings) -> anyhow::Result<SharedClusterStore> {
    let CoordinatorStoreSettings {
        kind,
        path,
        endpoints,
        prefix,
        ca_file,
        certificate,
        key,
        user,
        password_file,
        deadline,
    } = store;
    let read =
        |path: &Path| std::fs::read(path).with_context(|| format!("can't read {}", path.display()));
    Ok(match kind {
        CoordinatorStoreKind::Folder => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || FileStore::open_folder(&path)).await;
            Arc::new(
                opened.context("the store's thread panicked")?.context("coordinator.store.path")?,
            )
        }
        CoordinatorStoreKind::Etcd => {
            let password =
                password_file.as_deref().map(verbs3_config::ConfigSecret::read).transpose()?;
            let options = EtcdOptions {
                endpoints: endpoints.clone(),
                prefix: prefix.clone(),
                ca: ca_file.as_deref().map(read).transpose()?,
                identity: match (certificate, key) {
                    (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
                    _ => None,
                },
                user: user.clone().zip(password).map(|(name, password)| EtcdUser {
                    name,
                    password: password.reveal_text().to_owned(),
                }),
                deadline: deadline.0,
            };
            Arc::new(EtcdStore::connect(options).await.context("coordinator.store.endpoints")?)
        }
    })
}

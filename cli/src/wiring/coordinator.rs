//! The coordinator process, and the way of every other process to the coordinators.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use verbs3_config::{
    Cluster, Config, Coordinator, CoordinatorHot, CoordinatorStore, CoordinatorStoreKind,
};
use verbs3_coordinator::cluster::ClusterOptions;
use verbs3_coordinator::hot::HotOptions;
use verbs3_coordinator::store::SharedStore;
use verbs3_coordinator::store::etcd::{EtcdOptions, EtcdStore};
use verbs3_coordinator::store::file::FileStore;
use verbs3_coordinator::{ClaimError, CoordinatorError, CoordinatorOptions, RelayOptions};
use verbs3_coordinator_client::proof::Secret;
use verbs3_coordinator_client::{Client, ClientOptions};
use verbs3_gateway::{Admin, Readiness};

use super::gateway::admin_limits;
use super::listen::Place;
use super::preload::Settings;
use crate::process::Started;

/// For connecting to a coordinator, and for its answer. Nobody's request waits for either.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(2);
/// Pause before a store that is away is asked again at start.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Serves until it is told to stop.
pub async fn run(config: Config, started: Started) -> anyhow::Result<()> {
    // The sections that other processes read, and those that `process` has read.
    let Config {
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
        telemetry,
    } = config;
    let registry = Registry::new();
    let socket = place(coordinator.listen, "coordinator.listen").listen()?;
    let listen = socket.local_addr()?;
    let store = open_store(&coordinator.store).await?;
    let options = options(&coordinator, &cluster, listen)?;
    let advertised = options.advertise.clone();
    let made = started.stop.run_until_cancelled(claimed(options, store, &registry)).await;
    let Some(made) = made else { return Ok(()) };
    let serving = made?;
    let admin_socket = place(coordinator.admin_listen, "coordinator.admin_listen").listen()?;
    let admin_address = admin_socket.local_addr()?;
    let exported =
        super::telemetry::start(&telemetry, ("verbs3-coordinator", &advertised), &registry)?;
    let preload = &coordinator.preload;
    let own = format!("http://{}", nearest(listen));
    let settings = Settings {
        own,
        cluster: &cluster,
        ufs: &ufs,
        mounts: &mount,
        tcp: &tcp,
        verbs: &verbs,
        preload,
    };
    let beside = match super::preload::start(&settings, &registry).await? {
        Some((preload, beside)) => {
            serving.preload_with(preload);
            Some(beside)
        }
        None => None,
    };
    serving.start(socket);
    let ready = serving.clone();
    let readiness = vec![
        Readiness::until_shutdown(started.stop.clone()),
        Readiness::new("map", move || ready.is_ready()),
    ];
    let (over, limits) = (CancellationToken::new(), admin_limits(&process));
    // Joined below, once all else has ended.
    let admin =
        tokio::spawn(Admin { registry, readiness, stop: over.clone(), limits }.serve(admin_socket));
    started.ready(listen, Some(admin_address))?;
    started.stop.cancelled().await;
    serving.shutdown().await;
    if let Some(beside) = beside {
        beside.shutdown().await?;
    }
    super::telemetry::end(exported).await;
    over.cancel();
    admin.await.context("the admin endpoints ended badly")
}

fn place(address: SocketAddr, address_setting: &str) -> Place<'_> {
    Place { address, address_setting, device: None, device_setting: "" }
}

/// Waits for a store that is away: coordinators and etcd may be started in any order.
async fn claimed(
    options: CoordinatorOptions,
    store: SharedStore,
    registry: &Registry,
) -> anyhow::Result<Arc<verbs3_coordinator::Coordinator>> {
    loop {
        match verbs3_coordinator::Coordinator::new(options.clone(), store.clone(), registry).await {
            Ok(made) => return Ok(made),
            Err(CoordinatorError::Claim(ClaimError::Store(error))) => {
                tracing::warn!(%error, "waiting for the coordinators' store");
                tokio::time::sleep(STORE_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A client of the coordinators; `None` where the configuration names none.
pub fn client(cluster: &Cluster) -> anyhow::Result<Option<Arc<Client>>> {
    client_within(cluster, CONNECT_DEADLINE, DEADLINE)
}

/// The same with other deadlines.
pub fn client_within(
    cluster: &Cluster,
    connect: Duration,
    deadline: Duration,
) -> anyhow::Result<Option<Arc<Client>>> {
    if cluster.coordinators.is_empty() {
        return Ok(None);
    }
    let options = ClientOptions {
        coordinators: cluster
            .coordinators
            .iter()
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect(),
        secret: secret(cluster)?,
        connect_deadline: connect,
        deadline,
    };
    Ok(Some(Arc::new(Client::new(options))))
}

fn secret(cluster: &Cluster) -> anyhow::Result<Secret> {
    let secret = cluster.resolve_secret()?.context("cluster.secret is missing")?;
    Ok(Secret::new(&cluster.name, secret.reveal()))
}

fn token(file: &Path) -> anyhow::Result<Secret> {
    let token = verbs3_config::Secret::read(file)?;
    if token.reveal().len() < 16 {
        bail!("the token in {} has less than 16 characters", file.display());
    }
    Ok(Secret::token(token.reveal()))
}

pub fn options(
    coordinator: &Coordinator,
    cluster: &Cluster,
    listen: SocketAddr,
) -> anyhow::Result<CoordinatorOptions> {
    let Coordinator {
        listen: _,
        admin_listen: _,
        advertise,
        lease,
        outage,
        gather,
        move_for,
        leadership,
        clock_skew,
        workers_max,
        connections_max,
        unproven_connections_max,
        unproven_per_address_max,
        proof_deadline,
        notification_token_file,
        wait_max,
        relays_max,
        relays_memory,
        store: _,
        preload: _,
        hot,
    } = coordinator;
    let advertise = match advertise {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => format!("http://{}", reachable(listen)?),
    };
    Ok(CoordinatorOptions {
        name: cluster.name.clone(),
        secret: secret(cluster)?,
        notification_token: notification_token_file.as_deref().map(token).transpose()?,
        advertise,
        cluster: ClusterOptions {
            lease: lease.0,
            outage: outage.0,
            gather: gather.0,
            move_for: move_for.0,
            replicas: cluster.replicas,
            workers_max: *workers_max as usize,
        },
        hot: hot_options(hot),
        leadership: leadership.0,
        clock_skew: clock_skew.0,
        connections_max: *connections_max as usize,
        unproven_connections_max: *unproven_connections_max as usize,
        unproven_per_address_max: *unproven_per_address_max as usize,
        proof_deadline: proof_deadline.0,
        wait_max: wait_max.0,
        relays: RelayOptions {
            words_max: *relays_max as usize,
            bytes_max: usize::try_from(relays_memory.0).unwrap_or(usize::MAX),
        },
    })
}

fn hot_options(hot: &CoordinatorHot) -> HotOptions {
    let CoordinatorHot {
        rate,
        workers_max,
        blocks_max,
        reported_max,
        report_every,
        cool_for,
        good_for,
    } = hot;
    HotOptions {
        rate_per_worker: rate.0,
        workers_max: *workers_max,
        blocks_max: *blocks_max as usize,
        reported_max: *reported_max as usize,
        report_every: report_every.0,
        cool_for: cool_for.0,
        good_for: good_for.0,
    }
}

/// Where this process reaches what it listens at itself.
fn nearest(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// `host:port` at which others reach what listens at `listen`: that address, or this host's name
/// where it is all of them.
pub fn reachable(listen: SocketAddr) -> anyhow::Result<String> {
    if !listen.ip().is_unspecified() {
        return Ok(listen.to_string());
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .context("can't read this host's name")?;
    let host = host.trim();
    if host.is_empty() {
        bail!("this host has no name; set the address that others reach it at (advertise)");
    }
    Ok(format!("{host}:{}", listen.port()))
}

async fn open_store(store: &CoordinatorStore) -> anyhow::Result<SharedStore> {
    let CoordinatorStore {
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
            let opened = tokio::task::spawn_blocking(move || FileStore::open(&path)).await;
            Arc::new(
                opened.context("the store's thread panicked")?.context("coordinator.store.path")?,
            )
        }
        CoordinatorStoreKind::Etcd => {
            let password = password_file.as_deref().map(verbs3_config::Secret::read).transpose()?;
            let options = EtcdOptions {
                endpoints: endpoints.clone(),
                prefix: prefix.clone(),
                ca: ca_file.as_deref().map(read).transpose()?,
                identity: match (certificate, key) {
                    (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
                    _ => None,
                },
                user: user.clone().zip(password.map(|password| password.reveal().to_owned())),
                deadline: deadline.0,
            };
            Arc::new(EtcdStore::connect(options).await.context("coordinator.store.endpoints")?)
        }
    })
}

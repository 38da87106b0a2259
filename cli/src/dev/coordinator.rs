//! The coordinator inside `verbs3 dev`: jobs and the API that people use, and workers to look at.
//!
//! Within one process a lease has nothing to fence: the workers are registered and renewed as
//! elsewhere, so that `verbs3 status` shows them, but gateway and workers go by a map that never
//! changes, and serve whether or not a coordinator leads.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use prometheus::Registry;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_cache_worker::CacheWorker;
use verbs3_client::CacheTierClient;
use verbs3_config::{
    ClusterSettings, ClusterTlsSettings, ConfigLayers, ConfigSecret, EnvironmentLayer,
    MountSettings,
};
use verbs3_coordinator::CoordinatorSettings;
use verbs3_coordinator::store::file::FileStore;
use verbs3_coordinator_client::api::{
    WorkerIncarnation, WorkerRegistration, WorkerTierCapacity as TierView,
};
use verbs3_coordinator_client::{CoordinatorClient, WorkerLeaseKeeper};
use verbs3_preload::CoordinatorPreloadSettings;
use verbs3_protocol::WorkerId;
use verbs3_ufs::Ufs;

use super::identities::random_letters;
use crate::wiring::leased_worker::LeasedCacheWorker;
use crate::wiring::transports::WorkerRailAddresses;
use crate::wiring::trusted_cluster::TrustedCluster;
use crate::wiring::{coordinator, coordinator_client, preload};

/// What others find this process by; also a configuration file for `--config`.
const FILE: &str = "cluster.toml";
/// How often it is looked whether the coordinator leads.
const LEADS_EVERY: Duration = Duration::from_millis(5);
/// Letters of a generated secret.
const SECRET_LETTERS: usize = 40;

/// What is told of this process's parts.
pub struct DevCoordinatorParts<'a> {
    pub dir: &'a Path,
    pub listen: std::net::SocketAddr,
    pub cluster: &'a ClusterSettings,
    pub coordinator: &'a CoordinatorSettings,
    pub mounts: &'a [MountSettings],
    pub stores: &'a HashMap<String, Ufs>,
    pub tier: Arc<CacheTierClient>,
    /// With what they keep pages in.
    pub workers: Vec<(WorkerId, Arc<CacheWorker>, Vec<TierView>)>,
}

/// A coordinator that serves.
pub struct DevCoordinator {
    pub client: Arc<CoordinatorClient>,
    coordinator: Arc<verbs3_coordinator::CoordinatorServer>,
    tenants: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

/// Serves, and writes down how it is found.
pub async fn start_coordinator(
    parts: DevCoordinatorParts<'_>,
    registry: &Registry,
) -> anyhow::Result<DevCoordinator> {
    let DevCoordinatorParts { dir, listen, cluster, coordinator, mounts, stores, tier, workers } =
        parts;
    let socket = TcpListener::bind(listen).await.with_context(|| {
        format!(
            "can't listen on {listen} for the coordinator; choose another address with \
            dev.coordinator"
        )
    })?;
    let address = socket.local_addr()?;
    let file = dir.join(FILE);
    // One worker has no next owner beside it, and lacks none.
    let replicas = cluster.replicas.min(u16::try_from(workers.len()).unwrap_or(u16::MAX)).max(1);
    let coordinators = vec![format!("http://{address}")];
    let mut cluster =
        ClusterSettings { workers: Vec::new(), coordinators, replicas, ..cluster.clone() };
    // Nobody but this process and commands of this host ask it.
    cluster.tls = ClusterTlsSettings::default();
    if cluster.resolve_secret()?.is_none() {
        cluster.secret = Some(ConfigSecret::new(
            kept_secret(&file).unwrap_or_else(|| random_letters(SECRET_LETTERS)),
        ));
    }
    write(&file, &cluster)?;
    let cluster = TrustedCluster::load(cluster)?;
    let folder = dir.join("coordinator");
    let kept = folder.clone();
    let store = tokio::task::spawn_blocking(move || FileStore::open_folder(&kept))
        .await
        .context("the store's thread panicked")?;
    let store = store.with_context(|| format!("can't use {}", folder.display()))?;
    let options = coordinator::coordinator_options(coordinator, &cluster, address)?;
    let made = verbs3_coordinator::CoordinatorServer::new(options, Arc::new(store), registry).await;
    let made =
        made.with_context(|| format!("can't use {}; remove it to begin anew", folder.display()))?;
    let settings =
        CoordinatorPreloadSettings { failures: dir.join("preload"), ..coordinator.preload.clone() };
    made.preload_with(preload::build_preload(&settings, tier, mounts, stores, registry)?);
    made.start(socket);
    let client = coordinator_client::build_client(&cluster).context("a coordinator was named")?;
    let stop = CancellationToken::new();
    let tenants = workers.into_iter().map(|(id, worker, tiers)| {
        let registration = WorkerRegistration {
            id,
            incarnation: WorkerIncarnation::new(),
            // The same for every process over this folder, of which there is one: it takes its own
            // place again.
            address: "in-process".to_owned(),
            weight: 1.0,
            zone: String::new(),
            tiers,
            rails: Vec::new(),
            knows: verbs3_protocol::Epoch::default(),
            place: 0,
        };
        // No neighbours: of several workers in one process, each has its slots for good.
        let rails = WorkerRailAddresses::no_rails();
        let leased = Arc::new(LeasedCacheWorker { cache: worker, rails, neighbourhood: None });
        let tenant = WorkerLeaseKeeper::new(client.clone(), leased, registration);
        let (made, stop) = (made.clone(), stop.clone());
        // Joined at the end. Asked before, the coordinator would say that it does not lead yet, and
        // that be warned of.
        tokio::spawn(async move {
            let leads = async {
                while !made.is_leader() {
                    tokio::time::sleep(LEADS_EVERY).await;
                }
            };
            if stop.run_until_cancelled(leads).await.is_some() {
                tenant.run(stop).await;
            }
        })
    });
    let tenants = tenants.collect();
    Ok(DevCoordinator { client, coordinator: made, tenants, stop })
}

impl DevCoordinator {
    /// Jobs under way go on at the next start.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        self.stop.cancel();
        for tenant in self.tenants {
            tenant.await.context("a worker's talk with the coordinator ended badly")?;
        }
        self.coordinator.shutdown().await;
        Ok(())
    }
}

/// The file by which a process over this folder is found, if there is or was one.
pub fn file_of(dir: &Path) -> Option<PathBuf> {
    let file = dir.join(FILE);
    file.is_file().then_some(file)
}

/// The coordinator knows its cluster again by the secret.
fn kept_secret(file: &Path) -> Option<String> {
    let layers = ConfigLayers {
        file: Some(file.to_owned()),
        environment: EnvironmentLayer::default(),
        flags: Vec::new(),
    };
    if !file.is_file() {
        return None;
    }
    let kept =
        verbs3_config::load_config(&layers, &[]).ok()?.config.cluster.resolve_secret().ok()??;
    Some(kept.reveal_text().to_owned())
}

/// What commands need to know of the coordinator: a part of a configuration.
#[derive(Serialize)]
struct FoundCoordinator<'a> {
    cluster: FoundCluster<'a>,
}

#[derive(Serialize)]
struct FoundCluster<'a> {
    name: &'a str,
    secret: &'a str,
    coordinators: &'a [String],
}

fn write(file: &Path, cluster: &ClusterSettings) -> anyhow::Result<()> {
    let secret = cluster.resolve_secret()?.context("a secret was made")?;
    let found = FoundCoordinator {
        cluster: FoundCluster {
            name: &cluster.name,
            secret: secret.reveal_text(),
            coordinators: &cluster.coordinators,
        },
    };
    let found = toml::to_string(&found).context("can't be written as TOML")?;
    let text = format!(
        "# How `verbs3 preload`, `verbs3 cache` and `verbs3 status` find the `verbs3 dev` of this\n\
         # folder. Written at each start.\n{found}"
    );
    // Beside it and renamed: who reads it meanwhile has the one or the other.
    let next = file.with_extension("toml.next");
    let written =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next);
    written
        .and_then(|mut next| next.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&next, file))
        .with_context(|| format!("can't write {}", file.display()))
}

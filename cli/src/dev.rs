//! `verbs3 dev`: gateway, workers and a store over a folder, in one process.
//!
//! Owns what this command brings by itself: the folder, credentials, a store, its mount and the
//! bucket `demo`. The parts are those of the real processes, over the in-process transport that
//! hands memory over.

mod banner;
pub mod coordinator;
mod identities;

pub use identities::DevAccessKey;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use s3s::dto::CreateBucketInput;
use verbs3_cache_worker::{CacheWorker, WorkerAskers, WorkerComponents, WorkerVolumes};
use verbs3_client::KEPT_WORKER_PART;
use verbs3_config::{
    ByteSize, DevSettings, DiskFolderSettings, MountSettings, RootSettings, WorkerSettings,
};
use verbs3_gateway::GatewayParts;
use verbs3_gateway::auth::IdentityStore;
use verbs3_protocol::{BlockGeometry, WorkerId};
use verbs3_rdma::inprocess::{InProcess, InProcessMode};
use verbs3_rdma::page_source::PageSource;
use verbs3_rdma::peer::TransportPeer;
use verbs3_telemetry::{TelemetryHandle, TelemetrySource};
use verbs3_ufs::{UfsKind, UfsSettings};

use crate::demo::{self, DemoSetup};
use crate::process::RunningProcess;
use crate::reactor_threads::ReactorThreads;
use crate::wiring::gateway::EarlyAdmin;
use crate::wiring::preload_jobs::CoordinatorJobs;
use crate::wiring::tier::WorkerConnector;
use crate::wiring::{cluster_geometry, gateway, map_arena, mounts, stores, tier, worker};

/// Name of the store that this command brings; part of cached objects' identity.
const STORE: &str = "local";
/// The bucket that is there from the start.
const BUCKET: &str = "demo";

/// Serves until it is told to stop; with `demo_only`, until the demonstration is over.
pub async fn run_dev(
    mut config: RootSettings,
    demo_only: bool,
    started: RunningProcess,
) -> anyhow::Result<()> {
    make_folder(&config.dev.dir)?;
    let own_store = bring_store(&mut config);
    let (identities, key) = match &config.gateway.identities {
        Some(file) => (IdentityStore::load_file(file)?, identities::first_key(file)),
        None => {
            let file = config.dev.dir.join("identities.toml");
            let key = identities::load_or_create_key(&file)?;
            (IdentityStore::load_file(&file)?, Some(key))
        }
    };
    // Ports, secrets and peers of a cluster have no meaning within one process.
    let RootSettings {
        cluster,
        ufs,
        mount,
        gateway,
        worker,
        coordinator,
        tcp: _,
        verbs,
        dev,
        process,
        log: _,
        telemetry,
        webhook: _,
        controller: _,
    } = config;
    let DevSettings { dir, workers, disk, coordinator: coordinator_listen, demo } = &dev;

    let registry = Registry::new();
    verbs3_ufs::metrics::register(&registry)?;
    verbs3_rdma::metrics::register_metrics(&registry)?;
    let EarlyAdmin { admin, address: admin_address, .. } =
        gateway::start_admin(&gateway, &registry, &process, false)?;
    let geometry = cluster_geometry(&cluster)?;
    let stores = stores::open_stores(&ufs, &registry).await?;
    if own_store {
        make_bucket(&stores).await?;
    }
    let shares = (0..*workers)
        .map(|index| divide_settings(&worker, index, *workers, *disk, dir))
        .collect::<Vec<_>>();
    let offers_pages = gateway.lending.pages_total.0 > 0;
    let StartedWorkers { caches, _offered } =
        start_workers(&shares, geometry, &stores, offers_pages, &registry)?;
    let peers = caches.iter().enumerate().map(|(index, cache)| {
        let connection = InProcess::open_connection(cache.clone(), InProcessMode::Share);
        (dev_worker_id(index), TransportPeer::for_local_connection(connection))
    });
    let ways = WorkerConnector::in_process(peers);
    let landings = map_arena(&gateway.memory, 1, geometry)?;
    let mut settings = gateway.tier.clone();
    let memory_bytes = worker.memory.capacity.0 / u64::from((*workers).max(1));
    // No quota of a connection keeps it from taking all memory of a worker.
    let kept_max = memory_bytes / KEPT_WORKER_PART;
    settings.kept_pages_max.0 = settings.kept_pages_max.0.min(kept_max);
    let tier = tier::start_tier(settings, &cluster, geometry, &ways, landings, &registry)?;
    let mounts = mounts::build_gateway_mounts(&mount, &stores)?;
    let instance = gateway::random_instance_id();
    let source = TelemetrySource { service: "verbs3-dev", instance: &instance };
    let exported = TelemetryHandle::start(&telemetry, source, &registry)?;
    if let Some(tracer) = exported.as_ref().map(TelemetryHandle::request_tracer) {
        caches.iter().for_each(|cache| cache.trace_with(tracer.clone()));
    }
    let parts = coordinator::DevCoordinatorParts {
        dir,
        listen: *coordinator_listen,
        cluster: &cluster,
        coordinator: &coordinator,
        mounts: &mount,
        stores: &stores,
        tier: tier.clone(),
        workers: (shares.iter().zip(&caches).enumerate())
            .map(|(at, (share, cache))| {
                (dev_worker_id(at), cache.clone(), worker::tier_sizes(memory_bytes, &share.disk))
            })
            .collect(),
    };
    let inside = coordinator::start_coordinator(parts, &registry).await?;
    let parts = GatewayParts {
        mounts,
        identities,
        preload: CoordinatorJobs::for_gateway(Some(inside.client.clone())),
        registry: &registry,
    };
    let reactors = ReactorThreads::for_process(&process)?;
    let (mut serving, _) = gateway::serve_gateway(
        &gateway,
        parts,
        tier,
        reactors.runtime_handles(),
        exported,
        &admin,
        false,
    )?;
    serving.start_client_rails(&gateway, &verbs)?;

    banner::print_banner(serving.listen, admin_address, dir, key.as_ref());
    started.signal_ready(serving.listen, Some(admin_address))?;
    let mut shown = Ok(());
    if *demo || demo_only {
        shown = match key {
            Some(key) => {
                let demo = DemoSetup {
                    address: serving.listen,
                    key,
                    bucket: BUCKET,
                    registry: registry.clone(),
                };
                let run = started.stop.run_until_cancelled(demo::run_demo(&demo));
                run.await.unwrap_or(Ok(())).context("the demonstration failed")
            }
            None => {
                println!("no demonstration: gateway.identities has no secret key in plain text");
                Ok(())
            }
        };
    }
    if !demo_only && shown.is_ok() {
        banner::until_stopped();
        started.stop.cancelled().await;
    }
    inside.shutdown().await?;
    serving.drain_gateway(process.drain_for.0).await;
    ways.shutdown().await;
    for cache in caches {
        cache.shutdown().await;
    }
    reactors.shutdown();
    admin.shutdown().await?;
    shown
}

fn dev_worker_id(index: usize) -> WorkerId {
    WorkerId(format!("dev-{index}"))
}

/// Workers, and their memory as far as clients may read it where it lies.
struct StartedWorkers {
    caches: Vec<Arc<CacheWorker>>,
    _offered: Vec<Arc<PageSource>>,
}

/// One worker, or several that share the memory; each with metrics of its own, shown under one name
/// with a label.
fn start_workers(
    shares: &[verbs3_config::WorkerSettings],
    geometry: BlockGeometry,
    stores: &HashMap<String, verbs3_ufs::Ufs>,
    offers_pages: bool,
    registry: &Registry,
) -> anyhow::Result<StartedWorkers> {
    let (mut caches, mut offered) = (Vec::new(), Vec::new());
    let mut parts = Vec::new();
    for (index, config) in shares.iter().enumerate() {
        let label = HashMap::from([("worker".to_owned(), format!("dev-{index}"))]);
        let part = Registry::new_custom(None, Some(label))?;
        let memory = map_arena(&config.memory, shares.len() as u16, geometry)?;
        verbs3_rdma::metrics::register_arena(&part, memory.clone())?;
        if offers_pages {
            offered.push(memory.offer_pages()?);
        }
        // The only asker is this process.
        let volumes = WorkerVolumes::of_stores(stores.values().cloned());
        let of = WorkerComponents { geometry, askers: WorkerAskers::Any, arena: memory, volumes };
        caches.push(CacheWorker::new(config, of, &part).context("can't start the worker")?);
        parts.push(part);
    }
    registry.register(Box::new(DevRegistries(parts)))?;
    Ok(StartedWorkers { caches, _offered: offered })
}

/// What one of several workers is told: each has a part of every folder, and of the disk tier that
/// `dev.disk` asks for.
fn divide_settings(
    worker: &WorkerSettings,
    index: u16,
    count: u16,
    disk: ByteSize,
    dir: &Path,
) -> WorkerSettings {
    let mut worker = worker.clone();
    if disk.0 > 0 {
        worker.disk.folders.push(DiskFolderSettings { path: dir.join("cache"), capacity: disk });
    }
    for folder in &mut worker.disk.folders {
        folder.path = folder.path.join(format!("dev-{index}"));
        folder.capacity.0 /= u64::from(count);
    }
    worker
}

/// The metrics of several registries, shown as one.
struct DevRegistries(Vec<Registry>);

impl prometheus::core::Collector for DevRegistries {
    fn desc(&self) -> Vec<&prometheus::core::Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.0.iter().flat_map(Registry::gather).collect()
    }
}

/// Adds the store over the folder and a mount of all its buckets, where the file has none. Says
/// whether it did.
fn bring_store(config: &mut RootSettings) -> bool {
    let own = config.ufs.is_empty();
    if own {
        let path = Some(config.dev.dir.join("objects"));
        config.ufs.push(UfsSettings {
            name: STORE.to_owned(),
            kind: UfsKind::Local,
            path,
            ..UfsSettings::default()
        });
    }
    if config.mount.is_empty() {
        let ufs = config.ufs[0].name.clone();
        config.mount.push(MountSettings { name: "*".to_owned(), ufs, ..MountSettings::default() });
    }
    own
}

/// The folder holds credentials: it is this user's alone.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| {
        format!("can't make the folder {}; choose another by --dir", folder.display())
    })
}

async fn make_bucket(stores: &HashMap<String, verbs3_ufs::Ufs>) -> anyhow::Result<()> {
    let store = stores.get(STORE).context("the local store is one of the stores")?.s3_store();
    let input = CreateBucketInput::builder()
        .bucket(BUCKET.to_owned())
        .build()
        .context("the bucket has a name")?;
    let request = s3s::S3Request {
        input,
        method: http::Method::PUT,
        uri: http::Uri::from_static("/demo"),
        headers: http::HeaderMap::new(),
        extensions: http::Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    };
    match store.create_bucket(request).await {
        Ok(_) => Ok(()),
        Err(error) if *error.code() == s3s::S3ErrorCode::BucketAlreadyOwnedByYou => Ok(()),
        Err(error) if *error.code() == s3s::S3ErrorCode::BucketAlreadyExists => Ok(()),
        Err(error) => Err(anyhow::anyhow!("can't make the bucket {BUCKET}: {error}")),
    }
}

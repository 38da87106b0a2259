//! `verbs3 dev`: gateway, workers and a store over a folder, in one process.
//!
//! Owns what this command brings by itself: the folder, credentials, a store, its mount and the
//! bucket `demo`. The parts are those of the real processes, over the in-process transport that
//! hands memory over.

mod banner;
pub mod coordinator;
mod identities;

pub use identities::Key;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use s3s::dto::CreateBucketInput;
use verbs3_config::{ByteSize, Config, Dev, Mount, Ufs, UfsKind, Worker, WorkerDiskFolder};
use verbs3_gateway::auth::Identities;
use verbs3_protocol::{Geometry, WorkerId};
use verbs3_rdma::inprocess::{InProcess, Mode};
use verbs3_rdma::peer::Peer;
use verbs3_telemetry::Telemetry;

use crate::demo::{self, Demo};
use crate::process::Started;
use crate::wiring::tier::Ways;
use crate::wiring::{arena, gateway, geometry, stores, telemetry, tier, worker};

/// Name of the store that this command brings; part of cached objects' identity.
const STORE: &str = "local";
/// The bucket that is there from the start.
const BUCKET: &str = "demo";

/// Serves until it is told to stop; with `demo_only`, until the demonstration is over.
pub async fn run(mut config: Config, demo_only: bool, started: Started) -> anyhow::Result<()> {
    make_folder(&config.dev.dir)?;
    let own_store = bring_store(&mut config);
    let (identities, key) = match &config.gateway.identities {
        Some(file) => (Identities::load(file)?, identities::first_key(file)),
        None => {
            let file = config.dev.dir.join("identities.toml");
            let key = identities::generated(&file)?;
            (Identities::load(&file)?, Some(key))
        }
    };
    // Ports, secrets and peers of a cluster have no meaning within one process.
    let Config {
        cluster,
        ufs,
        mount,
        gateway,
        worker,
        coordinator,
        tcp: _,
        verbs: _,
        dev,
        process,
        log: _,
        telemetry,
    } = config;
    let Dev { dir, workers, disk, coordinator: coordinator_listen, demo } = &dev;

    let registry = Registry::new();
    verbs3_ufs::metrics::register(&registry)?;
    verbs3_rdma::metrics::register(&registry)?;
    let geometry = geometry(&cluster)?;
    let stores = stores::open(&ufs, &registry).await?;
    if own_store {
        make_bucket(&stores).await?;
    }
    let shares = (0..*workers)
        .map(|index| share(&worker, (index, *workers), *disk, dir))
        .collect::<Vec<_>>();
    let caches = start_workers(&shares, geometry, &stores, &registry)?;
    let peers = caches.iter().enumerate().map(|(index, cache)| {
        let connection = InProcess::connection(cache.clone(), Mode::Share);
        (name(index), Peer::local(connection))
    });
    let ways = Ways::local(peers);
    let landings = arena(&gateway.memory, 1, geometry)?;
    let tier = tier::start(&gateway.tier, &cluster, geometry, &ways, landings, &registry)?;
    let mounts = gateway::mounts(&mount, &stores)?;
    let exported = telemetry::start(&telemetry, ("verbs3-dev", &gateway::instance()), &registry)?;
    if let Some(tracer) = exported.as_ref().and_then(Telemetry::tracer) {
        caches.iter().for_each(|cache| cache.trace_with(tracer.clone()));
    }
    let memory_bytes = worker.memory.capacity.0 / u64::from((*workers).max(1));
    let parts = coordinator::Parts {
        dir,
        listen: *coordinator_listen,
        cluster: &cluster,
        coordinator: &coordinator,
        mounts: &mount,
        stores: &stores,
        tier: tier.clone(),
        workers: (shares.iter().zip(&caches).enumerate())
            .map(|(at, (share, cache))| {
                (name(at), cache.clone(), worker::tiers(memory_bytes, &share.disk))
            })
            .collect(),
    };
    let inside = coordinator::start(parts, &registry).await?;
    let around = gateway::Around {
        registry: &registry,
        telemetry: exported,
        admin: gateway::admin_limits(&process),
    };
    let serving = gateway::serve(&gateway, mounts, tier, identities, around).await?;

    banner::serving(serving.listen, serving.admin, dir, key.as_ref());
    started.ready(serving.listen, Some(serving.admin))?;
    let mut shown = Ok(());
    if *demo || demo_only {
        shown = match key {
            Some(key) => {
                let demo = Demo {
                    address: serving.listen,
                    key,
                    bucket: BUCKET,
                    registry: registry.clone(),
                };
                let run = started.stop.run_until_cancelled(demo::run(&demo));
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
    serving.end(process.drain_for.0).await;
    ways.shutdown().await;
    for cache in caches {
        cache.shutdown().await;
    }
    shown
}

fn name(index: usize) -> WorkerId {
    WorkerId(format!("dev-{index}"))
}

/// One worker, or several that share the memory; each with metrics of its own, shown under one name
/// with a label.
fn start_workers(
    shares: &[verbs3_config::Worker],
    geometry: Geometry,
    stores: &HashMap<String, verbs3_ufs::Ufs>,
    registry: &Registry,
) -> anyhow::Result<Vec<Arc<verbs3_cache_worker::Worker>>> {
    let mut caches = Vec::new();
    let mut parts = Vec::new();
    for (index, config) in shares.iter().enumerate() {
        let label = HashMap::from([("worker".to_owned(), format!("dev-{index}"))]);
        let part = Registry::new_custom(None, Some(label))?;
        let memory = arena(&config.memory, shares.len() as u16, geometry)?;
        verbs3_rdma::metrics::register_arena(&part, memory.clone())?;
        // The only asker is this process.
        caches.push(worker::start(config, geometry, worker::Map::Any, memory, stores, &part)?);
        parts.push(part);
    }
    registry.register(Box::new(Parts(parts)))?;
    Ok(caches)
}

/// What one of several workers is told: each has a part of every folder, and of the disk tier that
/// `dev.disk` asks for.
fn share(worker: &Worker, (index, count): (u16, u16), disk: ByteSize, dir: &Path) -> Worker {
    let mut worker = worker.clone();
    if disk.0 > 0 {
        worker.disk.folders.push(WorkerDiskFolder { path: dir.join("cache"), capacity: disk });
    }
    for folder in &mut worker.disk.folders {
        folder.path = folder.path.join(format!("dev-{index}"));
        folder.capacity.0 /= u64::from(count);
    }
    worker
}

/// The metrics of several registries, shown as one.
struct Parts(Vec<Registry>);

impl prometheus::core::Collector for Parts {
    fn desc(&self) -> Vec<&prometheus::core::Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.0.iter().flat_map(Registry::gather).collect()
    }
}

/// Adds the store over the folder and a mount of all its buckets, where the file has none. Says
/// whether it did.
fn bring_store(config: &mut Config) -> bool {
    let own = config.ufs.is_empty();
    if own {
        let path = Some(config.dev.dir.join("objects"));
        config.ufs.push(Ufs {
            name: STORE.to_owned(),
            kind: UfsKind::Local,
            path,
            ..Ufs::default()
        });
    }
    if config.mount.is_empty() {
        let ufs = config.ufs[0].name.clone();
        config.mount.push(Mount { name: "*".to_owned(), ufs, ..Mount::default() });
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
    let store = stores.get(STORE).context("the local store is one of the stores")?.s3();
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

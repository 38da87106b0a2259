//! The worker process: a cache that gateways reach in as many ways as there are.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use verbs3_admin::ReadinessCheck;
use verbs3_cache_worker::{CacheWorker, WorkerAskers, WorkerComponents, WorkerVolumes};
use verbs3_certificates::NodeRole;
use verbs3_config::{RootSettings, WorkerDiskSettings, WorkerSettings};
use verbs3_coordinator_client::WorkerLeaseKeeper;
use verbs3_coordinator_client::api::{
    ActivityRole, WorkerIncarnation, WorkerRegistration, WorkerTierCapacity,
};
use verbs3_protocol::{Epoch, PlacementMap, WorkerId};
use verbs3_rdma::settings::TcpSettings;
use verbs3_telemetry::{TelemetryHandle, TelemetrySource};

use super::activity_reporter::ActivityReporter;
use super::admin_server::AdminServer;
use super::leased_worker::LeasedCacheWorker;
use super::listen_endpoint::{ListenEndpoint, advertised_address};
use super::tier::cluster_members;
use super::transports::{ServerSettings, WorkerServers};
use super::trusted_cluster::TrustedCluster;
use super::{cluster_geometry, coordinator_client, map_arena, neighbourhood, stores};
use crate::process::RunningProcess;
use crate::reactor_threads::ReactorThreads;

/// Serves until it is told to stop, then lets calls under way end.
pub async fn run_worker(config: RootSettings, started: RunningProcess) -> anyhow::Result<()> {
    // The sections that other processes read, and those that `process` has read.
    let RootSettings {
        cluster,
        ufs,
        mount: _,
        gateway: _,
        worker,
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
    cluster.require_certificate(NodeRole::Worker, Some(&worker.id))?;
    let followed = cluster.follow_files(&registry, CancellationToken::new())?;
    let geometry = cluster_geometry(&cluster)?;
    let control = ListenEndpoint {
        address: worker.admin_listen,
        address_setting: "worker.admin_listen",
        device: worker.admin_bind_device.as_deref(),
        device_setting: "worker.admin_bind_device",
    };
    let socket = control.open_listener()?;
    let admin_address = socket.local_addr()?;
    let reason = "memory is being mapped or registered";
    let admin = AdminServer::start_early(socket.into(), registry.clone(), reason, &process)?;
    let memory = worker.memory.clone();
    let mapping = tokio::task::spawn_blocking(move || map_arena(&memory, 1, geometry));
    let arena = mapping.await.context("the mapping of memory broke down")??;
    verbs3_rdma::metrics::register_arena(&registry, arena.clone())?;
    let stores = stores::open_stores(&ufs, &registry).await?;
    let coordinators = coordinator_client::build_client(&cluster);
    let askers = match &coordinators {
        Some(_) => WorkerAskers::Coordinated,
        // The same computation as a gateway's, from this worker's own list.
        None => WorkerAskers::OfEpoch(PlacementMap::static_epoch(
            &cluster_members(&cluster),
            usize::from(cluster.replicas),
        )),
    };
    let volumes = WorkerVolumes::of_stores(stores.into_values());
    let components = WorkerComponents { geometry, askers, arena: arena.clone(), volumes };
    let cache =
        CacheWorker::new(&worker, components, &registry).context("can't start the worker")?;

    let source = TelemetrySource { service: "verbs3-worker", instance: &worker.id };
    let telemetry = TelemetryHandle::start(&telemetry, source, &registry)?;
    if let Some(tracer) = telemetry.as_ref().map(TelemetryHandle::request_tracer) {
        cache.trace_with(tracer);
    }
    let reactors = ReactorThreads::for_process(&process)?;
    let settings =
        ServerSettings { tcp: &tcp, verbs: &verbs, cluster: &cluster, process: &process };
    let servers =
        WorkerServers::start(&worker, settings, &arena, cache.clone(), reactors.runtime_handles())
            .await?;
    // Who ends the process need not wait until all memory is pinned.
    started.stop.run_until_cancelled(servers.require_rail()).await.transpose()?;
    let reporting = coordinators.clone().map(|client| {
        ActivityReporter::new(client, registry, ActivityRole::Worker, worker.id.clone())
            .start(started.stop.clone())
    });
    // Once gateways can connect, and until they need not any more.
    let tenancy = match coordinators {
        Some(client) => {
            let registration = build_registration(&worker, &tcp, servers.local_addr())?;
            let neighbourhood =
                neighbourhood::start_neighbourhood(&worker, &cluster, &tcp, &verbs, geometry)
                    .await?;
            if let Some(neighbourhood) = &neighbourhood {
                cache.set_neighbours(neighbourhood.neighbour_table());
            }
            let (cache, rails) = (cache.clone(), servers.rail_addresses());
            let leased = Arc::new(LeasedCacheWorker { cache, rails, neighbourhood });
            let tenant = WorkerLeaseKeeper::new(client, leased, registration);
            Some(tokio::spawn(tenant.run(started.stop.clone())))
        }
        None => None,
    };
    admin.mark_started(vec![ReadinessCheck::until_shutdown(started.stop.clone())]);
    started.signal_ready(servers.local_addr(), Some(admin_address))?;
    started.stop.cancelled().await;
    if let Some(tenancy) = tenancy {
        tenancy.await.context("the talk with the coordinators ended badly")?;
    }
    if let Some(reporting) = reporting {
        reporting.await.context("the reports for the console ended badly")?;
    }
    servers.shutdown().await;
    cache.shutdown().await;
    reactors.shutdown();
    if let Some(telemetry) = telemetry {
        telemetry.shutdown().await;
    }
    followed.shutdown().await?;
    admin.shutdown().await
}

/// What the coordinators are told of this worker, but for its rails, which come and go.
fn build_registration(
    worker: &WorkerSettings,
    tcp: &TcpSettings,
    listen: SocketAddr,
) -> anyhow::Result<WorkerRegistration> {
    Ok(WorkerRegistration {
        id: WorkerId(worker.id.clone()),
        incarnation: WorkerIncarnation::new(),
        address: match &worker.advertise {
            Some(address) => address.clone(),
            None => advertised_address(listen, tcp.bind_device.as_deref())?,
        },
        weight: worker_weight(worker),
        zone: worker.zone.clone(),
        tiers: tier_sizes(worker.memory.capacity.0, &worker.disk),
        rails: Vec::new(),
        knows: Epoch(0),
        place: host_fingerprint(listen),
    })
}

/// Of this host since it was started, in this process's network: nobody else listens there while
/// this process does. 0: the host does not say who it is.
fn host_fingerprint(listen: SocketAddr) -> u64 {
    let Ok(boot) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return 0 };
    let Ok(network) = std::fs::read_link("/proc/self/ns/net") else { return 0 };
    // Another release may count differently: then a worker that is started again waits for its
    // former lease.
    let mut hasher = std::hash::DefaultHasher::new();
    (boot.trim(), network, listen).hash(&mut hasher);
    hasher.finish().max(1)
}

/// Of memory alone, in GiB (only the proportion counts): hot blocks are read from memory, and
/// counting drives here would move nearly all slots to the first worker of a running cluster that
/// is started with this release.
fn worker_weight(worker: &WorkerSettings) -> f64 {
    if worker.weight > 0.0 {
        worker.weight
    } else {
        worker.memory.capacity.0 as f64 / f64::from(1 << 30)
    }
}

/// Where a worker keeps pages, as it was configured.
pub fn tier_sizes(memory_bytes: u64, disk: &WorkerDiskSettings) -> Vec<WorkerTierCapacity> {
    let tier = |kind: &str, bytes| WorkerTierCapacity { kind: kind.to_owned(), bytes };
    let disk_bytes: u64 = disk.folders.iter().map(|folder| folder.capacity.0).sum();
    let disk = (disk_bytes > 0).then(|| tier("disk", disk_bytes));
    [tier("memory", memory_bytes)].into_iter().chain(disk).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_config::{ByteSize, DiskFolderSettings};

    fn registered(change: impl FnOnce(&mut WorkerSettings)) -> WorkerRegistration {
        let mut worker = WorkerSettings { id: "gpu-07".into(), ..WorkerSettings::default() };
        worker.memory.capacity = ByteSize(64 << 30);
        change(&mut worker);
        let tcp = TcpSettings::default();
        build_registration(&worker, &tcp, "10.0.0.7:9400".parse().unwrap()).unwrap()
    }

    #[test]
    fn memory_and_drives_are_registered_and_memory_is_the_weight() {
        let tier = |kind: &str, bytes| WorkerTierCapacity { kind: kind.to_owned(), bytes };
        let plain = registered(|_| {});
        assert_eq!((plain.tiers, plain.weight), (vec![tier("memory", 64 << 30)], 64.0));
        let with_drives = registered(|worker| {
            for (drive, capacity) in [("nvme0", 3 << 40), ("nvme1", 1 << 40)] {
                worker
                    .disk
                    .folders
                    .push(DiskFolderSettings { path: drive.into(), capacity: ByteSize(capacity) });
            }
        });
        assert_eq!(with_drives.tiers, [tier("memory", 64 << 30), tier("disk", 4 << 40)]);
        assert_eq!(with_drives.weight, 64.0);
        assert_eq!(registered(|worker| worker.weight = 7.5).weight, 7.5);
    }
}

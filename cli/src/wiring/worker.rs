//! The worker process: a cache that gateways reach in as many ways as there are.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use verbs3_cache_worker::{DiskFolder, DiskOptions, DiskVolume, WorkerOptions, WorkerVolumes};
use verbs3_certificates::NodeRole;
use verbs3_config::{
    DiskFolderSettings, DiskVolumeSettings, RootSettings, WorkerDiskSettings, WorkerFillSettings,
    WorkerIndexSettings, WorkerLeasesSettings, WorkerSettings, WorkerWritesSettings,
};
use verbs3_coordinator_client::WorkerLeaseKeeper;
use verbs3_coordinator_client::api::{WorkerIncarnation, WorkerRegistration, WorkerTierCapacity};
use verbs3_gateway::{AdminEndpoints, ReadinessCheck};
use verbs3_protocol::{BlockGeometry, Epoch, ObjectVolume, PlacementMap, WorkerId};
use verbs3_rdma::arena::Arena;
use verbs3_telemetry::TelemetryHandle;
use verbs3_ufs::Ufs;

use super::admin_limits::admin_limits;
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
    } = config;
    let registry = Registry::new();
    verbs3_ufs::metrics::register(&registry)?;
    verbs3_rdma::metrics::register_metrics(&registry)?;
    let cluster = TrustedCluster::load(cluster)?;
    cluster.require_certificate(NodeRole::Worker, Some(&worker.id))?;
    let followed = cluster.follow_files(CancellationToken::new());
    let geometry = cluster_geometry(&cluster)?;
    let arena = map_arena(&worker.memory, 1, geometry)?;
    verbs3_rdma::metrics::register_arena(&registry, arena.clone())?;
    let stores = stores::open_stores(&ufs, &registry).await?;
    let coordinators = coordinator_client::build_client(&cluster);
    let map = match &coordinators {
        Some(_) => WorkerMapSource::Coordinated,
        // The same computation as a gateway's, from this worker's own list.
        None => WorkerMapSource::Of(PlacementMap::static_epoch(
            &cluster_members(&cluster),
            usize::from(cluster.replicas),
        )),
    };
    let cache = start_worker(&worker, geometry, map, arena.clone(), &stores, &registry)?;

    let telemetry =
        super::telemetry::start_telemetry(&telemetry, "verbs3-worker", &worker.id, &registry)?;
    if let Some(tracer) = telemetry.as_ref().map(TelemetryHandle::request_tracer) {
        cache.trace_with(tracer);
    }
    let reactors = ReactorThreads::start(usize::from(process.threads))
        .context("can't start threads; raise the process's thread limit")?;
    let settings =
        ServerSettings { tcp: &tcp, verbs: &verbs, cluster: &cluster, process: &process };
    let servers =
        WorkerServers::start(&worker, settings, &arena, cache.clone(), reactors.runtime_handles())
            .await?;
    let control = ListenEndpoint {
        address: worker.admin_listen,
        address_setting: "worker.admin_listen",
        device: worker.admin_bind_device.as_deref(),
        device_setting: "worker.admin_bind_device",
    };
    let socket = control.open_listener()?;
    let admin_address = socket.local_addr()?;
    let readiness = vec![ReadinessCheck::until_shutdown(started.stop.clone())];
    let (over, limits) = (CancellationToken::new(), admin_limits(&process));
    // Joined below, once all else has ended.
    let admin = tokio::spawn(
        AdminEndpoints { registry, readiness, stop: over.clone(), limits }.serve_endpoints(socket),
    );
    // Once gateways can connect, and until they need not any more.
    let tenancy = match coordinators {
        Some(client) => {
            let registration = build_registration(&worker, servers.local_addr())?;
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
    started.signal_ready(servers.local_addr(), Some(admin_address))?;
    started.stop.cancelled().await;
    if let Some(tenancy) = tenancy {
        tenancy.await.context("the talk with the coordinators ended badly")?;
    }
    servers.shutdown().await;
    cache.shutdown().await;
    reactors.shutdown();
    super::telemetry::shutdown_telemetry(telemetry).await;
    followed.shutdown().await?;
    over.cancel();
    admin.await.context("the admin endpoints ended badly")
}

/// What the coordinators are told of this worker, but for its rails, which come and go.
fn build_registration(
    worker: &WorkerSettings,
    listen: SocketAddr,
) -> anyhow::Result<WorkerRegistration> {
    Ok(WorkerRegistration {
        id: WorkerId(worker.id.clone()),
        incarnation: WorkerIncarnation::new(),
        address: match &worker.advertise {
            Some(address) => address.clone(),
            None => advertised_address(listen)?,
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

/// Whose askers a cache answers.
pub enum WorkerMapSource {
    /// Any: there is one asker, in this process.
    Any,
    /// Those of this epoch.
    Of(Epoch),
    /// Those of the coordinators' map, as it changes.
    Coordinated,
}

/// A cache over `map_arena`, for any bucket of `stores`.
pub fn start_worker(
    worker: &WorkerSettings,
    geometry: BlockGeometry,
    map: WorkerMapSource,
    arena: Arena,
    stores: &HashMap<String, Ufs>,
    registry: &Registry,
) -> anyhow::Result<Arc<verbs3_cache_worker::CacheWorker>> {
    // Addresses and memory are the caller's; the ways to it are the servers'.
    let WorkerSettings {
        id: _,
        listen: _,
        admin_listen: _,
        admin_bind_device: _,
        advertise: _,
        zone: _,
        weight: _,
        memory: _,
        fill,
        disk,
        index,
        writes,
        leases,
        neighbours,
        shm: _,
    } = worker;
    let WorkerFillSettings {
        reserve,
        in_flight_max,
        queued_max,
        bytes_in_flight_max,
        warms_in_flight_max,
        request_max,
        wait_max,
        unwanted_max,
        read_ahead_max,
        page_idle_max,
    } = fill;
    let WorkerIndexSettings { attributes_max, checks_in_flight_max, generation_slots } = index;
    let WorkerWritesSettings {
        uncertain_for_max,
        doubt_for,
        doubt_age_max,
        open_max,
        keys_per_message_max,
    } = writes;
    let WorkerLeasesSettings { length, reads_min, quiet_for, leases_max, holders_max } = leases;
    let short = |size: verbs3_config::ByteSize| u32::try_from(size.0).unwrap_or(u32::MAX);
    let options = WorkerOptions {
        geometry,
        epoch: if let WorkerMapSource::Of(epoch) = map { Some(epoch) } else { None },
        coordinated: matches!(map, WorkerMapSource::Coordinated),
        fill_reserve: *reserve,
        fills_in_flight_max: *in_flight_max as usize,
        fills_queued_max: *queued_max as usize,
        fill_bytes_in_flight_max: bytes_in_flight_max.0,
        warms_in_flight_max: *warms_in_flight_max as usize,
        fill_bytes_max: short(*request_max),
        fill_wait_max: wait_max.0,
        fill_unwanted_max: unwanted_max.0,
        read_ahead_bytes_max: short(*read_ahead_max),
        page_idle_max: (!page_idle_max.0.is_zero()).then_some(page_idle_max.0),
        uncertain_max: uncertain_for_max.0,
        doubt_for: doubt_for.0,
        doubt_age_max: doubt_age_max.0,
        open_writes_max: *open_max as usize,
        keys_per_message_max: *keys_per_message_max as usize,
        generation_slots: *generation_slots as usize,
        attributes_entries_max: *attributes_max as usize,
        checks_in_flight_max: *checks_in_flight_max as usize,
        former_asked_for: neighbours.asked_for.0,
        hot_blocks_max: neighbours.hot_blocks_max as usize,
        hand_over_bytes_per_second_max: neighbours.hand_over_rate_max.0,
        lease: length.0,
        lease_reads_min: *reads_min,
        lease_quiet: quiet_for.0,
        leases_max: *leases_max as usize,
        lease_holders_max: *holders_max as usize,
        disk: disk_options(disk),
    };
    let volumes = WorkerVolumes::of_stores(stores.values().cloned());
    verbs3_cache_worker::CacheWorker::new(options, arena, volumes, registry)
        .context("can't start the worker")
}

/// `None`: no folder is configured.
fn disk_options(disk: &WorkerDiskSettings) -> Option<DiskOptions> {
    let WorkerDiskSettings {
        queue_max,
        write_rate_max,
        pages_max,
        reads_in_flight_max,
        stall_max,
        direct,
        page_age_max,
        flush_max,
        folders,
        volumes,
    } = disk;
    let age = |period: &verbs3_config::TimePeriod| (!period.0.is_zero()).then_some(period.0);
    let folder = |DiskFolderSettings { path, capacity }: &DiskFolderSettings| DiskFolder {
        path: path.clone(),
        capacity_bytes: capacity.0,
    };
    let volume =
        |DiskVolumeSettings { volume, capacity, page_age_max }: &DiskVolumeSettings| DiskVolume {
            volume: ObjectVolume(volume.clone()),
            bytes_max: (capacity.0 > 0).then_some(capacity.0),
            age_max: age(page_age_max),
        };
    (!folders.is_empty()).then(|| DiskOptions {
        folders: folders.iter().map(folder).collect(),
        queue_bytes_max: queue_max.0,
        write_bytes_per_second_max: write_rate_max.0,
        pages_max: u64::from(*pages_max),
        reads_in_flight_max: *reads_in_flight_max as usize,
        stall_max: stall_max.0,
        direct: *direct,
        page_age_max: age(page_age_max),
        volumes: volumes.iter().map(volume).collect(),
        flush_max: flush_max.0,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_config::ByteSize;

    fn registered(change: impl FnOnce(&mut WorkerSettings)) -> WorkerRegistration {
        let mut worker = WorkerSettings { id: "gpu-07".into(), ..WorkerSettings::default() };
        worker.memory.capacity = ByteSize(64 << 30);
        change(&mut worker);
        build_registration(&worker, "10.0.0.7:9400".parse().unwrap()).unwrap()
    }

    #[test]
    fn memory_and_drives_are_registered_and_memory_alone_is_the_weight() {
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

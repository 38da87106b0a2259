//! Coordinators as processes see them: over HTTP, with the real client, over both stores.
#![allow(clippy::unwrap_used)]

mod certified;
mod console;
mod document;
#[path = "../store_conformance/etcd.rs"]
#[allow(dead_code)]
mod etcd;
mod hot;
mod maps;
mod put_back;
mod refused;
mod relays;
mod rotation;
mod strangers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::Registry;
use tokio::net::TcpListener;
use verbs3_coordinator::hot_block_table::CoordinatorHotSettings;
use verbs3_coordinator::store::SharedClusterStore;
use verbs3_coordinator::store::file::FileStore;
use verbs3_coordinator::{CoordinatorOptions, CoordinatorServer, CoordinatorSettings};
use verbs3_coordinator_client::api::{
    ClusterView, MapAnswer, RelinquishedEpoch, WorkerIncarnation, WorkerLeaseGrant,
    WorkerLeaseRenewal, WorkerRegistration,
};
use verbs3_coordinator_client::proof::ClusterSecret;
use verbs3_coordinator_client::{
    AskError, ClusterSecrets, CoordinatorClient, CoordinatorClientOptions,
};
use verbs3_protocol::{Epoch, WorkerId};
use verbs3_settings::{ByteSize, TimePeriod};

/// What etcd's cases need from the suite of the store.
struct Pair {
    #[allow(dead_code)]
    one: SharedClusterStore,
    #[allow(dead_code)]
    other: SharedClusterStore,
}

const LEASE: Duration = Duration::from_secs(6);
/// Lease of workers that no case leaves silent.
const LONG_LEASE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(90);
const SOON_MS: u64 = SOON.as_millis() as u64;

fn secret() -> ClusterSecret {
    ClusterSecret::new("tests", "a secret of at least sixteen characters")
}

fn options(name: &str, advertise: String) -> CoordinatorOptions {
    CoordinatorOptions {
        name: name.to_owned(),
        secrets: ClusterSecret::new(name, "a secret of at least sixteen characters").into(),
        tls: None,
        notification_token: Some(ClusterSecret::from_token("a token of the store")),
        advertise,
        replicas: 2,
        console_users: None,
        settings: CoordinatorSettings {
            lease: TimePeriod(LEASE),
            // Nobody loses it by standing still; who ends in order resigns.
            leadership: TimePeriod::from_seconds(10),
            outage: TimePeriod::from_seconds(60),
            gather: TimePeriod::from_millis(50),
            move_for: TimePeriod::from_seconds(0),
            workers_max: 10,
            hot: CoordinatorHotSettings {
                rate: ByteSize::from_mib(1),
                workers_max: 3,
                blocks_max: 10,
                reported_max: 10,
                report_every: TimePeriod::from_millis(100),
                cool_for: TimePeriod::from_seconds(1),
                good_for: TimePeriod::from_seconds(60),
            },
            connections_max: 100,
            unproven_connections_max: 100,
            unproven_per_address_max: 100,
            proof_deadline: TimePeriod::from_seconds(30),
            relays_max: 8,
            relays_memory: ByteSize::from_mib(1),
            ..CoordinatorSettings::default()
        },
    }
}

struct Running {
    url: String,
    coordinator: Arc<CoordinatorServer>,
}

async fn start(store: SharedClusterStore) -> Running {
    start_at("127.0.0.1:0", store, |_| {}).await
}

async fn start_with_long_leases(store: SharedClusterStore) -> Running {
    start_at("127.0.0.1:0", store, |options| options.settings.lease = TimePeriod(LONG_LEASE)).await
}

async fn start_at(
    address: &str,
    store: SharedClusterStore,
    change: impl FnOnce(&mut CoordinatorOptions),
) -> Running {
    let socket = TcpListener::bind(address).await.unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let mut options = options("tests", url.clone());
    change(&mut options);
    let coordinator = CoordinatorServer::new(options, store, &Registry::new()).await.unwrap();
    coordinator.start(socket);
    Running { url, coordinator }
}

fn client(urls: &[&str], secrets: impl Into<ClusterSecrets>) -> Arc<CoordinatorClient> {
    Arc::new(CoordinatorClient::new(CoordinatorClientOptions {
        coordinators: urls.iter().map(|&url| url.to_owned()).collect(),
        secrets: secrets.into(),
        tls: None,
        connect_deadline: Duration::from_secs(1),
        deadline: Duration::from_secs(20),
    }))
}

fn registration(id: &str) -> WorkerRegistration {
    WorkerRegistration {
        id: WorkerId(id.into()),
        incarnation: WorkerIncarnation(format!("life of {id}")),
        address: format!("{id}:9400"),
        weight: 1.0,
        zone: String::new(),
        tiers: Vec::new(),
        rails: Vec::new(),
        knows: Epoch(0),
        place: 0,
    }
}

/// Retries while the coordinators elect a leader.
async fn register(client: &CoordinatorClient, id: &str) -> WorkerLeaseGrant {
    let began = Instant::now();
    loop {
        match client.post_json("/v1/workers", &registration(id), Duration::ZERO).await {
            Ok(granted) => return granted.unwrap(),
            Err(AskError::Away(reason)) if began.elapsed() > SOON => panic!("{reason}"),
            Err(AskError::Away(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

fn renewal(id: &str, active: Epoch, prepared: Epoch) -> WorkerLeaseRenewal {
    WorkerLeaseRenewal {
        incarnation: registration(id).incarnation,
        active,
        prepared,
        open_writes: (prepared.0 > 0).then(Vec::new),
        wait_ms: 0,
        knows: Epoch(0),
        handing_over: None,
        heard: Vec::new(),
        hot: None,
        given_up: RelinquishedEpoch::default(),
        rails: None,
    }
}

async fn renew(
    client: &CoordinatorClient,
    id: &str,
    active: Epoch,
    prepared: Epoch,
    wait: Duration,
) -> Result<WorkerLeaseGrant, AskError> {
    let renewal =
        WorkerLeaseRenewal { wait_ms: wait.as_millis() as u64, ..renewal(id, active, prepared) };
    send_renewal(client, id, &renewal).await
}

/// Sends a renewal, and sends it again as a worker does while a map is coming into force: followers
/// may see the map a moment before the coordinator renews leases by it.
async fn send_renewal(
    client: &CoordinatorClient,
    id: &str,
    renewal: &WorkerLeaseRenewal,
) -> Result<WorkerLeaseGrant, AskError> {
    let (path, wait) = (format!("/v1/workers/{id}/renew"), Duration::from_millis(renewal.wait_ms));
    let began = Instant::now();
    loop {
        match client.post_json(&path, renewal, wait).await {
            Err(AskError::Away(reason))
                if reason.contains("coming into force") && began.elapsed() < SOON =>
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return Ok(answer?.unwrap()),
        }
    }
}

async fn map(client: &CoordinatorClient, epoch: u64, wait_ms: u64) -> Option<MapAnswer> {
    let path = format!("/v1/map?epoch={epoch}&wait_ms={wait_ms}");
    client.get(&path, Duration::from_millis(wait_ms)).await.unwrap()
}

fn file_store(folder: &tempfile::TempDir) -> SharedClusterStore {
    Arc::new(FileStore::open_folder(folder.path()).unwrap())
}

/// Opens the store again, once the former coordinator's last answers have released it.
async fn file_store_again(folder: &tempfile::TempDir) -> SharedClusterStore {
    let began = Instant::now();
    loop {
        match FileStore::open_folder(folder.path()) {
            Ok(store) => return Arc::new(store),
            Err(error) if began.elapsed() > SOON => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

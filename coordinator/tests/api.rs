//! Coordinators as processes see them: over HTTP, with the real client, over both stores.
#![allow(clippy::unwrap_used)]

#[path = "store_conformance/etcd.rs"]
#[allow(dead_code)]
mod etcd;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prometheus::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use verbs3_coordinator::cluster::ClusterOptions;
use verbs3_coordinator::store::file::FileStore;
use verbs3_coordinator::store::{Expect, SharedStore};
use verbs3_coordinator::{ClaimError, Coordinator, CoordinatorError, CoordinatorOptions};
use verbs3_coordinator_client::api::{
    ClusterView, Granted, Incarnation, MapAnswer, RefusedKind, Registration, Renewal, WorkerState,
};
use verbs3_coordinator_client::proof::Secret;
use verbs3_coordinator_client::{AskError, Client, ClientOptions, Follower};
use verbs3_protocol::{Epoch, WorkerId};

/// What etcd's cases need of the suite that they come from.
struct Pair {
    #[allow(dead_code)]
    one: SharedStore,
    #[allow(dead_code)]
    other: SharedStore,
}

const LEASE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(90);

fn secret() -> Secret {
    Secret::new("tests", "a secret of at least sixteen characters")
}

fn options(name: &str, advertise: String) -> CoordinatorOptions {
    CoordinatorOptions {
        name: name.to_owned(),
        secret: Secret::new(name, "a secret of at least sixteen characters"),
        notification_token: Some(Secret::token("a token of the store")),
        advertise,
        cluster: ClusterOptions {
            lease: LEASE,
            outage: Duration::from_secs(60),
            gather: Duration::from_millis(50),
            replicas: 2,
            workers_max: 10,
        },
        leadership: Duration::from_secs(2),
        clock_skew: Duration::from_secs(60),
        connections_max: 100,
        wait_max: Duration::from_secs(30),
    }
}

struct Running {
    url: String,
    coordinator: Arc<Coordinator>,
}

async fn start(store: SharedStore) -> Running {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let coordinator = Coordinator::new(options("tests", url.clone()), store, &Registry::new()).await.unwrap();
    coordinator.start(socket);
    Running { url, coordinator }
}

fn client(urls: &[&str], secret: Secret) -> Arc<Client> {
    Arc::new(Client::new(ClientOptions {
        coordinators: urls.iter().map(|&url| url.to_owned()).collect(),
        secret,
        connect_deadline: Duration::from_secs(1),
        deadline: Duration::from_secs(5),
    }))
}

fn registration(id: &str) -> Registration {
    Registration {
        id: WorkerId(id.into()),
        incarnation: Incarnation(format!("life of {id}")),
        address: format!("{id}:9400"),
        weight: 1.0,
        zone: String::new(),
        tiers: Vec::new(),
        rails: Vec::new(),
        knows: Epoch(0),
    }
}

/// Retries while the coordinators elect a leader.
async fn register(client: &Client, id: &str) -> Granted {
    let began = Instant::now();
    loop {
        match client.post("/v1/workers", &registration(id), Duration::ZERO).await {
            Ok(granted) => return granted.unwrap(),
            Err(AskError::Away(reason)) if began.elapsed() > SOON => panic!("{reason}"),
            Err(AskError::Away(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn renew(client: &Client, id: &str, active: Epoch, prepared: Epoch, wait: Duration) -> Result<Granted, AskError> {
    let renewal = Renewal {
        incarnation: registration(id).incarnation,
        active,
        prepared,
        open_writes: (prepared.0 > 0).then(Vec::new),
        wait_ms: wait.as_millis() as u64,
        knows: Epoch(0),
        handing_over: None,
    };
    Ok(client.post(&format!("/v1/workers/{id}/renew"), &renewal, wait).await?.unwrap())
}

async fn map(client: &Client, epoch: u64, wait_ms: u64) -> Option<MapAnswer> {
    let path = format!("/v1/map?epoch={epoch}&wait_ms={wait_ms}");
    client.get(&path, Duration::from_millis(wait_ms)).await.unwrap()
}

fn file_store(folder: &tempfile::TempDir) -> SharedStore {
    Arc::new(FileStore::open(folder.path()).unwrap())
}

/// The same again, once the last answers of the coordinator before have let go of it.
async fn file_store_again(folder: &tempfile::TempDir) -> SharedStore {
    let began = Instant::now();
    loop {
        match FileStore::open(folder.path()) {
            Ok(store) => return Arc::new(store),
            Err(error) if began.elapsed() > SOON => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_join_and_everybody_follows_the_map() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let client = client(&[&running.url], secret());
    let (follower, mut follows) = Follower::new(client.clone());
    let stop = CancellationToken::new();
    let following = tokio::spawn(follower.run(stop.clone()));

    register(&client, "a").await;
    let first = tokio::time::timeout(SOON, follows.wait_for(Option::is_some)).await.unwrap().unwrap().clone().unwrap();
    assert_eq!(first.members.iter().map(|member| member.id.0.as_str()).collect::<Vec<_>>(), ["a"]);
    let granted = renew(&client, "a", Epoch(0), Epoch(0), Duration::ZERO).await.unwrap();
    assert_eq!(granted.activation.unwrap().resolved(None).unwrap().membership, *first);

    // Another one joins: who is in the map is asked to give it up, at once and not after its wait.
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { renew(&client, "a", first.epoch, Epoch(0), SOON).await.unwrap() })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    register(&client, "b").await;
    let asked = Instant::now();
    let prepare = waiting.await.unwrap().prepare.unwrap();
    assert!(asked.elapsed() < SOON / 2);
    assert_eq!(follows.borrow().as_ref().unwrap().members.len(), 1);
    renew(&client, "a", Epoch(0), prepare, Duration::ZERO).await.unwrap();
    let both = |map: &Option<Arc<verbs3_protocol::Membership>>| map.as_ref().is_some_and(|map| map.members.len() == 2);
    tokio::time::timeout(SOON, follows.wait_for(both)).await.unwrap().unwrap();

    // Who knows the map before is told what changed, who knows none all of it, and who knows the newest waits.
    assert!(matches!(map(&client, 0, 0).await, Some(MapAnswer::Membership(map)) if map.members.len() == 2));
    let Some(MapAnswer::Change(change)) = map(&client, 1, 0).await.map(|answer| match answer {
        MapAnswer::Membership(membership) => {
            MapAnswer::Change(verbs3_protocol::Membership::default().change_to(&membership))
        }
        change => change,
    }) else {
        panic!("no change")
    };
    assert_eq!(change.joined.len(), 2);
    assert!(map(&client, prepare.0, 100).await.is_none());
    let view: ClusterView = client.get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(view.workers.iter().map(|worker| worker.slots).sum::<u32>(), 65_536);
    assert!(view.workers.iter().all(|worker| worker.state == WorkerState::Serving), "{view:?}");
    let place: serde_json::Value =
        client.get("/v1/placement?volume=store%2Fdata&key=a%20b", Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(place["workers"].as_array().unwrap().len(), 2);
    stop.cancel();
    following.await.unwrap();
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_goes_on_with_the_map_and_waits_for_leases() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(file_store(&folder)).await;
    let asking = client(&[&first.url], secret());
    for id in ["a", "b"] {
        register(&asking, id).await;
    }
    let began = Instant::now();
    while !matches!(map(&asking, 0, 1000).await, Some(MapAnswer::Membership(map)) if map.members.len() == 2) {
        for id in ["a", "b"] {
            let prepare = renew(&asking, id, Epoch(0), Epoch(0), Duration::ZERO).await.unwrap().prepare;
            renew(&asking, id, Epoch(0), prepare.unwrap_or_default(), Duration::ZERO).await.unwrap();
        }
        assert!(began.elapsed() < SOON);
    }
    first.coordinator.shutdown().await;
    drop(first);
    let second = start(file_store_again(&folder).await).await;
    let asking = client(&[&second.url], secret());
    let began = Instant::now();
    assert!(matches!(map(&asking, 0, 5000).await, Some(MapAnswer::Membership(map)) if map.members.len() == 2));
    let unknown = loop {
        match renew(&asking, "a", Epoch(1), Epoch(0), Duration::ZERO).await {
            Err(AskError::Away(_)) if began.elapsed() < SOON => tokio::time::sleep(Duration::from_millis(20)).await,
            other => break other,
        }
    };
    assert_eq!(unknown.unwrap_err().kind(), Some(RefusedKind::Unknown));
    // `b` is silent: the map is without it, but not before its lease must be over.
    loop {
        let granted = register(&asking, "a").await;
        if let Some(prepare) = granted.prepare {
            renew(&asking, "a", Epoch(0), prepare, Duration::ZERO).await.unwrap();
        }
        match map(&asking, 0, 0).await {
            Some(MapAnswer::Membership(map)) if map.members.len() == 1 => break,
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        assert!(began.elapsed() < SOON);
    }
    assert!(began.elapsed() >= LEASE, "{:?}", began.elapsed());
    second.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_know_the_secret_gets_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    register(&client(&[&running.url], secret()), "a").await;
    let stranger = client(&[&running.url], Secret::new("tests", "another secret of that length"));
    let refused = stranger.post::<_, Granted>("/v1/workers", &registration("evil"), Duration::ZERO).await;
    // What comes back proves nothing to it either.
    assert!(matches!(&refused, Err(AskError::Away(reason)) if reason.contains("does not prove")), "{refused:?}");
    assert!(stranger.get::<ClusterView>("/v1/cluster", Duration::ZERO).await.is_err());
    let view: ClusterView =
        client(&[&running.url], secret()).get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(view.workers.len(), 1);
    running.coordinator.shutdown().await;
}

/// The status of a request that proves nothing.
async fn unproven(url: &str, method: &str, path: &str, header: &str) -> u16 {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let body = r#"{"Event":"s3:TestEvent"}"#;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}{header}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stores_token_lets_notifications_in_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let url = &running.url;
    let bearer = "authorization: Bearer a token of the store\r\n";
    // 503: this coordinator has no stores.
    assert_eq!(unproven(url, "POST", "/v1/notifications", bearer).await, 503);
    assert_eq!(unproven(url, "POST", "/v1/notifications?warm=true&token=a+token%20of+the+store", "").await, 503);
    assert_eq!(unproven(url, "POST", "/v1/notifications?token=a+token", "").await, 401);
    assert_eq!(unproven(url, "POST", "/v1/notifications", "authorization: Bearer another\r\n").await, 401);
    assert_eq!(unproven(url, "POST", "/v1/notifications", "").await, 401);
    let others =
        [("POST", "/v1/invalidate"), ("POST", "/v1/workers"), ("GET", "/v1/notifications"), ("GET", "/v1/map")];
    for (method, path) in others {
        assert_eq!(unproven(url, method, path, bearer).await, 401, "{method} {path}");
    }
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_id_is_refused_with_who_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let asking = client(&[&running.url], secret());
    register(&asking, "a").await;
    let other = Registration { incarnation: Incarnation::new(), address: "elsewhere:9400".into(), ..registration("a") };
    let refused = asking.post::<_, Granted>("/v1/workers", &other, Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.kind(), Some(RefusedKind::Taken));
    assert!(refused.to_string().contains("a:9400"), "{refused}");
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_another_cluster_is_refused() {
    let process = etcd::start("claim");
    let folder = tempfile::tempdir().unwrap();
    let stores = [file_store(&folder), etcd::store(&process.endpoint, "claim").await];
    for store in stores {
        let made = |name: &'static str| {
            let store = store.clone();
            async move { Coordinator::new(options(name, "http://here".into()), store, &Registry::new()).await }
        };
        made("train").await.unwrap();
        made("train").await.unwrap();
        let refused = made("prod").await.err().unwrap();
        assert!(matches!(refused, CoordinatorError::Claim(ClaimError::Other { .. })), "{refused}");
        assert!(refused.to_string().contains("\"train\""), "{refused}");
        // As a release left it that ranked slots by other rules.
        let entry = store.get("cluster").await.unwrap().unwrap();
        let mut claim: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
        claim.as_object_mut().unwrap().remove("ranking").unwrap();
        let claim = Bytes::from(serde_json::to_vec(&claim).unwrap());
        store.put("cluster", claim, Expect::Revision(entry.revision), None).await.unwrap();
        let refused = made("train").await.err().unwrap();
        assert!(matches!(refused, CoordinatorError::Claim(ClaimError::Ranking { found: 0, .. })), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_coordinators_one_leads_and_is_followed_when_it_ends() {
    let process = etcd::start("three");
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(start(etcd::store(&process.endpoint, "three").await).await);
    }
    let urls: Vec<&str> = running.iter().map(|running| running.url.as_str()).collect();
    // Each asked alone: who does not lead says who does.
    for url in &urls {
        register(&client(&[url], secret()), "a").await;
    }
    let asking = client(&urls, secret());
    let view: ClusterView = asking.get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    let leads = running.iter().position(|running| Some(&running.url) == view.leader.as_ref()).unwrap();
    let Some(MapAnswer::Membership(before)) = map(&asking, 0, 5000).await else { panic!("no map") };
    let ended = running.remove(leads);
    let began = Instant::now();
    ended.coordinator.shutdown().await;
    register(&asking, "b").await;
    println!("followed {:.1} s after its end began", began.elapsed().as_secs_f64());
    for url in running.iter().map(|running| running.url.as_str()) {
        let Some(MapAnswer::Membership(after)) = map(&client(&[url], secret()), 0, 5000).await else {
            panic!("{url} knows no map")
        };
        assert!(after.epoch >= before.epoch);
    }
    for running in running {
        running.coordinator.shutdown().await;
    }
}

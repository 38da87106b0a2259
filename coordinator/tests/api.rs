//! Coordinators as processes see them: over HTTP, with the real client, over both stores.
#![allow(clippy::unwrap_used)]

#[path = "store_conformance/etcd.rs"]
#[allow(dead_code)]
mod etcd;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prometheus::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use verbs3_coordinator::cluster::ClusterOptions;
use verbs3_coordinator::hot::HotOptions;
use verbs3_coordinator::store::file::FileStore;
use verbs3_coordinator::store::{Expect, SharedStore};
use verbs3_coordinator::{ClaimError, Coordinator, CoordinatorError, CoordinatorOptions, RelayOptions};
use verbs3_coordinator_client::api::{
    ClusterView, GivenUp, Granted, HeardWord, Incarnation, MapAnswer, RefusedKind, Registration, Relay, RelayedWord,
    Renewal, WorkerState,
};
use verbs3_coordinator_client::hot::HotBlock;
use verbs3_coordinator_client::proof::{REQUEST_HEADER, Said, Secret, wall_clock_ms};
use verbs3_coordinator_client::{AskError, Client, ClientOptions, Follower, HotFollower};
use verbs3_protocol::{
    BlockIndex, Epoch, Heard, ObjectKey, Relayed, Report, Volume, Word, WorkerId, WriteId, WriteOutcome,
};

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
        hot: HotOptions {
            rate_per_worker: 1 << 20,
            workers_max: 3,
            blocks_max: 10,
            reported_max: 10,
            report_every: Duration::from_millis(100),
            cool_for: Duration::from_secs(1),
            good_for: Duration::from_secs(60),
        },
        leadership: Duration::from_secs(2),
        clock_skew: Duration::from_secs(60),
        connections_max: 100,
        wait_max: Duration::from_secs(30),
        relays: RelayOptions { words_max: 8, bytes_max: 1 << 20 },
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

fn renewal(id: &str, active: Epoch, prepared: Epoch) -> Renewal {
    Renewal {
        incarnation: registration(id).incarnation,
        active,
        prepared,
        open_writes: (prepared.0 > 0).then(Vec::new),
        wait_ms: 0,
        knows: Epoch(0),
        handing_over: None,
        heard: Vec::new(),
        hot: None,
        given_up: GivenUp::default(),
        rails: None,
    }
}

async fn renew(client: &Client, id: &str, active: Epoch, prepared: Epoch, wait: Duration) -> Result<Granted, AskError> {
    let renewal = Renewal { wait_ms: wait.as_millis() as u64, ..renewal(id, active, prepared) };
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
async fn gateways_hear_of_the_hot_blocks_that_workers_report_until_they_are_cold() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let client = client(&[&running.url], secret());
    let wish = register(&client, "a").await.hot.unwrap();
    assert_eq!((wish.every_ms, wish.rate_min, wish.blocks_max), (100, 1 << 17, 10));
    register(&client, "b").await;
    let (sender, mut heard) = tokio::sync::watch::channel(HashMap::new());
    let own = self::client(&[&running.url], secret());
    let follower = HotFollower::new(own, move |blocks| drop(sender.send_replace(blocks)));
    let stop = CancellationToken::new();
    let following = tokio::spawn(follower.run(stop.clone()));

    let object = ObjectKey { volume: Volume::new("store", "train"), key: "k".into() };
    let (block, hash) = (BlockIndex(2), object.block_hash(BlockIndex(2)));
    let report = async |rate: u64| {
        for id in ["a", "b"] {
            // While a map comes into force there is no answer.
            let Ok(granted) = renew(&client, id, Epoch(0), Epoch(0), Duration::ZERO).await else { continue };
            let prepare = granted.prepare;
            let hot = vec![HotBlock { object: object.clone(), block, bytes_per_second: rate }];
            let renewal = Renewal { hot: Some(hot), ..renewal(id, Epoch(0), prepare.unwrap_or_default()) };
            let path = format!("/v1/workers/{id}/renew");
            let granted: Result<Option<Granted>, AskError> = client.post(&path, &renewal, Duration::ZERO).await;
            if let Ok(Some(granted)) = granted {
                assert_eq!(granted.hot, Some(wish));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let began = Instant::now();
    while heard.borrow_and_update().get(&hash) != Some(&2) {
        report(5 << 20).await;
        assert!(began.elapsed() < SOON, "{:?}", heard.borrow());
    }
    let view: ClusterView = client.get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    assert_eq!((view.hot.blocks, view.hot.hottest[0].workers, view.hot.hottest[0].key.as_str()), (1, 2, "k"));
    // They live on, and serve little of it.
    while !heard.borrow_and_update().is_empty() {
        report(1).await;
        assert!(began.elapsed() < 2 * SOON, "{:?}", heard.borrow());
    }
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

/// Of relays they would be as many as writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_is_good_once_but_for_questions_and_for_words_to_workers() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    register(&client(&[&running.url], secret()), "a").await;
    let path = |name: &str| format!("/v1/workers/a/{name}");
    // 400: such a body is none of theirs.
    let cases =
        [("POST", path("renew"), [400, 401]), ("POST", path("leave"), [400, 401]), ("POST", path("relay"), [400, 400])];
    for (method, path, statuses) in cases {
        let said = Said { method, path_and_query: &path, body: EVENT.as_bytes() };
        let (proof, _) = secret().prove(said, wall_clock_ms());
        let header = format!("{REQUEST_HEADER}: {proof}\r\n");
        for status in statuses {
            assert_eq!(unproven(&running.url, method, &path, &header).await, status, "{path}");
        }
        let (old, _) = secret().prove(said, wall_clock_ms() - 120_000);
        let header = format!("{REQUEST_HEADER}: {old}\r\n");
        assert_eq!(unproven(&running.url, method, &path, &header).await, 401, "{path}, of another time");
    }
    running.coordinator.shutdown().await;
}

const EVENT: &str = r#"{"Event":"s3:TestEvent"}"#;

/// The status of a request that proves nothing by itself.
async fn unproven(url: &str, method: &str, path: &str, header: &str) -> u16 {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let body = EVENT;
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

fn word(epoch: Epoch, sequence: u64) -> Word {
    let (volume, keys) = (Volume("store/data".into()), vec!["k \u{1}\"".to_owned()]);
    let write = WriteId { gateway: u64::MAX, sequence };
    Word::Report(Report { volume, keys, write, epoch, outcome: WriteOutcome::Done })
}

/// A gateway has the coordinators relay a word to worker `id`.
async fn relay(client: &Client, id: &str, word: Word, wait: Duration) -> Result<Relayed, AskError> {
    let relay = Relay { word, wait_ms: wait.as_millis() as u64 };
    Ok(client.post(&format!("/v1/workers/{id}/relay"), &relay, wait).await?.unwrap())
}

async fn renew_heard(client: &Client, active: Epoch, heard: Vec<HeardWord>, wait: Duration) -> Granted {
    let incarnation = registration("a").incarnation;
    let (prepared, open_writes, knows, handing_over) = (Epoch(0), None, active, None);
    let wait_ms = wait.as_millis() as u64;
    let given_up = GivenUp::default();
    let renewal = Renewal {
        incarnation,
        active,
        prepared,
        open_writes,
        wait_ms,
        knows,
        handing_over,
        heard,
        hot: None,
        given_up,
        rails: None,
    };
    client.post("/v1/workers/a/renew", &renewal, wait).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writers_word_reaches_a_worker_by_its_renewals() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let (gateway, worker) = (client(&[&running.url], secret()), client(&[&running.url], secret()));
    register(&worker, "a").await;
    let Some(MapAnswer::Membership(in_force)) = map(&worker, 0, 5000).await else { panic!("no map") };
    let epoch = in_force.epoch;

    // The worker waits for news, and has it at once; the answer goes with its next renewal.
    let relayed = tokio::spawn({
        let gateway = gateway.clone();
        async move { relay(&gateway, "a", word(epoch, 1), SOON).await }
    });
    let began = Instant::now();
    let granted = renew_heard(&worker, epoch, Vec::new(), SOON).await;
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    let [RelayedWord { id, word: said }] = &granted.words[..] else { panic!("{granted:?}") };
    assert_eq!(*said, word(epoch, 1));
    // That answer was lost: the word comes again.
    let granted = renew_heard(&worker, epoch, Vec::new(), SOON).await;
    assert_eq!(granted.words.iter().map(|word| word.id).collect::<Vec<_>>(), [*id]);
    assert!(!relayed.is_finished(), "nobody has heard it");
    let heard = vec![HeardWord { id: *id, heard: Heard::Done }];
    let granted = renew_heard(&worker, epoch, heard.clone(), Duration::ZERO).await;
    assert_eq!(granted.words, []);
    assert_eq!(relayed.await.unwrap().unwrap(), Relayed::Heard(Heard::Done));

    // Whom it can't reach, or not under this map, is told apart; who asks in vain is told so in time.
    let later = Epoch(epoch.0 + 1);
    assert_eq!(relay(&gateway, "a", word(later, 2), SOON).await.unwrap(), Relayed::OtherEpoch(epoch));
    assert_eq!(relay(&gateway, "b", word(epoch, 2), SOON).await.unwrap(), Relayed::NoLease);
    assert_eq!(relay(&gateway, "a", word(epoch, 2), Duration::from_millis(50)).await.unwrap(), Relayed::Silent);
    let nothing = Word::Report(Report { keys: Vec::new(), ..report_of(word(epoch, 2)) });
    assert_eq!(relay(&gateway, "a", nothing, SOON).await.unwrap_err().kind(), Some(RefusedKind::Malformed));
    // The longest that a batch delete makes; one that is longer is refused by who sends it, who can say why.
    let keys = |key: String| Word::Report(Report { keys: vec![key; 1000], ..report_of(word(later, 2)) });
    assert_eq!(relay(&gateway, "a", keys("\"".repeat(1024)), SOON).await.unwrap(), Relayed::OtherEpoch(epoch));
    let too_long = relay(&gateway, "a", keys("\u{1}".repeat(1024)), SOON).await;
    assert!(matches!(too_long, Err(AskError::TooLong { bytes }) if bytes > 6_000_000), "{too_long:?}");
    let stranger = client(&[&running.url], Secret::new("tests", "another secret of sixteen characters"));
    assert!(relay(&stranger, "a", word(epoch, 2), SOON).await.is_err());

    // As many as may wait; those whose askers hang up make room, and nobody hears them.
    let waiting: Vec<_> = (0..8)
        .map(|n| {
            let gateway = gateway.clone();
            // The place may be one that the question below has for a moment.
            let until_it_waits =
                async move { while relay(&gateway, "a", word(epoch, 10 + n), SOON).await.unwrap() == Relayed::Full {} };
            tokio::spawn(until_it_waits)
        })
        .collect();
    let began = Instant::now();
    while relay(&gateway, "a", word(epoch, 3), Duration::from_millis(1)).await.unwrap() != Relayed::Full {
        // Keeps the lease.
        renew_heard(&worker, epoch, Vec::new(), Duration::ZERO).await;
        assert!(began.elapsed() < SOON);
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    while relay(&gateway, "a", word(epoch, 4), Duration::from_millis(1)).await.unwrap() == Relayed::Full {
        renew_heard(&worker, epoch, Vec::new(), Duration::ZERO).await;
        assert!(began.elapsed() < SOON);
    }
    while !renew_heard(&worker, epoch, heard.clone(), Duration::ZERO).await.words.is_empty() {
        assert!(began.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.coordinator.shutdown().await;
}

fn report_of(word: Word) -> Report {
    match word {
        Word::Report(report) => report,
        Word::Announce(_) => panic!("no report"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_worker_when_the_leader_ends_asks_the_next() {
    let process = etcd::start("relays");
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(start(etcd::store(&process.endpoint, "relays").await).await);
    }
    let urls: Vec<String> = running.iter().map(|running| running.url.clone()).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let (gateway, worker) = (client(&urls, secret()), client(&urls, secret()));
    register(&worker, "a").await;
    let Some(MapAnswer::Membership(in_force)) = map(&worker, 0, 5000).await else { panic!("no map") };
    let epoch = in_force.epoch;
    let view: ClusterView = gateway.get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    let leads = running.iter().position(|running| Some(&running.url) == view.leader.as_ref()).unwrap();
    let relayed = tokio::spawn(async move {
        let began = Instant::now();
        loop {
            match relay(&gateway, "a", word(epoch, 1), Duration::from_secs(1)).await {
                Ok(heard @ Relayed::Heard(_)) => return heard,
                other => assert!(began.elapsed() < SOON, "{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    // The leader that has handed the word out ends, and what the worker answers is the next one's to hear, which knows nothing of it.
    let granted = renew_heard(&worker, epoch, Vec::new(), SOON).await;
    let lost: Vec<HeardWord> =
        granted.words.iter().map(|word| HeardWord { id: word.id, heard: Heard::Unleased }).collect();
    assert_eq!(lost.len(), 1);
    running.remove(leads).coordinator.shutdown().await;
    register(&worker, "a").await;
    assert_eq!(renew_heard(&worker, epoch, lost, Duration::ZERO).await.active, epoch);
    let mut heard = Vec::new();
    while !relayed.is_finished() {
        let granted = renew_heard(&worker, epoch, heard, Duration::from_millis(100)).await;
        heard = granted.words.iter().map(|word| HeardWord { id: word.id, heard: Heard::Done }).collect();
    }
    assert_eq!(relayed.await.unwrap(), Relayed::Heard(Heard::Done));
    for running in running {
        running.coordinator.shutdown().await;
    }
}

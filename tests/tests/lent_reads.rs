//! Reads into memory that a process has lent, from workers behind tcp: received where they belong,
//! right whatever becomes of a worker or of its bytes, and never changed once they are answered.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs3_lending_client::{
    ClientLendingError, LendingClient, LendingClientOptions, LentBody, LentReadMethod,
    LentReadRequest,
};
use verbs3_tests::metrics::eventually;
use verbs3_tests::{ACCESS_KEY, Cluster, ClusterBuilder, SECRET_KEY, Section, content, reading};

const MIB: usize = 1 << 20;
/// For anything to happen. Generous: the machine may be busy with other tests.
const WITHIN: Duration = Duration::from_secs(120);
/// The beginning of an object, which may be all of one that the gateway holds
/// (`gateway.tier.small_object_max`).
const HELD_MAX: usize = 256 << 10;
const COPIED: &str = "verbs3_lending_bytes_landed_total";
const PLACED: &str = "verbs3_lending_bytes_placed_total";

struct LentReadFixture {
    cluster: Cluster,
    bucket: String,
    lender: Arc<LendingClient>,
    _folder: tempfile::TempDir,
}

impl LentReadFixture {
    async fn start(builder: ClusterBuilder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("gateway.sock");
        let lending = format!("[gateway.lending]\nsocket = \"{}\"", socket.display());
        let cluster = builder.settings(Section::Gateway, &lending).start().await.unwrap();
        let bucket = cluster.bucket("lent").await.unwrap();
        let lender = connect(&socket).await;
        Self { cluster, bucket, lender, _folder: folder }
    }

    async fn put(&self, key: &str, length: usize) {
        let client = reading::once(&self.cluster.gateways()[0].client);
        reading::put_surely(&client, &self.bucket, key, 1, length).await;
    }

    /// Reads a range, and sees that its bytes are right.
    async fn read(&self, key: &str, from: usize, to: usize) -> LentBody {
        let request = LentReadRequest {
            method: LentReadMethod::Get,
            bucket: self.bucket.clone(),
            key: key.to_owned(),
            headers: vec![("range".to_owned(), format!("bytes={from}-{}", to - 1))],
        };
        let lender = self.lender.clone();
        let bytes = (to - from) as u64;
        let read = move || lender.read_object(&request, bytes, || Ok::<(), ClientLendingError>(()));
        let answer = tokio::task::spawn_blocking(read).await.unwrap().unwrap();
        assert_eq!(answer.head.status, 206, "{key} {from}..{to}");
        assert_eq!(answer.body.body_bytes(), to - from);
        content::check(key, 1, from, &answer.body.to_vec()).unwrap();
        answer.body
    }

    /// Returns the bytes that were copied, and those that were received in their place.
    async fn landed(&self) -> (f64, f64) {
        let metrics = self.cluster.metrics("gateway-0").await.unwrap();
        (metrics.sum(COPIED, &[]), metrics.sum(PLACED, &[]))
    }

    /// Waits until no landing is held any more.
    async fn all_memory_is_back(&self) {
        let is_back = async || {
            let metrics = self.cluster.metrics("gateway-0").await.unwrap();
            let held = metrics.sum("verbs3_rdma_landings_quarantined", &[]);
            if held == 0.0 { Ok(()) } else { Err(format!("{held} landings in quarantine")) }
        };
        eventually(WITHIN, is_back).await.unwrap();
    }
}

/// Two workers that are reached over tcp, and whose attributes gateways hold under leases.
fn leased() -> ClusterBuilder {
    let builder = Cluster::builder().workers(2).coordinated().lease("6s");
    builder.settings(Section::Worker, "enabled = false")
}

async fn connect(socket: &Path) -> Arc<LendingClient> {
    let options = LendingClientOptions {
        socket: socket.to_owned(),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        region: "us-east-1".to_owned(),
        memory_bytes: 128 << 20,
        reads_max: 16,
        page_loans: 64,
        poll_for: Duration::from_micros(100),
        reconnect_for: WITHIN,
        read_for: WITHIN,
        pinner: None,
    };
    tokio::task::spawn_blocking(move || LendingClient::connect(options)).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_reads_over_tcp_are_received_in_their_place() {
    let fixture = LentReadFixture::start(leased()).await;
    let length = 21 * MIB + 12_345;
    fixture.put("long", length).await;
    fixture.read("long", 0, length).await;
    let ranges =
        [(0, length), (5, 9 * MIB), (3 * MIB + 1, 3 * MIB + 300_001), (length - 70_001, length)];
    for (from, to) in ranges {
        fixture.read("long", from, to).await;
    }
    let before = fixture.landed().await;
    for (from, to) in ranges {
        let (copied, _) = fixture.landed().await;
        fixture.read("long", from, to).await;
        println!("{from}..{to}: {} bytes were copied", fixture.landed().await.0 - copied);
    }
    let after = fixture.landed().await;
    let wanted: usize = ranges.iter().map(|(from, to)| to - from).sum();
    let (copied, placed) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(copied + placed, wanted as f64);
    assert!(copied <= HELD_MAX as f64, "{copied} bytes were copied");
    fixture.all_memory_is_back().await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_the_gateway_holds_are_copied() {
    let fixture = LentReadFixture::start(leased()).await;
    fixture.put("short", 3_000).await;
    for _ in 0..5 {
        fixture.read("short", 0, 3_000).await;
    }
    assert_eq!(fixture.landed().await, (15_000.0, 0.0), "the gateway holds what is short");
    fixture.cluster.stop().await.unwrap();
}

/// A worker that is stopped in the middle writes when it goes on: by then others have the memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_from_a_worker_that_is_paused_end_right_and_stay_so() {
    let fixture = LentReadFixture::start(leased()).await;
    let (length, read) = (24 * MIB, 6 * MIB);
    fixture.put("paused", length).await;
    fixture.read("paused", 0, length).await;
    for round in 0..4 {
        let worker = format!("worker-{}", round % 2);
        let stop = async {
            tokio::time::sleep(Duration::from_millis(5 * round)).await;
            fixture.cluster.signal(&worker, "-STOP").unwrap();
        };
        let began = Instant::now();
        let reads = (0..4).map(|at| fixture.read("paused", at * read, (at + 1) * read));
        let (bodies, ()) = tokio::join!(futures::future::join_all(reads), stop);
        let again = fixture.read("paused", 0, read).await;
        println!("{worker} stopped: reads took {:?}", began.elapsed());
        fixture.cluster.signal(&worker, "-CONT").unwrap();
        // What it had under way would arrive now.
        tokio::time::sleep(Duration::from_millis(500)).await;
        for (at, body) in bodies.iter().enumerate() {
            content::check("paused", 1, at * read, &body.to_vec()).unwrap();
        }
        content::check("paused", 1, 0, &again.to_vec()).unwrap();
    }
    fixture.all_memory_is_back().await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_while_workers_are_killed_end_right() {
    let mut fixture = LentReadFixture::start(leased()).await;
    let length = 12 * MIB;
    fixture.put("killed", length).await;
    for round in 0..4 {
        fixture.read("killed", 0, length).await;
        let reads = (0..4).map(|at| fixture.read("killed", at * 3 * MIB, (at + 1) * 3 * MIB));
        let kill = async {
            tokio::time::sleep(Duration::from_millis(4 * round)).await;
            fixture.cluster.signal(&format!("worker-{}", round % 2), "-KILL").unwrap();
        };
        tokio::join!(futures::future::join_all(reads), kill);
        fixture.read("killed", 0, length).await;
        fixture.cluster.restart_and_wait(&format!("worker-{}", round % 2)).await.unwrap();
    }
    fixture.all_memory_is_back().await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_spoiled_on_the_way_never_stay_in_lent_memory() {
    // Requesters find a relay where workers are listed, and not where they register themselves.
    let fixture = LentReadFixture::start(Cluster::builder().workers(1).relayed_workers()).await;
    let length = 12 * MIB;
    fixture.put("spoiled", length).await;
    fixture.read("spoiled", 0, length).await;
    let relay = fixture.cluster.relay(0);
    relay.spoil(5_000_000);
    for turn in 0..10 {
        let from = turn * 1_000_000;
        fixture.read("spoiled", from, from + 2 * MIB).await;
        fixture.read("spoiled", 0, length).await;
    }
    let spoiled = relay.spoiled();
    relay.spoil(0);
    assert!(spoiled > 10, "{spoiled} bytes were spoiled");
    fixture.read("spoiled", 0, length).await;
    fixture.all_memory_is_back().await;
    fixture.cluster.stop().await.unwrap();
}

/// A worker of the same host hands its pages over, but for short parts and those beyond what may be
/// pinned: these are copied into the landing. Cold reads bring both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_by_shared_memory_end_however_their_parts_come() {
    let pinned = "pinned_max = \"1MiB\"";
    for builder in [Cluster::builder(), Cluster::builder().settings(Section::Worker, pinned)] {
        let fixture = LentReadFixture::start(builder.workers(1).coordinated()).await;
        for (number, length) in
            [300 << 10, (256 << 10) + 9, MIB + 5_000, 5 * MIB + 100, 12 * MIB + 1]
                .iter()
                .enumerate()
        {
            let key = format!("shared-{number}");
            fixture.put(&key, *length).await;
            for _ in 0..3 {
                fixture.read(&key, 0, *length).await;
                fixture.read(&key, 1_000, *length).await;
            }
        }
        fixture.all_memory_is_back().await;
        fixture.cluster.stop().await.unwrap();
    }
}

//! Strangers at the worker's port, spoiled bytes on the way, clients that say nothing, read nothing
//! or are too many, and clocks that jump: what is right goes on, and what was taken comes back.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::presigning::PresigningConfig;
use rand::RngExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use verbs3_tests::metrics::eventually;
use verbs3_tests::{Cluster, ClusterBuilder, Section, reading, seed};

const MIB: usize = 1 << 20;
const SOON: Duration = Duration::from_secs(120);

struct WireFaultFixture {
    cluster: Cluster,
    bucket: String,
    client: Client,
}

impl WireFaultFixture {
    async fn start(builder: ClusterBuilder) -> Self {
        let cluster = builder.start().await.unwrap();
        let bucket = cluster.bucket("wire").await.unwrap();
        let client = reading::once(&cluster.gateways()[0].client);
        Self { cluster, bucket, client }
    }

    async fn put(&self, key: &str, version: u64, length: usize) {
        reading::put_surely(&self.client, &self.bucket, key, version, length).await;
    }

    async fn reads(&self, key: &str, version: u64, length: usize) {
        reading::get(&self.client, &self.bucket, key).await.is_whole(key, version, length).unwrap();
    }

    async fn sum(&self, process: &str, family: &str) -> f64 {
        self.cluster.metrics(process).await.unwrap().sum(family, &[])
    }

    async fn becomes(&self, process: &str, family: &str, wanted: impl Fn(f64) -> bool) {
        let is = async || {
            let value = self.sum(process, family).await;
            if wanted(value) { Ok(()) } else { Err(format!("{process}: {family} is {value}")) }
        };
        eventually(SOON, is).await.unwrap();
    }
}

/// Says this on a connection of its own, and reads until the other side ends it, or for a moment.
async fn say(address: &str, bytes: &[u8]) -> usize {
    let Ok(mut socket) = TcpStream::connect(address).await else { return 0 };
    let _ = socket.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_millis(300), socket.read_to_end(&mut answer)).await;
    answer.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_replayed_frames_at_a_workers_port_change_nothing() {
    let mut rng = seed::rng(seed::from_environment(), 0);
    let fixture = WireFaultFixture::start(Cluster::builder().relayed_workers()).await;
    fixture.put("key", 1, 6 * MIB).await;
    fixture.reads("key", 1, 6 * MIB).await;
    let worker = fixture.cluster.address("worker-0").unwrap();
    let said = fixture.cluster.relay(0).said();
    let session = said.iter().max_by_key(|session| session.len()).unwrap();
    assert!(session.len() > 200, "the gateway has said something to replay: {}", session.len());
    let before = fixture.sum("worker-0", "verbs3_worker_requests_total").await;
    let mut tasks = Vec::new();
    let mut send = |bytes: Vec<u8>| {
        let worker = worker.clone();
        tasks.push(tokio::spawn(async move { say(&worker, &bytes).await }));
    };
    // As it was said: the proof of the secret was about another connection's challenge.
    send(session.clone());
    for _ in 0..20 {
        let mut spoiled = session.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..spoiled.len());
            spoiled[at] ^= 1 << rng.random_range(0..8);
        }
        send(spoiled);
        send(session[..rng.random_range(0..session.len())].to_vec());
        send((0..rng.random_range(1..3000)).map(|_| rng.random()).collect());
        // A length of nearly 4 GiB, or nothing but zeros.
        send([vec![0xff; 16], vec![0; 64]].concat());
    }
    let answered: usize =
        futures::future::join_all(tasks).await.into_iter().map(Result::unwrap).sum();
    assert!(answered < 200_000, "strangers got {answered} bytes");
    fixture
        .becomes("worker-0", "verbs3_rdma_handshakes_failed_total", |failed| failed >= 20.0)
        .await;
    let after = fixture.sum("worker-0", "verbs3_worker_requests_total").await;
    assert_eq!(after, before, "a stranger's request was carried out");
    fixture.reads("key", 1, 6 * MIB).await;
    fixture.put("key", 2, MIB).await;
    fixture.reads("key", 2, MIB).await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_spoiled_on_the_way_from_a_worker_never_reach_a_client() {
    let fixture = WireFaultFixture::start(Cluster::builder().relayed_workers()).await;
    fixture.put("key", 1, 12 * MIB).await;
    fixture.reads("key", 1, 12 * MIB).await;
    fixture.cluster.relay(0).spoil(700_000);
    for _ in 0..6 {
        fixture.reads("key", 1, 12 * MIB).await;
    }
    assert!(fixture.cluster.relay(0).spoiled() > 3, "hardly a byte was spoiled");
    let noticed = fixture.sum("gateway-0", "verbs3_client_checksum_failures_total").await
        + fixture.sum("gateway-0", "verbs3_rdma_protocol_violations_total").await;
    assert!(noticed > 0.0, "what is spoiled is counted");
    fixture.cluster.relay(0).spoil(0);
    let healed = async || {
        let seen = reading::get(&fixture.client, &fixture.bucket, "key").await;
        seen.is_whole("key", 1, 12 * MIB)
    };
    eventually(SOON, healed).await.unwrap();
    fixture.becomes("gateway-0", "verbs3_rdma_landings_quarantined", |count| count == 0.0).await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_finish_a_head_are_cut_and_others_served() {
    let fixture = WireFaultFixture::start(
        Cluster::builder().settings(Section::Gateway, "[gateway.timeouts]\nheader = \"5s\""),
    )
    .await;
    fixture.put("key", 1, MIB).await;
    let address = fixture.cluster.address("gateway-0").unwrap();
    let lorises: Vec<_> = (0..60)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move {
                let mut socket = TcpStream::connect(&address).await.unwrap();
                socket.write_all(b"GET /bucket/key HTTP/1.1\r\nhost: here\r\n").await.unwrap();
                // One byte at a time, always in time for a timeout that each byte would renew.
                for _ in 0..300 {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    if socket.write_all(b"x").await.is_err() {
                        return;
                    }
                }
                panic!("a head may take a minute");
            })
        })
        .collect();
    for _ in 0..10 {
        fixture.reads("key", 1, MIB).await;
    }
    for loris in lorises {
        loris.await.unwrap();
    }
    fixture.becomes("gateway-0", "verbs3_gateway_connections", |count| count < 10.0).await;
    fixture.cluster.stop().await.unwrap();
}

async fn presigned(fixture: &WireFaultFixture, key: &str) -> String {
    let expires = PresigningConfig::expires_in(Duration::from_secs(600)).unwrap();
    let signed = fixture
        .client
        .get_object()
        .bucket(&fixture.bucket)
        .key(key)
        .presigned(expires)
        .await
        .unwrap();
    let uri: http::Uri = signed.uri().parse().unwrap();
    uri.path_and_query().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_are_cut_and_what_they_held_returns() {
    // Twelve windows fit into the gateway's memory, however much who comes first takes.
    let settings = "[gateway.timeouts]\nwrite_stall = \"10s\"\n[gateway.read]\nwindow = \"4MiB\"";
    let fixture =
        WireFaultFixture::start(Cluster::builder().settings(Section::Gateway, settings)).await;
    let length = 24 * MIB;
    fixture.put("key", 1, length).await;
    fixture.reads("key", 1, length).await;
    let (address, path) =
        (fixture.cluster.address("gateway-0").unwrap(), presigned(&fixture, "key").await);
    let mut idle = Vec::new();
    for _ in 0..12 {
        let mut socket = TcpStream::connect(&address).await.unwrap();
        socket
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        idle.push(socket);
    }
    fixture
        .becomes("gateway-0", "verbs3_gateway_connections_stalled_total", |count| count >= 12.0)
        .await;
    fixture.becomes("gateway-0", "verbs3_read_bytes_in_flight", |bytes| bytes == 0.0).await;
    fixture.becomes("gateway-0", "verbs3_gateway_requests_in_flight", |count| count == 0.0).await;
    fixture.becomes("worker-0", "verbs3_rdma_shm_pins", |count| count == 0.0).await;
    fixture.reads("key", 1, length).await;
    drop(idle);
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_beyond_the_connections_are_cut_and_others_are_served() {
    let settings = "[gateway.limits]\nconnections_max = 20";
    let fixture =
        WireFaultFixture::start(Cluster::builder().settings(Section::Gateway, settings)).await;
    fixture.put("key", 1, MIB).await;
    let address = fixture.cluster.address("gateway-0").unwrap();
    let mut sockets = Vec::new();
    for _ in 0..60 {
        sockets.push(TcpStream::connect(&address).await.unwrap());
    }
    // Who comes while the others are young is refused; who comes later takes the oldest one's place.
    let turned_away = async || {
        let metrics = fixture.cluster.metrics("gateway-0").await.unwrap();
        let refused = metrics.sum("verbs3_gateway_connections_refused_total", &[]);
        let because = [r#"reason="displaced""#];
        let displaced = metrics.sum("verbs3_gateway_connections_cut_total", &because);
        match refused + displaced {
            40.0.. => Ok(()),
            _ => Err(format!("{refused} connections are refused, {displaced} displaced")),
        }
    };
    eventually(SOON, turned_away).await.unwrap();
    assert!(fixture.sum("gateway-0", "verbs3_gateway_connections").await <= 20.0);
    // The connection that was there before goes on.
    fixture.reads("key", 1, MIB).await;
    drop(sockets);
    fixture.becomes("gateway-0", "verbs3_gateway_connections", |count| count < 10.0).await;
    reading::get(&reading::once(&fixture.cluster.gateways()[0].client), &fixture.bucket, "key")
        .await
        .is_whole("key", 1, MIB)
        .unwrap();
    fixture.cluster.stop().await.unwrap();
}

/// Where Debian's package faketime puts it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_jump_change_neither_bytes_nor_freshness() {
    assert!(
        Path::new(FAKETIME).exists(),
        "{FAKETIME} is missing: tests/testbed/packages.sh installs faketime"
    );
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    let set = |offset: &str| std::fs::write(&clock, format!("{offset}\n")).unwrap();
    set("+0");
    let cluster = Cluster::builder()
        .gateways(2)
        .workers(2)
        .environment("LD_PRELOAD", FAKETIME)
        .environment("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap())
        .environment("FAKETIME_NO_CACHE", "1")
        // Steps are of the wall clock; the kernel keeps CLOCK_MONOTONIC steady.
        .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .environment("DONT_FAKE_MONOTONIC", "1");
    let fixture = WireFaultFixture::start(cluster).await;
    let gateways: Vec<Client> =
        fixture.cluster.gateways().iter().map(|g| reading::once(&g.client)).collect();
    let mut version = 0;
    // Store and client keep the right time. Each step stays within the quarter of an hour that
    // signatures may be off: clients learn the other side's time from its answers, and sign by
    // that.
    for offset in ["+0", "+600s", "+0", "-600s", "-1s", "+14m", "+0", "-14m", "+0"] {
        set(offset);
        for turn in 0..6 {
            version += 1;
            let length = 300_000 + turn;
            let done =
                reading::put(&gateways[turn % 2], &fixture.bucket, "key", version, length).await;
            assert_eq!(done, None, "put at {offset}");
            for gateway in &gateways {
                for _ in 0..2 {
                    let seen = reading::get(gateway, &fixture.bucket, "key").await;
                    seen.is_whole("key", version, length)
                        .unwrap_or_else(|why| panic!("at {offset}: {why}"));
                }
            }
        }
    }
    // Beyond, clients are told why.
    set("+2h");
    let seen = reading::get(&gateways[0], &fixture.bucket, "key").await;
    assert_eq!(seen.status(), Some(403), "{seen:?}");
    set("+0");
    // The first answer tells the client's SDK the time.
    let back = async || {
        reading::get(&gateways[0], &fixture.bucket, "key").await.is_whole("key", version, 300_005)
    };
    eventually(SOON, back).await.unwrap();
    fixture.cluster.stop().await.unwrap();
}

//! Tests a host and its requester in one process, and figures that must not pass.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use super::pattern_pages::PatternPages;
use super::*;
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::calls::{CallOptions, HandshakeSecret};
use verbs3_rdma::tcp::TcpOptions;
use verbs3_rdma::transport::TransportKind;
use verbs3_rdma::verbs::VerbsOptions;

const PAGE: usize = 16 << 10;
const SHORT: Duration = Duration::from_millis(20);

fn secret() -> HandshakeSecret {
    HandshakeSecret::new("a secret of the test")
}

fn host_options(socket: Option<std::path::PathBuf>) -> HostOptions {
    HostOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tcp: TcpOptions::new(secret()),
        verbs: VerbsOptions::new(secret()),
        rails: vec![],
        shm: CallOptions::new(secret()),
        socket,
        page_bytes: PAGE,
        arena_bytes: 16 << 20,
        runtimes: vec![],
    }
}

fn dial_options(host: SocketAddr) -> DialOptions {
    DialOptions {
        host,
        tcp: TcpOptions::new(secret()),
        verbs: VerbsOptions::new(secret()),
        shm: CallOptions::new(secret()),
        rails: vec![],
        kinds: vec![TransportKind::Tcp, TransportKind::Shm, TransportKind::Verbs],
        connections: 2,
        page_bytes: PAGE,
        in_flight_bytes_max: 4 << 20,
        in_process: false,
    }
}

fn load(bytes: u64, direction: TransferDirection) -> TransferLoad {
    TransferLoad { bytes, direction, depth: 4, time: SHORT, whole: true }
}

/// A socket of this test alone.
fn socket(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("verbs3-bench-{name}-{}.sock", std::process::id()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_moves_checked_bytes_in_every_direction() {
    let host = BenchHost::start(host_options(Some(socket("ways")))).await.unwrap();
    let dialled = BenchRequester::dial_host(dial_options(host.local_addr())).await.unwrap();
    let names: Vec<_> = dialled.open_ways().iter().map(|way| way.name.as_str()).collect();
    assert_eq!(names, ["shm", "tcp"]);
    for way in dialled.open_ways() {
        for bytes in [1, 64, PAGE as u64, 3 * PAGE as u64 + 5] {
            let echo = dialled.measure_echo(way, bytes, SHORT).await.unwrap();
            let read = dialled.read(way, bytes, SHORT, true).await.unwrap();
            for trips in [echo, read] {
                assert!(
                    trips.calls >= 10 && trips.p50 <= trips.p99 && trips.p99 <= trips.max,
                    "{trips:?}"
                );
            }
            for direction in
                [TransferDirection::Read, TransferDirection::Write, TransferDirection::Both]
            {
                let moved = dialled.measure_bandwidth(way, &load(bytes, direction)).await.unwrap();
                assert_eq!(moved.bytes, moved.calls * bytes);
                assert!(
                    moved.calls >= 4 && moved.took >= SHORT && moved.there.is_some(),
                    "{moved:?}"
                );
            }
        }
    }
    drop(dialled);
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_that_is_not_there_is_named_with_its_reason() {
    let missing = "198.51.100.7".parse().unwrap();
    let host =
        BenchHost::start(HostOptions { rails: vec![missing], ..host_options(None) }).await.unwrap();
    assert_eq!(host.left_out().len(), 1);
    let dialled = BenchRequester::dial_host(dial_options(host.local_addr())).await.unwrap();
    let left: Vec<_> =
        dialled.left_out().iter().map(|left| format!("{}: {}", left.way, left.cause)).collect();
    assert!(left.iter().any(|text| text.starts_with("shm: the host offers no socket")), "{left:?}");
    assert!(left.iter().any(|text| text.starts_with("verbs: the host offers no rail")), "{left:?}");
    assert!(
        left.iter().any(|text| text.starts_with("verbs 198.51.100.7: on the host: ")),
        "{left:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_secret_or_page_is_refused() {
    let host = BenchHost::start(host_options(None)).await.unwrap();
    let address = host.local_addr();
    let stranger = DialOptions {
        tcp: TcpOptions::new(HandshakeSecret::new("another")),
        ..dial_options(address)
    };
    assert!(
        BenchRequester::dial_host(stranger)
            .await
            .is_err_and(|error| error.to_string().contains("secret"))
    );
    let wider = DialOptions { page_bytes: 2 * PAGE, ..dial_options(address) };
    assert!(
        BenchRequester::dial_host(wider)
            .await
            .is_err_and(|error| error.to_string().contains("--page"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_there_is_memory_for_is_said() {
    let host = BenchHost::start(host_options(None)).await.unwrap();
    let dialled = BenchRequester::dial_host(dial_options(host.local_addr())).await.unwrap();
    let way = &dialled.open_ways()[0];
    let too_much = load(64 << 20, TransferDirection::Read);
    assert!(matches!(
        dialled.measure_bandwidth(way, &too_much).await,
        Err(BenchError::NoRoom { .. })
    ));
    let refused = dialled
        .measure_bandwidth(way, &load(15 << 20, TransferDirection::Write))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("memory is full"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_streams_flow_to_who_has_the_word() {
    let host = BenchHost::start(host_options(None)).await.unwrap();
    let mut dialled = BenchRequester::dial_host(dial_options(host.local_addr())).await.unwrap();
    assert!(
        dialled.measure_plain_tcp(&load(PAGE as u64, TransferDirection::Read)).await.unwrap() > 0.0
    );
    dialled.about.plain_word ^= 1;
    assert!(dialled.measure_plain_tcp(&load(PAGE as u64, TransferDirection::Read)).await.is_err());
}

#[test]
fn wrong_bytes_do_not_pass() {
    let arena = Arena::map_memory(ArenaOptions {
        capacity_bytes: 8 << 20,
        cell_bytes_max: PAGE,
        populate: false,
    })
    .unwrap();
    let source = PatternPages::new(&arena, PAGE).unwrap();
    let bytes = 2 * PAGE as u64 + 100;
    let good = source.slice_pages(30, bytes);
    assert_eq!(good.iter().map(|piece| piece.len() as u64).sum::<u64>(), bytes);
    assert_eq!(source.check_data(&good, 30, bytes, true), Ok(()));
    assert_eq!(
        source.check_data(&[Bytes::from(good.concat())], 30, bytes, true),
        Ok(()),
        "however it is cut"
    );
    assert_eq!(source.check_data(&good, 29, bytes, false), Err(0), "another page");
    assert_eq!(source.check_data(&good[..2], 30, bytes, false), Err(2 * PAGE as u64), "too short");
    for (at, whole, found) in
        [(PAGE, false, PAGE), (2 * PAGE - 1, false, PAGE), (PAGE + 100, true, PAGE)]
    {
        let mut bad = good.concat();
        bad[at] ^= 1;
        assert_eq!(
            source.check_data(&[Bytes::from(bad)], 30, bytes, whole),
            Err(found as u64),
            "byte {at}"
        );
    }
}

#[test]
fn usage_grows_with_work() {
    let before = TransferCost::read_counters();
    let mut sum = 0u64;
    while (TransferCost::read_counters() - before).cpu_micros < 1000 {
        sum = std::hint::black_box(sum.wrapping_add(1));
    }
    assert!(TransferCost::read_counters().cpu_micros > before.cpu_micros);
}

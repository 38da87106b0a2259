//! Cases of faults of a peer or a device over verbs, on real kernel verbs. Run in the VM; the
//! device is soft-RoCE or soft-iWARP.

use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use prometheus::Registry;
use verbs3_rdma::arena::Arena;
use verbs3_rdma::calls::{HandshakeError, HandshakeSecret};
use verbs3_rdma::transport::{
    CallService, PeerConnection, PeerTransport, TransportError, WayTerms,
};
use verbs3_rdma::verbs::{
    PinnedRuntime, VerbsOptions, VerbsServer, VerbsServerOptions, VerbsTransport,
};
use verbs3_settings::TimePeriod;

use crate::placed::placed;
use crate::transport_fixture::{
    PAGE, arena, collect, eventually, landing, listen_address, pattern, service, verbs_options,
    within_deadline,
};

const NEEDS: &str = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh";

pub async fn served(
    options: VerbsOptions,
    owner: Arena,
    service: Arc<dyn CallService>,
) -> VerbsServer {
    VerbsServer::bind(listen_address(), VerbsServerOptions::new(options), owner, service)
        .await
        .expect(NEEDS)
}

pub fn transport(options: VerbsOptions, arena: &Arena) -> VerbsTransport {
    VerbsTransport::new(listen_address().ip(), options, arena.clone()).expect(NEEDS)
}

fn pages(owner: &Arena, seed: u64, bytes: usize) -> Vec<Bytes> {
    placed(owner, &pattern(seed, 0, bytes)).unwrap()
}

/// A server that answers every call with a mebibyte of its arena.
async fn mebibytes() -> VerbsServer {
    let owner = arena(8);
    let pages = pages(&owner, 1, 1 << 20);
    let serves = service(move |_, reply| {
        let pages = pages.clone();
        async move {
            let _ = reply.send_last("".into(), 0, pages).await;
        }
    });
    served(verbs_options(), owner, serves).await
}

async fn reads(connection: &Arc<dyn PeerConnection>, arena: &Arena) -> Result<(), TransportError> {
    let mut call = connection.start_call("".into(), landing(arena, 1 << 20));
    let answer = collect(&mut call).await?;
    assert!(answer.bytes() == pattern(1, 0, 1 << 20), "wrong bytes");
    Ok(())
}

/// A worker that is stopped (SIGSTOP, a long page fault) before its WRITE. It goes on after its
/// requester has given up and lent the memory to somebody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn verbs_a_late_write_does_not_touch_a_reused_landing() {
    within_deadline(async {
        let (go, wait) = sync_channel::<()>(0);
        let (tell, hear) = sync_channel::<&'static str>(4);
        let owner = arena(8);
        let late = pages(&owner, 9, 4 * PAGE);
        let wait = Mutex::new(wait);
        let stopped = service(move |_, reply| {
            tell.send("begun").unwrap();
            // Blocks the thread that drives this server's connection: nothing of it moves, no
            // cancel is seen.
            wait.lock().unwrap().recv().unwrap();
            let (late, tell) = (late.clone(), tell.clone());
            async move {
                let _ = reply.send_last("".into(), 0, late).await;
                tell.send("answered").unwrap();
            }
        });
        // The server's own thread, so that only it stands still.
        let runtime = PinnedRuntime::new(&[0]).unwrap();
        let options = VerbsOptions { driver: Some(runtime.rail_driver()), ..verbs_options() };
        let server = served(options, owner, stopped).await;
        let arena = arena(4);
        let mut options = verbs_options();
        options.calls.settings.cancel_ack_deadline = TimePeriod::from_millis(200);
        let connection = transport(options, &arena)
            .connect_to(server.local_addr().unwrap(), &WayTerms::default())
            .await
            .unwrap();
        let mut call = connection.start_call("".into(), landing(&arena, 4 * PAGE));
        assert!(tokio::time::timeout(Duration::from_millis(50), call.next()).await.is_err());
        assert_eq!(hear.recv().unwrap(), "begun");
        drop(call);
        assert_eq!(
            arena.arena_usage().asked_bytes,
            (4 * PAGE) as u64,
            "in quarantine while the worker may write"
        );
        eventually("the queue pair was destroyed", || arena.arena_usage().loaned_bytes == 0).await;
        // All of the arena is somebody else's now.
        let all = arena.arena_usage().capacity_bytes as usize;
        let mine = placed(&arena, &pattern(5, 0, all)).unwrap();
        go.send(()).unwrap();
        assert_eq!(hear.recv().unwrap(), "answered");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(
            mine.concat() == pattern(5, 0, all),
            "a late WRITE changed memory that was lent anew"
        );
        drop(server);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn verbs_a_wrong_secret_is_refused_by_name() {
    within_deadline(async {
        let server = mebibytes().await;
        let stranger = transport(VerbsOptions::new(HandshakeSecret::new("a guess")), &arena(1));
        let error = stranger.connect_to(server.local_addr().unwrap(), &WayTerms::default()).await.err().unwrap();
        assert!(
            matches!(&error, TransportError::Handshake { cause, .. } if matches!(**cause, HandshakeError::Secret)),
            "{error}"
        );
        let named =
            transport(verbs_options(), &arena(1)).connect_to(server.local_addr().unwrap(), &WayTerms::with_name("worker-b")).await;
        let error = named.err().unwrap();
        assert!(error.to_string().contains("worker-b"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn verbs_nobody_listening_is_unreachable() {
    within_deadline(async {
        let server = mebibytes().await;
        let address = server.local_addr().unwrap();
        server.shutdown().await;
        let mut options = verbs_options();
        options.calls.settings.connect_deadline = TimePeriod::from_seconds(10);
        let transport = transport(options, &arena(1));
        let error = transport.connect_to(address, &WayTerms::default()).await.err().unwrap();
        assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn verbs_an_idle_connection_lives_by_signs_of_life() {
    within_deadline(async {
        let server = mebibytes().await;
        let arena = arena(4);
        let mut options = verbs_options();
        options.settings.heartbeat = TimePeriod::from_millis(50);
        options.settings.receive_count = 4;
        let connection = transport(options, &arena)
            .connect_to(server.local_addr().unwrap(), &WayTerms::default())
            .await
            .unwrap();
        // More of them than the peer has receive buffers, so their credits must have come back.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(connection.broken_reason().is_none());
        reads(&connection, &arena).await.unwrap();
    })
    .await;
}

/// The path MTU of the last connection, as the devices of both sides say (ibv_query_qp).
fn path_mtus() -> [i64; 2] {
    let registry = Registry::new();
    verbs3_rdma::metrics::register_metrics(&registry).unwrap();
    let families = registry.gather();
    let family =
        families.iter().find(|family| family.name() == "verbs3_verbs_path_mtu_bytes").unwrap();
    ["requester", "server"].map(|side| {
        let of_side = |metric: &&prometheus::proto::Metric| {
            metric.get_label().iter().any(|label| label.value() == side)
        };
        family.get_metric().iter().find(of_side).unwrap().get_gauge().get_value() as i64
    })
}

/// Alone in its process: a metric tells what the path MTU is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn path_mtu_is_the_smaller_bound_of_both_sides() {
    within_deadline(async {
        let iwarp = verbs3_rdma::verbs::probe_devices().unwrap().iter().any(|device| {
            let rail = verbs3_rdma::verbs::RailIdentity::find_by_address(listen_address().ip())
                .unwrap()
                .unwrap();
            device.name == rail.device && device.fabric == verbs3_rdma::verbs::RdmaFabricKind::Iwarp
        });
        let memory = arena(8);
        let mut of_device = 0;
        for (mine, theirs) in
            [(None, None), (Some(512), None), (None, Some(1024)), (Some(256), Some(2048))]
        {
            let owner = arena(8);
            let data = pages(&owner, 1, 1 << 20);
            let serves = service(move |_, reply| {
                let data = data.clone();
                async move {
                    let _ = reply.send_last("".into(), 0, data).await;
                }
            });
            let with_mtu = |path_mtu_max| {
                let mut options = verbs_options();
                options.settings.path_mtu_max = path_mtu_max;
                options
            };
            let server = served(with_mtu(theirs), owner, serves).await;
            let transport = transport(with_mtu(mine), &memory);
            let connection = transport
                .connect_to(server.local_addr().unwrap(), &WayTerms::default())
                .await
                .unwrap();
            // Whole packets in both directions: sides that differ could not talk.
            reads(&connection, &memory).await.unwrap();
            let bound = mine.into_iter().chain(theirs).min().map(i64::from);
            if bound.is_none() {
                of_device = path_mtus()[0];
            }
            println!("bounds {mine:?} and {theirs:?}: {:?} of {of_device}", path_mtus());
            if !iwarp {
                assert_eq!(path_mtus(), [bound.unwrap_or(of_device).min(of_device); 2]);
            }
            drop(connection);
            transport.shutdown().await;
            server.shutdown().await;
        }
    })
    .await;
}

/// Runs in its own process. Soft-RoCE and soft-iWARP can't take a device away from a process that
/// has opened it, so the removal ends with the process. NICs whose drivers can (mlx5) get their
/// device back within it; this test does not show that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn device_removal_ends_connections_and_returns_their_landings() {
    within_deadline(async {
        let server = mebibytes().await;
        let arena = arena(4);
        let transport = transport(verbs_options(), &arena);
        let address = server.local_addr().unwrap();
        let connection = transport.connect_to(address, &WayTerms::default()).await.unwrap();
        reads(&connection, &arena).await.unwrap();
        let mut removal = Command::new("rdma")
            .args(["link", "delete", &transport.current_rail().unwrap().device])
            .spawn()
            .expect("iproute2's rdma");
        let mut calls = 0;
        while reads(&connection, &arena).await.is_ok() {
            calls += 1;
            assert!(calls < 10_000, "the device is gone, and its connection goes on");
        }
        eventually("the connection says so", || connection.broken_reason().is_some()).await;
        eventually("every landing is back", || arena.arena_usage().loaned_bytes == 0).await;
        assert!(
            transport.connect_to(address, &WayTerms::default()).await.is_err(),
            "connected without a device"
        );
        eventually("both sides say that it is away", || {
            !transport.is_up() && server.local_addr().is_none()
        })
        .await;
        let _ = removal.try_wait();
    })
    .await;
}

//! Tests shared receive buffers on real kernel verbs: connections that come, end at any moment and
//! lie, and a queue that never runs dry. Runs in its own process, since it reads what the rails of
//! a process share.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use verbs3_settings::TimePeriod;

use crate::arena::{Arena, ArenaOptions};
use crate::calls::{CallOptions, HandshakeSecret};
use crate::landing::Landing;
use crate::metrics::{ReceiveBufferState, rail_metrics};
use crate::transport::{
    CallEvent, CallService, IncomingCall, PeerConnection, ReplySender, WayTerms,
};
use crate::verbs::buffer_ledger::BufferTally;
use crate::verbs::receive_buffers::SharedRing;
use crate::verbs::{VerbsOptions, VerbsServer, VerbsServerOptions, VerbsTransport};

const NEEDS: &str = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh";
/// Deadline for a connection in an emulated guest that shares its CPUs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Count of buffers: so few that a dozen connections do not fit.
const DEPTH: u16 = 64;

/// Length of a message that takes more chunks than a connection is sure of.
const MESSAGE: usize = 48 << 10;

fn test_address() -> IpAddr {
    std::env::var("VERBS3_TEST_ADDRESS").expect(NEEDS).parse().unwrap()
}

fn test_options() -> VerbsOptions {
    let mut options = VerbsOptions::new(HandshakeSecret::new("the cluster's secret"));
    options.settings.shared_receives = DEPTH;
    options.calls.settings.connect_deadline = TimePeriod(PATIENCE);
    options
}

fn test_arena() -> Arena {
    Arena::map_memory(ArenaOptions {
        capacity_bytes: 4 << 20,
        cell_bytes_max: 256 << 10,
        populate: false,
    })
    .unwrap()
}

/// A service that answers with the message, and with as many bytes beside it.
struct SharingEchoService;

#[async_trait]
impl CallService for SharingEchoService {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let data = vec![request.message.clone()];
        let _ = reply.send_last(request.message, 0, data).await;
    }
}

async fn start_server() -> VerbsServer {
    let to = SocketAddr::new(test_address(), 0);
    VerbsServer::bind(
        to,
        VerbsServerOptions::new(test_options()),
        test_arena(),
        Arc::new(SharingEchoService),
    )
    .await
    .expect(NEEDS)
}

async fn assert_echo(connection: &Arc<dyn PeerConnection>, memory: &Arena, byte: u8) {
    let message = Bytes::from(vec![byte; MESSAGE]);
    let mut call =
        connection.start_call(message.clone(), Landing::allocate_segments(memory, &[MESSAGE]));
    let CallEvent::Part(part) = call.next().await.unwrap() else { panic!("a part was due") };
    assert!(part.message == message && part.data.concat() == message, "wrong bytes");
}

fn client_ring(transport: &VerbsTransport) -> Option<Arc<SharedRing>> {
    transport.shared_ring()
}

async fn with_deadline<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(5 * PATIENCE, what).await.expect("it hangs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn connections_share_buffers_and_those_without_room_have_rings() {
    with_deadline(async {
        let (server, memory) = (start_server().await, test_arena());
        let transport =
            VerbsTransport::new(test_address(), test_options(), memory.clone()).unwrap();
        let ring = client_ring(&transport).expect("soft devices have shared receive queues");
        let mut connections = Vec::new();
        for _ in 0..12 {
            connections.push(
                transport
                    .connect_to(server.local_addr().unwrap(), &WayTerms::default())
                    .await
                    .unwrap(),
            );
        }
        let full = ring.tally().reserved;
        assert!(
            full > u32::from(DEPTH) - 8 && full <= u32::from(DEPTH),
            "{full} of {DEPTH} are reserved"
        );
        let memory = &memory;
        let calls = connections.iter().zip(0u8..).map(|(connection, byte)| async move {
            for turn in 0..8 {
                assert_echo(connection, memory, byte * 8 + turn).await;
            }
        });
        futures::future::join_all(calls).await;
        assert!(ring.tally().reserved <= u32::from(DEPTH));
        // A lone connection may have more than it was sure of.
        connections.truncate(1);
        while ring.tally().reserved > 12 {
            tokio::task::yield_now().await;
        }
        for turn in 0..16 {
            assert_echo(&connections[0], memory, turn).await;
        }
        assert!(ring.tally().reserved > 12, "{:?}", ring.tally());
        connections.clear();
        transport.shutdown().await;
        assert_eq!(ring.tally().reserved, 0);
        server.shutdown().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn buffers_of_connections_that_end_in_the_middle_come_back() {
    with_deadline(async {
        let (server, memory) = (start_server().await, test_arena());
        let transport =
            VerbsTransport::new(test_address(), test_options(), memory.clone()).unwrap();
        let ring = client_ring(&transport).unwrap();
        let to = server.local_addr().unwrap();
        let stays = transport.connect_to(to, &WayTerms::default()).await.unwrap();
        for turn in 0..40u8 {
            let goes = transport.connect_to(to, &WayTerms::default()).await.unwrap();
            let message = Bytes::from(vec![turn; MESSAGE]);
            let calls: Vec<_> = (0..4)
                .map(|_| {
                    goes.start_call(
                        message.clone(),
                        Landing::allocate_segments(&memory, &[MESSAGE]),
                    )
                })
                .collect();
            if turn % 2 == 0 {
                assert_echo(&stays, &memory, turn).await;
            }
            drop((calls, goes));
        }
        // Doubts end as buffers go round; nothing was lost.
        while ring.tally() != (BufferTally { doubtful: 0, lost: 0, ..ring.tally() }) {
            assert_echo(&stays, &memory, 1).await;
        }
        for turn in 0..64 {
            assert_echo(&stays, &memory, turn).await;
        }
        assert_eq!(ring.tally().lost, 0);
        drop(stays);
        transport.shutdown().await;
        server.shutdown().await;
    })
    .await;
}

/// Shows that anybody who reaches the port can connect and fail at the handshake repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn unproven_connections_leave_buffers_for_others() {
    with_deadline(async {
        let (server, memory) = (start_server().await, test_arena());
        let to = server.local_addr().unwrap();
        let calls = CallOptions::new(HandshakeSecret::new("another secret"));
        let stranger = VerbsTransport::new(
            test_address(),
            VerbsOptions { calls, ..test_options() },
            test_arena(),
        )
        .unwrap();
        let rail = stranger.current_rail().unwrap().metric_label();
        let shown = |state| rail_metrics(&rail).shared_receives[state].get();
        for _ in 0..DEPTH / 2 {
            assert!(
                stranger.connect_to(to, &WayTerms::default()).await.is_err(),
                "it does not know the secret"
            );
        }
        stranger.shutdown().await;
        drop(stranger);
        while shown(ReceiveBufferState::Reserved) > 0 {
            tokio::task::yield_now().await;
        }
        // No traffic ends a doubt here.
        assert!(
            shown(ReceiveBufferState::Doubtful) <= i64::from(DEPTH / 8),
            "{} buffers are in doubt",
            shown(ReceiveBufferState::Doubtful)
        );
        let transport =
            VerbsTransport::new(test_address(), test_options(), memory.clone()).unwrap();
        let connection = transport.connect_to(to, &WayTerms::default()).await.unwrap();
        let mine = i64::from(client_ring(&transport).unwrap().tally().reserved);
        assert!(
            shown(ReceiveBufferState::Reserved) > mine,
            "the server has no shared buffers for a new connection"
        );
        assert_echo(&connection, &memory, 1).await;
        drop(connection);
        transport.shutdown().await;
        server.shutdown().await;
    })
    .await;
}

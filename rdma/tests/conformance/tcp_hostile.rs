//! Cases of peers that lie, stall, or are not what they claim, over a raw socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use verbs3_rdma::calls::HandshakeSecret;
use verbs3_rdma::tcp::{TcpOptions, TcpTransport};
use verbs3_rdma::transport::{CallEvent, CallService, PeerAddress, PeerTransport, TransportError};
use verbs3_settings::{ByteSize, TimePeriod};

use crate::raw::{self, Kind, RawEnd, RawHeader, RawServer, raw_client};
use crate::transport_fixture::{
    CREDITS, PAGE, arena, collect, eventually, landing, options, pattern, serve, server_options,
    service, within_deadline,
};

fn silent() -> Arc<dyn CallService> {
    service(|_, reply| async move {
        std::future::pending::<()>().await;
        drop(reply);
    })
}

#[tokio::test]
async fn another_secret_is_refused_by_name() {
    within_deadline(async {
        let server = serve(silent(), server_options()).await;
        let stranger = TcpTransport::new(TcpOptions::new(HandshakeSecret::new("a guess")));
        let tcp = server.local_addr();
        let error = stranger.connect(&PeerAddress::from(tcp)).await.err().unwrap();
        assert!(matches!(&error, TransportError::Handshake { .. }));
        assert!(error.to_string().contains("secrets differ"), "{error}");
        let (impostor, _end) = RawServer::meet(options(), raw::VERSION, b"a guess").await;
        let error = impostor.err().unwrap();
        assert!(error.to_string().contains("secrets differ"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_peer_with_another_name_is_not_taken_for_the_one_expected() {
    within_deadline(async {
        let mut options = server_options();
        options.tcp.calls.name = "worker-b".into();
        let server = serve(silent(), options).await;
        let transport = TcpTransport::new(self::options());
        let named = |name: &str| PeerAddress::with_name(server.local_addr(), name);
        let error = transport.connect(&named("worker-a")).await.err().unwrap();
        assert!(matches!(&error, TransportError::Handshake { .. }), "{error}");
        for word in ["worker-a", "worker-b", "cluster.workers"] {
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(transport.connect(&named("worker-b")).await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn another_version_is_refused_by_number() {
    within_deadline(async {
        let (connection, _end) = RawServer::meet(options(), 9, raw::SECRET).await;
        let error = connection.err().unwrap().to_string();
        assert!(error.contains("protocol version 9"), "{error}");

        let server = serve(silent(), server_options()).await;
        let stream = tokio::net::TcpStream::connect(server.local_addr()).await.unwrap();
        let mut end = RawEnd { stream };
        let hello = raw::greeting(9);
        end.send(&raw::header(Kind::Hello, 0).message(112), &hello).await;
        let (reject, body) = end.receive().await.unwrap();
        assert_eq!(reject.kind, Kind::Reject as u8);
        assert_eq!(body, [1, 0, 0, 0, raw::VERSION as u8, 0, 0, 0]);
        end.closed().await;
    })
    .await;
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    within_deadline(async {
        let server = serve(silent(), server_options()).await;
        let tcp = server.local_addr();
        server.shutdown().await;
        let error =
            TcpTransport::new(options()).connect(&PeerAddress::from(tcp)).await.err().unwrap();
        assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_handshake_that_stalls_is_cut_at_its_deadline() {
    within_deadline(async {
        let mut options = server_options();
        options.tcp.calls.settings.connect_deadline = TimePeriod::from_millis(100);
        let server = serve(silent(), options.clone()).await;
        let stream = tokio::net::TcpStream::connect(server.local_addr()).await.unwrap();
        let mut end = RawEnd { stream };
        end.raw(b"vb3F\x01").await;
        end.closed().await;

        let listener = tokio::net::TcpListener::bind(crate::transport_fixture::listen_address())
            .await
            .unwrap();
        let tcp = listener.local_addr().unwrap();
        let error =
            TcpTransport::new(options.tcp).connect(&PeerAddress::from(tcp)).await.err().unwrap();
        assert!(error.to_string().contains("deadline"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn connections_and_half_open_handshakes_are_capped() {
    within_deadline(async {
        let mut options = server_options();
        options.tcp.calls.settings.connections_max = 1;
        options.tcp.calls.settings.handshakes_max = 1;
        let server = serve(silent(), options).await;
        let tcp = server.local_addr();
        let first = raw_client(tcp).await;
        let transport = TcpTransport::new(crate::transport_fixture::options());
        let error = transport.connect(&PeerAddress::from(tcp)).await.err().unwrap();
        assert!(error.to_string().contains("connections_max"), "{error}");
        drop(first);
        let _half_open = tokio::net::TcpStream::connect(tcp).await.unwrap();
        // Whichever of the two came first holds the only turn; the other is closed at once.
        let second = tokio::net::TcpStream::connect(tcp).await.unwrap();
        RawEnd { stream: second }.closed().await;
    })
    .await;
}

/// Found by review: a stranger who opened so many sockets kept every gateway out, again and again
/// until each deadline.
#[tokio::test]
async fn strangers_that_say_nothing_keep_no_requester_out() {
    within_deadline(async {
        let mut options = server_options();
        options.tcp.calls.settings.handshakes_max = 3;
        options.tcp.calls.settings.handshakes_per_address_max = 2;
        // Longer than this test takes.
        options.tcp.calls.settings.connect_deadline = TimePeriod::from_seconds(600);
        let server = serve(silent(), options).await;
        let mut silent = Vec::new();
        for _ in 0..2 {
            silent.push(tokio::net::TcpStream::connect(server.local_addr()).await.unwrap());
        }
        let transport = TcpTransport::new(crate::transport_fixture::options());
        // Once the strangers have had their second.
        while transport.connect(&PeerAddress::from(server.local_addr())).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        RawEnd { stream: silent.remove(0) }.closed().await;
    })
    .await;
}

/// A real requester with one call of `PAGE` bytes, and a server that answers it with a lie.
async fn requester_cuts(lie: impl Fn(u64) -> Vec<(RawHeader, Vec<u8>)>) {
    within_deadline(async {
        let (connection, mut server) = RawServer::pair().await;
        let arena = arena(1);
        let mut call = connection.start_call("".into(), landing(&arena, PAGE));
        let id = server.expect(Kind::Call).await.id;
        for (header, body) in lie(id) {
            server.send(&header, &body).await;
        }
        let error = loop {
            match call.next().await {
                Ok(CallEvent::Part(part)) => assert!(!part.last, "the lie was believed"),
                Ok(CallEvent::Wanted { .. }) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, TransportError::Protocol { .. }), "{error}");
        assert!(connection.broken_reason().is_some());
        drop(call);
        assert_eq!(arena.arena_usage().loaned_bytes, 0);
        server.closed().await;
    })
    .await;
}

#[tokio::test]
async fn a_part_outside_the_landing_cuts_the_server_off() {
    let page = PAGE as u64;
    for (offset, bytes) in [(0, page + 1), (page, 1), (u64::MAX, 1), (1, u64::MAX)] {
        requester_cuts(|id| vec![(raw::header(Kind::Part, id).at(offset).data(bytes), vec![])])
            .await;
    }
}

#[tokio::test]
async fn a_part_over_another_part_cuts_the_server_off() {
    requester_cuts(|id| {
        let part = raw::header(Kind::Part, id).data(100);
        vec![(part.clone(), vec![1; 100]), (part.at(99), vec![])]
    })
    .await;
}

#[tokio::test]
async fn frames_for_unknown_calls_cut_the_server_off() {
    for kind in [Kind::Part, Kind::Wanted, Kind::Fail, Kind::CancelAck] {
        requester_cuts(|id| vec![(raw::header(kind, id + 1), vec![])]).await;
    }
    // Nobody cancelled this one.
    requester_cuts(|id| vec![(raw::header(Kind::CancelAck, id), vec![])]).await;
}

#[tokio::test]
async fn frames_that_no_server_sends_cut_it_off() {
    for kind in [Kind::Call, Kind::Push, Kind::Cancel] {
        requester_cuts(|id| vec![(raw::header(kind, id), vec![])]).await;
    }
    requester_cuts(|_| vec![(raw::header(Kind::Hello, 0), vec![])]).await;
    requester_cuts(|id| vec![(raw::header(Kind::Part, id).message(u32::MAX), vec![])]).await;
    requester_cuts(|_| vec![(raw::header(Kind::Goodbye, 0).data(1), vec![])]).await;
    // Data that is said to be in the landing already, where nothing but the stream could have put
    // it.
    requester_cuts(|id| vec![(raw::header(Kind::Part, id).data(5).placed().last(), vec![])]).await;
    requester_cuts(|id| vec![(raw::header(Kind::Part, id).segments(1), vec![0; 16])]).await;
}

#[tokio::test]
async fn a_flood_of_empty_parts_is_bounded() {
    within_deadline(async {
        let (connection, mut server) = RawServer::pair().await;
        let mut call = connection.start_call("".into(), None);
        let id = server.expect(Kind::Call).await.id;
        let flood: Vec<u8> = (0..5000).flat_map(|_| raw::header(Kind::Part, id).encode()).collect();
        // The connection may be cut before all of it is taken.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut server.stream, &flood).await;
        eventually("the flood is cut off", || connection.broken_reason().is_some()).await;
        assert!(collect(&mut call).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_long_messages_is_bounded() {
    within_deadline(async {
        let (connection, mut server) = RawServer::pair().await;
        let mut call = connection.start_call("".into(), None);
        let id = server.expect(Kind::Call).await.id;
        let mut frame = raw::header(Kind::Part, id).message(64 << 10).encode();
        frame.resize(64 + (64 << 10), b'x');
        for _ in 0..200 {
            // The connection may be cut before all of it is taken.
            if tokio::io::AsyncWriteExt::write_all(&mut server.stream, &frame).await.is_err() {
                break;
            }
        }
        eventually("the flood is cut off", || connection.broken_reason().is_some()).await;
        assert!(collect(&mut call).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_part_that_breaks_off_is_lost_and_shows_nothing() {
    within_deadline(async {
        let (connection, mut server) = RawServer::pair().await;
        let arena = arena(1);
        let mut call = connection.start_call("".into(), landing(&arena, PAGE));
        let id = server.expect(Kind::Call).await.id;
        let part = raw::header(Kind::Part, id).data(PAGE as u64).last();
        server.send(&part, &[1; PAGE / 2]).await;
        drop(server);
        let error = call.next().await.unwrap_err();
        assert!(matches!(error, TransportError::Lost { .. }), "{error}");
        drop(call);
        assert_eq!(arena.arena_usage().loaned_bytes, 0);
    })
    .await;
}

/// A real server, and a requester that tells it a lie.
async fn server_cuts(lie: &[RawHeader]) {
    within_deadline(async {
        let server = serve(silent(), server_options()).await;
        let mut end = raw_client(server.local_addr()).await;
        for header in lie {
            end.send(header, &[]).await;
        }
        end.closed().await;
        // It serves others as before.
        raw_client(server.local_addr()).await;
    })
    .await;
}

#[tokio::test]
async fn requesters_that_break_the_protocol_are_cut_off() {
    let call = |id| raw::header(Kind::Call, id).lent(10);
    server_cuts(&[call(1), call(1)]).await;
    server_cuts(&[call(2), call(1)]).await;
    server_cuts(&[raw::header(Kind::Cancel, 1)]).await;
    server_cuts(&[call(1), raw::header(Kind::CancelAck, 1)]).await;
    server_cuts(&[call(1), raw::header(Kind::Push, 1).data(u64::MAX)]).await;
    server_cuts(&[raw::header(Kind::Part, 1)]).await;
    server_cuts(&[raw::header(Kind::Welcome, 0)]).await;
    server_cuts(&[call(1).message((64 << 10) + 1)]).await;
    server_cuts(&[call(1).data(1)]).await;
    server_cuts(&[call(1).segments(1)]).await;
    let greedy: Vec<_> = (1..=u64::from(CREDITS) + 1).map(call).collect();
    server_cuts(&greedy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requester_that_does_not_read_makes_the_server_wait() {
    within_deadline(async {
        const PARTS: usize = 1024;
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let page = pattern(1, 0, PAGE);
        let streams = service(move |_, mut reply| {
            let (count, page) = (count.clone(), page.clone());
            async move {
                for part in 0..PARTS {
                    let offset = (part * PAGE) as u64;
                    reply.send_part("".into(), offset, vec![page.clone()]).await.unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                }
                reply.send_last("".into(), 0, vec![]).await.unwrap();
            }
        });
        let mut options = server_options();
        options.tcp.calls.settings.write_queue_max = ByteSize::from_mib(1);
        let server = serve(streams, options).await;
        let mut end = raw_client(server.local_addr()).await;
        let lent = (PARTS * PAGE) as u64;
        end.send(&raw::header(Kind::Call, 1).lent(lent), &[]).await;
        // A stall is the absence of progress, so this is the one place that has to look at a clock.
        let mut before = usize::MAX;
        while before != sent.load(Ordering::SeqCst) {
            before = sent.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        // The queue, and what the kernel buffers on both ends of a loopback connection.
        assert!(before * PAGE <= (1 << 20) + (24 << 20), "{before} pages were queued");
        for _ in 0..PARTS {
            assert_eq!(end.expect(Kind::Part).await.data_bytes, PAGE as u64);
        }
        assert_eq!(end.expect(Kind::Part).await.flags, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_a_requester_that_never_reads_are_bounded() {
    within_deadline(async {
        let server = serve(silent(), server_options()).await;
        let mut end = raw_client(server.local_addr()).await;
        let flood = async {
            for id in 1.. {
                let mut frames = raw::header(Kind::Call, id).encode();
                frames.extend(raw::header(Kind::Cancel, id).encode());
                end.raw(&frames).await;
            }
        };
        // Every cancel is answered; once nobody reads the answers, the server stops reading the
        // questions.
        let stuck = tokio::time::timeout(Duration::from_secs(4), flood).await;
        assert!(stuck.is_err());
        let other = raw_client(server.local_addr());
        assert!(other.await.stream.peer_addr().is_ok());
    })
    .await;
}

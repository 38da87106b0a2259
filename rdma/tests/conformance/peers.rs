//! Peers: when they connect, how many times, and how they come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use verbs3_rdma::inprocess::{InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::peer::{PeerOptions, TransportPeer};
use verbs3_rdma::tcp::{TcpServerOptions, TcpTransport};
use verbs3_rdma::transport::{
    CallService, LandingUse, PeerAddress, PeerConnection, PeerTransport, TransportError,
    TransportKind,
};

use crate::transport_fixture::{
    PAGE, arena, collect, echo, eventually, landing, options, pattern, serve, server_options,
    service, within_deadline,
};

/// Counts the connects of another transport.
struct Counting {
    inner: Arc<dyn PeerTransport>,
    connects: Arc<AtomicUsize>,
}

#[async_trait]
impl PeerTransport for Counting {
    fn transport_kind(&self) -> TransportKind {
        self.inner.transport_kind()
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError> {
        self.connects.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.inner.connect(peer).await
    }
}

fn peer(
    service: Arc<dyn CallService>,
    faults: InProcessFaults,
    options: PeerOptions,
) -> (TransportPeer, Arc<AtomicUsize>) {
    let connects = Arc::new(AtomicUsize::new(0));
    let inner = InProcess::make_transport(service, InProcessMode::Copy(faults));
    let counting = Arc::new(Counting { inner, connects: connects.clone() });
    let address = PeerAddress::from("192.0.2.1:1".parse::<std::net::SocketAddr>().unwrap());
    (TransportPeer::new("gpu-07", address, vec![counting], options), connects)
}

async fn ask(peer: &TransportPeer) -> Result<(), TransportError> {
    let answer = collect(&mut peer.start_call("hello".into(), None)).await?;
    assert_eq!(answer.messages, ["hello"]);
    Ok(())
}

#[tokio::test]
async fn the_first_calls_share_one_connect() {
    within_deadline(async {
        let (peer, connects) =
            peer(echo(), InProcessFaults::without_faults(), PeerOptions::default());
        assert_eq!(peer.transport_kind(), None);
        let calls = (0..20).map(|_| ask(&peer));
        futures::future::try_join_all(calls).await.unwrap();
        ask(&peer).await.unwrap();
        assert_eq!(connects.load(Ordering::SeqCst), 1);
        assert_eq!(peer.connection_count(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_attempt_outlives_the_call_that_needed_it() {
    within_deadline(async {
        let (peer, connects) =
            peer(echo(), InProcessFaults::without_faults(), PeerOptions::default());
        drop(peer.start_call("given up".into(), None));
        eventually("connected", || peer.connection_count() == 1).await;
        ask(&peer).await.unwrap();
        assert_eq!(connects.load(Ordering::SeqCst), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn while_a_peer_rests_calls_fail_at_once_and_nobody_connects() {
    let faults = InProcessFaults::without_faults().refuse_connects(2);
    let (peer, connects) = peer(echo(), faults, PeerOptions::default());
    for _ in 0..100 {
        let error = ask(&peer).await.unwrap_err();
        assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
    }
    assert_eq!(connects.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_millis(100)).await;
    ask(&peer).await.unwrap_err();
    assert_eq!(connects.load(Ordering::SeqCst), 2);
    tokio::time::advance(Duration::from_millis(200)).await;
    ask(&peer).await.unwrap();
    assert_eq!(connects.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_replaced_after_its_rest() {
    let faults = InProcessFaults::without_faults();
    let handle = faults.fault_handle();
    let (peer, connects) = peer(echo(), faults, PeerOptions::default());
    ask(&peer).await.unwrap();
    handle.drop_at_event(1);
    let error = ask(&peer).await.unwrap_err();
    assert!(matches!(error, TransportError::Lost { .. }), "{error}");
    // The connection died young, so the peer rests first. Nothing of this call is sent.
    let error = ask(&peer).await.unwrap_err();
    assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
    assert_eq!(connects.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_millis(100)).await;
    ask(&peer).await.unwrap();
    assert_eq!(connects.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn crowded_connections_get_company_up_to_the_bound() {
    within_deadline(async {
        let gate = Arc::new(Semaphore::new(0));
        let open = gate.clone();
        let waits = service(move |request, reply| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                let _ = reply.send_last(request.message, 0, vec![]).await;
            }
        });
        let mut options = PeerOptions::default();
        options.settings.connections_max = 3;
        options.settings.calls_per_connection = 4;
        let (peer, connects) = peer(waits, InProcessFaults::without_faults(), options);
        let mut calls = Vec::new();
        for bound in 1..=3 {
            let mut first = peer.start_call("hello".into(), None);
            assert!(futures::poll!(std::pin::pin!(first.next())).is_pending());
            eventually("one more connection", || peer.connection_count() == bound).await;
            calls.push(first);
            calls.extend((0..4).map(|_| peer.start_call("hello".into(), None)));
        }
        calls.extend((0..40).map(|_| peer.start_call("hello".into(), None)));
        assert_eq!(peer.connection_count(), 3);
        open.add_permits(calls.len());
        for call in &mut calls {
            collect(call).await.unwrap();
        }
        assert_eq!(connects.load(Ordering::SeqCst), 3);
    })
    .await;
}

#[tokio::test]
async fn few_large_calls_get_company_and_small_ones_none() {
    within_deadline(async {
        let gate = Arc::new(Semaphore::new(0));
        let open = gate.clone();
        let waits = service(move |request, reply| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                let _ = reply.send_last(request.message, 0, vec![]).await;
            }
        });
        let options = PeerOptions::default();
        let (peer, _) = peer(waits, InProcessFaults::without_faults(), options);
        let arena = arena(12);
        let mut calls = Vec::new();
        calls.push(peer.start_call("hello".into(), None));
        eventually("the first connection", || peer.connection_count() == 1).await;
        calls.extend((0..7).map(|_| peer.start_call("hello".into(), None)));
        assert_eq!(peer.connection_count(), 1);
        // Two of 1 MiB are as much as sixteen small ones.
        for connections in [1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4] {
            calls.push(peer.start_call("hello".into(), landing(&arena, 1 << 20)));
            eventually("so many connections", || peer.connection_count() == connections).await;
        }
        open.add_permits(calls.len());
        for call in &mut calls {
            collect(call).await.unwrap();
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_made_again_when_needed() {
    let (peer, connects) = peer(echo(), InProcessFaults::without_faults(), PeerOptions::default());
    ask(&peer).await.unwrap();
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(peer.connection_count(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(peer.connection_count(), 0);
    ask(&peer).await.unwrap();
    assert_eq!(connects.load(Ordering::SeqCst), 2);
    peer.shutdown().await;
}

#[tokio::test]
async fn a_local_peer_uses_its_connection_as_it_is() {
    let peer = TransportPeer::for_local_connection(InProcess::open_connection(
        echo(),
        InProcessMode::Share,
    ));
    let wants = peer.call_with(Err::<_, LandingUse>).err();
    assert_eq!(wants, Some(LandingUse::Unused));
    assert_eq!(peer.transport_kind(), Some(TransportKind::Shm));
    ask(&peer).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_over_tcp_survives_its_peer() {
    within_deadline(async {
        let gate = Arc::new(Semaphore::new(0));
        let open = gate.clone();
        let waits = service(move |_, reply| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                reply.send_last("".into(), 0, vec![pattern(1, 0, PAGE)]).await.unwrap();
            }
        });
        let server = serve(waits, server_options()).await;
        let transport = Arc::new(TcpTransport::new(options()));
        let address = PeerAddress::from(server.local_addr());
        let peer =
            TransportPeer::new("worker", address, vec![transport.clone()], PeerOptions::default());
        let arena = arena(1);
        let mut call = peer.start_call("".into(), landing(&arena, PAGE));
        assert!(futures::poll!(std::pin::pin!(call.next())).is_pending());
        eventually("connected", || peer.connection_count() == 1).await;
        assert!(futures::poll!(std::pin::pin!(call.next())).is_pending());
        peer.shutdown().await;
        drop(peer);
        open.add_permits(1);
        assert!(collect(&mut call).await.unwrap().bytes() == pattern(1, 0, PAGE));
        drop(call);
        transport.shutdown().await;
        server.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn a_tcp_connection_knows_what_its_peer_said_of_other_ways() {
    within_deadline(async {
        for (said, rails) in
            [("verbs 10.0.0.7:9403\nfuture x\n", 1), ("verbs nonsense", 0), ("", 0)]
        {
            let options = TcpServerOptions { ways: said.to_owned().into(), ..server_options() };
            let server = serve(echo(), options).await;
            let connection = TcpTransport::new(self::options())
                .connect(&server.local_addr().into())
                .await
                .unwrap();
            assert_eq!(connection.peer_ways().rails.len(), rails, "{said:?}");
            drop(connection);
            server.shutdown().await;
        }
    })
    .await;
}

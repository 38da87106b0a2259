//! Cases of pins: how long a requester may look at a worker's memory, and that nothing but the
//! requester ends it.

use std::sync::Arc;

use bytes::Bytes;
use verbs3_rdma::arena::Arena;
use verbs3_rdma::peer::{PeerOptions, ShmWay, TransportPeer, TransportWays};
use verbs3_rdma::shm::{ShmServer, ShmTransport};
use verbs3_rdma::tcp::{TcpServerOptions, TcpTransport};
use verbs3_rdma::transport::{
    CallEvent, CallService, PeerAddress, PeerConnection, PeerTransport, TransportKind, WayTerms,
};
use verbs3_settings::{ByteSize, TimePeriod};

use crate::placed::placed;
use crate::shm_pair::{connect, shm_options, shm_pair, shm_server_options, socket};
use crate::transport_fixture::{
    PAGE, arena, collect, eventually, landing, pattern, serve, server_options, service,
    within_deadline,
};

/// Answers every call with a page in `arena`, numbered by the message, that nobody else keeps.
pub fn pages(arena: &Arena) -> Arc<dyn CallService> {
    let arena = arena.clone();
    service(move |request, reply| {
        let data = placed(&arena, &page(&request.message)).expect("room for a page");
        async move { reply.send_last(request.message, 0, data).await.unwrap() }
    })
}

fn page(number: &[u8]) -> Bytes {
    pattern(number.first().copied().unwrap_or(0).into(), 0, PAGE)
}

/// One page by a call with a landing of this arena.
pub async fn fetch(
    connection: &Arc<dyn PeerConnection>,
    landings: &Arena,
    number: u8,
) -> Vec<Bytes> {
    let mut call = connection.start_call(vec![number].into(), landing(landings, PAGE));
    match call.next().await.unwrap() {
        CallEvent::Part(part) => part.data,
        CallEvent::Wanted { .. } => panic!("nothing to push in this case"),
    }
}

/// Loans all that is free in `arena` and writes over it, like a worker that evicts and fills.
fn reuse(arena: &Arena) {
    let mut held = Vec::new();
    while let Some(cell) = arena.allocate_cell(PAGE) {
        let (mut writer, reader) = cell.split_writer_reader();
        writer.spare_bytes().fill(0xEE);
        held.push((writer, reader));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_the_worker_evicts_never_changes_under_its_reader() {
    within_deadline(async {
        let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(1), arena(1));
        let (_server, connection) = shm_pair(&room, pages(&owner), owner.clone()).await;
        for number in 0..32 {
            let data = fetch(&connection, &landings, number).await;
            // Handed over, not copied: nothing of the landing is left, and the worker's cell is
            // still loaned.
            assert_eq!(landings.arena_usage().loaned_bytes, 0);
            assert_eq!(owner.arena_usage().loaned_bytes, PAGE as u64);
            reuse(&owner);
            assert!(data.concat() == page(&[number]), "page {number} changed");
            drop(data);
            eventually("the pin is released", || owner.arena_usage().loaned_bytes == 0).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_keeps_its_memory_after_the_connection_is_gone() {
    within_deadline(async {
        let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(1), arena(1));
        let (_server, connection) = shm_pair(&room, pages(&owner), owner.clone()).await;
        let mut data = fetch(&connection, &landings, 1).await;
        let other = fetch(&connection, &landings, 2).await;
        drop(connection);
        // The worker has seen the end of the stream once it lets another in and answers.
        let second = connect(&room).await;
        drop(fetch(&second, &landings, 3).await);
        eventually("the third page is back", || {
            owner.arena_usage().loaned_bytes == 2 * PAGE as u64
        })
        .await;
        reuse(&owner);
        assert!(data.concat() == page(&[1]));
        // Pins that nobody can release any more end together, with the last piece.
        drop(other);
        reuse(&owner);
        let rest = data.pop().unwrap().slice(PAGE - 10..);
        drop(data);
        reuse(&owner);
        assert_eq!(rest, page(&[1]).slice(PAGE - 10..));
        drop(rest);
        eventually("all pins have ended", || owner.arena_usage().loaned_bytes == 0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_shutdown_nor_drop_of_the_server_ends_a_pin() {
    within_deadline(async {
        for shutdown in [true, false] {
            let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(1), arena(1));
            let (server, connection) = shm_pair(&room, pages(&owner), owner.clone()).await;
            let data = fetch(&connection, &landings, 4).await;
            if shutdown {
                server.shutdown().await;
            } else {
                drop(server);
            }
            eventually("the connection is over", || connection.broken_reason().is_some()).await;
            reuse(&owner);
            assert!(data.concat() == page(&[4]));
            drop(connection);
            reuse(&owner);
            assert!(data.concat() == page(&[4]));
            drop(data);
            eventually("the pin has ended", || owner.arena_usage().loaned_bytes == 0).await;
        }
    })
    .await;
}

#[test]
fn a_worker_that_stops_watching_never_uses_the_memory_again() {
    let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(1), arena(1));
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    };
    let (workers, gateways) = (runtime(), runtime());
    let options = shm_server_options();
    let service = pages(&owner);
    let _server =
        workers.block_on(ShmServer::bind(&socket(&room), options, owner.clone(), service)).unwrap();
    let (connection, data) = gateways.block_on(async {
        let connection = connect(&room).await;
        let data = fetch(&connection, &landings, 5).await;
        (connection, data)
    });
    drop(workers);
    reuse(&owner);
    assert!(data.concat() == page(&[5]));
    drop((connection, gateways, data));
    assert_eq!(owner.arena_usage().loaned_bytes, PAGE as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requester_that_never_releases_gets_copies_beyond_its_quota() {
    within_deadline(async {
        let page_bytes = PAGE as u64;
        for ((pins_max, pinned_max), by_reference) in
            [((3, u64::MAX), 3), ((100, 2 * page_bytes + 1), 2), ((0, 0), 0)]
        {
            let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(4), arena(4));
            let mut options = shm_server_options();
            options.settings.pins_max = pins_max;
            options.settings.pinned_max = ByteSize(pinned_max);
            let server = ShmServer::bind(&socket(&room), options, owner.clone(), pages(&owner))
                .await
                .unwrap();
            let (hoarder, other) = (connect(&room).await, connect(&room).await);
            let mut kept = Vec::new();
            for number in 0..8 {
                let data = fetch(&hoarder, &landings, number).await;
                assert!(data.concat() == page(&[number]));
                kept.push(data);
            }
            // Copied memory is released just after it has arrived.
            eventually("the quota is in use", || {
                owner.arena_usage().loaned_bytes == by_reference * page_bytes
            })
            .await;
            assert_eq!(landings.arena_usage().loaned_bytes, (8 - by_reference) * page_bytes);
            // The quota is each connection's own.
            let data = fetch(&other, &landings, 9).await;
            let pinned = (by_reference + u64::from(by_reference > 0)) * page_bytes;
            eventually("the other has a quota too", || owner.arena_usage().loaned_bytes == pinned)
                .await;
            drop(data);
            // Released pins make room again.
            kept.clear();
            eventually("all pins are released", || owner.arena_usage().loaned_bytes == 0).await;
            let data = fetch(&hoarder, &landings, 10).await;
            let copied = by_reference == 0;
            eventually("as before", || (owner.arena_usage().loaned_bytes == 0) == copied).await;
            drop(data);
            server.shutdown().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_replies_and_those_of_the_heap_are_copied() {
    within_deadline(async {
        let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(1), arena(1));
        let source = owner.clone();
        let serve = service(move |request, reply| {
            let mut data = placed(&source, &pattern(1, 0, 20_000)).unwrap();
            match &request.message[..] {
                b"short" => drop(data[0].split_off(1000)),
                // One piece that can't be handed over makes a copy of the whole part.
                b"mixed" => data.push(Bytes::from_static(b"of the heap")),
                _ => {}
            }
            async move { reply.send_last("".into(), 0, data).await.unwrap() }
        });
        let mut options = shm_server_options();
        options.settings.copy_max = ByteSize(1000);
        let _server = ShmServer::bind(&socket(&room), options, owner.clone(), serve).await.unwrap();
        let connection = connect(&room).await;
        for (message, bytes, copied) in
            [("short", 1000, true), ("mixed", 20_011, true), ("long", 20_000, false)]
        {
            let mut call = connection.start_call(message.into(), landing(&landings, bytes));
            let answer = collect(&mut call).await.unwrap();
            assert_eq!(answer.bytes().len(), bytes);
            assert_eq!(answer.bytes()[..1000], pattern(1, 0, 1000));
            assert_eq!(landings.arena_usage().loaned_bytes > 0, copied, "{message}");
            // The worker lets go of what it has copied just after the requester has it.
            eventually(message, || (owner.arena_usage().loaned_bytes == 0) == copied).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_with_memory_still_mapped_count_as_connections() {
    within_deadline(async {
        let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(1), arena(1));
        let mut options = shm_server_options();
        options.settings.connections_max = 1;
        let _server =
            ShmServer::bind(&socket(&room), options, owner.clone(), pages(&owner)).await.unwrap();
        let connection = connect(&room).await;
        let data = fetch(&connection, &landings, 1).await;
        drop(connection);
        let transport = ShmTransport::new(shm_options());
        let error = transport.connect_to(&socket(&room), &WayTerms::default()).await.err().unwrap();
        assert!(error.to_string().contains("connections_max"), "{error}");
        drop(data);
        while transport.connect_to(&socket(&room), &WayTerms::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Mappings of this process that can only be read, of `bytes` of a memfd.
fn mappings(bytes: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_one = |line: &&str| {
        let mut fields = line.split_whitespace();
        let (range, access) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let ends = range
            .split_once('-')
            .map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16).unwrap()));
        access == "r--s"
            && line.contains("memfd:")
            && ends.is_some_and(|[from, to]| to - from == bytes)
    };
    maps.lines().filter(is_one).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_to_a_worker_share_one_mapping_of_its_memory() {
    within_deadline(async {
        // A size that no other case has.
        let extents = 13;
        let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(extents), arena(1));
        let bytes = extents << 21;
        let (_server, first) = shm_pair(&room, pages(&owner), owner.clone()).await;
        let second = connect(&room).await;
        let data = [fetch(&first, &landings, 1).await, fetch(&second, &landings, 2).await];
        assert_eq!(mappings(bytes), 1);
        drop(first);
        reuse(&owner);
        assert!(data[0].concat() == page(&[1]) && data[1].concat() == page(&[2]));
        drop(second);
        let [one, other] = data;
        drop(one);
        eventually("the first connection's pin has ended", || {
            owner.arena_usage().loaned_bytes == PAGE as u64
        })
        .await;
        reuse(&owner);
        assert!(mappings(bytes) == 1 && other.concat() == page(&[2]));
        drop(other);
        eventually("nothing is mapped", || mappings(bytes) == 0).await;
        // Another worker's memory is another mapping, though it may get the same inode number.
        let (elsewhere, neighbour) = (tempfile::tempdir().unwrap(), arena(extents));
        let (_other_server, beside) =
            shm_pair(&elsewhere, pages(&neighbour), neighbour.clone()).await;
        let again = connect(&room).await;
        let data = [fetch(&beside, &landings, 3).await, fetch(&again, &landings, 4).await];
        assert_eq!(mappings(bytes), 2);
        assert!(data[0].concat() == page(&[3]) && data[1].concat() == page(&[4]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_peer_is_reached_over_shared_memory_or_else_over_tcp() {
    within_deadline(async {
        let (room, owner, landings) = (tempfile::tempdir().unwrap(), arena(1), arena(1));
        let (options, service) = (shm_server_options(), pages(&owner));
        let over_shm =
            ShmServer::bind(&socket(&room), options, owner.clone(), service.clone()).await.unwrap();
        let ways = TransportWays {
            shm: Some(ShmWay::of_this_host(over_shm.socket_path()).unwrap()),
            ..TransportWays::default()
        };
        let over_tcp =
            serve(service, TcpServerOptions { ways: ways.into(), ..server_options() }).await;
        let transports: Vec<Arc<dyn PeerTransport>> = vec![
            Arc::new(ShmTransport::new(shm_options())),
            Arc::new(TcpTransport::new(crate::transport_fixture::options())),
        ];
        // Tests share two cores with others: the way up must not be given up early.
        let mut patient = PeerOptions::default();
        patient.settings.upgrade_wait = TimePeriod(crate::transport_fixture::DEADLINE);
        let address = PeerAddress::with_name(over_tcp.local_addr(), "conformance");
        let peer = TransportPeer::new("conformance", address, transports, patient);
        let ask = |number: u8| peer.start_call(vec![number].into(), landing(&landings, PAGE));

        let mut call = ask(1);
        let kept = collect(&mut call).await.unwrap();
        assert!(kept.bytes() == page(&[1]));
        assert_eq!(peer.transport_kind(), Some(TransportKind::Shm));
        assert_eq!(
            (landings.arena_usage().loaned_bytes, owner.arena_usage().loaned_bytes),
            (0, PAGE as u64)
        );

        over_shm.shutdown().await;
        // The goodbye may still be on its way.
        while peer.transport_kind() == Some(TransportKind::Shm) {
            let _ = collect(&mut ask(2)).await;
        }
        assert!(collect(&mut ask(3)).await.unwrap().bytes() == page(&[3]));
        assert_eq!(peer.transport_kind(), Some(TransportKind::Tcp));
        // Idle or not, whatever became of the connection: the page is still there.
        reuse(&owner);
        assert!(kept.bytes() == page(&[1]));
        peer.shutdown().await;
    })
    .await;
}

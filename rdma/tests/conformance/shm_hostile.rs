//! Cases of shared-memory workers and requesters that lie, over a raw unix socket.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tempfile::TempDir;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use verbs3_rdma::shm::{ShmServer, ShmServerOptions, ShmTransport};
use verbs3_rdma::transport::{CallEvent, CallService, PeerConnection, TransportError, WayTerms};

use crate::placed::placed;
use crate::raw::{self, Kind, RawEnd, RawHeader, introduce, let_in};
use crate::shm::pages;
use crate::shm_pair::{shm_options, shm_server_options, socket};
use crate::transport_fixture::{
    PAGE, arena, eventually, landing, pattern, service, within_deadline,
};

const ARENA: u64 = 1 << 20;

type End = RawEnd<UnixStream>;

fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
    let fd =
        rustix::fs::memfd_create("lies", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn offer(arena_bytes: u64, pins_max: u32) -> Vec<u8> {
    let mut bytes = arena_bytes.to_le_bytes().to_vec();
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend(pins_max.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

async fn pass(end: &End, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let sent = end.stream.async_io(Interest::WRITABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        Ok(rustix::net::sendmsg(
            &end.stream,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::DONTWAIT,
        )?)
    });
    assert_eq!(sent.await.unwrap(), bytes.len());
}

/// Receives the next bytes, with the descriptors.
async fn take(stream: &UnixStream, bytes: usize) -> (Vec<u8>, Vec<OwnedFd>) {
    let (mut buffer, mut descriptors) = (vec![0; bytes], Vec::new());
    let received = stream.async_io(Interest::READABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut buffer)];
        let received = rustix::net::recvmsg(stream, slices, &mut control, RecvFlags::DONTWAIT)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        Ok(received.bytes)
    });
    let received = received.await.unwrap();
    buffer.truncate(received);
    (buffer, descriptors)
}

/// A real requester that meets a worker by hand.
async fn meet(
    room: &TempDir,
    secret: &[u8],
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> (Result<Arc<dyn PeerConnection>, TransportError>, End) {
    let path = socket(room);
    let listener = UnixListener::bind(&path).unwrap();
    let transport = ShmTransport::new(shm_options());
    let worker = async {
        let (stream, _) = listener.accept().await.unwrap();
        let end = let_in(stream, raw::VERSION, secret).await;
        pass(&end, bytes, descriptors).await;
        end
    };
    let any = WayTerms::default();
    let met = tokio::join!(transport.connect_to(&path, &any), worker);
    std::fs::remove_file(&path).unwrap();
    met
}

#[tokio::test]
async fn memory_that_could_hurt_its_reader_is_not_mapped() {
    within_deadline(async {
        let room = tempfile::tempdir().unwrap();
        let sealed = memfd(ARENA, SealFlags::SHRINK);
        let unsealed = memfd(ARENA, SealFlags::GROW);
        let file = OwnedFd::from(File::create(room.path().join("file")).unwrap());
        let (pipe, lifeline) = std::io::pipe().unwrap();
        let (good, wrong, file) = (sealed.as_fd(), unsealed.as_fd(), file.as_fd());
        let (pipe, lifeline) = (pipe.as_fd(), lifeline.as_fd());
        let full = offer(ARENA, 8);
        let cases: [(&str, &[u8], &[BorrowedFd<'_>]); 10] = [
            ("sealed", &full, &[wrong, pipe]),
            ("memfd", &full, &[pipe, pipe]),
            ("refused", &full, &[file, pipe]),
            ("bytes", &offer(ARENA + 1, 8), &[good, pipe]),
            ("bytes", &offer(u64::MAX, 8), &[good, pipe]),
            ("bytes", &offer(0, 8), &[good, pipe]),
            ("no descriptors", &full, &[good]),
            ("no descriptors", &full, &[]),
            ("more descriptors", &full, &[good, pipe, lifeline, pipe, good, pipe, pipe]),
            ("no memory", &full[..23], &[good, pipe]),
        ];
        for (word, bytes, descriptors) in cases {
            let (connection, _end) = meet(&room, raw::SECRET, bytes, descriptors).await;
            let error = connection.err().unwrap();
            assert!(matches!(error, TransportError::Handshake { .. }), "{error}");
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
        let (connection, _end) = meet(&room, raw::SECRET, &full, &[good, pipe]).await;
        assert!(connection.is_ok());
    })
    .await;
}

#[tokio::test]
async fn what_an_impostor_passes_is_not_looked_at() {
    within_deadline(async {
        let room = tempfile::tempdir().unwrap();
        let memory = memfd(ARENA, SealFlags::SHRINK);
        let (pipe, lifeline) = std::io::pipe().unwrap();
        let (connection, _end) =
            meet(&room, b"a guess", &offer(ARENA, 8), &[memory.as_fd(), pipe.as_fd()]).await;
        assert!(connection.err().unwrap().to_string().contains("secrets differ"));
        // Nobody has it: the kernel closed what was on its way.
        drop((pipe, _end));
        let error = rustix::io::write(&lifeline, b"x").unwrap_err();
        assert_eq!(error, rustix::io::Errno::PIPE);
    })
    .await;
}

fn segment(address: u64, bytes: u32, pin: u32) -> Vec<u8> {
    let mut wire = address.to_le_bytes().to_vec();
    wire.extend(bytes.to_le_bytes());
    wire.extend(pin.to_le_bytes());
    wire
}

/// A real requester with one call of `PAGE` bytes, and a worker that answers it with a lie.
async fn requester_cuts(lie: impl Fn(u64) -> Vec<(RawHeader, Vec<u8>)>) {
    within_deadline(async {
        let room = tempfile::tempdir().unwrap();
        let memory = memfd(ARENA, SealFlags::SHRINK);
        let (pipe, _lifeline) = std::io::pipe().unwrap();
        let (connection, mut end) =
            meet(&room, raw::SECRET, &offer(ARENA, 2), &[memory.as_fd(), pipe.as_fd()]).await;
        let connection = connection.unwrap();
        let arena = arena(1);
        let mut call = connection.start_call("".into(), landing(&arena, PAGE));
        let id = end.expect(Kind::Call).await.id;
        for (header, body) in lie(id) {
            end.send(&header, &body).await;
        }
        let mut kept = Vec::new();
        let error = loop {
            match call.next().await {
                Ok(CallEvent::Part(part)) if !part.last => kept.push(part),
                Ok(event) => panic!("the lie was believed: {event:?}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, TransportError::Protocol { .. }), "{error}");
        drop(call);
        assert_eq!(arena.arena_usage().loaned_bytes, 0);
        end.closed().await;
    })
    .await;
}

fn handed(id: u64, bytes: u64, segments: &[Vec<u8>]) -> (RawHeader, Vec<u8>) {
    (
        raw::header(Kind::Part, id).data(bytes).placed().segments(segments.len() as u32),
        segments.concat(),
    )
}

#[tokio::test]
async fn descriptors_outside_the_memory_cut_the_worker_off() {
    for (address, bytes) in
        [(ARENA, 1), (ARENA - 1, 2), (0, 0), (u64::MAX, 1), (u64::MAX - 1, 2), (1 << 63, 9)]
    {
        requester_cuts(|id| vec![handed(id, bytes.into(), &[segment(address, bytes, 1)])]).await;
    }
    // The second of two.
    requester_cuts(|id| vec![handed(id, 12, &[segment(0, 10, 1), segment(ARENA - 1, 2, 1)])]).await;
}

#[tokio::test]
async fn descriptors_that_contradict_their_header_cut_the_worker_off() {
    requester_cuts(|id| vec![handed(id, 11, &[segment(0, 10, 1)])]).await;
    requester_cuts(|id| vec![handed(id, 9, &[segment(0, 10, 1)])]).await;
    requester_cuts(|id| vec![handed(id, 0, &[segment(0, 10, 1)])]).await;
    requester_cuts(|id| vec![handed(id, 10, &[])]).await;
    requester_cuts(|id| vec![handed(id, 20, &[segment(0, 10, 1), segment(10, 10, 2)])]).await;
    // More than the landing that was lent.
    requester_cuts(|id| vec![handed(id, PAGE as u64 + 1, &[segment(0, PAGE as u32 + 1, 1)])]).await;
    // The same range of the landing twice.
    requester_cuts(|id| {
        vec![handed(id, 10, &[segment(0, 10, 1)]), handed(id, 10, &[segment(0, 10, 2)])]
    })
    .await;
    // Memory where none can be named.
    requester_cuts(|id| {
        vec![(raw::header(Kind::Part, id).data(10).segments(1), segment(0, 10, 1))]
    })
    .await;
    requester_cuts(|id| {
        vec![(raw::header(Kind::Wanted, id).lent(10).segments(1), segment(0, 10, 1))]
    })
    .await;
    requester_cuts(|id| vec![(raw::header(Kind::Release, id), vec![])]).await;
}

#[tokio::test]
async fn more_pins_than_promised_cut_the_worker_off() {
    requester_cuts(|id| {
        let part = |at: u64| {
            let (header, body) = handed(id, 10, &[segment(at, 10, 1)]);
            (header.at(at), body)
        };
        vec![part(0), part(10), part(20)]
    })
    .await;
}

#[tokio::test]
async fn what_is_handed_over_is_the_workers_own_memory() {
    within_deadline(async {
        let room = tempfile::tempdir().unwrap();
        let memory = memfd(ARENA, SealFlags::SHRINK);
        File::from(memory.try_clone().unwrap())
            .write_all_at(&pattern(1, 0, 100), ARENA - 100)
            .unwrap();
        let (pipe, lifeline) = std::io::pipe().unwrap();
        let (connection, mut end) =
            meet(&room, raw::SECRET, &offer(ARENA, 8), &[memory.as_fd(), pipe.as_fd()]).await;
        drop(pipe);
        let (connection, landings) = (connection.unwrap(), arena(1));
        let mut call = connection.start_call("".into(), landing(&landings, 100));
        let id = end.expect(Kind::Call).await.id;
        let (part, body) =
            handed(id, 100, &[segment(ARENA - 40, 40, 77), segment(ARENA - 100, 60, 77)]);
        end.send(&part.last(), &body).await;
        let CallEvent::Part(part) = call.next().await.unwrap() else { panic!("a part is due") };
        assert_eq!(part.data, [pattern(1, 60, 40), pattern(1, 0, 60)]);
        let first = part.data[0].clone();
        drop((part, call));
        // One piece is left, so nothing is released, and everything stays mapped without the
        // connection.
        drop(connection);
        end.closed().await;
        assert!(rustix::io::write(&lifeline, b"x").is_ok());
        drop((end, memory));
        assert_eq!(first, pattern(1, 60, 40));
        drop(first);
        eventually("the memory is unmapped", || rustix::io::write(&lifeline, b"x").is_err()).await;
    })
    .await;
}

/// A requester by hand, and what it was passed.
struct Guest {
    end: End,
    memory: OwnedFd,
    lifeline: OwnedFd,
}

async fn guest(room: &TempDir) -> Guest {
    let end = introduce(UnixStream::connect(socket(room)).await.unwrap()).await;
    let (bytes, descriptors) = take(&end.stream, 24).await;
    assert_eq!(bytes.len(), 24);
    let [memory, lifeline] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
    Guest { end, memory, lifeline }
}

async fn listening(
    room: &TempDir,
    service: Arc<dyn CallService>,
    arena: &verbs3_rdma::arena::Arena,
) -> ShmServer {
    let options: ShmServerOptions = shm_server_options();
    ShmServer::bind(&socket(room), options, arena.clone(), service).await.unwrap()
}

#[tokio::test]
async fn a_stranger_gets_no_memory() {
    within_deadline(async {
        let (room, owner) = (tempfile::tempdir().unwrap(), arena(1));
        let _server = listening(&room, pages(&owner), &owner).await;
        let mut end = RawEnd { stream: UnixStream::connect(socket(&room)).await.unwrap() };
        let hello = raw::greeting(raw::VERSION);
        end.send(&raw::header(Kind::Hello, 0).message(112), &hello).await;
        let (_, challenge) = end.receive().await.unwrap();
        let guess = raw::proof(b"a guess", b"verbs3 requester", &hello, &challenge);
        end.send(&raw::header(Kind::Proof, 0).message(32), &guess).await;
        let (bytes, descriptors) = take(&end.stream, 4096).await;
        assert_eq!(bytes[4], Kind::Reject as u8);
        assert!(descriptors.is_empty());
        let (bytes, descriptors) = take(&end.stream, 4096).await;
        assert!(bytes.is_empty() && descriptors.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_requester_can_not_write_to_the_arena() {
    within_deadline(async {
        let (room, owner) = (tempfile::tempdir().unwrap(), arena(1));
        let _server = listening(&room, pages(&owner), &owner).await;
        let Guest { memory, .. } = guest(&room).await;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
        assert!(rustix::fs::ftruncate(&memory, 0).is_err());
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&memory, punch, 0, 4096).is_err());
        assert!(File::from(memory).write_at(b"x", 0).is_err());
        // Nor by opening it once more.
        if let Ok(again) = File::options().write(true).open(path) {
            assert!(again.write_at(b"x", 0).is_err());
        }
    })
    .await;
}

async fn server_cuts(lie: impl Fn(u32) -> Vec<RawHeader>) {
    within_deadline(async {
        let (room, owner) = (tempfile::tempdir().unwrap(), arena(1));
        let _server = listening(&room, pages(&owner), &owner).await;
        let Guest { mut end, lifeline, .. } = guest(&room).await;
        end.send(&raw::header(Kind::Call, 1).lent(PAGE as u64), &[]).await;
        let (part, body) = end.receive().await.unwrap();
        assert_eq!((part.flags, part.segments), (4 | 1, 1));
        let pin = u32::from_le_bytes(body[12..16].try_into().unwrap());
        for header in lie(pin) {
            end.send(&header, &[]).await;
        }
        end.closed().await;
        // Cut off, and by what it was passed it still looks at the page.
        let released = lie(pin)
            .iter()
            .any(|header| header.kind == Kind::Release as u8 && header.id == u64::from(pin));
        assert_eq!(owner.arena_usage().loaned_bytes == 0, released);
        drop(end);
        drop(guest(&room).await);
        assert_eq!(owner.arena_usage().loaned_bytes == 0, released);
        drop(lifeline);
        eventually("the pin has ended", || owner.arena_usage().loaned_bytes == 0).await;
    })
    .await;
}

#[tokio::test]
async fn requesters_that_break_rules_are_cut_off_and_keep_their_pins() {
    let release = |pin: u32| raw::header(Kind::Release, pin.into());
    server_cuts(|pin| vec![release(pin + 1)]).await;
    server_cuts(|pin| vec![release(pin), release(pin)]).await;
    server_cuts(|_| vec![raw::header(Kind::Release, u64::MAX)]).await;
    server_cuts(|pin| vec![raw::header(Kind::Release, u64::from(pin) + (1 << 32))]).await;
    server_cuts(|_| vec![raw::header(Kind::Call, 2).lent(10).segments(1)]).await;
    server_cuts(|_| vec![raw::header(Kind::Push, 2).data(10).placed()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_taken_back_takes_its_pin_back() {
    within_deadline(async {
        let (room, owner) = (tempfile::tempdir().unwrap(), arena(8));
        let (source, made) = (owner.clone(), Arc::new(AtomicU64::new(0)));
        let count = made.clone();
        let serve = service(move |request, mut reply| {
            let (source, count) = (source.clone(), count.clone());
            async move {
                if request.message == "heap" {
                    // More than the socket takes: what comes behind it waits.
                    reply.send_last("".into(), 0, vec![pattern(1, 0, 4 << 20)]).await.unwrap();
                } else {
                    let data = placed(&source, &pattern(2, 0, PAGE)).unwrap();
                    reply.send_part("".into(), 0, data).await.unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
            }
        });
        let _server = listening(&room, serve, &owner).await;
        let Guest { mut end, lifeline: _lifeline, .. } = guest(&room).await;
        end.send(&raw::header(Kind::Call, 1).lent(4 << 20).message(4), b"heap").await;
        let pinned = || owner.arena_usage().loaned_bytes / PAGE as u64;
        // The first few may be on their way with the long one; those that are made while it is
        // stuck are not.
        let mut calls = 0;
        loop {
            calls += 1;
            assert!(calls < 50, "no part was taken back");
            let id = calls + 1;
            end.send(&raw::header(Kind::Call, id).lent(PAGE as u64), &[]).await;
            eventually("the page is handed over", || made.load(Ordering::SeqCst) == calls).await;
            // Served behind the cancel of the call before.
            if pinned() < calls {
                break;
            }
            end.send(&raw::header(Kind::Cancel, id), &[]).await;
        }
        end.send(&raw::header(Kind::Cancel, calls + 1), &[]).await;
        assert_eq!(end.expect(Kind::Part).await.id, 1);
        let mut handed_over = 0;
        loop {
            let (header, _) = end.receive().await.unwrap();
            handed_over += u64::from(header.kind == Kind::Part as u8);
            if header.kind == Kind::CancelAck as u8 && header.id == calls + 1 {
                break;
            }
        }
        assert_eq!(pinned(), handed_over);
        assert!(handed_over < calls);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requester_that_unmaps_and_stays_gets_copies() {
    within_deadline(async {
        let (room, owner) = (tempfile::tempdir().unwrap(), arena(1));
        let _server = listening(&room, pages(&owner), &owner).await;
        let Guest { mut end, lifeline, .. } = guest(&room).await;
        end.send(&raw::header(Kind::Call, 1).lent(PAGE as u64), &[]).await;
        end.receive().await.unwrap();
        assert_eq!(owner.arena_usage().loaned_bytes, PAGE as u64);
        drop(lifeline);
        eventually("the pin has ended", || owner.arena_usage().loaned_bytes == 0).await;
        end.send(&raw::header(Kind::Call, 2).lent(PAGE as u64), &[]).await;
        let (part, body) = end.receive().await.unwrap();
        assert_eq!((part.flags, part.segments), (1, 0));
        assert!(body == pattern(0, 0, PAGE));
        eventually("nothing is pinned", || owner.arena_usage().loaned_bytes == 0).await;
    })
    .await;
}

//! What hostile clients reach: nothing but their own memory.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use verbs3_lending_protocol::{
    BELL_BROKEN, BELL_REVOKED, LendingRefusal, LentOutcome, MemoryOffer, REQUEST_BYTES_MAX,
    RingLayout,
};

use super::raw_client::{RawClient, RawMemory, claim_of, sealed_memory};
use super::*;
use crate::lending_metrics::{LandingEnd, LendingCut};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_proof_nothing_is_taken() {
    let server = TestServer::start();
    let socket = server.socket.clone();
    blocking(move || {
        let file = sealed_memory(MIB);
        let offer = RingLayout::at_beginning(16, 4).encode_offer();
        // The memory instead of a proof, and memory beside a proof that fails.
        let mut early = RawClient::connect(&socket);
        early.read_hello();
        early.pass(&[&[28, 0], &*offer].concat(), &[&file]);
        assert_eq!(early.verdict(), Err(LendingRefusal::Malformed));
        assert_eq!(early.last_byte(), None);
        let mut wrong = RawClient::connect(&socket);
        wrong.read_hello();
        wrong.pass(&claim_of("AKSTRANGER").encode_claim().unwrap(), &[&file]);
        assert_eq!(wrong.verdict(), Err(LendingRefusal::UnknownKey));
        // A second try on the same nonce is not listened to.
        let _ = wrong.stream.write_all(&claim_of(KEY).encode_claim().unwrap());
        assert!(wrong.stream.read_to_end_or_reset());
        // A claim that says it is endless.
        let mut long = RawClient::connect(&socket);
        long.read_hello();
        long.stream.write_all(&u16::MAX.to_le_bytes()).unwrap();
        assert_eq!(long.verdict(), Err(LendingRefusal::Malformed));
        // A descriptor that came with the claim counts for nothing.
        let mut beside = RawClient::connect(&socket);
        beside.read_hello();
        beside.pass(&claim_of(KEY).encode_claim().unwrap(), &[&file]);
        beside.verdict().unwrap();
        let offer = RingLayout::at_beginning(16, 4);
        assert_eq!(beside.offer(&offer, &[]), Err(LendingRefusal::Descriptor));
    })
    .await;
    server.until(|server| server.metrics.strangers.get() == 0).await;
    assert_eq!(server.state.memory.load(Ordering::SeqCst), 256 << 20, "nothing is held");
}

trait HungUp {
    fn read_to_end_or_reset(&mut self) -> bool;
}

impl HungUp for std::os::unix::net::UnixStream {
    fn read_to_end_or_reset(&mut self) -> bool {
        use std::io::Read as _;
        self.read_to_end(&mut Vec::new()).map_or(true, |bytes| bytes == 0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_leave_after_a_time_that_nothing_renews() {
    let server = TestServer::start_with(|limits| limits.handshake_max = Duration::from_secs(2));
    let socket = server.socket.clone();
    blocking(move || {
        let mut silent = RawClient::connect(&socket);
        silent.read_hello();
        assert_eq!(silent.last_byte(), None);
        let mut proven = RawClient::proven(&socket, KEY);
        assert_eq!(proven.last_byte(), None, "one that proves itself and lends nothing, too");
    })
    .await;
    server.until(|server| server.metrics.cut[LendingCut::Late].get() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_strangers_is_bounded() {
    let server = TestServer::start_with(|limits| limits.strangers_max = 4);
    let socket = server.socket.clone();
    let crowd =
        blocking(move || (0..8).map(|_| RawClient::connect(&socket)).collect::<Vec<_>>()).await;
    // Where they come slowly, newcomers take the places of older ones.
    let cut = |cause: LendingCut| server.metrics.cut[cause].get();
    let are_six_cut = || cut(LendingCut::Crowded) + cut(LendingCut::Displaced) == 6;
    server.until(|server| are_six_cut() && server.metrics.strangers.get() == 2).await;
    drop(crowd);
    server.until(|server| server.metrics.strangers.get() == 0).await;
    drop(server.connect().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_not_what_it_has_to_be_is_refused() {
    let server = TestServer::start();
    let socket = server.socket.clone();
    blocking(move || {
        let good = RingLayout::at_beginning(16, 4);
        let sealed = sealed_memory(MIB);
        let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, MIB).unwrap();
        let no_memfd = std::fs::File::open("/proc/self/exe").unwrap().into();
        let large = sealed_memory(65 * MIB);
        let ring_over_end = MemoryOffer { completions_offset: MIB - 64, ..good };
        let overflow = MemoryOffer { control_offset: u64::MAX - 63, ..good };
        let cases = [
            (good, vec![], LendingRefusal::Descriptor),
            (good, vec![&sealed, &sealed], LendingRefusal::Descriptor),
            (good, vec![&unsealed], LendingRefusal::Seals),
            (good, vec![&no_memfd], LendingRefusal::Seals),
            (good, vec![&large], LendingRefusal::MemoryBytes),
            (ring_over_end, vec![&sealed], LendingRefusal::Layout),
            (overflow, vec![&sealed], LendingRefusal::Layout),
            (MemoryOffer { entries: 3, ..good }, vec![&sealed], LendingRefusal::Layout),
        ];
        for (offer, files, refusal) in cases {
            let mut client = RawClient::proven(&socket, KEY);
            assert_eq!(client.offer(&offer, &files), Err(refusal), "{offer:?}");
        }
    })
    .await;
    server.until(|server| server.state.memory.load(Ordering::SeqCst) == 256 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_turn_to_map_a_client_is_refused() {
    let server = TestServer::start();
    server.state.mapping_turns.close();
    let socket = server.socket.clone();
    blocking(move || {
        let mut client = RawClient::proven(&socket, KEY);
        let refused = client.offer(&RingLayout::at_beginning(16, 4), &[&sealed_memory(MIB)]);
        assert_eq!(refused, Err(LendingRefusal::Clients));
    })
    .await;
    server.until(|server| server.state.memory.load(Ordering::SeqCst) == 256 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn submissions_beyond_the_memory_harm_nobody() {
    let server = TestServer::start();
    let socket = server.socket.clone();
    blocking(move || {
        let mut client = RawMemory::lend(&socket, KEY, MIB);
        let good = client.request("bytes/100", 64 << 10);
        let wrong = [
            ReadSubmissionChange::RequestOffset(u64::MAX),
            ReadSubmissionChange::RequestOffset(MIB - 1),
            ReadSubmissionChange::RequestBytes(REQUEST_BYTES_MAX as u16 + 1),
            ReadSubmissionChange::RequestBytes(u16::MAX),
            ReadSubmissionChange::RequestBytes(1),
            ReadSubmissionChange::HeadOffset(MIB - 4095),
            ReadSubmissionChange::HeadOffset(u64::MAX - 4095),
            ReadSubmissionChange::BodyOffset(MIB),
            ReadSubmissionChange::BodyOffset(u64::MAX - 8191),
            ReadSubmissionChange::BodyBytes(u64::MAX),
            ReadSubmissionChange::BodyBytes(MIB),
        ];
        for change in wrong {
            let mut submission = good;
            match change {
                ReadSubmissionChange::RequestOffset(offset) => submission.request_offset = offset,
                ReadSubmissionChange::RequestBytes(bytes) => submission.request_bytes = bytes,
                ReadSubmissionChange::HeadOffset(offset) => submission.head_offset = offset,
                ReadSubmissionChange::BodyOffset(offset) => submission.body_offset = offset,
                ReadSubmissionChange::BodyBytes(bytes) => submission.body_bytes_max = bytes,
            }
            client.submit(&submission);
            assert_eq!(client.complete().outcome, LentOutcome::Malformed, "{submission:?}");
        }
        client.submit(&good);
        let completion = client.complete();
        assert_eq!((completion.outcome, completion.body_bytes), (LentOutcome::Answered, 100));
        assert_eq!(client.memory.take_bytes(good.body_offset, 100).unwrap(), pattern(100));
    })
    .await;
}

enum ReadSubmissionChange {
    RequestOffset(u64),
    RequestBytes(u16),
    HeadOffset(u64),
    BodyOffset(u64),
    BodyBytes(u64),
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_stays_within_the_place_that_it_was_given() {
    let server = TestServer::start();
    let socket = server.socket.clone();
    blocking(move || {
        let mut client = RawMemory::lend(&socket, KEY, MIB);
        let mut submission = client.request("bytes/101", 64 << 10);
        submission.body_bytes_max = 100;
        client.memory.write_bytes(submission.body_offset, &[9; 200]).unwrap();
        client.submit(&submission);
        let completion = client.complete();
        assert_eq!(completion.outcome, LentOutcome::BodyTooLong);
        assert_eq!((completion.body_bytes, completion.content_bytes), (0, 101));
        assert_eq!(client.memory.take_bytes(submission.body_offset, 200).unwrap(), [9; 200]);
        submission.head_bytes_max = 3;
        client.memory.write_bytes(submission.head_offset, &[9; 10]).unwrap();
        client.submit(&submission);
        assert_eq!(client.complete().outcome, LentOutcome::HeadTooLong);
        assert_eq!(client.memory.take_bytes(submission.head_offset, 10).unwrap(), [9; 10]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_that_lie_end_the_connection() {
    let server = TestServer::start();
    for lie in [17, u32::MAX, 1 << 31] {
        let socket = server.socket.clone();
        let last = blocking(move || {
            let mut client = RawMemory::lend(&socket, KEY, MIB);
            client.memory.store_cursor(client.layout.submitted_cursor(), lie).unwrap();
            client.ring();
            RawClient { stream: client.stream }.last_byte()
        });
        assert_eq!(last.await, Some(BELL_BROKEN), "submitted {lie}");
        let socket = server.socket.clone();
        let last = blocking(move || {
            let mut client = RawMemory::lend(&socket, KEY, MIB);
            let submission = client.request("bytes/1", 64 << 10);
            client.memory.store_cursor(client.layout.consumed_cursor(), lie).unwrap();
            client.submit(&submission);
            RawClient { stream: client.stream }.last_byte()
        });
        assert_eq!(last.await, Some(BELL_BROKEN), "consumed {lie}");
    }
    server.until(|server| server.state.memory.load(Ordering::SeqCst) == 256 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_no_completions_keeps_nobody_waiting() {
    let server = TestServer::start();
    let socket = server.socket.clone();
    let stuck = blocking(move || {
        let mut client = RawMemory::lend(&socket, KEY, MIB);
        let submission = client.request("bytes/1", 64 << 10);
        for _ in 0..16 {
            client.submit(&submission);
        }
        client
    })
    .await;
    server.until(|server| server.metrics.reads[LandingEnd::Answered].get() == 16).await;
    let client = server.connect().await;
    blocking(move || client.read_object(&get("bytes/10"), 4096, go_on).unwrap()).await;
    server.until(|server| server.metrics.reads_in_flight.get() == 0).await;
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dies_in_mid_read_leaves_nothing() {
    let server = TestServer::start();
    for _ in 0..50 {
        let socket = server.socket.clone();
        let hung = blocking(move || {
            let mut client = RawMemory::lend(&socket, KEY, MIB);
            for at in 1..5 {
                let submission = client.request("hang/4000", at * (64 << 10));
                client.submit(&submission);
            }
            client
        })
        .await;
        server.until(|server| server.state.hanging.load(Ordering::SeqCst) == 4).await;
        drop(hung);
        server.until(|server| server.state.hanging.load(Ordering::SeqCst) == 0).await;
    }
    server.until(|server| server.state.memory.load(Ordering::SeqCst) == 256 << 20).await;
    server.until(|server| server.metrics.reads_in_flight.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_changes_while_it_is_read_is_one_or_the_other() {
    let server = TestServer::start();
    let socket = server.socket.clone();
    blocking(move || {
        let mut client = RawMemory::lend(&socket, KEY, MIB);
        let submission = client.request("bytes/100", 64 << 10);
        let scribbled = client.memory.take_bytes(submission.request_offset, 32).unwrap();
        for round in 0..2000_u32 {
            client.submit(&submission);
            for byte in 0..8 {
                let place = submission.request_offset + u64::from((round + byte) % 16);
                client.memory.write_bytes(place, &[byte as u8]).unwrap();
            }
            let outcome = client.complete().outcome;
            assert!(
                matches!(
                    outcome,
                    LentOutcome::Answered | LentOutcome::Malformed | LentOutcome::Failed
                ),
                "{outcome:?}"
            );
            client.memory.write_bytes(submission.request_offset, &scribbled).unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_no_longer_welcome_is_told_to_go() {
    let server = TestServer::start();
    let socket = server.socket.clone();
    let (silent, busy) =
        blocking(move || (RawMemory::lend(&socket, KEY, MIB), RawMemory::lend(&socket, KEY, MIB)))
            .await;
    server.state.is_welcome.store(false, Ordering::SeqCst);
    let mut busy = busy;
    let last = blocking(move || {
        let submission = busy.request("bytes/100", 64 << 10);
        busy.submit(&submission);
        let read = RawClient { stream: busy.stream }.last_byte();
        (read, busy.memory.take_bytes(submission.body_offset, 100).unwrap())
    });
    assert_eq!(last.await, (Some(BELL_REVOKED), vec![0; 100]), "nothing has landed");
    let last = blocking(move || RawClient { stream: silent.stream }.last_byte()).await;
    assert_eq!(last, Some(BELL_REVOKED), "without a read, too");
    assert_eq!(server.metrics.cut[LendingCut::Revoked].get(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_punches_holes_into_lent_memory() {
    use rustix::fs::{FallocateFlags, fallocate, fstat};
    let server = TestServer::start();
    let socket = server.socket.clone();
    blocking(move || {
        let mut client = RawClient::proven(&socket, KEY);
        let file = sealed_memory(MIB);
        client.offer(&RingLayout::at_beginning(16, 4), &[&file]).unwrap();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, flags, MIB / 2, MIB / 2).unwrap_err();
        drop(client);
        // The gateway's seal holds as long as the client keeps the file, and no gateway takes it.
        fallocate(&file, flags, MIB / 2, MIB / 2).unwrap_err();
        assert_eq!(fstat(&file).unwrap().st_blocks as u64, MIB / 512);
        let mut again = RawClient::proven(&socket, KEY);
        let offered = again.offer(&RingLayout::at_beginning(16, 4), &[&file]);
        assert_eq!(offered, Err(LendingRefusal::Seals));
    })
    .await;
    server.until(|server| server.state.memory.load(Ordering::SeqCst) == 256 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_nobody_has_touched_is_refused() {
    use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fstat};
    let server = TestServer::start();
    let socket = server.socket.clone();
    blocking(move || {
        for allocated in [0, MIB / 2, MIB] {
            let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, MIB).unwrap();
            if allocated > 0 {
                fallocate(&file, FallocateFlags::empty(), 0, allocated).unwrap();
            }
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
            let mut client = RawClient::proven(&socket, KEY);
            let offered = client.offer(&RingLayout::at_beginning(16, 4), &[&file]);
            assert_eq!(offered, Err(LendingRefusal::Pages));
            assert_eq!(fstat(&file).unwrap().st_blocks as u64, allocated / 512, "none was added");
        }
    })
    .await;
}

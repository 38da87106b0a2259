//! Bytes that land in memory that a process has lent: in their place where they can, elsewhere where
//! they can't, and never late.

use verbs3_protocol::ByteRange;
use verbs3_rdma::foreign_memory::{BodyPlace, PiecePosition, STAND_IN_BYTE, StandInMemory};

use super::leasing::{asking, home, leased_with, open};
use super::opening::{all, opened, opens, request};
use super::reading::{END, read};
use super::*;
use crate::{ObjectBytesPlace, OpenOutcome, OpenRequest};

/// Bytes of the place before those that are read, and behind them.
const MARGIN: usize = 100;
/// The first byte that is read.
const START: u32 = 77;
const BYTES: usize = (END - START) as usize;

/// What has become of a read.
#[derive(Debug, PartialEq, Eq)]
struct PlacedRead {
    in_place: usize,
    elsewhere: usize,
}

struct Lender {
    memory: Arc<StandInMemory>,
    body: Arc<BodyPlace>,
}

impl Lender {
    fn new() -> Self {
        let (memory, foreign) = StandInMemory::allocate(BYTES + 2 * MARGIN);
        let body = BodyPlace::new(foreign, MARGIN as u64, BYTES as u64).unwrap();
        Self { memory, body }
    }

    fn read(&self, tier: &Arc<CacheTierClient>) -> SpanRead {
        let place = ObjectBytesPlace { body: self.body.clone(), first_byte: u64::from(START) };
        read(tier, "a", START).land_in(Some(place))
    }

    /// Takes a read's bytes as the lending gateway does, but for those that it would copy.
    async fn drain(&self, read: &mut SpanRead) -> PlacedRead {
        let mut placed = PlacedRead { in_place: 0, elsewhere: 0 };
        let content = content(START, END);
        let mut at = 0;
        loop {
            match read.next().await {
                SpanItem::Bytes(data) => {
                    for piece in data {
                        assert!(piece == content[at..at + piece.len()], "at {at}");
                        match self.body.locate_piece(at as u64, &piece) {
                            PiecePosition::InPlace => placed.in_place += piece.len(),
                            PiecePosition::Elsewhere => placed.elsewhere += piece.len(),
                            PiecePosition::Astray => panic!("astray at {at}"),
                        }
                        at += piece.len();
                        self.body.note_landed(at as u64);
                    }
                }
                SpanItem::End => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(at, BYTES);
        placed
    }

    fn body_bytes(&self) -> Vec<u8> {
        self.memory.copy_range(MARGIN..MARGIN + BYTES)
    }

    fn assert_margins_untouched(&self) {
        let before = self.memory.copy_range(0..MARGIN);
        let behind = self.memory.copy_range(MARGIN + BYTES..BYTES + 2 * MARGIN);
        assert!(before.iter().chain(&behind).all(|&byte| byte == STAND_IN_BYTE));
    }
}

#[tokio::test]
async fn a_span_lands_in_its_place_and_takes_no_memory_of_the_gateway() {
    let a = TestWorker::new("a", honest());
    let tier = tier(&[&a]);
    a.connect().await;
    let lender = Lender::new();
    let mut read = lender.read(&tier);
    assert!(read.start());
    assert_eq!(tier.spans.arena.arena_usage().loaned_bytes, 0);
    assert_eq!(lender.drain(&mut read).await, PlacedRead { in_place: BYTES, elsewhere: 0 });
    drop(read);
    lender.body.close_place().await;
    assert!(lender.body_bytes() == content(START, END));
    lender.assert_margins_untouched();
}

#[tokio::test]
async fn a_place_that_is_too_short_is_not_used() {
    let a = TestWorker::new("a", honest());
    let tier = tier(&[&a]);
    a.connect().await;
    let (_, foreign) = StandInMemory::allocate(BYTES - 1);
    let body = BodyPlace::new(foreign, 0, BYTES as u64 - 1).unwrap();
    let place = ObjectBytesPlace { body: body.clone(), first_byte: u64::from(START) };
    let mut read = read(&tier, "a", START).land_in(Some(place));
    let (bytes, _) = drain(&mut read).await;
    assert!(bytes == content(START, END));
    assert!(body.end_claims());
}

/// The worker answers the same twice, but for one byte of the first answer.
#[tokio::test]
async fn bytes_that_change_in_their_place_blame_nobody() {
    let changed = Arc::new(AtomicBool::new(false));
    let script: Script = Box::new({
        let changed = changed.clone();
        move |request, mut reply| {
            let is_first = !changed.swap(true, Ordering::SeqCst);
            Box::pin(async move {
                let (start, end) = read_of(request);
                if !is_first {
                    return send_all(reply, start, end).await;
                }
                send(&mut reply, start, start, 2 * PAGE).await;
                let (piece, _) = piece(2 * PAGE, 3 * PAGE);
                let mut data = content(2 * PAGE, 3 * PAGE);
                data[5] ^= 1;
                let message = WorkerReply::Data(piece).encode();
                let at = u64::from(2 * PAGE - start);
                let _ = reply.send_part(message, at, vec![Bytes::from(data)]).await;
            })
        }
    });
    let (a, b) = (TestWorker::new("a", script), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    a.connect().await;
    let lender = Lender::new();
    let mut read = lender.read(&tier);
    let first = (2 * PAGE - START) as usize;
    let placed = lender.drain(&mut read).await;
    assert_eq!(placed, PlacedRead { in_place: first, elsewhere: BYTES - first });
    assert_eq!((a.asked().len(), b.asked().len()), (2, 0));
    assert_eq!(read_of(a.asked()[1].clone()).0, 2 * PAGE);
    assert_eq!(tier.asker.metrics.failovers.get(), 0);
    lender.body.close_place().await;
    assert!(lender.body_bytes()[..first] == content(START, 2 * PAGE));
}

/// A worker that gives bad bytes again and again is to blame, wherever they land.
#[tokio::test]
async fn a_worker_whose_bytes_are_bad_elsewhere_too_is_replaced() {
    let bad: Script = Box::new(|request, reply| {
        Box::pin(async move {
            let (start, end) = read_of(request);
            let (piece, _) = piece(start, end);
            let mut data = content(start, end);
            data[9] ^= 1;
            let message = WorkerReply::Data(piece).encode();
            let _ = reply.send_last(message, 0, vec![Bytes::from(data)]).await;
        })
    });
    let (a, b) = (TestWorker::new("a", bad), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    a.connect().await;
    let lender = Lender::new();
    let placed = lender.drain(&mut lender.read(&tier)).await;
    assert_eq!(placed, PlacedRead { in_place: 0, elsewhere: BYTES });
    let is_read = |asked: &WorkerRequest| matches!(asked, WorkerRequest::Read(_));
    assert_eq!((a.asked().into_iter().filter(is_read).count(), b.asked().len()), (2, 1));
    let forgets = |asked: &WorkerRequest| matches!(asked, WorkerRequest::Forget(_));
    assert!(a.asked().iter().any(forgets), "bytes that are bad in both are the worker's own");
    assert_eq!(tier.asker.metrics.failovers.get(), 1);
}

/// What the owner sends late could replace verified bytes: the place stays closed until it can't.
#[tokio::test(start_paused = true)]
async fn a_place_is_not_free_while_a_hedged_owner_may_write_to_it() {
    let (a, b) = (TestWorker::answering_late("a"), TestWorker::new("b", honest()));
    let tier = tier(&[&a, &b]);
    a.connect().await;
    let lender = Lender::new();
    let mut read = lender.read(&tier);
    assert_eq!(lender.drain(&mut read).await, PlacedRead { in_place: 0, elsewhere: BYTES });
    drop(read);
    settle().await;
    assert!(!lender.body.end_claims(), "the owner may still write");
    a.faults.release_all();
    settle().await;
    assert!(lender.body.end_claims(), "the owner's call is settled");
    lender.assert_margins_untouched();
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_the_rest_to_own_memory() {
    for nth in 1..=6 {
        let faults = InProcessFaults::without_faults().drop_at_event(nth);
        let a = TestWorker::with_faults("a", faults, honest());
        let b = TestWorker::new("b", honest());
        let tier = tier(&[&a, &b]);
        a.connect().await;
        let lender = Lender::new();
        let mut read = lender.read(&tier);
        let placed = lender.drain(&mut read).await;
        assert!(placed.elsewhere > 0, "broken at {nth}: {placed:?}");
        drop(read);
        lender.body.close_place().await;
        assert!(lender.body_bytes()[..placed.in_place] == content(START, END)[..placed.in_place]);
        lender.assert_margins_untouched();
    }
}

/// A place for an object's bytes from `first` on.
fn place_at(first: u64, bytes: usize) -> (Arc<StandInMemory>, ObjectBytesPlace) {
    let (memory, foreign) = StandInMemory::allocate(bytes);
    let body = BodyPlace::new(foreign, 0, bytes as u64).unwrap();
    (memory, ObjectBytesPlace { body, first_byte: first })
}

/// Opens a range of an object of a mebibyte. Returns what came along with the attributes, in place
/// and elsewhere.
async fn open_in_place(
    tier: &Arc<CacheTierClient>,
    place: &ObjectBytesPlace,
    last: Option<u64>,
) -> PlacedRead {
    let first = place.first_byte;
    let want = Some(ByteRange::From { first, last });
    let request = OpenRequest { place: Some(place.clone()), ..request(tier, want) };
    let OpenOutcome::Found(found) = tier.open_object(&request).await else { panic!("not found") };
    let mut pieces = found.data.clone();
    if let Some(mut rest) = found.rest {
        while let SpanItem::Bytes(data) = rest.next().await {
            pieces.extend(data);
        }
    }
    let mut placed = PlacedRead { in_place: 0, elsewhere: 0 };
    let mut at = 0;
    for piece in pieces {
        let start = first as u32 + at as u32;
        assert!(piece == content(start, start + piece.len() as u32)[..]);
        match place.body.locate_piece(at as u64, &piece) {
            PiecePosition::InPlace => placed.in_place += piece.len(),
            PiecePosition::Elsewhere => placed.elsewhere += piece.len(),
            PiecePosition::Astray => panic!("astray at {at}"),
        }
        at += piece.len();
    }
    placed
}

#[tokio::test]
async fn bytes_that_come_with_attributes_land_in_place() {
    let a = TestWorker::new("a", opens(1 << 20));
    let tier = tier(&[&a]);
    a.connect().await;
    for (first, last, bytes) in
        [(0, None, 4 * PAGE as usize), (1000, Some(200_999), 200_000), (70_000, Some(70_000), 1)]
    {
        let (memory, place) = place_at(first, 1 << 20);
        let placed = open_in_place(&tier, &place, last).await;
        assert_eq!(placed, PlacedRead { in_place: bytes, elsewhere: 0 });
        place.body.close_place().await;
        let first = first as u32;
        assert!(memory.copy_range(0..bytes) == content(first, first + bytes as u32));
    }
}

/// The beginning of an object may be all of one that is held for others: its reader could change it.
#[tokio::test]
async fn what_may_be_held_for_others_never_lies_in_lent_memory() {
    let (held_max, page) = (u64::from(PAGE), PAGE as usize);
    let home = home();
    let limit = |settings: &mut TierSettings| settings.small_object_max = ByteSize(held_max);
    let (tier, _a) = leased_with(&home, limit).await;
    for (object_bytes, in_place) in [(held_max, 0), (held_max + 5, 5), (1000, 0)] {
        home.bytes.store(object_bytes, Ordering::SeqCst);
        home.recall(Vec::new(), true).await;
        for _ in 0..4 {
            let (memory, place) = place_at(0, 2 * page);
            let request =
                OpenRequest { place: Some(place.clone()), ..asking(&tier, Some(ByteRange::All)) };
            let found = open(&tier, &request).await;
            let bytes = all(found).await;
            assert!(bytes == content(0, object_bytes as u32));
            place.body.close_place().await;
            let lent = memory.copy_range(0..2 * page);
            let written = lent.iter().filter(|&&byte| byte != STAND_IN_BYTE).count();
            assert!(written <= in_place, "{object_bytes}: {written} bytes were written");
        }
    }
    tier.shutdown().await;
}

/// An open that brings bytes which change before they are verified is tried again, and its home not
/// blamed.
#[tokio::test]
async fn an_open_whose_bytes_change_where_they_land_is_tried_again() {
    let changed = Arc::new(AtomicBool::new(false));
    let honest = opens(1 << 20);
    let script: Script = Box::new(move |asked, reply| {
        if changed.swap(true, Ordering::SeqCst) {
            return honest(asked, reply);
        }
        Box::pin(async move {
            let (piece, _) = piece(1000, PAGE);
            let mut data = content(1000, PAGE);
            data[7] ^= 1;
            let message = opened("\"v1\"", 1 << 20, Some(piece)).encode();
            let _ = reply.send_last(message, 0, vec![Bytes::from(data)]).await;
        })
    });
    let a = TestWorker::new("a", script);
    let tier = tier(&[&a]);
    a.connect().await;
    let (_, place) = place_at(1000, 1 << 20);
    let placed = open_in_place(&tier, &place, Some(200_999)).await;
    assert_eq!(placed, PlacedRead { in_place: 0, elsewhere: 200_000 });
    assert_eq!(a.asked().len(), 2, "nothing was forgotten: {:?}", a.asked());
}

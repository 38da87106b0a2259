//! A new owner of a slot asks the former one for its pages before the UFS; whatever that does,
//! bytes are right and in time.
// A list of ranges that has one is meant.
#![allow(clippy::single_range_in_vec_init)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use verbs3_client::{NeighbourClient, NeighbourSettings};
use verbs3_protocol::{
    BlockGeometry, BlockIndex, BlockPiece, ByteRange, CacheVerdict, Epoch, HoldsMessage,
    HoldsReply, PageIndex, PlacementMap, PlacementMember, ReadSource, RequestEnvelope, WorkerId,
    WorkerReply as Message, WorkerRequest,
};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::inprocess::{InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::peer::{PeerOptions, TransportPeer};
use verbs3_rdma::transport::{CallEvent, CallService, IncomingCall, PeerAddress, ReplySender};

use super::holding_store::Stored;
use super::worker_fixture::{
    BLOCK, PAGE, WorkerFixture, WorkerSetup, coordinated, first_activation, map, modes, object,
    open, read, read_from, with_disk,
};
use crate::coordination::MapActivation;
use crate::metrics::{FormerResult, PageDirection};
use verbs3_settings::TimePeriod;

const ALL: Option<ByteRange> = Some(ByteRange::All);
const WAIT: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_millis(250);
const DEADLINE: Duration = Duration::from_secs(2);
const ASKED_FOR: Duration = Duration::from_secs(600);

fn id(name: &str) -> WorkerId {
    WorkerId(name.into())
}

fn owned_by(name: &str, epoch: u64) -> PlacementMap {
    PlacementMap::new(Epoch(epoch), vec![PlacementMember::new(id(name), 1.0)], 1).unwrap()
}

fn asking_former_owners() -> WorkerSetup {
    coordinated(|settings| settings.neighbours.asked_for = TimePeriod(ASKED_FOR))
}

fn neighbour_settings() -> NeighbourSettings {
    NeighbourSettings {
        wait_max: TimePeriod(WAIT),
        silence_max: TimePeriod(SILENCE),
        deadline: TimePeriod(DEADLINE),
        ..NeighbourSettings::default()
    }
}

/// A worker `a` that owns what `b` owned before, and reaches `b` as `peer`.
struct NewOwner {
    fixture: WorkerFixture,
    landings: Arena,
}

impl NewOwner {
    fn before(peer: TransportPeer) -> Self {
        Self::before_with(peer, neighbour_settings())
    }

    /// Waits for the former owner however slow the machine is.
    fn patient(service: Arc<dyn CallService>, mode: InProcessMode) -> Self {
        let long = TimePeriod::from_seconds(60);
        let settings = NeighbourSettings {
            wait_max: long,
            silence_max: long,
            deadline: long,
            ..neighbour_settings()
        };
        let connection = InProcess::open_connection(service, mode);
        Self::before_with(TransportPeer::for_local_connection(connection), settings)
    }

    fn before_with(peer: TransportPeer, settings: NeighbourSettings) -> Self {
        let (fixture, landings) =
            (WorkerFixture::with(InProcessMode::Share, 32, asking_former_owners()), map(16));
        let neighbours = NeighbourClient::new(settings, BlockGeometry::DEFAULT, landings.clone());
        neighbours.adopt_peers(&HashMap::from([(id("b"), Arc::new(peer))]));
        fixture.worker.set_neighbours(neighbours);
        let made = Self { fixture, landings };
        made.activate(&owned_by("a", 2), Some(&owned_by("b", 1)));
        made
    }

    fn with(service: Arc<dyn CallService>, mode: InProcessMode) -> Self {
        Self::before(TransportPeer::for_local_connection(InProcess::open_connection(service, mode)))
    }

    fn activate(&self, map: &PlacementMap, former: Option<&PlacementMap>) {
        let (me, handed_over) = (id("a"), HashSet::from([id("b")]));
        let activation = MapActivation { former, handed_over, ..first_activation(map, &me) };
        self.fixture.worker.activate_map(activation);
        self.fixture.worker.hold_lease(|| (Duration::from_secs(3600), Duration::from_secs(3600)));
    }

    async fn read_all(&self, key: &str, stored: &Stored, block: u32) {
        let length = (stored.bytes - u64::from(block) * BLOCK).min(BLOCK);
        let got = self.fixture.read(read(key, stored, block, 0..length as u32)).await;
        let start = u64::from(block) * BLOCK;
        assert_eq!(got.refused(), None);
        assert!(got.bytes == stored.content(start..start + length), "wrong bytes of block {block}");
    }

    async fn ends_well(self) {
        self.fixture.assert_nothing_leaked().await;
        assert_eq!(self.landings.arena_usage().asked_bytes, 0, "landings that were not returned");
    }
}

#[tokio::test]
async fn pages_come_from_the_former_owner_and_not_from_the_ufs() {
    for mode in modes() {
        let stored = Stored::new(1, BLOCK + 5 * PAGE + 1000);
        let old = WorkerFixture::holding(&stored, &[]).await;
        old.open(open("k", ALL)).await;
        old.read(read("k", &stored, 1, 0..(5 * PAGE + 1000) as u32)).await;
        let asked_before = old.store.asked();
        let new = NewOwner::with(old.worker.clone(), mode);
        new.fixture.store.put("k", stored.clone());
        let request =
            WorkerRequest::Open(verbs3_protocol::OpenMessage { epoch: Epoch(2), ..open("k", ALL) });
        let got = new.fixture.ask(request).await;
        assert!(got.bytes == stored.content(0..BLOCK));
        new.read_all("k", &stored, 1).await;
        assert_eq!(
            new.fixture.store.asked(),
            (0, 1),
            "attributes are asked of the ufs, bytes are not"
        );
        assert_eq!(new.fixture.store.body_bytes(), 0);
        assert_eq!(old.store.asked(), asked_before, "the former owner filled something");
        let metrics = &new.fixture.worker.metrics;
        assert_eq!(
            (
                metrics.former_asked[FormerResult::All].get(),
                metrics.former_bytes[PageDirection::Taken].get()
            ),
            (2, stored.bytes)
        );
        assert_eq!(old.worker.metrics.former_bytes[PageDirection::Given].get(), stored.bytes);
        // Now its own.
        let got = new.fixture.read(read("k", &stored, 1, 0..1000)).await;
        assert_eq!(
            (got.verdict(), metrics.former_asked[FormerResult::All].get()),
            (CacheVerdict::Hit, 2)
        );
        new.ends_well().await;
    }
}

#[tokio::test]
async fn what_the_former_owner_lacks_and_only_that_comes_from_the_ufs() {
    for mode in modes() {
        let stored = Stored::new(2, 2 * BLOCK);
        let old = WorkerFixture::holding(&stored, &[1..3, 7..9, 15..16]).await;
        let new = NewOwner::with(old.worker.clone(), mode);
        new.fixture.store.put("k", stored.clone());
        new.read_all("k", &stored, 1).await;
        assert_eq!(
            (new.fixture.store.asked(), new.fixture.store.body_bytes()),
            ((3, 0), BLOCK - 5 * PAGE)
        );
        assert_eq!(new.fixture.worker.metrics.former_asked[FormerResult::Some].get(), 1);
        new.ends_well().await;
    }
}

#[tokio::test]
async fn an_object_unknown_to_the_former_owner_costs_a_single_get() {
    let old = WorkerFixture::new(InProcessMode::Share);
    let new = NewOwner::with(old.worker.clone(), InProcessMode::Share);
    let stored = Stored::new(3, 1000);
    new.fixture.store.put("k", stored.clone());
    let request =
        WorkerRequest::Open(verbs3_protocol::OpenMessage { epoch: Epoch(2), ..open("k", ALL) });
    assert!(new.fixture.ask(request).await.bytes == stored.content(0..1000));
    assert_eq!((new.fixture.store.asked(), old.store.asked()), ((1, 0), (0, 0)));
}

#[tokio::test]
async fn bytes_of_another_version_are_never_taken() {
    let (before, now) = (Stored::new(4, 2 * BLOCK), Stored::new(5, 2 * BLOCK));
    let old = WorkerFixture::holding(&before, &[0..16]).await;
    old.open(open("k", ALL)).await;
    let new = NewOwner::with(old.worker.clone(), InProcessMode::Share);
    new.fixture.store.put("k", now.clone());
    let request =
        WorkerRequest::Open(verbs3_protocol::OpenMessage { epoch: Epoch(2), ..open("k", ALL) });
    let got = new.fixture.ask(request).await;
    assert_eq!(got.opened().attributes.version.etag, now.etag());
    assert!(got.bytes == now.content(0..BLOCK));
    new.read_all("k", &now, 1).await;
    assert_eq!(new.fixture.worker.metrics.former_bytes[PageDirection::Taken].get(), 0);
}

#[tokio::test]
async fn former_owners_are_asked_a_while_and_only_about_moved_slots() {
    let stored = Stored::new(6, 4 * BLOCK);
    let old = WorkerFixture::holding(&stored, &[0..16]).await;
    let new = NewOwner::with(old.worker.clone(), InProcessMode::Share);
    new.fixture.store.put("k", stored.clone());
    let asked = || {
        let metrics = &new.fixture.worker.metrics;
        metrics.former_asked[FormerResult::All].get()
            + metrics.former_asked[FormerResult::None].get()
    };
    new.activate(&owned_by("c", 3), None);
    new.read_all("k", &stored, 1).await;
    assert_eq!(asked(), 0, "not its owner");
    new.activate(&owned_by("a", 4), None);
    new.read_all("k", &stored, 2).await;
    assert_eq!(asked(), 1, "c is not reached, and b had it before");
    new.fixture.clock.advance_time(ASKED_FOR);
    new.read_all("k", &stored, 3).await;
    assert_eq!(asked(), 1, "long ago");
}

/// A neighbour that answers as the test says.
struct Odd<F>(F);

#[async_trait]
impl<F: AsyncOddly> CallService for Odd<F> {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        match RequestEnvelope::decode(&request.message).unwrap().question {
            WorkerRequest::Read(read) if read.from == ReadSource::Held => {
                self.0.answer(read, reply).await;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[async_trait]
trait AsyncOddly: Send + Sync + 'static {
    async fn answer(&self, read: verbs3_protocol::ReadMessage, reply: ReplySender);
}

fn whole_pages(first: u64, bytes: &[u8]) -> BlockPiece {
    let checksums = bytes
        .chunks(PAGE as usize)
        .map(|page| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, page))
        .collect();
    let (start, length) = ((first * PAGE) as u32, bytes.len() as u32);
    BlockPiece { block: BlockIndex(1), start, length, checksums, verdict: CacheVerdict::Hit }
}

/// Sends one piece, right but for what `spoil` does to it, and then ends, or says no more.
struct OnePiece {
    stored: Stored,
    pages: std::ops::Range<u64>,
    spoil: fn(&mut BlockPiece, &mut Vec<u8>),
    goes_on: bool,
}

#[async_trait]
impl AsyncOddly for OnePiece {
    async fn answer(&self, read: verbs3_protocol::ReadMessage, mut reply: ReplySender) {
        let (from, to) = (BLOCK + self.pages.start * PAGE, BLOCK + self.pages.end * PAGE);
        let mut bytes = self.stored.content(from..to);
        let mut piece = whole_pages(self.pages.start, &bytes);
        (self.spoil)(&mut piece, &mut bytes);
        let offset = self.pages.start * PAGE - u64::from(read.start);
        let _ =
            reply.send_part(Message::Data(piece).encode(), offset, vec![Bytes::from(bytes)]).await;
        if self.goes_on {
            std::future::pending::<()>().await;
        }
    }
}

async fn read_beside(odd: OnePiece) -> (NewOwner, Duration) {
    let stored = odd.stored.clone();
    let new =
        NewOwner::with(Arc::new(Odd(odd)), InProcessMode::Copy(InProcessFaults::without_faults()));
    new.fixture.store.put("k", stored.clone());
    let began = Instant::now();
    new.read_all("k", &stored, 1).await;
    let took = began.elapsed();
    (new, took)
}

#[tokio::test(start_paused = true)]
async fn pages_that_fail_their_checksum_come_from_the_ufs() {
    let stored = Stored::new(7, 2 * BLOCK);
    let spoil: fn(&mut BlockPiece, &mut Vec<u8>) = |_, bytes| bytes[3 * PAGE as usize + 5] ^= 1;
    let (new, _) = read_beside(OnePiece { stored, pages: 0..16, spoil, goes_on: false }).await;
    assert_eq!(
        new.fixture.store.body_bytes(),
        BLOCK - 3 * PAGE,
        "the three pages before it are right"
    );
    assert_eq!(new.fixture.worker.metrics.former_asked[FormerResult::Corrupt].get(), 1);
    new.ends_well().await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_make_no_sense_are_not_believed() {
    let spoils: [fn(&mut BlockPiece, &mut Vec<u8>); 6] = [
        |piece, _| piece.block = BlockIndex(0),
        |piece, _| piece.start += 1,
        |piece, _| piece.length -= 1,
        |piece, _| {
            piece.checksums.pop();
        },
        |piece, _| piece.start = u32::MAX - 1,
        |piece, _| piece.start = BLOCK as u32,
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let stored = Stored::new(8, 2 * BLOCK);
        let (new, _) = read_beside(OnePiece { stored, pages: 0..16, spoil, goes_on: false }).await;
        let metrics = &new.fixture.worker.metrics;
        assert_eq!(
            (new.fixture.store.body_bytes(), metrics.former_asked[FormerResult::Failed].get()),
            (BLOCK, 1),
            "spoil {number}"
        );
        new.ends_well().await;
    }
}

/// The silence is waited for once.
#[tokio::test(start_paused = true)]
async fn pages_from_before_a_former_owners_silence_are_kept() {
    let stored = Stored::new(9, 2 * BLOCK);
    let (new, took) =
        read_beside(OnePiece { stored, pages: 0..4, spoil: |_, _| {}, goes_on: true }).await;
    assert_eq!(
        (
            new.fixture.store.body_bytes(),
            new.fixture.worker.metrics.former_asked[FormerResult::Silent].get()
        ),
        (BLOCK - 4 * PAGE, 1)
    );
    assert!(took >= SILENCE && took < 2 * SILENCE, "{took:?}");
    new.ends_well().await;
}

/// The death costs no time.
#[tokio::test(start_paused = true)]
async fn pages_from_before_a_former_owners_death_are_kept() {
    let stored = Stored::new(10, 2 * BLOCK);
    // The handler ends without a last part.
    let (new, took) =
        read_beside(OnePiece { stored, pages: 2..4, spoil: |_, _| {}, goes_on: false }).await;
    assert_eq!(
        (
            new.fixture.store.body_bytes(),
            new.fixture.worker.metrics.former_asked[FormerResult::Failed].get()
        ),
        (BLOCK - 2 * PAGE, 1)
    );
    assert!(took < SILENCE, "{took:?}");
    new.ends_well().await;
}

/// Says nothing at all, and counts who asked.
#[derive(Default)]
struct Silent(Mutex<usize>);

#[async_trait]
impl CallService for Silent {
    async fn serve_call(&self, _request: IncomingCall, _reply: ReplySender) {
        *self.0.lock() += 1;
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_former_owner_delays_few_fills_then_is_left_alone() {
    let silent = Arc::new(Silent::default());
    let new =
        NewOwner::with(silent.clone(), InProcessMode::Copy(InProcessFaults::without_faults()));
    let stored = Stored::new(11, 20 * BLOCK);
    new.fixture.store.put("k", stored.clone());
    let began = Instant::now();
    for block in 0..20 {
        new.read_all("k", &stored, block).await;
    }
    assert!(began.elapsed() < 4 * SILENCE, "{:?}", began.elapsed());
    assert_eq!(*silent.0.lock(), 3);
    let metrics = &new.fixture.worker.metrics;
    assert_eq!(
        (
            metrics.former_asked[FormerResult::Silent].get(),
            metrics.former_asked[FormerResult::Resting].get()
        ),
        (3, 17)
    );
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_does_not_come_is_a_no() {
    let new = NewOwner::with(
        Arc::new(Silent::default()),
        InProcessMode::Copy(InProcessFaults::without_faults()),
    );
    let stored = Stored::new(12, 1000);
    new.fixture.store.put("k", stored.clone());
    let began = Instant::now();
    let request =
        WorkerRequest::Open(verbs3_protocol::OpenMessage { epoch: Epoch(2), ..open("k", ALL) });
    assert!(new.fixture.ask(request).await.bytes == stored.content(0..1000));
    assert!(began.elapsed() < 3 * SILENCE);
    assert_eq!(new.fixture.store.asked(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_former_owner_that_is_away_costs_nothing() {
    let service = Arc::new(Silent::default());
    let transport = InProcess::make_transport(
        service.clone(),
        InProcessMode::Copy(InProcessFaults::without_faults().refuse_connects(u32::MAX)),
    );
    let address = PeerAddress::from(std::net::SocketAddr::from(([127, 0, 0, 1], 9)));
    let new =
        NewOwner::before(TransportPeer::new("b", address, vec![transport], PeerOptions::default()));
    let stored = Stored::new(13, 4 * BLOCK);
    new.fixture.store.put("k", stored.clone());
    let began = Instant::now();
    for block in 0..4 {
        new.read_all("k", &stored, block).await;
    }
    assert!(began.elapsed() < SILENCE, "{:?}", began.elapsed());
    assert_eq!(
        (*service.0.lock(), new.fixture.worker.metrics.former_asked[FormerResult::Failed].get()),
        (0, 3)
    );
    new.ends_well().await;
}

#[tokio::test(start_paused = true)]
async fn fills_without_memory_to_ask_a_neighbour_ask_the_ufs() {
    // Four blocks fit into what there is for landings; each is held until its question is given up.
    let new = Arc::new(NewOwner::with(
        Arc::new(Silent::default()),
        InProcessMode::Copy(InProcessFaults::without_faults()),
    ));
    let stored = Stored::new(14, 7 * BLOCK);
    new.fixture.store.put("k", stored.clone());
    let began = Instant::now();
    let reads = (0..7).map(|block| {
        let (new, stored) = (new.clone(), stored.clone());
        async move { new.read_all("k", &stored, block).await }
    });
    futures::future::join_all(reads).await;
    let metrics = &new.fixture.worker.metrics;
    assert_eq!(
        (
            metrics.former_asked[FormerResult::Busy].get(),
            metrics.former_asked[FormerResult::Silent].get()
        ),
        (3, 4)
    );
    assert!(began.elapsed() < 2 * SILENCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_neighbours_question_fills_nothing_and_asks_nobody() {
    let stored = Stored::new(15, 2 * BLOCK);
    let old = WorkerFixture::holding(&stored, &[]).await;
    let mut call = old.call(&read_from(ReadSource::Held, read("k", &stored, 1, 0..BLOCK as u32)));
    let Ok(CallEvent::Part(part)) = call.next().await else { panic!("no part") };
    assert!(part.last && part.data.is_empty());
    assert!(
        matches!(Message::decode(&part.message), Ok(Message::Data(piece)) if piece.length == 0)
    );
    assert_eq!(old.store.asked(), (0, 0));
    for range in [5..BLOCK as u32, 0..100, 0..2 * BLOCK as u32, 0..0] {
        let got = old.ask(read_from(ReadSource::Held, read("k", &stored, 1, range))).await;
        assert_eq!(got.refused(), Some(&verbs3_protocol::RefusalKind::Malformed));
    }
    let holds = HoldsMessage {
        object: object("k"),
        version_id: None,
        geometry: BlockGeometry::DEFAULT,
        page: PageIndex(0),
    };
    assert!(matches!(
        old.ask(WorkerRequest::Holds(holds.clone())).await.messages[..],
        [Message::Holds(HoldsReply { likely: false })]
    ));
    old.open(open("k", ALL)).await;
    assert!(matches!(
        old.ask(WorkerRequest::Holds(holds)).await.messages[..],
        [Message::Holds(HoldsReply { likely: true })]
    ));
}

/// Not even when that worker is gone.
#[tokio::test]
async fn what_a_drained_worker_hands_over_is_not_asked_of_the_ufs() {
    let (hot, warm) = (Stored::new(17, 2 * BLOCK), Stored::new(18, 1000));
    let old = WorkerFixture::holding(&hot, &[0..16]).await;
    old.store.put("warm", warm.clone());
    old.open(open("k", ALL)).await;
    old.open(open("warm", ALL)).await;
    let new = NewOwner::patient(
        old.worker.clone(),
        InProcessMode::Copy(InProcessFaults::without_faults()),
    );
    for (key, stored) in [("k", &hot), ("warm", &warm)] {
        new.fixture.store.put(key, stored.clone());
    }
    let neighbours = NeighbourClient::new(neighbour_settings(), BlockGeometry::DEFAULT, map(16));
    let peer = TransportPeer::for_local_connection(InProcess::open_connection(
        new.fixture.worker.clone(),
        InProcessMode::Copy(InProcessFaults::without_faults()),
    ));
    neighbours.adopt_peers(&HashMap::from([(id("a"), Arc::new(peer))]));
    old.worker.set_neighbours(neighbours);
    assert_eq!(old.worker.handing_over(), None);
    let mut members = vec![PlacementMember::new(id("a"), 1.0), PlacementMember::new(id("b"), 1.0)];
    members[1].draining = true;
    let draining = PlacementMap::new(Epoch(3), members, 1).unwrap();
    // The leaving worker hears of the map first, and asks until the new owner has, too.
    let (me, before) = (id("b"), owned_by("b", 1));
    let former = Some(&before);
    old.worker.activate_map(MapActivation { former, ..first_activation(&draining, &me) });
    let progress = old.worker.handing_over().unwrap();
    assert_eq!((progress.blocks, progress.blocks_left), (3, 3));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(old.worker.handing_over(), Some(progress), "of another map nothing is taken over");
    new.activate(&draining, Some(&before));
    while old.worker.handing_over().unwrap().blocks_left > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(old.worker.handing_over().unwrap().bytes, hot.bytes + warm.bytes);
    assert_eq!((new.fixture.store.asked(), new.fixture.store.body_bytes()), ((0, 0), 0));
    old.worker.shutdown().await;
    for (key, stored) in [("k", &hot), ("warm", &warm)] {
        let request =
            WorkerRequest::Open(verbs3_protocol::OpenMessage { epoch: Epoch(3), ..open(key, ALL) });
        let got = new.fixture.ask(request).await;
        assert!(got.bytes == stored.content(0..stored.bytes.min(BLOCK)));
        assert_eq!(got.verdict(), CacheVerdict::Hit);
    }
    new.read_all("k", &hot, 1).await;
    assert_eq!((new.fixture.store.asked(), new.fixture.store.body_bytes()), ((0, 2), 0));
}

#[tokio::test]
async fn pages_that_the_former_owner_has_only_on_disk_are_given_too() {
    let folder = tempfile::tempdir().unwrap();
    let stored = Stored::new(16, 2 * BLOCK - 1000);
    let old = WorkerFixture::with(InProcessMode::Share, 32, with_disk(folder.path(), 64));
    old.store.put("k", stored.clone());
    for block in 0..2 {
        old.read(read("k", &stored, block, 0..(BLOCK - 1000) as u32)).await;
        // The queue has room for a block: the next one's pages would be dropped where the writer is
        // slow.
        old.worker.pages.filler.disk_tier().unwrap().settle();
    }
    old.read(read("k", &stored, 0, 0..BLOCK as u32)).await;
    old.worker.shutdown().await;
    drop(old);
    let old = WorkerFixture::with(InProcessMode::Share, 32, with_disk(folder.path(), 64));
    let new = NewOwner::patient(
        old.worker.clone(),
        InProcessMode::Copy(InProcessFaults::without_faults()),
    );
    new.fixture.store.put("k", stored.clone());
    let request =
        WorkerRequest::Open(verbs3_protocol::OpenMessage { epoch: Epoch(2), ..open("k", ALL) });
    assert!(new.fixture.ask(request).await.bytes == stored.content(0..BLOCK));
    new.read_all("k", &stored, 1).await;
    assert_eq!((new.fixture.store.asked(), new.fixture.store.body_bytes()), ((0, 1), 0));
    assert_eq!(
        (old.store.asked(), old.worker.pages.filler.memory_tier().held_totals()),
        ((0, 0), (0, 0))
    );
    new.ends_well().await;
    old.assert_nothing_leaked().await;
}

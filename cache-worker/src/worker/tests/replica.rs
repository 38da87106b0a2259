//! A replica of a hot block: it gives what it or the owner holds, right, and asks the UFS for
//! nothing.
#![allow(clippy::single_range_in_vec_init)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use verbs3_client::{NeighbourClient, NeighbourSettings};
use verbs3_protocol::{
    BlockGeometry, BlockIndex, BlockPiece, CacheVerdict, Epoch, PlacementMap, PlacementMember,
    ReadMessage, ReadSource, RefusalKind, WarmMessage, WarmTier, WorkerId, WorkerReply as Message,
    WorkerRequest,
};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::inprocess::{InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::peer::TransportPeer;
use verbs3_rdma::transport::{CallService, IncomingCall, ReplySender};
use verbs3_settings::TimePeriod;

use super::holding_store::Stored;
use super::worker_fixture::{
    BLOCK, Got, PAGE, WorkerFixture, coordinated, first_activation, map, modes, object, read,
    read_from, version,
};
use crate::metrics::{CountedRefusal, OwnerResult, PageDirection};

const SILENCE: Duration = Duration::from_millis(250);

fn id(name: &str) -> WorkerId {
    WorkerId(name.into())
}

/// A worker `r` beside the owner of every slot, `o`.
struct Replica {
    fixture: WorkerFixture,
    landings: Arena,
}

impl Replica {
    fn of(owner: Arc<dyn CallService>, mode: InProcessMode) -> Self {
        let made = Self::alone(owner, mode);
        made.activate("o", 1);
        made
    }

    /// It knows no map.
    fn alone(owner: Arc<dyn CallService>, mode: InProcessMode) -> Self {
        let (fixture, landings) =
            (WorkerFixture::with(InProcessMode::Share, 32, coordinated(|_| ())), map(16));
        let settings =
            NeighbourSettings { silence_max: TimePeriod(SILENCE), ..NeighbourSettings::default() };
        let neighbours = NeighbourClient::new(settings, BlockGeometry::DEFAULT, landings.clone());
        let peer = TransportPeer::for_local_connection(InProcess::open_connection(owner, mode));
        neighbours.adopt_peers(&HashMap::from([(id("o"), Arc::new(peer))]));
        fixture.worker.set_neighbours(neighbours);
        Self { fixture, landings }
    }

    /// All slots are this one's from here on.
    fn activate(&self, owner: &str, epoch: u64) {
        let map =
            PlacementMap::new(Epoch(epoch), vec![PlacementMember::new(id(owner), 1.0)], 1).unwrap();
        self.fixture.worker.activate_map(first_activation(&map, &id("r")));
    }

    async fn read(&self, stored: &Stored, block: u32, pages: std::ops::Range<u64>) -> Got {
        let range = (pages.start * PAGE) as u32..(pages.end * PAGE) as u32;
        let read = ReadMessage { ahead_bytes: 1 << 20, ..read("k", stored, block, range) };
        self.fixture.ask(read_from(ReadSource::Replica, read)).await
    }

    /// Reads whole blocks of pages and holds them against what is stored.
    async fn gives(
        &self,
        stored: &Stored,
        block: u32,
        pages: std::ops::Range<u64>,
    ) -> CacheVerdict {
        let start = u64::from(block) * BLOCK;
        let got = self.read(stored, block, pages.clone()).await;
        assert_eq!(got.refused(), None);
        assert!(
            got.bytes == stored.content(start + pages.start * PAGE..start + pages.end * PAGE),
            "wrong bytes"
        );
        got.verdict()
    }

    async fn ends_well(self) {
        assert_eq!(
            (self.fixture.store.asked(), self.fixture.store.body_bytes()),
            ((0, 0), 0),
            "a replica asked the ufs"
        );
        self.fixture.assert_nothing_leaked().await;
        assert_eq!(self.landings.arena_usage().asked_bytes, 0, "landings that were not returned");
    }
}

#[tokio::test]
async fn pages_come_from_the_owner_once_and_never_from_the_ufs() {
    for mode in modes() {
        let stored = Stored::new(1, 2 * BLOCK);
        let owner = WorkerFixture::holding(&stored, &[0..16]).await;
        let asked = owner.store.asked();
        let replica = Replica::of(owner.worker.clone(), mode);
        replica.fixture.store.put("k", stored.clone());
        replica.gives(&stored, 1, 3..5).await;
        let metrics = &replica.fixture.worker.metrics;
        assert_eq!(
            (metrics.owner_asked[OwnerResult::All].get(), metrics.owner_bytes.get()),
            (1, 2 * PAGE),
            "and nothing ahead"
        );
        assert_eq!(replica.gives(&stored, 1, 3..5).await, CacheVerdict::Hit);
        replica.gives(&stored, 1, 0..16).await;
        assert_eq!(
            (metrics.owner_bytes.get(), metrics.former_bytes[PageDirection::Taken].get()),
            (16 * PAGE, 0)
        );
        assert_eq!(owner.worker.metrics.former_bytes[PageDirection::Given].get(), 16 * PAGE);
        assert_eq!(owner.store.asked(), asked, "the owner filled something for it");
        replica.ends_well().await;
    }
}

#[tokio::test]
async fn many_readers_at_once_ask_the_owner_once() {
    let stored = Stored::new(2, 2 * BLOCK);
    let owner = WorkerFixture::holding(&stored, &[0..16]).await;
    let replica =
        Replica::of(owner.worker.clone(), InProcessMode::Copy(InProcessFaults::without_faults()));
    let reads = (0..20).map(|_| replica.gives(&stored, 1, 0..16));
    futures::future::join_all(reads).await;
    assert_eq!(replica.fixture.worker.metrics.owner_bytes.get(), 16 * PAGE);
    replica.ends_well().await;
}

#[tokio::test]
async fn what_the_owner_lacks_is_refused_and_what_it_has_is_kept() {
    let stored = Stored::new(3, 2 * BLOCK);
    let owner = WorkerFixture::holding(&stored, &[0..2, 8..16]).await;
    let asked = owner.store.asked();
    let replica = Replica::of(owner.worker.clone(), InProcessMode::Share);
    replica.fixture.store.put("k", stored.clone());
    let got = replica.read(&stored, 1, 0..16).await;
    assert_eq!(got.refused(), Some(&RefusalKind::NotHeld));
    assert!(
        got.bytes == stored.content(BLOCK..BLOCK + got.bytes.len() as u64),
        "wrong bytes before the refusal"
    );
    let metrics = &replica.fixture.worker.metrics;
    assert_eq!(
        (metrics.owner_asked[OwnerResult::Some].get(), metrics.owner_bytes.get()),
        (1, 10 * PAGE)
    );
    assert_eq!(replica.gives(&stored, 1, 8..16).await, CacheVerdict::Hit);
    assert_eq!(replica.read(&stored, 1, 4..5).await.refused(), Some(&RefusalKind::NotHeld));
    assert_eq!(
        (
            metrics.owner_asked[OwnerResult::None].get(),
            metrics.refusals[CountedRefusal::NotHeld].get(),
            owner.store.asked()
        ),
        (1, 2, asked)
    );
    // What is refused is read at the owner, and is no heat here.
    let told = replica.fixture.worker.block_rates(Duration::from_secs(1), 1, 10);
    assert!(told.iter().all(|rate| rate.bytes_per_second <= 24 * PAGE), "{told:?}");
    replica.ends_well().await;
}

/// Of all of block 1.
fn warm(stored: &Stored) -> WarmMessage {
    WarmMessage {
        object: object("k"),
        version: Some(version(stored)),
        epoch: Epoch(1),
        geometry: BlockGeometry::DEFAULT,
        block: BlockIndex(1),
        first_page: 0,
        pages: 16,
        attributes_age_ms_max: 0,
        tier: WarmTier::Memory,
        pin_until_ms: 0,
        look_only: false,
        listed_bytes: None,
    }
}

#[tokio::test]
async fn a_warmed_replica_asks_no_ufs_while_the_owner_is_silent() {
    let stored = Stored::new(14, 2 * BLOCK);
    let replica =
        Replica::of(Arc::new(Stopped), InProcessMode::Copy(InProcessFaults::without_faults()));
    replica.fixture.store.put("k", stored.clone());
    replica.fixture.worker.hold_lease(|| (Duration::from_secs(60), Duration::from_secs(60)));
    let got = replica.fixture.ask(WorkerRequest::Warm(warm(&stored))).await;
    assert_eq!(got.refused(), Some(&RefusalKind::Busy), "{got:?}");
    replica.ends_well().await;
}

#[tokio::test]
async fn a_warmed_replica_takes_pages_of_the_owner_and_fills_the_rest() {
    let stored = Stored::new(13, 2 * BLOCK);
    let owner = WorkerFixture::holding(&stored, &[0..4]).await;
    let replica =
        Replica::of(owner.worker.clone(), InProcessMode::Copy(InProcessFaults::without_faults()));
    replica.fixture.store.put("k", stored.clone());
    replica.fixture.worker.hold_lease(|| (Duration::from_secs(60), Duration::from_secs(60)));
    let got = replica.fixture.ask(WorkerRequest::Warm(warm(&stored))).await;
    let Some(Message::Warmed(warmed)) = got.messages.last() else { panic!("{got:?}") };
    assert_eq!(
        (u64::from(warmed.held_bytes), u64::from(warmed.loaded_bytes)),
        (4 * PAGE, 12 * PAGE)
    );
    assert_eq!(
        (replica.fixture.store.body_bytes(), replica.fixture.worker.metrics.owner_bytes.get()),
        (12 * PAGE, 4 * PAGE)
    );
    assert_eq!(replica.gives(&stored, 1, 0..16).await, CacheVerdict::Hit);
}

#[tokio::test]
async fn bytes_of_another_version_are_never_given() {
    let (before, now) = (Stored::new(4, 2 * BLOCK), Stored::new(5, 2 * BLOCK));
    let owner = WorkerFixture::holding(&before, &[0..16]).await;
    let replica = Replica::of(owner.worker.clone(), InProcessMode::Share);
    replica.gives(&before, 1, 0..16).await;
    // It is overwritten: the owner has heard nothing of it yet, then holds the new one.
    assert_eq!(replica.read(&now, 1, 0..16).await.refused(), Some(&RefusalKind::NotHeld));
    owner.store.put("k", now.clone());
    owner.read(read("k", &now, 1, 0..BLOCK as u32)).await;
    replica.gives(&now, 1, 0..16).await;
    // Who began before the write may end with what it began with.
    replica.gives(&before, 1, 0..16).await;
    replica.ends_well().await;
}

#[tokio::test]
async fn a_reader_that_may_fill_does_so_beside_a_replicas_question() {
    let stored = Stored::new(6, 2 * BLOCK);
    let replica =
        Replica::of(Arc::new(Stopped), InProcessMode::Copy(InProcessFaults::without_faults()));
    replica.fixture.store.put("k", stored.clone());
    let whole = read("k", &stored, 1, 0..BLOCK as u32);
    let (refused, filled) = tokio::join!(
        replica.fixture.ask(read_from(ReadSource::Replica, whole.clone())),
        // It begins while the owner is waited for.
        async {
            tokio::task::yield_now().await;
            replica.fixture.read(whole.clone()).await
        }
    );
    assert_eq!(refused.refused(), Some(&RefusalKind::NotHeld));
    assert!(filled.refused().is_none() && filled.bytes == stored.content(BLOCK..2 * BLOCK));
    assert_eq!(replica.fixture.store.body_bytes(), BLOCK);
}

#[tokio::test]
async fn by_its_own_map_the_owner_it_fills_as_ever() {
    let stored = Stored::new(7, 2 * BLOCK);
    let replica = Replica::of(Arc::new(Stopped), InProcessMode::Share);
    replica.fixture.store.put("k", stored.clone());
    replica.activate("r", 2);
    replica.gives(&stored, 1, 0..16).await;
    assert_eq!(replica.fixture.store.body_bytes(), BLOCK);
    // Given away again, it is there still.
    replica.activate("o", 3);
    assert_eq!(replica.gives(&stored, 1, 0..16).await, CacheVerdict::Hit);
}

#[tokio::test]
async fn without_a_map_or_a_way_to_the_owner_a_replica_asks_nobody() {
    let stored = Stored::new(8, 2 * BLOCK);
    let replica = Replica::alone(Arc::new(Stopped), InProcessMode::Share);
    replica.fixture.store.put("k", stored.clone());
    assert_eq!(replica.read(&stored, 1, 0..1).await.refused(), Some(&RefusalKind::NotHeld));
    replica.activate("elsewhere", 2);
    assert_eq!(replica.read(&stored, 1, 0..1).await.refused(), Some(&RefusalKind::NotHeld));
    replica.ends_well().await;
}

/// Says nothing.
struct Stopped;

#[async_trait]
impl CallService for Stopped {
    async fn serve_call(&self, _request: IncomingCall, _reply: ReplySender) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_owner_delays_some_reads_and_is_then_left_alone() {
    let stored = Stored::new(9, 2 * BLOCK);
    let replica =
        Replica::of(Arc::new(Stopped), InProcessMode::Copy(InProcessFaults::without_faults()));
    let began = Instant::now();
    for page in 0..16 {
        assert_eq!(
            replica.read(&stored, 1, page..page + 1).await.refused(),
            Some(&RefusalKind::NotHeld)
        );
    }
    assert!(began.elapsed() < 4 * SILENCE, "{:?}", began.elapsed());
    assert_eq!(replica.fixture.worker.metrics.owner_asked[OwnerResult::Failed].get(), 16);
    replica.ends_well().await;
}

/// Sends a whole block of which one page is not what its checksum says.
struct Spoilt(Stored);

#[async_trait]
impl CallService for Spoilt {
    async fn serve_call(&self, _request: IncomingCall, reply: ReplySender) {
        let mut bytes = self.0.content(BLOCK..2 * BLOCK);
        let checksum = |page: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, page);
        let checksums = bytes.chunks(PAGE as usize).map(checksum).collect();
        bytes[5 * PAGE as usize + 9] ^= 1;
        let (block, verdict) = (BlockIndex(1), CacheVerdict::Hit);
        let piece = BlockPiece { block, start: 0, length: BLOCK as u32, checksums, verdict };
        let _ = reply.send_last(Message::Data(piece).encode(), 0, vec![Bytes::from(bytes)]).await;
    }
}

#[tokio::test]
async fn a_page_that_is_not_what_its_checksum_says_is_not_given() {
    let stored = Stored::new(10, 2 * BLOCK);
    let replica = Replica::of(
        Arc::new(Spoilt(stored.clone())),
        InProcessMode::Copy(InProcessFaults::without_faults()),
    );
    let got = replica.read(&stored, 1, 0..16).await;
    assert_eq!(got.refused(), Some(&RefusalKind::NotHeld));
    assert!(
        got.bytes == stored.content(BLOCK..BLOCK + got.bytes.len() as u64)
            && got.bytes.len() as u64 <= 5 * PAGE
    );
    assert_eq!(replica.fixture.worker.metrics.owner_bytes.get(), 5 * PAGE);
    replica.ends_well().await;
}

#[tokio::test]
async fn what_is_served_most_is_told_but_for_small_first_blocks() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let (large, small) = (Stored::new(11, 2 * BLOCK), Stored::new(12, PAGE - 1));
    fixture.store.put("large", large.clone());
    fixture.store.put("small", small.clone());
    for _ in 0..8 {
        fixture.read(read("small", &small, 0, 0..small.bytes as u32)).await;
    }
    for block in [0, 1, 1] {
        fixture.read(read("large", &large, block, 0..BLOCK as u32)).await;
    }
    let told = fixture.worker.block_rates(Duration::from_secs(2), 1, 10);
    let told: Vec<_> = told
        .iter()
        .map(|rate| (rate.object.key.as_str(), rate.block.0, rate.bytes_per_second))
        .collect();
    assert_eq!(told, [("large", 1, BLOCK), ("large", 0, BLOCK / 2)]);
    assert_eq!(fixture.worker.block_rates(Duration::from_secs(2), 1, 10), [], "and once");
}

//! A worker, its store, its clock, and a gateway's side of the conversation.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use verbs3_protocol::{
    AnnounceMessage, BlockGeometry, BlockIndex, BlockPiece, ByteRange, CacheVerdict,
    ContentVersion, Epoch, ForgetMessage, GoneVersion, HomeAcknowledgement, LeaseHolder,
    ListedAttributes, ListedEntry, ListingMessage, ObjectKey, ObjectVolume, OpenMessage,
    OpenObjectReply, PlacementMap, ReadMessage, ReadSource, RefusalKind, ReportMessage, TenantTag,
    WorkerId, WorkerReply as Message, WorkerRequest, WriteId, WriteLeaseState, WriteOutcome,
};
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::inprocess::{InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::landing::Landing;
use verbs3_rdma::transport::{CallEvent, OutgoingCall, PeerConnection, TransportError};
use verbs3_settings::ByteSize;
use verbs3_ufs::{Ufs, UfsSettings};

use super::holding_store::{HoldingStore, Stored};
use crate::clock::{ManualWorkerClock, WorkerClock};
use crate::coordination::MapActivation;
use crate::disk::DiskFolderSettings;
use crate::settings::WorkerSettings;
use crate::worker::{CacheWorker, WorkerAskers, WorkerComponents};

pub(super) const PAGE: u64 = 256 << 10;
pub(super) const BLOCK: u64 = 4 << 20;
pub(super) const ANY_AGE: u64 = u64::MAX;

pub(super) struct WorkerFixture {
    pub(super) worker: Arc<CacheWorker>,
    pub(super) store: Arc<HoldingStore>,
    pub(super) clock: Arc<ManualWorkerClock>,
    pub(super) arena: Arena,
    landings: Arena,
    connection: Arc<dyn PeerConnection>,
}

/// Everything that came back for one request.
#[derive(Debug, Default)]
pub(super) struct Got {
    pub(super) messages: Vec<Message>,
    pub(super) bytes: Vec<u8>,
    /// Signs of life among the parts, which `messages` leaves out.
    pub(super) signs: usize,
}

impl Got {
    pub(super) fn opened(&self) -> &OpenObjectReply {
        match self.messages.first() {
            Some(Message::Opened(opened)) => opened,
            other => panic!("not opened: {other:?}"),
        }
    }

    pub(super) fn refused(&self) -> Option<&RefusalKind> {
        match self.messages.last() {
            Some(Message::Refused(refusal)) => Some(&refusal.kind),
            _ => None,
        }
    }

    pub(super) fn absent(&self) -> &verbs3_protocol::AbsentReply {
        match &self.messages[..] {
            [Message::Absent(absent)] => absent,
            other => panic!("not absent: {other:?}"),
        }
    }

    pub(super) fn verdict(&self) -> CacheVerdict {
        self.messages.iter().find_map(piece).expect("no bytes came").verdict
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(
            self.messages[..],
            [Message::Acknowledged(HomeAcknowledgement { hold: WriteLeaseState::Leased, .. })]
        )
    }
}

fn piece(message: &Message) -> Option<&BlockPiece> {
    match message {
        Message::Opened(opened) => opened.piece.as_ref(),
        Message::Data(piece) => Some(piece),
        _ => None,
    }
}

pub(super) fn modes() -> [InProcessMode; 2] {
    [InProcessMode::Share, InProcessMode::Copy(InProcessFaults::without_faults())]
}

pub(super) fn volume() -> ObjectVolume {
    ObjectVolume::new("main", "bucket")
}

pub(super) fn object(key: &str) -> ObjectKey {
    ObjectKey { volume: volume(), key: key.into() }
}

pub(super) fn version(stored: &Stored) -> ContentVersion {
    ContentVersion {
        etag: stored.etag(),
        bytes: stored.bytes,
        version_id: stored.version_id.clone(),
    }
}

pub(super) fn map(mebibytes: usize) -> Arena {
    let options = ArenaOptions {
        capacity_bytes: mebibytes << 20,
        cell_bytes_max: PAGE as usize,
        populate: false,
    };
    Arena::map_memory(options).unwrap()
}

pub(super) fn open(key: &str, want: Option<ByteRange>) -> OpenMessage {
    OpenMessage {
        object: object(key),
        version_id: None,
        epoch: Epoch(1),
        geometry: BlockGeometry::DEFAULT,
        attributes_age_ms_max: ANY_AGE,
        absence_age_ms_max: ANY_AGE,
        checksums: false,
        want,
        piece_bytes_max: BLOCK as u32,
        holder: None,
    }
}

/// An open of a client that would hold a lease.
pub(super) fn open_by(open: OpenMessage, holder: LeaseHolder) -> WorkerRequest {
    WorkerRequest::Open(OpenMessage { holder: Some(holder), ..open })
}

pub(super) fn read(key: &str, stored: &Stored, block: u32, range: Range<u32>) -> ReadMessage {
    ReadMessage {
        object: object(key),
        version: version(stored),
        geometry: BlockGeometry::DEFAULT,
        block: BlockIndex(block),
        start: range.start,
        end: range.end,
        ahead_bytes: 0,
        request_range: 0..0,
        from: ReadSource::Owner,
    }
}

pub(super) fn read_from(from: ReadSource, read: ReadMessage) -> WorkerRequest {
    WorkerRequest::Read(ReadMessage { from, ..read })
}

pub(super) const WRITE: WriteId = WriteId { gateway: 1, sequence: 1 };

/// A map that nothing went before.
pub(super) fn first_activation<'a>(map: &'a PlacementMap, me: &'a WorkerId) -> MapActivation<'a> {
    MapActivation {
        map,
        me,
        former: None,
        handed_over: HashSet::new(),
        open_writes: Vec::new(),
        resumes: None,
        uncertain: Duration::ZERO,
        restarted: false,
    }
}

/// What a fixture's worker is started with.
#[derive(Clone, Default)]
pub(super) struct WorkerSetup {
    pub(super) settings: WorkerSettings,
    pub(super) askers: WorkerAskers,
    /// Requests that the store's client sends at once; `None`: its default.
    pub(super) store_requests_max: Option<u32>,
}

/// The default settings but for these; it answers any asker.
pub(super) fn with_settings(change: impl FnOnce(&mut WorkerSettings)) -> WorkerSetup {
    let mut worker = WorkerSetup::default();
    change(&mut worker.settings);
    worker
}

/// The default settings, with pages cut into parts of so many KiB.
pub(super) fn with_parts(kibibytes: u64) -> WorkerSetup {
    with_settings(|settings| settings.fill.part = ByteSize(kibibytes << 10))
}

/// The default settings but for these, of a worker that follows coordinators.
pub(super) fn coordinated(change: impl FnOnce(&mut WorkerSettings)) -> WorkerSetup {
    WorkerSetup { askers: WorkerAskers::Coordinated, ..with_settings(change) }
}

/// The same of a worker with a disk tier of one folder.
pub(super) fn with_disk(folder: &Path, mebibytes: u64) -> WorkerSetup {
    with_settings(|settings| settings.disk.folders.push(disk_folder(folder, "tier", mebibytes)))
}

pub(super) fn disk_folder(parent: &Path, name: &str, mebibytes: u64) -> DiskFolderSettings {
    DiskFolderSettings { path: parent.join(name), capacity: ByteSize::from_mib(mebibytes) }
}

impl WorkerFixture {
    pub(super) fn new(mode: InProcessMode) -> Self {
        Self::with(mode, 32, WorkerSetup::default())
    }

    pub(super) fn with(mode: InProcessMode, mebibytes: usize, worker: WorkerSetup) -> Self {
        Self::before(Arc::new(HoldingStore::default()), mode, mebibytes, worker)
    }

    /// A worker in front of a store that was there before it.
    pub(super) fn before(
        store: Arc<HoldingStore>,
        mode: InProcessMode,
        mebibytes: usize,
        worker: WorkerSetup,
    ) -> Self {
        let (clock, arena) = (Arc::new(ManualWorkerClock::default()), map(mebibytes));
        let mut settings = UfsSettings::with_name("main");
        settings.retries.attempts_max = 1;
        if let Some(requests_max) = worker.store_requests_max {
            settings.limits.requests_in_flight_max = requests_max;
        }
        let ufs = Ufs::new(store.clone(), settings);
        let volumes = HashMap::from([(volume(), (ufs, "bucket".to_owned()))]);
        let components = WorkerComponents {
            geometry: BlockGeometry::DEFAULT,
            askers: worker.askers,
            arena: arena.clone(),
            volumes: volumes.into(),
        };
        let registry = prometheus::Registry::new();
        let worker =
            CacheWorker::with_clock(&worker.settings, components, &registry, clock.clone())
                .unwrap();
        let connection = InProcess::open_connection(worker.clone(), mode);
        Self { worker, store, clock, arena, landings: map(128), connection }
    }

    /// With these pages of block 1 of "k" in memory.
    pub(super) async fn holding(stored: &Stored, pages: &[Range<u64>]) -> Self {
        let fixture = Self::new(InProcessMode::Share);
        fixture.store.put("k", stored.clone());
        for pages in pages {
            fixture
                .read(read("k", stored, 1, (pages.start * PAGE) as u32..(pages.end * PAGE) as u32))
                .await;
        }
        fixture
    }

    pub(super) fn clock_now(&self) -> crate::clock::WorkerInstant {
        self.clock.now()
    }

    pub(super) fn call(&self, request: &WorkerRequest) -> OutgoingCall {
        self.call_for(None, request)
    }

    /// Calls for a tenant.
    pub(super) fn call_for(
        &self,
        tenant: Option<TenantTag>,
        request: &WorkerRequest,
    ) -> OutgoingCall {
        let segments: Vec<usize> = match request {
            WorkerRequest::Open(open) => {
                BlockGeometry::DEFAULT.page_cuts(&(0..open.piece_bytes_max)).collect()
            }
            WorkerRequest::Read(read) => {
                BlockGeometry::DEFAULT.page_cuts(&(read.start..read.end)).collect()
            }
            _ => Vec::new(),
        };
        let landing = self
            .connection
            .landing_use()
            .wants_landing()
            .then(|| Landing::allocate_segments(&self.landings, &segments).unwrap());
        self.connection.start_call(request.clone().for_tenant(None, tenant).encode(), landing)
    }

    pub(super) async fn ask(&self, request: WorkerRequest) -> Got {
        collect(self.call(&request)).await.unwrap()
    }

    pub(super) async fn open(&self, open: OpenMessage) -> Got {
        self.ask(WorkerRequest::Open(open)).await
    }

    pub(super) async fn read(&self, read: ReadMessage) -> Got {
        self.ask(WorkerRequest::Read(read)).await
    }

    pub(super) async fn announce(&self, key: &str, write: WriteId, uncertain_ms: u64) -> Got {
        self.announce_for(None, vec![key.to_owned()], write, uncertain_ms).await
    }

    /// Announces a write of several keys for a tenant.
    pub(super) async fn announce_for(
        &self,
        tenant: Option<TenantTag>,
        keys: Vec<String>,
        write: WriteId,
        uncertain_ms: u64,
    ) -> Got {
        let (volume, epoch) = (volume(), Epoch(1));
        let announce = AnnounceMessage { volume, keys, write, epoch, uncertain_ms };
        collect(self.call_for(tenant, &WorkerRequest::Announce(announce))).await.unwrap()
    }

    pub(super) async fn report(&self, key: &str, write: WriteId, outcome: WriteOutcome) -> Got {
        let keys = vec![key.to_owned()];
        self.ask(WorkerRequest::Report(ReportMessage {
            volume: volume(),
            keys,
            write,
            epoch: Epoch(1),
            outcome,
        }))
        .await
    }

    pub(super) async fn forget(&self, key: &str) -> Got {
        self.ask(WorkerRequest::Forget(ForgetMessage {
            volume: volume(),
            keys: vec![key.to_owned()],
        }))
        .await
    }

    pub(super) async fn listed(&self, key: &str, shown: Option<ListedAttributes>) -> Got {
        let entries = vec![ListedEntry { key: key.to_owned(), shown }];
        self.ask(WorkerRequest::Listed(ListingMessage { volume: volume(), entries })).await
    }

    /// A reader has found that the store has this version no more.
    pub(super) async fn gone(&self, key: &str, gone: &Stored) -> Got {
        let (object, version) = (object(key), version(gone));
        self.ask(WorkerRequest::GoneVersion(GoneVersion { object, version })).await
    }

    /// What a leak would show: memory that neither the index nor anyone else accounts for.
    pub(super) async fn assert_nothing_leaked(self) {
        self.worker.shutdown().await;
        let memory = self.worker.pages.filler.memory_tier();
        let held = memory.held_totals().1 + memory.part_totals().1;
        assert_eq!(
            self.worker.pages.filler.pages_in_flight(),
            0,
            "pages in flight after the end of all tasks"
        );
        assert_eq!(
            self.arena.arena_usage().asked_bytes,
            held,
            "arena bytes that the index does not hold"
        );
        assert_eq!(self.landings.arena_usage().asked_bytes, 0, "landings that were not returned");
    }
}

/// Takes all parts; holds every piece against its checksums, and against the piece before it.
pub(super) async fn collect(mut call: OutgoingCall) -> Result<Got, TransportError> {
    let mut got = Got::default();
    loop {
        let CallEvent::Part(part) = call.next().await? else { panic!("the worker wants bytes") };
        let message = Message::decode(&part.message).unwrap();
        let data: Vec<u8> = part.data.concat();
        if matches!(&message, Message::Data(piece) if piece.length == 0) {
            assert!(data.is_empty() && !part.last, "a sign of life with bytes, or as an answer");
            got.signs += 1;
            continue;
        }
        match piece(&message) {
            Some(piece) => {
                assert_eq!(part.offset, got.bytes.len() as u64, "parts leave a gap");
                check(piece, &part.data);
            }
            None => assert!(data.is_empty(), "bytes that no piece speaks of"),
        }
        got.bytes.extend(data);
        got.messages.push(message);
        if part.last {
            return Ok(got);
        }
    }
}

fn check(piece: &BlockPiece, data: &[Bytes]) {
    let data = data.concat();
    assert_eq!(data.len(), piece.length as usize);
    let mut at = 0;
    let cuts: Vec<usize> =
        BlockGeometry::DEFAULT.page_cuts(&(piece.start..piece.start + piece.length)).collect();
    assert_eq!(cuts.len(), piece.checksums.len());
    for (cut, expected) in cuts.into_iter().zip(&piece.checksums) {
        let found = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &data[at..at + cut]);
        assert_eq!(found, *expected, "checksum of {cut} bytes at {at} of {piece:?}");
        at += cut;
    }
}

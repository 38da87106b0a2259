//! A gateway: the real client of the tier, its map, and what a gateway does with it for a read and
//! a write.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prometheus::Registry;
use tokio::time::sleep;
use verbs3_client::{
    CacheTierClient, OpenOutcome, OpenRequest, OpenedObject, SpanItem, SpanRead, SpanRequest,
    TierOptions, TierSettings, TierWriteGuard,
};
use verbs3_protocol::{
    ByteRange, ContentVersion, Epoch, ObjectKey, PlacementMap, WorkerId, WriteOutcome,
};
use verbs3_rdma::peer::TransportPeer;
use verbs3_settings::{ByteSize, TimePeriod};
use verbs3_tests::content;

use crate::control::Control;
use crate::key::{Seen, is_deletion, length};
use crate::network::Link;
use crate::process::{GEOMETRY, Process, UNCERTAIN, arena, volume};
use crate::versioned_store::VersionedStore;

pub struct Gateway {
    pub tier: Arc<CacheTierClient>,
    /// To each worker.
    pub links: Vec<Link>,
    peers: HashMap<WorkerId, Arc<TransportPeer>>,
    control: Arc<Control>,
    store: Arc<VersionedStore>,
    /// The coordinators' news reach it.
    pub follows: AtomicBool,
    /// Each within this time.
    news_take: Duration,
}

/// What a read wants of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Attributes,
    Bytes(ByteRange),
}

/// How a read went.
pub struct ReadEnd {
    pub seen: Seen,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Answered from what the home knew.
    Known,
    /// The home has asked the store.
    Asked,
    /// The gateway has.
    PastTheTier,
}

impl Gateway {
    pub fn new(
        index: usize,
        processes: &[Process],
        control: Arc<Control>,
        store: Arc<VersionedStore>,
        seed: u64,
    ) -> Self {
        // Of those whose news take long, homes are asked by an old map.
        let news_take = Duration::from_millis([10, 100, 400][(seed as usize + index) % 3]);
        let link = |process: &Process| {
            Link::new(&process.id.0, process.place.clone(), seed ^ (index as u64) << 8)
        };
        let links: Vec<Link> = processes.iter().map(link).collect();
        let peers = processes
            .iter()
            .zip(&links)
            .map(|(process, link)| (process.id.clone(), link.peer.clone()));
        let settings = TierSettings {
            open_landing: ByteSize(4 * u64::from(GEOMETRY.page_bytes)),
            first_progress: TimePeriod::from_millis(500),
            idle: TimePeriod::from_seconds(1),
            hedge_after: TimePeriod::from_millis(100),
            write_uncertain_for: TimePeriod(UNCERTAIN),
            announce_deadline: TimePeriod::from_seconds(2),
            report_deadline: TimePeriod::from_seconds(4),
            rest_min: TimePeriod::from_millis(50),
            rest_max: TimePeriod::from_millis(200),
            // Of every other history, small objects evict each other.
            small_memory_max: ByteSize([1 << 20, 70_000][seed as usize % 2]),
            ..TierSettings::default()
        };
        let options =
            TierOptions { settings, geometry: GEOMETRY, coordinated: true, in_process: false };
        // Its leases end by the same time as everything else.
        let start = tokio::time::Instant::now();
        let clock = Arc::new(move || start.elapsed());
        let tier = CacheTierClient::with_clock(
            options,
            PlacementMap::without_members(),
            HashMap::new(),
            arena(32),
            &Registry::new(),
            clock,
        );
        let tier = tier.unwrap();
        Self {
            tier,
            peers: peers.collect(),
            links,
            control,
            store,
            follows: AtomicBool::new(true),
            news_take,
        }
    }

    /// Takes over each map, until it is dropped.
    pub async fn follow(&self) {
        let mut known = Epoch(0);
        loop {
            let map = self.control.map();
            if self.follows.load(Ordering::SeqCst)
                && map.epoch != known
                && let Some(placement) = self.control.placement(&map)
            {
                self.tier.adopt_map(PlacementMap::clone(&placement), &self.peers).unwrap();
                known = map.epoch;
            }
            sleep(self.news_take).await;
        }
    }

    /// Reads that were answered by leases, without asking a home.
    pub fn leased(&self) -> u64 {
        self.tier.leased_opens_count()
    }

    /// Those of them that found nothing.
    pub fn leased_absences(&self) -> u64 {
        self.tier.leased_absences_count()
    }

    /// Leases that homes have recalled.
    pub fn recalled(&self) -> u64 {
        self.tier.leases_recalled()
    }

    /// `Err`: the write is refused, and was not sent.
    pub async fn announce(&self, key: &str) -> Result<TierWriteGuard, ()> {
        self.tier.announce_write(&volume(), &[key.to_owned()]).await.map_err(|_| ())
    }

    pub async fn report(&self, announced: TierWriteGuard) -> Result<(), ()> {
        self.tier.report_write(announced, WriteOutcome::Done).await.map_err(|_| ())
    }

    /// Reads that were answered with bytes that are held here.
    pub fn held_reads(&self) -> u64 {
        self.tier.held_reads_count()
    }

    /// As a mount that never asks again what it knows.
    pub async fn read(&self, key: &str, wanted: Wanted) -> ReadEnd {
        let want = match wanted {
            Wanted::Attributes => None,
            Wanted::Bytes(range) => Some(range),
        };
        let object = Arc::new(ObjectKey { volume: volume(), key: key.to_owned() });
        let request = OpenRequest {
            object: object.clone(),
            version_id: None,
            attributes_age_ms_max: u64::MAX,
            absence_age_ms_max: u64::MAX,
            checksums: false,
            want,
            silence: None,
            trace: None,
            tenant: None,
            place: None,
        };
        match self.tier.open_object(&request).await {
            OpenOutcome::Found(found) => {
                let how = if found.reply.attributes_cached { How::Known } else { How::Asked };
                let OpenedObject { reply, data, rest, covered, transport: _ } = *found;
                let version = reply.attributes.version;
                let number = number(&version);
                assert_eq!(version, version_of(key, number), "{key} version {number}");
                if let Some(range) = want.and_then(|want| want.resolve_range(version.bytes)) {
                    let bytes = FoundBytes { data, rest, covered };
                    self.check_body(key, &object, version, bytes, range).await;
                }
                ReadEnd { seen: Seen::Version(number), how }
            }
            OpenOutcome::Absent(absent) => {
                let how = if absent.cached { How::Known } else { How::Asked };
                ReadEnd { seen: Seen::Nothing, how }
            }
            OpenOutcome::Ufs(answer) => panic!("{key}: the store said {answer:?}"),
            // The store says the version. The bytes come from whoever has them, by it.
            OpenOutcome::Bypass(_) => {
                let number = self.store.get(key).await;
                let how = How::PastTheTier;
                if is_deletion(number) {
                    return ReadEnd { seen: Seen::Nothing, how };
                }
                let version = version_of(key, number);
                if let Some(range) = want.and_then(|want| want.resolve_range(version.bytes)) {
                    let (data, rest, covered) = (Vec::new(), None, 0..0);
                    let bytes = FoundBytes { data, rest, covered };
                    self.check_body(key, &object, version, bytes, range).await;
                }
                ReadEnd { seen: Seen::Version(number), how }
            }
        }
    }

    /// Holds every byte of the range against the version that the client was told of, up to where a
    /// body ends: whole, or cut because the version is gone or the tier in trouble.
    async fn check_body(
        &self,
        key: &str,
        object: &Arc<ObjectKey>,
        version: ContentVersion,
        found: FoundBytes,
        wanted: Range<u64>,
    ) {
        let (number, version) = (number(&version), Arc::new(version));
        let mut at = wanted.start as usize;
        for bytes in &found.data {
            content::check(key, number, at, bytes).unwrap();
            at += bytes.len();
        }
        let mut rest = found.rest;
        let mut covered = found.covered.end.max(wanted.start);
        loop {
            if let Some(read) = &mut rest
                && !checked(key, number, &mut at, read).await
            {
                return;
            }
            let Some(span) = GEOMETRY.cut_spans(covered..wanted.end).next() else { break };
            let start = u64::from(span.block.0) * u64::from(GEOMETRY.block_bytes);
            covered = start + u64::from(span.range.end);
            let (object, version) = (object.clone(), version.clone());
            rest = Some(self.tier.read_span(SpanRequest {
                object,
                version,
                span,
                ahead_bytes: 0,
                request_range: 0..0,
                trace: None,
                tenant: None,
                place: None,
            }));
        }
        assert_eq!(at as u64, wanted.end, "{key} version {number}: a body that is not whole");
    }
}

/// The bytes that an open has brought, and the read of those that follow.
struct FoundBytes {
    data: Vec<Bytes>,
    rest: Option<SpanRead>,
    covered: Range<u64>,
}

/// What the store says of a version.
fn version_of(key: &str, number: u64) -> ContentVersion {
    let (etag, bytes) = (format!("\"v{number}\""), length(key, number) as u64);
    ContentVersion { etag, bytes, version_id: None }
}

/// What the store's tag says.
fn number(version: &ContentVersion) -> u64 {
    version.etag.trim_matches('"').strip_prefix('v').unwrap().parse().unwrap()
}

/// Whether it went to its end.
async fn checked(key: &str, version: u64, at: &mut usize, read: &mut SpanRead) -> bool {
    loop {
        match read.next().await {
            SpanItem::Bytes(data) => {
                for bytes in data {
                    content::check(key, version, *at, &bytes).unwrap();
                    *at += bytes.len();
                }
            }
            SpanItem::End => return true,
            SpanItem::Bypass(_) | SpanItem::VersionGone => return false,
        }
    }
}

//! A gateway: the real client of the tier, its map, and what a gateway does with it for a read and
//! a write.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus::Registry;
use tokio::time::sleep;
use verbs3_client::{
    CacheTierClient, HealthOptions, OpenOutcome, OpenRequest, OpenedObject, SpanItem, SpanRead,
    SpanRequest, TierOptions, TierWriteGuard,
};
use verbs3_protocol::{
    ByteRange, ContentVersion, Epoch, ObjectKey, PlacementMap, WorkerId, WriteOutcome,
};
use verbs3_rdma::peer::TransportPeer;
use verbs3_tests::content;

use crate::control::Control;
use crate::key::{Seen, is_deletion, length};
use crate::network::Link;
use crate::process::{GEOMETRY, Process, UNCERTAIN, arena, volume};
use crate::store::Store;

pub struct Gateway {
    pub tier: Arc<CacheTierClient>,
    /// To each worker.
    pub links: Vec<Link>,
    peers: HashMap<WorkerId, Arc<TransportPeer>>,
    control: Arc<Control>,
    store: Arc<Store>,
    /// The coordinators' news reach it.
    pub follows: AtomicBool,
    /// Each within this time.
    news_take: Duration,
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
        store: Arc<Store>,
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
        let health = HealthOptions {
            rest_min: Duration::from_millis(50),
            rest_max: Duration::from_millis(200),
            ..HealthOptions::default()
        };
        let options = TierOptions {
            geometry: GEOMETRY,
            open_landing_bytes: 4 * GEOMETRY.page_bytes,
            first_progress: Duration::from_millis(500),
            idle: Duration::from_secs(1),
            hedge_after: Duration::from_millis(100),
            uncertain: UNCERTAIN,
            announce_deadline: Duration::from_secs(2),
            report_deadline: Duration::from_secs(4),
            health,
            coordinated: true,
            ..TierOptions::default()
        };
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

    /// Reads that were answered by leases, without asking a home; and leases that homes have
    /// recalled.
    pub fn leased(&self) -> (u64, u64) {
        (self.tier.leased_opens_count(), self.tier.leases_recalled())
    }

    /// `Err`: the write is refused, and was not sent.
    pub async fn announce(&self, key: &str) -> Result<TierWriteGuard, ()> {
        self.tier.announce_write(&volume(), &[key.to_owned()]).await.map_err(|_| ())
    }

    pub async fn report(&self, announced: TierWriteGuard) -> Result<(), ()> {
        self.tier.report_write(announced, WriteOutcome::Done).await.map_err(|_| ())
    }

    /// As a mount that never asks again what it knows. `whole`: with its bytes.
    pub async fn read(&self, key: &str, whole: bool) -> ReadEnd {
        let object = Arc::new(ObjectKey { volume: volume(), key: key.to_owned() });
        let request = OpenRequest {
            object: object.clone(),
            version_id: None,
            attributes_age_ms_max: u64::MAX,
            absence_age_ms_max: u64::MAX,
            checksums: false,
            want: whole.then_some(ByteRange::All),
            trace: None,
            tenant: None,
        };
        match self.tier.open_object(&request).await {
            OpenOutcome::Found(found) => {
                let how = if found.opened.attributes_cached { How::Known } else { How::Asked };
                if !whole {
                    let number = number(&found.opened.attributes.version);
                    return ReadEnd { seen: Seen::Version(number), how };
                }
                ReadEnd { seen: Seen::Version(self.body(key, &object, *found).await), how }
            }
            OpenOutcome::Absent(absent) => {
                let how = if absent.cached { How::Known } else { How::Asked };
                ReadEnd { seen: Seen::Nothing, how }
            }
            OpenOutcome::Ufs(answer) => panic!("{key}: the store said {answer:?}"),
            OpenOutcome::Bypass(_) => {
                let version = self.store.get(key).await;
                let seen =
                    if is_deletion(version) { Seen::Nothing } else { Seen::Version(version) };
                ReadEnd { seen, how: How::PastTheTier }
            }
        }
    }

    /// Holds every byte against the version that the client was told of, up to where a body ends:
    /// whole, or cut because the version is gone or the tier in trouble.
    async fn body(&self, key: &str, object: &Arc<ObjectKey>, found: OpenedObject) -> u64 {
        let version = Arc::new(found.opened.attributes.version.clone());
        let number = number(&version);
        assert_eq!(version.bytes, length(key, number) as u64, "{key} version {number}");
        let mut at = 0;
        for bytes in &found.data {
            content::check(key, number, at, bytes).unwrap();
            at += bytes.len();
        }
        let mut rest = found.rest;
        let mut covered = found.covered.end;
        loop {
            if let Some(read) = &mut rest
                && !checked(key, number, &mut at, read).await
            {
                return number;
            }
            let Some(span) = GEOMETRY.cut_spans(covered..version.bytes).next() else { break };
            let start = u64::from(span.block.0) * u64::from(GEOMETRY.block_bytes);
            covered = start + u64::from(span.range.end);
            let (object, version) = (object.clone(), version.clone());
            rest = Some(self.tier.read_span(SpanRequest {
                object,
                version,
                span,
                ahead_bytes: 0,
                trace: None,
                tenant: None,
            }));
        }
        assert_eq!(at as u64, version.bytes, "{key} version {number}: a body that is not whole");
        number
    }
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

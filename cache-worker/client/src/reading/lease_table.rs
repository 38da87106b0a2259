//! Owns the leases on attributes and absences that homes have granted this process: what it may
//! answer by itself, and until when. `recalls` receives what homes recall.
//!
//! A small object's bytes are held beside its lease, in the memory of `small_objects`. Who finds a
//! valid lease finds them; nobody else does. So what ends a lease ends their use, too.
//!
//! # Why no answer is stale
//! A home acknowledges a write only when each holder of a lease on the key has dropped it, or the
//! lease has expired. Here a lease expires no later than at the home. Its time counts from when the
//! question was *sent*, on a clock that runs while the host sleeps. A tenth of it is given up for
//! clock drift.
//!
//! To drop a key, its counter is raised; several keys share a counter. A lease is valid while its
//! counter has the value it had when the question was sent. A recall therefore also ends a grant
//! that is still on its way. A read is judged once, when it begins. Writes that complete later are
//! concurrent with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use moka::future::Cache;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use verbs3_protocol::{
    AbsentReply, AttributeLease, Epoch, HolderId, KeyHash, LeaseHolder, ObjectKey, ObjectVolume,
    OpenObjectReply, PauseWatch, WorkerId,
};
use verbs3_rdma::transport::TransportKind;

use crate::asking::worker::TierWorker;
use crate::asking::worker_map::TierWorkerMap;
use crate::metrics::{LeaseEvent, TierMetrics};
use crate::reading::held_lease::{HeldLease, LeaseStamp, LeasedObject, LeasedPresence};
use crate::reading::open_request::OpenRequest;
use crate::reading::small_objects::{SmallObjectMemory, SmallObjectPlace};

/// Counters that keys share: 128 KiB. A recall of one key makes the others of its counter ask their
/// homes once.
const COUNTERS: usize = 1 << 14;
/// Bytes of headers per unit of cache capacity. Attributes with usual headers take about as many.
const PLACE_BYTES: usize = 512;
/// How long an entry is kept, even after its lease: the home still has to hear how many reads it
/// answered.
const KEPT: Duration = Duration::from_secs(60);
/// The lease is shortened by one part in `DRIFT`: this clock may run that much slower than the
/// home's.
const DRIFT: u32 = 10;

/// Longest object that is held at its first read, in bytes.
const HELD_AT_ONCE_MAX: u64 = 64 << 10;

/// A clock that returns the time since this host was started, sleep included.
pub type TierBootClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A question that may be answered with a lease.
pub(crate) struct LeaseQuestion {
    hash: KeyHash,
    stamp: LeaseStamp,
    sent: Duration,
    /// `None`: this home is not polled yet.
    pub(crate) holder: Option<LeaseHolder>,
}

/// A home's answer to a question.
pub(crate) struct GrantedAnswer<'a> {
    pub(crate) home: &'a Arc<TierWorker>,
    /// Epoch by which the home was asked.
    pub(crate) epoch: Epoch,
    pub(crate) found: AnsweredPresence<'a>,
    pub(crate) transport: TransportKind,
}

/// What the answer says of the object.
pub(crate) enum AnsweredPresence<'a> {
    /// With the verified bytes of the opened piece.
    Present(&'a OpenObjectReply, &'a [Bytes]),
    Absent(&'a AbsentReply),
}

impl AnsweredPresence<'_> {
    fn lease(&self) -> AttributeLease {
        match self {
            Self::Present(reply, _) => reply.lease,
            Self::Absent(absent) => absent.lease,
        }
    }
}

/// A home that is polled for recalls.
pub(crate) struct PolledHome {
    pub(crate) home: Arc<TierWorker>,
    /// A newer entry exists: the home is reached in another way by now.
    pub(crate) replaced: AtomicBool,
    /// Its last poll was answered.
    pub(crate) live: AtomicBool,
    /// Last use for leases: milliseconds since the host was started.
    wanted_ms: AtomicU64,
}

pub(crate) struct TierLeaseTable {
    pub(crate) holder: HolderId,
    /// `None`: leases are off.
    held: Option<Cache<Arc<ObjectKey>, Arc<HeldLease>>>,
    small_objects: SmallObjectMemory,
    /// Set with the first grant. Until then no lookup is made.
    any: AtomicBool,
    counters: Box<[AtomicU64]>,
    all: AtomicU64,
    pub(crate) homes: Mutex<HashMap<WorkerId, Arc<PolledHome>>>,
    pub(crate) clock: TierBootClock,
    /// The runtime on which polls run: the one that this was made on, if any.
    pub(crate) runtime: Option<Handle>,
    pub(crate) stop: CancellationToken,
}

impl TierLeaseTable {
    pub(crate) fn new(
        holder: u64,
        places: usize,
        clock: TierBootClock,
        small_objects: SmallObjectMemory,
    ) -> Self {
        let weight = |_: &Arc<ObjectKey>, held: &Arc<HeldLease>| {
            u32::try_from(held.found.memory_bytes() / PLACE_BYTES).unwrap_or(u32::MAX).max(1)
        };
        let cache = || {
            Cache::builder().max_capacity(places as u64).weigher(weight).time_to_live(KEPT).build()
        };
        Self {
            holder: HolderId(holder),
            held: (places > 0).then(cache),
            small_objects,
            any: AtomicBool::new(false),
            counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicU64::new(0),
            homes: Mutex::default(),
            clock,
            runtime: Handle::try_current().ok(),
            stop: CancellationToken::new(),
        }
    }

    pub(crate) fn are_wanted(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the longest object whose bytes may be held beside a lease. 0: none are.
    pub(crate) fn held_object_bytes_max(&self) -> u64 {
        if self.are_wanted() { self.small_objects.object_bytes_max() } else { 0 }
    }

    /// Returns whether the bytes of an object of this length may be held beside a lease.
    pub(crate) fn may_hold_object(&self, object_bytes: u64) -> bool {
        self.small_objects.may_hold(object_bytes)
    }

    /// Returns the lease that may answer a read that begins now. `None`: ask the home.
    pub(crate) async fn find_valid(
        &self,
        map: &TierWorkerMap,
        request: &OpenRequest,
    ) -> Option<Arc<HeldLease>> {
        if request.version_id.is_some() || !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let held = self.held.as_ref()?.get(&request.object).await?;
        let home = map.home_worker(&request.object)?;
        let fits = held.epoch == map.placement.map_epoch()
            && held.home == home.id
            && held.found.age_ms_max(request) >= held.age_ms_max
            && held.found.is_enough_for(request);
        let holds =
            held.stamp == self.current_stamp(request.object.hash()) && (self.clock)() < held.end;
        (fits && holds).then_some(held)
    }

    /// Begins a question; call it before the question is sent. `None`: no lease can come of it.
    pub(crate) async fn begin_question(
        &self,
        home: &TierWorker,
        request: &OpenRequest,
    ) -> Option<LeaseQuestion> {
        let cache = self.held.as_ref().filter(|_| request.version_id.is_none())?;
        let hash = request.object.hash();
        let live = self.homes.lock().get(&home.id).is_some_and(|polled| polled.is_live(home));
        let answered = match live {
            true => cache
                .get(&request.object)
                .await
                .map_or(0, |held| held.answered.swap(0, Ordering::Relaxed)),
            false => 0,
        };
        let holder = live.then_some(LeaseHolder { id: self.holder, answered });
        Some(LeaseQuestion { hash, stamp: self.current_stamp(hash), sent: (self.clock)(), holder })
    }

    /// Keeps a grant, unless it was recalled meanwhile. Returns `true` if the home grants leases
    /// and has to be polled.
    pub(crate) async fn record_grant(
        &self,
        question: LeaseQuestion,
        request: &OpenRequest,
        answer: GrantedAnswer<'_>,
        metrics: &TierMetrics,
    ) -> bool {
        let GrantedAnswer { home, epoch, found, transport } = answer;
        let lease = found.lease();
        if lease.id == 0 {
            return false;
        }
        let Some(cache) = &self.held else { return false };
        let lease = Duration::from_millis(lease.milliseconds.into());
        if question.holder.is_none() || lease.is_zero() {
            return true;
        }
        let LeaseQuestion { hash, stamp, sent, holder: _ } = question;
        if stamp != self.current_stamp(hash) {
            // `find_valid` would reject it in any case.
            metrics.leases[LeaseEvent::Overtaken].inc();
            return true;
        }
        let (found, generation) = match found {
            AnsweredPresence::Present(reply, data) => {
                let known = cache.get(&request.object).await;
                // What was recalled is not used again, whatever version the store names.
                let known = known.filter(|known| known.stamp == stamp);
                let known = known.as_deref().and_then(|known| known.found.object());
                let small = self.small_object(known, request, reply, data);
                let object = LeasedObject::new(reply.attributes.clone(), transport, small);
                (LeasedPresence::Present(object), reply.generation)
            }
            AnsweredPresence::Absent(absent) => {
                (LeasedPresence::Absent(absent.answer.clone()), absent.generation)
            }
        };
        let held = HeldLease {
            age_ms_max: found.age_ms_max(request),
            found,
            generation,
            home: home.id.clone(),
            epoch,
            stamp,
            end: sent + (lease - lease / DRIFT),
            answered: AtomicU32::new(0),
        };
        self.any.store(true, Ordering::Relaxed);
        cache.insert(request.object.clone(), Arc::new(held)).await;
        metrics.leases[LeaseEvent::Granted].inc();
        true
    }

    /// Returns the bytes to hold beside a new lease. Those that the answer brought, if they are the
    /// whole object; else those of `known`, if they are of the same version. What is held already
    /// is not copied again. A longer object is held once it is read again: of many that are read
    /// once each, a copy would cost much and serve nobody.
    fn small_object(
        &self,
        known: Option<&LeasedObject>,
        request: &OpenRequest,
        reply: &OpenObjectReply,
        data: &[Bytes],
    ) -> Option<Arc<SmallObjectPlace>> {
        let version = &reply.attributes.version;
        if !self.small_objects.may_hold(version.bytes) {
            return None;
        }
        let known = known.filter(|known| known.attributes.version == *version);
        if known.is_none() && version.bytes > HELD_AT_ONCE_MAX {
            return None;
        }
        let place = known.and_then(|known| known.small.as_ref());
        // No part of an object is as long as the object.
        if data.iter().map(|data| data.len() as u64).sum::<u64>() != version.bytes {
            return place.cloned();
        }
        match place.filter(|place| place.equals_data(data)) {
            Some(place) => Some(place.clone()),
            None => self.small_objects.hold_object(request.tenant, data),
        }
    }

    /// Drops these keys. Once this returns, neither their leases nor grants on their way are used.
    pub(crate) fn drop_keys(&self, hashes: impl IntoIterator<Item = KeyHash>) {
        for hash in hashes {
            self.key_counter(hash).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Drops the leases on these objects.
    pub(crate) fn drop_objects(&self, volume: &ObjectVolume, keys: &[String]) {
        if self.are_wanted() {
            let hash = |key: &String| ObjectKey { volume: volume.clone(), key: key.clone() }.hash();
            self.drop_keys(keys.iter().map(hash));
        }
    }

    /// Drops all leases, and all grants on their way.
    pub(crate) fn drop_all(&self) {
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn len(&self) -> u64 {
        self.held.as_ref().map_or(0, Cache::entry_count)
    }

    fn current_stamp(&self, hash: KeyHash) -> LeaseStamp {
        LeaseStamp {
            key: self.key_counter(hash).load(Ordering::SeqCst),
            all: self.all.load(Ordering::SeqCst),
        }
    }

    fn key_counter(&self, hash: KeyHash) -> &AtomicU64 {
        &self.counters[hash.0 as usize % COUNTERS]
    }
}

impl PolledHome {
    pub(crate) fn new(home: Arc<TierWorker>, now: Duration) -> Self {
        let (replaced, live, wanted_ms) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let polled = Self { home, replaced, live, wanted_ms };
        polled.note_use(now);
        polled
    }

    fn is_live(&self, home: &TierWorker) -> bool {
        std::ptr::eq(&*self.home, home) && self.live.load(Ordering::SeqCst)
    }

    pub(crate) fn note_use(&self, now: Duration) {
        self.wanted_ms.store(now.as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn last_use(&self) -> Duration {
        Duration::from_millis(self.wanted_ms.load(Ordering::Relaxed))
    }
}

/// Watches this process for pauses of its host.
static PAUSES: PauseWatch = PauseWatch::new();

/// Returns the time since boot, plus known time that the host's clock has missed. Adding it is
/// safe: it only ends leases sooner, and nobody waits by this clock.
pub(crate) fn since_boot() -> Duration {
    let (wall, own) = (read(ClockId::Realtime), read(ClockId::Boottime));
    own + PAUSES.missed_time(own, wall)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::reading::small_objects::SmallObjectBounds;
    use std::net::SocketAddr;
    use verbs3_protocol::{
        AnswerHeaders, ContentVersion, HeadAttributes, KeyGeneration, PlacementMap, PlacementMember,
    };
    use verbs3_rdma::peer::{PeerOptions, TransportPeer};
    use verbs3_rdma::transport::PeerAddress;

    /// Tests a lease of one second, asked for at 100 s, on a clock that the test sets.
    #[tokio::test]
    async fn a_lease_counts_from_its_question_and_ends_a_tenth_early() {
        let now = Arc::new(AtomicU64::new(0));
        let clock = now.clone();
        let metrics = TierMetrics::new(&prometheus::Registry::new()).unwrap();
        let bounds = SmallObjectBounds { object_bytes_max: 0, memory_bytes_max: 0 };
        let leases = TierLeaseTable::new(
            1,
            10,
            Arc::new(move || Duration::from_millis(clock.load(Ordering::SeqCst))),
            SmallObjectMemory::new(bounds, &metrics),
        );
        let id = WorkerId("a".into());
        let address = PeerAddress::from(SocketAddr::from(([127, 0, 0, 1], 1)));
        let peer = Arc::new(TransportPeer::new("a", address, vec![], PeerOptions::default()));
        let home = Arc::new(TierWorker::new(id.clone(), peer));
        let placement = Arc::new(
            PlacementMap::new(Epoch(1), vec![PlacementMember::new(id.clone(), 1.0)], 1).unwrap(),
        );
        let map =
            TierWorkerMap { placement, workers: vec![home.clone()], spread: Default::default() };
        let request = OpenRequest {
            object: Arc::new(ObjectKey { volume: ObjectVolume::new("u", "b"), key: "k".into() }),
            version_id: None,
            attributes_age_ms_max: 1000,
            absence_age_ms_max: 0,
            checksums: false,
            want: None,
            silence: None,
            trace: None,
            tenant: None,
            place: None,
        };
        let version = ContentVersion { etag: "\"e\"".into(), bytes: 1, version_id: None };
        let attributes = HeadAttributes {
            version,
            last_modified: None,
            headers: AnswerHeaders::default(),
            checksums_known: false,
        };
        let lease = AttributeLease { id: 1, milliseconds: 1000 };
        let (generation, attributes_cached, piece) = (KeyGeneration(1), true, None);
        let reply = OpenObjectReply { attributes, generation, lease, attributes_cached, piece };
        let polled = Arc::new(PolledHome::new(home.clone(), Duration::ZERO));
        polled.live.store(true, Ordering::SeqCst);
        leases.homes.lock().insert(id, polled);

        now.store(100_000, Ordering::SeqCst);
        let question = leases.begin_question(&home, &request).await.unwrap();
        // The answer takes half of its time to arrive.
        now.store(100_500, Ordering::SeqCst);
        let transport = TransportKind::Tcp;
        let (epoch, found) = (Epoch(1), AnsweredPresence::Present(&reply, &[]));
        let answer = GrantedAnswer { home: &home, epoch, found, transport };
        assert!(leases.record_grant(question, &request, answer, &metrics).await);
        let mut held = Vec::new();
        for at in [100_500, 100_899, 100_900, 101_000] {
            now.store(at, Ordering::SeqCst);
            held.push(leases.find_valid(&map, &request).await.is_some());
        }
        assert_eq!(held, [true, true, false, false]);
    }
}

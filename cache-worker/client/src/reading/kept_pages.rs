//! Owns the pages of workers that are kept for further reads: which spans of blocks, how many bytes
//! of them, and for how long.
//!
//! Keeps only what lies in the memory of a worker of this host, or of this process. A piece of it
//! keeps that memory from being used again (`rdma/OWNERSHIP.md`), so it stays what it was when it
//! was held against its checksum. Decides nothing about coherence: bytes belong to a version and
//! never change, and which version is read is decided elsewhere.
//!
//! A span is kept from its second read on, and for a time that counts from when it came. So a hot
//! block is asked for again now and then: its worker goes on taking it for one, and an idle gateway
//! keeps nothing.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use verbs3_protocol::{BlockGeometry, BlockIndex, ContentVersion, ObjectKey, TenantTag};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::page_source::locate_piece;
use verbs3_rdma::transport::TransportKind;

use crate::metrics::TierMetrics;
use crate::reading::piece_slices::slice_pieces;
use crate::reading::span_request::SpanRequest;

/// Spans of which it is remembered that they were read. Each that is read forgets another one.
const SEEN: usize = 4096;
/// How often what is too old is looked for, while a span is kept.
const SWEEPS: u32 = 4;
/// A kept span answers reads of this part of it, or of more: who has a piece keeps all that came
/// with it.
const ANSWERED_PART: usize = 4;
/// Of the memory of a worker, no more than this part is kept: what is, others can't have.
pub const KEPT_WORKER_PART: u64 = 8;

/// Bounds on the pages that are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptPageBounds {
    /// Bytes of all together. 0: nothing is kept.
    pub(crate) bytes_max: u64,
    pub(crate) kept_for: Duration,
    /// A piece keeps the memory of all its page.
    pub(crate) geometry: BlockGeometry,
}

/// The pages that are kept.
pub(crate) struct KeptPages {
    bounds: KeptPageBounds,
    table: Mutex<KeptSpanTable>,
    /// Something is kept. While nothing is, no read looks.
    any: AtomicBool,
    /// Hashes of spans that were read, each at the place that it says.
    seen: Box<[AtomicU64]>,
    hashes: RandomState,
    /// The runtime on which too old spans are dropped. `None`: nothing is kept.
    runtime: Option<Handle>,
    metrics: Arc<TierMetrics>,
}

/// At most one span of each block.
#[derive(Default)]
struct KeptSpanTable {
    spans: HashMap<VersionBlock, KeptSpan>,
    /// By the hash of a tenant's name.
    tenants: HashMap<u64, TenantSpans>,
    bytes: u64,
}

/// A block of one version of an object.
#[derive(Clone, PartialEq, Eq, Hash)]
struct VersionBlock {
    object: Arc<ObjectKey>,
    version: Arc<ContentVersion>,
    block: BlockIndex,
}

/// A part of a block, and its bytes.
struct KeptSpan {
    range: Range<u32>,
    pieces: Vec<Bytes>,
    /// Memory that they keep.
    bytes: u64,
    has_answered: bool,
    tenant: u64,
    until: Instant,
}

/// The spans that one tenant has brought.
#[derive(Default)]
struct TenantSpans {
    weight: u64,
    bytes: u64,
    /// The oldest in front. Those that end otherwise than their block's span have been replaced.
    order: VecDeque<(Instant, VersionBlock)>,
}

/// The bytes of a span that is read, which are to be kept.
#[derive(Default)]
pub(crate) struct SpanGathering {
    pieces: Vec<Bytes>,
}

impl SpanGathering {
    /// Adds what came next. `None`: not all of it lies in memory of a worker, and the span is not
    /// kept. What could not be handed over was copied into this process's own memory.
    pub(crate) fn add_bytes(
        mut self,
        data: &[Bytes],
        transport: TransportKind,
        own_memory: &Arena,
    ) -> Option<Self> {
        let is_copied = data.iter().any(|piece| own_memory.holds_piece(piece));
        if transport != TransportKind::Shm || is_copied {
            return None;
        }
        self.pieces.extend_from_slice(data);
        Some(self)
    }
}

impl KeptPages {
    pub(crate) fn new(bounds: KeptPageBounds, metrics: Arc<TierMetrics>) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            table: Mutex::default(),
            any: AtomicBool::new(false),
            seen: (0..SEEN).map(|_| AtomicU64::new(0)).collect(),
            hashes: RandomState::new(),
            runtime: Handle::try_current().ok(),
            metrics,
        })
    }

    /// Returns all bytes of a span, verified. `None`: ask the workers.
    pub(crate) fn find_span(&self, request: &SpanRequest) -> Option<Vec<Bytes>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let (block, wanted) = (VersionBlock::of_request(request), &request.span.range);
        let mut table = self.table.lock();
        let kept = table.spans.get_mut(&block)?;
        let covers = kept.range.start <= wanted.start && wanted.end <= kept.range.end;
        if !covers || wanted.len() * ANSWERED_PART < kept.range.len() {
            return None;
        }
        kept.has_answered = true;
        let [start, end] = [wanted.start, wanted.end].map(|at| u64::from(at - kept.range.start));
        Some(slice_pieces(&kept.pieces, &(start..end)))
    }

    /// Begins the read of a span whose bytes are to be kept. `None`: it was not read lately, or is
    /// too long.
    pub(crate) fn begin_gathering(&self, request: &SpanRequest) -> Option<SpanGathering> {
        let range = &request.span.range;
        if self.runtime.is_none() || self.memory_bytes(range) > self.bounds.bytes_max {
            return None;
        }
        let hash = self.hashes.hash_one((VersionBlock::of_request(request), range));
        let seen = &self.seen[hash as usize % SEEN];
        let is_seen = seen.load(Ordering::Relaxed) == hash;
        if !is_seen {
            seen.store(hash, Ordering::Relaxed);
        }
        is_seen.then(SpanGathering::default)
    }

    /// Keeps a span that was read to its end.
    pub(crate) fn keep_span(self: &Arc<Self>, request: &SpanRequest, gathered: SpanGathering) {
        let (range, pieces) = (request.span.range.clone(), gathered.pieces);
        let gathered: usize = pieces.iter().map(Bytes::len).sum();
        let Some(runtime) = self.runtime.as_ref().filter(|_| gathered == range.len()) else {
            return;
        };
        let block = VersionBlock::of_request(request);
        let (bytes, tenant) = (self.memory_bytes(&range), request.tenant);
        let bytes_max = self.bounds.bytes_max.min(worker_memory(&pieces) / KEPT_WORKER_PART);
        let until = Instant::now() + self.bounds.kept_for;
        let mut table = self.table.lock();
        // Readers of two parts of a block would replace each other's.
        let is_better =
            |former: &KeptSpan| former.has_answered && former.range.len() >= range.len();
        if bytes > bytes_max || table.spans.get(&block).is_some_and(is_better) {
            return;
        }
        let former = table.take_span(&block);
        let evicted = table.make_room(tenant, bytes, bytes_max);
        let (tenant, weight) = (name_hash(tenant), tenant.map_or(1, |tag| tag.weight));
        let span = KeptSpan { range, pieces, bytes, has_answered: false, tenant, until };
        table.add_span(block, span, weight);
        // A task drops what is too old, for as long as there is anything.
        let is_swept = self.any.swap(true, Ordering::Relaxed);
        self.metrics.kept_page_bytes.set(table.bytes as i64);
        drop(table);
        self.metrics.kept_page_evictions.inc_by(evicted.len() as u64);
        // Outside the lock: with the last piece of an answer, its worker is told.
        drop((former, evicted));
        if !is_swept {
            runtime.spawn(sweep_spans(Arc::downgrade(self), self.bounds.kept_for / SWEEPS));
        }
    }

    /// Returns how much memory of a worker a range of a block keeps.
    fn memory_bytes(&self, range: &Range<u32>) -> u64 {
        let geometry = self.bounds.geometry;
        geometry.touched_pages(range).len() as u64 * u64::from(geometry.page_bytes)
    }

    /// Drops the spans whose time is over. Returns whether others are left.
    fn drop_old(&self) -> bool {
        let mut table = self.table.lock();
        let dropped = table.take_old(Instant::now());
        let is_left = !table.spans.is_empty();
        self.any.store(is_left, Ordering::Relaxed);
        self.metrics.kept_page_bytes.set(table.bytes as i64);
        drop(table);
        drop(dropped);
        is_left
    }
}

/// Drops spans when their time is over. Ends once none is left.
async fn sweep_spans(kept: Weak<KeptPages>, pause: Duration) {
    loop {
        sleep(pause).await;
        if !kept.upgrade().is_some_and(|kept| kept.drop_old()) {
            return;
        }
    }
}

impl VersionBlock {
    fn of_request(request: &SpanRequest) -> Self {
        let SpanRequest { object, version, span, .. } = request;
        Self { object: object.clone(), version: version.clone(), block: span.block }
    }
}

impl KeptSpanTable {
    fn add_span(&mut self, block: VersionBlock, span: KeptSpan, weight: u16) {
        self.bytes += span.bytes;
        let spans = self.tenants.entry(span.tenant).or_default();
        spans.weight = u64::from(weight).max(1);
        spans.bytes += span.bytes;
        spans.order.push_back((span.until, block.clone()));
        self.spans.insert(block, span);
    }

    fn take_span(&mut self, block: &VersionBlock) -> Option<KeptSpan> {
        let span = self.spans.remove(block)?;
        self.bytes -= span.bytes;
        if let Some(spans) = self.tenants.get_mut(&span.tenant) {
            spans.bytes -= span.bytes;
        }
        Some(span)
    }

    /// Takes out the oldest span of a tenant. `None`: it had been replaced.
    fn take_oldest(&mut self, tenant: u64) -> Option<KeptSpan> {
        let (until, block) = self.tenants.get_mut(&tenant)?.order.pop_front()?;
        let is_there = self.spans.get(&block).is_some_and(|span| span.until == until);
        is_there.then(|| self.take_span(&block)).flatten()
    }

    /// Takes out spans until there is room for `bytes` more of `tenant`: each time one of
    /// the tenant that would have most for its weight.
    fn make_room(
        &mut self,
        tenant: Option<TenantTag>,
        bytes: u64,
        bytes_max: u64,
    ) -> Vec<KeptSpan> {
        let (whose, mut taken) = (name_hash(tenant), Vec::new());
        while self.bytes + bytes > bytes_max {
            self.tenants.retain(|_, spans| !spans.order.is_empty());
            let most = self.tenants.iter().max_by_key(|&(&name, spans)| {
                (spans.bytes + if name == whose { bytes } else { 0 }) / spans.weight
            });
            let Some((&most, _)) = most else { break };
            taken.extend(self.take_oldest(most));
        }
        taken
    }

    /// Takes out the spans that are kept no longer than until `now`.
    fn take_old(&mut self, now: Instant) -> Vec<KeptSpan> {
        let names: Vec<u64> = self.tenants.keys().copied().collect();
        let mut taken = Vec::new();
        for name in names {
            let is_old = |table: &Self| {
                let front = table.tenants.get(&name).and_then(|spans| spans.order.front());
                front.is_some_and(|&(until, _)| until <= now)
            };
            while is_old(self) {
                taken.extend(self.take_oldest(name));
            }
        }
        self.tenants.retain(|_, spans| !spans.order.is_empty());
        taken
    }
}

/// Returns how much memory the worker has that the pieces lie in. Not known: as much as can be.
fn worker_memory(pieces: &[Bytes]) -> u64 {
    let located = pieces.first().and_then(|piece| locate_piece(piece));
    let source = located.as_ref().and_then(|located| located.sources.first());
    source.map_or(u64::MAX, |source| source.mapped_bytes())
}

fn name_hash(tenant: Option<TenantTag>) -> u64 {
    tenant.map_or(0, |tag| tag.name.stable_hash())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_rdma::arena::ArenaOptions;

    /// What could not be handed over lies in the gateway's own memory, which other answers land in
    /// once it is read.
    #[test]
    fn only_memory_of_a_worker_is_gathered() {
        let (capacity_bytes, cell_bytes_max, populate) = (4 << 20, 256 << 10, false);
        let [own, worker] = [(); 2].map(|()| {
            let options = ArenaOptions { capacity_bytes, cell_bytes_max, populate };
            Arena::map_memory(options).unwrap()
        });
        let piece_of = |arena: &Arena| {
            let (mut writer, reader) = arena.allocate_cell(10).unwrap().split_writer_reader();
            writer.spare_bytes()[..10].fill(7);
            writer.publish_bytes(10);
            reader.pinned_bytes(0..10).unwrap()
        };
        let (landed, handed) = (piece_of(&own), piece_of(&worker));
        let add = |data: &[Bytes], kind| {
            let gathering = SpanGathering::default().add_bytes(data, kind, &own);
            gathering.map(|gathering| gathering.pieces.len())
        };
        assert_eq!(add(std::slice::from_ref(&handed), TransportKind::Shm), Some(1));
        assert_eq!(add(&[handed.clone(), landed], TransportKind::Shm), None);
        for kind in [TransportKind::Tcp, TransportKind::Verbs] {
            assert_eq!(add(std::slice::from_ref(&handed), kind), None);
        }
    }
}

//! Which workers to ask, in which order: the placement map joined with the list of hot blocks, the
//! ways to its members and their health.
//!
//! Asks nobody. Attributes come from the home alone: a second worker that answered for them would
//! not hear of writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;
use verbs3_protocol::{BlockHash, BlockIndex, ObjectKey, PlacementMap, WorkerId};
use verbs3_rdma::peer::TransportPeer;
use verbs3_rdma::transport::TransportError;

use crate::health::SharedWorkerHealth;
use crate::hot_blocks::HotBlockSpread;

/// One worker as its askers share it.
pub(crate) struct TierWorker {
    pub(crate) id: WorkerId,
    pub(crate) peer: Arc<TransportPeer>,
    pub(crate) health: SharedWorkerHealth,
    /// Bytes of blocks that it has been asked for and has not sent.
    pub(crate) due_bytes: AtomicU64,
}

/// Bytes that a call has asked of a worker, until they have come or the call has ended.
pub(crate) struct OutstandingBytes {
    worker: Arc<TierWorker>,
    bytes: u32,
}

impl OutstandingBytes {
    pub(crate) fn new(worker: Arc<TierWorker>, bytes: u32) -> Self {
        let mut due = Self { worker, bytes: 0 };
        due.set_bytes(bytes);
        due
    }

    pub(crate) fn set_bytes(&mut self, bytes: u32) {
        let all = &self.worker.due_bytes;
        if bytes > self.bytes {
            all.fetch_add(u64::from(bytes - self.bytes), Ordering::Relaxed);
        } else {
            all.fetch_sub(u64::from(self.bytes - bytes), Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for OutstandingBytes {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

/// Times that one question is put to the same worker again because its connection broke: each of a
/// host's ways (shared memory, some rails, tcp) may break under it once. A worker that dies is
/// found out sooner, because nothing connects.
pub(crate) const REPEATS_MAX: u8 = 8;

impl TierWorker {
    pub(crate) fn new(id: WorkerId, peer: Arc<TransportPeer>) -> Self {
        Self { id, peer, health: SharedWorkerHealth::new(), due_bytes: AtomicU64::new(0) }
    }

    /// Whether the same question may be put to this worker again after `error`, which then says
    /// nothing of the worker itself: its peer goes the next way. For questions that may be asked
    /// twice, which all of the protocol's are.
    pub(crate) fn may_be_asked_again(&self, error: &TransportError) -> bool {
        match error {
            TransportError::Lost { .. } => true,
            // The connection was over before the question was sent. Of use only where there is
            // another.
            TransportError::Unreachable { .. } => self.peer.is_connected(),
            TransportError::Handshake { .. }
            | TransportError::Protocol { .. }
            | TransportError::Failed { .. }
            | TransportError::Bound { .. }
            | TransportError::Cancelled => false,
        }
    }
}

/// Placement, and a worker for each of its members (same order).
pub(crate) struct TierWorkerMap {
    pub(crate) placement: Arc<PlacementMap>,
    pub(crate) workers: Vec<Arc<TierWorker>>,
    /// Who serves the hot blocks, by this placement.
    pub(crate) spread: HotBlockSpread,
}

/// Replicas that one span tries at most; more would only delay the way to the UFS.
const CANDIDATES_MAX: usize = 4;

/// A worker to be asked for bytes of a block.
#[derive(Clone)]
pub(crate) struct SpanCandidate {
    pub(crate) worker: Arc<TierWorker>,
    /// Only because the block is hot: it is to give what it or the owner holds, and to fill
    /// nothing.
    pub(crate) replica: bool,
}

/// Workers to try for one block, best first.
#[derive(Default)]
pub(crate) struct CandidateQueue {
    /// Who serves a hot block beside its owner; before all others.
    pub(crate) replica: Option<Arc<TierWorker>>,
    workers: [Option<Arc<TierWorker>>; CANDIDATES_MAX],
    next: usize,
}

impl CandidateQueue {
    /// The next worker that may be asked now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<SpanCandidate> {
        if let Some(worker) = self.replica.take().filter(|worker| worker.health.admit_call(now)) {
            return Some(SpanCandidate { worker, replica: true });
        }
        while let Some(slot) = self.workers.get_mut(self.next) {
            self.next += 1;
            match slot.take() {
                Some(worker) if worker.health.admit_call(now) => {
                    return Some(SpanCandidate { worker, replica: false });
                }
                Some(_) => {}
                None => return None,
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.replica.is_none() && self.workers.get(self.next).is_none_or(Option::is_none)
    }
}

impl TierWorkerMap {
    /// The one worker that answers for an object's attributes and orders its writes. `None`: there
    /// is no map yet.
    pub(crate) fn home_worker(&self, object: &ObjectKey) -> Option<&Arc<TierWorker>> {
        let owner = self.placement.slot_owners(object.home_slot()).first()?;
        self.workers.get(usize::from(*owner))
    }

    /// The owner of a block, then its replicas.
    pub(crate) fn block_candidates(&self, block: BlockHash) -> CandidateQueue {
        let mut candidates = CandidateQueue::default();
        let owners = self.placement.slot_owners(block.hash_slot());
        for (slot, &owner) in candidates.workers.iter_mut().zip(owners) {
            *slot = Some(self.workers[usize::from(owner)].clone());
        }
        candidates
    }

    /// Who is to serve a hot block now: of two of its workers, drawn at random, the one that has
    /// fewer bytes to send to this gateway. `None`: the block is not hot.
    pub(crate) fn draw_worker(
        &self,
        object: &ObjectKey,
        block: BlockIndex,
    ) -> Option<HotBlockDraw> {
        // Most of the time nothing is hot, and nobody's name is hashed for it.
        if self.spread.is_empty() {
            return None;
        }
        let workers = self.spread.workers_of(object.block_hash(block))?;
        let first = rand::random_range(0..workers.len());
        // Any but the first, each as likely as the others.
        let second = (first + rand::random_range(1..workers.len())) % workers.len();
        let due =
            |at: usize| self.workers[usize::from(workers[at])].due_bytes.load(Ordering::Relaxed);
        let (first_due, second_due) = (due(first), due(second));
        let at = if second_due < first_due { second } else { first };
        Some(if at == 0 {
            HotBlockDraw::Owner
        } else {
            HotBlockDraw::Replica(self.workers[usize::from(workers[at])].clone())
        })
    }
}

/// The worker of a hot block that a read was given.
pub(crate) enum HotBlockDraw {
    Owner,
    Replica(Arc<TierWorker>),
}

//! Owns which workers to ask, in which order: the placement map joined with the hot blocks, and
//! with its members' peers and health.
//!
//! Asks nobody. Attributes come from the home alone: a second worker that answered for them would
//! not hear of writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use verbs3_protocol::{BlockHash, BlockIndex, ObjectKey, PlacementMap};

use crate::asking::hot_blocks::HotBlockSpread;
use crate::asking::worker::TierWorker;

/// Placement, and a worker for each of its members (same order).
pub(crate) struct TierWorkerMap {
    pub(crate) placement: Arc<PlacementMap>,
    pub(crate) workers: Vec<Arc<TierWorker>>,
    /// The workers that serve hot blocks, by this placement.
    pub(crate) spread: HotBlockSpread,
}

/// Most owners that one span tries. More would only delay the way to the UFS.
const CANDIDATES_MAX: usize = 4;

/// Why a worker is asked for bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CandidateRole {
    /// The block is hot. The worker gives what it or the owner holds, and fills nothing.
    Replica,
    Owner,
    /// A next owner, in place of one that is away or silent.
    Substitute,
}

/// A worker to be asked for bytes of a block.
#[derive(Clone)]
pub(crate) struct SpanCandidate {
    pub(crate) worker: Arc<TierWorker>,
    pub(crate) role: CandidateRole,
}

/// Workers to try for one block, best first.
#[derive(Default)]
pub(crate) struct CandidateQueue {
    /// The worker that serves a hot block beside its owner. It is tried first.
    pub(crate) replica: Option<Arc<TierWorker>>,
    /// The owner, then the next owners.
    owners: [Option<Arc<TierWorker>>; CANDIDATES_MAX],
    next: usize,
}

impl CandidateQueue {
    /// Returns the next worker that may be asked now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<SpanCandidate> {
        if let Some(worker) = self.replica.take().filter(|worker| worker.health.admit_call(now)) {
            return Some(SpanCandidate { worker, role: CandidateRole::Replica });
        }
        while let Some(slot) = self.owners.get_mut(self.next) {
            let role = match self.next {
                0 => CandidateRole::Owner,
                _ => CandidateRole::Substitute,
            };
            self.next += 1;
            match slot.take() {
                Some(worker) if worker.health.admit_call(now) => {
                    return Some(SpanCandidate { worker, role });
                }
                Some(_) => {}
                None => return None,
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.replica.is_none() && self.owners.get(self.next).is_none_or(Option::is_none)
    }
}

impl TierWorkerMap {
    /// Returns the one worker that answers for an object's attributes and orders its writes.
    /// `None`: there is no map yet.
    pub(crate) fn home_worker(&self, object: &ObjectKey) -> Option<&Arc<TierWorker>> {
        let owner = self.placement.slot_owners(object.home_slot()).first()?;
        self.workers.get(usize::from(*owner))
    }

    /// Returns the owner of a block, then its next owners.
    pub(crate) fn block_candidates(&self, block: BlockHash) -> CandidateQueue {
        let mut candidates = CandidateQueue::default();
        let owners = self.placement.slot_owners(block.hash_slot());
        for (slot, &owner) in candidates.owners.iter_mut().zip(owners) {
            *slot = Some(self.workers[usize::from(owner)].clone());
        }
        candidates
    }

    /// Draws the worker that serves a hot block now: of two of its workers, chosen at random, the
    /// one that has fewer bytes to send to this gateway. `None`: the block is not hot.
    pub(crate) fn draw_worker(
        &self,
        object: &ObjectKey,
        block: BlockIndex,
    ) -> Option<HotBlockDraw> {
        // Usually nothing is hot; then no key is hashed.
        if self.spread.is_empty() {
            return None;
        }
        let workers = self.spread.workers_of(object.block_hash(block))?;
        let first = rand::random_range(0..workers.len());
        // Any worker but the first, all equally likely.
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

/// The worker of a hot block that serves a read.
pub(crate) enum HotBlockDraw {
    Owner,
    Replica(Arc<TierWorker>),
}

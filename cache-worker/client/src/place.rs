//! Which workers to ask, in which order: the placement map joined with the list of hot blocks, the
//! ways to its members and their health.
//!
//! Asks nobody. Attributes come from the home alone: a second worker that answered for them would
//! not hear of writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;
use verbs3_protocol::{BlockHash, BlockIndex, ObjectKey, Placement, WorkerId};
use verbs3_rdma::peer::Peer;
use verbs3_rdma::transport::TransportError;

use crate::health::Watch;
use crate::hot::Spread;

/// One worker as its askers share it.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) peer: Arc<Peer>,
    pub(crate) health: Watch,
    /// Bytes of blocks that it has been asked for and has not sent.
    pub(crate) due_bytes: AtomicU64,
}

/// Bytes that a call has asked of a worker, until they have come or the call has ended.
pub(crate) struct Due {
    worker: Arc<Worker>,
    bytes: u32,
}

impl Due {
    pub(crate) fn new(worker: Arc<Worker>, bytes: u32) -> Self {
        let mut due = Self { worker, bytes: 0 };
        due.set(bytes);
        due
    }

    pub(crate) fn set(&mut self, bytes: u32) {
        let all = &self.worker.due_bytes;
        if bytes > self.bytes {
            all.fetch_add(u64::from(bytes - self.bytes), Ordering::Relaxed);
        } else {
            all.fetch_sub(u64::from(self.bytes - bytes), Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Times that one question is put to the same worker again because its connection broke: each of a
/// host's ways (shared memory, some rails, tcp) may break under it once. A worker that dies is
/// found out sooner, because nothing connects.
pub(crate) const REPEATS_MAX: u8 = 8;

impl Worker {
    pub(crate) fn new(id: WorkerId, peer: Arc<Peer>) -> Self {
        Self { id, peer, health: Watch::new(), due_bytes: AtomicU64::new(0) }
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
pub(crate) struct Map {
    pub(crate) placement: Arc<Placement>,
    pub(crate) workers: Vec<Arc<Worker>>,
    /// Who serves the hot blocks, by this placement.
    pub(crate) spread: Spread,
}

/// Replicas that one span tries at most; more would only delay the way to the UFS.
const CANDIDATES_MAX: usize = 4;

/// A worker to be asked for bytes of a block.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) worker: Arc<Worker>,
    /// Only because the block is hot: it is to give what it or the owner holds, and to fill
    /// nothing.
    pub(crate) replica: bool,
}

/// Workers to try for one block, best first.
#[derive(Default)]
pub(crate) struct Candidates {
    /// Who serves a hot block beside its owner; before all others.
    pub(crate) replica: Option<Arc<Worker>>,
    workers: [Option<Arc<Worker>>; CANDIDATES_MAX],
    next: usize,
}

impl Candidates {
    /// The next worker that may be asked now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Candidate> {
        if let Some(worker) = self.replica.take().filter(|worker| worker.health.admit(now)) {
            return Some(Candidate { worker, replica: true });
        }
        while let Some(slot) = self.workers.get_mut(self.next) {
            self.next += 1;
            match slot.take() {
                Some(worker) if worker.health.admit(now) => {
                    return Some(Candidate { worker, replica: false });
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

impl Map {
    /// The one worker that answers for an object's attributes and orders its writes. `None`: there
    /// is no map yet.
    pub(crate) fn home(&self, object: &ObjectKey) -> Option<&Arc<Worker>> {
        let owner = self.placement.owners(object.home_slot()).first()?;
        self.workers.get(usize::from(*owner))
    }

    /// The owner of a block, then its replicas.
    pub(crate) fn candidates(&self, block: BlockHash) -> Candidates {
        let mut candidates = Candidates::default();
        let owners = self.placement.owners(block.slot());
        for (slot, &owner) in candidates.workers.iter_mut().zip(owners) {
            *slot = Some(self.workers[usize::from(owner)].clone());
        }
        candidates
    }

    /// Who is to serve a hot block now: of two of its workers, drawn at random, the one that has
    /// fewer bytes to send to this gateway. `None`: the block is not hot.
    pub(crate) fn drawn(&self, object: &ObjectKey, block: BlockIndex) -> Option<Drawn> {
        // Most of the time nothing is hot, and nobody's name is hashed for it.
        if self.spread.is_empty() {
            return None;
        }
        let workers = self.spread.of(object.block_hash(block))?;
        let first = rand::random_range(0..workers.len());
        // Any but the first, each as likely as the others.
        let second = (first + rand::random_range(1..workers.len())) % workers.len();
        let due =
            |at: usize| self.workers[usize::from(workers[at])].due_bytes.load(Ordering::Relaxed);
        let (first_due, second_due) = (due(first), due(second));
        let at = if second_due < first_due { second } else { first };
        Some(if at == 0 {
            Drawn::Owner
        } else {
            Drawn::Replica(self.workers[usize::from(workers[at])].clone())
        })
    }
}

/// The worker of a hot block that a read was given.
pub(crate) enum Drawn {
    Owner,
    Replica(Arc<Worker>),
}

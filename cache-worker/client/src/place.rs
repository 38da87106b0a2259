//! Which workers to ask, in which order: the placement map joined with the ways to its members and their health.
//!
//! Asks nobody. Attributes come from the home alone: a second worker that answered for them would not hear of writes.

use std::sync::Arc;

use tokio::time::Instant;
use verbs3_protocol::{BlockIndex, ObjectKey, Placement, WorkerId};
use verbs3_rdma::peer::Peer;
use verbs3_rdma::transport::TransportError;

use crate::health::Watch;

/// One worker as its askers share it.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) peer: Arc<Peer>,
    pub(crate) health: Watch,
}

/// Times that one question is put to the same worker again because its connection broke: each of a host's ways (shared
/// memory, some rails, tcp) may break under it once. A worker that dies is found out sooner, because nothing connects.
pub(crate) const REPEATS_MAX: u8 = 8;

impl Worker {
    /// Whether the same question may be put to this worker again after `error`, which then says nothing of the worker
    /// itself: its peer goes the next way. For questions that may be asked twice, which all of the protocol's are.
    pub(crate) fn may_be_asked_again(&self, error: &TransportError) -> bool {
        match error {
            TransportError::Lost { .. } => true,
            // The connection was over before the question was sent. Of use only where there is another.
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
    pub(crate) placement: Placement,
    pub(crate) workers: Vec<Arc<Worker>>,
}

/// Replicas that one span tries at most; more would only delay the way to the UFS.
const CANDIDATES_MAX: usize = 4;

/// Workers to try for one block, best first.
#[derive(Default)]
pub(crate) struct Candidates {
    workers: [Option<Arc<Worker>>; CANDIDATES_MAX],
    next: usize,
}

impl Candidates {
    /// The next worker that may be asked now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Arc<Worker>> {
        while let Some(slot) = self.workers.get_mut(self.next) {
            self.next += 1;
            match slot.take() {
                Some(worker) if worker.health.admit(now) => return Some(worker),
                Some(_) => {}
                None => return None,
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.workers.get(self.next).is_none_or(Option::is_none)
    }
}

impl Map {
    /// The one worker that answers for an object's attributes and orders its writes. `None`: there is no map yet.
    pub(crate) fn home(&self, object: &ObjectKey) -> Option<&Arc<Worker>> {
        let owner = self.placement.owners(object.home_slot()).first()?;
        self.workers.get(usize::from(*owner))
    }

    /// The owner of a block, then its replicas.
    pub(crate) fn candidates(&self, object: &ObjectKey, block: BlockIndex) -> Candidates {
        let mut candidates = Candidates::default();
        let owners = self.placement.owners(object.block_slot(block));
        for (slot, &owner) in candidates.workers.iter_mut().zip(owners) {
            *slot = Some(self.workers[usize::from(owner)].clone());
        }
        candidates
    }
}

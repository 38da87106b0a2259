//! Owns one worker as this process sees it: how it is reached, its health, and what it owes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs3_protocol::WorkerId;
use verbs3_rdma::peer::TransportPeer;
use verbs3_rdma::transport::TransportError;

use crate::asking::health::SharedWorkerHealth;

/// One worker, shared by all its callers.
pub(crate) struct TierWorker {
    pub(crate) id: WorkerId,
    pub(crate) peer: Arc<TransportPeer>,
    pub(crate) health: SharedWorkerHealth,
    /// Bytes of blocks that it has been asked for and has not sent.
    pub(crate) due_bytes: AtomicU64,
}

/// Bytes that a call has asked of a worker. They count until they have come or the call has ended.
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

/// Most times that one question is repeated to the same worker because its connection broke. Each
/// of a host's transports (shared memory, some rails, tcp) may break once. A dead worker is found
/// sooner, because no connection succeeds.
pub(crate) const REPEATS_MAX: u8 = 8;

impl TierWorker {
    pub(crate) fn new(id: WorkerId, peer: Arc<TransportPeer>) -> Self {
        Self { id, peer, health: SharedWorkerHealth::new(), due_bytes: AtomicU64::new(0) }
    }

    /// Returns whether the question may be repeated to this worker after `error`. If so, the error
    /// says nothing of the worker itself, and its peer takes the next transport. The question must
    /// be idempotent; all of the protocol's are.
    pub(crate) fn may_be_asked_again(&self, error: &TransportError) -> bool {
        match error {
            TransportError::Lost { .. } => true,
            // The connection was over before the question was sent. A repeat helps only if there is
            // another connection.
            TransportError::Unreachable { .. } => self.peer.is_connected(),
            TransportError::Handshake { .. }
            | TransportError::Protocol { .. }
            | TransportError::Failed { .. }
            | TransportError::Bound { .. }
            | TransportError::Cancelled => false,
        }
    }
}

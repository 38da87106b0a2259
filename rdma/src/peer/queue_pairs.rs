//! Owns the cap on verbs connections of a process. Each is a queue pair with its rings, in the NIC
//! and in memory.
//!
//! Over the cap, peers send calls over tcp.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::transport_metrics;

/// Places for verbs connections, shared by all peers of a process.
#[derive(Debug, Clone)]
pub struct QueuePairs(Arc<Semaphore>);

impl QueuePairs {
    /// Makes a cap of `max` verbs connections. Sets the gauge `verbs3_rdma_queue_pairs_max` to it.
    /// Clones share the cap.
    pub fn new(max: usize) -> Self {
        transport_metrics().queue_pairs_max.set(i64::try_from(max).unwrap_or(i64::MAX));
        Self(Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes a place. Dropping the permit frees it.
    pub(super) fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}

impl Default for QueuePairs {
    fn default() -> Self {
        Self::new(4096)
    }
}

//! The cap on verbs connections of a process: each is a queue pair with its rings, in the NIC and
//! in memory.
//!
//! Owns the places. Over the cap calls go over tcp; that is the peers' to decide.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::transport_metrics;

/// Places for verbs connections, shared by all peers of a process.
#[derive(Debug, Clone)]
pub struct QueuePairs(Arc<Semaphore>);

impl QueuePairs {
    /// A cap of `max` verbs connections. The value also becomes the gauge
    /// `verbs3_rdma_queue_pairs_max`; clones share the cap.
    pub fn new(max: usize) -> Self {
        transport_metrics().queue_pairs_max.set(i64::try_from(max).unwrap_or(i64::MAX));
        Self(Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))))
    }

    /// A place until it is dropped.
    pub(super) fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}

impl Default for QueuePairs {
    fn default() -> Self {
        Self::new(4096)
    }
}

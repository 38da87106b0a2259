//! Owns the bound on bytes that wait to be sent on one connection.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::{GaugeGuard, transport_metrics};

/// Bytes per permit. Coarser than a byte, so that a 32-bit count of permits reaches far.
const PERMIT_BYTES: u64 = 1024;

pub(crate) struct QueuedBytesBudget {
    free: Arc<Semaphore>,
    permits_max: u32,
}

/// Room for one frame. It is given back when the frame is sent or abandoned.
pub(crate) struct QueuedBytesPermit {
    _permit: OwnedSemaphorePermit,
    _gauge: GaugeGuard,
}

impl QueuedBytesBudget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let permits_max =
            (bytes_max as u64 / PERMIT_BYTES).clamp(1, u64::from(u32::MAX >> 4)) as u32;
        Self { free: Arc::new(Semaphore::new(permits_max as usize)), permits_max }
    }

    /// Waits until `bytes` are free. Returns `None` once closed. A request larger than the whole
    /// budget waits for all of it.
    pub(crate) async fn acquire_permit(&self, bytes: u64) -> Option<QueuedBytesPermit> {
        let permits = u64::from(self.permits_max).min(bytes.div_ceil(PERMIT_BYTES).max(1)) as u32;
        let permit = match self.free.clone().try_acquire_many_owned(permits) {
            Ok(permit) => permit,
            Err(_) => self.free.clone().acquire_many_owned(permits).await.ok()?,
        };
        Some(QueuedBytesPermit {
            _permit: permit,
            _gauge: GaugeGuard::add_to(&transport_metrics().queued_bytes, bytes),
        })
    }

    pub(crate) fn close(&self) {
        self.free.close();
    }
}

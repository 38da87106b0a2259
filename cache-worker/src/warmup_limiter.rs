//! Limits warm-ups to what training reads leave over, so that reads never wait for them.
//!
//! Owns the bound, and decides whether reads need what a warm-up would take. Fills nothing itself.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use verbs3_protocol::BlockGeometry;

use crate::clock::WorkerInstant;
use crate::fill::{PageFillError, PageFiller};
use crate::metrics::{BusyReason, WorkerMetrics};
use crate::settings::WorkerFillSettings;

/// How long a warm-up waits for its permit before its caller gets `Busy`, and may come back.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// How long warming pauses after a read found no memory.
const STAND_BACK: Duration = Duration::from_secs(1);

/// The bound on warming.
pub(crate) struct WarmupLimiter {
    turns: Arc<Semaphore>,
    /// Bytes of blocks being warmed, in KiB: half of the reserve that is kept free for fills, and
    /// at least one block.
    kibibytes: Arc<Semaphore>,
    block_kibibytes: u32,
    /// Refusals for lack of memory so far, and when the last one was seen.
    refused: Mutex<(u64, Option<WorkerInstant>)>,
    metrics: WorkerMetrics,
}

/// The permit to warm one block.
pub(crate) struct WarmTurn {
    _turn: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
    in_flight: IntGauge,
}

impl Drop for WarmTurn {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}

impl WarmupLimiter {
    pub(crate) fn new(
        settings: &WorkerFillSettings,
        geometry: BlockGeometry,
        capacity_bytes: u64,
        metrics: WorkerMetrics,
    ) -> Self {
        let block = u64::from(geometry.block_bytes);
        // Reads always find a UFS permit, however few there are.
        let turns = (settings.warms_in_flight_max.min(settings.in_flight_max / 2).max(1)) as usize;
        let bytes = ((capacity_bytes as f64 * settings.reserve / 2.0) as u64).max(block);
        Self {
            turns: Arc::new(Semaphore::new(turns.min(Semaphore::MAX_PERMITS))),
            kibibytes: Arc::new(Semaphore::new((bytes >> 10) as usize)),
            block_kibibytes: geometry.block_bytes >> 10,
            refused: Mutex::new((0, None)),
            metrics,
        }
    }

    /// Waits for the permit to warm up to `bytes`. Refuses while reads wait for what that would
    /// take.
    pub(crate) async fn acquire_permit(
        &self,
        filler: &PageFiller,
        now: WorkerInstant,
        bytes: u64,
    ) -> Result<WarmTurn, PageFillError> {
        if filler.reads_wait() || self.is_short_of_memory(now) {
            self.metrics.busy[BusyReason::Warm].inc();
            return Err(PageFillError::Busy("reads want what warming would take"));
        }
        let kibibytes = (bytes.div_ceil(1 << 10) as u32).clamp(1, self.block_kibibytes);
        let both = async {
            let turn = self.turns.clone().acquire_owned().await.ok()?;
            let bytes = self.kibibytes.clone().acquire_many_owned(kibibytes).await.ok()?;
            Some((turn, bytes))
        };
        match tokio::time::timeout(WAIT_MAX, both).await {
            Ok(Some((turn, bytes))) => {
                let in_flight = self.metrics.warms_in_flight.clone();
                in_flight.inc();
                Ok(WarmTurn { _turn: turn, _bytes: bytes, in_flight })
            }
            Ok(None) => Err(PageFillError::Stopping),
            Err(_) => {
                self.metrics.busy[BusyReason::Warm].inc();
                Err(PageFillError::Busy(
                    "as much is being warmed as may be; raise worker.fill.warms_in_flight_max",
                ))
            }
        }
    }

    /// Returns whether a read, or a fill of this worker, found no memory just now.
    fn is_short_of_memory(&self, now: WorkerInstant) -> bool {
        let refusals = self.metrics.busy[BusyReason::Memory].get();
        let mut refused = self.refused.lock();
        if refused.0 != refusals {
            *refused = (refusals, Some(now));
        }
        refused.1.is_some_and(|at| now.duration_since(at) < STAND_BACK)
    }
}

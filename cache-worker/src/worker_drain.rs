//! Hands over the hottest blocks of a drained worker: their new owners copy them at a bounded rate
//! before it leaves.
//!
//! Owns the order, the pace and the progress. Moves no bytes itself: the new owners ask for them
//! (`serve/take_over.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use verbs3_client::{NeighbourSettings, TakeOverOutcome};
use verbs3_protocol::{BlockGeometry, TakeOver};

use crate::block_heat::{BlockHeatTable, RankedHotBlock};
use crate::fill::PageFiller;
use crate::former_owners::FormerOwners;
use crate::metrics::WorkerMetrics;
use crate::tasks::{WorkerRuntime, WorkerTaskSet};

/// Blocks handed over at once. Enough that small ones reach the rate, few enough that readers come
/// first.
const AT_ONCE: usize = 4;

/// Attempts per block while its new owner has not heard of the map yet, and failures after which
/// the block is skipped.
const TRIES_MAX: u32 = 50;
const FAILURES_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// The progress of a drained worker in handing over its hot blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerDrainProgress {
    pub blocks: u64,
    pub blocks_left: u64,
    /// Bytes that new owners have taken.
    pub bytes: u64,
}

/// The state of one drain.
struct WorkerDrainState {
    blocks: u64,
    blocks_left: AtomicU64,
    bytes: AtomicU64,
    /// When the next byte may be sent.
    pace: Mutex<Instant>,
    stop: CancellationToken,
}

/// The task that hands over hot blocks while this worker drains.
pub(crate) struct WorkerDrainer {
    pub(crate) geometry: BlockGeometry,
    pub(crate) heat: Arc<BlockHeatTable>,
    pub(crate) former: Arc<FormerOwners>,
    pub(crate) filler: Arc<PageFiller>,
    pub(crate) bytes_per_second_max: u64,
    pub(crate) tasks: WorkerTaskSet,
    pub(crate) stop: CancellationToken,
    pub(crate) metrics: WorkerMetrics,
    leaving: Mutex<Option<Arc<WorkerDrainState>>>,
}

impl WorkerDrainer {
    pub(crate) fn new(
        settings: &NeighbourSettings,
        geometry: BlockGeometry,
        heat: Arc<BlockHeatTable>,
        former: Arc<FormerOwners>,
        filler: Arc<PageFiller>,
        runtime: WorkerRuntime,
    ) -> Arc<Self> {
        let WorkerRuntime { clock: _, tasks, stop, metrics } = runtime;
        Arc::new(Self {
            geometry,
            heat,
            former,
            filler,
            bytes_per_second_max: settings.hand_over_rate_max.0,
            tasks,
            stop,
            metrics,
            leaving: Mutex::default(),
        })
    }

    /// Starts or stops the handover after a map change. One drain hands over once, whatever maps
    /// follow.
    pub(crate) fn set_draining(self: &Arc<Self>, draining: bool, now_s: u32) {
        let mut leaving = self.leaving.lock();
        if !draining {
            if let Some(leaving) = leaving.take() {
                leaving.stop.cancel();
            }
            return;
        }
        if leaving.is_some() {
            return;
        }
        let hottest =
            if self.former.reaches_others() { self.heat.hottest_blocks(now_s) } else { Vec::new() };
        let blocks = hottest.len() as u64;
        let made = Arc::new(WorkerDrainState {
            blocks,
            blocks_left: AtomicU64::new(blocks),
            bytes: AtomicU64::new(0),
            pace: Mutex::new(Instant::now()),
            stop: self.stop.child_token(),
        });
        *leaving = Some(made.clone());
        let leaver = self.clone();
        // The task may be cancelled at any time. While this worker is there, new owners ask it for
        // the remaining blocks when they are read.
        self.tasks.spawn(async move {
            let began = Instant::now();
            if made.stop.run_until_cancelled(leaver.hand_over(&made, hottest)).await.is_some() {
                let bytes = made.bytes.load(Ordering::Relaxed);
                tracing::info!(blocks, bytes, took = ?began.elapsed(), "what is hot was handed over");
            }
        });
    }

    /// Returns the progress; `None`: this worker does not drain.
    pub(crate) fn drain_progress(&self) -> Option<WorkerDrainProgress> {
        let leaving = self.leaving.lock();
        let WorkerDrainState { blocks, blocks_left, bytes, .. } = &**leaving.as_ref()?;
        let (blocks_left, bytes) =
            (blocks_left.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        Some(WorkerDrainProgress { blocks: *blocks, blocks_left, bytes })
    }

    async fn hand_over(&self, leaving: &WorkerDrainState, hottest: Vec<RankedHotBlock>) {
        let one = async |hot: RankedHotBlock| {
            let bytes = self.hand_over_block(leaving, &hot).await;
            leaving.bytes.fetch_add(bytes, Ordering::Relaxed);
            leaving.blocks_left.fetch_sub(1, Ordering::Relaxed);
        };
        stream::iter(hottest).for_each_concurrent(AT_ONCE, one).await;
    }

    /// Hands over one block, and returns the bytes that were taken.
    async fn hand_over_block(&self, leaving: &WorkerDrainState, hot: &RankedHotBlock) -> u64 {
        let RankedHotBlock { target, block, bytes: heat_bytes } = hot;
        let held = self.filler.held_bytes(target, *block);
        if held == 0 {
            return 0;
        }
        sleep_until(self.reserve_send_time(leaving, held)).await;
        let mut failures = 0;
        for _ in 0..TRIES_MAX {
            let Some((owner, epoch)) = self.former.present_owner(target.object.block_slot(*block))
            else {
                break;
            };
            let (object, version) = (target.object.clone(), target.version.clone());
            let (geometry, block, heat_bytes) = (self.geometry, *block, *heat_bytes);
            let asked = TakeOver { object, version, epoch, geometry, block, heat_bytes };
            match self.former.have_taken_over(&owner, asked).await {
                Ok(TakeOverOutcome::Taken { bytes }) => return bytes,
                Ok(TakeOverOutcome::OtherMap) => {}
                Ok(TakeOverOutcome::Refused(refusal)) => {
                    tracing::debug!(worker = %owner, reason = refusal.reason, "a block was not taken over");
                    break;
                }
                Err(_) if failures + 1 < FAILURES_MAX => failures += 1,
                Err(_) => break,
            }
            sleep(PAUSE).await;
        }
        self.metrics.hand_overs_failed.inc();
        0
    }

    /// Reserves the time for sending these bytes, after those before them.
    fn reserve_send_time(&self, leaving: &WorkerDrainState, bytes: u64) -> Instant {
        let took = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second_max.max(1) as f64);
        let mut pace = leaving.pace.lock();
        let turn = (*pace).max(Instant::now());
        *pace = turn + took;
        turn
    }
}

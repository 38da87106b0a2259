//! Handles an open that meets a worker with another placement map. The open waits, within a bound,
//! until the maps may agree. Then it asks again by the map that is current.
//!
//! The gateway's map comes through its follower, so a change of it ends the wait. Where the
//! worker's map is the older one, nothing tells when it has caught up; the gateway asks again after
//! a pause. After one wait in vain for a worker under a map, no new open waits for it under that
//! map. A worker that lags, or a map change that waits for a lease to end, therefore delays only a
//! few opens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use verbs3_pacing::GrowingPause;
use verbs3_protocol::{Epoch, WorkerId};

use crate::asking::worker_asker::WorkerAsker;
use crate::metrics::MapWaitOutcome;

/// First pause before the gateway asks again a worker that lags or is between two maps. Doubles up
/// to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Workers for which an open has waited in vain, and under which map.
#[derive(Default)]
struct InVain(Mutex<HashMap<WorkerId, Epoch>>);

impl InVain {
    fn has_waited(&self, worker: &WorkerId, epoch: Epoch) -> bool {
        self.0.lock().get(worker) == Some(&epoch)
    }

    /// Notes a wait in vain. Remembers no more than the workers of one map.
    fn note_wait(&self, worker: &WorkerId, epoch: Epoch) {
        let mut known = self.0.lock();
        known.retain(|_, under| *under == epoch);
        known.insert(worker.clone(), epoch);
    }
}

/// One open's wait.
pub(crate) struct MapAgreementWait {
    until: Option<Instant>,
    pause: GrowingPause,
}

impl MapAgreementWait {
    pub(crate) fn new() -> Self {
        Self { until: None, pause: GrowingPause::new(PAUSE_MIN, PAUSE_MAX) }
    }
}

/// The waits of this process for workers with other maps.
pub(crate) struct MapAgreement {
    asker: Arc<WorkerAsker>,
    in_vain: InVain,
}

impl MapAgreement {
    pub(crate) fn new(asker: Arc<WorkerAsker>) -> Self {
        Self { asker, in_vain: InVain::default() }
    }

    /// Waits for the maps to agree. Returns whether it is worth asking again. `theirs`: the
    /// worker's epoch, 0 if it has no map now; `ours`: the epoch under which it was asked.
    pub(crate) async fn may_agree_soon(
        &self,
        between: &mut MapAgreementWait,
        worker: &WorkerId,
        ours: Epoch,
        theirs: Epoch,
    ) -> bool {
        let wait = self.asker.options.settings.map_wait.0;
        if !self.asker.options.coordinated || wait.is_zero() {
            return false;
        }
        let until = match between.until {
            Some(until) => until,
            None if self.in_vain.has_waited(worker, ours) => {
                self.asker.metrics.map_waits[MapWaitOutcome::Skipped].inc();
                return false;
            }
            None => *between.until.insert(Instant::now() + wait),
        };
        let mut epochs = self.asker.placement.watch_epochs();
        let other_map = epochs.wait_for(|now| *now != ours);
        let (is_ahead, pause) = (theirs > ours, between.pause.next_pause());
        let again = tokio::select! {
            biased;
            came = timeout_at(until, other_map) => came.is_ok(),
            () = sleep(pause), if !is_ahead => true,
        };
        if !again || Instant::now() >= until {
            self.in_vain.note_wait(worker, ours);
            self.asker.metrics.map_waits[MapWaitOutcome::Late].inc();
            return false;
        }
        true
    }

    /// Counts an open that was answered after all.
    pub(crate) fn note_agreement(&self, between: &MapAgreementWait) {
        if between.until.is_some() {
            self.asker.metrics.map_waits[MapWaitOutcome::Agreed].inc();
        }
    }
}

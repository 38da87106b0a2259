//! Holds the write notices that wait for workers, and wakes the renewals that carry them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use verbs3_coordinator_client::api::{HeardWord, RelayedWord};
use verbs3_protocol::{NoticeAnswer, NoticeRelayOutcome, TenantNotice, WorkerId};

use crate::metrics::{CoordinatorMetrics, RelayResult};
use crate::relay_queues::{RelayQueueFull, RelayQueues};
use crate::settings::CoordinatorSettings;

/// Below this number of notifiers, unused ones are not removed.
const BELLS_MIN: usize = 64;

/// Waiting notices, and notifiers that wake workers' waiting renewals.
pub(crate) struct RelayDispatcher {
    relays: Mutex<RelayQueues<oneshot::Sender<NoticeAnswer>>>,
    bells: Mutex<RenewalNotifiers>,
    metrics: CoordinatorMetrics,
}

/// One notifier for each worker whose renewal waits.
#[derive(Default)]
struct RenewalNotifiers {
    bells: HashMap<WorkerId, Weak<Notify>>,
    /// Number of notifiers from which unused ones are removed.
    sweep_at: usize,
}

impl RelayDispatcher {
    pub(crate) fn new(settings: &CoordinatorSettings, metrics: CoordinatorMetrics) -> Self {
        Self {
            relays: Mutex::new(RelayQueues::new(settings, rand::random())),
            bells: Mutex::default(),
            metrics,
        }
    }

    /// Returns a notifier that fires when the worker has notices. Call this before looking for
    /// notices, or one may be missed.
    pub(crate) fn renewal_notifier(&self, worker: &WorkerId) -> Arc<Notify> {
        let RenewalNotifiers { bells, sweep_at } = &mut *self.bells.lock();
        if let Some(bell) = bells.get(worker).and_then(Weak::upgrade) {
            return bell;
        }
        if bells.len() >= *sweep_at {
            bells.retain(|_, bell| bell.strong_count() > 0);
            *sweep_at = 2 * bells.len() + BELLS_MIN;
        }
        let bell = Arc::new(Notify::new());
        bells.insert(worker.clone(), Arc::downgrade(&bell));
        bell
    }

    pub(crate) fn deliver_answers(&self, worker: &WorkerId, heard: Vec<HeardWord>) {
        let told = self.update_relays(|relays| relays.take_answers(worker, heard));
        for (asker, heard) in told {
            // A client that has gone meanwhile asks again if it needs the answer.
            let _ = asker.send(heard);
        }
    }

    pub(crate) fn hand_out(&self, worker: &WorkerId) -> Vec<RelayedWord> {
        self.relays.lock().hand_out(worker)
    }

    /// Dismisses all waiting clients.
    pub(crate) fn clear_relays(&self) {
        self.update_relays(RelayQueues::clear);
    }

    fn update_relays<T>(
        &self,
        change: impl FnOnce(&mut RelayQueues<oneshot::Sender<NoticeAnswer>>) -> T,
    ) -> T {
        let mut relays = self.relays.lock();
        let changed = change(&mut relays);
        let (words, bytes) = relays.queued_size();
        self.metrics.relays_waiting.set(i64::try_from(words).unwrap_or(i64::MAX));
        self.metrics.relays_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        changed
    }

    /// Relays a notice. Returns `None` if this coordinator no longer leads.
    pub(crate) async fn dispatch_word(
        &self,
        worker: &WorkerId,
        notice: TenantNotice,
        wait: Duration,
    ) -> Option<NoticeRelayOutcome> {
        let (asker, answer) = oneshot::channel();
        let id = match self.update_relays(|relays| relays.enqueue_word(worker, notice, asker)) {
            Ok(id) => id,
            Err(RelayQueueFull) => return Some(NoticeRelayOutcome::Full),
        };
        // Withdraws the notice also when the client hangs up.
        let _withdrawn = RelayWithdrawGuard { desk: self, worker, id };
        if let Some(bell) = self.bells.lock().bells.get(worker).and_then(Weak::upgrade) {
            bell.notify_one();
        }
        match tokio::time::timeout(wait, answer).await {
            Ok(Ok(heard)) => Some(NoticeRelayOutcome::Heard(heard)),
            Ok(Err(_)) => None,
            Err(_) => Some(NoticeRelayOutcome::Silent),
        }
    }

    /// Counts what became of a notice that was to be relayed.
    pub(crate) fn count_outcome(&self, relayed: &NoticeRelayOutcome) {
        self.metrics.relays[relay_outcome(relayed)].inc();
    }
}

fn relay_outcome(relayed: &NoticeRelayOutcome) -> RelayResult {
    match relayed {
        NoticeRelayOutcome::Heard(NoticeAnswer::Done) => RelayResult::Done,
        NoticeRelayOutcome::Heard(NoticeAnswer::Unleased) => RelayResult::Unleased,
        NoticeRelayOutcome::Heard(NoticeAnswer::Refused(_)) => RelayResult::Refused,
        NoticeRelayOutcome::Silent => RelayResult::Silent,
        NoticeRelayOutcome::NoLease => RelayResult::NoLease,
        NoticeRelayOutcome::OtherEpoch(_) => RelayResult::OtherMap,
        NoticeRelayOutcome::Full => RelayResult::Full,
    }
}

struct RelayWithdrawGuard<'a> {
    desk: &'a RelayDispatcher,
    worker: &'a WorkerId,
    id: u64,
}

impl Drop for RelayWithdrawGuard<'_> {
    fn drop(&mut self) {
        self.desk.update_relays(|relays| relays.withdraw_word(self.worker, self.id));
    }
}

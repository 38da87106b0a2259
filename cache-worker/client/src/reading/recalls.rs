//! Polls homes for their recalls: one question at a time to each home that grants this process
//! leases, or would.
//!
//! Polls nobody until a home says that it grants leases. If a home does not answer, no new lease is
//! asked of it, and those held expire by themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use verbs3_pacing::GrowingPause;
use verbs3_protocol::{RECALLS_WAIT_MS, RecallPollMessage, RecallReply};

use crate::asking::single_answer::{AnswerPatience, EncodedQuestion, ask};
use crate::asking::worker::TierWorker;
use crate::asking::worker_asker::WorkerAsker;
use crate::metrics::{CallKind, CallOutcome, LeaseEvent};
use crate::reading::lease_table::{PolledHome, TierLeaseTable};

/// A home is polled no more if it has had nothing to do with leases for this long.
const IDLE: Duration = Duration::from_secs(30);
/// Pause after a poll that was not answered; doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Polls the homes whose leases this process holds, or would.
pub(crate) struct RecallFollower {
    pub(crate) asker: Arc<WorkerAsker>,
    pub(crate) leases: Arc<TierLeaseTable>,
}

impl RecallFollower {
    /// Polls a home that grants leases from now on, as long as leases are in use.
    pub(crate) fn follow_recalls(self: &Arc<Self>, home: &Arc<TierWorker>) {
        let leases = &self.leases;
        let now = (leases.clock)();
        let mut homes = leases.homes.lock();
        match homes.get(&home.id) {
            Some(polled) if Arc::ptr_eq(&polled.home, home) => return polled.note_use(now),
            Some(polled) => polled.replaced.store(true, Ordering::SeqCst),
            None => {}
        }
        let polled = Arc::new(PolledHome::new(home.clone(), now));
        homes.insert(home.id.clone(), polled.clone());
        self.asker.metrics.lease_homes.set(homes.len() as i64);
        drop(homes);
        let (follower, stop) = (self.clone(), leases.stop.clone());
        // Ends by itself, or with the tier. The home waits for recalls that were not acknowledged.
        let polling = async move {
            stop.run_until_cancelled(follower.poll_recalls(&polled)).await;
            let mut homes = follower.leases.homes.lock();
            if homes.get(&polled.home.id).is_some_and(|known| Arc::ptr_eq(known, &polled)) {
                homes.remove(&polled.home.id);
            }
            follower.asker.metrics.lease_homes.set(homes.len() as i64);
        };
        // The calling thread may serve one connection and nothing else.
        match &leases.runtime {
            Some(runtime) => drop(self.asker.tasks.spawn_on(polling, runtime)),
            None => drop(self.asker.tasks.spawn(polling)),
        }
    }

    async fn poll_recalls(&self, polled: &PolledHome) {
        let home = &polled.home;
        let wanted = || (self.leases.clock)().saturating_sub(polled.last_use()) < IDLE;
        let patience =
            Duration::from_millis(RECALLS_WAIT_MS) + self.asker.options.settings.first_progress.0;
        let (mut life, mut through) = (0, 0);
        let mut pause = GrowingPause::new(PAUSE_MIN, PAUSE_MAX);
        while wanted() && !polled.replaced.load(Ordering::SeqCst) {
            let poll = RecallPollMessage { holder: self.leases.holder, life, through };
            let until = AnswerPatience::Until(Instant::now() + patience);
            match ask(home, &EncodedQuestion::new(poll), until).await {
                Ok(recalled) => {
                    // Drop first: the next poll acknowledges these recalls.
                    self.drop_recalled(&recalled, life);
                    (life, through) = (recalled.life, recalled.through);
                    pause.reset_pause();
                    polled.live.store(true, Ordering::SeqCst);
                    self.asker.metrics.count_call(CallKind::Recalls, CallOutcome::Ok);
                }
                Err(error) => {
                    polled.live.store(false, Ordering::SeqCst);
                    self.asker.metrics.count_call(CallKind::Recalls, error.call_outcome());
                    tracing::debug!(
                        worker = %home.id, %error,
                        "a home does not say what it recalls"
                    );
                    sleep(pause.next_pause()).await;
                }
            }
        }
    }

    fn drop_recalled(&self, recalled: &RecallReply, life: u64) {
        if recalled.all || (life != 0 && life != recalled.life) {
            self.leases.drop_all();
            self.asker.metrics.leases[LeaseEvent::RecalledAll].inc();
        }
        for hash in &recalled.keys {
            self.asker.metrics.leases[LeaseEvent::Recalled].inc();
            self.leases.drop_keys([*hash]);
        }
        self.asker.metrics.leases_held.set(i64::try_from(self.leases.len()).unwrap_or(i64::MAX));
    }
}

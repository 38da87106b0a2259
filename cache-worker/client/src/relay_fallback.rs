//! The way around to a home that this process can't reach: the coordinators have it hear
//! announcements and reports by the renewals of its lease.
//!
//! Owns when that way is taken, and how much is on it at once. It changes nothing of what counts:
//! only the home's own word that it has noted the write, under the epoch of the message, does;
//! whoever carried it. A message may go both ways, and may arrive twice, which is harmless: see
//! [`crate::write`]. A home that the coordinators don't reach either loses its lease, and the next
//! map is without it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use verbs3_protocol::{
    NoticeAnswer, NoticeRelayOutcome, RefusalKind, WorkerId, WorkerRefusal, WriteNotice,
};

use crate::tier::CacheTierClient;
use crate::worker_map::TierWorker;
use crate::write_announcement::{
    CoherenceError, HomeAcknowledgement, HomeLifeSigns, REPORT, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};

/// Longest wait of one question for the home's answer; then it is put again, to whoever leads by
/// then.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Of [`TierRelayOptions::after`], where the worker rests: so long it may still answer before others
/// are asked to help.
const RESTING_PART: u32 = 20;

/// Who speaks with the coordinators.
#[async_trait]
pub trait NoticeRelay: Send + Sync + 'static {
    /// Has a worker hear a word, and waits for its answer for about `wait`. May be cancelled at any
    /// time.
    async fn relay_notice(
        &self,
        worker: &WorkerId,
        word: &WriteNotice,
        wait: Duration,
    ) -> Result<NoticeRelayOutcome, RelayError>;
}

/// No coordinator has said anything.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the coordinators can't be asked: {0}")]
pub struct RelayError(pub String);

/// Bounds of telling homes by way of the coordinators.
#[derive(Debug, Clone, Copy)]
pub struct TierRelayOptions {
    /// How long a home may be silent before the coordinators are asked as well.
    pub after: Duration,
    /// Messages that are relayed at once; others wait for their turn, and for the home.
    pub relays_max: usize,
}

/// The way around, where there is one.
pub(crate) struct RelayFallback {
    relay: Arc<dyn NoticeRelay>,
    options: TierRelayOptions,
    places: Semaphore,
    /// Homes that were reached this way, and have not been directly since.
    around: Mutex<HashSet<WorkerId>>,
    /// Whether there are any.
    any: AtomicBool,
}

impl RelayFallback {
    /// The home has answered by itself.
    fn note_direct_answer(&self, worker: &WorkerId) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut around = self.around.lock();
        if around.remove(worker) {
            tracing::info!(%worker, "a worker can be told of writes directly again");
        }
        self.any.store(!around.is_empty(), Ordering::Relaxed);
    }

    /// Whether this is news.
    fn went_around(&self, worker: &WorkerId) -> bool {
        let new = self.around.lock().insert(worker.clone());
        self.any.store(true, Ordering::Relaxed);
        new
    }
}

impl CacheTierClient {
    /// From here on, homes that can't be reached are told of writes by way of the coordinators.
    /// Once; only of use where the map is theirs.
    pub fn relay_with(&self, relay: Arc<dyn NoticeRelay>, options: TierRelayOptions) {
        if !self.options.coordinated || options.relays_max == 0 {
            return;
        }
        let (around, any) = (Mutex::default(), AtomicBool::new(false));
        let places = Semaphore::new(options.relays_max.min(Semaphore::MAX_PERMITS));
        let _ = self.relaying.set(RelayFallback { relay, options, places, around, any });
    }

    /// Tells a home until it has acknowledged; gives up as soon as there is another map.
    /// `by_relay`: set if that was by way of the coordinators.
    pub(crate) async fn tell_home(
        &self,
        kind: &'static str,
        worker: &Arc<TierWorker>,
        word: &WriteNotice,
        until: Instant,
        by_relay: &AtomicBool,
    ) -> Result<HomeAcknowledgement, CoherenceError> {
        let (message, epoch) = (word.to_request().encode(), word.map_epoch());
        let Some(relaying) = self.relaying.get() else {
            return self.tell_worker(kind, worker, message, until, Some(epoch)).await;
        };
        let mut epochs = self.epochs.subscribe();
        let (last, signs) = (Mutex::new(None), HomeLifeSigns::default());
        let either = async {
            let directly = self.tell_on(kind, worker, message, until, &signs);
            let around = async {
                let told = self.tell_around(relaying, kind, (worker, word), (&signs, &last)).await;
                by_relay.fetch_or(told.is_ok(), Ordering::Relaxed);
                told
            };
            tokio::pin!(around);
            let failed = tokio::select! {
                biased;
                told = directly => match told {
                    Err(CoherenceError::HomeUnreachable { reason, .. }) => reason,
                    told => {
                        relaying.note_direct_answer(&worker.id);
                        return told;
                    }
                },
                told = &mut around => return told,
            };
            // Directly, the last pause would have been longer than what is left.
            timeout_at(until, around).await.unwrap_or_else(|_| {
                let around =
                    last.lock().take().unwrap_or_else(|| "it was not asked in time".to_owned());
                let reason = format!("{failed}; by way of the coordinators: {around}");
                Err(CoherenceError::HomeUnreachable { worker: worker.id.clone(), reason })
            })
        };
        tokio::select! {
            biased;
            told = either => told,
            // What is on its way may still arrive, and is harmless.
            _ = epochs.wait_for(|now| *now != epoch) => Err(CoherenceError::Moved { worker: worker.id.clone() }),
        }
    }

    /// Tries until the home has answered; not while it shows directly that it is at work. `last`:
    /// why it has not.
    async fn tell_around(
        &self,
        relaying: &RelayFallback,
        kind: &'static str,
        (worker, word): (&Arc<TierWorker>, &WriteNotice),
        (signs, last): (&HomeLifeSigns, &Mutex<Option<String>>),
    ) -> Result<HomeAcknowledgement, CoherenceError> {
        let after = relaying.options.after;
        sleep(if worker.health.is_up() { after } else { after / RESTING_PART }).await;
        while let Some(live) = signs.live_until().filter(|live| *live > Instant::now()) {
            sleep_until(live).await;
        }
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let relayed = {
                // For one question alone: what is for other homes has its turn after it, though
                // this one stays silent.
                let _place = relaying.places.acquire().await;
                let _relaying = self.metrics.track_relay();
                relaying.relay.relay_notice(&worker.id, word, WAIT_MAX).await
            };
            let (outcome, reason) = describe_outcome(&relayed);
            self.metrics.count_relay(kind, outcome);
            match relayed {
                // It has no place for a write of which it knew nothing, or gateways hold leases on
                // its keys, for a moment: as where it says so itself.
                Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(WorkerRefusal {
                    kind: RefusalKind::Busy,
                    reason,
                }))) if kind == REPORT => {
                    *last.lock() = Some(reason);
                }
                Ok(NoticeRelayOutcome::Heard(heard)) => {
                    return self.heard_around(relaying, kind, worker, heard);
                }
                Ok(NoticeRelayOutcome::OtherEpoch(_)) => {
                    return Err(CoherenceError::OtherMap { worker: worker.id.clone(), reason });
                }
                Ok(
                    NoticeRelayOutcome::Silent
                    | NoticeRelayOutcome::NoLease
                    | NoticeRelayOutcome::Full,
                )
                | Err(_) => *last.lock() = Some(reason),
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    fn heard_around(
        &self,
        relaying: &RelayFallback,
        kind: &'static str,
        worker: &Arc<TierWorker>,
        heard: NoticeAnswer,
    ) -> Result<HomeAcknowledgement, CoherenceError> {
        // It lives, and this process does not reach it.
        self.note_failure(worker);
        if relaying.went_around(&worker.id) {
            tracing::warn!(
                worker = %worker.id,
                "a worker that can't be reached from here is told of writes by way of the \
                coordinators, which takes longer; see to the network between this host and it"
            );
        }
        match heard {
            NoticeAnswer::Done => Ok(HomeAcknowledgement::Leased),
            NoticeAnswer::Unleased => Ok(HomeAcknowledgement::Unleased),
            NoticeAnswer::Refused(refusal) => Err(self.refusal_error(worker, kind, refusal)),
        }
    }
}

/// For the metrics, and for people.
fn describe_outcome(relayed: &Result<NoticeRelayOutcome, RelayError>) -> (&'static str, String) {
    match relayed {
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Done)) => ("done", String::new()),
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Unleased)) => ("unleased", String::new()),
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(refusal))) => {
            ("refused", refusal.reason.clone())
        }
        Ok(NoticeRelayOutcome::Silent) => {
            ("silent", "the worker did not answer them in time".to_owned())
        }
        Ok(NoticeRelayOutcome::NoLease) => {
            ("no_lease", "the worker has no lease; the next map will be without it".to_owned())
        }
        Ok(NoticeRelayOutcome::OtherEpoch(epoch)) => {
            ("other_map", format!("the map in force has epoch {}", epoch.0))
        }
        Ok(NoticeRelayOutcome::Full) => (
            "full",
            "they relay as many messages, or bytes of them, as they may (coordinator.relays_max, \
            coordinator.relays_memory)"
                .to_owned(),
        ),
        Err(error) => ("away", error.to_string()),
    }
}

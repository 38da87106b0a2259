//! Owns the fallback to a home that this process can't reach: the coordinators pass it
//! announcements and reports with the renewals of its lease. Decides when to take this way, and how
//! much is on it at once.
//!
//! The rules of coherence stay the same. Only the home's own acknowledgement counts, under the
//! epoch of the message, whoever carried it. A message may go both ways and arrive twice, which is
//! harmless: see [`crate::write_announcement`]. A home that the coordinators can't reach either
//! loses its lease, and is not in the next map.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use verbs3_metrics::GaugeGuard;
use verbs3_protocol::{
    NoticeAnswer, NoticeRelayOutcome, RefusalKind, WorkerId, WorkerRefusal, WriteNotice,
};

use crate::metrics::{CallKind, RelayOutcome, RelayedNotice};
use crate::tier::CacheTierClient;
use crate::worker_map::TierWorker;
use crate::write_announcement::{
    CoherenceError, HomeAcknowledgement, HomeLifeSigns, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};

/// Longest wait of one question for the home's answer. Then it is asked again, of whoever leads by
/// then.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The wait before the relay, for a resting worker: [`TierRelayOptions::after`] divided by this.
const RESTING_PART: u32 = 20;

/// The connection to the coordinators.
#[async_trait]
pub trait NoticeRelay: Send + Sync + 'static {
    /// Has a worker receive a notice, and waits for its answer for about `wait`. May be cancelled
    /// at any time.
    async fn relay_notice(
        &self,
        worker: &WorkerId,
        word: &WriteNotice,
        wait: Duration,
    ) -> Result<NoticeRelayOutcome, RelayError>;
}

/// No coordinator has answered.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the coordinators can't be asked: {0}")]
pub struct RelayError(pub String);

/// Bounds of the relay through the coordinators.
#[derive(Debug, Clone, Copy)]
pub struct TierRelayOptions {
    /// How long a home may be silent before the coordinators are asked as well.
    pub after: Duration,
    /// Most messages relayed at once. Others wait for their turn, and still try the home directly.
    pub relays_max: usize,
}

/// The relay through the coordinators, where there is one.
pub(crate) struct RelayFallback {
    relay: Arc<dyn NoticeRelay>,
    options: TierRelayOptions,
    places: Semaphore,
    /// Homes that the relay has reached, and that have not answered directly since.
    around: Mutex<HashSet<WorkerId>>,
    /// True if `around` has any home.
    any: AtomicBool,
}

impl RelayFallback {
    /// Notes that the home has answered by itself.
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

    /// Notes that a home was reached by the relay. Returns whether this is new.
    fn went_around(&self, worker: &WorkerId) -> bool {
        let new = self.around.lock().insert(worker.clone());
        self.any.store(true, Ordering::Relaxed);
        new
    }
}

impl CacheTierClient {
    /// Has the coordinators relay notices to homes that can't be reached. Call it once. Has an
    /// effect only where the map comes from coordinators.
    pub fn relay_with(&self, relay: Arc<dyn NoticeRelay>, options: TierRelayOptions) {
        if !self.options.coordinated || options.relays_max == 0 {
            return;
        }
        let (around, any) = (Mutex::default(), AtomicBool::new(false));
        let places = Semaphore::new(options.relays_max.min(Semaphore::MAX_PERMITS));
        let _ = self.relaying.set(RelayFallback { relay, options, places, around, any });
    }

    /// Tells a home until it has acknowledged. Gives up as soon as there is another map. Sets
    /// `by_relay` if the coordinators carried the acknowledged message.
    pub(crate) async fn tell_home(
        &self,
        kind: CallKind,
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
            // The direct way gave up because its next pause would pass the deadline.
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
            // A message on its way may still arrive, and is harmless.
            _ = epochs.wait_for(|now| *now != epoch) => Err(CoherenceError::Moved { worker: worker.id.clone() }),
        }
    }

    /// Relays until the home has answered, and waits while the home shows directly that it is at
    /// work. `last` receives the reason of the last failure.
    async fn tell_around(
        &self,
        relaying: &RelayFallback,
        kind: CallKind,
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
                // A place is held for one question alone. Messages to other homes get their turn
                // even if this home stays silent.
                let _place = relaying.places.acquire().await;
                let _relaying = GaugeGuard::add_to(&self.metrics.relaying, 1);
                relaying.relay.relay_notice(&worker.id, word, WAIT_MAX).await
            };
            let (outcome, reason) = describe_outcome(&relayed);
            let notice = match word {
                WriteNotice::Announce(_) => RelayedNotice::Announce,
                WriteNotice::Report(_) => RelayedNotice::Report,
            };
            self.metrics.relays[(notice, outcome)].inc();
            match relayed {
                // The home has no room for a write that it did not know of, or waits for gateways
                // to drop leases. Both last a moment; a direct refusal is repeated likewise.
                Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(WorkerRefusal {
                    kind: RefusalKind::Busy,
                    reason,
                }))) if kind == CallKind::Report => {
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
        kind: CallKind,
        worker: &Arc<TierWorker>,
        heard: NoticeAnswer,
    ) -> Result<HomeAcknowledgement, CoherenceError> {
        // The home lives, but this process does not reach it.
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

/// Returns the outcome's metric label, and a reason for people.
fn describe_outcome(relayed: &Result<NoticeRelayOutcome, RelayError>) -> (RelayOutcome, String) {
    match relayed {
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Done)) => (RelayOutcome::Done, String::new()),
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Unleased)) => {
            (RelayOutcome::Unleased, String::new())
        }
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(refusal))) => {
            (RelayOutcome::Refused, refusal.reason.clone())
        }
        Ok(NoticeRelayOutcome::Silent) => {
            (RelayOutcome::Silent, "the worker did not answer them in time".to_owned())
        }
        Ok(NoticeRelayOutcome::NoLease) => (
            RelayOutcome::NoLease,
            "the worker has no lease; the next map will be without it".to_owned(),
        ),
        Ok(NoticeRelayOutcome::OtherEpoch(epoch)) => {
            (RelayOutcome::OtherMap, format!("the map in force has epoch {}", epoch.0))
        }
        Ok(NoticeRelayOutcome::Full) => (
            RelayOutcome::Full,
            "they relay as many messages, or bytes of them, as they may (coordinator.relays_max, \
            coordinator.relays_memory)"
                .to_owned(),
        ),
        Err(error) => (RelayOutcome::Away, error.to_string()),
    }
}

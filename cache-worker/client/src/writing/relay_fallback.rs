//! Owns the fallback to a home that this process can't reach: the coordinators pass it
//! announcements and reports with the renewals of its lease. Decides when to take this way, and how
//! much is on it at once.
//!
//! The rules of coherence stay the same. Only the home's own acknowledgement counts, under the
//! epoch of the message, whoever carried it. A message may go both ways and arrive twice, which is
//! harmless: see [`crate::writing::write_announcement`]. A home that the coordinators can't reach
//! either loses its lease, and is not in the next map.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use verbs3_metrics::{GaugeGuard, MetricLabel};
use verbs3_protocol::{
    NoticeAnswer, NoticeRelayOutcome, RefusalKind, TenantNotice, WorkerId, WorkerRefusal,
    WriteLeaseState,
};

use crate::asking::news_delivery::{HomeLifeSigns, RETRY_PAUSES};
use crate::asking::single_answer::{EncodedQuestion, QuestionError};
use crate::asking::worker::TierWorker;
use crate::asking::worker_asker::WorkerAsker;
use crate::metrics::{CallKind, RelayOutcome, RelayedKind};
use crate::options::TierOptions;
use crate::writing::coherence_error::{
    CoherenceError, HomeSilence, MapDisagreement, RelayError, RelayFailure,
};

/// Longest wait of one question for the home's answer. Then it is asked again, of whoever leads by
/// then.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The wait before the relay, for a resting worker: `relay_after` divided by this.
const RESTING_PART: u32 = 20;

/// The connection to the coordinators.
#[async_trait]
pub trait NoticeRelay: Send + Sync + 'static {
    /// Has a worker receive a notice, and waits for its answer for about `wait`. May be cancelled
    /// at any time.
    async fn relay_notice(
        &self,
        worker: &WorkerId,
        notice: &TenantNotice,
        wait: Duration,
    ) -> Result<NoticeRelayOutcome, RelayError>;
}

/// The relay through the coordinators, where there is one.
pub(crate) struct RelayFallback {
    relay: Arc<dyn NoticeRelay>,
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

/// Tells homes of writes, directly or by way of the coordinators.
pub(crate) struct NoticeCourier {
    asker: Arc<WorkerAsker>,
    /// The relay to homes that can't be reached from here.
    relaying: OnceLock<RelayFallback>,
}

impl NoticeCourier {
    pub(crate) fn new(asker: Arc<WorkerAsker>) -> Self {
        Self { asker, relaying: OnceLock::new() }
    }

    /// Has the coordinators relay notices to homes that can't be reached. Call it once. Has an
    /// effect only where the map comes from coordinators.
    pub(crate) fn relay_with(&self, relay: Arc<dyn NoticeRelay>) {
        let TierOptions { settings, coordinated, .. } = &self.asker.options;
        if !coordinated || settings.relays_max == 0 {
            return;
        }
        let (around, any) = (Mutex::default(), AtomicBool::new(false));
        let places = Semaphore::new(settings.relays_max as usize);
        let _ = self.relaying.set(RelayFallback { relay, places, around, any });
    }

    /// Tells a home of a tenant's write until it has acknowledged. Where maps change, gives up as
    /// soon as there is another map than the notice's. Sets `by_relay` if the coordinators carried the acknowledged
    /// message.
    pub(crate) async fn tell_home(
        &self,
        worker: &Arc<TierWorker>,
        notice: &TenantNotice,
        until: Instant,
        by_relay: &AtomicBool,
    ) -> Result<WriteLeaseState, CoherenceError> {
        let told = self.tell_either_way(worker, notice, until, by_relay);
        if !self.asker.options.coordinated {
            return told.await;
        }
        let mut epochs = self.asker.placement.watch_epochs();
        tokio::select! {
            biased;
            told = told => told,
            // A message that was sent may still arrive, and is harmless: see
            // `crate::writing::write_announcement`.
            _ = epochs.wait_for(|now| *now != notice.word.map_epoch()) => {
                Err(CoherenceError::Moved { worker: worker.id.clone() })
            }
        }
    }

    async fn tell_either_way(
        &self,
        worker: &Arc<TierWorker>,
        notice: &TenantNotice,
        until: Instant,
        by_relay: &AtomicBool,
    ) -> Result<WriteLeaseState, CoherenceError> {
        let question = EncodedQuestion::for_tenant(notice.word.clone(), notice.tenant);
        let signs = HomeLifeSigns::default();
        let kind = question.kind;
        let directly = self.asker.deliver(worker, &question, until, &signs);
        let unreachable = |cause: HomeSilence| {
            let (worker, cause) = (worker.id.clone(), Box::new(cause));
            Err(CoherenceError::HomeUnreachable { worker, cause })
        };
        let Some(relaying) = self.relaying.get() else {
            return match directly.await {
                Ok(hold) => Ok(hold),
                Err(QuestionError::Refused(refusal)) => {
                    Err(self.refusal_error(worker, kind, refusal))
                }
                Err(error) => unreachable(HomeSilence::Directly(error)),
            };
        };
        let around = RelayedNotice { worker, notice, kind, signs: &signs, last: Mutex::default() };
        let relayed = async {
            let told = self.tell_around(relaying, &around).await;
            by_relay.fetch_or(told.is_ok(), Ordering::Relaxed);
            told
        };
        tokio::pin!(relayed);
        let failed = tokio::select! {
            biased;
            told = directly => match told {
                Ok(hold) => {
                    relaying.note_direct_answer(&worker.id);
                    return Ok(hold);
                }
                Err(QuestionError::Refused(refusal)) => {
                    relaying.note_direct_answer(&worker.id);
                    return Err(self.refusal_error(worker, kind, refusal));
                }
                Err(error) => error,
            },
            told = &mut relayed => return told,
        };
        // The direct way gave up because its next pause would pass the deadline.
        timeout_at(until, relayed).await.unwrap_or_else(|_| {
            let relayed = around.last.lock().take().unwrap_or(RelayFailure::NotAsked);
            unreachable(HomeSilence::BothWays { directly: failed, relayed })
        })
    }

    /// Relays until the home has answered, and waits while the home shows directly that it is at
    /// work.
    async fn tell_around(
        &self,
        relaying: &RelayFallback,
        relayed: &RelayedNotice<'_>,
    ) -> Result<WriteLeaseState, CoherenceError> {
        let RelayedNotice { worker, notice, kind, signs, last } = relayed;
        let after = self.asker.options.settings.relay_after.0;
        sleep(if worker.health.is_up() { after } else { after / RESTING_PART }).await;
        while let Some(live) = signs.live_until().filter(|live| *live > Instant::now()) {
            sleep_until(live).await;
        }
        let mut pause = RETRY_PAUSES;
        loop {
            let answered = {
                // A place is held for one question alone. Messages to other homes get their turn
                // even if this home stays silent.
                let _place = relaying.places.acquire().await;
                let _relaying = GaugeGuard::add_to(&self.asker.metrics.relaying, 1);
                relaying.relay.relay_notice(&worker.id, notice, WAIT_MAX).await
            };
            let outcome = relay_outcome(&answered);
            self.asker.metrics.relays[(RelayedKind::of_notice(&notice.word), outcome)].inc();
            let failed = match answered {
                // The home has no room for a write that it did not know of, or waits for gateways
                // to drop leases. Both last a moment; a direct refusal is repeated likewise.
                Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(refusal)))
                    if *kind == CallKind::Report && refusal.kind == RefusalKind::Busy =>
                {
                    refusal.into()
                }
                Ok(NoticeRelayOutcome::Heard(heard)) => {
                    return self.heard_around(relaying, relayed, heard);
                }
                Ok(NoticeRelayOutcome::OtherEpoch(epoch)) => {
                    let cause = MapDisagreement::InForce(epoch);
                    return Err(CoherenceError::OtherMap { worker: worker.id.clone(), cause });
                }
                Ok(NoticeRelayOutcome::Silent) => RelayFailure::Silent,
                Ok(NoticeRelayOutcome::NoLease) => RelayFailure::NoLease,
                Ok(NoticeRelayOutcome::Full) => RelayFailure::Full,
                Err(error) => error.into(),
            };
            *last.lock() = Some(failed);
            sleep(pause.next_pause()).await;
        }
    }

    fn heard_around(
        &self,
        relaying: &RelayFallback,
        notice: &RelayedNotice<'_>,
        heard: NoticeAnswer,
    ) -> Result<WriteLeaseState, CoherenceError> {
        let worker = notice.worker;
        // The home lives, but this process does not reach it.
        self.asker.note_failure(worker);
        if relaying.went_around(&worker.id) {
            tracing::warn!(
                worker = %worker.id,
                "a worker that can't be reached from here is told of writes by way of the \
                coordinators, which takes longer; see to the network between this host and it"
            );
        }
        match heard {
            NoticeAnswer::Done => Ok(WriteLeaseState::Leased),
            NoticeAnswer::Unleased => Ok(WriteLeaseState::Unleased),
            NoticeAnswer::Refused(refusal) => Err(self.refusal_error(worker, notice.kind, refusal)),
        }
    }

    /// Translates a refusal. Where maps change, the next map may be worth another try.
    fn refusal_error(
        &self,
        worker: &TierWorker,
        kind: CallKind,
        refusal: WorkerRefusal,
    ) -> CoherenceError {
        let worker = worker.id.clone();
        if self.asker.options.coordinated
            && matches!(refusal.kind, RefusalKind::WrongEpoch(_) | RefusalKind::NoLease)
        {
            return CoherenceError::OtherMap { worker, cause: MapDisagreement::Refused(refusal) };
        }
        CoherenceError::HomeRefused { worker, what: kind.label_text(), refusal }
    }
}

/// A notice on its way to a home by way of the coordinators.
struct RelayedNotice<'a> {
    worker: &'a Arc<TierWorker>,
    notice: &'a TenantNotice,
    kind: CallKind,
    /// What the home shows directly meanwhile.
    signs: &'a HomeLifeSigns,
    last: Mutex<Option<RelayFailure>>,
}

/// Returns the outcome as metrics count it.
fn relay_outcome(relayed: &Result<NoticeRelayOutcome, RelayError>) -> RelayOutcome {
    match relayed {
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Done)) => RelayOutcome::Done,
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Unleased)) => RelayOutcome::Unleased,
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(_))) => RelayOutcome::Refused,
        Ok(NoticeRelayOutcome::Silent) => RelayOutcome::Silent,
        Ok(NoticeRelayOutcome::NoLease) => RelayOutcome::NoLease,
        Ok(NoticeRelayOutcome::OtherEpoch(_)) => RelayOutcome::OtherMap,
        Ok(NoticeRelayOutcome::Full) => RelayOutcome::Full,
        Err(_) => RelayOutcome::Away,
    }
}

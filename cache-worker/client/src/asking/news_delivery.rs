//! Delivers news to a worker: once, or until the worker has acknowledged them.
//!
//! News may arrive more than once. Whoever sends them says why that is harmless.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use verbs3_metrics::MetricLabel;
use verbs3_pacing::GrowingPause;
use verbs3_protocol::{
    ForgetMessage, HomeAcknowledgement, ObjectKey, ObjectVolume, RefusalKind, WorkerQuestion,
    WorkerRefusal, WriteLeaseState,
};

use crate::asking::piecewise_answer::AttemptError;
use crate::asking::single_answer::{
    AnswerPatience, EncodedQuestion, QuestionError, SentQuestion, ask,
};
use crate::asking::worker::{REPEATS_MAX, TierWorker};
use crate::asking::worker_asker::WorkerAsker;
use crate::metrics::{CallKind, CallOutcome};

/// Pauses between two tries of the same message.
pub(crate) const RETRY_PAUSES: GrowingPause =
    GrowingPause::new(Duration::from_millis(25), RETRY_PAUSE_MAX);
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Longest time between two signs of life of a home, which sends one every 500 ms.
const SIGN_EVERY_MAX: Duration = Duration::from_secs(1);

impl WorkerAsker {
    /// Sends one message until it is acknowledged or refused; it may arrive more than once. A
    /// resting worker is asked, too: whether a write may go on is worth a try. Notes the worker's
    /// signs of life.
    pub(crate) async fn deliver<Q: WorkerQuestion<Answer = HomeAcknowledgement>>(
        &self,
        worker: &Arc<TierWorker>,
        news: &EncodedQuestion<Q>,
        until: Instant,
        signs: &HomeLifeSigns,
    ) -> Result<WriteLeaseState, QuestionError> {
        let kind = news.kind;
        let mut pause = RETRY_PAUSES;
        let mut repeats = 0;
        loop {
            let patience = AnswerPatience::Until(until);
            let answer = SentQuestion::new(worker, news)
                .wait_for_answer(patience, || signs.note_sign())
                .await;
            // The call is over before any pause: it holds what the worker sends.
            let error = match answer {
                Ok(acknowledged) => {
                    worker.health.note_success();
                    self.metrics.count_call(kind, CallOutcome::Ok);
                    return Ok(acknowledged.hold);
                }
                Err(QuestionError::Refused(refusal)) => {
                    worker.health.note_success();
                    self.metrics.count_call(kind, CallOutcome::Refused);
                    // The home has no room for a write that it did not know of. It may have room in
                    // a moment.
                    if refusal.kind == RefusalKind::Busy
                        && kind == CallKind::Report
                        && Instant::now() + pause.peek_pause() < until
                    {
                        sleep(pause.next_pause()).await;
                        continue;
                    }
                    return Err(QuestionError::Refused(refusal));
                }
                Err(QuestionError::Transport(error))
                    if repeats < REPEATS_MAX && worker.may_be_asked_again(&error) =>
                {
                    repeats += 1;
                    self.note_repeat(kind, worker, &error);
                    continue;
                }
                Err(error) => error,
            };
            self.metrics.count_call(kind, CallOutcome::Failed);
            self.note_failure(worker);
            if Instant::now() + pause.peek_pause() >= until {
                return Err(error);
            }
            sleep(pause.next_pause()).await;
        }
    }

    /// Tells a home something once. If that fails, its readers find out by themselves later.
    pub(crate) async fn tell_once<Q: WorkerQuestion<Answer = HomeAcknowledgement>>(
        &self,
        worker: &Arc<TierWorker>,
        news: Q,
        until: Instant,
    ) {
        let question = EncodedQuestion::new(news);
        let kind = question.kind;
        let answer = ask(worker, &question, AnswerPatience::Until(until)).await;
        self.metrics.count_call(
            kind,
            answer.as_ref().map_or_else(QuestionError::call_outcome, |_| CallOutcome::Ok),
        );
        match answer {
            Ok(_) => worker.health.note_success(),
            Err(QuestionError::Refused(WorkerRefusal { kind: refusal, reason })) => {
                worker.health.note_success();
                tracing::debug!(
                    worker = %worker.id, told = kind.label_text(), ?refusal, reason,
                    "a worker refused what it was told"
                );
            }
            Err(error) => {
                self.note_failure(worker);
                tracing::debug!(
                    worker = %worker.id, told = kind.label_text(), %error,
                    "a worker could not be told"
                );
            }
        }
    }

    /// Has a worker forget keys. Best effort, in the background.
    pub(crate) fn forget_at(
        self: &Arc<Self>,
        worker: Arc<TierWorker>,
        volume: ObjectVolume,
        keys: Vec<String>,
    ) {
        let asker = self.clone();
        // May be cancelled at any time: this kind of invalidation is best effort.
        self.tasks.spawn(async move {
            let forget = EncodedQuestion::new(ForgetMessage { volume, keys });
            let until = Instant::now() + asker.options.settings.announce_deadline.0;
            let signs = HomeLifeSigns::default();
            if let Err(error) = asker.deliver(&worker, &forget, until, &signs).await {
                tracing::warn!(worker = %worker.id, %error, "could not have a worker forget keys");
            }
        });
    }

    /// Notes that a worker failed a call, and logs it once. If the bytes were corrupt, has the
    /// worker drop what it holds of the object.
    pub(crate) fn note_call_failure(
        self: &Arc<Self>,
        kind: CallKind,
        worker: &Arc<TierWorker>,
        object: &ObjectKey,
        error: &AttemptError,
    ) {
        self.metrics.count_call(kind, CallOutcome::Failed);
        let rest = if error.blames_worker() { self.note_failure(worker) } else { None };
        tracing::warn!(
            worker = %worker.id, %object, kind = kind.label_text(), %error,
            rest_ms = rest.map(|rest| rest.as_millis() as u64),
            "a call to a worker failed"
        );
        if let AttemptError::Corrupt { .. } = error {
            self.metrics.checksum_failures.inc();
            self.forget_at(worker.clone(), object.volume.clone(), vec![object.key.clone()]);
        }
    }
}

/// The last sign of life of a home that has not answered yet: it is waiting for gateways to drop
/// their leases.
#[derive(Default)]
pub(crate) struct HomeLifeSigns(Mutex<Option<Instant>>);

impl HomeLifeSigns {
    pub(crate) fn note_sign(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Returns when the next sign is due, if there was one.
    pub(crate) fn live_until(&self) -> Option<Instant> {
        self.0.lock().map(|last| last + SIGN_EVERY_MAX)
    }
}

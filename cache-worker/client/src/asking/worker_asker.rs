//! Owns what all questions to workers share: the map that says whom to ask, the deadlines, the
//! metrics, and what is noted of a worker that fails. Asks the questions with a single answer;
//! opens and reads are asked by `reading`.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use verbs3_metrics::MetricLabel;
use verbs3_protocol::WorkerQuestion;
use verbs3_rdma::transport::TransportError;

use crate::asking::current_map::TierPlacement;
use crate::asking::single_answer::{AnswerPatience, EncodedQuestion, QuestionError, ask};
use crate::asking::worker::{REPEATS_MAX, TierWorker};
use crate::metrics::{CallKind, CallOutcome, TierMetrics};
use crate::options::TierOptions;

pub(crate) struct WorkerAsker {
    pub(crate) options: TierOptions,
    pub(crate) metrics: Arc<TierMetrics>,
    pub(crate) placement: TierPlacement,
    /// Reports, renewals and invalidations that outlive the request which caused them.
    pub(crate) tasks: TaskTracker,
}

impl WorkerAsker {
    /// Asks a worker one question, again where the connection broke. Counts the outcome.
    pub(crate) async fn ask_over_breaks<Q: WorkerQuestion>(
        &self,
        worker: &Arc<TierWorker>,
        question: &EncodedQuestion<Q>,
        patience: AnswerPatience,
    ) -> Result<Q::Answer, QuestionError> {
        let mut repeats = 0;
        loop {
            let answer = ask(worker, question, patience).await;
            if let Err(QuestionError::Transport(error)) = &answer
                && repeats < REPEATS_MAX
                && worker.may_be_asked_again(error)
            {
                repeats += 1;
                self.note_repeat(question.kind, worker, error);
                continue;
            }
            let outcome =
                answer.as_ref().map_or_else(QuestionError::call_outcome, |_| CallOutcome::Ok);
            self.metrics.count_call(question.kind, outcome);
            return answer;
        }
    }

    /// Notes that a question is repeated to the same worker. The peer logs why its connection
    /// broke.
    pub(crate) fn note_repeat(&self, kind: CallKind, worker: &TierWorker, error: &TransportError) {
        self.metrics.repeats[kind].inc();
        tracing::debug!(
            worker = %worker.id, kind = kind.label_text(), %error,
            "asking a worker again over another connection"
        );
    }

    pub(crate) fn note_failure(&self, worker: &TierWorker) -> Option<std::time::Duration> {
        let rest =
            worker.health.note_failure(Instant::now(), &self.options.settings.health_options());
        if rest.is_some() {
            self.metrics.rests.inc();
        }
        rest
    }
}

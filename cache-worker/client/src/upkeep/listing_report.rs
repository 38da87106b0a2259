//! Tells homes what a listing showed, so that nobody keeps reading from attributes that it
//! contradicts.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use verbs3_protocol::{
    HomeAcknowledgement, ListedEntry, ListingMessage, ObjectVolume, WorkerQuestion, WorkerRefusal,
};

use crate::asking::question::{AnswerPatience, EncodedQuestion, QuestionError, ask};
use crate::tier::CacheTierClient;
use crate::worker_map::TierWorker;

impl CacheTierClient {
    /// Has each home check what it knows of these keys against what a listing showed of them.
    ///
    /// All messages go out at once, each is sent once. The call ends when all homes have answered,
    /// or after `first_progress`. A home that can't be told, or rests, is left out: its readers see
    /// the change when their attributes expire.
    pub async fn report_listing(
        self: &Arc<Self>,
        volume: &ObjectVolume,
        entries: Vec<ListedEntry>,
    ) {
        let until = Instant::now() + self.options.first_progress;
        let map = self.map.load_full();
        let groups =
            map.by_home(volume, entries).into_iter().filter(|(worker, _)| worker.health.is_up());
        let told = groups.map(|(worker, entries)| {
            let listing = ListingMessage { volume: volume.clone(), entries };
            async move { self.tell_once(&worker, listing, until).await }
        });
        join_all(told).await;
    }

    /// Tells a home something once. If that fails, its readers find out by themselves later.
    pub(crate) async fn tell_once<Q: WorkerQuestion<Answer = HomeAcknowledgement>>(
        &self,
        worker: &Arc<TierWorker>,
        news: Q,
        until: Instant,
    ) {
        let question = EncodedQuestion::new(news);
        let kind = question.name;
        let answer = ask(worker, &question, AnswerPatience::Until(until)).await;
        self.metrics
            .count_call(kind, answer.as_ref().map_or_else(QuestionError::call_outcome, |_| "ok"));
        match answer {
            Ok(_) => worker.health.note_success(),
            Err(QuestionError::Refused(WorkerRefusal { kind: refusal, reason })) => {
                worker.health.note_success();
                tracing::debug!(
                    worker = %worker.id, told = kind, ?refusal, reason,
                    "a worker refused what it was told"
                );
            }
            Err(error) => {
                self.note_failure(worker);
                tracing::debug!(
                    worker = %worker.id, told = kind, %error,
                    "a worker could not be told"
                );
            }
        }
    }
}

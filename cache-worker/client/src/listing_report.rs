//! Tells homes what a listing showed, so that nobody keeps reading from attributes that it
//! contradicts.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::{Instant, timeout_at};
use verbs3_metrics::MetricLabel;
use verbs3_protocol::{
    ListedEntry, ListingMessage, ObjectVolume, WorkerRefusal, WorkerReply, WorkerRequest,
};

use crate::metrics::{CallKind, CallOutcome};
use crate::tier::CacheTierClient;
use crate::worker_map::TierWorker;
use crate::write_announcement::ask_worker;

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
            let message =
                WorkerRequest::Listed(ListingMessage { volume: volume.clone(), entries }).encode();
            async move { self.tell_once(CallKind::Listed, &worker, message, until).await }
        });
        join_all(told).await;
    }

    /// Tells a home something once. If that fails, its readers find out by themselves later.
    pub(crate) async fn tell_once(
        &self,
        kind: CallKind,
        worker: &Arc<TierWorker>,
        message: Bytes,
        until: Instant,
    ) {
        let outcome = match timeout_at(until, ask_worker(worker, message)).await {
            Ok(Ok(WorkerReply::Done { .. })) => CallOutcome::Ok,
            Ok(Ok(WorkerReply::Refused(WorkerRefusal { kind: refusal, reason }))) => {
                tracing::debug!(
                    worker = %worker.id, told = kind.label_text(), ?refusal, reason,
                    "a worker refused what it was told"
                );
                CallOutcome::Refused
            }
            Ok(Ok(_)) => CallOutcome::Failed,
            Ok(Err(error)) => {
                tracing::debug!(
                    worker = %worker.id, told = kind.label_text(), %error,
                    "a worker could not be told"
                );
                CallOutcome::Failed
            }
            Err(_) => CallOutcome::Failed,
        };
        self.metrics.count_call(kind, outcome);
        match outcome {
            CallOutcome::Failed => {
                self.note_failure(worker);
            }
            _ => worker.health.note_success(),
        }
    }
}

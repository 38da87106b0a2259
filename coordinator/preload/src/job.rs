//! Owns one job's state in the engine: what is persisted, the present page's counters, and who
//! waits for news.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use verbs3_protocol::{Epoch, WorkerId};

use crate::api::{JobState, JobView, PreloadCounters, PreloadFailureSummary};
use crate::job_record::{PreloadJobRecord, PreloadProgress, WorkerLifeTracker};

pub(crate) struct PreloadJob {
    pub(crate) record: PreloadJobRecord,
    state: Mutex<PreloadJobInner>,
    /// Ends the job's run after a `DELETE`.
    pub(crate) deleted: CancellationToken,
    news: watch::Sender<u64>,
}

/// Guard of a job that runs. When dropped, the job waits again, unless it is over.
pub(crate) struct JobRunGuard(pub(crate) Arc<PreloadJob>);

impl Drop for JobRunGuard {
    fn drop(&mut self) {
        self.0.finish_run();
    }
}

struct PreloadJobInner {
    progress: PreloadProgress,
    /// Counters of the present page.
    page: PreloadCounters,
    /// Counters of the previous page, while it is being persisted.
    turned: PreloadCounters,
    heard: WorkerLifeTracker,
    is_running: bool,
    /// Why the present run does not get on, and tries again. Not persisted.
    delayed_by: Option<String>,
    /// Asks the present run to give its place back.
    giving_way: CancellationToken,
}

impl PreloadJob {
    pub(crate) fn new(record: PreloadJobRecord, progress: PreloadProgress) -> Self {
        let heard = progress.heard.clone();
        let state = Mutex::new(PreloadJobInner {
            progress,
            page: PreloadCounters::default(),
            turned: PreloadCounters::default(),
            heard,
            is_running: false,
            delayed_by: None,
            giving_way: CancellationToken::new(),
        });
        Self { record, state, deleted: CancellationToken::new(), news: watch::Sender::new(0) }
    }

    pub(crate) fn progress_snapshot(&self) -> PreloadProgress {
        self.state.lock().progress.clone()
    }

    pub(crate) fn job_state(&self) -> JobState {
        self.state.lock().progress.state
    }

    /// Begins a run if the job waits for one. It then waits no more until
    /// [`PreloadJob::finish_run`].
    pub(crate) fn try_begin_run(&self) -> bool {
        let mut state = self.state.lock();
        let begins = !state.is_running && !state.progress.state.is_over();
        if begins {
            state.is_running = true;
            state.delayed_by = None;
            state.giving_way = CancellationToken::new();
        }
        begins
    }

    pub(crate) fn is_waiting(&self) -> bool {
        let state = self.state.lock();
        !state.is_running && !state.progress.state.is_over()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.lock().is_running
    }

    fn finish_run(&self) {
        let mut state = self.state.lock();
        (state.is_running, state.delayed_by) = (false, None);
    }

    /// Asks the present run to give its place back.
    pub(crate) fn give_way(&self) {
        self.state.lock().giving_way.cancel();
    }

    /// Returns whether the present run gives its place back.
    pub(crate) fn is_giving_way(&self) -> bool {
        let state = self.state.lock();
        state.is_running && state.giving_way.is_cancelled()
    }

    /// Returns what tells the present run to give its place back.
    pub(crate) fn giving_way(&self) -> CancellationToken {
        self.state.lock().giving_way.clone()
    }

    /// Notes why the present run does not get on; `None`: it does.
    pub(crate) fn note_delay(&self, delayed_by: Option<String>) {
        let is_news = {
            let mut state = self.state.lock();
            let before = std::mem::replace(&mut state.delayed_by, delayed_by);
            before != state.delayed_by
        };
        if is_news {
            self.news.send_modify(|news| *news += 1);
        }
    }

    /// Records what is persisted now, the previous page included.
    pub(crate) fn record_persisted(&self, progress: PreloadProgress) {
        {
            let mut state = self.state.lock();
            state.progress = progress;
            state.turned = PreloadCounters::default();
        }
        self.news.send_modify(|news| *news += 1);
    }

    pub(crate) fn update_counters(&self, add: impl FnOnce(&mut PreloadCounters)) {
        add(&mut self.state.lock().page);
    }

    /// Records a worker that has answered, with its life and epoch.
    pub(crate) fn record_worker_life(&self, worker: &WorkerId, life: u64, epoch: Epoch) {
        self.state.lock().heard.record_answer(worker, life, epoch);
    }

    pub(crate) fn worker_lives(&self) -> WorkerLifeTracker {
        self.state.lock().heard.clone()
    }

    /// Forgets the workers that answered, because a round begins.
    pub(crate) fn forget_heard(&self) {
        self.state.lock().heard = WorkerLifeTracker::default();
    }

    /// Ends the present page and returns its counters, which must be persisted. The next page
    /// counts from here.
    pub(crate) fn turn_page(&self) -> PreloadCounters {
        let mut state = self.state.lock();
        state.turned = std::mem::take(&mut state.page);
        state.turned
    }

    /// Forgets the counters of a page that will be repeated.
    pub(crate) fn forget_page(&self) {
        let mut state = self.state.lock();
        (state.page, state.turned) = (PreloadCounters::default(), PreloadCounters::default());
    }

    pub(crate) fn job_view(&self) -> JobView {
        let state = self.state.lock();
        let PreloadProgress {
            phase,
            ref counters,
            ref failures,
            ref reason,
            ended_ms,
            resumed,
            rounds,
            ..
        } = state.progress;
        JobView {
            id: self.record.id.clone(),
            owner: self.record.owner.as_ref().map(|owner| owner.0.clone()),
            state: state.progress.state,
            phase,
            reason: reason.clone().or_else(|| state.delayed_by.clone()),
            counters: sum_counters(&sum_counters(counters, &state.turned), &state.page),
            failures: match self.record.owner {
                // A path on the coordinator's host says nothing to who has a key alone.
                Some(_) => PreloadFailureSummary { file: None, ..failures.clone() },
                None => failures.clone(),
            },
            created_ms: self.record.created_ms,
            ended_ms,
            resumed,
            rounds,
            news: *self.news.borrow(),
            spec: self.record.spec.clone(),
        }
    }

    pub(crate) fn subscribe_news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

pub(crate) fn sum_counters(a: &PreloadCounters, b: &PreloadCounters) -> PreloadCounters {
    PreloadCounters {
        objects: a.objects + b.objects,
        bytes: a.bytes + b.bytes,
        objects_loaded: a.objects_loaded + b.objects_loaded,
        objects_failed: a.objects_failed + b.objects_failed,
        bytes_loaded: a.bytes_loaded + b.bytes_loaded,
        bytes_held: a.bytes_held + b.bytes_held,
        objects_vanished: a.objects_vanished + b.objects_vanished,
        objects_checked: a.objects_checked + b.objects_checked,
        bytes_checked: a.bytes_checked + b.bytes_checked,
        objects_missing: a.objects_missing + b.objects_missing,
        bytes_missing: a.bytes_missing + b.bytes_missing,
        objects_compared: a.objects_compared + b.objects_compared,
        bytes_evicted: a.bytes_evicted + b.bytes_evicted,
        retries: a.retries + b.retries,
    }
}

/// Returns milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

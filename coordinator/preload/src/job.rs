//! One job as the engine holds it: what is persisted of it, what its present page has done, and who
//! waits for news.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use verbs3_protocol::{Epoch, WorkerId};

use crate::api::{Counters, JobState, JobView};
use crate::document::{Heard, Progress, Record};

pub(crate) struct Job {
    pub(crate) record: Record,
    state: Mutex<State>,
    /// Ends the job's run; by `DELETE`.
    pub(crate) deleted: CancellationToken,
    news: watch::Sender<u64>,
}

/// Of a job that has begun: dropped, it waits again, unless it is over.
pub(crate) struct Begun(pub(crate) Arc<Job>);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.ended();
    }
}

struct State {
    progress: Progress,
    /// Of the page that is gone through.
    page: Counters,
    /// Of the page before, while that is persisted.
    turned: Counters,
    heard: Heard,
    is_running: bool,
}

impl Job {
    pub(crate) fn new(record: Record, progress: Progress) -> Self {
        let heard = progress.heard.clone();
        let state = Mutex::new(State {
            progress,
            page: Counters::default(),
            turned: Counters::default(),
            heard,
            is_running: false,
        });
        Self { record, state, deleted: CancellationToken::new(), news: watch::Sender::new(0) }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.state.lock().progress.clone()
    }

    pub(crate) fn job_state(&self) -> JobState {
        self.state.lock().progress.state
    }

    /// Whether it waits for a run. From then on it does not, until [`Job::ended`].
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let begins = !state.is_running && !state.progress.state.is_over();
        state.is_running |= begins;
        begins
    }

    pub(crate) fn is_waiting(&self) -> bool {
        let state = self.state.lock();
        !state.is_running && !state.progress.state.is_over()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.lock().is_running
    }

    fn ended(&self) {
        self.state.lock().is_running = false;
    }

    /// What is persisted now, the page before included.
    pub(crate) fn persisted(&self, progress: Progress) {
        {
            let mut state = self.state.lock();
            state.progress = progress;
            state.turned = Counters::default();
        }
        self.news.send_modify(|news| *news += 1);
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut Counters)) {
        add(&mut self.state.lock().page);
    }

    /// Of whom an answer came.
    pub(crate) fn heard_of(&self, worker: &WorkerId, life: u64, epoch: Epoch) {
        self.state.lock().heard.of(worker, life, epoch);
    }

    pub(crate) fn heard(&self) -> Heard {
        self.state.lock().heard.clone()
    }

    /// A round begins.
    pub(crate) fn forget_heard(&self) {
        self.state.lock().heard = Heard::default();
    }

    /// The present page is done: what it has done is to be persisted. From here on the next one is
    /// counted.
    pub(crate) fn turn_page(&self) -> Counters {
        let mut state = self.state.lock();
        state.turned = std::mem::take(&mut state.page);
        state.turned
    }

    /// A page that is to be gone through again.
    pub(crate) fn forget_page(&self) {
        let mut state = self.state.lock();
        (state.page, state.turned) = (Counters::default(), Counters::default());
    }

    pub(crate) fn view(&self) -> JobView {
        let state = self.state.lock();
        let Progress {
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
            state: state.progress.state,
            phase,
            reason: reason.clone(),
            counters: sum(&sum(counters, &state.turned), &state.page),
            failures: failures.clone(),
            created_ms: self.record.created_ms,
            ended_ms,
            resumed,
            rounds,
            news: *self.news.borrow(),
            spec: self.record.spec.clone(),
        }
    }

    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

pub(crate) fn sum(a: &Counters, b: &Counters) -> Counters {
    Counters {
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

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

//! Owns all jobs: accepts them, runs a bounded number at a time, remembers them, and serves their
//! news.
//!
//! One engine runs the jobs of a store: the leader's. It stops when the store says that another
//! engine runs them.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;
use verbs3_client::CacheTierClient;

use crate::api::{JobView, OwnedPreloadJob, PreloadJobSpec};
use crate::failure_file::file_of;
use crate::job::{JobRunGuard, PreloadJob, now_ms};
use crate::job_record::{JobOwner, PreloadJobRecord, PreloadProgress, progress_key, spec_key};
use crate::job_run::{conclude_job, run_job};
use crate::job_store::{JobStore, JobStoreError};
use crate::job_turns::JobTurns;
use crate::judged_mounts::{JudgedMountError, check_judged_mounts};
use crate::metrics::PreloadMetrics;
use crate::mounts::PreloadMountTable;
use crate::notification::NOTIFIED;
use crate::options::PreloadOptions;
use crate::plan::{PreloadPlan, SpecError, deadline_of};
use crate::run_environment::{PreloadRunEnd, RunEnvironment};

/// Longest job description as JSON, in bytes. The coordinators' store must hold `jobs_max` times
/// this.
const SPEC_BYTES_MAX: usize = 64 << 10;
/// How long a `DELETE` waits for the job's run to end.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// Reason why the engine does not accept, find or show a job.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PreloadEngineError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("job {0} exists, and asks for something else; give this one another id")]
    Other(String),
    #[error("{0} jobs wait or run, as many as there may be; stop some")]
    Full(usize),
    #[error(
        "{0} jobs of notifications wait or run, as many as there may be \
        (coordinator.preload.notified_jobs_max); send it again later"
    )]
    NotifiedFull(usize),
    #[error(
        "{0} jobs of this owner wait or run, as many as one may have (coordinator.preload.jobs_per_owner_max); wait for one, or end one"
    )]
    OwnerFull(usize),
    #[error(transparent)]
    Judged(#[from] JudgedMountError),
    #[error("there is no job {0}")]
    Unknown(String),
    #[error(transparent)]
    Store(#[from] JobStoreError),
}

/// Runs the jobs of one store.
pub struct PreloadEngine {
    pub(crate) environment: RunEnvironment,
    pub(crate) jobs: Mutex<BTreeMap<String, Arc<PreloadJob>>>,
    /// Held while a job is accepted: one at a time.
    taking: Arc<tokio::sync::Mutex<()>>,
    /// Creation time of the newest job, in ms since 1970. All times differ, so jobs keep their
    /// order.
    newest_ms: AtomicU64,
    /// Tasks that go on even if their client hangs up. [`PreloadEngine::run`] joins them.
    tasks: TaskTracker,
    happened: Notify,
}

impl PreloadEngine {
    /// Loads the jobs of the store. Runs none before [`PreloadEngine::run`].
    pub async fn load_from_store(
        options: PreloadOptions,
        tier: Arc<CacheTierClient>,
        mounts: Arc<PreloadMountTable>,
        store: Arc<dyn JobStore>,
        metrics: PreloadMetrics,
    ) -> Result<Arc<Self>, JobStoreError> {
        let jobs = jobs_of(store.list_entries().await?);
        Ok(Arc::new(Self {
            environment: RunEnvironment::new(options, tier, mounts, store, metrics),
            jobs: Mutex::new(jobs),
            taking: Arc::default(),
            newest_ms: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            happened: Notify::new(),
        }))
    }

    /// Runs jobs until its owner stops it, or its store belongs to another engine.
    pub async fn run(self: Arc<Self>) {
        let mut runs = JoinSet::new();
        while !self.environment.stop.is_cancelled() {
            let next_deadline = self.end_overdue();
            while runs.len() < self.running_max() {
                let Some(job) = self.begin_next() else { break };
                let engine = self.clone();
                runs.spawn(async move {
                    let _begun = JobRunGuard(job.clone());
                    if AssertUnwindSafe(run_job(&engine.environment, &job))
                        .catch_unwind()
                        .await
                        .is_err()
                    {
                        let reason = "a defect of this program has ended it; the coordinator's log \
                            says which";
                        conclude_job(
                            &engine.environment,
                            &job,
                            PreloadRunEnd::Failed(reason.to_owned()),
                        )
                        .await;
                    }
                });
            }
            self.make_way(runs.len());
            self.update_job_gauges(runs.len());
            tokio::select! {
                // Comes first: a run that the stop has ended must not make room for another.
                biased;
                () = self.environment.stop.cancelled() => {}
                () = self.happened.notified() => {}
                Some(_) = runs.join_next(), if !runs.is_empty() => {}
                () = sleep(next_deadline.unwrap_or_default()), if next_deadline.is_some() => {}
            }
        }
        // Each run ends by itself: it waits only for the store, and for that only until the stop.
        while runs.join_next().await.is_some() {}
        self.tasks.close();
        self.tasks.wait().await;
        self.update_job_gauges(0);
    }

    /// Asks all runs to end. `run` returns once they have. Their jobs stay resumable.
    pub fn request_stop(&self) {
        self.environment.stop.cancel();
    }

    /// Returns whether its jobs now belong to another engine, or to none.
    pub fn is_stopped(&self) -> bool {
        self.environment.stop.is_cancelled()
    }

    fn created_now(&self) -> u64 {
        let now = now_ms();
        let after = |newest: u64| now.max(newest + 1);
        let newest = self
            .newest_ms
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |newest| Some(after(newest)));
        newest.map_or(now, after)
    }

    /// Accepts an operator's job. Returns whether it is a new one.
    pub async fn create_job(
        self: &Arc<Self>,
        spec: PreloadJobSpec,
    ) -> Result<(JobView, bool), PreloadEngineError> {
        self.accept_job(OwnedPreloadJob { job: spec, ..OwnedPreloadJob::default() }, None).await
    }

    /// Accepts a job that a gateway passes on for `owner`. Returns whether it is a new one.
    pub async fn create_owned_job(
        self: &Arc<Self>,
        job: OwnedPreloadJob,
        owner: JobOwner,
    ) -> Result<(JobView, bool), PreloadEngineError> {
        // Those have places of their own.
        if let Some(id) = job.job.id.as_ref().filter(|id| id.starts_with(NOTIFIED)) {
            return Err(SpecError::Id(id.clone()).into());
        }
        let min = self.environment.options.settings.guest_bandwidth_min.0;
        if let Some(asked) = job.job.bandwidth_bytes_per_second.filter(|asked| *asked < min) {
            return Err(SpecError::GuestBandwidth { asked, min }.into());
        }
        self.accept_job(job, Some(owner)).await
    }

    async fn accept_job(
        self: &Arc<Self>,
        job: OwnedPreloadJob,
        owner: Option<JobOwner>,
    ) -> Result<(JobView, bool), PreloadEngineError> {
        let OwnedPreloadJob { job: spec, tenant, judged_mounts } = job;
        let created_ms = self.created_now();
        PreloadPlan::new(&spec, &self.environment.mounts, created_ms)?;
        let id = spec.id.clone().unwrap_or_else(|| format!("{:016x}", rand::random::<u64>()));
        let spec = PreloadJobSpec { id: Some(id.clone()), ..spec };
        let record = PreloadJobRecord { id, owner, tenant, judged_mounts, spec, created_ms };
        let value = serde_json::to_vec(&record).unwrap_or_default();
        if value.len() > SPEC_BYTES_MAX {
            return Err(SpecError::Long { bytes: value.len(), max: SPEC_BYTES_MAX }.into());
        }
        check_judged_mounts(&record, &self.environment.mounts)?;
        let taking = self.taking.clone().lock_owned().await;
        // The client may hang up from here on. This engine must still know what is in the store.
        let engine = self.clone();
        let taken = self.tasks.spawn(async move {
            let _taking = taking;
            engine.take_in(record, value.into()).await
        });
        taken
            .await
            .unwrap_or_else(|error| Err(JobStoreError::Unavailable(error.to_string()).into()))
    }

    /// Accepts one job at a time.
    async fn take_in(
        &self,
        record: PreloadJobRecord,
        value: Bytes,
    ) -> Result<(JobView, bool), PreloadEngineError> {
        let id = record.id.clone();
        if let Some(known) = self.find_job(&id) {
            return match is_same_job(&known.record, &record) {
                true => Ok((known.job_view(), false)),
                false => Err(PreloadEngineError::Other(id)),
            };
        }
        self.check_notified(&id)?;
        self.check_owner(record.owner.as_ref())?;
        self.make_room().await?;
        // A job of this name may have been forgotten halfway. Its progress must not be taken for
        // this one's.
        self.environment.store.delete_entry(&progress_key(&id)).await?;
        let record = match self.environment.store.put_entry(&spec_key(&id), value, true).await {
            Ok(()) => record,
            // It was written before, but the answer was lost: nobody has run it.
            Err(JobStoreError::Exists(_)) => {
                let stored = jobs_of(self.environment.store.list_entries().await?).remove(&id);
                let stored = stored.filter(|stored| is_same_job(&stored.record, &record));
                stored.ok_or(PreloadEngineError::Other(id.clone()))?.record.clone()
            }
            Err(error) => return Err(error.into()),
        };
        let job = Arc::new(PreloadJob::new(record, PreloadProgress::default()));
        let view = job.job_view();
        self.jobs.lock().insert(id, job);
        self.happened.notify_one();
        Ok((view, true))
    }

    /// Checks the bound on jobs of notifications. Anybody with the token sends those, at the rate
    /// of writes. Without places of their own they would leave none for people.
    fn check_notified(&self, id: &str) -> Result<(), PreloadEngineError> {
        if !id.starts_with(NOTIFIED) {
            return Ok(());
        }
        let unfinished = self.count_notification_jobs(|job| job.is_waiting() || job.is_running());
        if unfinished < self.environment.options.settings.notified_jobs_max as usize {
            return Ok(());
        }
        self.environment.metrics.notified_refused.inc();
        Err(PreloadEngineError::NotifiedFull(unfinished))
    }

    /// Checks the bound on jobs of one owner, so that nobody fills the list alone.
    fn check_owner(&self, owner: Option<&JobOwner>) -> Result<(), PreloadEngineError> {
        if owner.is_none() {
            return Ok(());
        }
        let jobs = self.jobs.lock();
        let is_unfinished = |job: &&Arc<PreloadJob>| {
            job.record.owner.as_ref() == owner && (job.is_waiting() || job.is_running())
        };
        let unfinished = jobs.values().filter(is_unfinished).count();
        match unfinished < self.environment.options.settings.jobs_per_owner_max as usize {
            true => Ok(()),
            false => Err(PreloadEngineError::OwnerFull(unfinished)),
        }
    }

    /// Returns whether `owner` may see and end the job: it is theirs. What there is not is nobody's.
    pub fn is_owned_by(&self, id: &str, owner: &JobOwner) -> bool {
        self.find_job(id).is_some_and(|job| job.record.owner.as_ref() == Some(owner))
    }

    /// Counts jobs of notifications.
    fn count_notification_jobs(&self, which: impl Fn(&PreloadJob) -> bool) -> usize {
        let jobs = self.jobs.lock();
        jobs.iter().filter(|(id, job)| id.starts_with(NOTIFIED) && which(job)).count()
    }

    /// Returns the job as it is now. If `news` is given and nothing is newer, waits for a change,
    /// for up to `wait`.
    pub async fn get(
        &self,
        id: &str,
        news: Option<u64>,
        wait: Duration,
    ) -> Result<JobView, PreloadEngineError> {
        let job = self.find_job(id).ok_or_else(|| PreloadEngineError::Unknown(id.to_owned()))?;
        if let Some(news) = news {
            let _ =
                tokio::time::timeout(wait, job.subscribe_news().wait_for(|now| *now != news)).await;
        }
        Ok(job.job_view())
    }

    /// Ends a job. A job that is over stays as it is.
    pub async fn end_job(self: &Arc<Self>, id: &str) -> Result<JobView, PreloadEngineError> {
        let job = self.find_job(id).ok_or_else(|| PreloadEngineError::Unknown(id.to_owned()))?;
        job.deleted.cancel();
        self.end_waiting(&job, PreloadRunEnd::Deleted);
        let over = async {
            let mut news = job.subscribe_news();
            while !job.job_state().is_over() {
                if news.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(STOP_WAIT, over).await;
        Ok(job.job_view())
    }

    fn find_job(&self, id: &str) -> Option<Arc<PreloadJob>> {
        self.jobs.lock().get(id).cloned()
    }

    /// Ends a waiting job without waiting for its end to be persisted: runs may take hours.
    fn end_waiting(self: &Arc<Self>, job: &Arc<PreloadJob>, why: PreloadRunEnd) {
        if !job.try_begin_run() {
            return;
        }
        let (engine, begun) = (self.clone(), JobRunGuard(job.clone()));
        self.tasks.spawn(async move {
            conclude_job(&engine.environment, &begun.0, why).await;
            engine.happened.notify_one();
        });
    }

    /// Ends waiting jobs whose deadline is over, and those that a `DELETE` stopped while they gave
    /// their places back. Returns the time until the next one's deadline.
    fn end_overdue(self: &Arc<Self>) -> Option<Duration> {
        let waiting: Vec<Arc<PreloadJob>> =
            self.jobs.lock().values().filter(|job| job.is_waiting()).cloned().collect();
        let now = now_ms();
        let mut next: Option<u64> = None;
        for job in waiting {
            if job.deleted.is_cancelled() {
                self.end_waiting(&job, PreloadRunEnd::Deleted);
                continue;
            }
            match deadline_of(&job.record.spec) {
                Ok(Some(deadline)) if deadline <= now => {
                    self.end_waiting(&job, PreloadRunEnd::Deadline)
                }
                Ok(Some(deadline)) => next = Some(next.unwrap_or(u64::MAX).min(deadline - now)),
                // The run reports an invalid deadline.
                Ok(None) | Err(_) => {}
            }
        }
        next.map(Duration::from_millis)
    }

    /// Begins the run of the waiting job whose turn it is.
    fn begin_next(&self) -> Option<Arc<PreloadJob>> {
        let jobs = self.jobs.lock();
        let next = JobTurns::new(jobs.values(), self.running_max()).next_job();
        next.filter(|job| job.try_begin_run()).cloned()
    }

    /// Asks a guest's job to give its place back, if one of those who wait has fewer.
    fn make_way(&self, running: usize) {
        let jobs = self.jobs.lock();
        let places = self.running_max();
        let turns = JobTurns::new(jobs.values(), places);
        if let Some(job) = turns.find_yielding_job(running >= places) {
            job.give_way();
        }
    }

    fn running_max(&self) -> usize {
        self.environment.options.settings.jobs_running_max as usize
    }

    fn update_job_gauges(&self, running: usize) {
        let waiting = self.jobs.lock().values().filter(|job| job.is_waiting()).count();
        self.environment.metrics.running.set(i64::try_from(running).unwrap_or(i64::MAX));
        self.environment.metrics.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Forgets the oldest finished job if there are as many as may be.
    async fn make_room(&self) -> Result<(), PreloadEngineError> {
        let oldest = {
            let jobs = self.jobs.lock();
            if jobs.len() < self.environment.options.settings.jobs_max as usize {
                return Ok(());
            }
            let over = jobs.values().filter(|job| !job.is_waiting() && !job.is_running());
            // Jobs of notifications go first, because nobody follows them. Then those of the owner
            // who has the most, so that many jobs of one push out nobody else's.
            let kept_of = |owner: &Option<JobOwner>| match owner {
                Some(_) => jobs.values().filter(|job| job.record.owner == *owner).count(),
                None => 0,
            };
            let order = |job: &&Arc<PreloadJob>| {
                let record = &job.record;
                let kept = std::cmp::Reverse(kept_of(&record.owner));
                (!record.id.starts_with(NOTIFIED), kept, record.created_ms)
            };
            let oldest = over.min_by_key(order).map(|job| job.record.id.clone());
            oldest.ok_or(PreloadEngineError::Full(jobs.len()))?
        };
        // The order matters: a description without progress would be run again.
        self.environment.store.delete_entry(&spec_key(&oldest)).await?;
        self.environment.store.delete_entry(&progress_key(&oldest)).await?;
        self.jobs.lock().remove(&oldest);
        // Most jobs have no such file.
        let folder = &self.environment.options.settings.failures;
        let _ = tokio::fs::remove_file(file_of(folder, &oldest)).await;
        Ok(())
    }
}

/// Whether both are one job that was sent twice.
fn is_same_job(one: &PreloadJobRecord, other: &PreloadJobRecord) -> bool {
    one.spec == other.spec && one.owner == other.owner
}

/// Reads the stored jobs. Leaves unreadable ones in place and reports them.
fn jobs_of(entries: Vec<(String, Bytes)>) -> BTreeMap<String, Arc<PreloadJob>> {
    let entries: HashMap<String, Bytes> = entries.into_iter().collect();
    let mut jobs = BTreeMap::new();
    for (key, value) in entries.iter().filter(|(key, _)| key.ends_with("/spec")) {
        let record = match serde_json::from_slice::<PreloadJobRecord>(value) {
            Ok(record) if spec_key(&record.id) == *key => record,
            Ok(_) | Err(_) => {
                tracing::error!(key, "a preload job in the store can't be read, and is left out");
                continue;
            }
        };
        let progress =
            match entries.get(&progress_key(&record.id)).map(|value| serde_json::from_slice(value))
            {
                None => PreloadProgress::default(),
                Some(Ok(progress)) => progress,
                Some(Err(error)) => {
                    tracing::error!(
                        job = record.id, %error,
                        "a preload job's progress can't be read; it begins anew"
                    );
                    PreloadProgress::default()
                }
            };
        jobs.insert(record.id.clone(), Arc::new(PreloadJob::new(record, progress)));
    }
    jobs
}

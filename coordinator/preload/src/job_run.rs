//! Runs a job from its last persisted state to its end: phase by phase, page by page.
//!
//! A page is persisted once all of it is done, so an interrupted run repeats its last pages.
//! Repeating what is there costs a question and no byte. While a page is being persisted, the next
//! one is worked on and the one after it is fetched.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep};
use verbs3_protocol::ListedEntry;
use verbs3_ufs::ReadObject;

use crate::api::{
    JobState, PreloadCounters, PreloadFailure, PreloadFailureSummary, PreloadJobAction,
    PreloadJobSpec, PreloadPhase,
};
use crate::failure_file::{self, truncate_text};
use crate::job::{PreloadJob, now_ms, sum_counters};
use crate::job_record::{PreloadJobRecord, PreloadListCursor, PreloadProgress, WorkerLifeTracker};
use crate::judged_mounts::check_judged_mounts;
use crate::load_object::PreloadItemError;
use crate::metrics::ObjectOutcome;
use crate::object_list::{self, PreloadListItem, PreloadListPage};
use crate::plan::PreloadPlan;
use crate::preload_run::PreloadRun;
use crate::run_environment::{PreloadRunEnd, RunEnvironment};

/// How often a job repeats its list. A cluster that never comes to rest needs a person.
const ROUNDS_MAX: u32 = 8;

/// Runs the job to its end and persists the result.
pub(crate) async fn run_job(environment: &RunEnvironment, job: &PreloadJob) {
    let mut progress = job.progress_snapshot();
    if progress.state == JobState::Running {
        progress.resumed += 1;
    }
    progress.state = JobState::Running;
    let ended = match environment.persist_progress(job, progress).await {
        Ok(()) => {
            let PreloadJobRecord { spec, created_ms, .. } = &job.record;
            let judged = check_judged_mounts(&job.record, &environment.mounts);
            let plan =
                judged.and_then(|()| Ok(PreloadPlan::new(spec, &environment.mounts, *created_ms)?));
            match plan {
                Ok(plan) => PreloadRun::new(environment, job, plan).run_all_phases().await,
                Err(error) => PreloadRunEnd::Failed(error.to_string()),
            }
        }
        Err(ended) => ended,
    };
    conclude_job(environment, job, ended).await;
}

/// Persists the result of a job.
pub(crate) async fn conclude_job(
    environment: &RunEnvironment,
    job: &PreloadJob,
    ended: PreloadRunEnd,
) {
    job.forget_page();
    let mut progress = job.progress_snapshot();
    (progress.state, progress.reason) = match ended {
        PreloadRunEnd::Interrupted => return,
        PreloadRunEnd::GaveWay => {
            progress.state = JobState::Queued;
            // A job whose wait could not be persisted waits all the same. The next run reports the
            // store's refusal.
            let _ = environment.persist_progress(job, progress).await;
            environment.metrics.places_given_back.inc();
            tracing::info!(job = job.record.id, "a preload job gave its place back, and waits");
            return;
        }
        PreloadRunEnd::Through => judge_progress(&progress, &job.record.spec),
        PreloadRunEnd::Deadline => (JobState::Incomplete, Some("its deadline is over".to_owned())),
        PreloadRunEnd::Deleted => (JobState::Stopped, Some("it was stopped".to_owned())),
        PreloadRunEnd::Failed(reason) => (JobState::Failed, Some(truncate_text(&reason))),
    };
    progress.ended_ms = Some(now_ms());
    let state = progress.state;
    match environment.persist_progress(job, progress.clone()).await {
        Ok(()) => {}
        Err(PreloadRunEnd::Failed(reason)) => {
            tracing::error!(
                job = job.record.id,
                reason,
                "a preload job has ended, which the store does not take"
            );
            // Recorded even if persisting failed, so that the job is not run again and again. The
            // next leader tries it once.
            job.record_persisted(progress);
        }
        Err(_) => return,
    }
    environment.count_ended(state);
    tracing::info!(job = job.record.id, ?state, "a preload job has ended");
}

/// Returns the final state. `Done` means that nothing is missing.
fn judge_progress(progress: &PreloadProgress, spec: &PreloadJobSpec) -> (JobState, Option<String>) {
    let counters = &progress.counters;
    if counters.objects_failed == 0 && counters.objects_missing == 0 {
        return (JobState::Done, None);
    }
    let mut parts = Vec::new();
    if counters.objects_failed > 0 {
        let done = match spec.action {
            PreloadJobAction::Load => "loaded",
            PreloadJobAction::Evict => "given up",
            PreloadJobAction::Unpin => "unpinned",
        };
        parts.push(format!("{} objects could not be {done}", counters.objects_failed));
    }
    if counters.objects_missing > 0 {
        let (objects, bytes) = (counters.objects_missing, counters.bytes_missing);
        parts.push(match spec.metadata_only {
            true => format!("of {objects} objects the attributes are not in the tier"),
            false => {
                format!(
                    "{objects} objects are not as they should be in the tier, of which {bytes} \
                    bytes are missing"
                )
            }
        });
    }
    (JobState::Incomplete, Some(parts.join("; ")))
}

impl PreloadRun<'_> {
    async fn run_all_phases(&self) -> PreloadRunEnd {
        loop {
            let phase = self.job.progress_snapshot().phase;
            if let Err(ended) = self.run_phase(phase).await {
                return ended;
            }
            let next = match phase {
                PreloadPhase::Count if self.plan.dry_run => return PreloadRunEnd::Through,
                PreloadPhase::Count => PreloadPhase::Load,
                PreloadPhase::Load if self.plan.is_over_without_check() => {
                    return PreloadRunEnd::Through;
                }
                PreloadPhase::Load => PreloadPhase::Check,
                PreloadPhase::Check if self.is_worth_another_round() => PreloadPhase::Load,
                PreloadPhase::Check => return PreloadRunEnd::Through,
            };
            let progress = match (phase, next) {
                (PreloadPhase::Check, _) => self.another_round().await,
                _ => {
                    let before = self.job.progress_snapshot();
                    PreloadProgress { phase: next, cursor: before.cursor.rewind_list(), ..before }
                }
            };
            if let Err(ended) = self.environment.persist_progress(self.job, progress).await {
                return ended;
            }
            if phase == PreloadPhase::Check {
                self.job.forget_heard();
            }
        }
    }

    /// Returns whether another round may help. Something must be missing that was perhaps lost with
    /// a worker, or belongs to another one now. What did not fit the tier would not fit in another
    /// round.
    fn is_worth_another_round(&self) -> bool {
        let PreloadProgress { counters, rounds, .. } = self.job.progress_snapshot();
        let is_missing = counters.objects_missing > 0 || counters.objects_failed > 0;
        is_missing && self.job.worker_lives().is_unsettled && rounds < ROUNDS_MAX
    }

    async fn another_round(&self) -> PreloadProgress {
        let before = self.job.progress_snapshot();
        let id = &self.job.record.id;
        tracing::info!(
            job = id,
            "a preload job begins its list again: workers were started anew, or the map has changed"
        );
        // Failed objects are tried again, and listed again if they fail again.
        let folder = &self.environment.options.settings.failures;
        let _ = tokio::fs::remove_file(failure_file::file_of(folder, id)).await;
        let PreloadCounters { objects, bytes, bytes_loaded, bytes_held, retries, .. } =
            before.counters;
        PreloadProgress {
            phase: PreloadPhase::Load,
            cursor: before.cursor.rewind_list(),
            counters: PreloadCounters {
                objects,
                bytes,
                bytes_loaded,
                bytes_held,
                retries,
                ..PreloadCounters::default()
            },
            failures: PreloadFailureSummary::default(),
            failures_bytes: 0,
            rounds: before.rounds + 1,
            heard: WorkerLifeTracker::default(),
            ..before
        }
    }

    async fn run_phase(&self, phase: PreloadPhase) -> Result<(), PreloadRunEnd> {
        let cursor = self.job.progress_snapshot().cursor;
        let mut next = self.unless_over(self.fetch_page_with_retries(phase, &cursor)).await??;
        let mut committing: BoxFuture<'_, Result<(), PreloadRunEnd>> =
            Box::pin(std::future::ready(Ok(())));
        while let Some(page) = next {
            let both = async {
                tokio::join!(
                    self.go_through(phase, &page),
                    self.fetch_page_with_retries(phase, &page.next)
                )
            };
            // A commit is not cut off: its write could otherwise reach the store after the one that
            // ends the run.
            let (worked, committed) = tokio::join!(self.unless_over(both), committing);
            committed?;
            let (failed, following) = worked?;
            tracing::debug!(
                job = self.job.record.id, ?phase, cursor = ?page.next,
                "a page was gone through"
            );
            committing = Box::pin(self.commit_page(page.next, failed, self.job.turn_page()));
            // A page that can't be fetched ends the run, but the work before it is persisted.
            next = match following {
                Ok(next) => next,
                Err(ended) => return committing.await.and(Err(ended)),
            };
        }
        committing.await
    }

    /// Runs `work` unless the run ends first. `work` may be cancelled, because it persists nothing.
    async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Result<T, PreloadRunEnd> {
        let deadline = async {
            match self.plan.deadline_ms {
                Some(deadline) => {
                    sleep(Duration::from_millis(deadline.saturating_sub(now_ms()))).await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.environment.stop.cancelled() => Err(PreloadRunEnd::Interrupted),
            () = self.job.deleted.cancelled() => Err(PreloadRunEnd::Deleted),
            () = deadline => Err(PreloadRunEnd::Deadline),
            () = self.giving_way.cancelled() => Err(PreloadRunEnd::GaveWay),
            done = work => Ok(done),
        }
    }

    /// Fetches the page at the cursor, with retries.
    async fn fetch_page_with_retries(
        &self,
        phase: PreloadPhase,
        cursor: &PreloadListCursor,
    ) -> Result<Option<PreloadListPage>, PreloadRunEnd> {
        if let Some(kept) = self.counted.lock().take_page(phase, cursor) {
            return Ok(Some(kept));
        }
        let (options, began) = (&self.environment.options, Instant::now());
        let mut pause = options.pauses;
        loop {
            match object_list::fetch_page(
                &self.plan,
                &self.environment.mounts,
                cursor,
                options.page_keys,
            )
            .await
            {
                Ok(page) => {
                    self.job.note_delay(None);
                    if let Some(page) = page.as_ref().filter(|_| phase == PreloadPhase::Count) {
                        self.counted.lock().store_page(cursor, page);
                    }
                    return Ok(page);
                }
                Err(error) if error.again && began.elapsed() < options.settings.patience.0 => {
                    tracing::debug!(%error, "a page of a list is asked for again");
                    self.job.note_delay(Some(truncate_text(&error.to_string())));
                    self.environment.metrics.retries.inc();
                    sleep(pause.next_jittered(rand::random())).await;
                }
                Err(error) => return Err(PreloadRunEnd::Failed(error.to_string())),
            }
        }
    }

    async fn go_through(&self, phase: PreloadPhase, page: &PreloadListPage) -> Vec<PreloadFailure> {
        if phase == PreloadPhase::Count {
            self.count_page(page);
            return Vec::new();
        }
        let mut failed = Vec::new();
        if phase == PreloadPhase::Load {
            failed.clone_from(&page.bad);
            self.job.update_counters(|counters| counters.objects_failed += page.bad.len() as u64);
        }
        if self.plan.action == PreloadJobAction::Load {
            self.tell_homes(&page.items).await;
        }
        let items = match phase {
            PreloadPhase::Check => self.look_over(&page.items, &mut failed).await,
            PreloadPhase::Count | PreloadPhase::Load => page.items.iter().collect(),
        };
        // Boxed because of a compiler limit: for a closure that borrows, it can't show that the
        // future is `Send`.
        let mut work: Vec<BoxFuture<'_, Option<PreloadFailure>>> = Vec::with_capacity(items.len());
        for item in items {
            work.push(match phase {
                PreloadPhase::Count => continue,
                PreloadPhase::Load if self.plan.action != PreloadJobAction::Load => {
                    Box::pin(self.tend_item(item))
                }
                PreloadPhase::Load => Box::pin(self.load_item(item)),
                PreloadPhase::Check => Box::pin(self.check_item(item)),
            });
        }
        let mut work = stream::iter(work)
            .buffer_unordered(self.environment.options.settings.objects_max as usize);
        while let Some(done) = work.next().await {
            failed.extend(done);
        }
        failed
    }

    fn count_page(&self, page: &PreloadListPage) {
        let geometry = self.environment.tier.tier_options().geometry;
        let lengths = page.items.iter().filter_map(|item| item.shown.as_ref()?.bytes);
        let bytes: u64 = lengths.map(|bytes| self.plan.wanted_bytes(geometry, bytes)).sum();
        self.job.update_counters(|counters| {
            counters.objects += (page.items.len() + page.bad.len()) as u64;
            counters.bytes += bytes;
        });
    }

    /// Makes homes drop what contradicts the list about these objects. Then what is loaded, or
    /// looked for, is the listed version or a newer one.
    async fn tell_homes(&self, items: &[PreloadListItem]) {
        let Some(mount) =
            items.iter().find(|item| item.shown.is_some()).map(|item| item.mount.clone())
        else {
            return;
        };
        let entries = items.iter().filter(|item| item.shown.is_some());
        let entries =
            entries.map(|item| ListedEntry { key: item.key.clone(), shown: item.shown.clone() });
        // A page below a prefix belongs to one mount.
        self.environment.tier.report_listing(&mount.object_volume(), entries.collect()).await;
    }

    async fn load_item(&self, item: &PreloadListItem) -> Option<PreloadFailure> {
        let loaded = self.unless_elsewhere(item, self.load_object(item).await).await;
        let objects = &self.environment.metrics.objects;
        self.job.update_counters(|page| page.objects_loaded += 1);
        let reason = match loaded {
            Ok(()) => {
                objects[ObjectOutcome::Loaded].inc();
                return None;
            }
            Err(PreloadItemError::Absent) if item.shown.is_some() => {
                objects[ObjectOutcome::Vanished].inc();
                self.job.update_counters(|page| page.objects_vanished += 1);
                return None;
            }
            Err(trouble) => in_words(trouble),
        };
        objects[ObjectOutcome::Failed].inc();
        self.job.update_counters(|page| page.objects_failed += 1);
        Some(PreloadFailure { path: item.client_path(), reason })
    }

    async fn tend_item(&self, item: &PreloadListItem) -> Option<PreloadFailure> {
        let tended = self.unless_elsewhere(item, self.tend_object(item).await).await;
        self.job.update_counters(|page| page.objects_loaded += 1);
        let reason = match tended {
            Ok(()) => return None,
            Err(PreloadItemError::Absent) if item.shown.is_some() => return None,
            Err(trouble) => in_words(trouble),
        };
        self.job.update_counters(|page| page.objects_failed += 1);
        Some(PreloadFailure { path: item.client_path(), reason })
    }

    async fn check_item(&self, item: &PreloadListItem) -> Option<PreloadFailure> {
        let checked = self.unless_elsewhere(item, self.check_object(item).await).await;
        self.job.update_counters(|page| page.objects_checked += 1);
        let reason = match checked {
            Ok(()) => return None,
            Err(PreloadItemError::Absent) if item.shown.is_some() => return None,
            Err(trouble) => in_words(trouble),
        };
        self.job.update_counters(|page| page.objects_missing += 1);
        Some(PreloadFailure { path: item.client_path(), reason })
    }

    /// Confirms on this host that a listed object has vanished. For a worker whose `[[ufs]]` leads
    /// elsewhere, every object is absent.
    async fn unless_elsewhere(
        &self,
        item: &PreloadListItem,
        done: Result<(), PreloadItemError>,
    ) -> Result<(), PreloadItemError> {
        if done != Err(PreloadItemError::Absent) || item.shown.is_none() {
            return done;
        }
        let read = ReadObject {
            bucket: item.mount.bucket.clone(),
            key: item.key.clone(),
            version_id: None,
            if_match: None,
            range: None,
            checksums: false,
        };
        let budget = self.environment.block_budget(item.mount.ufs.ufs_name());
        let _permit = budget.acquire().await;
        match item.mount.ufs.head_object(read).await {
            Ok(_) => Err(PreloadItemError::Failed(
                "its worker finds no such object, and this coordinator does; compare their [[ufs]]"
                    .to_owned(),
            )),
            Err(error)
                if error.raw_answer().is_some_and(|answer| answer.status.as_u16() == 404) =>
            {
                done
            }
            Err(error) => Err(PreloadItemError::Failed(format!(
                "its worker finds no such object, and here it is unclear: {error}"
            ))),
        }
    }

    async fn commit_page(
        &self,
        next: PreloadListCursor,
        failed: Vec<PreloadFailure>,
        done: PreloadCounters,
    ) -> Result<(), PreloadRunEnd> {
        let mut progress = self.job.progress_snapshot();
        let settings = &self.environment.options.settings;
        let file = failure_file::file_of(&settings.failures, &self.job.record.id);
        let bytes_max = settings.failures_max.0;
        let (of, bytes) = (&mut progress.failures, &mut progress.failures_bytes);
        failure_file::append_failures(&file, bytes_max, &failed, of, bytes).await;
        progress.counters = sum_counters(&progress.counters, &done);
        progress.cursor = next;
        progress.heard = self.job.worker_lives();
        self.environment.persist_progress(self.job, progress).await
    }
}

fn in_words(trouble: PreloadItemError) -> String {
    match trouble {
        PreloadItemError::Absent => "there is no such object".to_owned(),
        PreloadItemError::Changed => "it has changed meanwhile".to_owned(),
        PreloadItemError::Failed(reason) => truncate_text(&reason),
    }
}

//! One run of a job, from where it was persisted last to its end: phase by phase, page by page.
//!
//! A page is persisted once all of it was gone through, so that a run that was cut off goes through
//! its last pages again: loading what is there costs a question, and no byte. Meanwhile the next
//! page is gone through, and the one after it fetched.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use verbs3_protocol::ListedEntry;
use verbs3_ufs::ReadObject;

use crate::api::{Action, Counters, Failure, Failures, JobState, Phase, Spec};
use crate::bucket::Bucket;
use crate::document::{Cursor, Heard, Progress};
use crate::engine::Engine;
use crate::failures::{self, cut};
use crate::job::{Job, now_ms, sum};
use crate::list::{self, Counted, Item, Page};
use crate::load::{Trouble, spread};
use crate::plan::Plan;

/// Why a run went no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All was gone through.
    Through,
    Deadline,
    Deleted,
    /// Another engine goes on.
    Interrupted,
    Failed(String),
}

pub(crate) struct Run<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) job: &'a Job,
    pub(crate) plan: Plan,
    bucket: Option<Mutex<Bucket>>,
    began: Instant,
    counted: Mutex<Counted>,
}

/// How often a job goes over its list again: a cluster that never comes to rest is for a person to
/// look at.
const ROUNDS_MAX: u32 = 8;

/// Runs the job to its end, and persists that.
pub(crate) async fn run(engine: &Engine, job: &Job) {
    let mut progress = job.progress();
    if progress.state == JobState::Running {
        progress.resumed += 1;
    }
    progress.state = JobState::Running;
    let ended = match engine.persist(job, progress).await {
        Ok(()) => match Plan::new(&job.record.spec, &engine.mounts, job.record.created_ms) {
            Ok(plan) => {
                let began = Instant::now();
                let bucket =
                    plan.bandwidth.map(|rate| Mutex::new(Bucket::new(rate, Duration::ZERO)));
                let counted = Mutex::new(Counted::new());
                Run { engine, job, plan, bucket, began, counted }.go().await
            }
            Err(error) => Ended::Failed(error.to_string()),
        },
        Err(ended) => ended,
    };
    conclude(engine, job, ended).await;
}

/// Persists what has become of a job.
pub(crate) async fn conclude(engine: &Engine, job: &Job, ended: Ended) {
    job.forget_page();
    let mut progress = job.progress();
    (progress.state, progress.reason) = match ended {
        Ended::Interrupted => return,
        Ended::Through => verdict(&progress, &job.record.spec),
        Ended::Deadline => (JobState::Incomplete, Some("its deadline is over".to_owned())),
        Ended::Deleted => (JobState::Stopped, Some("it was stopped".to_owned())),
        Ended::Failed(reason) => (JobState::Failed, Some(cut(&reason))),
    };
    progress.ended_ms = Some(now_ms());
    let state = progress.state;
    match engine.persist(job, progress.clone()).await {
        Ok(()) => {}
        Err(Ended::Failed(reason)) => {
            tracing::error!(
                job = job.record.id,
                reason,
                "a preload job has ended, which the store does not take"
            );
            // Not to be run again and again. Whoever leads next tries it once.
            job.persisted(progress);
        }
        Err(_) => return,
    }
    engine.count_ended(state);
    tracing::info!(job = job.record.id, ?state, "a preload job has ended");
}

/// Done means done.
fn verdict(progress: &Progress, spec: &Spec) -> (JobState, Option<String>) {
    let counters = &progress.counters;
    if counters.objects_failed == 0 && counters.objects_missing == 0 {
        return (JobState::Done, None);
    }
    let mut parts = Vec::new();
    if counters.objects_failed > 0 {
        let done = match spec.action {
            Action::Load => "loaded",
            Action::Evict => "given up",
            Action::Unpin => "unpinned",
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

impl Run<'_> {
    async fn go(&self) -> Ended {
        loop {
            let phase = self.job.progress().phase;
            if let Err(ended) = self.phase(phase).await {
                return ended;
            }
            let next = match phase {
                Phase::Count if self.plan.dry_run => return Ended::Through,
                Phase::Count => Phase::Load,
                Phase::Load if self.plan.is_over_without_check() => return Ended::Through,
                Phase::Load => Phase::Check,
                Phase::Check if self.is_worth_another_round() => Phase::Load,
                Phase::Check => return Ended::Through,
            };
            let progress = match (phase, next) {
                (Phase::Check, _) => self.another_round().await,
                _ => {
                    let before = self.job.progress();
                    Progress { phase: next, cursor: before.cursor.anew(), ..before }
                }
            };
            if let Err(ended) = self.engine.persist(self.job, progress).await {
                return ended;
            }
            if phase == Phase::Check {
                self.job.forget_heard();
            }
        }
    }

    /// Something is missing, and what was loaded may have been lost with a worker, or belong to
    /// another one now. What did not fit is no better for being loaded again.
    fn is_worth_another_round(&self) -> bool {
        let Progress { counters, rounds, .. } = self.job.progress();
        let is_missing = counters.objects_missing > 0 || counters.objects_failed > 0;
        is_missing && self.job.heard().is_unsettled && rounds < ROUNDS_MAX
    }

    async fn another_round(&self) -> Progress {
        let before = self.job.progress();
        let id = &self.job.record.id;
        tracing::info!(
            job = id,
            "a preload job begins its list again: workers were started anew, or the map has changed"
        );
        if let Some(folder) = &self.engine.options.failures_folder {
            // What failed is tried again, and listed again if it fails again.
            let _ = tokio::fs::remove_file(failures::file_of(folder, id)).await;
        }
        let Counters { objects, bytes, bytes_loaded, bytes_held, retries, .. } = before.counters;
        Progress {
            phase: Phase::Load,
            cursor: before.cursor.anew(),
            counters: Counters {
                objects,
                bytes,
                bytes_loaded,
                bytes_held,
                retries,
                ..Counters::default()
            },
            failures: Failures::default(),
            failures_bytes: 0,
            rounds: before.rounds + 1,
            heard: Heard::default(),
            ..before
        }
    }

    async fn phase(&self, phase: Phase) -> Result<(), Ended> {
        let cursor = self.job.progress().cursor;
        let mut next = self.unless_over(self.page(phase, &cursor)).await??;
        let mut committing: BoxFuture<'_, Result<(), Ended>> = Box::pin(std::future::ready(Ok(())));
        while let Some(page) = next {
            let both =
                async { tokio::join!(self.go_through(phase, &page), self.page(phase, &page.next)) };
            // Not cut off: what is on its way to the store could come there after what ends the
            // run.
            let (worked, committed) = tokio::join!(self.unless_over(both), committing);
            committed?;
            let (failed, following) = worked?;
            tracing::debug!(
                job = self.job.record.id, ?phase, cursor = ?page.next,
                "a page was gone through"
            );
            committing = Box::pin(self.commit(page.next, failed, self.job.turn_page()));
            // One that can't be had ends the run, but what was done before it is persisted.
            next = match following {
                Ok(next) => next,
                Err(ended) => return committing.await.and(Err(ended)),
            };
        }
        committing.await
    }

    /// May be cancelled by what ends a run; nothing is persisted in here.
    async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Result<T, Ended> {
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
            () = self.engine.stop.cancelled() => Err(Ended::Interrupted),
            () = self.job.deleted.cancelled() => Err(Ended::Deleted),
            () = deadline => Err(Ended::Deadline),
            done = work => Ok(done),
        }
    }

    /// The page at the cursor, asked for with patience.
    async fn page(&self, phase: Phase, cursor: &Cursor) -> Result<Option<Page>, Ended> {
        if let Some(kept) = self.counted.lock().take(phase, cursor) {
            return Ok(Some(kept));
        }
        let (options, began) = (&self.engine.options, Instant::now());
        let mut pause = options.pause_min;
        loop {
            match list::page(&self.plan, &self.engine.mounts, cursor, options.page_keys).await {
                Ok(page) => {
                    if let Some(page) = page.as_ref().filter(|_| phase == Phase::Count) {
                        self.counted.lock().keep(cursor, page);
                    }
                    return Ok(page);
                }
                Err(error) if error.again && began.elapsed() < options.patience => {
                    tracing::debug!(%error, "a page of a list is asked for again");
                    self.engine.metrics.retries.inc();
                    sleep(spread(pause)).await;
                    pause = (pause * 2).min(options.pause_max);
                }
                Err(error) => return Err(Ended::Failed(error.to_string())),
            }
        }
    }

    async fn go_through(&self, phase: Phase, page: &Page) -> Vec<Failure> {
        if phase == Phase::Count {
            self.count(page);
            return Vec::new();
        }
        let mut failed = Vec::new();
        if phase == Phase::Load {
            failed.clone_from(&page.bad);
            self.job.count(|counters| counters.objects_failed += page.bad.len() as u64);
        }
        if self.plan.action == Action::Load {
            self.tell_homes(&page.items).await;
        }
        let items = match phase {
            Phase::Check => self.look_over(&page.items, &mut failed).await,
            Phase::Count | Phase::Load => page.items.iter().collect(),
        };
        // Boxed: of a closure that borrows, the compiler can't show that its future may move
        // between threads.
        let mut work: Vec<BoxFuture<'_, Option<Failure>>> = Vec::with_capacity(items.len());
        for item in items {
            work.push(match phase {
                Phase::Count => continue,
                Phase::Load if self.plan.action != Action::Load => Box::pin(self.tend_item(item)),
                Phase::Load => Box::pin(self.load_item(item)),
                Phase::Check => Box::pin(self.check_item(item)),
            });
        }
        let mut work = stream::iter(work).buffer_unordered(self.engine.options.objects_max);
        while let Some(done) = work.next().await {
            failed.extend(done);
        }
        failed
    }

    fn count(&self, page: &Page) {
        let geometry = self.engine.tier.options().geometry;
        let lengths = page.items.iter().filter_map(|item| item.shown.as_ref()?.bytes);
        let bytes: u64 = lengths.map(|bytes| self.plan.wanted_bytes(geometry, bytes)).sum();
        self.job.count(|counters| {
            counters.objects += (page.items.len() + page.bad.len()) as u64;
            counters.bytes += bytes;
        });
    }

    /// Homes drop what they know otherwise of these objects: what is loaded, or looked for, is what
    /// the list shows, or newer.
    async fn tell_homes(&self, items: &[Item]) {
        let Some(mount) =
            items.iter().find(|item| item.shown.is_some()).map(|item| item.mount.clone())
        else {
            return;
        };
        let entries = items.iter().filter(|item| item.shown.is_some());
        let entries =
            entries.map(|item| ListedEntry { key: item.key.clone(), shown: item.shown.clone() });
        // A page below a prefix is of one mount.
        self.engine.tier.listed(&mount.volume(), entries.collect()).await;
    }

    async fn load_item(&self, item: &Item) -> Option<Failure> {
        let loaded = self.unless_elsewhere(item, self.load(item).await).await;
        let objects = &self.engine.metrics.objects;
        self.job.count(|page| page.objects_loaded += 1);
        let reason = match loaded {
            Ok(()) => {
                objects.with_label_values(&["loaded"]).inc();
                return None;
            }
            Err(Trouble::Absent) if item.shown.is_some() => {
                objects.with_label_values(&["vanished"]).inc();
                self.job.count(|page| page.objects_vanished += 1);
                return None;
            }
            Err(trouble) => in_words(trouble),
        };
        objects.with_label_values(&["failed"]).inc();
        self.job.count(|page| page.objects_failed += 1);
        Some(Failure { path: item.path(), reason })
    }

    async fn tend_item(&self, item: &Item) -> Option<Failure> {
        let tended = self.unless_elsewhere(item, self.tend(item).await).await;
        self.job.count(|page| page.objects_loaded += 1);
        let reason = match tended {
            Ok(()) => return None,
            Err(Trouble::Absent) if item.shown.is_some() => return None,
            Err(trouble) => in_words(trouble),
        };
        self.job.count(|page| page.objects_failed += 1);
        Some(Failure { path: item.path(), reason })
    }

    async fn check_item(&self, item: &Item) -> Option<Failure> {
        let checked = self.unless_elsewhere(item, self.check(item).await).await;
        self.job.count(|page| page.objects_checked += 1);
        let reason = match checked {
            Ok(()) => return None,
            Err(Trouble::Absent) if item.shown.is_some() => return None,
            Err(trouble) => in_words(trouble),
        };
        self.job.count(|page| page.objects_missing += 1);
        Some(Failure { path: item.path(), reason })
    }

    /// A listed object has vanished only if it has for this host, too: to a worker whose `[[ufs]]`
    /// leads elsewhere, every object has.
    async fn unless_elsewhere(
        &self,
        item: &Item,
        done: Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        if done != Err(Trouble::Absent) || item.shown.is_none() {
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
        let budget = self.engine.budget(item.mount.ufs.name());
        let _permit = budget.acquire().await;
        match item.mount.ufs.head(read).await {
            Ok(_) => Err(Trouble::Failed(
                "its worker finds no such object, and this coordinator does; compare their [[ufs]]"
                    .to_owned(),
            )),
            Err(error) if error.answer().is_some_and(|answer| answer.status.as_u16() == 404) => {
                done
            }
            Err(error) => Err(Trouble::Failed(format!(
                "its worker finds no such object, and here it is unclear: {error}"
            ))),
        }
    }

    async fn commit(
        &self,
        next: Cursor,
        failed: Vec<Failure>,
        done: Counters,
    ) -> Result<(), Ended> {
        let mut progress = self.job.progress();
        let options = &self.engine.options;
        let file = options
            .failures_folder
            .as_deref()
            .map(|folder| failures::file_of(folder, &self.job.record.id));
        let (of, bytes) = (&mut progress.failures, &mut progress.failures_bytes);
        failures::add(file.as_deref(), options.failures_bytes_max, &failed, of, bytes).await;
        progress.counters = sum(&progress.counters, &done);
        progress.cursor = next;
        progress.heard = self.job.heard();
        self.engine.persist(self.job, progress).await
    }

    /// Waits until these bytes may be taken from a UFS.
    pub(crate) async fn spend(&self, bytes: u64) {
        let Some(bucket) = self.bucket.as_ref().filter(|_| bytes > 0) else { return };
        let wait = bucket.lock().take(bytes, self.began.elapsed());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        if let Some(bucket) = &self.bucket {
            bucket.lock().give_back(bytes);
        }
    }
}

fn in_words(trouble: Trouble) -> String {
    match trouble {
        Trouble::Absent => "there is no such object".to_owned(),
        Trouble::Changed => "it has changed meanwhile".to_owned(),
        Trouble::Failed(reason) => cut(&reason),
    }
}

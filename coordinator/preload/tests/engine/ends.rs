//! Tests how jobs begin and end while their store refuses, loses answers, or waits, and while other
//! jobs have all the slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use prometheus::Registry;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Semaphore;
use verbs3_preload::api::{JobState, JobView, PreloadJobSpec};
use verbs3_preload::metrics::PreloadMetrics;
use verbs3_preload::{JobStore, JobStoreError, MemoryJobs, PreloadEngine, PreloadEngineError};
use verbs3_settings::TimePeriod;

use crate::preload_fixture::{PreloadFixture, below, over, run};

/// Result of a write.
enum Does {
    Takes,
    Refuses,
    /// Writes, but the answer is lost.
    Loses,
    /// Waits for a permit.
    Waits,
    Panics,
}

/// Store that does what it is told for each key and its bytes.
struct ScriptedJobs<F> {
    inner: MemoryJobs,
    does: F,
    permits: Semaphore,
}

impl<F: Fn(&str, usize) -> Does> ScriptedJobs<F> {
    fn new(does: F) -> Arc<Self> {
        Arc::new(Self { inner: MemoryJobs::default(), does, permits: Semaphore::new(0) })
    }
}

#[async_trait]
impl<F: Fn(&str, usize) -> Does + Send + Sync + 'static> JobStore for ScriptedJobs<F> {
    async fn list_entries(&self) -> Result<Vec<(String, Bytes)>, JobStoreError> {
        self.inner.list_entries().await
    }

    async fn put_entry(&self, key: &str, value: Bytes, new: bool) -> Result<(), JobStoreError> {
        match (self.does)(key, value.len()) {
            Does::Takes => {}
            Does::Refuses => return Err(JobStoreError::Refused(key.to_owned())),
            Does::Loses => {
                self.inner.put_entry(key, value, new).await?;
                return Err(JobStoreError::Unavailable("no answer came".into()));
            }
            Does::Waits => self.permits.acquire().await.unwrap().forget(),
            Does::Panics => panic!("a test's store was told to"),
        }
        self.inner.put_entry(key, value, new).await
    }

    async fn delete_entry(&self, key: &str) -> Result<(), JobStoreError> {
        self.inner.delete_entry(key).await
    }
}

fn named(id: &str) -> PreloadJobSpec {
    PreloadJobSpec { id: Some(id.into()), ..below("") }
}

/// Returns a job that holds the only slot until the engine stops, and another one that waits.
async fn waiting_behind_another(
    fixture: &PreloadFixture,
    store: Arc<dyn JobStore>,
    spec: impl FnOnce() -> PreloadJobSpec,
) -> (Arc<PreloadEngine>, JobView) {
    fixture.put("k", 5);
    fixture.store.stalls_after.store(1, Ordering::SeqCst);
    fixture.store.gets.store(1, Ordering::SeqCst);
    let patience = Duration::from_secs(600);
    let mut options = fixture.options();
    options.settings.jobs_running_max = 1;
    options.settings.patience = TimePeriod(patience);
    let (engine, _running) = fixture.engine_with(options, store).await;
    let first = engine.create_job(named("first")).await.unwrap().0;
    let mut news = first.news;
    loop {
        let view = engine.get("first", Some(news), Duration::from_secs(60)).await.unwrap();
        news = view.news;
        if view.state == JobState::Running {
            break;
        }
    }
    let waiting = engine.create_job(spec()).await.unwrap().0;
    (engine, waiting)
}

#[tokio::test]
async fn a_waiting_job_is_stopped_though_all_slots_are_taken() {
    let fixture = PreloadFixture::new(1);
    let store = Arc::new(MemoryJobs::default());
    let (engine, _) = waiting_behind_another(&fixture, store.clone(), || named("second")).await;
    engine.end_job("second").await.unwrap();
    assert_eq!(over(&engine, "second").await.state, JobState::Stopped);
    assert_eq!(engine.get("first", None, Duration::ZERO).await.unwrap().state, JobState::Running);
    engine.request_stop();
    // The job is stopped for the next leader, too.
    let (engine, _running) = fixture.engine(store).await;
    assert_eq!(engine.get("second", None, Duration::ZERO).await.unwrap().state, JobState::Stopped);
}

#[tokio::test]
async fn a_waiting_job_ends_at_its_deadline() {
    let fixture = PreloadFixture::new(1);
    let spec = || {
        let soon = OffsetDateTime::now_utc() + Duration::from_secs(8);
        PreloadJobSpec { deadline: Some(soon.format(&Rfc3339).unwrap()), ..named("second") }
    };
    let (engine, waiting) =
        waiting_behind_another(&fixture, Arc::new(MemoryJobs::default()), spec).await;
    assert_eq!(waiting.state, JobState::Queued);
    let view = over(&engine, "second").await;
    assert_eq!(
        (view.state, view.reason.as_deref()),
        (JobState::Incomplete, Some("its deadline is over"))
    );
    assert_eq!(engine.get("first", None, Duration::ZERO).await.unwrap().state, JobState::Running);
}

#[tokio::test]
async fn a_job_is_run_though_its_asker_has_hung_up() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    let asked = Arc::new(AtomicBool::new(false));
    let is_asked = asked.clone();
    let store = ScriptedJobs::new(move |key: &str, _| match key.ends_with("/spec") {
        true => {
            is_asked.store(true, Ordering::SeqCst);
            Does::Waits
        }
        false => Does::Takes,
    });
    let (engine, _running) = fixture.engine(store.clone()).await;
    let asker = tokio::spawn({
        let engine = engine.clone();
        async move { engine.create_job(named("job")).await }
    });
    while !asked.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    asker.abort();
    assert!(asker.await.unwrap_err().is_cancelled());
    store.permits.add_permits(1);
    // Sent again, it is the same job.
    let (_, is_new) = engine.create_job(named("job")).await.unwrap();
    assert!(!is_new);
    assert_eq!(over(&engine, "job").await.state, JobState::Done);
}

#[tokio::test]
async fn a_job_whose_answer_was_lost_is_run_when_it_is_sent_again() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    let store = ScriptedJobs::new(
        |key: &str, _| if key.ends_with("/spec") { Does::Loses } else { Does::Takes },
    );
    let (engine, _running) = fixture.engine(store).await;
    let lost = engine.create_job(named("job")).await.unwrap_err();
    assert!(matches!(lost, PreloadEngineError::Store(JobStoreError::Unavailable(_))), "{lost}");
    let other =
        engine.create_job(PreloadJobSpec { verify: true, ..named("job") }).await.unwrap_err();
    assert!(matches!(other, PreloadEngineError::Other(_)), "{other}");
    engine.create_job(named("job")).await.unwrap();
    assert_eq!(over(&engine, "job").await.state, JobState::Done);
}

#[tokio::test]
async fn progress_of_a_forgotten_job_is_not_taken_for_the_next_ones() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    let before = MemoryJobs::default();
    {
        let store = Arc::new(MemoryJobs::default());
        let (engine, _running) = fixture.engine(store.clone()).await;
        assert_eq!(run(&engine, named("job")).await.state, JobState::Done);
        engine.request_stop();
        let progress = store
            .list_entries()
            .await
            .unwrap()
            .into_iter()
            .find(|(key, _)| key == "job/progress")
            .unwrap();
        before.put_entry("job/progress", progress.1, true).await.unwrap();
    }
    let store: Arc<dyn JobStore> = Arc::new(before);
    let metrics = PreloadMetrics::new(&Registry::new()).unwrap();
    let opened = PreloadEngine::load_from_store(
        fixture.options(),
        fixture.tier.clone(),
        fixture.mounts.clone(),
        store.clone(),
        metrics,
    );
    // Its leader dies before the job has begun.
    opened.await.unwrap().create_job(named("job")).await.unwrap();
    let lists = fixture.store.lists.load(Ordering::SeqCst);
    let (engine, _running) = fixture.engine(store).await;
    assert_eq!(over(&engine, "job").await.state, JobState::Done);
    assert_eq!(fixture.store.lists.load(Ordering::SeqCst), lists + 2);
}

#[tokio::test]
async fn lines_of_no_manifest_do_not_outgrow_the_store() {
    const VALUE_BYTES_MAX: usize = 1 << 20;
    let fixture = PreloadFixture::new(1);
    let line = format!("{{\"path\": \"{}\"}}\n", "a \"quoted\" word ".repeat(2000));
    fixture.store.texts.lock().insert("below/list".into(), line.repeat(100));
    let store =
        ScriptedJobs::new(
            |_: &str, bytes| if bytes > VALUE_BYTES_MAX { Does::Refuses } else { Does::Takes },
        );
    let (engine, _running) = fixture.engine(store).await;
    let view = run(
        &engine,
        PreloadJobSpec { manifest: Some("s3://train/list".into()), ..PreloadJobSpec::default() },
    )
    .await;
    assert_eq!((view.state, view.failures.count), (JobState::Incomplete, 100), "{:?}", view.reason);
    assert!(view.failures.first.iter().all(|failure| failure.path.starts_with("{\"path\"")));
}

#[tokio::test]
async fn progress_that_the_store_refuses_fails_its_job_alone() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    let store = ScriptedJobs::new(
        |key: &str, _| if key == "bad/progress" { Does::Refuses } else { Does::Takes },
    );
    let mut options = fixture.options();
    options.settings.jobs_running_max = 1;
    let (engine, _running) = fixture.engine_with(options, store).await;
    let view = run(&engine, named("bad")).await;
    assert_eq!(view.state, JobState::Failed);
    assert!(view.reason.as_ref().unwrap().contains("does not take it: bad/progress"), "{view:?}");
    assert_eq!(run(&engine, named("good")).await.state, JobState::Done);
}

#[tokio::test]
async fn a_run_that_panics_fails_its_job_and_leaves_its_slot() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    let once = AtomicBool::new(true);
    let store = ScriptedJobs::new(move |key: &str, _| {
        match key == "bad/progress" && once.swap(false, Ordering::SeqCst) {
            true => Does::Panics,
            false => Does::Takes,
        }
    });
    let mut options = fixture.options();
    options.settings.jobs_running_max = 1;
    let (engine, _running) = fixture.engine_with(options, store).await;
    let view = run(&engine, named("bad")).await;
    assert_eq!(view.state, JobState::Failed);
    assert!(view.reason.as_ref().unwrap().contains("defect"), "{view:?}");
    assert_eq!(run(&engine, named("good")).await.state, JobState::Done);
}

#[tokio::test]
async fn a_job_that_waits_for_its_store_says_so_meanwhile() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    fixture.store.lists_busy.store(true, Ordering::SeqCst);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    engine.create_job(named("job")).await.unwrap();
    let mut news = None;
    let view = loop {
        let view = engine.get("job", news, Duration::from_secs(60)).await.unwrap();
        if view.reason.is_some() {
            break view;
        }
        news = Some(view.news);
    };
    assert_eq!(view.state, JobState::Running);
    let reason = view.reason.unwrap();
    assert!(reason.contains("SlowDown") || reason.contains("503"), "{reason}");
    fixture.store.lists_busy.store(false, Ordering::SeqCst);
    let done = over(&engine, "job").await;
    assert_eq!((done.state, done.reason), (JobState::Done, None));
}

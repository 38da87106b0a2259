//! Tests jobs whose engine ends during a run, and workers that go away and come back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use verbs3_preload::api::{JobState, PreloadJobSpec, PreloadPhase};
use verbs3_preload::{JobStore, JobStoreError, MemoryJobs};
use verbs3_settings::TimePeriod;

use crate::preload_fixture::{PreloadFixture, below, over, run};

#[tokio::test]
async fn a_job_that_is_cut_off_goes_on_and_ends_as_if_it_had_not_been() {
    let fixture = PreloadFixture::new(3);
    let bytes = fixture.put_some(60);
    let store = Arc::new(MemoryJobs::default());
    let spec = PreloadJobSpec { id: Some("job".into()), ..below("") };
    // Each engine gets some way, and is ended in the middle of a page.
    for part in 1..6 {
        fixture
            .store
            .stalls_after
            .store(fixture.store.gets.load(Ordering::SeqCst) + 11, Ordering::SeqCst);
        let (engine, running) = fixture.engine(store.clone()).await;
        engine.create_job(spec.clone()).await.unwrap();
        let stuck = fixture.store.stalls_after.load(Ordering::SeqCst);
        while fixture.store.gets.load(Ordering::SeqCst) <= stuck {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        engine.request_stop();
        running.await.unwrap();
        assert_eq!(engine.jobs_page(None, None, 1).jobs[0].state, JobState::Running, "part {part}");
    }
    fixture.store.stalls_after.store(0, Ordering::SeqCst);
    let (engine, _running) = fixture.engine(store.clone()).await;
    let view = over(&engine, "job").await;
    assert_eq!((view.state, view.resumed), (JobState::Done, 5));
    assert_eq!(
        (view.counters.objects, view.counters.objects_loaded, view.counters.objects_checked),
        (60, 60, 60)
    );
    assert_eq!(view.counters.bytes_loaded + view.counters.bytes_held, bytes);
    assert_eq!(view.counters.bytes_checked, bytes);
    assert_eq!(fixture.store.body_bytes(), bytes, "amplification of the store's bytes");
    fixture.assert_hot().await;
}

#[tokio::test]
async fn a_job_that_is_over_is_not_run_again() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(9);
    let store = Arc::new(MemoryJobs::default());
    let (engine, running) = fixture.engine(store.clone()).await;
    let before = run(&engine, PreloadJobSpec { id: Some("job".into()), ..below("") }).await;
    engine.request_stop();
    running.await.unwrap();
    let lists = fixture.store.lists.load(Ordering::SeqCst);
    let (engine, _running) = fixture.engine(store).await;
    let after = engine.jobs_page(None, None, 1).jobs.remove(0);
    assert_eq!(
        (after.state, after.counters, after.ended_ms),
        (before.state, before.counters, before.ended_ms)
    );
    assert_eq!(fixture.store.lists.load(Ordering::SeqCst), lists);
}

#[tokio::test]
async fn a_worker_that_is_away_for_a_while_is_waited_for() {
    let fixture = PreloadFixture::new(2);
    let bytes = fixture.put_some(30);
    fixture.faults[1].refuse_connects(3);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    let view = run(&engine, below("")).await;
    assert_eq!((view.state, view.counters.bytes_loaded), (JobState::Done, bytes));
    assert!(view.counters.retries > 0);
    fixture.assert_hot().await;
}

#[tokio::test]
async fn a_worker_that_stays_away_is_named() {
    let fixture = PreloadFixture::new(2);
    fixture.put_some(12);
    fixture.faults[0].refuse_connects(u32::MAX);
    let mut options = fixture.options();
    options.settings.patience = TimePeriod(Duration::from_millis(100));
    let (engine, _running) = fixture.engine_with(options, Arc::new(MemoryJobs::default())).await;
    let view = run(&engine, below("")).await;
    assert_eq!(view.state, JobState::Incomplete);
    assert!(
        view.counters.objects_failed > 0 && view.counters.objects_failed < 12,
        "{:?}",
        view.counters
    );
    assert!(
        view.failures.first.iter().all(|failure| failure.reason.contains("worker-0")),
        "{:?}",
        view.failures.first
    );
}

#[tokio::test]
async fn what_a_worker_loses_in_the_middle_is_loaded_again() {
    let fixture = PreloadFixture::new(3);
    let bytes = fixture.put_some(60);
    fixture.store.stalls_after.store(35, Ordering::SeqCst);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    engine.create_job(PreloadJobSpec { id: Some("job".into()), ..below("") }).await.unwrap();
    while fixture.store.gets.load(Ordering::SeqCst) <= 35 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fixture.restart(0).await;
    fixture.restart(1).await;
    fixture.store.stalls_after.store(0, Ordering::SeqCst);
    let view = over(&engine, "job").await;
    assert_eq!(view.state, JobState::Done, "{view:?}");
    assert!(view.rounds > 0 && view.rounds < 4, "{} rounds", view.rounds);
    assert_eq!(
        (view.counters.objects, view.counters.objects_loaded, view.counters.objects_checked),
        (60, 60, 60)
    );
    assert_eq!((view.counters.bytes_checked, view.counters.bytes_missing), (bytes, 0));
    fixture.assert_hot().await;
}

/// Loading it again would only drive out the rest.
#[tokio::test]
async fn what_does_not_fit_is_not_loaded_again() {
    let fixture = PreloadFixture::with(1, 8 << 20);
    (0..24).for_each(|number| fixture.put(&format!("k{number:02}"), 1 << 20));
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    let view = run(&engine, below("")).await;
    assert_eq!((view.state, view.rounds), (JobState::Incomplete, 0));
    assert!(view.counters.objects_missing > 0, "{:?}", view.counters);
}

/// Store of jobs that is away for some writes and then belongs to another.
struct FlakyJobs {
    inner: MemoryJobs,
    /// Results of the next writes.
    errors: Mutex<Vec<JobStoreError>>,
}

#[async_trait]
impl JobStore for FlakyJobs {
    async fn list_entries(&self) -> Result<Vec<(String, Bytes)>, JobStoreError> {
        self.inner.list_entries().await
    }

    async fn put_entry(&self, key: &str, value: Bytes, new: bool) -> Result<(), JobStoreError> {
        if let Some(error) = self.errors.lock().pop().filter(|_| !new) {
            return Err(error);
        }
        self.inner.put_entry(key, value, new).await
    }

    async fn delete_entry(&self, key: &str) -> Result<(), JobStoreError> {
        self.inner.delete_entry(key).await
    }
}

#[tokio::test]
async fn an_absent_store_is_waited_for_and_a_deposed_engine_ends() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(12);
    let away = || JobStoreError::Unavailable("away".into());
    let store = Arc::new(FlakyJobs {
        inner: MemoryJobs::default(),
        errors: Mutex::new(vec![away(), away(), away()]),
    });
    let (engine, running) = fixture.engine(store.clone()).await;
    assert_eq!(run(&engine, below("")).await.state, JobState::Done);
    *store.errors.lock() = vec![JobStoreError::Deposed("another".into()); 2];
    engine.create_job(PreloadJobSpec { id: Some("later".into()), ..below("") }).await.unwrap();
    running.await.unwrap();
    let later = engine.get("later", None, Duration::ZERO).await.unwrap();
    assert_eq!((later.state, later.phase), (JobState::Queued, PreloadPhase::Count));
}

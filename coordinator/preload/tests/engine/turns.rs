//! Tests which job runs when, how much all of them have in flight at once, and when a running job
//! must end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use verbs3_preload::api::{JobState, PreloadJobSpec, PreloadPriority};
use verbs3_preload::{MemoryJobs, PreloadEngine};

use crate::preload_fixture::{PreloadFixture, below, over};

async fn runs(engine: &PreloadEngine, id: &str) {
    let mut news = None;
    loop {
        let view = engine.get(id, news, Duration::from_secs(60)).await.unwrap();
        if view.state == JobState::Running {
            return;
        }
        assert_eq!(view.state, JobState::Queued, "{view:?}");
        news = Some(view.news);
    }
}

#[tokio::test]
async fn waiting_jobs_begin_by_priority_and_then_by_age() {
    let fixture = PreloadFixture::new(1);
    let prefixes = ["first", "low", "normal", "younger", "high"];
    prefixes.iter().for_each(|prefix| fixture.put(&format!("{prefix}/k"), 5));
    fixture.store.stalls_after.store(1, Ordering::SeqCst);
    fixture.store.gets.store(1, Ordering::SeqCst);
    let mut options = fixture.options();
    options.settings.jobs_running_max = 1;
    let (engine, _running) = fixture.engine_with(options, Arc::new(MemoryJobs::default())).await;
    let job = |id: &str, priority| PreloadJobSpec {
        id: Some(id.into()),
        priority,
        ..below(&format!("{id}/"))
    };
    engine.create_job(job("first", PreloadPriority::Low)).await.unwrap();
    runs(&engine, "first").await;
    for (id, priority) in [
        ("low", PreloadPriority::Low),
        ("normal", PreloadPriority::Normal),
        ("younger", PreloadPriority::Normal),
        ("high", PreloadPriority::High),
    ] {
        engine.create_job(job(id, priority)).await.unwrap();
    }
    let begun: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = begun.clone();
    *fixture.store.meanwhile.lock() = Some(Box::new(move |_, what, prefix| {
        let mut seen = seen.lock();
        if what == "list" && seen.last().is_none_or(|last| last != prefix) {
            seen.push(prefix.to_owned());
        }
    }));
    fixture.store.stalls_after.store(0, Ordering::SeqCst);
    engine.end_job("first").await.unwrap();
    for id in ["high", "normal", "younger", "low"] {
        assert_eq!(over(&engine, id).await.state, JobState::Done, "{id}");
    }
    let begun: Vec<String> =
        begun.lock().iter().filter(|prefix| !prefix.contains("first")).cloned().collect();
    assert_eq!(begun, ["below/high/", "below/normal/", "below/younger/", "below/low/"]);
}

#[tokio::test]
async fn all_jobs_together_respect_the_bound_of_a_store() {
    let fixture = PreloadFixture::new(2);
    for job in ["a", "b"] {
        (0..8).for_each(|number| fixture.put(&format!("{job}/small{number}"), 4096));
        fixture.put(&format!("{job}/large"), 6 << 20);
    }
    fixture.store.slow_ms.store(20, Ordering::SeqCst);
    let mut options = fixture.options();
    options.settings.blocks_per_ufs_max = 3;
    let (engine, _running) = fixture.engine_with(options, Arc::new(MemoryJobs::default())).await;
    for job in ["a", "b"] {
        engine
            .create_job(PreloadJobSpec { id: Some(job.into()), ..below(&format!("{job}/")) })
            .await
            .unwrap();
    }
    for job in ["a", "b"] {
        let view = over(&engine, job).await;
        assert_eq!(
            (view.state, view.counters.bytes_loaded),
            (JobState::Done, 8 * 4096 + (6 << 20)),
            "{view:?}"
        );
    }
    assert_eq!(fixture.store.under_way_most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_running_job_ends_at_its_deadline_and_says_so() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(20);
    fixture.store.stalls_after.store(3, Ordering::SeqCst);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    let deadline = OffsetDateTime::now_utc() + Duration::from_secs(8);
    let said = deadline.format(&Rfc3339).unwrap();
    engine
        .create_job(PreloadJobSpec { id: Some("job".into()), deadline: Some(said), ..below("") })
        .await
        .unwrap();
    runs(&engine, "job").await;
    let view = over(&engine, "job").await;
    assert_eq!(
        (view.state, view.reason.as_deref()),
        (JobState::Incomplete, Some("its deadline is over"))
    );
    let ended = i128::from(view.ended_ms.unwrap());
    assert!(ended >= deadline.unix_timestamp_nanos() / 1_000_000 - 1, "{view:?}");
    assert!(view.counters.objects_loaded < 20, "{view:?}");
}

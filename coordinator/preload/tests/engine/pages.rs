//! Tests what lists of jobs hold, and how much at once.

use std::sync::Arc;

use verbs3_preload::api::{JobState, JobsPage, PreloadJobSpec};
use verbs3_preload::{JobsPageToken, MemoryJobs, PreloadEngine};

use crate::preload_fixture::{PreloadFixture, below, run};

/// Returns the pages from the newest job on, up to the last one.
fn pages(engine: &PreloadEngine, jobs_max: usize) -> Vec<JobsPage> {
    let mut pages = vec![engine.jobs_page(None, None, jobs_max)];
    while let Some(next) = &pages[pages.len() - 1].next {
        let after: JobsPageToken = next.parse().unwrap();
        pages.push(engine.jobs_page(None, Some(&after), jobs_max));
    }
    pages
}

fn ids(pages: &[JobsPage]) -> Vec<String> {
    pages.iter().flat_map(|page| &page.jobs).map(|job| job.id.clone()).collect()
}

#[tokio::test]
async fn pages_of_any_size_show_every_job_once_and_newest_first() {
    let fixture = PreloadFixture::new(1);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    fixture.put("k", 5);
    assert_eq!(engine.jobs_page(None, None, 3), JobsPage::default());
    for number in 0..7 {
        let spec = PreloadJobSpec { id: Some(format!("job-{number}")), dry_run: true, ..below("") };
        assert_eq!(run(&engine, spec).await.state, JobState::Done);
    }
    let wanted: Vec<String> = (0..7).rev().map(|number| format!("job-{number}")).collect();
    for (jobs_max, pages_wanted) in [(1, 7), (3, 3), (7, 1), (100, 1)] {
        let pages = pages(&engine, jobs_max);
        assert_eq!((ids(&pages), pages.len()), (wanted.clone(), pages_wanted), "{jobs_max} a page");
        assert!(pages.iter().all(|page| page.jobs.len() <= jobs_max));
    }
}

#[tokio::test]
async fn a_page_of_long_descriptions_ends_before_it_is_too_long() {
    const JOBS: usize = 80;
    let fixture = PreloadFixture::new(1);
    let mut options = fixture.options();
    options.settings.jobs_max = JOBS as u32;
    let (engine, running) = fixture.engine_with(options, Arc::new(MemoryJobs::default())).await;
    // No job needs to run for this.
    engine.request_stop();
    running.await.unwrap();
    let long = vec![format!("s3://train/{}", "k".repeat(60_000))];
    for number in 0..JOBS {
        let spec = PreloadJobSpec {
            id: Some(format!("job-{number}")),
            paths: long.clone(),
            ..PreloadJobSpec::default()
        };
        engine.create_job(spec).await.unwrap();
    }
    let pages = pages(&engine, 100);
    assert!(pages.len() > 1, "{} bytes in one page", JOBS * 60_000);
    for page in &pages {
        let bytes = serde_json::to_vec(page).unwrap().len();
        assert!(bytes < 5 << 20 && !page.jobs.is_empty(), "{bytes} bytes");
    }
    assert_eq!(
        ids(&pages),
        (0..JOBS).rev().map(|number| format!("job-{number}")).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn jobs_that_ended_with_something_missing_are_told_apart() {
    let fixture = PreloadFixture::new(1);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    let past = |id: String| PreloadJobSpec {
        id: Some(id),
        deadline: Some("2020-01-01T00:00:00Z".into()),
        ..below("")
    };
    fixture.put("k", 5);
    run(&engine, below("")).await;
    assert!(engine.jobs_overview().unfinished.is_empty());
    for number in 0..7 {
        let id = format!("late-{number}");
        assert_eq!(run(&engine, past(id)).await.state, JobState::Incomplete);
    }
    let glance = engine.jobs_overview();
    assert_eq!(glance.unfinished.len(), 5);
    assert!(
        glance.unfinished.iter().all(|job| job.reason.as_deref() == Some("its deadline is over"))
    );
    assert!(glance.unfinished.iter().any(|job| job.id == "late-6"), "{glance:?}");
}

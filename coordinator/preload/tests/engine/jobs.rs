//! Tests what a job loads, and how it reports what it did not load.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use verbs3_preload::api::{JobState, PreloadByteRange, PreloadFailure, PreloadJobSpec};
use verbs3_preload::{JobOwner, MemoryJobs, PreloadEngineError, PreloadOptions};

use crate::guests::owned;
use crate::preload_fixture::{PreloadFixture, below, over, run};

fn jobs() -> Arc<MemoryJobs> {
    Arc::new(MemoryJobs::default())
}

#[tokio::test]
async fn what_is_below_a_prefix_is_loaded_once_and_is_hot() {
    let fixture = PreloadFixture::new(3);
    let bytes = fixture.put_some(40);
    let (engine, running) = fixture.engine(jobs()).await;
    let view = run(&engine, PreloadJobSpec { verify: true, ..below("") }).await;
    assert_eq!((view.state, view.reason), (JobState::Done, None));
    let counters = view.counters;
    assert_eq!((counters.objects, counters.objects_loaded, counters.objects_checked), (40, 40, 40));
    assert_eq!(
        (counters.bytes, counters.bytes_loaded, counters.bytes_checked),
        (bytes, bytes, bytes)
    );
    assert_eq!((counters.bytes_held, counters.objects_compared, view.failures.count), (0, 40, 0));
    assert_eq!(fixture.store.body_bytes(), bytes, "amplification of the store's bytes");
    fixture.assert_hot().await;
    // The second run finds everything there.
    let again = run(&engine, below("k")).await;
    assert_eq!(
        (again.state, again.counters.bytes_loaded, again.counters.bytes_held),
        (JobState::Done, 0, bytes)
    );
    assert_eq!(fixture.store.body_bytes(), bytes);
    engine.request_stop();
    running.await.unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn small_objects_cost_one_request_each() {
    let fixture = PreloadFixture::new(2);
    (0..30).for_each(|number| fixture.put(&format!("k{number}"), 4096));
    let (engine, _running) = fixture.engine(jobs()).await;
    assert_eq!(run(&engine, below("")).await.state, JobState::Done);
    // This store shows only in a whole GET whether an object has checksums.
    assert_eq!(fixture.store.asked(), (30, 0));
    // Each is loaded by a question of its own, but looked for together with others: five pages at
    // two homes.
    assert_eq!(fixture.calls("warm"), 30.0);
    assert!((1.0..=10.0).contains(&fixture.calls("look")), "{}", fixture.calls("look"));
    // The list is fetched twice: to count, and to look for the objects.
    assert_eq!(fixture.store.lists.load(Ordering::SeqCst), 2 * 5);
}

#[tokio::test]
async fn replicas_are_loaded_too() {
    let fixture = PreloadFixture::new(3);
    let bytes = fixture.put_some(12);
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, PreloadJobSpec { replicas: 2, ..below("") }).await;
    assert_eq!((view.state, view.counters.bytes_loaded), (JobState::Done, 2 * bytes));
    assert_eq!(view.counters.bytes_checked, 2 * bytes);
}

#[tokio::test]
async fn of_a_cold_start_with_replicas_the_store_is_read_once() {
    let fixture = PreloadFixture::new(3);
    fixture.reach_each_other(16 << 20);
    (0..8).for_each(|number| fixture.put(&format!("k{number}"), 3 << 20));
    let bytes = 8 * (3 << 20);
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, PreloadJobSpec { replicas: 2, ..below("") }).await;
    assert_eq!(view.state, JobState::Done, "{view:?}");
    let sent = fixture.store.body_bytes();
    assert!(sent as f64 <= bytes as f64 * 1.01, "the store sent {sent} bytes, for {bytes} in all");
    let counters = view.counters;
    assert_eq!(
        (counters.bytes_loaded + counters.bytes_held, counters.bytes_checked),
        (2 * bytes, 2 * bytes)
    );
    fixture.assert_hot().await;
}

#[tokio::test]
async fn paths_and_a_manifest_name_objects() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(30);
    let mut manifest: Vec<String> =
        (0..20).map(|number| format!("s3://train/k{number:04}")).collect();
    manifest.extend(["".to_owned(), "k0001".to_owned(), "s3://train/missing".to_owned()]);
    fixture.store.texts.lock().insert("below/list".into(), manifest.join("\n"));
    let (engine, _running) = fixture.engine(jobs()).await;
    let spec = PreloadJobSpec {
        paths: vec!["s3://train/k0025".into(), "s3://train/k0026".into()],
        manifest: Some("s3://train/list".into()),
        ..PreloadJobSpec::default()
    };
    let view = run(&engine, spec).await;
    assert_eq!(
        (view.state, view.counters.objects, view.counters.objects_failed),
        (JobState::Incomplete, 24, 2)
    );
    let named: Vec<&str> =
        view.failures.first.iter().map(|failure| failure.path.as_str()).collect();
    assert!(named.contains(&"k0001") && named.contains(&"s3://train/missing"), "{named:?}");
    let gets = fixture.store.gets.load(Ordering::SeqCst);
    // The manifest's own object is among the requests.
    assert!(run(&engine, below("k0019")).await.counters.bytes_loaded == 0);
    assert_eq!(fixture.store.gets.load(Ordering::SeqCst), gets);
}

#[tokio::test]
async fn ranges_attributes_and_dry_runs_load_no_more_than_asked() {
    let fixture = PreloadFixture::new(2);
    fixture.put("big", 5 << 20);
    fixture.put("small", 100);
    let (engine, _running) = fixture.engine(jobs()).await;
    let dry = run(&engine, PreloadJobSpec { dry_run: true, ..below("") }).await;
    assert_eq!(
        (dry.state, dry.counters.objects, dry.counters.bytes),
        (JobState::Done, 2, (5 << 20) + 100)
    );
    assert_eq!((fixture.store.asked(), fixture.store.lists.load(Ordering::SeqCst)), ((0, 0), 1));
    let attributes = run(&engine, PreloadJobSpec { metadata_only: true, ..below("") }).await;
    assert_eq!((attributes.state, attributes.counters.objects_loaded), (JobState::Done, 2));
    assert_eq!(fixture.store.asked(), (0, 2));
    let ranges = vec![
        PreloadByteRange { first: 10, last: Some(20) },
        PreloadByteRange { first: 4 << 20, last: None },
    ];
    let some = run(&engine, PreloadJobSpec { ranges, ..below("") }).await;
    let wanted = (64 << 10) + (1 << 20) + 100;
    assert_eq!(
        (some.state, some.counters.bytes, some.counters.bytes_loaded),
        (JobState::Done, wanted, wanted)
    );
    assert_eq!(fixture.store.body_bytes(), wanted);
}

#[tokio::test]
async fn what_the_store_does_not_give_is_named_with_the_reason() {
    let fixture = PreloadFixture::new(2);
    fixture.put_some(30);
    fixture.store.fails.lock().extend(["below/k0003".to_owned(), "below/k0021".to_owned()]);
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, below("")).await;
    assert_eq!(view.state, JobState::Incomplete);
    assert!(view.reason.unwrap().starts_with("2 objects could not be loaded"));
    assert_eq!((view.counters.objects_failed, view.counters.objects_loaded), (2, 30));
    let text = std::fs::read_to_string(view.failures.file.unwrap()).unwrap();
    let failures: Vec<PreloadFailure> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(failures.len() as u64, view.failures.count);
    for key in ["s3://train/k0003", "s3://train/k0021"] {
        let failure = failures.iter().find(|failure| failure.path == key).unwrap();
        assert!(failure.reason.contains("500"), "{failure:?}");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_not_said_to_be_there() {
    let fixture = PreloadFixture::with(1, 8 << 20);
    (0..24).for_each(|number| fixture.put(&format!("k{number:02}"), 1 << 20));
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, below("")).await;
    assert_eq!((view.state, view.counters.objects_failed), (JobState::Incomplete, 0));
    assert!(view.counters.objects_missing >= 16, "{:?}", view.counters);
    assert!(view.counters.bytes_missing >= 16 << 20);
    assert_eq!(view.counters.bytes_missing + view.counters.bytes_checked, 24 << 20);
    assert!(view.failures.first[0].reason.contains("not in the tier any more"));
}

#[tokio::test]
async fn bytes_that_are_not_those_of_the_checksum_are_found() {
    let fixture = PreloadFixture::new(2);
    fixture.put_some(12);
    fixture.store.lies.lock().insert("below/k0002".into());
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, PreloadJobSpec { verify: true, ..below("") }).await;
    assert_eq!((view.state, view.counters.objects_missing), (JobState::Incomplete, 1));
    assert_eq!(view.failures.first[0].path, "s3://train/k0002");
    assert!(view.failures.first[0].reason.contains("checksum"));
}

#[tokio::test]
async fn a_list_that_can_not_be_had_fails_the_job() {
    let fixture = PreloadFixture::new(1);
    fixture.store.lists_fail.store(true, Ordering::SeqCst);
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, below("")).await;
    assert_eq!(view.state, JobState::Failed);
    let reason = view.reason.unwrap();
    assert!(reason.contains("can't list s3://train/") && reason.contains("403"), "{reason}");
}

#[tokio::test]
async fn the_same_job_under_the_same_id_is_one() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(5);
    let (engine, _running) = fixture.engine(jobs()).await;
    let spec = PreloadJobSpec { id: Some("nightly".into()), ..below("") };
    let (first, is_new) = engine.create_job(spec.clone()).await.unwrap();
    assert!(is_new && first.id == "nightly");
    let (second, is_new) = engine.create_job(spec.clone()).await.unwrap();
    assert!(!is_new && second.created_ms == first.created_ms);
    let other = engine.create_job(PreloadJobSpec { verify: true, ..spec }).await.unwrap_err();
    assert!(matches!(other, PreloadEngineError::Other(_)), "{other}");
    assert_eq!(engine.jobs_page(None, None, 100).jobs.len(), 1);
    let unknown = engine.get("daily", None, Duration::ZERO).await.unwrap_err();
    assert!(matches!(unknown, PreloadEngineError::Unknown(_)));
}

#[tokio::test]
async fn jobs_that_are_over_make_room_and_others_do_not() {
    let fixture = PreloadFixture::new(1);
    fixture.put("k", 5);
    let store = jobs();
    let mut options = fixture.options();
    options.settings.jobs_max = 2;
    let (engine, _running) = fixture.engine_with(options, store.clone()).await;
    for id in ["a", "b", "c"] {
        assert_eq!(
            run(&engine, PreloadJobSpec { id: Some(id.into()), ..below("") }).await.state,
            JobState::Done
        );
    }
    let ids: Vec<String> =
        engine.jobs_page(None, None, 100).jobs.into_iter().map(|view| view.id).collect();
    assert_eq!(ids, ["c", "b"]);
    fixture.store.stalls_after.store(1, Ordering::SeqCst);
    fixture.put("stuck", 5);
    for id in ["d", "e"] {
        engine.create_job(PreloadJobSpec { id: Some(id.into()), ..below("stuck") }).await.unwrap();
    }
    let full = engine.create_job(below("stuck")).await.unwrap_err();
    assert!(matches!(full, PreloadEngineError::Full(2)), "{full}");
    let ended = engine.end_job("d").await.unwrap();
    assert_eq!((ended.state, ended.reason.as_deref()), (JobState::Stopped, Some("it was stopped")));
    assert_eq!(over(&engine, "d").await.state, JobState::Stopped);
    engine.create_job(below("stuck")).await.unwrap();
}

#[tokio::test]
async fn jobs_of_notifications_leave_places_to_others() {
    let fixture = PreloadFixture::new(1);
    fixture.put("k", 5);
    let mut options = fixture.options();
    options.settings.jobs_max = 10;
    options.settings.notified_jobs_max = 3;
    options.settings.jobs_running_max = 2;
    let (engine, _running) = fixture.engine_with(options, jobs()).await;
    assert_eq!(run(&engine, below("")).await.state, JobState::Done);
    fixture.store.stalls_after.store(1, Ordering::SeqCst);
    fixture.put("stuck", 5);
    for number in 0..3 {
        engine
            .create_job(PreloadJobSpec { id: Some(format!("notified-{number}")), ..below("stuck") })
            .await
            .unwrap();
    }
    let full = engine
        .create_job(PreloadJobSpec { id: Some("notified-3".into()), ..below("stuck") })
        .await
        .unwrap_err();
    assert!(matches!(full, PreloadEngineError::NotifiedFull(3)), "{full}");
    // Of two places, one is left: a person's job runs at once.
    engine.create_job(PreloadJobSpec { id: Some("mine".into()), ..below("stuck") }).await.unwrap();
    while engine.get("mine", None, Duration::ZERO).await.unwrap().state != JobState::Running {
        tokio::task::yield_now().await;
    }
    engine.end_job("notified-0").await.unwrap();
    assert_eq!(over(&engine, "notified-0").await.state, JobState::Stopped);
    engine
        .create_job(PreloadJobSpec { id: Some("notified-3".into()), ..below("stuck") })
        .await
        .unwrap();
}

#[tokio::test]
async fn an_owner_sees_its_own_jobs_and_takes_no_more_than_its_share() {
    let fixture = PreloadFixture::new(1);
    let mut options = fixture.options();
    options.settings.jobs_per_owner_max = 3;
    options.settings.jobs_running_max = 3;
    let (engine, _running) = fixture.engine_with(options, jobs()).await;
    fixture.put("k", 5);
    assert_eq!(run(&engine, below("")).await.state, JobState::Done);
    fixture.store.stalls_after.store(1, Ordering::SeqCst);
    fixture.put("stuck", 5);
    let owner = |name: &str| JobOwner(name.to_owned());
    let job = |id: &str| PreloadJobSpec { id: Some(id.into()), ..below("stuck") };
    for id in ["a1", "a2", "a3"] {
        let (view, _) = engine.create_owned_job(owned(job(id)), owner("a")).await.unwrap();
        assert_eq!(view.owner.as_deref(), Some("a"));
    }
    let full = engine.create_owned_job(owned(job("a4")), owner("a")).await.unwrap_err();
    assert!(matches!(full, PreloadEngineError::OwnerFull(3)), "{full}");
    // The same job again is the same job; another owner's is another's, and so is an operator's.
    assert!(!engine.create_owned_job(owned(job("a1")), owner("a")).await.unwrap().1);
    for taken in [
        engine.create_owned_job(owned(job("a1")), owner("b")).await.unwrap_err(),
        engine.create_job(job("a1")).await.unwrap_err(),
    ] {
        assert!(matches!(taken, PreloadEngineError::Other(_)), "{taken}");
    }
    let posing = engine.create_owned_job(owned(job("notified-1")), owner("b")).await.unwrap_err();
    assert!(matches!(posing, PreloadEngineError::Spec(_)), "{posing}");
    engine.create_owned_job(owned(job("b1")), owner("b")).await.unwrap();
    engine.create_job(job("mine")).await.unwrap();
    let ids = |owner: Option<JobOwner>| {
        let page = engine.jobs_page(owner.as_ref(), None, 100);
        page.jobs.into_iter().map(|view| view.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(Some(owner("a"))), ["a3", "a2", "a1"]);
    assert_eq!(ids(Some(owner("b"))), ["b1"]);
    assert!(ids(Some(owner("c"))).is_empty());
    assert_eq!(ids(None)[..5], ["mine", "b1", "a3", "a2", "a1"]);
    let a = owner("a");
    assert!(engine.is_owned_by("a1", &a) && !engine.is_owned_by("b1", &a));
    assert!(!engine.is_owned_by("mine", &a) && !engine.is_owned_by("none", &a));
    // Two of three places are for owners: one stays for operators. One of the two is b's, though
    // a's waiting jobs are older.
    engine.end_job("a1").await.unwrap();
    while engine.get("b1", None, Duration::ZERO).await.unwrap().state != JobState::Running {
        tokio::task::yield_now().await;
    }
    let waiting = engine.get("a3", None, Duration::ZERO).await.unwrap();
    assert_eq!(waiting.state, JobState::Queued);
}

#[tokio::test(start_paused = true)]
async fn no_more_bytes_are_taken_than_the_bandwidth_allows() {
    let fixture = PreloadFixture::new(2);
    (0..20).for_each(|number| fixture.put(&format!("k{number:02}"), 1 << 20));
    let (engine, _running) = fixture.engine(jobs()).await;
    let began = tokio::time::Instant::now();
    let view =
        run(&engine, PreloadJobSpec { bandwidth_bytes_per_second: Some(1 << 20), ..below("") })
            .await;
    let took = began.elapsed();
    assert_eq!((view.state, view.counters.bytes_loaded), (JobState::Done, 20 << 20));
    // One second's worth is there at the start.
    assert!(took >= Duration::from_secs(19) && took < Duration::from_secs(40), "{took:?}");
}

#[tokio::test]
async fn at_its_deadline_a_job_ends_and_says_so() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(20);
    fixture.store.stalls_after.store(3, Ordering::SeqCst);
    let (engine, _running) = fixture.engine(jobs()).await;
    let past = PreloadJobSpec { deadline: Some("2020-01-01T00:00:00Z".into()), ..below("") };
    let view = run(&engine, past).await;
    assert_eq!(
        (view.state, view.reason.as_deref()),
        (JobState::Incomplete, Some("its deadline is over"))
    );
}

/// By hand: `cargo test --release --workspace --test engine -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "takes minutes"]
async fn a_large_listing_takes_no_more_memory_than_a_small_one() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    };
    let fixture = PreloadFixture::with(2, 64 << 20);
    let count: u64 =
        std::env::var("OBJECTS").ok().and_then(|count| count.parse().ok()).unwrap_or(200_000);
    (0..count).for_each(|number| fixture.put(&format!("k{number:08}"), 4096));
    let options = PreloadOptions { page_keys: 1000, ..fixture.options() };
    let (engine, _running) = fixture.engine_with(options, jobs()).await;
    // Caches and tables of the workers are full after that.
    run(&engine, below("k000")).await;
    let (before, began) = (resident(), std::time::Instant::now());
    let (view, _) = engine.create_job(below("")).await.unwrap();
    let (mut most, mut news) = (0, view.news);
    loop {
        let now = engine.get(&view.id, Some(news), Duration::from_millis(100)).await.unwrap();
        news = now.news;
        most = most.max(resident());
        if now.state.is_over() {
            assert_eq!((now.counters.objects_loaded, now.counters.objects_checked), (count, count));
            break;
        }
    }
    println!("{count} objects in {:?}: {before} MiB before, {most} MiB at most", began.elapsed());
    assert!(most < before + 64, "{before} MiB before, {most} MiB at most");
}

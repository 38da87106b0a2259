//! Tests how those who begin jobs with access keys share the places of running jobs, and that
//! nothing is loaded for them which their gateway did not judge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus::Registry;
use verbs3_preload::api::{
    JobState, JobView, JudgedMount, OwnedPreloadJob, PreloadJobSpec, PreloadPhase,
};
use verbs3_preload::metrics::PreloadMetrics;
use verbs3_preload::{
    JobOwner, JobStore, JudgedMountError, MemoryJobs, PreloadEngine, PreloadEngineError,
    PreloadMount, PreloadMountTable, PreloadOptions,
};
use verbs3_settings::ByteSize;

use crate::preload_fixture::{PreloadFixture, below, over};

/// A job as a gateway with the fixture's mount passes it on.
pub fn owned(job: PreloadJobSpec) -> OwnedPreloadJob {
    let judged = judged("train", "bucket", "below/");
    OwnedPreloadJob { job, tenant: None, judged_mounts: vec![judged] }
}

fn judged(mount: &str, bucket: &str, prefix: &str) -> JudgedMount {
    let [mount, bucket, prefix] = [mount, bucket, prefix].map(str::to_owned);
    JudgedMount { mount, store: "main".into(), bucket, prefix }
}

/// A job that takes a month for an object of some MiB.
fn slow(id: &str) -> PreloadJobSpec {
    let bandwidth_bytes_per_second = Some(1);
    PreloadJobSpec { id: Some(id.into()), bandwidth_bytes_per_second, ..below("slow") }
}

/// Options under which guests may be as slow as they like, with this many places for them.
fn options_for_slow(fixture: &PreloadFixture, guest_places: u32) -> PreloadOptions {
    fixture.put("slow", 3 << 20);
    let mut options = fixture.options();
    options.settings.jobs_running_max = guest_places + 1;
    options.settings.guest_bandwidth_min = ByteSize(1);
    options
}

async fn begin(engine: &Arc<PreloadEngine>, owner: &str, job: OwnedPreloadJob) {
    let (_, is_new) = engine.create_owned_job(job, JobOwner(owner.into())).await.unwrap();
    assert!(is_new);
}

/// Waits until the job is in this state.
async fn reaches(engine: &PreloadEngine, id: &str, state: JobState) -> JobView {
    let mut news = None;
    loop {
        let view = engine.get(id, news, Duration::from_secs(60)).await.unwrap();
        if view.state == state {
            return view;
        }
        assert!(!view.state.is_over(), "{view:?}");
        news = Some(view.news);
    }
}

async fn state_of(engine: &PreloadEngine, id: &str) -> JobState {
    engine.get(id, None, Duration::ZERO).await.unwrap().state
}

#[tokio::test]
async fn an_owner_alone_has_all_guest_places_and_gives_back() {
    let fixture = PreloadFixture::new(1);
    let options = options_for_slow(&fixture, 3);
    let (engine, _running) = fixture.engine_with(options, Arc::new(MemoryJobs::default())).await;
    for id in ["a1", "a2", "a3", "a4"] {
        begin(&engine, "a", owned(slow(id))).await;
    }
    for id in ["a1", "a2", "a3"] {
        reaches(&engine, id, JobState::Running).await;
    }
    assert_eq!(state_of(&engine, "a4").await, JobState::Queued);
    // Half of three, rounded up, stays theirs.
    begin(&engine, "b", owned(slow("b1"))).await;
    reaches(&engine, "b1", JobState::Running).await;
    assert_eq!(state_of(&engine, "a3").await, JobState::Queued);
    // Whoever waits and has as many, or one less, takes nothing.
    begin(&engine, "b", owned(slow("b2"))).await;
    // A third one gets a place, too, and not at the cost of the one who has a single place.
    begin(&engine, "c", owned(slow("c1"))).await;
    reaches(&engine, "c1", JobState::Running).await;
    for (id, state) in [
        ("a1", JobState::Running),
        ("a2", JobState::Queued),
        ("a3", JobState::Queued),
        ("a4", JobState::Queued),
        ("b1", JobState::Running),
        ("b2", JobState::Queued),
    ] {
        assert_eq!(state_of(&engine, id).await, state, "{id}");
    }
    // The place of operators is nobody else's.
    engine.create_job(slow("mine")).await.unwrap();
    reaches(&engine, "mine", JobState::Running).await;
    // A job that gave its place back can be ended, and runs again in its turn.
    engine.end_job("a3").await.unwrap();
    assert_eq!(over(&engine, "a3").await.state, JobState::Stopped);
    for id in ["b1", "b2", "c1"] {
        engine.end_job(id).await.unwrap();
    }
    assert_eq!(reaches(&engine, "a2", JobState::Running).await.resumed, 0);
    reaches(&engine, "a4", JobState::Running).await;
}

#[tokio::test]
async fn identities_of_one_tenant_share_its_places() {
    let fixture = PreloadFixture::new(1);
    let options = options_for_slow(&fixture, 3);
    let (engine, _running) = fixture.engine_with(options, Arc::new(MemoryJobs::default())).await;
    let of =
        |tenant: &str, id: &str| OwnedPreloadJob { tenant: Some(tenant.into()), ..owned(slow(id)) };
    for (owner, id) in [("a", "a1"), ("b", "b1"), ("c", "c1")] {
        begin(&engine, owner, of("vision", id)).await;
        reaches(&engine, id, JobState::Running).await;
    }
    begin(&engine, "d", of("speech", "d1")).await;
    reaches(&engine, "d1", JobState::Running).await;
    assert_eq!(state_of(&engine, "c1").await, JobState::Queued);
    // Notifications are a party, too.
    engine.create_job(slow("notified-1")).await.unwrap();
    reaches(&engine, "notified-1", JobState::Running).await;
    assert_eq!(state_of(&engine, "b1").await, JobState::Queued);
    for id in ["a1", "d1"] {
        assert_eq!(state_of(&engine, id).await, JobState::Running, "{id}");
    }
}

#[tokio::test]
async fn a_job_that_gave_its_place_back_goes_on_from_where_it_was() {
    let fixture = PreloadFixture::new(1);
    (0..28).for_each(|number| fixture.put(&format!("many/k{number:02}"), 4096));
    let mut options = options_for_slow(&fixture, 2);
    options.settings.patience.0 = Duration::from_secs(600);
    let (engine, _running) = fixture.engine_with(options, Arc::new(MemoryJobs::default())).await;
    begin(&engine, "a", owned(slow("a1"))).await;
    reaches(&engine, "a1", JobState::Running).await;
    // Of four pages, the third one gets stuck at the latest.
    let gets = fixture.store.gets.load(Ordering::SeqCst);
    fixture.store.stalls_after.store(gets + 18, Ordering::SeqCst);
    let many = PreloadJobSpec { id: Some("a2".into()), ..below("many/") };
    begin(&engine, "a", owned(many)).await;
    let mut news = None;
    loop {
        let view = engine.get("a2", news, Duration::from_secs(60)).await.unwrap();
        if view.counters.objects_loaded >= 7 {
            break;
        }
        news = Some(view.news);
    }
    begin(&engine, "b", owned(slow("b1"))).await;
    reaches(&engine, "b1", JobState::Running).await;
    let view = engine.get("a2", None, Duration::ZERO).await.unwrap();
    assert_eq!((view.state, view.phase), (JobState::Queued, PreloadPhase::Load));
    // Whole pages are kept, and nothing else.
    let kept = view.counters.objects_loaded;
    assert!((7..28).contains(&kept) && kept % 7 == 0, "{view:?}");
    fixture.store.stalls_after.store(0, Ordering::SeqCst);
    engine.end_job("b1").await.unwrap();
    let view = over(&engine, "a2").await;
    assert_eq!((view.state, view.resumed), (JobState::Done, 0), "{view:?}");
    let counters = view.counters;
    assert_eq!((counters.objects, counters.objects_loaded, counters.objects_checked), (28, 28, 28));
}

#[tokio::test]
async fn a_guests_job_is_not_slower_than_it_may_be() {
    let fixture = PreloadFixture::new(1);
    fixture.put("k", 5);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    let min = fixture.options().settings.guest_bandwidth_min.0;
    let at = |id: &str, rate| PreloadJobSpec {
        id: Some(id.into()),
        bandwidth_bytes_per_second: Some(rate),
        ..below("")
    };
    for rate in [0, 1, min - 1] {
        let refused = engine.create_owned_job(owned(at("a", rate)), JobOwner("a".into())).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, PreloadEngineError::Spec(_)), "{refused}");
        let said = refused.to_string();
        for part in [
            format!("bandwidth_bytes_per_second of {rate} "),
            min.to_string(),
            "coordinator.preload.guest_bandwidth_min".to_owned(),
        ] {
            assert!(said.contains(&part), "{said}");
        }
    }
    begin(&engine, "a", owned(at("a", min))).await;
    begin(&engine, "a", owned(PreloadJobSpec { id: Some("b".into()), ..below("") })).await;
    // Operators know what they do.
    engine.create_job(at("mine", 1)).await.unwrap();
    for id in ["a", "b"] {
        assert_eq!(over(&engine, id).await.state, JobState::Done, "{id}");
    }
}

/// The fixture's mount under this name, with another bucket and prefix.
fn mount(fixture: &PreloadFixture, name: &str, bucket: &str, prefix: &str) -> PreloadMount {
    let [name, bucket, prefix] = [name, bucket, prefix].map(str::to_owned);
    PreloadMount { name, bucket, prefix, ..PreloadMount::clone(&fixture.mounts.named["train"]) }
}

async fn engine_over(
    fixture: &PreloadFixture,
    mounts: PreloadMountTable,
    store: Arc<dyn JobStore>,
) -> Arc<PreloadEngine> {
    let metrics = PreloadMetrics::new(&Registry::new()).unwrap();
    let (tier, mounts) = (fixture.tier.clone(), Arc::new(mounts));
    let opened = PreloadEngine::load_from_store(fixture.options(), tier, mounts, store, metrics);
    opened.await.unwrap()
}

#[tokio::test]
async fn what_the_gateway_did_not_judge_is_not_even_listed() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    let named = BTreeMap::from([("train".to_owned(), fixture.mounts.named["train"].clone())]);
    // To this coordinator, `part` is the bucket of that name.
    let mounts = PreloadMountTable { named, whole: Some(mount(&fixture, "*", "", "")) };
    let engine = engine_over(&fixture, mounts, Arc::new(MemoryJobs::default())).await;
    let running = tokio::spawn(engine.clone().run());
    let part = |dry_run| PreloadJobSpec {
        prefixes: vec!["s3://train/".into(), "s3://part/".into()],
        dry_run,
        ..PreloadJobSpec::default()
    };
    let train = || judged("train", "bucket", "below/");
    let elsewhere = JudgedMount { store: "main@01234567".into(), ..judged("part", "part", "") };
    for (judged_mounts, differs) in [
        (vec![train(), judged("part", "data", "a/")], Some("bucket, prefix")),
        (vec![train(), judged("part", "data", "")], Some("bucket")),
        (vec![train(), judged("part", "part", "a/")], Some("prefix")),
        (vec![train(), elsewhere], Some("ufs")),
        // The first of two does not hide the second one.
        (vec![train(), judged("part", "part", ""), judged("part", "data", "")], Some("bucket")),
        (vec![train()], None),
        (vec![], None),
    ] {
        for job in [part(false), part(true)] {
            let job = OwnedPreloadJob { judged_mounts: judged_mounts.clone(), ..owned(job) };
            let refused = engine.create_owned_job(job, JobOwner("a".into())).await.unwrap_err();
            let said = refused.to_string();
            let PreloadEngineError::Judged(refused) = refused else { panic!("{said}") };
            match differs {
                Some(what) => {
                    let other = JudgedMountError::Other { mount: "part".into(), what: what.into() };
                    assert_eq!(refused, other);
                    assert!(said.contains("[[mount]] part") && said.contains(what), "{said}");
                }
                None => assert!(matches!(refused, JudgedMountError::Unsaid(_)), "{said}"),
            }
        }
    }
    assert!(engine.jobs_page(None, None, 100).jobs.is_empty());
    assert_eq!(fixture.store.lists.load(Ordering::SeqCst), 0);
    // What both take for the same is counted; an operator's job is judged by nobody.
    let judged_mounts = vec![train(), judged("part", "part", "")];
    let same = OwnedPreloadJob { judged_mounts, ..owned(part(true)) };
    let (view, _) = engine.create_owned_job(same, JobOwner("a".into())).await.unwrap();
    assert_eq!(over(&engine, &view.id).await.state, JobState::Done);
    let (view, _) = engine.create_job(part(true)).await.unwrap();
    assert_eq!(over(&engine, &view.id).await.state, JobState::Done);
    engine.request_stop();
    running.await.unwrap();
}

#[tokio::test]
async fn a_coordinator_with_other_mounts_does_not_resume_the_job() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    let store: Arc<dyn JobStore> = Arc::new(MemoryJobs::default());
    let here = PreloadMountTable { named: fixture.mounts.named.clone(), whole: None };
    // Its leader takes the job in, and dies before the job has begun.
    let engine = engine_over(&fixture, here, store.clone()).await;
    begin(&engine, "a", owned(PreloadJobSpec { id: Some("job".into()), ..below("") })).await;
    let mine = PreloadJobSpec { id: Some("mine".into()), dry_run: true, ..below("") };
    engine.create_job(mine).await.unwrap();
    let other = Arc::new(mount(&fixture, "train", "bucket", ""));
    let named = BTreeMap::from([("train".to_owned(), other)]);
    let engine = engine_over(&fixture, PreloadMountTable { named, whole: None }, store).await;
    let running = tokio::spawn(engine.clone().run());
    let view = over(&engine, "job").await;
    let reason = view.reason.unwrap();
    assert_eq!((view.state, view.counters.objects), (JobState::Failed, 0));
    assert!(reason.contains("[[mount]] train") && reason.contains("prefix"), "{reason}");
    assert_eq!(over(&engine, "mine").await.state, JobState::Done);
    engine.request_stop();
    running.await.unwrap();
}

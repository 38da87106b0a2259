//! Tests that what a job reports as present is present, even if objects change, manifests change,
//! or workers reach another store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbs3_preload::api::{JobState, PreloadJobSpec};
use verbs3_preload::{MemoryJobs, PreloadMount, PreloadMountTable, PreloadOptions};

use crate::counting_store::CountingStore;
use crate::preload_fixture::{PreloadFixture, below, run};

fn jobs() -> Arc<MemoryJobs> {
    Arc::new(MemoryJobs::default())
}

#[tokio::test]
async fn an_object_replaced_after_its_load_is_reported_missing() {
    let fixture = PreloadFixture::new(2);
    fixture.put_some(5);
    let mut lists = 0;
    *fixture.store.meanwhile.lock() =
        Some(Box::new(move |store: &CountingStore, what: &str, _: &str| {
            lists += u32::from(what == "list");
            if lists == 2 && what == "list" {
                store.replace("below/k0001", "another, of another length");
            }
        }));
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, below("")).await;
    assert_eq!((view.state, view.counters.objects_missing), (JobState::Incomplete, 1), "{view:?}");
    assert_eq!(view.failures.first[0].path, "s3://train/k0001");
    let again = run(&engine, PreloadJobSpec { verify: true, ..below("") }).await;
    assert_eq!(again.state, JobState::Done, "{again:?}");
    fixture.assert_hot().await;
}

#[tokio::test]
async fn attributes_that_are_not_there_in_the_end_are_not_said_to_be() {
    let fixture = PreloadFixture::new(2);
    fixture.put_some(12);
    let (engine, _running) = fixture.engine(jobs()).await;
    let spec = PreloadJobSpec { metadata_only: true, ..below("") };
    let view = run(&engine, spec.clone()).await;
    assert_eq!(
        (view.state, view.counters.objects_checked, view.counters.bytes_checked),
        (JobState::Done, 12, 0)
    );
    assert_eq!(fixture.store.asked(), (0, 12), "what is there is asked about again");
    let mut lists = 0;
    *fixture.store.meanwhile.lock() =
        Some(Box::new(move |store: &CountingStore, what: &str, _: &str| {
            lists += u32::from(what == "list");
            // Of two pages that are counted, and then looked for.
            if lists == 3 && what == "list" {
                store.replace("below/k0001", "another, of another length");
            }
        }));
    let view = run(&engine, spec).await;
    assert_eq!((view.state, view.counters.objects_missing), (JobState::Incomplete, 1), "{view:?}");
    assert_eq!(view.reason.as_deref(), Some("of 1 objects the attributes are not in the tier"));
    assert_eq!(view.failures.first[0].path, "s3://train/k0001");
    assert!(view.failures.first[0].reason.contains("attributes"), "{:?}", view.failures.first);
}

#[tokio::test]
async fn a_named_object_is_checked_as_readers_would_see_it() {
    let mut fixture = PreloadFixture::new(2);
    fixture.put_some(2);
    let asks_always = PreloadMount {
        attributes_age_ms_max: 0,
        ..PreloadMount::clone(&fixture.mounts.named["train"])
    };
    let named = BTreeMap::from([("train".to_owned(), Arc::new(asks_always))]);
    fixture.mounts = Arc::new(PreloadMountTable { named, whole: None });
    *fixture.store.meanwhile.lock() =
        Some(Box::new(|store: &CountingStore, what: &str, key: &str| {
            if what == "get" && key == "below/k0001" {
                store.replace("below/k0000", "another");
            }
        }));
    let options = PreloadOptions { page_keys: 1, ..fixture.options() };
    let (engine, _running) = fixture.engine_with(options, jobs()).await;
    let paths = vec!["s3://train/k0000".to_owned(), "s3://train/k0001".to_owned()];
    let view = run(&engine, PreloadJobSpec { paths, ..PreloadJobSpec::default() }).await;
    assert_eq!((view.state, view.counters.objects_missing), (JobState::Incomplete, 1), "{view:?}");
    assert_eq!(view.failures.first[0].path, "s3://train/k0000");
}

#[tokio::test]
async fn objects_that_only_the_workers_do_not_find_have_not_vanished() {
    let (here, elsewhere) =
        (Arc::new(CountingStore::default()), Arc::new(CountingStore::default()));
    let fixture = PreloadFixture::of(2, (64 << 20, 64 << 20), (here, elsewhere));
    fixture.put_some(5);
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, below("")).await;
    assert_eq!((view.state, view.counters.objects_vanished), (JobState::Incomplete, 0), "{view:?}");
    assert_eq!((view.counters.objects_failed, view.counters.objects_missing), (5, 5));
    assert!(view.failures.first[0].reason.contains("[[ufs]]"), "{:?}", view.failures.first);
}

#[tokio::test]
async fn objects_deleted_during_a_job_are_counted_and_not_missing() {
    let fixture = PreloadFixture::new(2);
    fixture.put_some(5);
    *fixture.store.meanwhile.lock() =
        Some(Box::new(|store: &CountingStore, what: &str, _: &str| {
            if what == "get" {
                store.objects.lock().remove("below/k0003");
            }
        }));
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, below("")).await;
    assert_eq!((view.state, view.counters.objects_vanished), (JobState::Done, 1), "{view:?}");
}

#[tokio::test]
async fn a_manifest_replaced_during_its_job_is_not_taken_as_loaded() {
    let fixture = PreloadFixture::new(1);
    fixture.put_some(3);
    fixture
        .store
        .texts
        .lock()
        .insert("below/list".into(), "s3://train/k0000\ns3://train/k0001".into());
    *fixture.store.meanwhile.lock() =
        Some(Box::new(|store: &CountingStore, what: &str, key: &str| {
            if what == "get" && key == "below/k0000" {
                store.texts.lock().insert("below/list".into(), "s3://train/k0000".into());
            }
        }));
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(
        &engine,
        PreloadJobSpec { manifest: Some("s3://train/list".into()), ..PreloadJobSpec::default() },
    )
    .await;
    assert_eq!(view.state, JobState::Failed, "{view:?}");
    assert!(view.reason.as_ref().unwrap().contains("can't read the manifest"), "{view:?}");
}

#[tokio::test]
async fn a_store_that_is_busy_is_waited_for() {
    let fixture = PreloadFixture::new(1);
    let bytes = fixture.put_some(4);
    fixture.store.busy.lock().insert("below/k0002".into(), 12);
    let (engine, _running) = fixture.engine(jobs()).await;
    let view = run(&engine, below("")).await;
    assert_eq!((view.state, view.counters.bytes_loaded), (JobState::Done, bytes), "{view:?}");
    assert_eq!(fixture.store.busy.lock()["below/k0002"], 0);
}

#[tokio::test]
async fn reading_back_waits_for_memory() {
    let store = Arc::new(CountingStore::default());
    // There is room for two whole blocks.
    let fixture = PreloadFixture::of(2, (64 << 20, 2 << 20), (store.clone(), store));
    (0..20).for_each(|number| fixture.put(&format!("k{number:02}"), 1 << 20));
    let options = PreloadOptions { page_keys: 100, ..fixture.options() };
    let (engine, _running) = fixture.engine_with(options, jobs()).await;
    let view = run(&engine, PreloadJobSpec { verify: true, ..below("") }).await;
    assert_eq!((view.state, view.counters.objects_compared), (JobState::Done, 20), "{view:?}");
    assert!(view.counters.retries > 0, "there was room for all");
    assert_eq!(fixture.store.gets.load(Ordering::SeqCst), 20);
}

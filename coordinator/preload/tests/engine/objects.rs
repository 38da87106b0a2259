//! Tests looking for objects, evicting them, and reports that they changed.

use std::sync::Arc;

use verbs3_client::{OpenOutcome, OpenRequest};
use verbs3_preload::api::{
    InvalidationRequest, JobState, PreloadJobAction, PreloadJobSpec, PreloadTier,
};
use verbs3_preload::{
    BucketNotification, MemoryJobs, NotificationError, ObjectAdmin, ObjectError, SpecError,
};
use verbs3_protocol::{ByteRange, ObjectKey, ObjectVolume};

use crate::preload_fixture::{PreloadFixture, below, run};

/// Returns the length that a reader sees now, if gateways accept attributes of up to an hour.
async fn length(fixture: &PreloadFixture, key: &str) -> Option<u64> {
    let open = OpenRequest {
        object: Arc::new(ObjectKey {
            volume: ObjectVolume::new("main", "bucket"),
            key: format!("below/{key}"),
        }),
        version_id: None,
        attributes_age_ms_max: 3_600_000,
        absence_age_ms_max: 3_600_000,
        checksums: false,
        want: Some(ByteRange::All),
        silence: None,
        trace: None,
        tenant: None,
        place: None,
    };
    match fixture.tier.open_object(&open).await {
        OpenOutcome::Found(found) => Some(found.reply.attributes.version.bytes),
        OpenOutcome::Absent(_) => None,
        OpenOutcome::Bypass(_) | OpenOutcome::Ufs(_) => panic!("the tier has no answer for {key}"),
    }
}

fn said(text: &str) -> BucketNotification {
    serde_json::from_str(text).unwrap()
}

fn event(name: &str, bucket: &str, key: &str) -> String {
    format!(
        r#"{{"eventName":"{name}","s3":{{"bucket":{{"name":"{bucket}"}},"object":{{"key":"{key}"}}}}}}"#
    )
}

#[tokio::test]
async fn evicted_objects_are_gone_and_others_are_not() {
    let fixture = PreloadFixture::new(3);
    fixture.put_some(24);
    (0..6).for_each(|number| fixture.put(&format!("other{number}"), 70_000));
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    let loaded = run(&engine, PreloadJobSpec { replicas: 2, ..below("") }).await;
    assert_eq!(loaded.state, JobState::Done);
    let gone = run(&engine, PreloadJobSpec { action: PreloadJobAction::Evict, ..below("k") }).await;
    assert_eq!((gone.state, gone.counters.objects_loaded), (JobState::Done, 24), "{gone:?}");
    assert_eq!(gone.counters.bytes_evicted, loaded.counters.bytes_checked - 2 * 6 * 70_000);
    let objects = ObjectAdmin::new(fixture.tier.clone(), fixture.mounts.clone());
    let places = async |path: &str| {
        let view = objects.locate_object(path, 0).await.unwrap();
        view.blocks.iter().map(|block| block.places.len()).sum::<usize>()
    };
    assert_eq!(places("s3://train/k0005").await, 0);
    assert_eq!(places("s3://train/other3").await, 2);
    let again = run(&engine, PreloadJobSpec { replicas: 2, ..below("") }).await;
    assert_eq!(
        (again.state, again.counters.bytes_loaded),
        (JobState::Done, gone.counters.bytes_evicted)
    );
    fixture.assert_hot().await;
}

#[tokio::test]
async fn an_object_is_found_block_by_block() {
    let fixture = PreloadFixture::new(3);
    fixture.put("k", (2 << 20) + 70_000);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    let half = verbs3_preload::api::PreloadByteRange { first: 0, last: Some((1 << 20) - 1) };
    run(&engine, PreloadJobSpec { ranges: vec![half], ..below("k") }).await;
    let objects = ObjectAdmin::new(fixture.tier.clone(), fixture.mounts.clone());
    let view = objects.locate_object("s3://train/k", 0).await.unwrap();
    assert_eq!(
        (view.bytes, view.blocks_total, view.key.as_str()),
        ((2 << 20) + 70_000, 3, "below/k")
    );
    let held: Vec<u32> =
        view.blocks.iter().map(|b| b.places.iter().map(|place| place.memory_bytes).sum()).collect();
    assert_eq!(held, [1 << 20, 0, 0], "{view:?}");
    assert_eq!(view.blocks[0].places[0].worker, view.blocks[0].owners[0]);
    assert_eq!(view.home.as_ref(), view.blocks[0].owners.first());
    assert_eq!(objects.locate_object("s3://train/k", 2).await.unwrap().blocks[0].bytes, 70_000);
    assert_eq!(objects.locate_object("s3://train/k", 9).await.unwrap().blocks, []);
    assert!(matches!(
        objects.locate_object("s3://train/none", 0).await,
        Err(ObjectError::Absent(_))
    ));
    assert!(matches!(
        objects.locate_object("s3://other/k", 0).await,
        Err(ObjectError::Spec(SpecError::Mount { .. }))
    ));
}

#[tokio::test]
async fn invalidated_objects_are_asked_anew_at_once() {
    let fixture = PreloadFixture::new(3);
    (0..30).for_each(|number| fixture.put(&format!("k{number}"), 100));
    let seen = async |expected: u64| {
        for number in 0..30 {
            assert_eq!(length(&fixture, &format!("k{number}")).await, Some(expected), "k{number}");
        }
    };
    seen(100).await;
    (0..30).for_each(|number| fixture.put(&format!("k{number}"), 200));
    seen(100).await;
    let objects = ObjectAdmin::new(fixture.tier.clone(), fixture.mounts.clone());
    let paths: Vec<String> = (0..30).map(|number| format!("s3://train/k{number}")).collect();
    objects
        .invalidate_objects(&InvalidationRequest { paths, ..InvalidationRequest::default() })
        .await
        .unwrap();
    seen(200).await;
    (0..30).for_each(|number| fixture.put(&format!("k{number}"), 300));
    let prefixes = vec!["s3://train/k".to_owned()];
    objects
        .invalidate_objects(&InvalidationRequest { prefixes, ..InvalidationRequest::default() })
        .await
        .unwrap();
    seen(300).await;
    assert!(matches!(
        objects.invalidate_objects(&InvalidationRequest::default()).await,
        Err(ObjectError::Spec(SpecError::Nothing))
    ));
}

#[tokio::test]
async fn a_notification_reveals_changes_and_names_objects_to_load() {
    let fixture = PreloadFixture::new(2);
    fixture.put("a b/k", 100);
    fixture.put("gone", 100);
    assert_eq!(
        (
            length(&fixture, "a b/k").await,
            length(&fixture, "gone").await,
            length(&fixture, "new").await
        ),
        (Some(100), Some(100), None)
    );
    fixture.put("a b/k", 200);
    fixture.put("new", 300);
    fixture.store.objects.lock().remove("below/gone");
    let objects = ObjectAdmin::new(fixture.tier.clone(), fixture.mounts.clone());
    let events = [
        event("s3:ObjectCreated:Put", "bucket", "below%2Fa+b%2Fk"),
        event("ObjectCreated:Copy", "bucket", "below/new"),
        event("ObjectRemoved:Delete", "bucket", "below/gone"),
        event("ObjectCreated:Put", "elsewhere", "k"),
        event("ObjectCreated:Put", "bucket", "beside/k"),
        event("ObjectAccessed:Get", "bucket", "below/x"),
    ];
    let text = format!(r#"{{"Records":[{}]}}"#, events.join(","));
    let (notified, job) = objects.apply_notification(&said(&text), None).await.unwrap();
    assert_eq!((notified.invalidated, notified.unknown, notified.ignored), (4, 1, 1));
    assert_eq!(job.unwrap().paths, ["s3://train/a b/k", "s3://train/new"]);
    assert_eq!(
        (
            length(&fixture, "a b/k").await,
            length(&fixture, "gone").await,
            length(&fixture, "new").await
        ),
        (Some(200), None, Some(300))
    );
    let (other, none) = objects.apply_notification(&said(&text), Some("another")).await.unwrap();
    assert_eq!((other.invalidated, other.unknown, none), (0, 5, None));
    let test =
        objects.apply_notification(&said(r#"{"Event":"s3:TestEvent"}"#), None).await.unwrap();
    assert_eq!(test.0, verbs3_preload::api::NotificationSummary::default());
    assert!(matches!(
        objects.apply_notification(&said("{}"), None).await,
        Err(NotificationError::Empty)
    ));
    let nameless =
        objects.apply_notification(&said(r#"{"Records":[{"eventName":"x","s3":{}}]}"#), None).await;
    assert!(matches!(nameless, Err(NotificationError::Record(0))));
}

#[tokio::test]
async fn what_only_loading_has_is_refused_of_other_jobs() {
    let fixture = PreloadFixture::new(1);
    let (engine, _running) = fixture.engine(Arc::new(MemoryJobs::default())).await;
    for spec in [
        PreloadJobSpec { tier: PreloadTier::Disk, ..below("") },
        PreloadJobSpec { verify: true, ..below("") },
    ] {
        let refused = engine
            .create_job(PreloadJobSpec { action: PreloadJobAction::Evict, ..spec })
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("only jobs that load"), "{refused}");
    }
}

//! PUTs: what is readable, under which version, and what is given up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use s3s::dto::ETag;
use verbs3_settings::{ByteSize, TimePeriod};

use super::super::{AnsweredVersion, BodySubject, PopulatedWrite};
use super::populate_fixture::{
    BLOCK, PAGE, PopulateFixture, answered, content, pages_of, settings, version,
};

#[tokio::test]
async fn every_page_of_a_put_is_readable_under_its_own_version() {
    let fixture = PopulateFixture::new();
    for bytes in [1, PAGE - 1, PAGE, PAGE + 1, BLOCK + 1, 5 * BLOCK + 7] {
        let content = content(bytes as u8, bytes);
        let write = fixture.pass_object(&content, 70_000).unwrap();
        assert!(!fixture.tier.versions.lock().contains_key(&version("e", bytes)));
        write.finish_write(answered("e")).await;
        assert_eq!(
            fixture.tier.versions.lock()[&version("e", bytes)],
            pages_of(&content),
            "{bytes}"
        );
    }
    fixture.settle().await;
    assert_eq!(fixture.metric("verbs3_populate_queued_bytes"), 0);
    assert!(fixture.tier.staged.lock().values().all(|pages| pages.is_empty()));
}

#[tokio::test]
async fn an_empty_object_has_no_pages() {
    let fixture = PopulateFixture::new();
    assert!(fixture.pass_object(&[], 1).is_none());
}

#[tokio::test]
async fn two_puts_of_one_key_are_readable_under_their_own_etags_alone() {
    let fixture = PopulateFixture::new();
    let (one, other) = (content(1, BLOCK + 5), content(2, BLOCK + 5));
    let first = fixture.pass_object(&one, 50_000).unwrap();
    let second = fixture.pass_object(&other, 60_000).unwrap();
    second.finish_write(answered("other")).await;
    first.finish_write(answered("one")).await;
    let versions = fixture.tier.versions.lock();
    assert_eq!(versions[&version("one", BLOCK + 5)], pages_of(&one));
    assert_eq!(versions[&version("other", BLOCK + 5)], pages_of(&other));
}

#[tokio::test]
async fn a_write_that_is_not_finished_leaves_nothing() {
    let fixture = PopulateFixture::new();
    let content = content(1, 3 * BLOCK);
    let write = fixture.pass_object(&content, 70_000).unwrap();
    // All of it has come.
    while fixture.tier.staged.lock().values().map(|pages| pages.len()).sum::<usize>() < 48 {
        tokio::task::yield_now().await;
    }
    drop(write);
    fixture.settle().await;
    assert_eq!(fixture.tier.discarded.load(Ordering::SeqCst), 48);
    assert!(fixture.tier.versions.lock().is_empty());
    assert_eq!(fixture.given_up("unconfirmed"), 48);
}

#[tokio::test]
async fn an_answer_that_names_no_version_leaves_nothing() {
    let fixture = PopulateFixture::new();
    for etag in [None, Some(ETag::Weak("w".into())), Some(ETag::Strong(String::new()))] {
        let write = fixture.pass_object(&content(1, PAGE), 70_000).unwrap();
        write.finish_write(AnsweredVersion { etag, version_id: None }).await;
    }
    fixture.settle().await;
    assert!(fixture.tier.versions.lock().is_empty());
    assert!(fixture.tier.staged.lock().values().all(|pages| pages.is_empty()));
}

#[tokio::test]
async fn the_null_version_is_no_version() {
    let fixture = PopulateFixture::new();
    let write = fixture.pass_object(&content(1, 5), 5).unwrap();
    let null = AnsweredVersion { version_id: Some("null".into()), ..answered("e") };
    write.finish_write(null).await;
    let write = fixture.pass_object(&content(1, 5), 5).unwrap();
    let named = AnsweredVersion { version_id: Some("v7".into()), ..answered("e") };
    write.finish_write(named).await;
    let mut ids: Vec<_> =
        fixture.tier.versions.lock().keys().map(|version| version.version_id.clone()).collect();
    ids.sort();
    assert_eq!(ids, [None, Some("v7".to_owned())]);
}

#[tokio::test]
async fn only_plain_objects_of_mounts_that_ask_for_it_are_copied() {
    let mut fixture = PopulateFixture::new();
    let begin = |fixture: &PopulateFixture, is_plain, bytes| {
        let subject = BodySubject { key: "k".into(), part: None, is_plain };
        PopulatedWrite::begin_write(&fixture.populator, &fixture.mount, subject, bytes, None)
            .is_some()
    };
    assert!(
        begin(&fixture, true, 1 << 30)
            && !begin(&fixture, false, 5)
            && !begin(&fixture, true, (1 << 30) + 1)
    );
    fixture.mount.cached = false;
    assert!(!begin(&fixture, true, 5));
    (fixture.mount.cached, fixture.mount.populate_bytes_max) = (true, None);
    assert!(!begin(&fixture, true, 5));
}

#[tokio::test]
async fn a_full_queue_gives_the_rest_of_the_body_up_and_nothing_else() {
    let queue_max = ByteSize(4 * PAGE);
    let fixture =
        PopulateFixture::with(&super::super::GatewayPopulateSettings { queue_max, ..settings() });
    fixture.tier.hangs.store(true, Ordering::SeqCst);
    let write = fixture.pass_object(&content(1, 2 * BLOCK), 70_000).unwrap();
    assert!(fixture.metric("verbs3_populate_queued_bytes") <= 4 * PAGE);
    assert_eq!(fixture.given_up("queue_full"), 32);
    drop(write);
    fixture.settle().await;
    assert_eq!(fixture.metric("verbs3_populate_queued_bytes"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_hangs_holds_the_client_for_no_longer_than_it_may() {
    let commit_wait_max = TimePeriod(Duration::from_millis(250));
    let fixture = PopulateFixture::with(&super::super::GatewayPopulateSettings {
        commit_wait_max,
        ..settings()
    });
    fixture.tier.hangs.store(true, Ordering::SeqCst);
    let write = fixture.pass_object(&content(1, BLOCK), 70_000).unwrap();
    let began = tokio::time::Instant::now();
    write.finish_write(answered("e")).await;
    // Paused time moves only where everything waits for it.
    assert_eq!(began.elapsed(), Duration::from_millis(250));
    fixture.tier.hangs.store(false, Ordering::SeqCst);
    fixture.settle().await;
    assert!(fixture.tier.versions.lock().is_empty());
    assert_eq!(fixture.metric("verbs3_populate_queued_bytes"), 0);
}

#[tokio::test]
async fn a_failing_worker_is_asked_once_and_others_keep_their_pages() {
    let fixture = PopulateFixture::new();
    fixture.tier.odd_fails.store(true, Ordering::SeqCst);
    let content = content(1, 4 * BLOCK);
    let write = fixture.pass_object(&content, 70_000).unwrap();
    write.finish_write(answered("e")).await;
    let mut expected = pages_of(&content);
    expected.retain(|at, _| (at / BLOCK).is_multiple_of(2));
    assert_eq!(fixture.tier.versions.lock()[&version("e", 4 * BLOCK)], expected);
    assert_eq!(fixture.metric("verbs3_populate_pages_total"), 32);
    assert_eq!(fixture.given_up("failed"), 32);
}

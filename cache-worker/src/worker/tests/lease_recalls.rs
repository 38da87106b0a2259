//! Leases that are recalled because something newer was learnt, without a writer's word: from a
//! listing, from the store, from a version that is gone.

use std::time::Duration;

use verbs3_protocol::{ListedAttributes, OpenMessage, RecallReply, WorkerRequest};

use super::holding_store::Stored;
use super::leases::{
    A_MOMENT, NONE, finish, granted, granting, home, home_with, is_waiting, lease, poll,
};
use super::worker_fixture::{WorkerFixture, object, open};

#[tokio::test]
async fn a_listing_recalls_a_lease_on_what_the_home_has_forgotten() {
    let (fixture, told) = granted_by(1).await;
    fixture.store.put("k", Stored::new(2, 10));
    let shown =
        ListedAttributes { etag: Some(Stored::new(2, 10).etag()), ..ListedAttributes::default() };
    let mut listed: std::pin::Pin<Box<dyn Future<Output = super::worker_fixture::Got>>> =
        Box::pin(fixture.listed("k", Some(shown)));
    assert!(
        tokio::time::timeout(A_MOMENT, &mut listed).await.is_err(),
        "its holder may read the older version"
    );
    let recalled = poll(&fixture, &told).await;
    assert_eq!(recalled.keys, [object("k").hash()]);
    let (listed, _) = tokio::join!(listed, poll(&fixture, &recalled));
    assert!(listed.is_done());
}

/// The object was replaced, or deleted, behind the gateways' backs; some ask more often than others.
#[tokio::test]
async fn newer_attributes_wait_until_leases_on_older_are_dropped() {
    for (new, forgotten) in [(Some(2), false), (None, false), (Some(2), true)] {
        let (fixture, told) = granted_by(usize::from(forgotten)).await;
        match new {
            Some(seed) => fixture.store.put("k", Stored::new(seed, 10)),
            None => drop(fixture.store.objects.lock().remove("k")),
        }
        let always =
            OpenMessage { attributes_age_ms_max: 0, absence_age_ms_max: 0, ..open("k", None) };
        let mut asked = Box::pin(finish(fixture.call(&WorkerRequest::Open(always))));
        assert!(is_waiting(&mut asked).await, "a gateway may answer with older ones");
        let recalled = poll(&fixture, &told).await;
        assert_eq!(recalled.keys, [object("k").hash()]);
        poll(&fixture, &recalled).await;
        let (asked, known) = (asked.await, fixture.open(open("k", None)).await);
        if new.is_none() {
            assert_eq!(asked.absent().generation, known.absent().generation);
            continue;
        }
        assert_eq!(asked.opened().attributes.version.etag, Stored::new(2, 10).etag());
        assert_eq!(asked.opened().attributes, known.opened().attributes);
        assert!(known.opened().attributes_cached, "what was learnt is kept");
    }
}

/// A home that has granted a lease on "k"; and has forgotten "k", where it remembers few keys.
async fn granted_by(keys_max: usize) -> (WorkerFixture, RecallReply) {
    if keys_max == 0 {
        return granted().await;
    }
    let fixture =
        home_with(granting(|settings| settings.index.attributes_max = keys_max as u32)).await;
    let told = poll(&fixture, &NONE).await;
    assert_eq!(lease(&fixture).await.milliseconds, 2000);
    for number in 0..20 {
        let key = format!("other-{number}");
        fixture.store.put(&key, Stored::new(1, 10));
        fixture.open(open(&key, None)).await;
        fixture.open(open(&key, None)).await;
    }
    (fixture, told)
}

#[tokio::test]
async fn unchanged_attributes_that_are_asked_anew_recall_no_lease() {
    let (fixture, _) = granted().await;
    let always = OpenMessage { attributes_age_ms_max: 0, ..open("k", None) };
    assert!(!fixture.open(always).await.opened().attributes_cached);
    assert_eq!(lease(&fixture).await.milliseconds, 2000);
}

#[tokio::test]
async fn attributes_are_leased_after_a_pause_of_the_host() {
    let fixture = home().await;
    // Asked again, at a moment that the pause does not put before the clock's beginning.
    fixture.clock.advance_time(Duration::from_secs(1));
    fixture.open(OpenMessage { attributes_age_ms_max: 0, ..open("k", None) }).await;
    poll(&fixture, &NONE).await;
    assert!(lease(&fixture).await.milliseconds > 0);
    fixture.clock.simulate_pause(Duration::from_millis(30));
    // The worker's own lease is counted with the pause, and is shorter by it.
    assert!(
        lease(&fixture).await.milliseconds > 0,
        "what was known before a pause is leased no more"
    );
}

/// Its bytes are asked for by the version that is known, which the store has no more.
#[tokio::test]
async fn an_open_that_finds_its_version_gone_recalls_the_leases_on_it() {
    let (fixture, told) = granted().await;
    fixture.store.put("k", Stored::new(2, 10));
    let open = open("k", Some(verbs3_protocol::ByteRange::All));
    let mut opened = Box::pin(finish(fixture.call(&WorkerRequest::Open(open))));
    assert!(is_waiting(&mut opened).await, "a gateway may answer with the version that is gone");
    let recalled = poll(&fixture, &told).await;
    assert_eq!(recalled.keys, [object("k").hash()]);
    poll(&fixture, &recalled).await;
    assert_eq!(opened.await.bytes, Stored::new(2, 10).content(0..10));
}

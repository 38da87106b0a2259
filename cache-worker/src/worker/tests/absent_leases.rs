//! Leases on absences: a gateway answers by itself that there is no object, and no writer is told of
//! one before that has ended.

use verbs3_protocol::{
    AttributeLease, LeaseHolder, ListedAttributes, ListedEntry, ListingMessage, OpenMessage,
    RecallReply, WorkerRequest,
};
use verbs3_rdma::inprocess::InProcessMode;

use super::holding_store::{Fault, Stored};
use super::leases::{HOLDER, NONE, activate, finish, granting, is_waiting, poll, report};
use super::worker_fixture::{ANY_AGE, WorkerFixture, object, open, open_by, volume};
use std::time::Duration;

/// A gateway's HEAD of "k", which accepts an absence of this age.
fn head(absence_age_ms_max: u64) -> WorkerRequest {
    let open = OpenMessage { absence_age_ms_max, ..open("k", None) };
    open_by(open, LeaseHolder { id: HOLDER, answered: 0 })
}

async fn lease(fixture: &WorkerFixture) -> AttributeLease {
    fixture.ask(head(ANY_AGE)).await.absent().lease
}

/// A home that has granted a lease on the absence of "k".
async fn granted() -> (WorkerFixture, RecallReply) {
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, granting(|_| ()));
    activate(&fixture, 1, false);
    let told = poll(&fixture, &NONE).await;
    assert_eq!(lease(&fixture).await, AttributeLease::default(), "asked at the ufs just now");
    assert_eq!(lease(&fixture).await, AttributeLease::default(), "that was no read that counts");
    assert_eq!(lease(&fixture).await, AttributeLease { id: 1, milliseconds: 2000 });
    (fixture, told)
}

#[tokio::test]
async fn a_lease_on_an_absence_outlasts_no_age_of_absences() {
    let (fixture, _) = granted().await;
    fixture.clock.advance_time(Duration::from_millis(300));
    let lease_of = async |age| fixture.ask(head(age)).await.absent().lease.milliseconds;
    assert_eq!(lease_of(1300).await, 1000, "though attributes may be of any age");
    assert_eq!(lease_of(310).await, 0, "not worth it");
    assert_eq!(lease_of(0).await, 0, "who asks every time");
}

/// A missing bucket and a delete marker are kept by nobody.
#[tokio::test]
async fn only_an_absence_that_is_cached_is_leased() {
    for fault in [Fault::NoSuchBucket, Fault::DeleteMarker] {
        let fixture = WorkerFixture::with(InProcessMode::Share, 32, granting(|_| ()));
        activate(&fixture, 1, false);
        poll(&fixture, &NONE).await;
        *fixture.store.fault.lock() = Some(fault);
        for _ in 0..4 {
            assert_eq!(lease(&fixture).await, AttributeLease::default(), "{fault:?}");
        }
    }
}

#[tokio::test]
async fn who_shows_an_object_waits_for_those_who_hold_its_absence() {
    let shown = Some(ListedAttributes { bytes: Some(10), ..ListedAttributes::default() });
    let entries = vec![ListedEntry { key: "k".into(), shown }];
    let always = OpenMessage { attributes_age_ms_max: 0, absence_age_ms_max: 0, ..open("k", None) };
    let requests = [
        WorkerRequest::Report(report(1)),
        WorkerRequest::Listed(ListingMessage { volume: volume(), entries }),
        // Of an object that came behind the gateways.
        WorkerRequest::Open(always),
    ];
    for request in requests {
        let (fixture, told) = granted().await;
        fixture.store.put("k", Stored::new(1, 10));
        let mut said = Box::pin(finish(fixture.call(&request)));
        assert!(is_waiting(&mut said).await, "a gateway may say that it is absent: {request:?}");
        let recalled = poll(&fixture, &told).await;
        assert_eq!(recalled.keys, [object("k").hash()], "{request:?}");
        poll(&fixture, &recalled).await;
        said.await;
        assert_eq!(fixture.open(open("k", None)).await.opened().attributes.version.bytes, 10);
    }
}

/// Many absences were asked for meanwhile, and the home remembers few.
#[tokio::test]
async fn an_object_waits_for_a_lease_on_its_forgotten_absence() {
    let few = granting(|settings| settings.index.attributes_max = 1);
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, few);
    activate(&fixture, 1, false);
    let told = poll(&fixture, &NONE).await;
    lease(&fixture).await;
    lease(&fixture).await;
    assert_eq!(lease(&fixture).await.milliseconds, 2000);
    for number in 0..20 {
        let other = OpenMessage { object: object(&format!("other-{number}")), ..open("k", None) };
        fixture.open(other.clone()).await;
        fixture.open(other).await;
    }
    fixture.store.put("k", Stored::new(1, 10));
    let mut asked = Box::pin(finish(fixture.call(&WorkerRequest::Open(open("k", None)))));
    assert!(is_waiting(&mut asked).await);
    let recalled = poll(&fixture, &told).await;
    poll(&fixture, &recalled).await;
    assert_eq!(asked.await.opened().attributes.version.bytes, 10);
}

#[tokio::test]
async fn an_absence_that_is_asked_anew_recalls_no_lease() {
    let (fixture, _) = granted().await;
    assert!(!fixture.ask(head(0)).await.absent().cached);
    assert_eq!(lease(&fixture).await.milliseconds, 2000);
}

#[tokio::test]
async fn a_deletion_is_leased_as_an_absence_after_a_while() {
    let (fixture, told) = granted().await;
    let mut reported = Box::pin(finish(fixture.call(&WorkerRequest::Report(report(1)))));
    assert!(is_waiting(&mut reported).await);
    let recalled = poll(&fixture, &told).await;
    poll(&fixture, &recalled).await;
    assert!(reported.await.is_done());
    for _ in 0..3 {
        assert_eq!(lease(&fixture).await, AttributeLease::default(), "written a moment ago");
    }
    fixture.clock.advance_time(Duration::from_secs(6));
    poll(&fixture, &recalled).await;
    assert_eq!(lease(&fixture).await.milliseconds, 2000);
}

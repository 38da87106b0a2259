//! Leases on attributes: whom a home grants some, and what it does not acknowledge before they are
//! dropped or over.

use std::time::Duration;

use verbs3_protocol::{
    AnnounceMessage, AttributeLease, Epoch, ForgetPrefix, HolderId, LeaseHolder, ListedAttributes,
    NoticeAnswer, OpenMessage, PlacementMap, PlacementMember, RecallPollMessage, RecallReply,
    RefusalKind, ReportMessage, WorkerId, WorkerReply, WorkerRequest, WriteNotice, WriteOutcome,
};
use verbs3_rdma::inprocess::InProcessMode;
use verbs3_rdma::transport::OutgoingCall;

use super::holding_store::Stored;
use super::worker_fixture::{
    WRITE, WorkerFixture, WorkerSetup, collect, coordinated, first_activation, object, open,
    open_by, volume,
};
use crate::coordination::MapActivation;
use crate::settings::WorkerSettings;
use crate::worker::WorkerAskers;
use verbs3_settings::TimePeriod;

const LEASE: Duration = Duration::from_secs(10);
pub(super) const HOLDER: HolderId = HolderId(77);
/// Nothing must happen meanwhile: what is asserted of it would have happened at once. For a machine
/// of any speed.
pub(super) const A_MOMENT: Duration = Duration::from_millis(300);

/// A home that leases a key from its second read on.
pub(super) fn granting(change: impl FnOnce(&mut WorkerSettings)) -> WorkerSetup {
    coordinated(|settings| {
        (settings.leases.length, settings.leases.reads_min) = (TimePeriod::from_seconds(2), 2);
        settings.leases.quiet_for = TimePeriod::from_seconds(5);
        change(settings);
    })
}

fn alone(epoch: u64) -> PlacementMap {
    PlacementMap::new(Epoch(epoch), vec![PlacementMember::new(WorkerId("a".into()), 1.0)], 1)
        .unwrap()
}

pub(super) fn activate(fixture: &WorkerFixture, epoch: u64, restarted: bool) {
    let (map, me) = (alone(epoch), WorkerId("a".into()));
    fixture.worker.activate_map(MapActivation { restarted, ..first_activation(&map, &me) });
    fixture.worker.hold_lease(|| (LEASE, LEASE));
}

/// A home that knows the attributes of "k", which were read once.
pub(super) async fn home() -> WorkerFixture {
    home_with(granting(|_| ())).await
}

pub(super) async fn home_with(worker: WorkerSetup) -> WorkerFixture {
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker);
    activate(&fixture, 1, false);
    fixture.store.put("k", Stored::new(1, 10));
    assert_eq!(
        fixture.open(open("k", None)).await.opened().lease,
        AttributeLease::default(),
        "asked at the ufs just now"
    );
    fixture
}

pub(super) async fn poll(fixture: &WorkerFixture, last: &RecallReply) -> RecallReply {
    let recalls = RecallPollMessage { holder: HOLDER, life: last.life, through: last.through };
    match fixture.ask(WorkerRequest::Recalls(recalls)).await.messages.pop() {
        Some(WorkerReply::Recalled(recalled)) => recalled,
        other => panic!("{other:?}"),
    }
}

pub(super) const NONE: RecallReply =
    RecallReply { life: 0, through: 0, keys: Vec::new(), all: false };

fn opening(answered: u32, change: impl FnOnce(&mut OpenMessage)) -> WorkerRequest {
    let mut open = open("k", None);
    change(&mut open);
    open_by(open, LeaseHolder { id: HOLDER, answered })
}

pub(super) async fn lease(fixture: &WorkerFixture) -> AttributeLease {
    fixture.ask(opening(0, |_| {})).await.opened().lease
}

/// A home that has granted a lease on "k".
pub(super) async fn granted() -> (WorkerFixture, RecallReply) {
    granted_with(granting(|_| ())).await
}

async fn granted_with(worker: WorkerSetup) -> (WorkerFixture, RecallReply) {
    let fixture = home_with(worker).await;
    let told = poll(&fixture, &NONE).await;
    assert_eq!(lease(&fixture).await, AttributeLease { id: 1, milliseconds: 2000 });
    (fixture, told)
}

pub(super) fn report(epoch: u64) -> ReportMessage {
    let (keys, outcome) = (vec!["k".to_owned()], WriteOutcome::Done);
    ReportMessage { volume: volume(), keys, write: WRITE, epoch: Epoch(epoch), outcome }
}

fn announce() -> AnnounceMessage {
    let keys = vec!["k".to_owned()];
    AnnounceMessage { volume: volume(), keys, write: WRITE, epoch: Epoch(1), uncertain_ms: 60_000 }
}

pub(super) async fn is_waiting(
    call: &mut std::pin::Pin<Box<impl Future<Output = super::worker_fixture::Got>>>,
) -> bool {
    tokio::time::timeout(A_MOMENT, call).await.is_err()
}

pub(super) async fn finish(call: OutgoingCall) -> super::worker_fixture::Got {
    collect(call).await.unwrap()
}

#[tokio::test]
async fn a_lease_is_granted_to_who_polls_on_keys_that_are_read_often() {
    let fixture = home().await;
    let hint = AttributeLease { id: 1, milliseconds: 0 };
    assert_eq!(
        fixture.open(open("k", None)).await.opened().lease,
        hint,
        "to who does not say who it is"
    );
    assert_eq!(lease(&fixture).await, hint, "to who does not poll");
    poll(&fixture, &NONE).await;
    assert_eq!(lease(&fixture).await.milliseconds, 2000);
    fixture.store.put("cold", Stored::new(1, 10));
    for _ in 0..2 {
        fixture.clock.advance_time(Duration::from_secs(11));
        fixture.worker.hold_lease(|| (LEASE, LEASE));
        let cold = OpenMessage { object: object("cold"), ..open("k", None) };
        let asked = open_by(cold, LeaseHolder { id: HOLDER, answered: 0 });
        assert_eq!(
            fixture.ask(asked).await.opened().lease,
            AttributeLease::default(),
            "read too seldom"
        );
    }
    let cold = OpenMessage { object: object("cold"), ..open("k", None) };
    fixture.clock.advance_time(Duration::from_secs(11));
    fixture.worker.hold_lease(|| (LEASE, LEASE));
    poll(&fixture, &NONE).await;
    let asked = open_by(cold, LeaseHolder { id: HOLDER, answered: 5 });
    assert_eq!(
        fixture.ask(asked).await.opened().lease.milliseconds,
        2000,
        "its holder has read it often"
    );
}

#[tokio::test]
async fn a_first_poll_is_answered_at_once_and_a_later_one_waits() {
    let fixture = home().await;
    let wait = Duration::from_millis(verbs3_protocol::RECALLS_WAIT_MS);
    let first = tokio::time::timeout(wait * 9 / 10, poll(&fixture, &NONE)).await;
    let told = first.expect("it waits like others");
    assert!(tokio::time::timeout(wait / 10, poll(&fixture, &told)).await.is_err());
}

#[tokio::test]
async fn a_lease_outlasts_neither_attribute_age_nor_the_homes_lease() {
    let (fixture, _) = granted().await;
    let aged = |ms| opening(0, move |open| open.attributes_age_ms_max = ms);
    fixture.clock.advance_time(Duration::from_millis(300));
    assert_eq!(fixture.ask(aged(1300)).await.opened().lease.milliseconds, 1000);
    assert_eq!(
        fixture.ask(aged(310)).await.opened().lease,
        AttributeLease::default(),
        "not worth it"
    );
    assert_eq!(
        fixture.ask(aged(0)).await.opened().lease,
        AttributeLease::default(),
        "who asks every time"
    );
    let versioned = opening(0, |open| open.version_id = Some("null".into()));
    assert!(fixture.ask(versioned).await.refused().is_some());
    fixture.clock.advance_time(LEASE - Duration::from_millis(1300));
    fixture.ask(opening(0, |_| {})).await;
    poll(&fixture, &NONE).await;
    assert_eq!(lease(&fixture).await.milliseconds, 1000, "the worker's own lease ends then");
    fixture.clock.advance_time(Duration::from_secs(1));
    assert_eq!([lease(&fixture).await, lease(&fixture).await], [AttributeLease::default(); 2]);
}

#[tokio::test]
async fn a_fixed_map_and_switched_off_leases_grant_nothing() {
    for worker in [
        WorkerSetup { askers: WorkerAskers::OfEpoch(Epoch(1)), ..granting(|_| ()) },
        granting(|settings| settings.leases.length = TimePeriod::from_seconds(0)),
        granting(|settings| settings.leases.leases_max = 1),
    ] {
        let full = worker.settings.leases.leases_max == 1;
        let fixture = home_with(worker).await;
        poll(&fixture, &NONE).await;
        if full {
            assert_eq!(lease(&fixture).await.milliseconds, 2000);
            fixture.store.put("l", Stored::new(1, 10));
            let other = || {
                let open = OpenMessage { object: object("l"), ..open("k", None) };
                open_by(open, LeaseHolder { id: HOLDER, answered: 9 })
            };
            fixture.ask(other()).await;
            assert_eq!(fixture.ask(other()).await.opened().lease, AttributeLease::default());
        } else {
            assert_eq!(
                [lease(&fixture).await, lease(&fixture).await],
                [AttributeLease::default(); 2]
            );
        }
    }
}

/// There, gateway and home end together, so no lease outlives what the home knows of it.
#[tokio::test]
async fn a_worker_that_only_its_own_process_asks_grants_leases_too() {
    let own = WorkerSetup { askers: WorkerAskers::Any, ..granting(|_| ()) };
    let (fixture, told) = granted_with(own).await;
    waits_for_the_holder(fixture, told).await;
}

#[tokio::test]
async fn a_report_is_acknowledged_once_the_holder_has_dropped_the_key() {
    let (fixture, told) = granted().await;
    waits_for_the_holder(fixture, told).await;
}

async fn waits_for_the_holder(fixture: WorkerFixture, told: RecallReply) {
    assert!(
        fixture.ask(WorkerRequest::Announce(announce())).await.is_done(),
        "nobody waits for an announcement"
    );
    let mut reported = Box::pin(finish(fixture.call(&WorkerRequest::Report(report(1)))));
    assert!(is_waiting(&mut reported).await);
    let recalled = poll(&fixture, &told).await;
    assert_eq!((recalled.keys.as_slice(), recalled.all), (&[object("k").hash()][..], false));
    assert!(
        is_waiting(&mut reported).await,
        "the holder has heard of it, and not said that it has dropped it"
    );
    let again = poll(&fixture, &told).await;
    assert_eq!(again, recalled, "its answer was lost");
    poll(&fixture, &recalled).await;
    let done = reported.await;
    assert!(done.is_done() && done.signs > 0, "and shows that it is at work");
}

#[tokio::test]
async fn a_report_waits_for_the_end_of_a_silent_holders_lease() {
    let (fixture, _) = granted().await;
    let mut reported = Box::pin(finish(fixture.call(&WorkerRequest::Report(report(1)))));
    assert!(is_waiting(&mut reported).await);
    fixture.clock.advance_time(Duration::from_millis(1999));
    assert!(is_waiting(&mut reported).await);
    fixture.clock.advance_time(Duration::from_millis(1));
    assert!(reported.await.is_done());
}

#[tokio::test]
async fn a_key_that_was_written_is_leased_again_after_a_while() {
    let (fixture, told) = granted().await;
    fixture.ask(WorkerRequest::Announce(announce())).await;
    let recalled = poll(&fixture, &told).await;
    poll(&fixture, &recalled).await;
    assert!(fixture.ask(WorkerRequest::Report(report(1))).await.is_done());
    let hot = || opening(10, |_| {});
    fixture.ask(hot()).await;
    assert_eq!(
        fixture.ask(hot()).await.opened().lease,
        AttributeLease::default(),
        "written a moment ago"
    );
    fixture.clock.advance_time(Duration::from_secs(6));
    poll(&fixture, &recalled).await;
    assert_eq!(fixture.ask(hot()).await.opened().lease.milliseconds, 2000);
}

/// Everything that makes attributes void, whoever says so.
#[tokio::test]
async fn whatever_makes_attributes_void_waits_for_those_who_hold_them() {
    let shown = Some(ListedAttributes { bytes: Some(99), ..ListedAttributes::default() });
    let entries = vec![verbs3_protocol::ListedEntry { key: "k".into(), shown }];
    let (keys, prefix) = (vec!["k".to_owned()], String::new());
    let requests = [
        WorkerRequest::Report(report(1)),
        WorkerRequest::Forget(verbs3_protocol::ForgetMessage { volume: volume(), keys }),
        WorkerRequest::ForgetPrefix(ForgetPrefix { volume: volume(), prefix }),
        WorkerRequest::Listed(verbs3_protocol::ListingMessage { volume: volume(), entries }),
    ];
    for request in requests {
        let (fixture, told) = granted().await;
        let mut said = Box::pin(finish(fixture.call(&request)));
        assert!(is_waiting(&mut said).await, "{request:?}");
        let recalled = poll(&fixture, &told).await;
        assert!(recalled.all || recalled.keys == [object("k").hash()], "{request:?}");
        poll(&fixture, &recalled).await;
        assert!(said.await.is_done());
    }
}

#[tokio::test]
async fn an_invalid_prefix_gives_no_lease_on_older_answers() {
    let (fixture, told) = granted().await;
    let attributes = fixture.worker.home.attributes.len();
    let forget = ForgetPrefix { volume: volume(), prefix: "k".into() };
    fixture.clock.advance_time(Duration::from_secs(1));
    fixture.worker.home.voids.add_prefix(&forget.volume, &forget.prefix, fixture.clock_now());
    poll(&fixture, &told).await;
    assert_eq!(lease(&fixture).await, AttributeLease::default(), "asked anew");
    assert_eq!(fixture.worker.home.attributes.len(), attributes);
    assert_eq!(lease(&fixture).await.milliseconds, 2000);
}

#[tokio::test]
async fn an_epoch_is_not_given_up_while_a_lease_of_it_may_be_used() {
    let (fixture, told) = granted().await;
    assert_eq!(fixture.worker.give_up_epoch(10), Some(Vec::new()));
    let over = || tokio::time::timeout(A_MOMENT, fixture.worker.leases_over());
    assert!(over().await.is_err());
    let refused = fixture.ask(opening(9, |_| {})).await;
    assert_eq!(
        refused.refused(),
        Some(&RefusalKind::WrongEpoch(Epoch(0))),
        "nothing is granted from then on"
    );
    let recalled = poll(&fixture, &told).await;
    assert!(recalled.all);
    assert!(over().await.is_err());
    poll(&fixture, &recalled).await;
    fixture.worker.leases_over().await;
    let (silent, _) = granted().await;
    silent.worker.give_up_epoch(10);
    silent.clock.advance_time(Duration::from_secs(2));
    silent.worker.leases_over().await;
}

#[tokio::test]
async fn a_relayed_report_is_refused_until_leases_are_dropped() {
    let (fixture, told) = granted().await;
    assert_eq!(
        fixture.worker.apply_relayed_word(&WriteNotice::Announce(announce()).into()),
        NoticeAnswer::Done
    );
    let hear = || fixture.worker.apply_relayed_word(&WriteNotice::Report(report(1)).into());
    for _ in 0..2 {
        assert!(
            matches!(hear(), NoticeAnswer::Refused(refusal) if refusal.kind == RefusalKind::Busy)
        );
    }
    let recalled = poll(&fixture, &told).await;
    poll(&fixture, &recalled).await;
    assert_eq!(hear(), NoticeAnswer::Done);
}

/// It was killed, and nobody knows what it has granted.
#[tokio::test]
async fn a_restarted_process_waits_for_leases_of_the_one_before() {
    for (restarted, waits) in [(true, true), (false, false)] {
        let fixture = WorkerFixture::with(InProcessMode::Share, 32, granting(|_| ()));
        fixture.worker.follows_another();
        activate(&fixture, 1, restarted);
        let mut reported = Box::pin(finish(fixture.call(&WorkerRequest::Report(report(1)))));
        if waits {
            assert!(is_waiting(&mut reported).await);
            fixture.worker.give_up_epoch(10);
            assert!(tokio::time::timeout(A_MOMENT, fixture.worker.leases_over()).await.is_err());
            fixture.clock.advance_time(Duration::from_secs(2));
            fixture.worker.leases_over().await;
        }
        assert!(reported.await.is_done());
    }
    // Before its first map: it may be asked to give up one of the process before.
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, granting(|_| ()));
    fixture.worker.follows_another();
    fixture.worker.give_up_epoch(10);
    assert!(tokio::time::timeout(A_MOMENT, fixture.worker.leases_over()).await.is_err());
}

#[tokio::test]
async fn an_answer_to_another_process_acknowledges_no_recall_here() {
    let (fixture, told) = granted().await;
    fixture.ask(WorkerRequest::Announce(announce())).await;
    let other = RecallReply { life: told.life ^ 1, through: u64::MAX, ..told.clone() };
    assert_eq!(poll(&fixture, &other).await.keys, [object("k").hash()]);
    let mut reported = Box::pin(finish(fixture.call(&WorkerRequest::Report(report(1)))));
    assert!(is_waiting(&mut reported).await);
}

/// Recalled while the answer that grants it was on its way to be given: not granted at all.
#[tokio::test]
async fn an_answer_known_before_a_write_grants_nothing_after_it() {
    let (fixture, told) = granted().await;
    let known = fixture.worker.home.attributes.len();
    assert_eq!(known, 1);
    fixture.ask(WorkerRequest::Announce(announce())).await;
    let recalled = poll(&fixture, &told).await;
    poll(&fixture, &recalled).await;
    assert_eq!(fixture.ask(opening(9, |_| {})).await.refused(), Some(&RefusalKind::Uncertain));
    assert_eq!(fixture.worker.home.grants.lease_and_holder_counts().0, 0);
}

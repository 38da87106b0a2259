//! A coordinated worker: what its lease and its map allow it to answer.

use std::collections::HashSet;
use std::time::Duration;

use verbs3_protocol::{
    AnnounceMessage, Epoch, HomeAcknowledgement, NoticeAnswer, OpenMessage, PlacementMap,
    PlacementMember, RefusalKind, ReportMessage, StandingReply, TenantNotice, TenantTag, WorkerId,
    WorkerRequest, WriteId, WriteLeaseState, WriteNotice, WriteOutcome,
};
use verbs3_rdma::inprocess::InProcessMode;

use super::holding_store::Stored;
use super::worker_fixture::{
    WRITE, WorkerFixture, coordinated, first_activation, object, open, volume,
};
use crate::coordination::{MapActivation, NotedWrite};

const LEASE: Duration = Duration::from_secs(10);
const OUTAGE: Duration = Duration::from_secs(100);

fn new_fixture() -> WorkerFixture {
    WorkerFixture::with(InProcessMode::Share, 32, coordinated(|_| ()))
}

fn id(name: &str) -> WorkerId {
    WorkerId(name.into())
}

/// Map in which worker `a` is alone, so the home of every key.
fn alone(epoch: u64) -> PlacementMap {
    PlacementMap::new(Epoch(epoch), vec![PlacementMember::new(id("a"), 1.0)], 1).unwrap()
}

/// Map in which worker `b` is alone.
fn elsewhere(epoch: u64) -> PlacementMap {
    PlacementMap::new(Epoch(epoch), vec![PlacementMember::new(id("b"), 1.0)], 1).unwrap()
}

fn activate(
    fixture: &WorkerFixture,
    map: &PlacementMap,
    former: Option<&PlacementMap>,
    handed: &[&str],
    open_writes: Vec<NotedWrite>,
) {
    activate_as(fixture, (map, former), handed, |activation| activation.open_writes = open_writes);
}

/// The same, of a worker of which more is to be said.
fn activate_as(
    fixture: &WorkerFixture,
    (map, former): (&PlacementMap, Option<&PlacementMap>),
    handed: &[&str],
    change: impl FnOnce(&mut MapActivation<'_>),
) {
    let handed_over: HashSet<WorkerId> = handed.iter().map(|name| id(name)).collect();
    let me = id("a");
    let mut activation = MapActivation { former, handed_over, ..first_activation(map, &me) };
    change(&mut activation);
    fixture.worker.activate_map(activation);
    fixture.worker.hold_lease(|| (LEASE, OUTAGE));
}

fn opening(epoch: u64) -> WorkerRequest {
    WorkerRequest::Open(OpenMessage {
        epoch: Epoch(epoch),
        ..open("k", Some(verbs3_protocol::ByteRange::All))
    })
}

fn announce(epoch: u64) -> WorkerRequest {
    let keys = vec!["k".to_owned()];
    WorkerRequest::Announce(AnnounceMessage {
        volume: volume(),
        keys,
        write: WRITE,
        epoch: Epoch(epoch),
        uncertain_ms: 60_000,
    })
}

fn report(epoch: u64, write: WriteId) -> WorkerRequest {
    let (keys, outcome) = (vec!["k".to_owned()], WriteOutcome::Done);
    WorkerRequest::Report(ReportMessage {
        volume: volume(),
        keys,
        write,
        epoch: Epoch(epoch),
        outcome,
    })
}

/// Questions about attributes that the store has got.
fn asked(fixture: &WorkerFixture) -> usize {
    let (gets, heads) = fixture.store.asked();
    gets + heads
}

#[tokio::test]
async fn before_its_first_map_a_worker_answers_for_no_attributes() {
    let fixture = new_fixture();
    fixture.store.put("k", Stored::new(1, 10));
    fixture.worker.hold_lease(|| (LEASE, OUTAGE));
    for request in [opening(1), announce(1), report(1, WRITE), opening(0)] {
        assert_eq!(fixture.ask(request).await.refused(), Some(&RefusalKind::WrongEpoch(Epoch(0))));
    }
}

#[tokio::test]
async fn an_unleased_home_asks_the_ufs_and_sees_what_others_wrote() {
    let fixture = new_fixture();
    activate(&fixture, &alone(1), None, &[], Vec::new());
    let (old, new) = (Stored::new(1, 10), Stored::new(2, 20));
    fixture.store.put("k", old.clone());
    assert_eq!(fixture.ask(opening(1)).await.bytes, old.content(0..10));
    let before = asked(&fixture);
    assert_eq!(fixture.ask(opening(1)).await.bytes, old.content(0..10));
    assert_eq!(asked(&fixture), before, "known, and answered");
    // A write through another home, which this worker does not hear of.
    fixture.store.put("k", new.clone());
    fixture.clock.advance_time(LEASE);
    assert_eq!(fixture.ask(opening(1)).await.bytes, new.content(0..20));
    assert!(matches!(
        fixture.ask(announce(1)).await.messages[..],
        [verbs3_protocol::WorkerReply::Acknowledged(HomeAcknowledgement {
            hold: WriteLeaseState::Unleased,
            ..
        })]
    ));
    fixture.clock.advance_time(OUTAGE);
    assert_eq!(fixture.ask(announce(1)).await.refused(), Some(&RefusalKind::NoLease));
}

/// The time that was left when it was asked once counted from after the pause.
#[tokio::test]
async fn a_pause_while_a_lease_is_noted_does_not_extend_it() {
    let fixture = new_fixture();
    activate(&fixture, &alone(1), None, &[], Vec::new());
    fixture.store.put("k", Stored::new(1, 10));
    fixture.worker.hold_lease(|| {
        let left = (LEASE, OUTAGE);
        fixture.clock.advance_time(LEASE);
        left
    });
    fixture.ask(opening(1)).await.opened();
    let before = asked(&fixture);
    fixture.ask(opening(1)).await.opened();
    assert!(asked(&fixture) > before, "its lease was over");
}

#[tokio::test]
async fn a_home_that_was_none_meanwhile_forgets_what_it_knew() {
    let fixture = new_fixture();
    activate(&fixture, &alone(1), None, &[], Vec::new());
    let (old, new) = (Stored::new(1, 10), Stored::new(2, 20));
    fixture.store.put("k", old.clone());
    assert_eq!(fixture.ask(opening(1)).await.bytes, old.content(0..10));
    assert_eq!(fixture.worker.give_up_epoch(10), Some(Vec::new()));
    assert_eq!(fixture.ask(opening(1)).await.refused(), Some(&RefusalKind::WrongEpoch(Epoch(0))));
    activate(&fixture, &elsewhere(2), Some(&alone(1)), &["a"], Vec::new());
    fixture.store.put("k", new.clone());
    fixture.clock.advance_time(Duration::from_secs(1));
    fixture.worker.give_up_epoch(10);
    activate(&fixture, &alone(3), Some(&elsewhere(2)), &["b"], Vec::new());
    fixture.clock.advance_time(Duration::from_secs(1));
    assert_eq!(fixture.ask(opening(3)).await.bytes, new.content(0..20));
    let before = asked(&fixture);
    assert_eq!(fixture.ask(opening(3)).await.bytes, new.content(0..20));
    assert_eq!(asked(&fixture), before, "from now on it knows again");
}

/// Each of the next homes counts a write for whose it is, and so does the home after it.
#[tokio::test]
async fn open_writes_that_are_handed_over_stay_those_of_their_tenants() {
    let old = new_fixture();
    activate(&old, &alone(1), None, &[], Vec::new());
    let eve = TenantTag::new("eve", 1);
    let keys = |name: &str| vec![name.to_owned()];
    assert!(old.announce_for(eve, keys("eve/k"), WRITE, 10_000).await.is_done());
    assert!(old.announce_for(None, keys("k"), WRITE, 10_000).await.is_done());
    let told = |fixture: &WorkerFixture| {
        let mut writes = fixture.worker.give_up_epoch(10).unwrap();
        writes.sort_by_key(|noted| noted.tenant);
        writes.iter().map(|noted| (noted.hash, noted.tenant)).collect::<Vec<_>>()
    };
    let writes = old.worker.give_up_epoch(10).unwrap();
    let theirs = told(&old);
    assert_eq!(
        theirs,
        [(object("k").hash(), 0), (object("eve/k").hash(), eve.unwrap().name.stable_hash())]
    );
    let new = new_fixture();
    activate(&new, &alone(2), Some(&alone(1)), &["a"], writes);
    assert_eq!(told(&new), theirs);
}

#[tokio::test]
async fn open_writes_follow_the_slots_to_their_new_home() {
    let old = new_fixture();
    activate(&old, &alone(1), None, &[], Vec::new());
    assert!(old.ask(announce(1)).await.is_done());
    let writes = old.worker.give_up_epoch(10).unwrap();
    assert_eq!(
        writes.iter().map(|noted| (noted.hash, noted.write)).collect::<Vec<_>>(),
        [(object("k").hash(), WRITE)]
    );
    assert_eq!(old.worker.give_up_epoch(0), None, "more than may be said");

    let new = new_fixture();
    new.store.put("k", Stored::new(1, 10));
    activate(&new, &alone(2), Some(&elsewhere(1)), &["b"], writes);
    assert_eq!(new.ask(opening(2)).await.refused(), Some(&RefusalKind::Uncertain));
    assert!(new.ask(report(2, WRITE)).await.is_done());
    assert_eq!(new.ask(opening(2)).await.opened().attributes.version.bytes, 10);
}

#[tokio::test]
async fn a_standing_is_told() {
    let fixture = new_fixture();
    let standing =
        async |fixture: &WorkerFixture| fixture.ask(WorkerRequest::Standing).await.messages;
    assert!(matches!(
        standing(&fixture).await[..],
        [verbs3_protocol::WorkerReply::Standing(StandingReply { epoch: Epoch(0), leased: false })]
    ));
    activate(&fixture, &alone(7), None, &[], Vec::new());
    assert!(matches!(
        standing(&fixture).await[..],
        [verbs3_protocol::WorkerReply::Standing(StandingReply { epoch: Epoch(7), leased: true })]
    ));
}

#[tokio::test]
async fn a_relayed_notice_is_judged_like_a_direct_one() {
    let fixture = new_fixture();
    let word = |epoch: u64| match (announce(epoch), report(epoch, WRITE)) {
        (WorkerRequest::Announce(announce), WorkerRequest::Report(report)) => {
            let announced = TenantNotice::from(WriteNotice::Announce(announce));
            (announced, TenantNotice::from(WriteNotice::Report(report)))
        }
        other => panic!("{other:?}"),
    };
    let refused = |heard: NoticeAnswer| match heard {
        NoticeAnswer::Refused(refusal) => refusal.kind,
        other => panic!("{other:?}"),
    };
    // Before its first map, and under another than its own.
    assert_eq!(
        refused(fixture.worker.apply_relayed_word(&word(1).0)),
        RefusalKind::WrongEpoch(Epoch(0))
    );
    activate(&fixture, &alone(1), None, &[], Vec::new());
    assert_eq!(
        refused(fixture.worker.apply_relayed_word(&word(2).1)),
        RefusalKind::WrongEpoch(Epoch(1))
    );

    // What it knows is void from the announcement to the report, and asked anew after.
    let (old, new) = (Stored::new(1, 10), Stored::new(2, 20));
    fixture.store.put("k", old.clone());
    assert_eq!(fixture.ask(opening(1)).await.bytes, old.content(0..10));
    let (announced, reported) = word(1);
    assert_eq!(
        (
            fixture.worker.apply_relayed_word(&announced),
            fixture.worker.apply_relayed_word(&announced)
        ),
        (NoticeAnswer::Done, NoticeAnswer::Done)
    );
    assert_eq!(fixture.ask(opening(1)).await.refused(), Some(&RefusalKind::Uncertain));
    fixture.store.put("k", new.clone());
    assert_eq!(fixture.worker.apply_relayed_word(&reported), NoticeAnswer::Done);
    assert_eq!(fixture.ask(opening(1)).await.bytes, new.content(0..20));
    let before = asked(&fixture);
    assert_eq!(fixture.ask(opening(1)).await.bytes, new.content(0..20));
    assert_eq!(asked(&fixture), before, "known again");
    // A copy of the announcement that comes last is slow, and never stale.
    assert_eq!(fixture.worker.apply_relayed_word(&announced), NoticeAnswer::Done);
    assert_eq!(fixture.ask(opening(1)).await.refused(), Some(&RefusalKind::Uncertain));
    assert_eq!(fixture.worker.apply_relayed_word(&reported), NoticeAnswer::Done);

    fixture.clock.advance_time(LEASE);
    assert_eq!(fixture.worker.apply_relayed_word(&reported), NoticeAnswer::Unleased);
    fixture.clock.advance_time(OUTAGE);
    assert_eq!(refused(fixture.worker.apply_relayed_word(&reported)), RefusalKind::NoLease);
    // Between two maps nobody is a home.
    fixture.worker.hold_lease(|| (LEASE, OUTAGE));
    fixture.worker.give_up_epoch(10);
    assert_eq!(
        refused(fixture.worker.apply_relayed_word(&reported)),
        RefusalKind::WrongEpoch(Epoch(0))
    );
}

/// Whether it asks the UFS for what it was told just now.
async fn asks_again(fixture: &WorkerFixture, epoch: u64) -> bool {
    fixture.worker.hold_lease(|| (LEASE, OUTAGE));
    fixture.ask(opening(epoch)).await.opened();
    let before = asked(fixture);
    fixture.ask(opening(epoch)).await.opened();
    asked(fixture) > before
}

/// A worker whose only knowledge of writes is what it is told here; after as many seconds it trusts
/// what it asks.
async fn asks_for(fixture: &WorkerFixture, epoch: u64, seconds: u64) {
    fixture.store.put("k", Stored::new(1, 10));
    assert!(asks_again(fixture, epoch).await);
    fixture.clock.advance_time(Duration::from_secs(seconds - 1));
    assert!(asks_again(fixture, epoch).await);
    fixture.clock.advance_time(Duration::from_secs(2));
    assert!(!asks_again(fixture, epoch).await);
}

#[tokio::test]
async fn writes_of_a_dead_home_stay_uncertain_when_its_slots_move_on() {
    let heir = new_fixture();
    activate(&heir, &alone(2), Some(&elsewhere(1)), &[], Vec::new());
    heir.clock.advance_time(Duration::from_secs(100));
    assert_eq!(heir.worker.give_up_epoch(10), Some(Vec::new()));
    let uncertain = heir.worker.uncertain_for();
    assert_eq!(uncertain, Duration::from_secs(200));

    let next = new_fixture();
    activate_as(&next, (&alone(3), Some(&elsewhere(2))), &["b"], |activation| {
        activation.uncertain = uncertain
    });
    asks_for(&next, 3, 200).await;
    assert_eq!(next.worker.uncertain_for(), Duration::ZERO);
}

#[tokio::test]
async fn a_killed_and_restarted_worker_asks_until_old_writes_are_over() {
    for (former, handed) in [(None, &[][..]), (Some(elsewhere(1)), &["b"][..])] {
        let fixture = new_fixture();
        activate_as(&fixture, (&alone(2), former.as_ref()), handed, |activation| {
            activation.restarted = true
        });
        asks_for(&fixture, 2, 300).await;
    }
}

#[tokio::test]
async fn an_orderly_restart_ends_no_uncertain_time() {
    let fixture = new_fixture();
    activate_as(&fixture, (&alone(2), Some(&elsewhere(1))), &[], |activation| {
        (activation.resumes, activation.restarted) = (Some(Vec::new()), true);
        activation.uncertain = Duration::from_secs(100);
    });
    asks_for(&fixture, 2, 100).await;
}

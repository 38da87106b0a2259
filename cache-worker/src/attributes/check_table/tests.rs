#![allow(clippy::unwrap_used)]
use super::*;
use std::time::Duration;

use verbs3_metrics::TableFamily;
use verbs3_protocol::{AnswerHeaders, TenantTag, UfsAnswer};

use crate::tenants::TenantRules;

const KEY: AttributesKey = AttributesKey(7);
const PLAIN: AnswerRequirements = AnswerRequirements { checksums: false, error_body: false };

fn plan(needs: AnswerRequirements) -> AttributeCheckPlan {
    AttributeCheckPlan { get: None, whole: None, needs }
}

fn at(ms: u64) -> WorkerInstant {
    WorkerInstant::default().saturating_add(Duration::from_millis(ms))
}

fn asking(ms: u64, age: AttributeMaxAge, generation: u64) -> PendingAttributeRead {
    let (arrived, generation) = (at(ms), KeyGeneration(generation));
    PendingAttributeRead { arrived, age, generation, account: TenantAccount::NOBODY }
}

fn up_to(ms: u64) -> AttributeMaxAge {
    AttributeMaxAge::UpTo(Duration::from_millis(ms))
}

/// A check that began at 10 ms under generation 1.
fn running() -> (AttributeCheckTable, OutgoingCheck) {
    let checks = AttributeCheckTable::new(10, Arc::default());
    let CheckAdmission::Sends(_, sent) =
        checks.join_check(KEY, plan(PLAIN), &asking(10, AttributeMaxAge::Any, 1), at(10))
    else {
        panic!("nobody sends")
    };
    (checks, sent)
}

/// Whether a reader gets the answer of the running check, and not of the next.
async fn takes_running(asking: PendingAttributeRead, needs: AnswerRequirements) -> bool {
    let (checks, sent) = running();
    let CheckAdmission::Waits(mut waiting) =
        checks.join_check(KEY, plan(needs), &asking, asking.arrived)
    else {
        panic!("sends")
    };
    sent.answer.send_replace(Some(Arc::new(AttributeCheckOutcome::Uncertain)));
    waiting.borrow_and_update().is_some()
}

#[tokio::test]
async fn a_check_is_joined_only_by_those_who_may_have_its_answer() {
    assert!(takes_running(asking(20, up_to(10), 1), PLAIN).await);
    assert!(takes_running(asking(1000, AttributeMaxAge::Any, 1), PLAIN).await);
    assert!(!takes_running(asking(21, up_to(10), 1), PLAIN).await, "too old");
    assert!(
        !takes_running(asking(10, AttributeMaxAge::AlwaysAsk, 1), PLAIN).await,
        "sent before the reader came"
    );
    assert!(!takes_running(asking(10, AttributeMaxAge::Any, 2), PLAIN).await, "a write has passed");
    assert!(
        !takes_running(
            asking(10, AttributeMaxAge::Any, 1),
            AnswerRequirements { checksums: true, ..PLAIN }
        )
        .await,
        "lacks checksums"
    );
    assert!(
        !takes_running(
            asking(10, AttributeMaxAge::Any, 1),
            AnswerRequirements { error_body: true, ..PLAIN }
        )
        .await,
        "lacks a body"
    );
}

#[tokio::test]
async fn those_who_may_not_share_one_next_check_that_serves_all() {
    let (checks, sent) = running();
    let needs = [
        AnswerRequirements { checksums: true, ..PLAIN },
        AnswerRequirements { error_body: true, ..PLAIN },
        PLAIN,
    ];
    let mut waiting: Vec<CheckAnswerReceiver> = needs
        .into_iter()
        .map(|needs| {
            match checks.join_check(
                KEY,
                plan(needs),
                &asking(20, AttributeMaxAge::AlwaysAsk, 1),
                at(20),
            ) {
                CheckAdmission::Waits(waiting) => waiting,
                _ => panic!("a second check at once"),
            }
        })
        .collect();
    sent.answer.send_replace(Some(Arc::new(AttributeCheckOutcome::Moved)));
    assert!(waiting.iter_mut().all(|waiting| waiting.borrow_and_update().is_none()));
    let next = checks.next(KEY, at(30), || KeyGeneration(5)).unwrap();
    assert_eq!((next.began, next.generation), (at(30), KeyGeneration(5)));
    assert_eq!(next.plan.needs, AnswerRequirements { checksums: true, error_body: true });
    next.answer.send_replace(Some(Arc::new(AttributeCheckOutcome::Uncertain)));
    assert!(waiting.iter_mut().all(|waiting| waiting.borrow_and_update().is_some()));
    assert!(checks.next(KEY, at(40), || KeyGeneration(5)).is_none());
}

#[tokio::test]
async fn a_next_check_that_nobody_waits_for_is_not_sent() {
    let (checks, _sent) = running();
    drop(checks.join_check(KEY, plan(PLAIN), &asking(20, AttributeMaxAge::AlwaysAsk, 1), at(20)));
    assert!(checks.next(KEY, at(30), || KeyGeneration(1)).is_none());
    assert!(matches!(
        checks.join_check(KEY, plan(PLAIN), &asking(30, AttributeMaxAge::Any, 1), at(30)),
        CheckAdmission::Sends(..)
    ));
}

#[tokio::test]
async fn checks_are_bounded() {
    let checks = AttributeCheckTable::new(1, Arc::default());
    let first = checks.join_check(KEY, plan(PLAIN), &asking(10, AttributeMaxAge::Any, 1), at(10));
    assert!(matches!(first, CheckAdmission::Sends(..)));
    assert!(matches!(
        checks.join_check(
            AttributesKey(8),
            plan(PLAIN),
            &asking(10, AttributeMaxAge::Any, 1),
            at(10)
        ),
        CheckAdmission::Full
    ));
    checks.abandon_checks(KEY);
    assert!(matches!(
        checks.join_check(
            AttributesKey(8),
            plan(PLAIN),
            &asking(10, AttributeMaxAge::Any, 1),
            at(10)
        ),
        CheckAdmission::Sends(..)
    ));
}

#[tokio::test]
async fn an_answer_is_not_believed_after_more_news_than_is_remembered() {
    let (checks, _sent) = running();
    let version = |bytes| ContentVersion { etag: "\"x\"".into(), bytes, version_id: None };
    let absent = UfsAnswer { status: 404, headers: AnswerHeaders::default(), body: Vec::new() };
    let found = ObjectPresence::Absent(Arc::new(absent));
    let settles = || checks.settle_check(KEY, &found, || {});
    for _ in 0..2 {
        (0..NEWS_MAX as u64).for_each(|bytes| checks.note_gone(KEY, &version(bytes)));
        checks.note_gone(AttributesKey(8), &version(99));
        assert!(settles(), "the same again, and another key");
    }
    checks.note_gone(KEY, &version(99));
    assert!(!settles());
}

/// Has a tenant ask about keys from `first` on until it is refused. Returns how many it asked about.
fn ask_all(checks: &AttributeCheckTable, first: u128, account: TenantAccount) -> usize {
    let asking = PendingAttributeRead { account, ..asking(10, AttributeMaxAge::Any, 1) };
    let sends = |key: &u128| {
        let sent = checks.join_check(AttributesKey(*key), plan(PLAIN), &asking, at(10));
        matches!(sent, CheckAdmission::Sends(..))
    };
    (first..).take_while(sends).count()
}

#[tokio::test]
async fn checks_of_one_tenant_leave_places_to_others() {
    let rules =
        TenantRules { share_percent: 0, active_for: Duration::from_secs(600), reserve_percent: 10 };
    let tenants = Arc::new(TenantAccounts::new(rules, TableFamily::default()));
    let [eve, bob] =
        ["eve", "bob"].map(|name| tenants.note_request(TenantTag::new(name, 1).as_ref(), 0));
    let checks = AttributeCheckTable::new(100, tenants);
    assert_eq!(
        ask_all(&checks, 0, eve),
        99,
        "nobody else is there: all but a tenth of the reserve"
    );
    assert_eq!(ask_all(&checks, 1000, bob), 1);
    // Of what becomes free the reserve is for who holds less.
    (0..20).for_each(|key| checks.abandon_checks(AttributesKey(key)));
    assert_eq!((ask_all(&checks, 2000, eve), ask_all(&checks, 3000, bob)), (10, 10));
    // A check that only another tenant waits for counts for that one.
    let reads = PendingAttributeRead { account: bob, ..asking(20, AttributeMaxAge::AlwaysAsk, 1) };
    let key = AttributesKey(50);
    let CheckAdmission::Waits(_waiting) = checks.join_check(key, plan(PLAIN), &reads, at(20))
    else {
        panic!("it was not asked yet")
    };
    let next = checks.next(key, at(30), || KeyGeneration(1)).unwrap();
    assert_eq!(next.askers.first, bob);
    assert_eq!(checks.places.used(), 100);
    (0..4000).for_each(|key| checks.abandon_checks(AttributesKey(key)));
    assert_eq!(checks.places.used(), 0);
}

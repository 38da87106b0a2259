#![allow(clippy::unwrap_used)]
use super::*;
use verbs3_protocol::PlacementMember;

const UNCERTAIN: Duration = Duration::from_secs(300);

fn id(name: &str) -> WorkerId {
    WorkerId(name.into())
}

fn map(epoch: u64, names: &[&str]) -> PlacementMap {
    PlacementMap::new(
        Epoch(epoch),
        names.iter().map(|name| PlacementMember::new(id(name), 1.0)).collect(),
        1,
    )
    .unwrap()
}

fn at(seconds: u64) -> WorkerInstant {
    WorkerInstant::default().saturating_add(Duration::from_secs(seconds))
}

fn coordinated(standing: &WorkerStanding) -> &CoordinatedStanding {
    match standing {
        WorkerStanding::Coordinated(own) => own,
        WorkerStanding::Fixed(_) => panic!("not coordinated"),
    }
}

/// Makes `map` come into force for worker `a`, after `former`, of whose members `handed` have
/// handed over.
fn activate(
    standing: &WorkerStanding,
    map: &PlacementMap,
    former: Option<&PlacementMap>,
    handed: &[&str],
    now: WorkerInstant,
) {
    activate_as(standing, (map, former), handed, |_| (), now);
}

/// The same, of a worker of which more is to be said.
fn activate_as(
    standing: &WorkerStanding,
    (map, former): (&PlacementMap, Option<&PlacementMap>),
    handed: &[&str],
    change: impl FnOnce(&mut MapHandover<'_>),
    now: WorkerInstant,
) {
    let handed_over = handed.iter().map(|name| id(name)).collect();
    let (resumes, restarted, inherited, silent) = (false, false, Duration::ZERO, UNCERTAIN);
    let (me, handed_over) = (&id("a"), &handed_over);
    let mut handover =
        MapHandover { map, me, former, handed_over, resumes, restarted, inherited, silent };
    change(&mut handover);
    coordinated(standing).activate_map(&handover, now);
}

/// A slot that `one` owns in the first map and `other` in the second.
fn slot(first: &PlacementMap, one: &str, second: &PlacementMap, other: &str) -> HashSlot {
    let all = (0..SLOTS).map(|slot| HashSlot(slot as u16));
    let mut found = all.filter(|&slot| {
        first.first_owner(slot).id == id(one) && second.first_owner(slot).id == id(other)
    });
    found.next().unwrap()
}

fn leased() -> WorkerStanding {
    let standing = WorkerStanding::new_coordinated();
    coordinated(&standing).set_lease(at(1000), at(2000));
    standing
}

fn seconds(seconds: u64) -> AnswerRight {
    AnswerRight::Since(Duration::from_secs(seconds))
}

#[test]
fn without_a_map_nothing_is_answered() {
    let standing = leased();
    assert_eq!(
        standing.to_answer(Epoch(1), HashSlot(0), at(1)),
        Err(StandingError::Epoch(Epoch(0)))
    );
    assert_eq!(
        standing.to_answer(Epoch(0), HashSlot(0), at(1)),
        Err(StandingError::Epoch(Epoch(0)))
    );
    assert_eq!(standing.to_note(Epoch(0), at(1), || ()), Err(StandingError::Epoch(Epoch(0))));
}

#[test]
fn a_home_of_a_first_map_knows_from_the_moment_it_is_in_force() {
    let (standing, alone) = (leased(), map(1, &["a"]));
    activate(&standing, &alone, None, &[], at(10));
    assert_eq!(standing.to_answer(Epoch(1), HashSlot(7), at(12)), Ok(seconds(2)));
    assert_eq!(
        standing.to_answer(Epoch(2), HashSlot(7), at(12)),
        Err(StandingError::Epoch(Epoch(1)))
    );
    assert_eq!(standing.to_note(Epoch(1), at(12), || 5), Ok((5, WriteLeaseState::Leased)));
}

#[test]
fn a_home_that_stays_keeps_its_knowledge_and_a_new_one_begins() {
    let (standing, both, alone) = (leased(), map(1, &["a", "b"]), map(2, &["a"]));
    let (kept, gained) = (slot(&both, "a", &alone, "a"), slot(&both, "b", &alone, "a"));
    activate(&standing, &both, None, &[], at(10));
    assert_eq!(standing.to_answer(Epoch(1), gained, at(11)), Ok(AnswerRight::Ask), "not its home");
    coordinated(&standing).give_up_epoch();
    assert_eq!(standing.to_answer(Epoch(1), kept, at(19)), Err(StandingError::Epoch(Epoch(0))));
    activate(&standing, &alone, Some(&both), &["a", "b"], at(20));
    assert_eq!(standing.to_answer(Epoch(2), kept, at(21)), Ok(seconds(11)));
    assert_eq!(standing.to_answer(Epoch(2), gained, at(21)), Ok(seconds(1)));
}

#[test]
fn slots_without_a_handover_ask_the_ufs_until_old_writes_end() {
    let (standing, both, alone) = (leased(), map(1, &["a", "b"]), map(2, &["a"]));
    let gained = slot(&both, "b", &alone, "a");
    activate(&standing, &both, None, &[], at(10));
    coordinated(&standing).give_up_epoch();
    activate(&standing, &alone, Some(&both), &["a"], at(20));
    assert_eq!(standing.to_answer(Epoch(2), gained, at(319)), Ok(AnswerRight::Ask));
    assert_eq!(standing.to_answer(Epoch(2), gained, at(321)), Ok(seconds(1)));
}

#[test]
fn a_slot_that_comes_back_is_begun_anew() {
    let (standing, alone, both, again) =
        (leased(), map(1, &["a"]), map(2, &["a", "b"]), map(3, &["a"]));
    let returned = slot(&both, "b", &again, "a");
    activate(&standing, &alone, None, &[], at(10));
    activate(&standing, &both, Some(&alone), &["a"], at(20));
    activate(&standing, &again, Some(&both), &["a", "b"], at(30));
    assert_eq!(standing.to_answer(Epoch(3), returned, at(31)), Ok(seconds(1)));
}

#[test]
fn who_missed_a_map_is_a_new_home_of_everything() {
    let (standing, first, third) = (leased(), map(1, &["a"]), map(3, &["a"]));
    activate(&standing, &first, None, &[], at(10));
    activate(&standing, &third, Some(&map(2, &["a", "b"])), &["a", "b"], at(20));
    let (own, other) = (
        slot(&map(2, &["a", "b"]), "a", &third, "a"),
        slot(&map(2, &["a", "b"]), "b", &third, "a"),
    );
    assert_eq!(
        standing.to_answer(Epoch(3), own, at(21)),
        Ok(AnswerRight::Ask),
        "of that map it took over nothing"
    );
    assert_eq!(standing.to_answer(Epoch(3), other, at(21)), Ok(seconds(1)));
}

#[test]
fn the_same_map_again_changes_nothing() {
    let (standing, alone) = (leased(), map(1, &["a"]));
    activate(&standing, &alone, None, &[], at(10));
    coordinated(&standing).give_up_epoch();
    activate(&standing, &alone, None, &[], at(20));
    assert_eq!(standing.to_answer(Epoch(1), HashSlot(0), at(21)), Ok(seconds(11)));
}

#[test]
fn without_a_lease_a_home_asks_the_ufs_and_notes_writes_a_while() {
    let (standing, alone) = (WorkerStanding::new_coordinated(), map(1, &["a"]));
    activate(&standing, &alone, None, &[], at(10));
    coordinated(&standing).set_lease(at(20), at(40));
    assert_eq!(standing.to_answer(Epoch(1), HashSlot(0), at(20)), Ok(AnswerRight::Ask));
    assert_eq!(standing.to_note(Epoch(1), at(20), || ()), Ok(((), WriteLeaseState::Unleased)));
    assert_eq!(standing.to_note(Epoch(1), at(40), || ()), Err(StandingError::Lease));
    coordinated(&standing).set_lease(at(60), at(80));
    assert_eq!(
        standing.to_answer(Epoch(1), HashSlot(0), at(41)),
        Ok(seconds(31)),
        "nobody else was its home meanwhile"
    );
}

#[test]
fn the_uncertainty_of_a_silent_home_passes_to_each_next_home() {
    let (standing, both, alone) = (leased(), map(1, &["a", "b"]), map(2, &["a"]));
    activate(&standing, &both, None, &[], at(10));
    assert_eq!(coordinated(&standing).uncertain_for(at(10)), Duration::ZERO);
    activate(&standing, &alone, Some(&both), &["a"], at(20));
    coordinated(&standing).give_up_epoch();
    assert_eq!(coordinated(&standing).uncertain_for(at(120)), Duration::from_secs(200));
    // Its next home, which is told so: no sooner, and no later.
    let (next, third, fourth) = (leased(), map(3, &["b"]), map(4, &["a"]));
    let inherits = |handover: &mut MapHandover<'_>| handover.inherited = Duration::from_secs(200);
    activate_as(&next, (&fourth, Some(&third)), &["b"], inherits, at(120));
    assert_eq!(next.to_answer(Epoch(4), HashSlot(7), at(319)), Ok(AnswerRight::Ask));
    assert_eq!(next.to_answer(Epoch(4), HashSlot(7), at(321)), Ok(seconds(1)));
    assert_eq!(coordinated(&next).uncertain_for(at(321)), Duration::ZERO);
}

#[test]
fn a_restarted_process_does_not_know_the_writes_of_the_last_one() {
    let (alone, before) = (map(2, &["a"]), map(1, &["b"]));
    for former in [None, Some(&before)] {
        let standing = leased();
        activate_as(
            &standing,
            (&alone, former),
            &["b"],
            |handover| handover.restarted = true,
            at(10),
        );
        assert_eq!(standing.to_answer(Epoch(2), HashSlot(7), at(309)), Ok(AnswerRight::Ask));
        assert_eq!(standing.to_answer(Epoch(2), HashSlot(7), at(311)), Ok(seconds(1)));
    }
}

#[test]
fn who_resumes_knows_as_much_as_the_process_before() {
    let (standing, alone) = (leased(), map(1, &["a"]));
    let resumes = |handover: &mut MapHandover<'_>| {
        (handover.resumes, handover.restarted, handover.inherited) =
            (true, true, Duration::from_secs(30));
    };
    activate_as(&standing, (&alone, None), &[], resumes, at(10));
    assert_eq!(standing.to_answer(Epoch(1), HashSlot(7), at(39)), Ok(AnswerRight::Ask));
    assert_eq!(standing.to_answer(Epoch(1), HashSlot(7), at(41)), Ok(seconds(1)));
}

#[test]
fn the_same_cluster_told_by_a_new_leader_changes_no_standing() {
    let (standing, both, alone) = (leased(), map(1, &["a", "b"]), map(2, &["a"]));
    let kept = slot(&both, "a", &alone, "a");
    activate(&standing, &both, None, &[], at(10));
    let restarted = |handover: &mut MapHandover<'_>| handover.restarted = true;
    activate_as(&standing, (&both, None), &[], restarted, at(15));
    activate_as(&standing, (&alone, Some(&both)), &[], restarted, at(20));
    assert_eq!(standing.to_answer(Epoch(2), kept, at(21)), Ok(seconds(11)));
}

#[test]
fn a_map_without_its_predecessor_makes_all_slots_uncertain() {
    let standing = leased();
    activate(&standing, &map(1, &["a"]), None, &[], at(10));
    activate(&standing, &map(9, &["a"]), None, &[], at(20));
    assert_eq!(standing.to_answer(Epoch(9), HashSlot(7), at(319)), Ok(AnswerRight::Ask));
}

/// Its own clock has stood still, and its wall clock was set right since.
#[test]
fn a_host_that_was_stopped_has_less_of_its_lease() {
    let standing = WorkerStanding::new_coordinated();
    activate(&standing, &map(1, &["a"]), None, &[], at(0));
    coordinated(&standing).set_lease(at(20), at(40));
    let times = |now, latest| ClockReading { now: at(now), latest: at(latest) };
    assert_eq!(standing.to_answer(Epoch(1), HashSlot(0), times(10, 19)), Ok(seconds(10)));
    assert_eq!(standing.to_answer(Epoch(1), HashSlot(0), times(10, 20)), Ok(AnswerRight::Ask));
    assert_eq!(standing.to_note(Epoch(1), times(10, 19), || ()), Ok(((), WriteLeaseState::Leased)));
    assert_eq!(
        standing.to_note(Epoch(1), times(10, 20), || ()),
        Ok(((), WriteLeaseState::Unleased))
    );
    assert_eq!(standing.to_note(Epoch(1), times(10, 40), || ()), Err(StandingError::Lease));
    assert!(standing.is_leased(times(10, 19)) && !standing.is_leased(times(10, 20)));
    // What it grants ends with its own lease, and is waited for by its own clock.
    assert_eq!(standing.to_grant(Epoch(1), times(10, 15), Some), Some(at(15)));
    assert_eq!(standing.to_grant(Epoch(1), times(10, 20), Some), None);
}

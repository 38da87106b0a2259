#![allow(clippy::unwrap_used)]
use super::*;
use verbs3_protocol::Member;

const UNCERTAIN: Duration = Duration::from_secs(300);

fn id(name: &str) -> WorkerId {
    WorkerId(name.into())
}

fn map(epoch: u64, names: &[&str]) -> Placement {
    Placement::new(Epoch(epoch), names.iter().map(|name| Member::new(id(name), 1.0)).collect(), 1).unwrap()
}

fn at(seconds: u64) -> Moment {
    Moment::default().after(Duration::from_secs(seconds))
}

fn coordinated(standing: &Standing) -> &Coordinated {
    match standing {
        Standing::Coordinated(own) => own,
        Standing::Fixed(_) => panic!("not coordinated"),
    }
}

/// Makes `map` come into force for worker `a`, after `former`, of whose members `handed` have handed over.
fn activate(standing: &Standing, map: &Placement, former: Option<&Placement>, handed: &[&str], now: Moment) {
    let handed_over = handed.iter().map(|name| id(name)).collect();
    let handover =
        Handover { map, me: &id("a"), former, handed_over: &handed_over, resumes: false, uncertain: UNCERTAIN };
    coordinated(standing).activate(&handover, now);
}

/// A slot that `one` owns in the first map and `other` in the second.
fn slot(first: &Placement, one: &str, second: &Placement, other: &str) -> Slot {
    let all = (0..SLOTS).map(|slot| Slot(slot as u16));
    let mut found = all.filter(|&slot| first.owner(slot).id == id(one) && second.owner(slot).id == id(other));
    found.next().unwrap()
}

fn leased() -> Standing {
    let standing = Standing::coordinated();
    coordinated(&standing).lease(at(1000), at(2000));
    standing
}

fn seconds(seconds: u64) -> Right {
    Right::Since(Duration::from_secs(seconds))
}

#[test]
fn without_a_map_nothing_is_answered() {
    let standing = leased();
    assert_eq!(standing.to_answer(Epoch(1), Slot(0), at(1)), Err(Denied::Epoch(Epoch(0))));
    assert_eq!(standing.to_answer(Epoch(0), Slot(0), at(1)), Err(Denied::Epoch(Epoch(0))));
    assert_eq!(standing.to_note(Epoch(0), at(1), || ()), Err(Denied::Epoch(Epoch(0))));
}

#[test]
fn in_a_first_map_a_home_begins_to_know_when_it_comes_into_force() {
    let (standing, alone) = (leased(), map(1, &["a"]));
    activate(&standing, &alone, None, &[], at(10));
    assert_eq!(standing.to_answer(Epoch(1), Slot(7), at(12)), Ok(seconds(2)));
    assert_eq!(standing.to_answer(Epoch(2), Slot(7), at(12)), Err(Denied::Epoch(Epoch(1))));
    assert_eq!(standing.to_note(Epoch(1), at(12), || 5), Ok((5, Hold::Leased)));
}

#[test]
fn a_home_that_stays_one_keeps_what_it_knows_and_a_new_one_begins() {
    let (standing, both, alone) = (leased(), map(1, &["a", "b"]), map(2, &["a"]));
    let (kept, gained) = (slot(&both, "a", &alone, "a"), slot(&both, "b", &alone, "a"));
    activate(&standing, &both, None, &[], at(10));
    assert_eq!(standing.to_answer(Epoch(1), gained, at(11)), Ok(Right::Ask), "not its home");
    coordinated(&standing).prepare();
    assert_eq!(standing.to_answer(Epoch(1), kept, at(19)), Err(Denied::Epoch(Epoch(0))));
    activate(&standing, &alone, Some(&both), &["a", "b"], at(20));
    assert_eq!(standing.to_answer(Epoch(2), kept, at(21)), Ok(seconds(11)));
    assert_eq!(standing.to_answer(Epoch(2), gained, at(21)), Ok(seconds(1)));
}

#[test]
fn slots_of_who_could_not_hand_over_are_asked_until_its_writes_are_over() {
    let (standing, both, alone) = (leased(), map(1, &["a", "b"]), map(2, &["a"]));
    let gained = slot(&both, "b", &alone, "a");
    activate(&standing, &both, None, &[], at(10));
    coordinated(&standing).prepare();
    activate(&standing, &alone, Some(&both), &["a"], at(20));
    assert_eq!(standing.to_answer(Epoch(2), gained, at(319)), Ok(Right::Ask));
    assert_eq!(standing.to_answer(Epoch(2), gained, at(321)), Ok(seconds(1)));
}

#[test]
fn a_slot_that_comes_back_is_begun_anew() {
    let (standing, alone, both, again) = (leased(), map(1, &["a"]), map(2, &["a", "b"]), map(3, &["a"]));
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
    let (own, other) = (slot(&map(2, &["a", "b"]), "a", &third, "a"), slot(&map(2, &["a", "b"]), "b", &third, "a"));
    assert_eq!(standing.to_answer(Epoch(3), own, at(21)), Ok(Right::Ask), "of that map it took over nothing");
    assert_eq!(standing.to_answer(Epoch(3), other, at(21)), Ok(seconds(1)));
}

#[test]
fn the_same_map_again_changes_nothing() {
    let (standing, alone) = (leased(), map(1, &["a"]));
    activate(&standing, &alone, None, &[], at(10));
    coordinated(&standing).prepare();
    activate(&standing, &alone, None, &[], at(20));
    assert_eq!(standing.to_answer(Epoch(1), Slot(0), at(21)), Ok(seconds(11)));
}

#[test]
fn without_a_lease_the_ufs_is_asked_and_writes_are_noted_for_a_while() {
    let (standing, alone) = (Standing::coordinated(), map(1, &["a"]));
    activate(&standing, &alone, None, &[], at(10));
    coordinated(&standing).lease(at(20), at(40));
    assert_eq!(standing.to_answer(Epoch(1), Slot(0), at(20)), Ok(Right::Ask));
    assert_eq!(standing.to_note(Epoch(1), at(20), || ()), Ok(((), Hold::Unleased)));
    assert_eq!(standing.to_note(Epoch(1), at(40), || ()), Err(Denied::Lease));
    coordinated(&standing).lease(at(60), at(80));
    assert_eq!(standing.to_answer(Epoch(1), Slot(0), at(41)), Ok(seconds(31)), "nobody else was its home meanwhile");
}

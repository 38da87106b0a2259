//! Tests reports of writes that may be under way unknown to everybody.

use super::*;

/// Gives up the present map with a member's open writes, which may be incomplete for another
/// `uncertain_ms`. Then the next map is in force.
fn give_up(
    cluster: &mut MembershipController,
    name: &str,
    of: Epoch,
    uncertain_ms: u64,
    now: LeaseInstant,
) {
    let active = epoch(cluster);
    let prepare = cluster
        .renew_lease(&id(name), &renewal(name, active, Epoch(0)), now)
        .unwrap()
        .prepare
        .unwrap();
    let given_up = RelinquishedEpoch { epoch: of, uncertain_ms };
    cluster
        .renew_lease(
            &id(name),
            &WorkerLeaseRenewal { given_up, ..renewal(name, Epoch(0), prepare) },
            now,
        )
        .unwrap();
}

/// Returns a cluster of `a` and `b`, and a change that brings `c`.
fn with_c_coming() -> MembershipController {
    let mut cluster = cluster_of(&["a", "b"]);
    cluster.register_worker(registration("c", "c"), seconds(2)).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    cluster
}

fn told(cluster: &mut MembershipController, name: &str, incarnation: &str) -> MembershipActivation {
    let granted = cluster
        .renew_lease(&id(name), &renewal(incarnation, Epoch(0), Epoch(0)), seconds(4))
        .unwrap();
    activation(granted)
}

#[test]
fn the_next_homes_hear_how_long_those_before_were_uncertain() {
    let mut cluster = with_c_coming();
    give_up(&mut cluster, "a", Epoch(101), 7000, seconds(3));
    give_up(&mut cluster, "b", Epoch(101), 9000, seconds(3));
    settle(&mut cluster, seconds(3));
    let activation = told(&mut cluster, "c", "c");
    assert_eq!((activation.handed_over, activation.uncertain_ms), (vec![id("a"), id("b")], 9000));
    assert!(!activation.restarted);
}

#[test]
fn a_home_that_never_answered_under_a_map_can_not_hand_it_over() {
    let mut cluster = with_c_coming();
    give_up(&mut cluster, "a", Epoch(100), 0, seconds(3));
    give_up(&mut cluster, "b", Epoch(101), 0, seconds(3));
    settle(&mut cluster, seconds(3));
    assert_eq!(told(&mut cluster, "c", "c").handed_over, [id("b")]);
}

#[test]
fn a_process_restarted_under_the_same_map_is_told_so() {
    let mut cluster = with_c_coming();
    give_up(&mut cluster, "a", Epoch(101), 0, seconds(3));
    give_up(&mut cluster, "b", Epoch(101), 0, seconds(3));
    settle(&mut cluster, seconds(3));
    assert!(!told(&mut cluster, "c", "c").restarted, "it came with this map");
    for _ in ["asks", "asks again, for the answer was lost"] {
        let granted = cluster.register_worker(registration("c", "c2"), seconds(4)).unwrap();
        assert!(activation(granted).restarted);
    }
    // It is the first process of the next map.
    cluster.register_worker(registration("d", "d"), seconds(4)).unwrap();
    settle(&mut cluster, seconds(4));
    settle(&mut cluster, seconds(5));
    give_up(&mut cluster, "a", Epoch(102), 0, seconds(5));
    give_up(&mut cluster, "b", Epoch(102), 0, seconds(5));
    cluster.renew_lease(&id("c"), &renewal("c2", Epoch(0), Epoch(103)), seconds(5)).unwrap();
    settle(&mut cluster, seconds(5));
    let granted =
        cluster.renew_lease(&id("c"), &renewal("c2", Epoch(0), Epoch(103)), seconds(5)).unwrap();
    assert!(!activation(granted).restarted);
}

#[test]
fn in_a_clusters_first_map_too() {
    let mut cluster = cluster_of(&["a"]);
    let granted = cluster.register_worker(registration("a", "a2"), seconds(2)).unwrap();
    assert!(activation(granted).restarted);
    // And a leader that does not know who was there before.
    let mut next =
        MembershipController::new(options(), cluster.cluster_document().clone(), seconds(50));
    let granted = next.register_worker(registration("a", "a2"), seconds(51)).unwrap();
    assert!(activation(granted).restarted);
}

#[test]
fn a_resuming_process_hears_of_its_predecessors_uncertainty() {
    let mut cluster = cluster_of(&["a"]);
    cluster.record_departure(&id("a"), leave("a", Some(Vec::new()), 5000)).unwrap();
    for _ in ["asks", "asks again, for the answer was lost"] {
        let activation =
            activation(cluster.register_worker(registration("a", "a2"), seconds(2)).unwrap());
        assert_eq!((activation.resumes, activation.uncertain_ms), (Some(Vec::new()), 5000));
    }
    // The second process ends before it has answered: the first one's report still holds.
    let none = RelinquishedEpoch::default();
    cluster
        .record_departure(
            &id("a"),
            WorkerDeparture { given_up: none, ..leave("a2", Some(Vec::new()), 0) },
        )
        .unwrap();
    let activation =
        activation(cluster.register_worker(registration("a", "a3"), seconds(3)).unwrap());
    assert_eq!((activation.resumes, activation.uncertain_ms), (Some(Vec::new()), 5000));
    // And that one is killed.
    let activation =
        super::activation(cluster.register_worker(registration("a", "a4"), seconds(3)).unwrap());
    assert_eq!((activation.resumes, activation.restarted), (None, true));
}

#[test]
fn what_was_said_when_leaving_one_map_is_not_said_of_the_next() {
    let mut cluster = with_c_coming();
    give_up(&mut cluster, "a", Epoch(101), 0, seconds(3));
    give_up(&mut cluster, "b", Epoch(101), 0, seconds(3));
    // The map that names it is being written when it leaves.
    let MembershipStep::Persist(document) = cluster.decide_step(seconds(3)) else {
        panic!("not ready")
    };
    cluster.record_departure(&id("b"), leave("b", Some(Vec::new()), 0)).unwrap();
    cluster.confirm_persisted(*document, seconds(3));
    assert_eq!(told(&mut cluster, "a", "a").handed_over, [id("a"), id("b")]);
    let activation =
        activation(cluster.register_worker(registration("b", "b2"), seconds(4)).unwrap());
    assert_eq!((activation.resumes, activation.restarted), (None, true));
}

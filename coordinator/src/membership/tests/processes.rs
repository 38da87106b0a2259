//! Which process an id and the map mean, where several come under one name.

use super::*;

/// Returns the registration of a process of worker a that says where it listens.
fn at_place(incarnation: &str, place: u64) -> WorkerRegistration {
    WorkerRegistration { place, ..registration("a", incarnation) }
}

#[test]
fn the_old_lease_of_a_dead_worker_that_moved_is_waited_for() {
    let mut cluster = cluster_of(&["a"]);
    cluster.forget_worker(&id("a")).unwrap();
    let moved = WorkerRegistration { address: "elsewhere:1".into(), ..registration("a", "a2") };
    cluster.register_worker(moved, seconds(5)).unwrap();
    settle(&mut cluster, seconds(5));
    assert_eq!(settle(&mut cluster, seconds(6)), seconds(11));
    assert_eq!(cluster.cluster_document().active.members[0].address, "a:9400");
    settle(&mut cluster, seconds(11));
    assert_eq!(cluster.cluster_document().active.members[0].address, "elsewhere:1");
}

/// Found by random histories: the process that the map names may only be cut off, and go on with
/// writes.
#[test]
fn a_process_that_moved_can_not_leave_for_the_one_before() {
    let mut cluster = cluster_of(&["a"]);
    let moved = WorkerRegistration { address: "elsewhere:1".into(), ..registration("a", "a2") };
    cluster.register_worker(moved, seconds(20)).unwrap();
    cluster.record_departure(&id("a"), leave("a2", Some(Vec::new()), 0)).unwrap();
    cluster.register_worker(registration("b", "b"), seconds(20)).unwrap();
    settle(&mut cluster, seconds(20));
    let until = settle(&mut cluster, seconds(21));
    assert_eq!((members(&cluster), until), (vec!["a"], seconds(11).saturating_add(OUTAGE)));
}

/// Found by random histories.
#[test]
fn who_left_and_came_back_elsewhere_has_not_left_the_next_map() {
    let mut cluster = cluster_of(&["a"]);
    cluster.record_departure(&id("a"), leave("a", Some(Vec::new()), 0)).unwrap();
    let moved = WorkerRegistration { address: "elsewhere:1".into(), ..registration("a", "a2") };
    cluster.register_worker(moved, seconds(2)).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    assert_eq!(cluster.cluster_document().active.members[0].address, "elsewhere:1");
    cluster
        .renew_lease(&id("a"), &renewal("a2", Epoch(0), Epoch(0)), seconds(3))
        .unwrap()
        .activation
        .unwrap();
    cluster.register_worker(registration("b", "b"), seconds(3)).unwrap();
    settle(&mut cluster, seconds(3));
    settle(&mut cluster, seconds(4));
    assert_eq!(members(&cluster), ["a"], "it answers, and has not prepared");
}

#[test]
fn the_last_worker_that_leaves_stays_in_the_map_and_resumes() {
    let mut cluster = cluster_of(&["a"]);
    cluster.record_departure(&id("a"), leave("a", Some(Vec::new()), 0)).unwrap();
    settle(&mut cluster, seconds(2));
    assert_eq!(members(&cluster), ["a"]);
    let granted = cluster.register_worker(registration("a", "a2"), seconds(3)).unwrap();
    let activation = activation(granted);
    assert_eq!((activation.membership.epoch, activation.resumes), (Epoch(101), Some(Vec::new())));
}

#[test]
fn an_id_is_one_workers_as_long_as_its_lease_lasts() {
    let mut cluster = cluster_of(&["a", "b"]);
    let moved = WorkerRegistration { address: "elsewhere:1".into(), ..registration("a", "other") };
    let refused = cluster.register_worker(moved.clone(), seconds(5)).unwrap_err();
    assert_eq!(
        refused,
        MembershipError::Taken { id: id("a"), address: "a:9400".into(), left_ms: 6000 }
    );
    cluster.register_worker(moved, seconds(12)).unwrap();
    // The same address is the same place: the process there was started again.
    cluster.register_worker(registration("b", "b2"), seconds(5)).unwrap();
    let old = cluster.renew_lease(&id("b"), &renewal("b", Epoch(101), Epoch(0)), seconds(6));
    assert_eq!(old.unwrap_err(), MembershipError::Superseded(id("b")));
}

#[test]
fn a_second_process_under_one_address_is_no_restart() {
    let mut cluster =
        MembershipController::new(options(), ClusterDocument::new(Epoch(100), 2), seconds(0));
    cluster.register_worker(at_place("a1", 7), seconds(0)).unwrap();
    cluster.register_worker(registration("b", "b1"), seconds(0)).unwrap();
    settle(&mut cluster, seconds(0));
    settle(&mut cluster, seconds(1));
    let epoch = cluster.cluster_document().active.epoch;
    cluster.renew_lease(&id("a"), &renewal("a1", epoch, Epoch(0)), seconds(2)).unwrap();
    // A name leads to both: the first answers from what it knows until its lease is over.
    let taken = cluster.register_worker(at_place("a2", 8), seconds(3));
    assert!(matches!(taken, Err(MembershipError::Taken { left_ms: 9000, .. })), "{taken:?}");
    assert!(
        cluster.register_worker(at_place("a2", 0), seconds(3)).is_err(),
        "it does not say where it is"
    );
    cluster.renew_lease(&id("a"), &renewal("a1", epoch, Epoch(0)), seconds(4)).unwrap();
    // Where the first was, there is only one.
    assert!(cluster.register_worker(at_place("a3", 7), seconds(5)).is_ok());
    assert!(matches!(
        cluster.register_worker(at_place("a1", 8), seconds(5)),
        Err(MembershipError::Taken { .. })
    ));

    // The next leader knows it, too, and lets the process continue that was there.
    settle(&mut cluster, seconds(6));
    let document = cluster.cluster_document().clone();
    let mut next = MembershipController::new(options(), document.clone(), seconds(7));
    assert!(matches!(
        next.register_worker(at_place("a4", 8), seconds(8)),
        Err(MembershipError::Taken { .. })
    ));
    assert!(next.register_worker(at_place("a3", 7), seconds(8)).is_ok());
    let mut later = MembershipController::new(options(), document, seconds(7));
    later.register_worker(registration("b", "b1"), seconds(16)).unwrap();
    let granted = later.register_worker(at_place("a4", 8), seconds(17));
    // Every lease of the first is over. It may take part in writes under this map nevertheless.
    assert_eq!(granted.unwrap().activation, None, "the map names the first");
    assert_eq!(
        later.relay_refusal(&id("a"), epoch, seconds(17)),
        Some(NoticeRelayOutcome::NoLease)
    );
    settle(&mut later, seconds(17));
    settle(&mut later, seconds(18));
    assert_eq!(later.cluster_document().places.get(&id("a")), Some(&7), "of the map in force");
    // Only b can give it up: the process elsewhere is not even asked, and can't leave for it.
    let renewed = later.renew_lease(&id("a"), &renewal("a4", Epoch(0), Epoch(0)), seconds(18));
    assert_eq!(renewed.unwrap().prepare, None);
    let next = Epoch(epoch.0 + 1);
    later.renew_lease(&id("b"), &renewal("b1", Epoch(0), next), seconds(18)).unwrap();
    settle(&mut later, seconds(18));
    assert_eq!((later.cluster_document().active.epoch, members(&later)), (next, vec!["a", "b"]));
    assert_eq!(later.cluster_document().places.get(&id("a")), Some(&8));
    let renewed = later.renew_lease(&id("a"), &renewal("a4", Epoch(0), Epoch(0)), seconds(18));
    let news = activation(renewed.unwrap());
    assert_eq!((news.restarted, news.resumes, news.handed_over), (false, None, vec![id("b")]));
}

#[test]
fn who_leaves_and_comes_back_at_another_place_resumes_nothing() {
    let mut cluster =
        MembershipController::new(options(), ClusterDocument::new(Epoch(100), 2), seconds(0));
    cluster.register_worker(at_place("a1", 7), seconds(0)).unwrap();
    settle(&mut cluster, seconds(0));
    settle(&mut cluster, seconds(1));
    cluster.record_departure(&id("a"), leave("a1", Some(Vec::new()), 0)).unwrap();
    let granted = cluster.register_worker(at_place("a2", 8), seconds(2)).unwrap();
    assert_eq!(granted.activation, None);
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    assert_eq!(epoch(&cluster), Epoch(102), "the one before has given up its map");
    let granted =
        cluster.renew_lease(&id("a"), &renewal("a2", Epoch(0), Epoch(0)), seconds(3)).unwrap();
    assert_eq!(activation(granted).handed_over, [id("a")]);
}

#[test]
fn a_place_is_durable_before_a_lease_is_granted_there() {
    // Nobody has said yet where it listens.
    let mut cluster = cluster_of(&["a", "b"]);
    cluster.register_worker(registration("c", "c"), seconds(2)).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    // A map is on its way, and waits for a.
    assert_eq!(
        cluster.register_worker(at_place("a2", 8), seconds(3)),
        Err(MembershipError::Changing)
    );
    settle(&mut cluster, seconds(3));
    assert_eq!(cluster.cluster_document().places, BTreeMap::from([(id("a"), 8)]));
    // In any order of arrival, the former process is waited for.
    assert!(matches!(
        cluster.register_worker(at_place("a3", 9), seconds(3)),
        Err(MembershipError::Taken { .. })
    ));
    assert!(cluster.register_worker(at_place("a2", 8), seconds(3)).unwrap().prepare.is_some());
    // Another leader knows where the lease is.
    let mut next =
        MembershipController::new(options(), cluster.cluster_document().clone(), seconds(4));
    assert!(matches!(
        next.register_worker(at_place("a3", 9), seconds(4)),
        Err(MembershipError::Taken { .. })
    ));
    assert!(next.register_worker(at_place("a2", 8), seconds(4)).is_ok());
}

/// Two processes come under one id while the first one's place is being written.
#[test]
fn a_durable_place_is_not_replaced_by_one_that_came_meanwhile() {
    let mut cluster = cluster_of(&["a", "b"]);
    let changing = Err(MembershipError::Changing);
    assert_eq!(cluster.register_worker(at_place("a2", 8), seconds(3)), changing);
    let MembershipStep::Persist(document) = cluster.decide_step(seconds(3)) else {
        panic!("the place is not persisted")
    };
    assert_eq!(cluster.register_worker(at_place("a3", 9), seconds(3)), changing);
    cluster.confirm_persisted(*document, seconds(3));
    settle(&mut cluster, seconds(3));
    assert_eq!(cluster.cluster_document().places, BTreeMap::from([(id("a"), 8)]));
    let third = cluster.register_worker(at_place("a3", 9), seconds(3));
    assert!(matches!(third, Err(MembershipError::Taken { .. })), "{third:?}");
}

//! When a next map is wanted, whom it waits for, and what its members hand over.

use super::*;

#[test]
fn joins_of_one_moment_are_one_change() {
    let cluster = cluster_of(&["a", "b", "c"]);
    assert_eq!(epoch(&cluster), Epoch(101));
}

#[test]
fn a_map_takes_force_once_all_members_gave_up_the_one_before() {
    let mut cluster = cluster_of(&["a", "b"]);
    cluster.register_worker(registration("c", "c"), seconds(2)).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    let granted =
        cluster.renew_lease(&id("a"), &renewal("a", Epoch(101), Epoch(0)), seconds(3)).unwrap();
    assert_eq!((granted.prepare, granted.activation), (Some(Epoch(102)), None));
    cluster.renew_lease(&id("a"), &renewal("a", Epoch(0), Epoch(102)), seconds(3)).unwrap();
    settle(&mut cluster, seconds(3));
    assert_eq!(members(&cluster), ["a", "b"], "b has not prepared");
    cluster.renew_lease(&id("b"), &renewal("b", Epoch(0), Epoch(102)), seconds(3)).unwrap();
    settle(&mut cluster, seconds(3));
    assert_eq!(members(&cluster), ["a", "b", "c"]);
    let granted =
        cluster.renew_lease(&id("a"), &renewal("a", Epoch(0), Epoch(102)), seconds(3)).unwrap();
    let activation = activation(granted);
    assert_eq!(activation.handed_over, [id("a"), id("b")]);
    assert_eq!(activation.former.members.len(), 2);
}

#[test]
fn a_silent_worker_is_left_out_once_its_lease_is_over() {
    let mut cluster = cluster_of(&["a", "b"]);
    for second in 2..=12 {
        let prepared = cluster
            .renew_lease(&id("a"), &renewal("a", Epoch(101), Epoch(0)), seconds(second))
            .unwrap()
            .prepare;
        if let Some(epoch) = prepared {
            cluster.renew_lease(&id("a"), &renewal("a", Epoch(0), epoch), seconds(second)).unwrap();
        }
        settle(&mut cluster, seconds(second));
        assert_eq!(members(&cluster).len(), 2, "at {second}");
    }
    // Its lease ended at 11; the change was gathered from then on, and a has prepared since.
    let prepare = cluster
        .renew_lease(&id("a"), &renewal("a", Epoch(101), Epoch(0)), seconds(13))
        .unwrap()
        .prepare;
    cluster
        .renew_lease(&id("a"), &renewal("a", Epoch(0), prepare.unwrap_or(Epoch(0))), seconds(13))
        .unwrap();
    settle(&mut cluster, seconds(13));
    assert_eq!(members(&cluster), ["a"]);
}

#[test]
fn if_no_member_gave_up_its_map_the_outage_time_is_awaited() {
    let mut cluster = cluster_of(&["a"]);
    cluster.register_worker(registration("b", "b"), seconds(20)).unwrap();
    settle(&mut cluster, seconds(20));
    let until = settle(&mut cluster, seconds(21));
    assert_eq!(members(&cluster), ["a"]);
    assert_eq!(until, seconds(11).saturating_add(OUTAGE));
    // A person knows better.
    cluster.forget_worker(&id("a")).unwrap();
    settle(&mut cluster, seconds(21));
    assert_eq!(members(&cluster), ["b"]);
}

#[test]
fn who_leaves_in_order_is_not_waited_for() {
    let mut cluster = cluster_of(&["a"]);
    cluster.register_worker(registration("b", "b"), seconds(2)).unwrap();
    let writes =
        vec![OpenWriteReport { hash: 1, gateway: 2, sequence: 3, remaining_ms: 4, tenant: 5 }];
    cluster.record_departure(&id("a"), leave("a", Some(writes.clone()), 0)).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    assert_eq!(members(&cluster), ["b"]);
    let granted =
        cluster.renew_lease(&id("b"), &renewal("b", Epoch(0), Epoch(0)), seconds(3)).unwrap();
    let activation = activation(granted);
    assert_eq!((activation.handed_over, activation.open_writes), (vec![id("a")], writes));
}

/// A map with all of them was once longer than members read. Everything then stood still until
/// somebody joined or left.
#[test]
fn members_with_few_open_writes_have_theirs_passed_on_first() {
    let names: Vec<String> = (0..25).map(|n| format!("w{n}")).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    let mut cluster = cluster_of(&names);
    cluster.register_worker(registration("new", "new"), seconds(2)).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    for name in names {
        let open = if name == "w24" { 1 } else { OPEN_WRITES_MAX };
        let open_writes = Some(vec![
            OpenWriteReport {
                hash: 1,
                gateway: 2,
                sequence: 3,
                remaining_ms: 4,
                tenant: 5
            };
            open
        ]);
        let asked = WorkerLeaseRenewal { open_writes, ..renewal(name, Epoch(0), Epoch(102)) };
        cluster.renew_lease(&id(name), &asked, seconds(3)).unwrap();
    }
    settle(&mut cluster, seconds(3));
    let granted =
        cluster.renew_lease(&id("new"), &renewal("new", Epoch(0), Epoch(0)), seconds(3)).unwrap();
    let activation = activation(granted);
    // The others are silent: their slots are asked at the UFS for a while.
    assert_eq!((activation.open_writes.len(), activation.handed_over.len()), (19_001, 20));
    assert!(activation.handed_over.contains(&id("w24")));
}

#[test]
fn a_new_leader_grants_nothing_to_strangers_and_awaits_members() {
    let document = cluster_of(&["a", "b"]).cluster_document().clone();
    let mut cluster = MembershipController::new(options(), document, seconds(50));
    let unknown = cluster.renew_lease(&id("a"), &renewal("a", Epoch(101), Epoch(0)), seconds(51));
    assert_eq!(unknown.unwrap_err(), MembershipError::Unknown(id("a")));
    cluster.register_worker(registration("a", "a"), seconds(51)).unwrap();
    settle(&mut cluster, seconds(59));
    assert_eq!(epoch(&cluster), Epoch(101));
    assert_eq!(
        cluster
            .renew_lease(&id("a"), &renewal("a", Epoch(101), Epoch(0)), seconds(59))
            .unwrap()
            .activation,
        None
    );
}

#[test]
fn drained_workers_stay_members_and_own_nothing() {
    let mut cluster = cluster_of(&["a", "b"]);
    cluster.set_draining(&id("a"), true).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    for name in ["a", "b"] {
        cluster.renew_lease(&id(name), &renewal(name, Epoch(0), Epoch(102)), seconds(3)).unwrap();
    }
    settle(&mut cluster, seconds(3));
    assert!(cluster.cluster_document().active.get(&id("a")).unwrap().draining);
    cluster.set_draining(&id("b"), true).unwrap();
    settle(&mut cluster, seconds(4));
    settle(&mut cluster, seconds(6));
    assert_eq!(epoch(&cluster), Epoch(102), "a map that nobody owns is no map");
}

#[test]
fn leases_that_end_one_by_one_during_a_change_are_one_change() {
    let mut cluster = cluster_of(&["a", "b", "c", "d"]);
    // c and d die at one moment, having renewed a second apart.
    cluster.renew_lease(&id("d"), &renewal("d", Epoch(101), Epoch(0)), seconds(2)).unwrap();
    let mut maps = 0;
    for quarter in 8..=60 {
        let now = LeaseInstant::default().saturating_add(Duration::from_millis(quarter * 250));
        for name in ["a", "b"] {
            renew_and_prepare(&mut cluster, name, now);
        }
        let before = epoch(&cluster);
        settle(&mut cluster, now);
        maps += usize::from(epoch(&cluster) != before);
    }
    assert_eq!((members(&cluster), maps), (vec!["a", "b"], 1));
}

//! The store was emptied, or an older copy of it put back, while processes went on.

use verbs3_coordinator_client::api::HandedOver;

use super::*;

/// Ends every lease that a leader before one elected at second 100 may have granted.
const LOST_LEASES_END: u64 = 112;

/// Elects a leader that finds this document, as the leader's loop does.
fn elect_with(document: ClusterDocument, floor: u64) -> MembershipController {
    let found = document.highest;
    let document = document.begin_term(Epoch(floor));
    let mut cluster = MembershipController::new(options(), document, seconds(100));
    cluster.expect_lost_maps(found);
    cluster
}

/// Adds a worker to a cluster whose members all live and do as they are told.
fn join(cluster: &mut MembershipController, name: &str, at: u64) {
    cluster.register_worker(registration(name, name), seconds(at)).unwrap();
    settle(cluster, seconds(at));
    settle(cluster, seconds(at + 1));
    let names: Vec<String> = members(cluster).into_iter().map(str::to_owned).collect();
    names.iter().for_each(|name| renew_and_prepare(cluster, name, seconds(at + 1)));
    settle(cluster, seconds(at + 1));
    assert!(members(cluster).contains(&name));
}

/// Returns the document of a cluster of a and b, and the map that follows when c and d have joined.
fn copy_and_later_map() -> (ClusterDocument, MemberRoster) {
    let mut cluster = cluster_of(&["a", "b"]);
    let copy = cluster.cluster_document().clone();
    join(&mut cluster, "c", 2);
    join(&mut cluster, "d", 4);
    let later = cluster.cluster_document().active.clone();
    assert_eq!((copy.active.epoch, later.epoch), (Epoch(101), Epoch(103)));
    (copy, later)
}

/// Elects a leader to which a and b come back, who know no map, and e, who is new.
fn elect_beside_newcomer(document: ClusterDocument, floor: u64) -> MembershipController {
    let mut cluster = elect_with(document, floor);
    for name in ["a", "b", "e"] {
        cluster.register_worker(registration(name, name), seconds(100)).unwrap();
    }
    cluster
}

/// One map comes once d has shown the lost map 103. It is above that one, and not next to it.
fn assert_replaced(cluster: &mut MembershipController) {
    let workers = [("a", 0), ("b", 0), ("e", 0), ("d", 103)];
    let maps = run_until(cluster, &workers, LOST_LEASES_END);
    assert_eq!((maps.len(), maps[1].epoch), (2, Epoch(105)));
}

fn register_knowing(cluster: &mut MembershipController, name: &str, knows: u64, at: u64) {
    let asked = WorkerRegistration { knows: Epoch(knows), ..registration(name, name) };
    let granted = cluster.register_worker(asked, seconds(at)).unwrap();
    assert_eq!(granted.activation, None, "{name} is sent back to an old map");
}

/// Renews as a worker does that has given everything up that it is asked to.
fn renew_knowing(cluster: &mut MembershipController, name: &str, knows: u64, at: u64) {
    let given_up = RelinquishedEpoch { epoch: Epoch(knows), uncertain_ms: 0 };
    let asked =
        WorkerLeaseRenewal { knows: Epoch(knows), given_up, ..renewal(name, Epoch(0), Epoch(0)) };
    let prepare = cluster.renew_lease(&id(name), &asked, seconds(at)).unwrap().prepare;
    let (prepared, open_writes) = (prepare.unwrap_or_default(), Some(Vec::new()));
    let asked = WorkerLeaseRenewal { prepared, open_writes, ..asked };
    cluster.renew_lease(&id(name), &asked, seconds(at)).unwrap();
}

/// Has these workers do as they are told until `until`. Returns every map that came into force.
fn run_until(
    cluster: &mut MembershipController,
    workers: &[(&str, u64)],
    until: u64,
) -> Vec<MemberRoster> {
    let mut maps = vec![cluster.cluster_document().active.clone()];
    for at in 100..=until {
        for (name, knows) in workers {
            renew_knowing(cluster, name, *knows, at);
        }
        settle(cluster, seconds(at));
        let now = cluster.cluster_document().active.clone();
        if maps.last() != Some(&now) {
            maps.push(now);
        }
    }
    maps
}

#[test]
fn an_epoch_of_a_lost_map_is_never_given_to_another_one() {
    let (copy, later) = copy_and_later_map();
    // By a clock that goes right, and by one that went back.
    for floor in [1_000_000, 0] {
        let mut cluster = elect_with(copy.clone(), floor);
        for name in ["a", "b", "e"] {
            register_knowing(&mut cluster, name, if name == "e" { 0 } else { 103 }, 100);
        }
        assert_eq!(cluster.take_lost_map(), Some(Epoch(103)));
        let workers = [("a", 103), ("b", 103), ("e", 0)];
        let maps = run_until(&mut cluster, &workers, LOST_LEASES_END);
        assert_eq!((maps.len(), &maps[0]), (2, &copy.active));
        assert!(maps[1].epoch > later.epoch && maps[1].epoch.0 > floor, "{:?}", maps[1].epoch);
        assert_eq!(members(&cluster), ["a", "b", "e"]);
        assert_eq!(cluster.take_lost_map(), None);
        // Everybody takes the new map, and all is as ever.
        let asked = WorkerLeaseRenewal { knows: later.epoch, ..renewal("a", Epoch(0), Epoch(0)) };
        let granted = cluster.renew_lease(&id("a"), &asked, seconds(LOST_LEASES_END)).unwrap();
        let told = granted.activation.unwrap().resolve_activation(Some(&later)).unwrap();
        assert_eq!((told.membership.epoch, granted.active), (maps[1].epoch, maps[1].epoch));
        join(&mut cluster, "f", LOST_LEASES_END);
    }
}

#[test]
fn epochs_go_on_from_the_time_though_nobody_shows_a_lost_map() {
    let (copy, _) = copy_and_later_map();
    let mut cluster = elect_beside_newcomer(copy, 5000);
    let maps = run_until(&mut cluster, &[("a", 0), ("b", 0), ("e", 0)], 102);
    assert_eq!(maps.last().unwrap().epoch, Epoch(5001));
    assert_eq!(cluster.take_lost_map(), None);
}

/// A worker that was cut off answered under the found map last. It has missed other homes.
#[test]
fn a_member_that_missed_lost_maps_keeps_and_hands_over_nothing() {
    let (copy, _) = copy_and_later_map();
    let mut cluster = elect_with(copy, 1000);
    let stuck = WorkerRegistration { knows: Epoch(101), ..registration("a", "a") };
    let granted = cluster.register_worker(stuck, seconds(100)).unwrap();
    assert_eq!(granted.active, Epoch(101));
    register_knowing(&mut cluster, "c", 103, 100);
    // It stops at once, not when the next map is ready.
    let asked = WorkerLeaseRenewal { knows: Epoch(101), ..renewal("a", Epoch(101), Epoch(0)) };
    assert_eq!(cluster.renew_lease(&id("a"), &asked, seconds(100)).unwrap().active, Epoch(0));
    run_until(&mut cluster, &[("a", 101), ("c", 103)], LOST_LEASES_END);
    for (name, knows) in [("a", 101), ("c", 103)] {
        let asked = WorkerLeaseRenewal { knows: Epoch(knows), ..renewal(name, Epoch(0), Epoch(0)) };
        let granted = cluster.renew_lease(&id(name), &asked, seconds(LOST_LEASES_END)).unwrap();
        let news = granted.activation.unwrap();
        assert_eq!(news.handed_over, HandedOver::Only(Vec::new()));
        assert!(news.restarted && news.resumes.is_none());
        let told = news.resolve_activation(Some(&cluster.document.active)).unwrap();
        assert!(told.former.epoch > Epoch(103), "{:?}", told.former.epoch);
        assert_eq!(told.former.members.len(), 2, "blocks are still asked of former owners");
    }
}

#[test]
fn leases_of_lost_maps_end_before_another_map_comes() {
    let (copy, _) = copy_and_later_map();
    for found in [copy, ClusterDocument::new(Epoch(0), 2)] {
        let mut cluster = elect_with(found.clone(), 1000);
        register_knowing(&mut cluster, "c", 103, 100);
        run_until(&mut cluster, &[("c", 103)], LOST_LEASES_END - 1);
        assert_eq!(epoch(&cluster), found.active.epoch);
        let slots = BTreeMap::new();
        let view =
            cluster.build_cluster_view("tests", "here", &slots, seconds(LOST_LEASES_END - 1));
        assert!(view.findings.iter().any(|finding| finding.contains("epoch 103")), "{view:?}");
        run_until(&mut cluster, &[("c", 103)], LOST_LEASES_END);
        assert_eq!(members(&cluster), ["c"], "the members found have left long ago");
    }
}

#[test]
fn silent_members_of_a_lost_map_may_write_for_an_outage() {
    let mut cluster = elect_with(ClusterDocument::new(Epoch(0), 2), 1000);
    register_knowing(&mut cluster, "c", 103, 100);
    // It is silent from then on. Another one knows nothing of that time.
    cluster.register_worker(registration("e", "e"), seconds(LOST_LEASES_END)).unwrap();
    settle(&mut cluster, seconds(LOST_LEASES_END));
    let until = settle(&mut cluster, seconds(LOST_LEASES_END + 1));
    assert_eq!(until, seconds(LOST_LEASES_END).saturating_add(OUTAGE));
    let end = LOST_LEASES_END + OUTAGE.as_secs();
    cluster.register_worker(registration("e", "e"), seconds(end)).unwrap();
    settle(&mut cluster, seconds(end));
    assert_eq!(members(&cluster), ["e"]);
}

#[test]
fn another_leader_over_an_intact_store_finds_nothing_lost() {
    let mut before = cluster_of(&["a", "b"]);
    before.register_worker(registration("c", "c"), seconds(2)).unwrap();
    settle(&mut before, seconds(2));
    settle(&mut before, seconds(3));
    // One has prepared for a map that the next leader does not bring.
    renew_and_prepare(&mut before, "a", seconds(3));
    let mut next = elect_with(before.cluster_document().clone(), 1000);
    next.hear_follower(Epoch(101));
    for (name, active, prepared) in [("a", 0, 102), ("b", 101, 0)] {
        let asked = WorkerRegistration { knows: Epoch(101), ..registration(name, name) };
        let granted = next.register_worker(asked, seconds(100)).unwrap();
        assert_eq!(granted.active, Epoch(101));
        let news = granted.activation.unwrap();
        assert!(news.resolve_activation(Some(&before.document.active)).is_some());
        let asked = WorkerLeaseRenewal {
            knows: Epoch(101),
            ..renewal(name, Epoch(active), Epoch(prepared))
        };
        next.renew_lease(&id(name), &asked, seconds(100)).unwrap();
    }
    assert_eq!(next.take_lost_map(), None);
    settle(&mut next, seconds(101));
    assert_eq!((epoch(&next), next.change.is_some()), (Epoch(101), false), "no lease was touched");
    join(&mut next, "c", 101);
    assert_eq!(next.document.former.epoch, Epoch(101));
}

#[test]
fn a_lost_map_that_is_shown_while_another_comes_is_above_it_too() {
    let (copy, _) = copy_and_later_map();
    let mut cluster = elect_beside_newcomer(copy, 0);
    settle(&mut cluster, seconds(100));
    // This one gets epoch 102, which was another map's.
    settle(&mut cluster, seconds(101));
    assert!(cluster.change.is_some());
    register_knowing(&mut cluster, "d", 103, 101);
    assert_replaced(&mut cluster);
}

/// The leader's write of the epoch is under way when it hears of the lost map.
#[test]
fn a_lost_map_shown_while_an_epoch_is_written_is_above_it_too() {
    let (copy, _) = copy_and_later_map();
    let mut cluster = elect_beside_newcomer(copy, 0);
    settle(&mut cluster, seconds(100));
    let MembershipStep::Persist(written) = cluster.decide_step(seconds(101)) else {
        panic!("no epoch is taken")
    };
    assert_eq!(written.highest, Epoch(102));
    register_knowing(&mut cluster, "d", 103, 101);
    cluster.confirm_persisted(*written, seconds(101));
    assert!(cluster.change.is_none());
    assert_replaced(&mut cluster);
}

/// The first map was ready before anybody showed the lost one, whose epoch is below.
#[test]
fn a_lost_map_that_is_shown_late_ends_what_was_known_before_it() {
    let (copy, _) = copy_and_later_map();
    let mut cluster = elect_beside_newcomer(copy, 1000);
    run_until(&mut cluster, &[("a", 0), ("b", 0), ("e", 0)], 102);
    assert_eq!(epoch(&cluster), Epoch(1001));
    register_knowing(&mut cluster, "d", 103, 102);
    assert_eq!(cluster.take_lost_map(), Some(Epoch(103)));
    let workers = [("a", 1001), ("b", 1001), ("e", 1001), ("d", 103)];
    let maps = run_until(&mut cluster, &workers, LOST_LEASES_END);
    assert_eq!((maps.len(), maps[1].epoch), (2, Epoch(1003)));
    assert_eq!(cluster.document.former.epoch, Epoch(1002));
    assert!(cluster.handed_over.is_empty());
}

#[test]
fn a_gateway_shows_a_lost_map_once_and_a_static_one_never() {
    let mut cluster = elect_with(cluster_of(&["a"]).cluster_document().clone(), 1000);
    cluster.register_worker(registration("a", "a"), seconds(100)).unwrap();
    assert!(!cluster.hear_follower(Epoch(u64::MAX)), "an epoch of a static list");
    assert!(!cluster.hear_follower(Epoch(101)), "the map in force");
    assert!(cluster.hear_follower(Epoch(2000)));
    assert!(cluster.hear_follower(Epoch(2010)), "one map replaces both");
    // Whoever answers under the lost map may be cut off, together with others.
    let end = LOST_LEASES_END + OUTAGE.as_secs();
    run_until(&mut cluster, &[("a", 0)], end - 1);
    assert_eq!(epoch(&cluster), Epoch(101));
    run_until(&mut cluster, &[("a", 0)], end);
    assert_eq!(epoch(&cluster), Epoch(2012));
    assert!(!cluster.hear_follower(Epoch(3000)));
    let static_map = WorkerRegistration { knows: Epoch(1 << 63), ..registration("z", "z") };
    let refused = cluster.register_worker(static_map, seconds(100)).unwrap_err();
    assert!(refused.to_string().contains("start it again"), "{refused}");
}

#[test]
fn an_epoch_that_no_clock_could_have_given_is_not_believed() {
    let mut cluster = elect_with(cluster_of(&["a"]).cluster_document().clone(), 1000);
    assert!(!cluster.hear_follower(Epoch(1 << 62)));
    let odd = WorkerRegistration { knows: Epoch(1 << 40), ..registration("z", "z") };
    cluster.register_worker(odd, seconds(100)).unwrap();
    assert_eq!(cluster.take_lost_map(), None);
    // What is believed leaves epochs enough, and its workers are taken by every later leader.
    let ahead = WorkerRegistration { knows: Epoch(1000 + (1 << 29)), ..registration("y", "y") };
    cluster.register_worker(ahead, seconds(100)).unwrap();
    assert_eq!(cluster.take_lost_map(), Some(Epoch(1000 + (1 << 29))));
}

/// Each delays the next map.
#[test]
fn the_delay_by_a_worker_that_shows_newer_maps_is_bounded() {
    let mut cluster = elect_with(cluster_of(&["a"]).cluster_document().clone(), 1000);
    cluster.register_worker(registration("a", "a"), seconds(100)).unwrap();
    cluster.register_worker(registration("b", "b"), seconds(100)).unwrap();
    let end = LOST_LEASES_END + OUTAGE.as_secs();
    for at in 100..=end {
        let asked = WorkerLeaseRenewal {
            knows: Epoch(2000 + at),
            ..renewal("b", Epoch(2000 + at), Epoch(0))
        };
        cluster.renew_lease(&id("b"), &asked, seconds(at)).unwrap();
        renew_knowing(&mut cluster, "a", 101, at);
        settle(&mut cluster, seconds(at));
    }
    assert!(epoch(&cluster).0 > 2000, "no map has come");
}

/// It had prepared for another change before anybody showed the lost map.
#[test]
fn who_gave_up_another_map_has_not_given_up_the_lost_one() {
    let (copy, _) = copy_and_later_map();
    let mut cluster = elect_beside_newcomer(copy, 1000);
    run_until(&mut cluster, &[("a", 0), ("b", 0), ("e", 0)], 102);
    assert_eq!(epoch(&cluster), Epoch(1001));
    renew_knowing(&mut cluster, "a", 1001, 103);
    let silent = WorkerRegistration { knows: Epoch(103), ..registration("d", "d") };
    cluster.register_worker(silent, seconds(103)).unwrap();
    run_until(&mut cluster, &[("a", 1001), ("b", 1001), ("e", 1001)], LOST_LEASES_END + 2);
    assert_eq!(epoch(&cluster), Epoch(1001), "the members of 103 may take writes");
}

#[test]
fn the_next_leader_replaces_a_lost_map_that_nobody_shows_again() {
    let (copy, _) = copy_and_later_map();
    let mut cluster = elect_beside_newcomer(copy, 0);
    register_knowing(&mut cluster, "d", 103, 100);
    settle(&mut cluster, seconds(100));
    assert_eq!(cluster.cluster_document().lost.map(|lost| lost.epoch), Some(Epoch(103)));

    // It ends before its map is in force, and d with it.
    let document = cluster.cluster_document().clone();
    let stored: ClusterDocument =
        serde_json::from_slice(&serde_json::to_vec(&document).unwrap()).unwrap();
    let mut cluster = elect_beside_newcomer(stored, 0);
    let workers = [("a", 0), ("b", 0), ("e", 0)];
    // Members of the lost map may all be cut off.
    let until = LOST_LEASES_END + options().settings.outage.0.as_secs();
    assert_eq!(run_until(&mut cluster, &workers, until - 1).len(), 1);
    for (name, knows) in workers {
        renew_knowing(&mut cluster, name, knows, until);
    }
    settle(&mut cluster, seconds(until));
    let document = cluster.cluster_document();
    assert!(document.active.epoch > Epoch(104), "{:?}", document.active.epoch);
    assert_eq!(document.lost, None, "it is replaced");
    let follower = elect_with(document.clone(), 0);
    assert_eq!(follower.lost_map_in_use(), None);
}

/// The next leader finds a map that is newer than the lost one, and still knows it for a lost one.
#[test]
fn the_next_leader_hears_that_a_stored_loss_was_given_up() {
    let (copy, _) = copy_and_later_map();
    let mut cluster = elect_beside_newcomer(copy, 1000);
    let workers = [("a", 0), ("b", 0), ("e", 0)];
    let maps = run_until(&mut cluster, &workers, 102);
    assert_eq!(maps.last().unwrap().epoch, Epoch(1001));
    register_knowing(&mut cluster, "d", 103, 103);
    settle(&mut cluster, seconds(103));
    assert_eq!(cluster.cluster_document().lost.map(|lost| lost.epoch), Some(Epoch(103)));

    let mut cluster = elect_beside_newcomer(cluster.cluster_document().clone(), 2000);
    register_knowing(&mut cluster, "d", 103, 100);
    let workers = [("a", 0), ("b", 0), ("e", 0), ("d", 103)];
    let maps = run_until(&mut cluster, &workers, LOST_LEASES_END);
    assert!(maps.last().unwrap().epoch > Epoch(1001), "it waits for the outage");
    assert_eq!(cluster.cluster_document().lost, None);
}

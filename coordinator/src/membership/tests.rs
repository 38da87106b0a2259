//! Cases written by hand; `chaos` holds what random histories find.
#![allow(clippy::unwrap_used)]

mod chaos;
mod moving;
mod uncertain;

use verbs3_coordinator_client::api::{MembershipActivation, OPEN_WRITES_MAX, WorkerState};
use verbs3_protocol::NoticeRelayOutcome;
use verbs3_settings::TimePeriod;

use super::*;

const LEASE: Duration = Duration::from_secs(10);
const OUTAGE: Duration = Duration::from_secs(600);
const GATHER: Duration = Duration::from_millis(500);

fn shown_rails(cluster: &MembershipController, name: &str) -> Vec<String> {
    let view = cluster.build_cluster_view("tests", "here", &BTreeMap::new(), seconds(1));
    view.workers.into_iter().find(|worker| worker.id == id(name)).unwrap().rails
}

#[test]
fn rails_are_shown_as_they_come_and_go() {
    let mut cluster =
        MembershipController::new(options(), ClusterDocument::new(Epoch(100), 2), seconds(0));
    let (up, down) = ("10.0.0.7:9403".to_owned(), String::new());
    let rails = vec![up.clone(), down.clone()];
    cluster
        .register_worker(
            WorkerRegistration { rails: rails.clone(), ..registration("a", "a1") },
            seconds(1),
        )
        .unwrap();
    assert_eq!(shown_rails(&cluster, "a"), rails);
    // A renewal without rails keeps the previous ones.
    let mut renew = |rails: Option<Vec<String>>| {
        let asked = WorkerLeaseRenewal { rails, ..renewal("a1", Epoch(0), Epoch(0)) };
        cluster.renew_lease(&id("a"), &asked, seconds(1)).unwrap();
        shown_rails(&cluster, "a")
    };
    assert_eq!(renew(None), rails);
    assert_eq!(renew(Some(vec![down.clone(), up.clone()])), [down.clone(), up.clone()]);
    // A list that is too long is ignored, and does not cost the lease.
    assert_eq!(renew(Some(vec![up.clone(); RAILS_MAX + 1])), [down, up.clone()]);
    let many = WorkerRegistration { rails: vec![up; RAILS_MAX + 1], ..registration("b", "b1") };
    assert!(matches!(
        cluster.register_worker(many, seconds(1)),
        Err(MembershipError::Malformed { .. })
    ));
}

fn options() -> ClusterOptions {
    options_moving_for(Duration::ZERO)
}

fn options_moving_for(move_for: Duration) -> ClusterOptions {
    let settings = CoordinatorSettings {
        lease: TimePeriod(LEASE),
        outage: TimePeriod(OUTAGE),
        gather: TimePeriod(GATHER),
        move_for: TimePeriod(move_for),
        workers_max: 100,
        ..CoordinatorSettings::default()
    };
    ClusterOptions { settings, replicas: 2 }
}

fn seconds(seconds: u64) -> LeaseInstant {
    LeaseInstant::default().saturating_add(Duration::from_secs(seconds))
}

fn registration(id: &str, incarnation: &str) -> WorkerRegistration {
    WorkerRegistration {
        id: WorkerId(id.into()),
        incarnation: WorkerIncarnation(incarnation.into()),
        address: format!("{id}:9400"),
        weight: 1.0,
        zone: String::new(),
        tiers: Vec::new(),
        rails: Vec::new(),
        knows: Epoch(0),
        place: 0,
    }
}

fn renewal(incarnation: &str, active: Epoch, prepared: Epoch) -> WorkerLeaseRenewal {
    let open_writes = (prepared.0 > 0).then(Vec::new);
    let given_up =
        RelinquishedEpoch { epoch: Epoch(prepared.0.saturating_sub(1)), uncertain_ms: 0 };
    WorkerLeaseRenewal {
        incarnation: WorkerIncarnation(incarnation.into()),
        active,
        prepared,
        open_writes,
        wait_ms: 0,
        knows: Epoch(0),
        handing_over: None,
        heard: Vec::new(),
        hot: None,
        given_up,
        rails: None,
    }
}

/// Ends a worker in order; it has answered under epoch 101.
fn leave(
    incarnation: &str,
    open_writes: Option<Vec<OpenWriteReport>>,
    uncertain_ms: u64,
) -> WorkerDeparture {
    let given_up = RelinquishedEpoch { epoch: Epoch(101), uncertain_ms };
    WorkerDeparture { incarnation: WorkerIncarnation(incarnation.into()), open_writes, given_up }
}

/// Returns the activation for a worker that knew no map.
fn activation(granted: WorkerLeaseGrant) -> MembershipActivation {
    granted.activation.unwrap().resolve_activation(None).unwrap()
}

fn id(id: &str) -> WorkerId {
    WorkerId(id.into())
}

/// Does what is due at `now`. Returns the moment of the next step.
fn settle(cluster: &mut MembershipController, now: LeaseInstant) -> LeaseInstant {
    loop {
        match cluster.decide_step(now) {
            MembershipStep::Wait(until) => return until,
            MembershipStep::Persist(document) => cluster.confirm_persisted(*document, now),
        }
    }
}

fn members(cluster: &MembershipController) -> Vec<&str> {
    cluster.cluster_document().active.members.iter().map(|member| member.id.0.as_str()).collect()
}

/// Returns a cluster at second 1 whose map holds these workers. Each is its own incarnation.
fn cluster_of(ids: &[&str]) -> MembershipController {
    let mut cluster =
        MembershipController::new(options(), ClusterDocument::new(Epoch(100), 2), seconds(0));
    for id in ids {
        cluster.register_worker(registration(id, id), seconds(0)).unwrap();
    }
    settle(&mut cluster, seconds(0));
    settle(&mut cluster, seconds(1));
    assert_eq!(members(&cluster), ids);
    for name in ids {
        let granted =
            cluster.renew_lease(&id(name), &renewal(name, Epoch(0), Epoch(0)), seconds(1)).unwrap();
        assert_eq!(activation(granted).membership, cluster.cluster_document().active);
    }
    cluster
}

fn epoch(cluster: &MembershipController) -> Epoch {
    cluster.cluster_document().active.epoch
}

#[test]
fn joins_of_one_moment_are_one_change() {
    let cluster = cluster_of(&["a", "b", "c"]);
    assert_eq!(epoch(&cluster), Epoch(101));
}

#[test]
fn a_map_comes_into_force_when_all_members_have_given_up_the_one_before() {
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
fn a_silent_worker_is_waited_for_until_its_lease_is_over_and_then_left_out() {
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
fn without_any_member_that_gave_up_the_outage_time_is_waited_for() {
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
fn who_is_declared_dead_and_comes_up_elsewhere_has_its_old_lease_waited_for() {
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
fn of_too_many_open_writes_those_of_the_members_with_few_are_told() {
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

/// Found by random histories: the process that the map names may only be cut off, and go on with
/// writes.
#[test]
fn a_process_that_came_up_elsewhere_can_not_leave_for_the_one_before() {
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
fn a_new_leader_grants_to_nobody_it_does_not_know_and_waits_for_those_that_it_does() {
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

fn states(cluster: &MembershipController, now: LeaseInstant) -> Vec<(String, WorkerState)> {
    let view = cluster.build_cluster_view("tests", "here", &BTreeMap::new(), now);
    view.workers.into_iter().map(|worker| (worker.id.0, worker.state)).collect()
}

/// Lets b die: from second 12 on the map is without it.
fn without_b() -> MembershipController {
    let mut cluster = cluster_of(&["a", "b"]);
    for second in 2..=13 {
        let active = epoch(&cluster);
        let prepare = cluster
            .renew_lease(&id("a"), &renewal("a", active, Epoch(0)), seconds(second))
            .unwrap()
            .prepare;
        if let Some(epoch) = prepare {
            cluster.renew_lease(&id("a"), &renewal("a", Epoch(0), epoch), seconds(second)).unwrap();
        }
        settle(&mut cluster, seconds(second));
    }
    assert_eq!(members(&cluster), ["a"]);
    cluster
}

#[test]
fn a_worker_that_went_without_a_word_is_missed_until_it_is_back_or_forgotten() {
    let mut cluster = without_b();
    let missed = [("a".to_owned(), WorkerState::Serving), ("b".to_owned(), WorkerState::Missing)];
    assert_eq!(states(&cluster, seconds(13)), missed);
    let findings =
        cluster.build_cluster_view("tests", "here", &BTreeMap::new(), seconds(13)).findings;
    assert!(
        findings.iter().any(|finding| finding.contains("verbs3 worker forget b")),
        "{findings:?}"
    );
    // Another leader misses it as well.
    let document = ClusterDocument { term: 2, ..cluster.cluster_document().clone() };
    let mut next = MembershipController::new(options(), document, seconds(14));
    assert_eq!(states(&next, seconds(14))[1], missed[1]);
    next.forget_worker(&id("b")).unwrap();
    settle(&mut next, seconds(14));
    assert_eq!(
        (next.cluster_document().missing.len(), next.forget_worker(&id("b"))),
        (0, Err(MembershipError::Unknown(id("b"))))
    );

    cluster.register_worker(registration("b", "b2"), seconds(14)).unwrap();
    assert_eq!(states(&cluster, seconds(14))[1], ("b".to_owned(), WorkerState::Joining));
    settle(&mut cluster, seconds(14));
    settle(&mut cluster, seconds(15));
    let prepare = cluster
        .renew_lease(&id("a"), &renewal("a", epoch(&cluster), Epoch(0)), seconds(15))
        .unwrap()
        .prepare;
    cluster.renew_lease(&id("a"), &renewal("a", Epoch(0), prepare.unwrap()), seconds(15)).unwrap();
    settle(&mut cluster, seconds(15));
    assert_eq!((members(&cluster), cluster.cluster_document().missing.len()), (vec!["a", "b"], 0));
}

#[test]
fn a_worker_that_left_in_order_is_not_missed() {
    let mut cluster = cluster_of(&["a", "b"]);
    cluster.record_departure(&id("b"), leave("b", Some(Vec::new()), 0)).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    let prepare = cluster
        .renew_lease(&id("a"), &renewal("a", Epoch(101), Epoch(0)), seconds(3))
        .unwrap()
        .prepare;
    cluster.renew_lease(&id("a"), &renewal("a", Epoch(0), prepare.unwrap()), seconds(3)).unwrap();
    settle(&mut cluster, seconds(3));
    assert_eq!((members(&cluster), cluster.cluster_document().missing.len()), (vec!["a"], 0));
}

#[test]
fn leases_that_end_one_after_the_other_while_a_map_is_prepared_are_one_change() {
    let mut cluster = cluster_of(&["a", "b", "c", "d"]);
    // c and d die at one moment, having renewed a second apart.
    cluster.renew_lease(&id("d"), &renewal("d", Epoch(101), Epoch(0)), seconds(2)).unwrap();
    let mut maps = 0;
    for quarter in 8..=60 {
        let now = LeaseInstant::default().saturating_add(Duration::from_millis(quarter * 250));
        for name in ["a", "b"] {
            let active = epoch(&cluster);
            let prepare = cluster
                .renew_lease(&id(name), &renewal(name, active, Epoch(0)), now)
                .unwrap()
                .prepare;
            if let Some(epoch) = prepare {
                cluster.renew_lease(&id(name), &renewal(name, Epoch(0), epoch), now).unwrap();
            }
        }
        let before = epoch(&cluster);
        settle(&mut cluster, now);
        maps += usize::from(epoch(&cluster) != before);
    }
    assert_eq!((members(&cluster), maps), (vec!["a", "b"], 1));
}

#[test]
fn a_second_process_under_one_address_is_no_restart() {
    let mut cluster =
        MembershipController::new(options(), ClusterDocument::new(Epoch(100), 2), seconds(0));
    let at = |incarnation: &str, place: u64| WorkerRegistration {
        place,
        ..registration("a", incarnation)
    };
    cluster.register_worker(at("a1", 7), seconds(0)).unwrap();
    cluster.register_worker(registration("b", "b1"), seconds(0)).unwrap();
    settle(&mut cluster, seconds(0));
    settle(&mut cluster, seconds(1));
    let epoch = cluster.cluster_document().active.epoch;
    cluster.renew_lease(&id("a"), &renewal("a1", epoch, Epoch(0)), seconds(2)).unwrap();
    // A name leads to both: the first answers from what it knows until its lease is over.
    let taken = cluster.register_worker(at("a2", 8), seconds(3));
    assert!(matches!(taken, Err(MembershipError::Taken { left_ms: 9000, .. })), "{taken:?}");
    assert!(
        cluster.register_worker(at("a2", 0), seconds(3)).is_err(),
        "it does not say where it is"
    );
    cluster.renew_lease(&id("a"), &renewal("a1", epoch, Epoch(0)), seconds(4)).unwrap();
    // Where the first was, there is only one.
    assert!(cluster.register_worker(at("a3", 7), seconds(5)).is_ok());
    assert!(matches!(
        cluster.register_worker(at("a1", 8), seconds(5)),
        Err(MembershipError::Taken { .. })
    ));

    // The next leader knows it, too, and lets the process continue that was there.
    settle(&mut cluster, seconds(6));
    let document = cluster.cluster_document().clone();
    let mut next = MembershipController::new(options(), document.clone(), seconds(7));
    assert!(matches!(
        next.register_worker(at("a4", 8), seconds(8)),
        Err(MembershipError::Taken { .. })
    ));
    assert!(next.register_worker(at("a3", 7), seconds(8)).is_ok());
    let mut later = MembershipController::new(options(), document, seconds(7));
    later.register_worker(registration("b", "b1"), seconds(16)).unwrap();
    let granted = later.register_worker(at("a4", 8), seconds(17));
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
    let at = |incarnation: &str, place: u64| WorkerRegistration {
        place,
        ..registration("a", incarnation)
    };
    cluster.register_worker(at("a1", 7), seconds(0)).unwrap();
    settle(&mut cluster, seconds(0));
    settle(&mut cluster, seconds(1));
    cluster.record_departure(&id("a"), leave("a1", Some(Vec::new()), 0)).unwrap();
    let granted = cluster.register_worker(at("a2", 8), seconds(2)).unwrap();
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
    let at = |incarnation: &str, place: u64| WorkerRegistration {
        place,
        ..registration("a", incarnation)
    };
    // A map is on its way, and waits for a.
    assert_eq!(cluster.register_worker(at("a2", 8), seconds(3)), Err(MembershipError::Changing));
    settle(&mut cluster, seconds(3));
    assert_eq!(cluster.cluster_document().places, BTreeMap::from([(id("a"), 8)]));
    // In any order of arrival, the former process is waited for.
    assert!(matches!(
        cluster.register_worker(at("a3", 9), seconds(3)),
        Err(MembershipError::Taken { .. })
    ));
    assert!(cluster.register_worker(at("a2", 8), seconds(3)).unwrap().prepare.is_some());
    // Another leader knows where the lease is.
    let mut next =
        MembershipController::new(options(), cluster.cluster_document().clone(), seconds(4));
    assert!(matches!(
        next.register_worker(at("a3", 9), seconds(4)),
        Err(MembershipError::Taken { .. })
    ));
    assert!(next.register_worker(at("a2", 8), seconds(4)).is_ok());
}

/// Two processes come under one id while the first one's place is being written.
#[test]
fn a_durable_place_is_not_replaced_by_one_that_came_meanwhile() {
    let mut cluster = cluster_of(&["a", "b"]);
    let at = |incarnation: &str, place: u64| WorkerRegistration {
        place,
        ..registration("a", incarnation)
    };
    let changing = Err(MembershipError::Changing);
    assert_eq!(cluster.register_worker(at("a2", 8), seconds(3)), changing);
    let MembershipStep::Persist(document) = cluster.decide_step(seconds(3)) else {
        panic!("the place is not persisted")
    };
    assert_eq!(cluster.register_worker(at("a3", 9), seconds(3)), changing);
    cluster.confirm_persisted(*document, seconds(3));
    settle(&mut cluster, seconds(3));
    assert_eq!(cluster.cluster_document().places, BTreeMap::from([(id("a"), 8)]));
    let third = cluster.register_worker(at("a3", 9), seconds(3));
    assert!(matches!(third, Err(MembershipError::Taken { .. })), "{third:?}");
}

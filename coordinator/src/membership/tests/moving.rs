//! Slots move at a bounded rate.

use verbs3_protocol::SLOTS;
use verbs3_settings::TimePeriod;

use super::*;

/// Time of a whole share; a step takes a quarter of it.
const MOVE_FOR: Duration = Duration::from_secs(20);

/// Returns a cluster that has been stable for long, at second 30.
fn moving(ids: &[&str]) -> MembershipController {
    let mut cluster = cluster_of(ids);
    cluster.options.settings.move_for = TimePeriod(MOVE_FOR);
    assert_eq!(follow(&mut cluster, ids, 2..30), []);
    cluster
}

/// A map that came into force: its second, how many slots changed owner, and the shares that it has
/// under way.
#[derive(Debug, Clone, PartialEq)]
struct Came {
    second: u64,
    moved: usize,
    moving: Vec<(String, u8)>,
}

/// Lets the seconds pass and returns the maps that came. These processes (`b again` is one of
/// worker b) follow each map at once.
fn follow(
    cluster: &mut MembershipController,
    names: &[&str],
    seconds_from_to: std::ops::Range<u64>,
) -> Vec<Came> {
    let (mut came, mut last) = (Vec::new(), cluster.cluster_document().active.clone());
    for second in seconds_from_to {
        // Gathering takes half a second.
        for half in [0, 500] {
            let now = seconds(second).saturating_add(Duration::from_millis(half));
            for _ in 0..3 {
                settle(cluster, now);
                let changing = cluster.change.as_ref().map(|change| change.membership.epoch);
                for name in names {
                    let asked = renewal(name, epoch(cluster), changing.unwrap_or_default());
                    let _ = cluster.renew_lease(&id(&name[..1]), &asked, now);
                }
            }
            let ClusterDocument { active, moving, .. } = cluster.cluster_document();
            if active.epoch != last.epoch {
                let after = active.build_placement().unwrap();
                let moved =
                    last.build_placement().map_or(SLOTS, |last| last.count_moved_slots(&after));
                let moving =
                    moving.iter().map(|(id, moving)| (id.0.clone(), moving.steps)).collect();
                came.push(Came { second, moved, moving });
                last = active.clone();
            }
        }
    }
    came
}

fn steps(came: &[Came]) -> Vec<Vec<(&str, u8)>> {
    came.iter()
        .map(|came| came.moving.iter().map(|(id, steps)| (id.as_str(), *steps)).collect())
        .collect()
}

fn times(came: &[Came]) -> Vec<u64> {
    came.iter().map(|came| came.second).collect()
}

/// Checks that one of four workers moved in four parts: none much larger than the others, and not
/// much more in all.
fn assert_a_quarter_at_a_time(came: &[Came]) {
    let (share, moved) = (SLOTS / 4, came.iter().map(|came| came.moved).collect::<Vec<_>>());
    let all: usize = moved.iter().sum();
    assert!(all.abs_diff(share) <= SLOTS / 50, "{moved:?} of {share}");
    assert!(moved.iter().all(|&moved| moved <= share * 2 / 5), "{moved:?} of {share}");
}

/// The first quarter moves at once.
#[test]
fn slots_of_a_new_or_drained_worker_move_a_quarter_at_a_time() {
    let mut cluster = moving(&["a", "b", "c"]);
    cluster.register_worker(registration("d", "d"), seconds(30)).unwrap();
    let all = ["a", "b", "c", "d"];
    let came = follow(&mut cluster, &all, 30..60);
    assert_eq!(steps(&came), [vec![("d", 1)], vec![("d", 2)], vec![("d", 3)], vec![]]);
    assert_eq!(times(&came), [30, 36, 41, 47]);
    assert_a_quarter_at_a_time(&came);

    cluster.set_draining(&id("d"), true).unwrap();
    let came = follow(&mut cluster, &all, 60..120);
    assert_eq!(steps(&came), [vec![("d", 3)], vec![("d", 2)], vec![("d", 1)], vec![]]);
    assert_eq!(times(&came), [60, 66, 71, 77]);
    assert_a_quarter_at_a_time(&came);
    let active = &cluster.cluster_document().active;
    assert_eq!(
        active.get(&id("d")).map(|member| (member.weight, member.draining)),
        Some((1.0, true))
    );
}

#[test]
fn a_view_shows_a_shares_progress_and_when_to_stop_a_worker() {
    let mut cluster = moving(&["a", "b"]);
    cluster.set_draining(&id("b"), true).unwrap();
    let mut seen = Vec::new();
    for second in (30..55).step_by(5) {
        follow(&mut cluster, &["a", "b"], second..second + 5);
        let slots = if cluster.cluster_document().moving.is_empty() { 0 } else { 7 };
        let slots = BTreeMap::from([(id("a"), 100), (id("b"), slots)]);
        let view = cluster.build_cluster_view("tests", "here", &slots, seconds(second + 5));
        let worker = &view.workers[1];
        assert_eq!((worker.state, worker.weight), (WorkerState::Draining, 1.0));
        seen.push((
            worker.share_percent,
            view.findings.iter().any(|found| found.contains("may be stopped")),
        ));
    }
    assert_eq!(seen, [(75, false), (50, false), (25, false), (0, true), (0, true)]);
}

#[test]
fn a_drain_that_is_called_off_goes_back_the_same_way() {
    let mut cluster = moving(&["a", "b"]);
    cluster.set_draining(&id("b"), true).unwrap();
    let down = follow(&mut cluster, &["a", "b"], 30..38);
    cluster.set_draining(&id("b"), false).unwrap();
    let up = follow(&mut cluster, &["a", "b"], 38..70);
    assert_eq!(
        steps(&[down, up].concat()),
        [vec![("b", 3)], vec![("b", 2)], vec![("b", 3)], vec![]]
    );
    assert!(
        cluster
            .cluster_document()
            .active
            .members
            .iter()
            .all(|member| member.weight == 1.0 && !member.draining)
    );
}

#[test]
fn a_crowd_that_joins_goes_on_together() {
    let mut cluster = moving(&["a", "b"]);
    let mut names = vec!["a", "b"];
    let mut came = Vec::new();
    for (second, name) in [(30, "c"), (31, "d"), (32, "e")] {
        cluster.register_worker(registration(name, name), seconds(second)).unwrap();
        names.push(name);
        came.extend(follow(&mut cluster, &names, second..second + 1));
    }
    came.extend(follow(&mut cluster, &names, 33..90));
    // The first of them has its second step as soon as it may, the others with its third.
    let all = |c, d, e| vec![("c", c), ("d", d), ("e", e)];
    let wanted =
        [vec![("c", 1)], vec![("c", 1), ("d", 1)], all(1, 1, 1), all(2, 1, 1), all(3, 2, 2)];
    let end = [vec![("d", 3), ("e", 3)], vec![]];
    assert_eq!(steps(&came), [&wanted[..], &end[..]].concat());
    let last = came.last().unwrap();
    assert!(last.second <= 32 + MOVE_FOR.as_secs() + 4, "{came:?}");
}

/// It loses them at once, too. One that is away for longer regains them in steps.
#[test]
fn a_lost_worker_that_returns_soon_regains_its_slots_at_once() {
    for (away, at_once) in [(10, true), (30, false)] {
        let mut cluster = moving(&["a", "b", "c"]);
        follow(&mut cluster, &["a", "b", "c"], 30..40);
        let came = follow(&mut cluster, &["a", "b"], 40..55);
        assert_eq!((steps(&came), members(&cluster)), (vec![vec![]], vec!["a", "b"]));
        let back = came[0].second + away;
        follow(&mut cluster, &["a", "b"], 55..back);
        cluster.register_worker(registration("c", "c again"), seconds(back)).unwrap();
        let came = follow(&mut cluster, &["a", "b", "c again"], back..back + 1);
        let expected = if at_once { vec![] } else { vec![("c", 1)] };
        assert_eq!(steps(&came), [expected], "away for {away} s");
    }
}

#[test]
fn a_worker_with_a_new_address_gets_its_share_in_steps() {
    let mut cluster = moving(&["a", "b", "c"]);
    cluster.record_departure(&id("c"), leave("c", Some(Vec::new()), 0)).unwrap();
    follow(&mut cluster, &["a", "b"], 30..32);
    assert_eq!(members(&cluster), ["a", "b"]);
    let moved = WorkerRegistration { address: "elsewhere:1".into(), ..registration("c", "c2") };
    cluster.register_worker(moved, seconds(32)).unwrap();
    assert_eq!(steps(&follow(&mut cluster, &["a", "b", "c2"], 32..33)), [vec![("c", 1)]]);
}

#[test]
fn a_worker_restarted_within_the_map_keeps_its_share() {
    let mut cluster = moving(&["a", "b"]);
    cluster.register_worker(registration("b", "b again"), seconds(30)).unwrap();
    assert_eq!(follow(&mut cluster, &["a", "b again"], 30..60), []);
    // Half way, too.
    cluster.register_worker(registration("c", "c"), seconds(60)).unwrap();
    let came = follow(&mut cluster, &["a", "b again", "c"], 60..68);
    assert_eq!(steps(&came), [vec![("c", 1)], vec![("c", 2)]]);
    cluster.register_worker(registration("c", "c again"), seconds(68)).unwrap();
    let came = follow(&mut cluster, &["a", "b again", "c again"], 68..90);
    assert_eq!((steps(&came), times(&came)), (vec![vec![("c", 3)], vec![]], vec![71, 77]));
}

/// Uses weights whose parts are no round numbers.
#[test]
fn a_new_leader_continues_the_moves_of_the_last_one() {
    let mut cluster = moving(&["a", "b"]);
    let odd =
        |name, incarnation| WorkerRegistration { weight: 0.7, ..registration(name, incarnation) };
    cluster.register_worker(odd("c", "c"), seconds(30)).unwrap();
    cluster.set_draining(&id("b"), true).unwrap();
    let came = follow(&mut cluster, &["a", "b", "c"], 30..38);
    assert_eq!(steps(&came), [vec![("b", 3), ("c", 1)], vec![("b", 2), ("c", 2)]]);

    let text = serde_json::to_string(cluster.cluster_document()).unwrap();
    let document = ClusterDocument { term: 2, ..serde_json::from_str(&text).unwrap() };
    assert_eq!(document, ClusterDocument { term: 2, ..cluster.cluster_document().clone() });
    let mut next = MembershipController::new(cluster.options.clone(), document, seconds(40));
    // As long as they have not registered, all stays as it is.
    assert_eq!(follow(&mut next, &[], 40..42), []);
    for (name, registration) in
        [("a", registration("a", "a")), ("b", registration("b", "b")), ("c", odd("c", "c"))]
    {
        next.register_worker(registration, seconds(42)).unwrap();
        next.renew_lease(&id(name), &renewal(name, epoch(&next), Epoch(0)), seconds(42)).unwrap();
    }
    let came = follow(&mut next, &["a", "b", "c"], 42..80);
    assert_eq!(steps(&came), [vec![("b", 1), ("c", 3)], vec![]]);
    assert_eq!(times(&came), [45, 51]);
    let members: Vec<_> =
        next.cluster_document().active.members.iter().map(|it| (it.weight, it.draining)).collect();
    assert_eq!(members, [(1.0, false), (1.0, true), (0.7, false)]);
}

/// A change may wait for a worker longer than a step takes.
#[test]
fn no_map_has_two_steps_of_one_worker_however_late_it_comes() {
    let mut cluster = moving(&["a", "b", "c"]);
    cluster.options.settings.move_for = TimePeriod::from_seconds(4);
    cluster.register_worker(registration("d", "d"), seconds(30)).unwrap();
    for second in 30..33 {
        follow(&mut cluster, &["a", "b", "c", "d"], second..second + 1);
    }
    cluster.register_worker(registration("e", "e"), seconds(40)).unwrap();
    // b is silent: its lease is waited for.
    let came = follow(&mut cluster, &["a", "c", "d", "e"], 40..60);
    let of_e: Vec<u8> = came
        .iter()
        .map(|came| came.moving.iter().find(|it| it.0 == "e").map_or(4, |it| it.1))
        .collect();
    assert_eq!(of_e, [1, 2, 3, 4], "{came:?}");
    assert!(came[0].second >= 42, "{came:?}");
}

#[test]
fn workers_of_a_cluster_that_begins_have_their_shares_at_once() {
    let begins = || options_moving_for(MOVE_FOR);
    let mut cluster =
        MembershipController::new(begins(), ClusterDocument::new(Epoch(100), 2), seconds(0));
    let names = ["a", "b", "c", "d"];
    for (second, name) in [(0, "a"), (2, "b"), (4, "c"), (25, "d")] {
        cluster.register_worker(registration(name, name), seconds(second)).unwrap();
        let came = follow(&mut cluster, &names, second..second + 2);
        let expected = if name == "d" { vec![("d", 1)] } else { vec![] };
        assert_eq!(steps(&came), [expected], "{name}");
    }
}

/// A second worker would make no sense either: nobody could own what it gives up.
#[test]
fn the_last_worker_does_not_begin_to_give_up_its_slots() {
    let mut cluster = moving(&["a", "b"]);
    for name in ["a", "b"] {
        cluster.set_draining(&id(name), true).unwrap();
    }
    assert_eq!(follow(&mut cluster, &["a", "b"], 30..60), []);
    let step = cluster.decide_step(seconds(60));
    assert!(matches!(step, MembershipStep::Wait(until) if until > seconds(60)), "{step:?}");
    cluster.set_draining(&id("a"), false).unwrap();
    let came = follow(&mut cluster, &["a", "b"], 60..90);
    assert_eq!(steps(&came), [vec![("b", 3)], vec![("b", 2)], vec![("b", 1)], vec![]]);
}

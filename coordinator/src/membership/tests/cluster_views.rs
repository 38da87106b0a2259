//! What people are shown of the workers.

use super::*;

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

fn states(cluster: &MembershipController, now: LeaseInstant) -> Vec<(String, WorkerState)> {
    let view = cluster.build_cluster_view("tests", "here", &BTreeMap::new(), now);
    view.workers.into_iter().map(|worker| (worker.id.0, worker.state)).collect()
}

/// Lets b die: from second 12 on the map is without it.
fn without_b() -> MembershipController {
    let mut cluster = cluster_of(&["a", "b"]);
    for second in 2..=13 {
        renew_and_prepare(&mut cluster, "a", seconds(second));
        settle(&mut cluster, seconds(second));
    }
    assert_eq!(members(&cluster), ["a"]);
    cluster
}

#[test]
fn a_silently_lost_worker_is_missed_until_back_or_forgotten() {
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
    renew_and_prepare(&mut cluster, "a", seconds(15));
    settle(&mut cluster, seconds(15));
    assert_eq!((members(&cluster), cluster.cluster_document().missing.len()), (vec!["a", "b"], 0));
}

#[test]
fn a_worker_that_left_in_order_is_not_missed() {
    let mut cluster = cluster_of(&["a", "b"]);
    cluster.record_departure(&id("b"), leave("b", Some(Vec::new()), 0)).unwrap();
    settle(&mut cluster, seconds(2));
    settle(&mut cluster, seconds(3));
    renew_and_prepare(&mut cluster, "a", seconds(3));
    settle(&mut cluster, seconds(3));
    assert_eq!((members(&cluster), cluster.cluster_document().missing.len()), (vec!["a"], 0));
}

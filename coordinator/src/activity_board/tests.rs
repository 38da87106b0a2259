#![allow(clippy::unwrap_used)]

use super::*;

fn seconds(seconds: u64) -> LeaseInstant {
    LeaseInstant::default().saturating_add(Duration::from_secs(seconds))
}

fn report(name: &str, life: u64, requests: u64) -> NodeActivity {
    NodeActivity {
        name: name.to_owned(),
        life,
        counters: ActivityCounters { requests, ..ActivityCounters::default() },
        ..NodeActivity::default()
    }
}

fn tenant(name: &str, requests: u64) -> TenantActivity {
    TenantActivity { name: name.to_owned(), requests, ..TenantActivity::default() }
}

#[test]
fn only_what_was_done_since_the_last_report_counts() {
    let mut board = ActivityBoard::default();
    // What a process did before the first report may be years old.
    board.record_report(report("a", 1, 1_000_000), seconds(100)).unwrap();
    assert_eq!(board.last_hour(seconds(100)).total.counters.requests, 0);
    board.record_report(report("a", 1, 1_000_007), seconds(110)).unwrap();
    board.record_report(report("b", 1, 50), seconds(110)).unwrap();
    board.record_report(report("b", 1, 53), seconds(120)).unwrap();
    assert_eq!(board.last_hour(seconds(120)).total.counters.requests, 10);
    // Started again: from zero.
    board.record_report(report("a", 2, 4), seconds(130)).unwrap();
    assert_eq!(board.last_hour(seconds(130)).total.counters.requests, 14);
}

#[test]
fn an_hour_is_kept_and_no_more() {
    let mut board = ActivityBoard::default();
    for tick in 0..1000 {
        board.record_report(report("a", 1, tick), seconds(tick * 10)).unwrap();
    }
    assert_eq!(board.bins.len() as u64, BINS_MAX);
    let hour = board.last_hour(seconds(9990));
    assert_eq!(hour.bins.len() as u64, BINS_MAX);
    assert_eq!(hour.total.counters.requests, 360);
    assert_eq!(hour.seen, Duration::from_secs(3600));
    // Later, when nobody has reported for half an hour.
    let hour = board.last_hour(seconds(9990 + 1800));
    assert!(hour.bins.last().unwrap().is_none());
    assert_eq!(hour.total.counters.requests, 180);
    assert_eq!(board.last_hour(seconds(100_000)).total.counters.requests, 0);
}

#[test]
fn who_is_silent_is_not_shown_and_gives_way() {
    let mut board = ActivityBoard::default();
    for number in 0..NODES_MAX {
        board.record_report(report(&format!("n{number}"), 1, 0), seconds(100)).unwrap();
    }
    let one_more = report("one-more", 1, 0);
    assert_eq!(board.record_report(one_more.clone(), seconds(110)), Err(ReportRefusal::Full));
    assert_eq!(board.record_report(report("n7", 1, 0), seconds(150)), Ok(()));
    assert_eq!(board.record_report(one_more, seconds(170)), Ok(()));
    let names: Vec<String> =
        board.recent_reports(seconds(170)).into_iter().map(|node| node.last.name).collect();
    assert_eq!(names, ["n7", "one-more"]);
    assert_eq!(board.node_count(), 2);
}

#[test]
fn a_report_holds_no_more_than_it_may() {
    let mut board = ActivityBoard::default();
    for name in ["", "a\nb", &"x".repeat(ACTIVITY_NAME_BYTES_MAX + 1)] {
        assert_eq!(board.record_report(report(name, 1, 0), seconds(1)), Err(ReportRefusal::Name));
    }
    let mut long = report("a", 1, 0);
    long.tenants = (0..1000).map(|number| tenant(&format!("t{number}"), 0)).collect();
    board.record_report(long.clone(), seconds(1)).unwrap();
    // Others than before: a process that invents tenants fills no memory.
    for round in 0..10 {
        long.tenants = (0..60).map(|number| tenant(&format!("t{round}-{number}"), 1)).collect();
        board.record_report(long.clone(), seconds(2)).unwrap();
    }
    assert_eq!(board.bins[0].tenants.len(), ACTIVITY_TENANTS_MAX);
    assert_eq!(board.last_hour(seconds(2)).tenants.len(), ACTIVITY_TENANTS_MAX);
}

#[test]
fn tenants_are_summed_over_gateways() {
    let mut board = ActivityBoard::default();
    for (at, requests) in [(1, 0), (2, 5)] {
        for gateway in ["g1", "g2"] {
            let mut said = report(gateway, 1, 0);
            said.tenants = vec![tenant("lab", requests), tenant("idle", 0)];
            board.record_report(said, seconds(at)).unwrap();
        }
    }
    assert_eq!(board.last_hour(seconds(2)).tenants, [tenant("lab", 10)]);
}

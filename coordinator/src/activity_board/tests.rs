#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};

use verbs3_coordinator_client::api::{LatencyBucket, RailActivity, TransportActivity};

use super::*;

fn board() -> ActivityBoard {
    ActivityBoard::new(Duration::from_secs(10))
}

fn seconds(seconds: u64) -> LeaseInstant {
    LeaseInstant::default().saturating_add(Duration::from_secs(seconds))
}

/// Makes a report that is later than all before.
fn report(name: &str, life: u64, requests: u64) -> NodeActivity {
    static LAST: AtomicU64 = AtomicU64::new(1);
    NodeActivity {
        number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
        name: name.to_owned(),
        life,
        counters: ActivityCounters { requests, ..ActivityCounters::default() },
        ..NodeActivity::default()
    }
}

fn tenant(name: &str, requests: u64) -> TenantActivity {
    TenantActivity { name: name.to_owned(), requests, ..TenantActivity::default() }
}

const BUCKET: LatencyBucket = LatencyBucket { up_to_us: 1, count: 1 };

#[test]
fn only_what_was_done_since_the_last_report_counts() {
    let mut board = board();
    // What a process did before the first report may be years old.
    board.record_report("", report("a", 1, 1_000_000), seconds(100)).unwrap();
    assert_eq!(board.last_hour(seconds(100)).total.counters.requests, 0);
    board.record_report("", report("a", 1, 1_000_007), seconds(110)).unwrap();
    board.record_report("", report("b", 1, 50), seconds(110)).unwrap();
    board.record_report("", report("b", 1, 53), seconds(120)).unwrap();
    assert_eq!(board.last_hour(seconds(120)).total.counters.requests, 10);
    // Started again: from zero.
    let first = NodeActivity { number: 1, ..report("a", 2, 4) };
    board.record_report("", first, seconds(130)).unwrap();
    assert_eq!(board.last_hour(seconds(130)).total.counters.requests, 14);
}

#[test]
fn an_hour_is_kept_and_no_more() {
    let mut board = board();
    for tick in 0..1000 {
        board.record_report("", report("a", 1, tick), seconds(tick * 10)).unwrap();
    }
    assert_eq!(board.bins.len() as u64, BINS_MAX);
    let hour = board.last_hour(seconds(9990));
    assert_eq!(hour.bins.len() as u64, BINS_MAX);
    assert_eq!(hour.total.counters.requests, 358);
    assert_eq!(hour.seen, Duration::from_secs(3570));
    // Later, when nobody has reported for half an hour.
    let hour = board.last_hour(seconds(9990 + 1800));
    assert!(hour.bins.last().unwrap().is_none());
    assert_eq!(hour.total.counters.requests, 178);
    assert_eq!(board.last_hour(seconds(100_000)).total.counters.requests, 0);
}

#[test]
fn who_is_silent_is_called_so_and_gives_way() {
    let mut board = board();
    for number in 0..NODES_MAX {
        board.record_report("", report(&format!("n{number}"), 1, 0), seconds(100)).unwrap();
    }
    let one_more = report("one-more", 1, 0);
    assert_eq!(board.record_report("", one_more.clone(), seconds(110)), Err(ReportRefusal::Full));
    assert_eq!(board.record_report("", report("n7", 1, 0), seconds(150)), Ok(()));
    assert_eq!(board.record_report("", one_more, seconds(170)), Ok(()));
    let names = |at| -> Vec<(String, bool)> {
        let nodes = board.recent_reports(seconds(at)).into_iter();
        nodes.map(|node| (node.last.name, node.is_silent)).collect()
    };
    assert_eq!(names(170), [("n7".to_owned(), false), ("one-more".to_owned(), false)]);
    assert_eq!(names(190), [("n7".to_owned(), true), ("one-more".to_owned(), false)]);
    assert_eq!(board.reporter_count(seconds(190)), 1);
    assert_eq!(names(150 + 3601), [("one-more".to_owned(), true)]);
}

#[test]
fn who_says_goodbye_is_not_missed_and_its_last_work_counts() {
    let mut board = board();
    board.record_report("", report("a", 1, 5), seconds(100)).unwrap();
    let last = NodeActivity { is_leaving: true, ..report("a", 1, 9) };
    board.record_report("", last, seconds(105)).unwrap();
    assert!(board.recent_reports(seconds(106)).is_empty());
    assert_eq!(board.last_hour(seconds(106)).total.counters.requests, 4);
}

#[test]
fn who_leads_again_knows_nothing_of_its_time_before() {
    let mut board = board();
    for at in [100, 110] {
        board.record_report("", report("a", 1, at), seconds(at)).unwrap();
    }
    board.begin_anew();
    assert!(board.recent_reports(seconds(200)).is_empty());
    let hour = board.last_hour(seconds(200));
    assert_eq!((hour.total.counters.requests, hour.seen), (0, Duration::ZERO));
    // It is as patient as before.
    board.record_report("", report("a", 1, 1), seconds(200)).unwrap();
    assert_eq!(board.reporter_count(seconds(230)), 1);
}

#[test]
fn a_long_silence_makes_no_peak_and_its_gauges_end() {
    let mut board = board();
    let gauges = ActivityGauges { fills_running: 7, ..ActivityGauges::default() };
    board.record_report("", NodeActivity { gauges, ..report("a", 1, 5) }, seconds(100)).unwrap();
    assert_eq!(board.current_gauges(seconds(130)), gauges);
    assert_eq!(board.current_gauges(seconds(131)), ActivityGauges::default());
    board.record_report("", report("a", 1, 1000), seconds(1000)).unwrap();
    assert_eq!(board.last_hour(seconds(1000)).total.counters.requests, 0);
    board.record_report("", report("a", 1, 1001), seconds(1010)).unwrap();
    assert_eq!(board.last_hour(seconds(1010)).total.counters.requests, 1);
}

#[test]
fn what_was_seen_of_an_hour_begins_with_the_first_report() {
    let mut board = board();
    for at in [100, 110, 120] {
        board.record_report("", report("a", 1, at), seconds(at)).unwrap();
    }
    // Bins of 30 seconds: from 100 to 120, and to 125 in the one after.
    assert_eq!(board.last_hour(seconds(120)).seen, Duration::from_secs(20));
    assert_eq!(board.last_hour(seconds(125)).seen, Duration::from_secs(25));
}

#[test]
fn a_report_holds_no_more_than_it_may() {
    let mut board = board();
    for name in ["", "a\nb", &"x".repeat(ACTIVITY_NAME_BYTES_MAX + 1)] {
        assert_eq!(
            board.record_report("", report(name, 1, 0), seconds(1)),
            Err(ReportRefusal::Name)
        );
    }
    let mut long = report("a", 1, 0);
    long.tenants = (0..1000).map(|number| tenant(&format!("t{number}"), 0)).collect();
    long.rails = vec![RailActivity { name: String::new(), up: true }; 1000];
    long.transports = vec![TransportActivity::default(); 1000];
    (long.request_seconds, long.store_seconds) = (vec![BUCKET; 1000], vec![BUCKET; 1000]);
    board.record_report("", long.clone(), seconds(1)).unwrap();
    let kept = &board.nodes.values().next().unwrap().last;
    assert_eq!(kept.tenants.capacity(), ACTIVITY_TENANTS_MAX);
    assert_eq!((kept.rails.capacity(), kept.transports.capacity()), (0, 0));
    let buckets = [kept.request_seconds.capacity(), kept.store_seconds.capacity()];
    assert_eq!(buckets, [latency_counts::BUCKETS_MAX; 2]);
    // Others than before: a process that invents tenants fills no memory.
    for round in 0..40 {
        long.number += 1;
        long.tenants = (0..60).map(|number| tenant(&format!("t{round}-{number}"), 1)).collect();
        board.record_report("", long.clone(), seconds(2)).unwrap();
    }
    assert_eq!(board.bins[0].tenants.len(), BIN_TENANTS_MAX + 1);
    assert_eq!(board.last_hour(seconds(2)).tenants.len(), ACTIVITY_TENANTS_MAX);
}

#[test]
fn tenants_are_summed_over_gateways() {
    let mut board = board();
    for (at, requests) in [(1, 0), (2, 5)] {
        for gateway in ["g1", "g2"] {
            let mut said = report(gateway, 1, 0);
            said.tenants = vec![tenant("lab", requests), tenant("idle", 0)];
            board.record_report("", said, seconds(at)).unwrap();
        }
    }
    assert_eq!(board.last_hour(seconds(2)).tenants, [tenant("lab", 10)]);
}

#[test]
fn two_processes_of_one_name_are_counted_each_for_itself() {
    let mut board = board();
    for (at, done) in [(100, 0), (110, 1), (120, 2)] {
        board.record_report("", report("a", 1, 1_000_000 + done), seconds(at)).unwrap();
        board.record_report("", report("a", 2, 5_000_000 + done), seconds(at)).unwrap();
    }
    assert_eq!(board.last_hour(seconds(120)).total.counters.requests, 4);
    assert_eq!(board.reporter_count(seconds(120)), 2);
    // The goodbye of one is not the other's.
    let last = NodeActivity { is_leaving: true, ..report("a", 1, 1_000_009) };
    board.record_report("", last, seconds(121)).unwrap();
    let lives = |at| -> Vec<(u64, bool)> {
        let nodes = board.recent_reports(seconds(at)).into_iter();
        nodes.map(|node| (node.last.life, node.is_silent)).collect()
    };
    assert_eq!(lives(121), [(2, false)]);
    assert_eq!(lives(200), [(2, true)]);
}

#[test]
fn nobody_misses_a_process_that_was_started_again() {
    let mut board = board();
    board.record_report("", report("a", 1, 5), seconds(100)).unwrap();
    board.record_report("", report("a", 2, 0), seconds(110)).unwrap();
    let lives: Vec<u64> =
        board.recent_reports(seconds(140)).iter().map(|node| node.last.life).collect();
    assert_eq!(lives, [2]);
}

#[test]
fn a_repeated_report_counts_no_more_even_after_a_goodbye() {
    let mut board = board();
    let old = report("a", 1, 5);
    board.record_report("", old.clone(), seconds(100)).unwrap();
    board.record_report("", report("a", 1, 9), seconds(105)).unwrap();
    let again = |board: &mut ActivityBoard| board.record_report("", old.clone(), seconds(106));
    assert_eq!(again(&mut board), Err(ReportRefusal::Old));
    let last = NodeActivity { is_leaving: true, ..report("a", 1, 10) };
    board.record_report("", last, seconds(107)).unwrap();
    assert_eq!(again(&mut board), Err(ReportRefusal::Old));
    assert!(board.recent_reports(seconds(107)).is_empty());
    assert_eq!(board.reporter_count(seconds(107)), 0);
    assert_eq!(board.last_hour(seconds(107)).total.counters.requests, 5);
}

#[test]
fn a_certificate_speaks_for_nobody_else_and_for_few_names() {
    let mut board = board();
    for (certificate, requests) in [("gateway/g", 100), ("gateway/h", 0), ("gateway/g", 107)] {
        board.record_report(certificate, report("a", 1, requests), seconds(100)).unwrap();
    }
    assert_eq!(board.last_hour(seconds(100)).total.counters.requests, 7);
    assert_eq!(board.reporter_count(seconds(100)), 2);
    let invented: Vec<Result<(), ReportRefusal>> = (0..1000)
        .map(|number| board.record_report("gateway/h", report("n", number, 0), seconds(101)))
        .collect();
    assert_eq!(invented.iter().filter(|taken| taken.is_ok()).count(), 255);
    assert_eq!(invented[999], Err(ReportRefusal::CertificateFull));
    // It has used up its own places, and silences nobody.
    board.record_report("gateway/g", report("b", 1, 0), seconds(200)).unwrap();
    board.record_report("gateway/h", report("b", 1, 0), seconds(200)).unwrap();
    assert!(
        board
            .recent_reports(seconds(200))
            .iter()
            .any(|node| node.last.name == "a" && node.certificate == "gateway/g")
    );
}

#[test]
fn workers_take_no_places_of_gateways() {
    let mut board = board();
    for number in 0..NODES_MAX {
        let worker =
            NodeActivity { role: ActivityRole::Worker, ..report(&format!("w{number}"), 1, 0) };
        board.record_report("", worker, seconds(100)).unwrap();
    }
    assert_eq!(board.record_report("", report("g", 1, 0), seconds(100)), Ok(()));
}

#[test]
fn tenants_beyond_those_that_are_told_apart_are_others() {
    let mut board = board();
    for (at, requests) in [(1, 0), (2, 1)] {
        for gateway in 0..20 {
            let mut said = report(&format!("g{gateway}"), 1, 0);
            // The largest ones come last.
            said.tenants = (0..60)
                .map(|number| TenantActivity {
                    bytes_sent: requests * (gateway * 60 + number + 1),
                    ..tenant(&format!("t{gateway}-{number:02}"), requests)
                })
                .chain([tenant("other", requests)])
                .collect();
            board.record_report("", said, seconds(at)).unwrap();
        }
    }
    let tenants = board.last_hour(seconds(2)).tenants;
    assert_eq!(tenants.iter().map(|tenant| tenant.requests).sum::<u64>(), 20 * 61);
    assert_eq!(tenants.len(), ACTIVITY_TENANTS_MAX);
    let other = tenants.last().unwrap();
    assert_eq!((other.name.as_str(), other.requests), ("other", 20 * 61 - 64));
    // 1,024 are told apart, those that came first.
    assert_eq!(tenants[0].name, "t17-02");
}

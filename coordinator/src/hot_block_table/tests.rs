#![allow(clippy::unwrap_used)]

use verbs3_protocol::ObjectVolume;
use verbs3_settings::ByteSize;

use super::*;

const MIB: u64 = 1 << 20;
const RENEWED: Duration = Duration::from_secs(1);

fn settings() -> CoordinatorHotSettings {
    CoordinatorHotSettings {
        rate: ByteSize::from_mib(100),
        workers_max: 4,
        blocks_max: 3,
        reported_max: 10,
        ..CoordinatorHotSettings::default()
    }
}

fn seconds(seconds: u64) -> LeaseInstant {
    LeaseInstant::default().saturating_add(Duration::from_secs(seconds))
}

fn block(key: &str, mebibytes: u64) -> HotBlockRate {
    let object = ObjectKey { volume: ObjectVolume::new("store", "train"), key: key.into() };
    HotBlockRate { object, block: BlockIndex(1), bytes_per_second: mebibytes * MIB }
}

fn id(name: &str) -> WorkerId {
    WorkerId(name.into())
}

fn workers_of(hot: &HotBlockTable, key: &str) -> u16 {
    let hash = block(key, 0).object.block_hash(BlockIndex(1));
    hot.list_blocks()
        .into_iter()
        .find(|(known, _)| *known == hash)
        .map_or(1, |(_, workers)| workers)
}

/// Returns the table of a leader that has heard enough to publish.
fn heard() -> HotBlockTable {
    let mut hot = HotBlockTable::new(settings(), RENEWED, seconds(0));
    assert_eq!(hot.weigh_reports(8, seconds(6)).unwrap().blocks, []);
    hot
}

#[test]
fn a_block_gets_workers_by_what_all_of_them_serve_of_it() {
    let mut hot = heard();
    hot.record_report(&id("a"), vec![block("k", 100), block("cold", 99)], seconds(10));
    assert_eq!(hot.weigh_reports(8, seconds(10)), None, "not above what one worker is to serve");
    hot.record_report(&id("a"), vec![block("k", 101)], seconds(11));
    let list = hot.weigh_reports(8, seconds(11)).unwrap();
    assert_eq!((list.blocks.len(), workers_of(&hot, "k"), list.good_for_ms), (1, 2, 60_000));
    hot.record_report(&id("b"), vec![block("k", 101)], seconds(12));
    let next = hot.weigh_reports(8, seconds(12)).unwrap();
    assert_eq!((workers_of(&hot, "k"), next.version), (3, list.version + 1));
    assert_eq!(hot.weigh_reports(8, seconds(12)), None, "nothing new");
    hot.record_report(&id("c"), vec![block("k", 5000)], seconds(13));
    hot.weigh_reports(8, seconds(13)).unwrap();
    assert_eq!(
        (workers_of(&hot, "k"), hot.block_counts()),
        (4, (1, 3, 0)),
        "no more than there may be"
    );
}

#[test]
fn a_block_has_no_more_workers_than_there_are() {
    let mut hot = heard();
    hot.record_report(&id("a"), vec![block("k", 1000)], seconds(10));
    assert_eq!(hot.weigh_reports(1, seconds(10)), None);
    hot.weigh_reports(2, seconds(10)).unwrap();
    assert_eq!(workers_of(&hot, "k"), 2);
    hot.weigh_reports(8, seconds(10)).unwrap();
    assert_eq!(workers_of(&hot, "k"), 4);
    hot.weigh_reports(3, seconds(10)).unwrap();
    assert_eq!(workers_of(&hot, "k"), 3);
    assert_eq!(hot.weigh_reports(0, seconds(11)).unwrap().blocks, [], "there is no map");
}

#[test]
fn a_block_loses_workers_slowly_and_only_where_fewer_suffice() {
    let mut hot = heard();
    let mut now = 10;
    let mut serve = |hot: &mut HotBlockTable, mebibytes: u64, for_seconds: u64| {
        for _ in 0..for_seconds {
            hot.record_report(&id("a"), vec![block("k", mebibytes)], seconds(now));
            hot.weigh_reports(8, seconds(now));
            now += 1;
        }
        workers_of(hot, "k")
    };
    assert_eq!(serve(&mut hot, 350, 1), 4);
    // Above half of the limit for each of three, a fourth stays for ever.
    assert_eq!(serve(&mut hot, 151, 100), 4);
    assert_eq!(serve(&mut hot, 140, 30), 4, "too soon");
    assert_eq!(serve(&mut hot, 140, 1), 3);
    // Each time that it is needed, the time begins anew.
    assert_eq!(serve(&mut hot, 10, 29), 3);
    assert_eq!(serve(&mut hot, 140, 2), 3);
    assert_eq!(serve(&mut hot, 10, 30), 3);
    // A short need in the meantime keeps the worker.
    assert_eq!(serve(&mut hot, 10, 1), 1);
    assert_eq!(hot.block_counts(), (0, 0, 0));
}

#[test]
fn what_was_needed_in_calm_times_is_what_is_kept() {
    let mut hot = heard();
    hot.record_report(&id("a"), vec![block("k", 350)], seconds(10));
    hot.weigh_reports(8, seconds(10));
    for second in 11..=41 {
        let mebibytes = if second == 20 { 90 } else { 10 };
        hot.record_report(&id("a"), vec![block("k", mebibytes)], seconds(second));
        hot.weigh_reports(8, seconds(second));
    }
    assert_eq!(workers_of(&hot, "k"), 2);
}

#[test]
fn workers_that_fall_silent_say_nothing_and_the_count_falls() {
    let mut hot = heard();
    hot.record_report(&id("a"), vec![block("k", 150)], seconds(10));
    hot.record_report(&id("b"), vec![block("k", 150)], seconds(10));
    hot.weigh_reports(8, seconds(10)).unwrap();
    assert_eq!(workers_of(&hot, "k"), 3);
    // Reports of three rounds are believed.
    assert_eq!(hot.weigh_reports(8, seconds(19)), None);
    assert_eq!(hot.hot_view().hottest[0].bytes_per_second, 300 * MIB);
    assert_eq!(hot.weigh_reports(8, seconds(20)), None);
    assert_eq!(hot.hot_view().hottest[0].bytes_per_second, 0);
    assert_eq!(hot.weigh_reports(8, seconds(49)), None);
    assert_eq!(hot.weigh_reports(8, seconds(50)).unwrap().blocks, []);
}

#[test]
fn the_list_is_bounded_and_has_the_hottest() {
    let mut hot = heard();
    let many = (0..20).map(|n| block(&format!("k{n}"), 200 + n)).collect();
    hot.record_report(&id("a"), many, seconds(10));
    let list = hot.weigh_reports(8, seconds(10)).unwrap();
    assert_eq!(
        (list.blocks.len(), hot.block_counts()),
        (3, (3, 6, 7)),
        "ten of a worker's blocks are heard, three have a place"
    );
    assert!((7..10).all(|n| workers_of(&hot, &format!("k{n}")) == 3));
    // A block with a place keeps it as long as it is hot.
    hot.record_report(
        &id("a"),
        vec![block("k20", 5000), block("k9", 200), block("k8", 200), block("k7", 200)],
        seconds(11),
    );
    assert_eq!(hot.weigh_reports(8, seconds(11)), None);
    assert_eq!((hot.block_counts().2, hot.hot_view().hottest.len()), (1, 3));
    let long = block(&"x".repeat(3000), 900);
    hot.record_report(&id("b"), vec![long], seconds(11));
    assert_eq!(
        (hot.weigh_reports(8, seconds(11)), hot.block_counts().2),
        (None, 1),
        "no object has such a name"
    );
}

#[test]
fn a_new_leader_listens_before_it_publishes_a_list_of_its_own() {
    let mut hot = HotBlockTable::new(settings(), RENEWED, seconds(100));
    hot.record_report(&id("a"), vec![block("k", 150)], seconds(101));
    assert_eq!(hot.weigh_reports(8, seconds(101)), None);
    assert_eq!(hot.weigh_reports(8, seconds(105)), None);
    let list = hot.weigh_reports(8, seconds(106)).unwrap();
    assert_eq!(list.blocks.len(), 1);
    assert_ne!(list.version, 0);
    let other = HotBlockTable::new(settings(), RENEWED, seconds(100))
        .weigh_reports(8, seconds(106))
        .unwrap();
    assert_ne!(list.version, other.version);
    assert_eq!(other.blocks, [], "also where nothing is hot: gateways may know of something");
}

#[test]
fn with_one_worker_a_block_reports_are_off_and_heat_is_cleared() {
    let off = CoordinatorHotSettings { workers_max: 1, ..settings() };
    assert_eq!(HotBlockTable::report_wish(&off), None);
    assert_eq!(HotBlockTable::report_wish(&settings()).unwrap().rate_min, 100 * MIB / 8);
    let mut hot = HotBlockTable::new(off, RENEWED, seconds(0));
    hot.record_report(&id("a"), vec![block("k", 5000)], seconds(5));
    assert_eq!(hot.weigh_reports(8, seconds(5)), None, "as any leader, it listens first");
    let list = hot.weigh_reports(8, seconds(6)).unwrap();
    assert_ne!(
        list.version, 0,
        "gateways may go by a list of a leader from before this was configured"
    );
    assert_eq!(list.blocks, []);
    for second in 7..60 {
        hot.record_report(&id("a"), vec![block("k", 5000)], seconds(second));
        assert_eq!((hot.weigh_reports(8, seconds(second)), hot.block_counts()), (None, (0, 0, 0)));
    }
}

//! What is asked, by pattern.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use super::*;
use crate::scenario::LoadShare;

fn scenario(access: &str, more: &str) -> BenchScenario {
    let text = format!(
        "name = \"x\"\n[objects]\ncount = 12\nbytes = \
        \"1MiB\"\n{more}[access]\n{access}\n[load]\nconnections = 4\n"
    );
    BenchScenario::parse(&text).unwrap()
}

/// What stream `stream` of four asks in its turns.
fn asked(plan: &BenchRequestPlan<'_>, stream: u64, turns: u64) -> Vec<BenchPlanStep> {
    let mut steps = Vec::new();
    for turn in 0..turns {
        if !plan.append_operation(
            BenchOperationTurn { index: stream + 4 * turn, stream, turn },
            &mut steps,
        ) {
            break;
        }
    }
    steps
}

fn all(plan: &BenchRequestPlan<'_>, turns: u64) -> Vec<BenchPlanStep> {
    (0..4).flat_map(|stream| asked(plan, stream, turns)).collect()
}

#[test]
fn ranges_lie_within_their_object_and_are_aligned() {
    let scenario = scenario("pattern = \"uniform\"\nrange_bytes = \"64KiB\"\nalign = \"4KiB\"", "");
    let steps = all(&BenchRequestPlan::new(&scenario, BenchRound::Measured(0)), 500);
    let firsts: HashSet<u64> = steps.iter().map(|step| step.first).collect();
    assert!(steps.iter().all(|step| step.bytes == 65_536
        && step.first % 4096 == 0
        && step.first + step.bytes <= 1 << 20));
    assert!(
        firsts.len() > 200 && firsts.contains(&0) && firsts.contains(&((1 << 20) - 65_536)),
        "{}",
        firsts.len()
    );
    let objects: HashSet<u64> = steps.iter().map(|step| step.object).collect();
    assert_eq!(objects.len(), 12);
}

#[test]
fn a_run_can_be_repeated_and_rounds_differ() {
    let scenario = scenario("pattern = \"zipf\"", "");
    let steps = |round| all(&BenchRequestPlan::new(&scenario, round), 100);
    assert_eq!(steps(BenchRound::Measured(1)), steps(BenchRound::Measured(1)));
    assert_ne!(steps(BenchRound::Measured(1)), steps(BenchRound::Measured(2)));
}

#[test]
fn an_epoch_reads_each_object_once_and_no_fresh_object_twice() {
    let again = scenario("pattern = \"shuffle\"", "");
    let plan = BenchRequestPlan::new(&again, BenchRound::Measured(0));
    let epoch = |epoch: u64| -> Vec<u64> {
        let mut steps = Vec::new();
        for index in epoch * 12..(epoch + 1) * 12 {
            assert!(plan.append_operation(
                BenchOperationTurn { index, stream: 0, turn: index },
                &mut steps
            ));
        }
        steps.iter().map(|step| step.object).collect()
    };
    assert_eq!(epoch(0).iter().collect::<HashSet<_>>().len(), 12);
    assert_ne!(epoch(0), epoch(1));

    let fresh = scenario("pattern = \"shuffle\"", "fresh = true\n");
    let plan = BenchRequestPlan::new(&fresh, BenchRound::Measured(3));
    assert_eq!(all(&plan, 100).len(), 12);
    assert_ne!(
        plan.object_key(5),
        BenchRequestPlan::new(&fresh, BenchRound::Measured(4)).object_key(5)
    );
    assert_ne!(plan.object_key(5), BenchRequestPlan::new(&fresh, BenchRound::WarmUp).object_key(5));
}

#[test]
fn shards_are_read_from_start_to_end_by_one_stream_each() {
    let scenario = scenario("pattern = \"sequential\"\nrange_bytes = \"300KiB\"", "fresh = true\n");
    let plan = BenchRequestPlan::new(&scenario, BenchRound::Measured(0));
    let steps = asked(&plan, 1, 100);
    assert_eq!(
        steps.iter().map(|step| step.object).collect::<Vec<_>>(),
        [[1; 4], [5; 4], [9; 4]].concat()
    );
    for shard in steps.chunks(4) {
        let mut at = 0;
        for step in shard {
            assert_eq!(step.first, at);
            at += step.bytes;
        }
        assert_eq!(at, 1 << 20);
    }
    let objects: HashSet<u64> = all(&plan, 100).iter().map(|step| step.object).collect();
    assert_eq!(objects.len(), 12);
}

#[test]
fn a_scan_reads_the_footer_and_then_chunks_of_chosen_columns() {
    let scenario = scenario(
        "pattern = \"parquet\"\nfooter_bytes = \"16KiB\"\nrow_groups = 3\ncolumns = \
        10\ncolumns_read = 2",
        "",
    );
    let plan = BenchRequestPlan::new(&scenario, BenchRound::Measured(0));
    let mut steps = Vec::new();
    assert!(plan.append_operation(BenchOperationTurn { index: 0, stream: 0, turn: 0 }, &mut steps));
    assert_eq!(
        (steps[0].kind, steps[0].first, steps[0].bytes),
        (ExchangeKind::Footer, (1 << 20) - 16_384, 16_384)
    );
    assert_eq!(steps.len(), 1 + 3 * 2);
    let chunk = ((1 << 20) - 16_384) / 30;
    let columns = |group: usize| -> Vec<u64> {
        steps[1 + group * 2..3 + group * 2]
            .iter()
            .map(|step| step.first / chunk - 10 * group as u64)
            .collect()
    };
    assert!(columns(0) == columns(1) && columns(1) == columns(2), "the same columns of each group");
    assert!(columns(0)[0] < columns(0)[1] && columns(0)[1] < 10);
    assert!(steps[1..].iter().all(|step| step.kind == ExchangeKind::Chunk
        && step.bytes == chunk
        && step.first + chunk <= steps[0].first));
}

#[test]
fn each_writer_has_its_own_keys_and_each_write_its_own_version() {
    let scenario = scenario("pattern = \"write\"\nread_back = true", "");
    let plan = BenchRequestPlan::new(&scenario, BenchRound::Measured(0));
    let mut versions = HashSet::new();
    for stream in 0..4 {
        for pair in asked(&plan, stream, 10).chunks(2) {
            assert_eq!((pair[0].kind, pair[1].kind), (ExchangeKind::Put, ExchangeKind::ReadBack));
            assert_eq!((pair[0].object, pair[0].version), (pair[1].object, pair[1].version));
            assert_eq!(pair[0].object % 4, stream);
            assert!(versions.insert(pair[0].version));
        }
    }
}

#[test]
fn lengths_are_spread_over_doublings() {
    let text = "name = \"x\"\n[objects]\ncount = 4000\nbytes = { from = \"1KiB\", to = \"64KiB\" \
        }\n[access]\npattern = \"shuffle\"\n";
    let scenario = BenchScenario::parse(text).unwrap();
    let plan = BenchRequestPlan::new(&scenario, BenchRound::Measured(0));
    let lengths: Vec<u64> = (0..4000).map(|object| plan.object_bytes(object)).collect();
    assert!(lengths.iter().all(|bytes| (1024..=65_536).contains(bytes)));
    let below = lengths.iter().filter(|bytes| **bytes < 8192).count();
    assert!((1850..2150).contains(&below), "{below} of 4000 below the middle doubling");
}

/// What `agents` processes of four streams ask together, each in its share.
fn asked_by_agents(text: (&str, &str), agents: u64, turns: u64) -> Vec<Vec<BenchPlanStep>> {
    let (access, more) = text;
    let of_agent = |number| {
        let mut scenario = scenario(access, more);
        scenario.share = LoadShare { number, count: agents };
        let plan = BenchRequestPlan::new(&scenario, BenchRound::Measured(1));
        all(&plan, turns)
    };
    (0..agents).map(of_agent).collect()
}

#[test]
fn no_two_agents_read_the_same_fresh_object() {
    let fresh = "fresh = true\n";
    for (access, pieces) in [
        ("pattern = \"shuffle\"", 1),
        ("pattern = \"sequential\"\nrange_bytes = \"512KiB\"", 2),
        ("pattern = \"parquet\"\nrow_groups = 1\ncolumns = 1\ncolumns_read = 1", 2),
    ] {
        let asked = asked_by_agents((access, fresh), 3, 50);
        let ranges =
            asked.concat().iter().map(|step| (step.object, step.first)).collect::<Vec<_>>();
        assert_eq!(ranges.len(), 12 * pieces, "{access}: all of them are read");
        let once: HashSet<_> = ranges.iter().collect();
        assert_eq!(once.len(), ranges.len(), "{access}: and none twice");
        assert!(asked.iter().all(|steps| !steps.is_empty()), "{access}: each agent has some");
    }
}

#[test]
fn agents_write_keys_of_their_own_and_read_in_other_orders() {
    let writing = asked_by_agents(("pattern = \"write\"", ""), 3, 7);
    for (at, steps) in writing.iter().enumerate() {
        let keys =
            |steps: &[BenchPlanStep]| steps.iter().map(|step| step.object).collect::<HashSet<_>>();
        for others in &writing[..at] {
            assert!(keys(steps).is_disjoint(&keys(others)), "{writing:?}");
        }
    }
    let uniform = asked_by_agents(("pattern = \"uniform\"", ""), 2, 20);
    assert_ne!(uniform[0], uniform[1]);
    // One alone asks as ever.
    let alone = asked_by_agents(("pattern = \"uniform\"", ""), 1, 20);
    let scenario = scenario("pattern = \"uniform\"", "");
    assert_eq!(alone[0], all(&BenchRequestPlan::new(&scenario, BenchRound::Measured(1)), 20));
}

#[test]
fn heads_of_absent_keys_name_no_object() {
    let scenario = scenario("pattern = \"head\"\nabsent = 0.25", "");
    let plan = BenchRequestPlan::new(&scenario, BenchRound::Measured(0));
    let steps = all(&plan, 500);
    let (absent, present): (Vec<&BenchPlanStep>, Vec<&BenchPlanStep>) =
        steps.iter().partition(|step| step.kind == ExchangeKind::Absent);
    assert!((400..600).contains(&absent.len()) && present.len() == 2000 - absent.len());
    let stored: HashSet<String> = (0..12).map(|object| plan.object_key(object)).collect();
    assert!(
        present.iter().all(|step| step.kind == ExchangeKind::Head
            && stored.contains(&plan.object_key(step.object)))
    );
    assert!(absent.iter().all(|step| !stored.contains(&plan.object_key(step.object))));
}

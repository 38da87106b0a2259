//! Simulates a cluster of any size in one process, faster than real time. The membership
//! ([`crate::membership::MembershipController`]), the leases
//! ([`verbs3_coordinator_client::worker_lease::WorkerLease`]), the maps and the encoded answers are
//! real. The clock jumps from event to event. [`world`] and [`coordinators`] say what is made up:
//! delays of the network, of the store and of computing a map.
//!
//! `SIMULATION.md` is its report. Renewing it takes some minutes (`SEED=` for another history):
//!
//! ```text
//! BLESS=1 cargo test --release --workspace --lib simulation -- --include-ignored
//! ```

mod coordinators;
mod event_loop;
mod events;
mod gateways;
mod report;
mod scenario;
mod workers;
mod world;

use std::path::Path;

use scenario::SimulationMeasurement;
use world::SimulationScale;

/// The largest promised cluster.
const LARGE: SimulationScale = SimulationScale {
    workers: 1000,
    gateways: 10_000,
    racks: 25,
    upgraded: 4,
    joining: 100,
    open_writes: 2,
    compute_ms: 300,
};
/// A cluster that is small enough for every run of the tests.
const SMALL: SimulationScale = SimulationScale {
    workers: 40,
    gateways: 400,
    racks: 5,
    upgraded: 5,
    joining: 4,
    open_writes: 2,
    compute_ms: 10,
};

const SEED: u64 = 20_261_121;

fn read_seed() -> u64 {
    let seed =
        std::env::var("SEED").map_or(SEED, |text| text.parse().expect("SEED is a decimal number"));
    println!("SEED={seed}");
    seed
}

fn is_blessing() -> bool {
    std::env::var_os("BLESS").is_some()
}

/// Compares a part of the report with the written one, or writes it.
fn check_report_part(part: &str, scale: &SimulationScale, all: &[SimulationMeasurement]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SIMULATION.md");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let table = report::render_table(scale, all);
    println!("{table}");
    if std::env::var_os("SEED").is_some() {
        return;
    }
    if is_blessing() {
        std::fs::write(&path, report::replace_part(&found, part, &table))
            .expect("the report can be written");
    } else {
        let there = report::find_part(&found, part);
        assert_eq!(
            there,
            Some(table.as_str()),
            "SIMULATION.md is not what the simulation says; BLESS=1 writes it anew"
        );
    }
}

/// Checks what is promised at any scale.
fn check_promises(scale: &SimulationScale, all: &[SimulationMeasurement]) {
    for measured in all {
        let SimulationMeasurement {
            name,
            moved,
            share,
            moved_beyond_share,
            imbalance,
            asking_longest,
            ..
        } = measured;
        if name == "the leader is killed" {
            assert!(asking_longest.is_zero(), "{name}: a lease was over for {asking_longest:?}");
        }
        assert!(
            *moved_beyond_share <= 0.02,
            "{name}: a map moved {moved_beyond_share} of all slots beyond its share"
        );
        // Holds for any number of steps. An upgrade counts as one join for each rack.
        let joins = if name.starts_with("rolling") { scale.upgraded as f64 } else { 1.0 };
        assert!(
            *moved <= share + joins * 0.02,
            "{name}: {moved} of all slots moved where {share} had to"
        );
        assert!(*imbalance <= 1.15, "{name}: one worker has {imbalance} of its share");
    }
}

#[test]
fn a_small_cluster_does_as_the_report_says() {
    let all = scenario::run_scenarios(&SMALL, read_seed());
    check_promises(&SMALL, &all);
    check_report_part("small", &SMALL, &all);
}

/// Some minutes of CPU. The report holds what came of it.
#[test]
#[ignore = "some minutes: see the module's head"]
fn a_large_cluster_does_as_the_report_says() {
    let all = scenario::run_scenarios(&LARGE, read_seed());
    check_promises(&LARGE, &all);
    check_report_part("large", &LARGE, &all);
}

//! Hundreds of short histories of concurrent writers and readers on several gateways, while workers
//! are killed, stopped, restarted and drained, links are cut in one direction or both, and leaders
//! are deposed: no read that starts after a write's acknowledgement sees an older version, no body
//! mixes two.
//!
//! Workers, the gateways' client of the tier, the leader's `Cluster` and the workers' `Tenure` are
//! the real ones, in one thread whose time is virtual: leases run out in no time, and answers take
//! as long as chance has it. What stands for the network, the store and the talk with the
//! coordinators is in the modules here. `ROUNDS=` says how many, `SEED=` begins with the same
//! choices (jitter within the components is their own).
#![allow(clippy::unwrap_used)]

mod control;
mod gateway;
mod history_world;
mod key;
mod network;
mod process;
mod versioned_store;

use std::sync::atomic::{AtomicUsize, Ordering};

use history_world::{HistoryWorld, Summary};
use verbs3_tests::seed;

/// In each run of the tests.
const ROUNDS: usize = 200;

/// One history, in a thread whose time is virtual.
fn history(seed: u64) -> Summary {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let summary = runtime.block_on(async { HistoryWorld::new(seed).run().await });
    // Tasks of processes that were killed are dropped with it.
    drop(runtime);
    summary
}

#[test]
fn hundreds_of_histories_read_no_less_than_was_acknowledged() {
    let (first, rounds) = (seed::from_environment(), seed::rounds(ROUNDS));
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut sum = Summary::default();
        loop {
            let round = next.fetch_add(1, Ordering::Relaxed);
            if round >= rounds {
                return sum;
            }
            let seed = first.wrapping_add(round as u64);
            // Said before it runs: a panic names it.
            let told = Told(seed);
            sum.add(&history(seed));
            std::mem::forget(told);
        }
    };
    let lanes = std::thread::available_parallelism().map_or(2, usize::from).min(rounds);
    let sum = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let mut sum = Summary::default();
        lanes
            .into_iter()
            .for_each(|lane| sum.add(&lane.join().expect("a history had what can't be")));
        sum
    });
    println!("{rounds} histories: {sum:?}");
    let rounds = rounds as u64;
    // They mean something: much was read from what homes knew, and much happened to them.
    assert!(sum.known > 50 * rounds && sum.acknowledged > 10 * rounds, "{sum:?}");
    assert!(sum.maps > 2 * rounds && sum.troubles > 5 * rounds, "{sum:?}");
    assert!(sum.leased > rounds && sum.recalled > rounds && sum.held > rounds, "{sum:?}");
    assert!(rounds < 50 || sum.absences > rounds, "{sum:?}");
    assert!(rounds < 50 || (sum.lost > 0 && sum.failed > 0 && sum.past_the_tier > 0), "{sum:?}");
}

/// Names the history that failed.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("SEED={} ROUNDS=1 is the history that failed", self.0);
    }
}

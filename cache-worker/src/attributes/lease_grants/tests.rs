#![allow(clippy::unwrap_used)]
use super::*;
use crate::attributes::{CoherenceTable, DoubtOptions};
use crate::clock::ManualWorkerClock;
use crate::metrics::LeaseWait;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 4;
const HOLDERS: u64 = 3;

fn grants(grants_max: usize) -> Arc<LeaseGrantTable> {
    let metrics = WorkerMetrics::new(&prometheus::Registry::new()).unwrap();
    Arc::new(LeaseGrantTable::new(GrantOptions { grants_max, holders_max: 10 }, metrics))
}

fn hash(key: u64) -> KeyHash {
    KeyHash((key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn at(ms: u64) -> WorkerInstant {
    WorkerInstant::default().saturating_add(Duration::from_millis(ms))
}

fn lease(hash: KeyHash, holder: u64, end: WorkerInstant) -> NewLease {
    NewLease { hash, holder: HolderId(holder), end, in_doubt: false }
}

fn key(key: u64) -> RecallScope {
    RecallScope::Keys(vec![hash(key)])
}

/// A gateway as the table has to fear it: it reads on from whatever it holds, until its end or
/// until it hears otherwise.
#[derive(Default)]
struct Gateway {
    /// The end of each lease, and whether what it is on has changed since.
    holds: BTreeMap<u64, (u64, bool)>,
    through: u64,
}

#[derive(Debug, Clone)]
enum Event {
    Grant {
        key: u64,
        holder: u64,
        ms: u64,
    },
    Recall(Vec<u64>),
    RecallAll,
    Poll {
        holder: u64,
        lost: bool,
    },
    Pass(u64),
    /// What is over is looked for.
    Sweep,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..KEYS, 0..HOLDERS, 1..60u64).prop_map(|(key, holder, ms)| Event::Grant { key, holder, ms }),
        2 => prop::collection::vec(0..KEYS, 1..3).prop_map(Event::Recall),
        1 => Just(Event::RecallAll),
        4 => (0..HOLDERS, any::<bool>()).prop_map(|(holder, lost)| Event::Poll { holder, lost }),
        2 => (1..40u64).prop_map(Event::Pass),
        1 => Just(Event::Sweep),
    ];
    prop::collection::vec(event, 1..80)
}

fn poll(grants: &LeaseGrantTable, holder: u64, gateway: &mut Gateway, lost: bool, ms: u64) {
    let poll = grants.poll(HolderId(holder), gateway.through, at(ms)).unwrap();
    let recalled = poll.build_answer(1, at(ms));
    if lost {
        return;
    }
    gateway.through = recalled.through;
    gateway.holds.retain(|&key, _| !recalled.all && !recalled.keys.contains(&hash(key)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// Whatever the order of grants, recalls, polls whose answers come or are lost, and time:
    /// nothing is called settled while a gateway may read on from what has changed; and when all
    /// have polled, nothing is waited for.
    #[test]
    fn nothing_is_settled_while_a_holder_may_read_on(events in events()) {
        let grants = grants(1000);
        let mut gateways: Vec<Gateway> = (0..HOLDERS).map(|_| Gateway::default()).collect();
        let mut ms = 0;
        // Nobody else is granted anything.
        for holder in 0..HOLDERS {
            poll(&grants, holder, &mut gateways[holder as usize], false, ms);
        }
        for event in events {
            match event {
                Event::Grant { key, holder, ms: long } => {
                    let end = ms + long;
                    if grants.grant_lease(lease(hash(key), holder, at(end)), at(ms), || true).is_ok() {
                        let held = gateways[holder as usize].holds.entry(key).or_insert((end, false));
                        prop_assert!(!held.1 || held.0 <= ms,
                            "granted anew while the former one is still read from");
                        *held = (held.0.max(end), false);
                    }
                }
                Event::Recall(keys) => {
                    grants.recall_leases(&keys.iter().map(|&key| hash(key)).collect::<Vec<_>>());
                    for (key, held) in gateways.iter_mut().flat_map(|gateway| &mut gateway.holds) {
                        held.1 |= keys.contains(key);
                    }
                }
                Event::RecallAll => {
                    grants.recall_all();
                    gateways.iter_mut().flat_map(|gateway| gateway.holds.values_mut()).for_each(|held| held.1 = true);
                }
                Event::Poll { holder, lost } => poll(&grants, holder, &mut gateways[holder as usize], lost, ms),
                Event::Pass(passed) => ms += passed,
                Event::Sweep => grants.sweep_expired(at(ms)),
            }
            let mut any = None;
            for number in 0..KEYS {
                let old = gateways.iter().filter_map(|gateway| gateway.holds.get(&number));
                let until = old.filter(|held| held.1 && held.0 > ms).map(|held| at(held.0)).max();
                prop_assert!(grants.latest_recalled_end(&key(number), at(ms)) >= until,
                    "key {number} at {ms}");
                any = any.max(until);
            }
            prop_assert!(grants.latest_recalled_end(&RecallScope::All, at(ms)) >= any);
            prop_assert_eq!(grants.latest_recalled_end(&RecallScope::Nobody, at(ms)), None);
        }
        // Once for "all", once for what came after it, and once to say that that has come, too.
        for holder in (0..HOLDERS).chain(0..HOLDERS).chain(0..HOLDERS) {
            poll(&grants, holder, &mut gateways[holder as usize], false, ms);
        }
        prop_assert_eq!(grants.latest_recalled_end(&RecallScope::All, at(ms)), None);
        grants.sweep_expired(at(ms + 1000));
        prop_assert_eq!(grants.lease_and_holder_counts().0, 0, "places that nobody has");
    }
}

#[test]
fn a_grant_or_the_invalidation_that_races_it_sees_the_other() {
    let grants = grants(10);
    let doubts = DoubtOptions { length: Duration::ZERO, age_max: Duration::ZERO, keys_max: 1 };
    let coherence = Arc::new(CoherenceTable::new(16, 10, doubts, grants.clone(), Arc::default()));
    let generation = coherence.admit_key(hash(0), at(0)).unwrap();
    let raising = std::cell::Cell::new(None);
    let valid = || {
        // It is on its way: it has raised the generation, and stands before the table.
        let writer = coherence.clone();
        raising.set(Some(std::thread::spawn(move || writer.raise_generations(&[hash(0)], at(0)))));
        while coherence.current_generation(hash(0)) == generation {
            std::thread::yield_now();
        }
        coherence.is_generation_valid(hash(0), generation, at(0))
    };
    assert_eq!(
        grants.grant_lease(lease(hash(0), 1, at(50)), at(0), valid),
        Err(LeaseGrantError::Void)
    );
    raising.take().unwrap().join().unwrap();
    assert_eq!(grants.latest_recalled_end(&key(0), at(0)), None);
    // And one that comes after the grant finds it.
    let generation = coherence.admit_key(hash(0), at(0)).unwrap();
    let valid = || coherence.is_generation_valid(hash(0), generation, at(0));
    grants.grant_lease(lease(hash(0), 1, at(50)), at(0), valid).unwrap();
    coherence.raise_generations(&[hash(0)], at(0));
    assert_eq!(grants.latest_recalled_end(&key(0), at(0)), Some(at(50)));
}

#[test]
fn a_recall_repeats_until_its_own_process_is_acknowledged() {
    let grants = grants(10);
    let poll = |through| grants.poll(HolderId(1), through, at(0)).unwrap().build_answer(7, at(0));
    assert_eq!(
        poll(0),
        verbs3_protocol::RecallReply { life: 7, through: 0, keys: vec![], all: false }
    );
    grants.grant_lease(lease(hash(0), 1, at(50)), at(0), || true).unwrap();
    // A number that this process has not given.
    poll(1000);
    grants.recall_leases(&[hash(0)]);
    assert_eq!(grants.latest_recalled_end(&key(0), at(0)), Some(at(50)));
    let (first, second) = (poll(0), poll(0));
    assert_eq!((&first, first.keys.as_slice()), (&second, &[hash(0)][..]));
    assert_eq!(
        grants.latest_recalled_end(&key(0), at(0)),
        Some(at(50)),
        "said, but not acknowledged"
    );
    poll(first.through);
    assert_eq!(grants.latest_recalled_end(&key(0), at(0)), None);
}

#[test]
fn a_holder_with_too_many_recalls_is_told_to_drop_all() {
    let grants = grants(100_000);
    grants.poll(HolderId(1), 0, at(0)).unwrap();
    let hashes: Vec<KeyHash> = (0..5000).map(hash).collect();
    for &hash in &hashes {
        grants.grant_lease(lease(hash, 1, at(50)), at(0), || true).unwrap();
    }
    grants.recall_leases(&hashes);
    let mut through = 0;
    let mut all = false;
    for _ in 0..3 {
        let told = grants.poll(HolderId(1), through, at(0)).unwrap().build_answer(7, at(0));
        assert!(told.keys.len() <= verbs3_protocol::RECALLED_KEYS_MAX);
        (through, all) = (told.through, all || told.all);
    }
    assert!(all);
    assert_eq!(grants.latest_recalled_end(&RecallScope::Keys(hashes), at(0)), None);
}

#[test]
fn a_full_table_grants_no_lease_until_one_expires() {
    let grants = grants(2);
    let grant =
        |number, ms| grants.grant_lease(lease(hash(number), 1, at(ms + 10)), at(ms), || true);
    assert_eq!(
        [grant(0, 0), grant(1, 0), grant(2, 0)],
        [Ok(()), Ok(()), Err(LeaseGrantError::Full)]
    );
    grants.sweep_expired(at(10));
    assert_eq!((grant(2, 10), grants.lease_and_holder_counts().0), (Ok(()), 1));
    assert_eq!(
        grants.grant_lease(lease(hash(3), 1, at(50)), at(10), || false),
        Err(LeaseGrantError::Void)
    );
    assert_eq!(grants.lease_and_holder_counts().0, 1);
}

#[tokio::test]
async fn a_waiter_goes_on_once_the_lease_is_dropped_or_expired() {
    let (grants, clock) = (grants(10), Arc::new(ManualWorkerClock::default()));
    for by_time in [false, true] {
        let now = clock.now();
        let waiting = key(0);
        grants.poll(HolderId(1), 0, now).unwrap();
        let end = now.saturating_add(Duration::from_secs(1));
        grants.grant_lease(lease(hash(0), 1, end), now, || true).unwrap();
        grants.recall_leases(&[hash(0)]);
        let settled = grants.wait_for_recalls(&waiting, &*clock);
        tokio::pin!(settled);
        assert!(futures::poll!(settled.as_mut()).is_pending());
        if by_time {
            clock.advance_time(Duration::from_secs(1));
        } else {
            let told = grants.poll(HolderId(1), 0, now).unwrap().build_answer(7, now);
            assert!(futures::poll!(settled.as_mut()).is_pending(), "told, not acknowledged");
            grants.poll(HolderId(1), told.through, now).unwrap();
        }
        settled.await;
    }
    assert_eq!(
        (
            grants.metrics.lease_waits[LeaseWait::Any].get(),
            grants.metrics.lease_waits[LeaseWait::End].get()
        ),
        (2, 1)
    );
}

#[tokio::test]
async fn a_poll_hears_of_a_recall_at_once_and_of_the_end() {
    let grants = grants(10);
    let mut poll = grants.poll(HolderId(1), 0, at(0)).unwrap();
    assert!(
        grants.is_polled_by(HolderId(1), at(60_000)) && !grants.is_polled_by(HolderId(2), at(0))
    );
    grants.grant_lease(lease(hash(0), 1, at(50)), at(0), || true).unwrap();
    {
        let recalled = poll.wait_for_recall();
        tokio::pin!(recalled);
        assert!(futures::poll!(recalled.as_mut()).is_pending());
        grants.recall_leases(&[hash(0)]);
        recalled.await;
    }
    let through = poll.build_answer(7, at(0)).through;
    drop(poll);
    assert!(
        grants.is_polled_by(HolderId(1), at(900)) && !grants.is_polled_by(HolderId(1), at(1000))
    );
    let mut poll = grants.poll(HolderId(1), through, at(1000)).unwrap();
    grants.close_polls();
    poll.wait_for_recall().await;
    assert!(
        !grants.is_polled_by(HolderId(1), at(1000))
            && grants.poll(HolderId(1), 0, at(1000)).is_err()
    );
}

#[tokio::test]
async fn a_holder_that_polls_again_waits_for_a_new_recall() {
    let grants = grants(10);
    let poll = |through| grants.poll(HolderId(1), through, at(0)).unwrap();
    drop(poll(0));
    grants.grant_lease(lease(hash(0), 1, at(1000)), at(0), || true).unwrap();
    grants.recall_leases(&[hash(0)]);
    let told = poll(0).build_answer(7, at(0));
    drop(poll(told.through));
    let mut anew = poll(0);
    assert!(futures::FutureExt::now_or_never(anew.wait_for_recall()).is_none());
    assert_eq!(anew.build_answer(7, at(0)).through, told.through);
}

#[test]
fn the_end_of_a_doubt_recalls_what_was_granted_in_doubt_alone() {
    let grants = grants(10);
    let grant = |number, in_doubt| {
        let lease = NewLease { in_doubt, ..lease(hash(number), 1, at(50)) };
        grants.grant_lease(lease, at(0), || true).unwrap();
    };
    grants.recall_doubted();
    (0..3).for_each(|number| grant(number, false));
    grant(3, true);
    // Renewed in doubt: it may be of attributes that were learnt in it.
    grant(2, true);
    grants.recall_doubted();
    let is_recalled = |number| grants.latest_recalled_end(&key(number), at(0)).is_some();
    assert_eq!([0, 1, 2, 3].map(is_recalled), [false, false, true, true]);
}

//! The queue alone, under a clock of the tests.
#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

const ACTIVE_FOR: Duration = Duration::from_secs(10);

fn party(number: u32) -> FairParty {
    FairParty { number, weight: 1, is_alone: false }
}

fn queue(capacity: u64, reserve: u64, waiting_max: usize) -> FairQueue<u32> {
    FairQueue::new(FairLimits { capacity, reserve, waiting_max, active_for: ACTIVE_FOR })
}

/// Has a party wait for one unit; it is told by its own number.
fn wait(queue: &mut FairQueue<u32>, number: u32) -> u64 {
    match queue.join_queue(party(number), 1, number) {
        QueueAnswer::Waits { ticket, displaced: None } => ticket,
        other => panic!("{number} does not simply wait: {other:?}"),
    }
}

fn take_all(queue: &mut FairQueue<u32>, party: FairParty, now: Instant) -> u64 {
    (0..).take_while(|_| queue.try_take(party, 1, now)).count() as u64
}

#[test]
fn while_there_is_room_anybody_is_served_at_once() {
    let (mut queue, now) = (queue(10, 0, 4), Instant::now());
    assert_eq!(take_all(&mut queue, party(1), now), 10);
    queue.give_back(party(1), 1);
    assert!(queue.try_take(party(2), 1, now) && !queue.try_take(party(2), 1, now));
}

#[test]
fn what_becomes_free_goes_to_who_holds_least() {
    let (mut queue, now) = (queue(10, 0, 100), Instant::now());
    take_all(&mut queue, party(1), now);
    for _ in 0..20 {
        wait(&mut queue, 1);
    }
    for _ in 0..6 {
        wait(&mut queue, 2);
    }
    for held in 1..=5 {
        queue.give_back(party(1), 1);
        assert_eq!(queue.serve_next(now), Some(2), "it holds {held} less than its half");
        assert_eq!(queue.serve_next(now), None);
    }
    queue.give_back(party(1), 1);
    let next = queue.serve_next(now);
    assert_eq!(next, Some(1), "the first holds 4, the other 5");
}

#[test]
fn weights_say_what_the_shares_are() {
    let (mut queue, now) = (queue(12, 0, 100), Instant::now());
    let heavy = FairParty { weight: 3, ..party(1) };
    take_all(&mut queue, party(2), now);
    for _ in 0..20 {
        let _ = queue.join_queue(heavy, 1, 1);
        wait(&mut queue, 2);
    }
    let mut held = [0, 0, 12];
    for _ in 0..40 {
        let gives = if held[2] > 3 { 2 } else { 1 };
        queue.give_back(party(gives), 1);
        held[gives as usize] -= 1;
        let next = queue.serve_next(now).unwrap();
        held[next as usize] += 1;
        if queue.waiting_count() < 10 {
            break;
        }
    }
    assert!((8..=10).contains(&held[1]), "three of four parts: {held:?}");
}

#[test]
fn newcomer_below_its_share_passes_those_who_wait_above_theirs() {
    let (mut queue, now) = (queue(10, 2, 100), Instant::now());
    assert!(queue.try_take(party(2), 1, now));
    let greedy = take_all(&mut queue, party(1), now);
    assert_eq!(greedy, 7, "the reserve of 2 is not for it");
    wait(&mut queue, 1);
    assert_eq!(queue.serve_next(now), None);
    assert!(queue.try_take(party(2), 1, now), "the reserve is for this one");
}

#[test]
fn reserve_is_lent_while_nobody_else_is_active() {
    let (mut queue, now) = (queue(100, 20, 4), Instant::now());
    assert_eq!(take_all(&mut queue, party(1), now), 98, "all but a tenth of the reserve");
    assert!(queue.try_take(party(2), 1, now), "a newcomer finds something");
    queue.give_back(party(2), 1);
    queue.give_back(party(1), 10);
    assert!(!queue.try_take(party(1), 1, now), "the other one was here just now");
    let later = now + ACTIVE_FOR;
    assert_eq!(take_all(&mut queue, party(1), later), 10);
}

#[test]
fn party_that_is_alone_may_hold_everything() {
    let (mut queue, now) = (queue(10, 5, 4), Instant::now());
    let alone = FairParty { is_alone: true, ..party(1) };
    assert_eq!(take_all(&mut queue, alone, now), 10);
}

#[test]
fn large_request_is_not_passed_for_ever_by_small_ones() {
    let (mut queue, now) = (queue(10, 0, 100), Instant::now());
    for _ in 0..10 {
        assert!(queue.try_take(party(1), 1, now));
    }
    let QueueAnswer::Waits { .. } = queue.join_queue(party(2), 8, 2) else { panic!() };
    for left in (0..8).rev() {
        assert_eq!(queue.serve_next(now), None);
        queue.give_back(party(1), 1);
        assert!(left == 0 || !queue.try_take(party(1), 1, now), "{left} are missing yet");
    }
    assert_eq!(queue.serve_next(now), Some(2));
}

#[test]
fn full_queue_displaces_the_last_of_whom_most_wait() {
    let (mut queue, now) = (queue(1, 0, 3), Instant::now());
    assert!(queue.try_take(party(1), 1, now));
    for _ in 0..3 {
        wait(&mut queue, 1);
    }
    assert_eq!(queue.join_queue(party(1), 1, 1), QueueAnswer::Full);
    let joined = queue.join_queue(party(2), 1, 2);
    assert!(matches!(joined, QueueAnswer::Waits { displaced: Some(1), .. }), "{joined:?}");
    assert_eq!(queue.waiting_count(), 3);
    assert_eq!(queue.join_queue(party(2), 1, 2), QueueAnswer::Full, "two of each would be alike");
}

#[test]
fn who_leaves_the_queue_is_not_served() {
    let (mut queue, now) = (queue(1, 0, 3), Instant::now());
    assert!(queue.try_take(party(1), 1, now));
    let ticket = wait(&mut queue, 2);
    wait(&mut queue, 3);
    assert_eq!(queue.leave_queue(party(2), ticket), Some(2));
    assert_eq!(queue.leave_queue(party(2), ticket), None);
    queue.give_back(party(1), 1);
    assert_eq!((queue.serve_next(now), queue.serve_next(now)), (Some(3), None));
}

#[test]
fn parties_that_hold_alike_take_turns() {
    let (mut queue, now) = (queue(1, 0, 100), Instant::now());
    assert!(queue.try_take(party(1), 1, now));
    for number in [1, 1, 2, 2, 3, 3] {
        wait(&mut queue, number);
    }
    let mut holder = 1;
    let mut served = Vec::new();
    while queue.waiting_count() > 0 {
        queue.give_back(party(holder), 1);
        holder = queue.serve_next(now).unwrap();
        served.push(holder);
    }
    assert_eq!(served, [2, 3, 1, 2, 3, 1]);
}

#[derive(Debug, Clone, Copy)]
enum QueueStep {
    Ask { number: u32, units: u64 },
    GiveBack { holder: usize },
    Leave { waiter: usize },
    Pass { seconds: u64 },
}

fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
    let step = prop_oneof![
        4 => (1u32..5, 1u64..6).prop_map(|(number, units)| QueueStep::Ask { number, units }),
        4 => (0usize..64).prop_map(|holder| QueueStep::GiveBack { holder }),
        1 => (0usize..64).prop_map(|waiter| QueueStep::Leave { waiter }),
        1 => (0u64..20).prop_map(|seconds| QueueStep::Pass { seconds }),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    /// Whatever happens: no more is held than there is, what is held adds up, the queue is bounded,
    /// nobody waits while nothing is held, and everybody is served in the end.
    #[test]
    fn nothing_is_lost_and_nobody_is_forgotten(steps in steps(), reserve in 0u64..6) {
        let limits = FairLimits { capacity: 12, reserve, waiting_max: 6, active_for: ACTIVE_FOR };
        let mut queue: FairQueue<(u32, u64, u64)> = FairQueue::new(limits);
        let mut now = Instant::now();
        let (mut held, mut waiting, mut name) = (Vec::new(), Vec::new(), 0);
        for step in steps {
            match step {
                QueueStep::Ask { number, units } => {
                    if queue.try_take(party(number), units, now) {
                        held.push((number, units));
                    } else {
                        name += 1;
                        let joined = queue.join_queue(party(number), units, (number, units, name));
                        if let QueueAnswer::Waits { ticket, displaced } = joined {
                            waiting.push((ticket, number, name));
                            waiting.retain(|one| displaced.is_none_or(|gone| gone.2 != one.2));
                        }
                    }
                }
                QueueStep::GiveBack { holder } if holder < held.len() => {
                    let (number, units) = held.swap_remove(holder);
                    queue.give_back(party(number), units);
                }
                QueueStep::Leave { waiter } if waiter < waiting.len() => {
                    let (ticket, number, name) = waiting.swap_remove(waiter);
                    prop_assert_eq!(queue.leave_queue(party(number), ticket).unwrap().2, name);
                }
                QueueStep::Pass { seconds } => now += Duration::from_secs(seconds),
                QueueStep::GiveBack { .. } | QueueStep::Leave { .. } => {}
            }
            while let Some((number, units, name)) = queue.serve_next(now) {
                held.push((number, units));
                waiting.retain(|one| one.2 != name);
            }
            let sum: u64 = held.iter().map(|one| one.1).sum();
            prop_assert_eq!(queue.used_units(), sum);
            prop_assert!(sum <= 12 && queue.waiting_count() <= 6);
            prop_assert_eq!(queue.waiting_count(), waiting.len());
            prop_assert!(!held.is_empty() || waiting.is_empty());
        }
        while let Some((number, units)) = held.pop() {
            queue.give_back(party(number), units);
            while let Some((number, units, _)) = queue.serve_next(now) {
                held.push((number, units));
            }
        }
        prop_assert_eq!((queue.used_units(), queue.waiting_count()), (0, 0));
    }
}

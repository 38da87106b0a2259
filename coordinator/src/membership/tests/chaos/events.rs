//! What may happen in a history, and how often.

use super::*;

#[derive(Debug, Clone)]
pub(super) enum Event {
    Pass {
        ms: u64,
    },
    /// A worker sends. Its earlier question is lost to it, though it may still arrive.
    Send {
        worker: usize,
    },
    Arrive {
        worker: usize,
    },
    /// The worker sends, the question arrives, and the answer reaches it.
    Round {
        worker: usize,
    },
    /// The leader does all that it can without interruption.
    Settle,
    /// A question that was given up arrives after all.
    ArriveLate {
        worker: usize,
    },
    Answer {
        worker: usize,
    },
    Step,
    Persisted,
    NewLeader,
    Crash {
        worker: usize,
    },
    Move {
        worker: usize,
    },
    /// Like [`Event::Move`], but the same address leads to the other place.
    Replace {
        worker: usize,
    },
    Leave {
        worker: usize,
    },
    Drain {
        worker: usize,
        draining: bool,
    },
    /// The gateway begins a write, or writes to the UFS.
    Write,
    /// The gateway learns of the map in force.
    Follow,
    /// `older`: if an address leads to several processes, the older one is reached.
    Tell {
        lost: bool,
        older: bool,
    },
    /// One of the answers in flight reaches the gateway, perhaps one of a deposed leader.
    Told {
        which: usize,
    },
    /// Does a step of a write without interruption.
    Attempt,
    /// The gateway stops waiting for what it had relayed.
    HangUp,
    /// Any of its notices is heard again.
    HearLate {
        worker: usize,
        which: usize,
    },
    /// Readers ask the home of any map.
    Read {
        slow: bool,
    },
    Lose {
        worker: usize,
        key: usize,
    },
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let worker = 0..IDS.len();
    let event = prop_oneof![
        4 => (1u64..3000).prop_map(|ms| Event::Pass { ms }),
        1 => (1u64..700_000).prop_map(|ms| Event::Pass { ms }),
        8 => worker.clone().prop_map(|worker| Event::Send { worker }),
        9 => worker.clone().prop_map(|worker| Event::Arrive { worker }),
        2 => worker.clone().prop_map(|worker| Event::ArriveLate { worker }),
        9 => worker.clone().prop_map(|worker| Event::Answer { worker }),
        30 => worker.clone().prop_map(|worker| Event::Round { worker }),
        12 => Just(Event::Settle),
        8 => Just(Event::Step),
        8 => Just(Event::Persisted),
        1 => Just(Event::NewLeader),
        1 => worker.clone().prop_map(|worker| Event::Crash { worker }),
        1 => worker.clone().prop_map(|worker| Event::Move { worker }),
        2 => worker.clone().prop_map(|worker| Event::Replace { worker }),
        2 => worker.clone().prop_map(|worker| Event::Leave { worker }),
        5 => (worker.clone(), any::<bool>()).prop_map(|(worker, draining)| Event::Drain { worker, draining }),
        6 => Just(Event::Write),
        4 => Just(Event::Follow),
        12 => Just(Event::Attempt),
        8 => (prop::bool::weighted(0.2), any::<bool>()).prop_map(|(lost, older)| Event::Tell { lost, older }),
        8 => any::<usize>().prop_map(|which| Event::Told { which }),
        2 => Just(Event::HangUp),
        4 => (worker.clone(), any::<usize>()).prop_map(|(worker, which)| Event::HearLate { worker, which }),
        24 => prop::bool::weighted(0.3).prop_map(|slow| Event::Read { slow }),
        4 => (worker, 0..lost::KEYS).prop_map(|(worker, key)| Event::Lose { worker, key }),
    ];
    prop::collection::vec(event, 100..400)
}

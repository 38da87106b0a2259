//! Decides when operations start, and from when their latency counts. Clock injected, so that tests
//! need not wait.
//!
//! In a closed loop an operation starts when a connection is free. In an open loop it is due at a
//! time of its own, whatever became of earlier ones, and its latency counts from then. So a server
//! that stalls for a second is charged with every request that was due in that second ("coordinated
//! omission", Gil Tene). Does not decide what is requested.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::random::SplitMixRandom;
use crate::request_plan::BenchOperationTurn;
use crate::scenario::{ScenarioLoad, ScenarioPace};

/// Time since a round's start.
pub trait ScheduleClock: Sync {
    fn now(&self) -> Duration;
    fn sleep_until(&self, at: Duration);
}

/// The host's monotonic clock, counted from the given instant.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicBenchClock(pub Instant);

impl ScheduleClock for MonotonicBenchClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep_until(&self, at: Duration) {
        std::thread::sleep(at.saturating_sub(self.now()));
    }
}

/// Permission to start one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleTicket {
    pub turn: BenchOperationTurn,
    /// Time from which its latency counts.
    pub intended: Duration,
    /// How late it starts, and why.
    pub late: StartLateness,
}

/// Reason why an operation of an open loop did not start when it was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartLateness {
    /// A connection waited for it, and woke up this late: because of the tool or the host.
    Woken(Duration),
    /// Every connection was busy for this long: because of the server, or of too few connections.
    Queued(Duration),
    /// A closed loop is never late.
    Closed,
}

/// Assigns the operations of one round to all connections.
pub struct LoadSchedule {
    connections: u64,
    operations: u64,
    /// End of the round: no operation is due from here on.
    until: Duration,
    /// Operations that have not started this long after they were due are given up.
    given_up_after: Duration,
    started: AtomicU64,
    due: Option<Mutex<NextArrival>>,
    not_sent: AtomicU64,
}

/// The next operation of an open loop.
struct NextArrival {
    index: u64,
    /// Seconds.
    at: f64,
    gap: f64,
    random: Option<SplitMixRandom>,
}

impl LoadSchedule {
    /// Creates a schedule. `until` is the length of the round. `seed` is for the gaps between
    /// Poisson arrivals.
    pub fn new(load: &ScenarioLoad, until: Duration, seed: u64) -> Self {
        let due = match load.pace {
            ScenarioPace::Closed => None,
            ScenarioPace::Open { requests_per_second, poisson } => {
                let random = poisson.then(|| SplitMixRandom::new(seed));
                Some(Mutex::new(NextArrival {
                    index: 0,
                    at: 0.0,
                    gap: 1.0 / requests_per_second,
                    random,
                }))
            }
        };
        Self {
            connections: load.connections as u64,
            operations: load.operations.unwrap_or(u64::MAX),
            until,
            given_up_after: until + load.timeout,
            started: AtomicU64::new(0),
            due,
            not_sent: AtomicU64::new(0),
        }
    }

    /// Waits until the next operation is due for a connection that has done `turn` of them. Returns
    /// its ticket, or `None` at the end.
    pub fn take_ticket(
        &self,
        clock: &impl ScheduleClock,
        stream: u64,
        turn: u64,
    ) -> Option<ScheduleTicket> {
        let Some(due) = &self.due else {
            let now = clock.now();
            if now >= self.until {
                return None;
            }
            let index = self.started.fetch_add(1, Ordering::Relaxed);
            let turn = BenchOperationTurn { index, stream, turn };
            return (index < self.operations).then_some(ScheduleTicket {
                turn,
                intended: now,
                late: StartLateness::Closed,
            });
        };
        loop {
            let (index, intended) = due.lock().ok()?.next(self.operations, self.until)?;
            let turn = BenchOperationTurn {
                index,
                stream: index % self.connections,
                turn: index / self.connections,
            };
            let now = clock.now();
            if now < intended {
                clock.sleep_until(intended);
                let late = StartLateness::Woken(clock.now().saturating_sub(intended));
                return Some(ScheduleTicket { turn, intended, late });
            }
            if now < self.given_up_after {
                return Some(ScheduleTicket {
                    turn,
                    intended,
                    late: StartLateness::Queued(now - intended),
                });
            }
            self.not_sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many operations were due but never started, because the server was too far
    /// behind.
    pub fn not_sent(&self) -> u64 {
        self.not_sent.load(Ordering::Relaxed)
    }
}

impl NextArrival {
    fn next(&mut self, operations: u64, until: Duration) -> Option<(u64, Duration)> {
        let intended = Duration::from_secs_f64(self.at);
        if intended >= until || self.index >= operations {
            return None;
        }
        let index = self.index;
        self.index += 1;
        self.at += self.gap * self.random.as_mut().map_or(1.0, SplitMixRandom::next_exponential);
        Some((index, intended))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// One client and its server in one: time moves when somebody sleeps or is served.
    struct Simulated(Mutex<Duration>);

    impl Simulated {
        fn new() -> Self {
            Self(Mutex::new(Duration::ZERO))
        }

        fn advance(&self, by: Duration) {
            *self.0.lock().unwrap() += by;
        }
    }

    impl ScheduleClock for Simulated {
        fn now(&self) -> Duration {
            *self.0.lock().unwrap()
        }

        fn sleep_until(&self, at: Duration) {
            let mut now = self.0.lock().unwrap();
            *now = at.max(*now);
        }
    }

    const MS: Duration = Duration::from_millis(1);

    fn load(pace: ScenarioPace, operations: Option<u64>) -> ScenarioLoad {
        ScenarioLoad { pace, connections: 1, operations, timeout: Duration::from_secs(2) }
    }

    fn even(requests_per_second: f64) -> ScenarioPace {
        ScenarioPace::Open { requests_per_second, poisson: false }
    }

    /// Latencies of a server that takes 1 ms, but `stall` for the operation that starts at or after
    /// 500 ms.
    fn latencies(pace: ScenarioPace, stall: Duration) -> (Vec<Duration>, LoadSchedule) {
        let (clock, schedule) =
            (Simulated::new(), LoadSchedule::new(&load(pace, None), Duration::from_secs(2), 1));
        let (mut found, mut stalled, mut turn) = (Vec::new(), false, 0);
        while let Some(ticket) = schedule.take_ticket(&clock, 0, turn) {
            let stalls = !stalled && clock.now() >= 500 * MS;
            stalled |= stalls;
            clock.advance(if stalls { stall } else { MS });
            found.push(clock.now() - ticket.intended);
            turn += 1;
        }
        (found, schedule)
    }

    #[test]
    fn a_stall_is_charged_to_every_request_that_was_due_in_it() {
        let second = Duration::from_secs(1);
        let (open, schedule) = latencies(even(100.0), second);
        assert_eq!(
            (open.len(), schedule.not_sent()),
            (200, 0),
            "all that were due are sent, late or not"
        );
        assert_eq!(open.iter().max().unwrap(), &second);
        // 100 were due while it stalled: half of them waited more than half of the stall.
        let above = open.iter().filter(|latency| **latency > second / 2).count();
        assert!((45..=60).contains(&above), "{above}");
        // What a closed loop makes of it: one slow request among a thousand, and a 99th percentile
        // that saw nothing.
        let (mut closed, _) = latencies(ScenarioPace::Closed, second);
        closed.sort();
        assert_eq!(closed[closed.len() * 99 / 100], MS);
        assert_eq!(closed.iter().filter(|latency| **latency > MS).count(), 1);
    }

    #[test]
    fn what_could_not_be_sent_is_counted_not_forgotten() {
        // 2 s of schedule, one stall of 30 s: the rest is older than the timeout when the
        // connection is free again.
        let (open, schedule) = latencies(even(100.0), Duration::from_secs(30));
        assert_eq!(open.len() as u64 + schedule.not_sent(), 200);
        assert!(schedule.not_sent() > 100, "{}", schedule.not_sent());
    }

    #[test]
    fn lateness_says_whether_the_tool_or_the_server_was_behind() {
        let (clock, schedule) = (
            Simulated::new(),
            LoadSchedule::new(&load(even(10.0), None), Duration::from_secs(9), 1),
        );
        let lates: Vec<StartLateness> = (0..4)
            .map(|turn| {
                let ticket = schedule.take_ticket(&clock, 0, turn).unwrap();
                clock.advance(if turn == 1 { 250 * MS } else { MS });
                ticket.late
            })
            .collect();
        let (queued, woken) = (StartLateness::Queued, StartLateness::Woken);
        assert_eq!(
            lates,
            [queued(Duration::ZERO), woken(Duration::ZERO), queued(150 * MS), queued(51 * MS)]
        );
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_are_uneven() {
        let pace = ScenarioPace::Open { requests_per_second: 1000.0, poisson: true };
        let (clock, schedule) =
            (Simulated::new(), LoadSchedule::new(&load(pace, None), Duration::from_secs(10), 3));
        let mut times = Vec::new();
        while let Some(ticket) = schedule.take_ticket(&clock, 0, 0) {
            times.push(ticket.intended.as_secs_f64());
        }
        assert!((9700..10_300).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // A gap longer than the mean has probability 1/e.
        let long = gaps.iter().filter(|gap| **gap > 0.001).count() as f64 / gaps.len() as f64;
        assert!((long - 0.368).abs() < 0.02, "{long}");
    }

    #[test]
    fn a_number_of_operations_ends_a_round_in_both_loops() {
        for pace in [ScenarioPace::Closed, even(1000.0)] {
            let (clock, schedule) = (
                Simulated::new(),
                LoadSchedule::new(&load(pace, Some(7)), Duration::from_secs(9), 1),
            );
            let mut count = 0;
            while let Some(ticket) = schedule.take_ticket(&clock, 0, count) {
                assert_eq!(ticket.turn.index, count);
                count += 1;
                clock.advance(MS);
            }
            assert_eq!(count, 7);
        }
    }
}

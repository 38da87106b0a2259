//! The circuit of one UFS: after a run of failures it refuses reads at once, and lets single probes
//! find out when the UFS is back. Pure: time comes in as an argument. What counts as a failure is
//! the caller's judgement.

use std::time::{Duration, Instant};

/// When the circuit opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitLimits {
    /// Failures in a row, without any success between, that open it. A store that only throttles
    /// now and then never does.
    pub failures_max: u32,
    /// How long it stays open the first time; doubles with every failed probe.
    pub open_for: Duration,
    /// The longest it stays open between probes.
    pub open_for_max: Duration,
}

impl Default for CircuitLimits {
    fn default() -> Self {
        Self {
            failures_max: 16,
            open_for: Duration::from_secs(1),
            open_for_max: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
        length: Duration,
    },
    /// One request has been let through and has not ended.
    Probing {
        length: Duration,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Circuit {
    limits: CircuitLimits,
    state: State,
    /// Raised whenever the state opens or closes: what began before has no say in what is now.
    generation: u64,
}

/// Leave to ask the UFS. Must be given back through [`Circuit::ended`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    generation: u64,
    probe: bool,
}

/// How an admitted request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Success,
    Failure,
    /// Given up by the caller: says nothing about the UFS.
    Abandoned,
}

/// What the metric shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    Closed,
    HalfOpen,
    Open,
}

impl Circuit {
    pub fn new(limits: CircuitLimits) -> Self {
        Self { limits, state: State::Closed { failures: 0 }, generation: 0 }
    }

    /// Leave to ask the UFS, or `Err` with the time until the next probe.
    pub fn admit(&mut self, now: Instant) -> Result<Admission, Duration> {
        let generation = self.generation;
        match self.state {
            State::Closed { .. } => Ok(Admission { generation, probe: false }),
            State::Open { until, .. } if now < until => Err(until - now),
            State::Open { length, .. } => {
                self.state = State::Probing { length };
                Ok(Admission { generation, probe: true })
            }
            State::Probing { length } => Err(length),
        }
    }

    pub fn ended(&mut self, admission: Admission, ended: Ended, now: Instant) {
        if admission.generation != self.generation {
            return;
        }
        match (self.state, ended) {
            (State::Closed { .. }, Ended::Success) => self.state = State::Closed { failures: 0 },
            (State::Closed { failures }, Ended::Failure) => {
                let failures = failures.saturating_add(1);
                if failures >= self.limits.failures_max.max(1) {
                    self.open(self.limits.open_for, now);
                } else {
                    self.state = State::Closed { failures };
                }
            }
            (State::Probing { .. }, Ended::Success) if admission.probe => {
                self.generation += 1;
                self.state = State::Closed { failures: 0 };
            }
            (State::Probing { length }, Ended::Failure) if admission.probe => {
                self.open(length.saturating_mul(2).min(self.limits.open_for_max), now);
            }
            // Nothing was learned: the next request probes, at once.
            (State::Probing { length }, Ended::Abandoned) if admission.probe => {
                self.state = State::Open { until: now, length };
            }
            (State::Closed { .. } | State::Open { .. } | State::Probing { .. }, _) => {}
        }
    }

    pub fn state(&self) -> CircuitState {
        match self.state {
            State::Closed { .. } => CircuitState::Closed,
            State::Probing { .. } => CircuitState::HalfOpen,
            State::Open { .. } => CircuitState::Open,
        }
    }

    fn open(&mut self, length: Duration, now: Instant) {
        self.generation += 1;
        self.state = State::Open { until: now + length, length };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const LIMITS: CircuitLimits = CircuitLimits {
        failures_max: 2,
        open_for: Duration::from_secs(1),
        open_for_max: Duration::from_secs(3),
    };

    fn opened(now: Instant) -> Circuit {
        let mut circuit = Circuit::new(LIMITS);
        for _ in 0..2 {
            let admission = circuit.admit(now).unwrap();
            circuit.ended(admission, Ended::Failure, now);
        }
        circuit
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_does_not() {
        let now = Instant::now();
        let mut circuit = Circuit::new(LIMITS);
        for ended in [Ended::Failure, Ended::Success, Ended::Failure] {
            let admission = circuit.admit(now).unwrap();
            circuit.ended(admission, ended, now);
        }
        assert_eq!(circuit.state(), CircuitState::Closed);
        assert_eq!(opened(now).state(), CircuitState::Open);
        assert_eq!(opened(now).admit(now), Err(Duration::from_secs(1)));
    }

    #[test]
    fn one_probe_at_a_time_closes_it_again() {
        let now = Instant::now();
        let mut circuit = opened(now);
        let later = now + Duration::from_secs(1);
        let probe = circuit.admit(later).unwrap();
        assert!(circuit.admit(later).is_err());
        circuit.ended(probe, Ended::Success, later);
        assert!(circuit.admit(later).is_ok() && circuit.admit(later).is_ok());
    }

    #[test]
    fn each_failed_probe_doubles_the_wait_up_to_its_bound() {
        let mut now = Instant::now();
        let mut circuit = opened(now);
        for seconds in [1, 2, 3, 3] {
            assert_eq!(circuit.admit(now), Err(Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            let probe = circuit.admit(now).unwrap();
            circuit.ended(probe, Ended::Failure, now);
        }
    }

    #[test]
    fn an_abandoned_probe_leaves_room_for_the_next() {
        let now = Instant::now() + Duration::from_secs(1);
        let mut circuit = opened(now - Duration::from_secs(1));
        let probe = circuit.admit(now).unwrap();
        circuit.ended(probe, Ended::Abandoned, now);
        assert!(circuit.admit(now).is_ok());
    }

    #[test]
    fn what_began_before_it_opened_does_not_close_it() {
        let now = Instant::now();
        let mut circuit = Circuit::new(LIMITS);
        let old: Vec<Admission> = (0..3).map(|_| circuit.admit(now).unwrap()).collect();
        circuit.ended(old[0], Ended::Failure, now);
        circuit.ended(old[1], Ended::Failure, now);
        circuit.ended(old[2], Ended::Success, now);
        assert_eq!(circuit.state(), CircuitState::Open);
    }

    proptest! {
        #[test]
        fn a_working_ufs_is_always_admitted_in_the_end(steps in prop::collection::vec((0u8..4, 0u64..5000), 0..60)) {
            let mut now = Instant::now();
            let mut circuit = Circuit::new(LIMITS);
            let mut under_way = Vec::new();
            for (step, millis) in steps {
                now += Duration::from_millis(millis);
                if step == 0 {
                    under_way.extend(circuit.admit(now).ok());
                } else if let Some(admission) = under_way.pop() {
                    let ended = [Ended::Success, Ended::Failure, Ended::Abandoned][usize::from(step) - 1];
                    circuit.ended(admission, ended, now);
                }
            }
            for admission in under_way {
                circuit.ended(admission, Ended::Abandoned, now);
            }
            now += LIMITS.open_for_max;
            let admission = circuit.admit(now);
            prop_assert!(admission.is_ok());
            circuit.ended(admission.unwrap(), Ended::Success, now);
            prop_assert_eq!(circuit.state(), CircuitState::Closed);
        }
    }
}

//! Owns the circuit breaker of one UFS. After a run of failures it refuses reads at once, and lets
//! single probes find out when the UFS is back.
//!
//! Pure: time is an argument. The caller decides what counts as a failure.

use std::time::{Duration, Instant};

use crate::settings::UfsCircuitSettings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CircuitPhase {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
        length: Duration,
    },
    /// One request was let through and has not ended.
    Probing {
        length: Duration,
    },
}

/// The circuit breaker of one UFS.
#[derive(Debug)]
pub struct CircuitBreaker {
    limits: UfsCircuitSettings,
    state: CircuitPhase,
    /// Raised whenever the state opens or closes. Outcomes of requests from before are ignored.
    generation: u64,
}

/// An admission to ask the UFS. It must be given back through [`CircuitBreaker::record_outcome`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitAdmission {
    generation: u64,
    probe: bool,
}

/// The outcome of an admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitOutcome {
    Success,
    Failure,
    /// The caller gave up: this says nothing about the UFS.
    Abandoned,
}

/// The state that the metric shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    Closed,
    HalfOpen,
    Open,
}

impl CircuitBreaker {
    /// Makes a closed circuit: requests pass.
    pub fn new(limits: UfsCircuitSettings) -> Self {
        Self { limits, state: CircuitPhase::Closed { failures: 0 }, generation: 0 }
    }

    /// Admits a request, or returns `Err` with the time until the next probe.
    pub fn admit_request(&mut self, now: Instant) -> Result<CircuitAdmission, Duration> {
        let generation = self.generation;
        match self.state {
            CircuitPhase::Closed { .. } => Ok(CircuitAdmission { generation, probe: false }),
            CircuitPhase::Open { until, .. } if now < until => Err(until - now),
            CircuitPhase::Open { length, .. } => {
                self.state = CircuitPhase::Probing { length };
                Ok(CircuitAdmission { generation, probe: true })
            }
            CircuitPhase::Probing { length } => Err(length),
        }
    }

    /// Takes an admission back. Ignores an outcome from before the last change of state.
    pub fn record_outcome(
        &mut self,
        admission: CircuitAdmission,
        ended: CircuitOutcome,
        now: Instant,
    ) {
        if admission.generation != self.generation {
            return;
        }
        match (self.state, ended) {
            (CircuitPhase::Closed { .. }, CircuitOutcome::Success) => {
                self.state = CircuitPhase::Closed { failures: 0 }
            }
            (CircuitPhase::Closed { failures }, CircuitOutcome::Failure) => {
                let failures = failures.saturating_add(1);
                if failures >= self.limits.failures_max.max(1) {
                    self.open_circuit(self.limits.open_for.0, now);
                } else {
                    self.state = CircuitPhase::Closed { failures };
                }
            }
            (CircuitPhase::Probing { .. }, CircuitOutcome::Success) if admission.probe => {
                self.generation += 1;
                self.state = CircuitPhase::Closed { failures: 0 };
            }
            (CircuitPhase::Probing { length }, CircuitOutcome::Failure) if admission.probe => {
                self.open_circuit(length.saturating_mul(2).min(self.limits.open_for_max.0), now);
            }
            // The probe taught nothing: the next request probes, at once.
            (CircuitPhase::Probing { length }, CircuitOutcome::Abandoned) if admission.probe => {
                self.state = CircuitPhase::Open { until: now, length };
            }
            (
                CircuitPhase::Closed { .. }
                | CircuitPhase::Open { .. }
                | CircuitPhase::Probing { .. },
                _,
            ) => {}
        }
    }

    /// Returns the state for metrics and logs. It changes only through admissions and outcomes.
    pub fn circuit_state(&self) -> CircuitState {
        match self.state {
            CircuitPhase::Closed { .. } => CircuitState::Closed,
            CircuitPhase::Probing { .. } => CircuitState::HalfOpen,
            CircuitPhase::Open { .. } => CircuitState::Open,
        }
    }

    fn open_circuit(&mut self, length: Duration, now: Instant) {
        self.generation += 1;
        self.state = CircuitPhase::Open { until: now + length, length };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use verbs3_settings::TimePeriod;

    const LIMITS: UfsCircuitSettings = UfsCircuitSettings {
        failures_max: 2,
        open_for: TimePeriod::from_seconds(1),
        open_for_max: TimePeriod::from_seconds(3),
    };

    fn opened(now: Instant) -> CircuitBreaker {
        let mut circuit = CircuitBreaker::new(LIMITS);
        for _ in 0..2 {
            let admission = circuit.admit_request(now).unwrap();
            circuit.record_outcome(admission, CircuitOutcome::Failure, now);
        }
        circuit
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_does_not() {
        let now = Instant::now();
        let mut circuit = CircuitBreaker::new(LIMITS);
        for ended in [CircuitOutcome::Failure, CircuitOutcome::Success, CircuitOutcome::Failure] {
            let admission = circuit.admit_request(now).unwrap();
            circuit.record_outcome(admission, ended, now);
        }
        assert_eq!(circuit.circuit_state(), CircuitState::Closed);
        assert_eq!(opened(now).circuit_state(), CircuitState::Open);
        assert_eq!(opened(now).admit_request(now), Err(Duration::from_secs(1)));
    }

    #[test]
    fn one_probe_at_a_time_closes_it_again() {
        let now = Instant::now();
        let mut circuit = opened(now);
        let later = now + Duration::from_secs(1);
        let probe = circuit.admit_request(later).unwrap();
        assert!(circuit.admit_request(later).is_err());
        circuit.record_outcome(probe, CircuitOutcome::Success, later);
        assert!(circuit.admit_request(later).is_ok() && circuit.admit_request(later).is_ok());
    }

    #[test]
    fn each_failed_probe_doubles_the_wait_up_to_its_bound() {
        let mut now = Instant::now();
        let mut circuit = opened(now);
        for seconds in [1, 2, 3, 3] {
            assert_eq!(circuit.admit_request(now), Err(Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            let probe = circuit.admit_request(now).unwrap();
            circuit.record_outcome(probe, CircuitOutcome::Failure, now);
        }
    }

    #[test]
    fn an_abandoned_probe_leaves_room_for_the_next() {
        let now = Instant::now() + Duration::from_secs(1);
        let mut circuit = opened(now - Duration::from_secs(1));
        let probe = circuit.admit_request(now).unwrap();
        circuit.record_outcome(probe, CircuitOutcome::Abandoned, now);
        assert!(circuit.admit_request(now).is_ok());
    }

    #[test]
    fn what_began_before_it_opened_does_not_close_it() {
        let now = Instant::now();
        let mut circuit = CircuitBreaker::new(LIMITS);
        let old: Vec<CircuitAdmission> =
            (0..3).map(|_| circuit.admit_request(now).unwrap()).collect();
        circuit.record_outcome(old[0], CircuitOutcome::Failure, now);
        circuit.record_outcome(old[1], CircuitOutcome::Failure, now);
        circuit.record_outcome(old[2], CircuitOutcome::Success, now);
        assert_eq!(circuit.circuit_state(), CircuitState::Open);
    }

    proptest! {
        #[test]
        fn a_working_ufs_is_always_admitted_in_the_end(
            steps in prop::collection::vec((0u8..4, 0u64..5000), 0..60),
        ) {
            let mut now = Instant::now();
            let mut circuit = CircuitBreaker::new(LIMITS);
            let mut under_way = Vec::new();
            for (step, millis) in steps {
                now += Duration::from_millis(millis);
                if step == 0 {
                    under_way.extend(circuit.admit_request(now).ok());
                } else if let Some(admission) = under_way.pop() {
                    let ended = match step {
                        1 => CircuitOutcome::Success,
                        2 => CircuitOutcome::Failure,
                        _ => CircuitOutcome::Abandoned,
                    };
                    circuit.record_outcome(admission, ended, now);
                }
            }
            for admission in under_way {
                circuit.record_outcome(admission, CircuitOutcome::Abandoned, now);
            }
            now += LIMITS.open_for_max.0;
            let admission = circuit.admit_request(now);
            prop_assert!(admission.is_ok());
            circuit.record_outcome(admission.unwrap(), CircuitOutcome::Success, now);
            prop_assert_eq!(circuit.circuit_state(), CircuitState::Closed);
        }
    }
}

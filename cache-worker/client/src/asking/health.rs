//! Decides whether a worker may be asked: a pure state machine over outcomes and time.
//!
//! A worker that failed several times in a row rests. After its rest, one caller tries it; the
//! others wait for the outcome. Owns no clock and no connection.

use std::time::Duration;

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

/// When a worker rests after failures, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HealthOptions {
    /// Failures in a row before the first rest.
    pub(crate) failures_max: u32,
    pub(crate) rest_min: Duration,
    /// Upper bound of a rest. The rest doubles with each failed trial.
    pub(crate) rest_max: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthState {
    Up {
        failures: u32,
    },
    Resting {
        until: Instant,
        rest: Duration,
    },
    /// One caller has been trying the worker since `since`. If no outcome is known after a whole
    /// rest, another caller may try.
    Trying {
        since: Instant,
        rest: Duration,
    },
}

/// Health of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerHealth {
    state: HealthState,
}

impl WorkerHealth {
    pub(crate) const NEW: Self = Self { state: HealthState::Up { failures: 0 } };

    /// Returns whether this caller may ask the worker now.
    pub(crate) fn admit_call(&mut self, now: Instant) -> bool {
        match self.state {
            HealthState::Up { .. } => true,
            HealthState::Resting { until, rest } if now >= until => {
                self.state = HealthState::Trying { since: now, rest };
                true
            }
            HealthState::Trying { since, rest } if now >= since + rest => {
                self.state = HealthState::Trying { since: now, rest };
                true
            }
            HealthState::Resting { .. } | HealthState::Trying { .. } => false,
        }
    }

    pub(crate) fn note_success(&mut self) {
        *self = Self::NEW;
    }

    /// Notes a failure. Returns the length of the rest that begins now, if one does.
    pub(crate) fn note_failure(
        &mut self,
        now: Instant,
        options: &HealthOptions,
    ) -> Option<Duration> {
        let rest = match self.state {
            HealthState::Up { failures } if failures + 1 < options.failures_max => {
                self.state = HealthState::Up { failures: failures + 1 };
                return None;
            }
            HealthState::Up { .. } => options.rest_min,
            // The call began before the rest, so its failure is no news.
            HealthState::Resting { .. } => return None,
            HealthState::Trying { rest, .. } => (rest * 2).min(options.rest_max),
        };
        self.state = HealthState::Resting { until: now + rest, rest };
        Some(rest)
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, HealthState::Up { .. })
    }
}

/// A [`WorkerHealth`] shared by all callers. A worker that never failed costs one atomic load.
#[derive(Debug)]
pub(crate) struct SharedWorkerHealth {
    /// True while `health` is [`WorkerHealth::NEW`]. Written under the lock.
    spotless: AtomicBool,
    health: Mutex<WorkerHealth>,
}

impl SharedWorkerHealth {
    pub(crate) fn new() -> Self {
        Self { spotless: AtomicBool::new(true), health: Mutex::new(WorkerHealth::NEW) }
    }

    pub(crate) fn admit_call(&self, now: Instant) -> bool {
        self.spotless.load(Ordering::Relaxed) || self.health.lock().admit_call(now)
    }

    pub(crate) fn note_success(&self) {
        if !self.spotless.load(Ordering::Relaxed) {
            let mut health = self.health.lock();
            health.note_success();
            self.spotless.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn note_failure(&self, now: Instant, options: &HealthOptions) -> Option<Duration> {
        let mut health = self.health.lock();
        self.spotless.store(false, Ordering::Relaxed);
        health.note_failure(now, options)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.spotless.load(Ordering::Relaxed) || self.health.lock().is_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: HealthOptions = HealthOptions {
        failures_max: 2,
        rest_min: Duration::from_secs(1),
        rest_max: Duration::from_secs(3),
    };

    fn seconds(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn one_failure_is_forgiven() {
        let (mut health, t0) = (WorkerHealth::NEW, Instant::now());
        assert_eq!(health.note_failure(t0, &OPTIONS), None);
        assert!(health.admit_call(t0));
        health.note_success();
        assert_eq!(health.note_failure(t0, &OPTIONS), None);
    }

    #[test]
    fn failures_in_a_row_bring_a_rest_that_doubles_up_to_its_bound() {
        let (mut health, t0) = (WorkerHealth::NEW, Instant::now());
        health.note_failure(t0, &OPTIONS);
        assert_eq!(health.note_failure(t0, &OPTIONS), Some(Duration::from_secs(1)));
        assert!(!health.admit_call(t0));
        assert!(health.admit_call(seconds(t0, 1)));
        assert_eq!(health.note_failure(seconds(t0, 1), &OPTIONS), Some(Duration::from_secs(2)));
        assert!(health.admit_call(seconds(t0, 3)));
        assert_eq!(health.note_failure(seconds(t0, 3), &OPTIONS), Some(Duration::from_secs(3)));
    }

    #[test]
    fn after_a_rest_one_caller_tries_and_success_ends_it() {
        let (mut health, t0) = (WorkerHealth::NEW, Instant::now());
        health.note_failure(t0, &OPTIONS);
        health.note_failure(t0, &OPTIONS);
        assert!(health.admit_call(seconds(t0, 1)));
        assert!(!health.admit_call(seconds(t0, 1)));
        health.note_success();
        assert!(health.admit_call(seconds(t0, 1)) && health.is_up());
    }

    #[test]
    fn a_trial_that_was_given_up_does_not_block_the_worker_for_ever() {
        let (mut health, t0) = (WorkerHealth::NEW, Instant::now());
        health.note_failure(t0, &OPTIONS);
        health.note_failure(t0, &OPTIONS);
        assert!(health.admit_call(seconds(t0, 1)));
        assert!(health.admit_call(seconds(t0, 2)));
    }

    #[test]
    fn calls_from_before_the_rest_do_not_prolong_it() {
        let (mut health, t0) = (WorkerHealth::NEW, Instant::now());
        for _ in 0..10 {
            health.note_failure(t0, &OPTIONS);
        }
        assert!(health.admit_call(seconds(t0, 1)));
    }
}

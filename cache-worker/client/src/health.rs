//! Whether a worker is asked: a pure state machine over outcomes and time.
//!
//! A worker that failed several times in a row rests. When its rest is over, one caller tries it;
//! the others wait for what comes of that. Owns no clock and no connection.

use std::time::Duration;

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

/// When a worker is left alone, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthOptions {
    /// Failures in a row before the first rest.
    pub failures_max: u32,
    pub rest_min: Duration,
    /// The rest doubles with each failed trial up to this.
    pub rest_max: Duration,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self {
            failures_max: 3,
            rest_min: Duration::from_secs(1),
            rest_max: Duration::from_secs(60),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up {
        failures: u32,
    },
    Resting {
        until: Instant,
        rest: Duration,
    },
    /// One caller tries the worker since `since`. If nothing is heard of the trial for a whole
    /// rest, another may.
    Trying {
        since: Instant,
        rest: Duration,
    },
}

/// Health of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Health {
    state: State,
}

impl Health {
    pub(crate) const NEW: Self = Self { state: State::Up { failures: 0 } };

    /// Whether this caller may ask the worker now.
    pub(crate) fn admit(&mut self, now: Instant) -> bool {
        match self.state {
            State::Up { .. } => true,
            State::Resting { until, rest } if now >= until => {
                self.state = State::Trying { since: now, rest };
                true
            }
            State::Trying { since, rest } if now >= since + rest => {
                self.state = State::Trying { since: now, rest };
                true
            }
            State::Resting { .. } | State::Trying { .. } => false,
        }
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Self::NEW;
    }

    /// Returns the rest that begins now, if one does.
    pub(crate) fn failed(&mut self, now: Instant, options: &HealthOptions) -> Option<Duration> {
        let rest = match self.state {
            State::Up { failures } if failures + 1 < options.failures_max => {
                self.state = State::Up { failures: failures + 1 };
                return None;
            }
            State::Up { .. } => options.rest_min,
            // A call that began before the rest did: it says nothing new.
            State::Resting { .. } => return None,
            State::Trying { rest, .. } => (rest * 2).min(options.rest_max),
        };
        self.state = State::Resting { until: now + rest, rest };
        Some(rest)
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }
}

/// [`Health`] shared by all callers; a worker that never failed costs one atomic load.
#[derive(Debug)]
pub(crate) struct Watch {
    /// True while `health` is [`Health::NEW`]. Written under the lock.
    spotless: AtomicBool,
    health: Mutex<Health>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { spotless: AtomicBool::new(true), health: Mutex::new(Health::NEW) }
    }

    pub(crate) fn admit(&self, now: Instant) -> bool {
        self.spotless.load(Ordering::Relaxed) || self.health.lock().admit(now)
    }

    pub(crate) fn succeeded(&self) {
        if !self.spotless.load(Ordering::Relaxed) {
            let mut health = self.health.lock();
            health.succeeded();
            self.spotless.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn failed(&self, now: Instant, options: &HealthOptions) -> Option<Duration> {
        let mut health = self.health.lock();
        self.spotless.store(false, Ordering::Relaxed);
        health.failed(now, options)
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
        let (mut health, t0) = (Health::NEW, Instant::now());
        assert_eq!(health.failed(t0, &OPTIONS), None);
        assert!(health.admit(t0));
        health.succeeded();
        assert_eq!(health.failed(t0, &OPTIONS), None);
    }

    #[test]
    fn failures_in_a_row_bring_a_rest_that_doubles_up_to_its_bound() {
        let (mut health, t0) = (Health::NEW, Instant::now());
        health.failed(t0, &OPTIONS);
        assert_eq!(health.failed(t0, &OPTIONS), Some(Duration::from_secs(1)));
        assert!(!health.admit(t0));
        assert!(health.admit(seconds(t0, 1)));
        assert_eq!(health.failed(seconds(t0, 1), &OPTIONS), Some(Duration::from_secs(2)));
        assert!(health.admit(seconds(t0, 3)));
        assert_eq!(health.failed(seconds(t0, 3), &OPTIONS), Some(Duration::from_secs(3)));
    }

    #[test]
    fn after_a_rest_one_caller_tries_and_success_ends_it() {
        let (mut health, t0) = (Health::NEW, Instant::now());
        health.failed(t0, &OPTIONS);
        health.failed(t0, &OPTIONS);
        assert!(health.admit(seconds(t0, 1)));
        assert!(!health.admit(seconds(t0, 1)));
        health.succeeded();
        assert!(health.admit(seconds(t0, 1)) && health.is_up());
    }

    #[test]
    fn a_trial_that_was_given_up_does_not_block_the_worker_for_ever() {
        let (mut health, t0) = (Health::NEW, Instant::now());
        health.failed(t0, &OPTIONS);
        health.failed(t0, &OPTIONS);
        assert!(health.admit(seconds(t0, 1)));
        assert!(health.admit(seconds(t0, 2)));
    }

    #[test]
    fn calls_from_before_the_rest_do_not_prolong_it() {
        let (mut health, t0) = (Health::NEW, Instant::now());
        for _ in 0..10 {
            health.failed(t0, &OPTIONS);
        }
        assert!(health.admit(seconds(t0, 1)));
    }
}

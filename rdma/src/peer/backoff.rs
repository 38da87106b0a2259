//! Owns the backoff between attempts to connect: a pure state machine, fed with time and chance.
//!
//! A connection that dies young counts as a failure, so a peer that accepts and dies is not
//! stormed.

use std::time::Duration;

use tokio::time::Instant;
use verbs3_pacing::{doubled_pause, jitter_pause};

/// Pauses between attempts to connect. Each pause is shortened at random by up to a half.
#[derive(Debug, Clone)]
pub(crate) struct BackoffOptions {
    /// Pause after the first failure; it doubles with each further one.
    pub(crate) pause_min: Duration,
    /// Longest pause.
    pub(crate) pause_max: Duration,
    /// Life after which a connection was a success. A shorter life counts as one more failure.
    pub(crate) stable_after: Duration,
}

#[derive(Debug)]
pub(crate) struct ReconnectBackoff {
    options: BackoffOptions,
    failures: u32,
    until: Option<Instant>,
}

impl ReconnectBackoff {
    pub(crate) fn new(options: BackoffOptions) -> Self {
        Self { options, failures: 0, until: None }
    }

    /// Returns true if an attempt may be made now.
    pub(super) fn may_try(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Records a failed attempt. `chance` (0 to 1) spreads the pause over its upper half, so that
    /// peers of one dead host do not come back in the same instant.
    pub(crate) fn record_failure(&mut self, now: Instant, chance: f64) {
        let BackoffOptions { pause_min, pause_max, .. } = self.options;
        let pause = doubled_pause(pause_min, self.failures.min(20), pause_max);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + jitter_pause(pause, chance));
    }

    /// Returns the time from which an attempt may be made; `None` means at any time.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.until
    }

    /// Records the loss of a connection that was made at `since`.
    pub(crate) fn record_loss(&mut self, since: Instant, now: Instant, chance: f64) {
        if now.saturating_duration_since(since) >= self.options.stable_after {
            self.failures = 0;
            self.until = None;
        } else {
            self.record_failure(now, chance);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn backoff() -> ReconnectBackoff {
        ReconnectBackoff::new(BackoffOptions {
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(30),
            stable_after: Duration::from_secs(10),
        })
    }

    fn pause(backoff: &ReconnectBackoff, now: Instant) -> Duration {
        backoff.until.unwrap() - now
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let (mut backoff, now) = (backoff(), Instant::now());
        assert!(backoff.may_try(now));
        for expected in [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            backoff.record_failure(now, 1.0);
            assert_eq!(pause(&backoff, now), Duration::from_millis(expected));
            assert!(!backoff.may_try(now + Duration::from_millis(expected - 1)));
            assert!(backoff.may_try(now + Duration::from_millis(expected)));
        }
        for _ in 0..100 {
            backoff.record_failure(now, 1.0);
        }
        assert_eq!(pause(&backoff, now), Duration::from_secs(30));
    }

    #[test]
    fn chance_spreads_a_pause_over_its_upper_half() {
        let (mut low, mut high, now) = (backoff(), backoff(), Instant::now());
        low.record_failure(now, 0.0);
        high.record_failure(now, 1.0);
        assert_eq!(pause(&low, now), Duration::from_millis(50));
        assert_eq!(pause(&high, now), Duration::from_millis(100));
    }

    #[test]
    fn a_connection_that_dies_young_goes_on_doubling() {
        let (mut backoff, start) = (backoff(), Instant::now());
        backoff.record_failure(start, 1.0);
        backoff.record_failure(start, 1.0);
        backoff.record_loss(start, start + Duration::from_secs(1), 1.0);
        assert_eq!(pause(&backoff, start + Duration::from_secs(1)), Duration::from_millis(400));
    }

    #[test]
    fn a_connection_that_lived_clears_the_past() {
        let (mut backoff, start) = (backoff(), Instant::now());
        backoff.record_failure(start, 1.0);
        let later = start + Duration::from_secs(10);
        backoff.record_loss(start, later, 1.0);
        assert!(backoff.may_try(later));
        backoff.record_failure(later, 1.0);
        assert_eq!(pause(&backoff, later), Duration::from_millis(100));
    }
}

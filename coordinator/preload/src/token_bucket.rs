//! Bounds bytes per second. Pure: takes the time, and returns how long to wait.

use std::time::Duration;

/// Token bucket that saves up at most one second's tokens. A taker of more than there are waits
/// until they would have come.
#[derive(Debug)]
pub(crate) struct PreloadTokenBucket {
    rate: f64,
    tokens: f64,
    at: Duration,
}

impl PreloadTokenBucket {
    /// Creates a full bucket. `rate` is above 0.
    pub(crate) fn new(rate: u64, now: Duration) -> Self {
        let rate = rate.max(1) as f64;
        Self { rate, tokens: rate, at: now }
    }

    /// Takes tokens for `bytes`. Returns how long to wait before using them.
    pub(crate) fn take_tokens(&mut self, bytes: u64, now: Duration) -> Duration {
        self.refill_tokens(now);
        self.tokens -= bytes as f64;
        if self.tokens >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(-self.tokens / self.rate)
        }
    }

    /// Gives back tokens that were not needed.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.tokens = (self.tokens + bytes as f64).min(self.rate);
    }

    fn refill_tokens(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate).min(self.rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_more_is_used_in_any_time_than_the_rate_and_what_was_saved(
            rate in 1u64..10_000_000, asked in prop::collection::vec((0u64..20_000_000, 0u64..3000), 1..50)
        ) {
            let mut bucket = PreloadTokenBucket::new(rate, Duration::ZERO);
            let mut now = Duration::ZERO;
            let mut used: Vec<(Duration, u64)> = Vec::new();
            for (bytes, pause_ms) in asked {
                now += Duration::from_millis(pause_ms);
                let wait = bucket.take_tokens(bytes, now);
                used.push((now + wait, bytes));
            }
            let longest = used.iter().map(|(at, _)| *at).max().unwrap_or_default();
            for at in used.iter().map(|(at, _)| *at).chain([longest]) {
                let sum: u64 = used.iter().filter(|(used_at, _)| *used_at <= at).map(|(_, bytes)| bytes).sum();
                let allowed = rate as f64 * (1.0 + at.as_secs_f64());
                prop_assert!(sum as f64 <= allowed * 1.000_001 + 1.0,
                    "{sum} by {at:?}, {allowed} allowed");
            }
        }
    }

    #[test]
    fn what_was_not_needed_can_be_taken_by_others() {
        let mut bucket = PreloadTokenBucket::new(100, Duration::ZERO);
        assert_eq!(bucket.take_tokens(300, Duration::ZERO), Duration::from_secs(2));
        bucket.give_back(250);
        assert_eq!(bucket.take_tokens(50, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.take_tokens(50, Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn nothing_is_saved_beyond_a_second() {
        let mut bucket = PreloadTokenBucket::new(100, Duration::ZERO);
        bucket.give_back(1000);
        assert_eq!(bucket.take_tokens(200, Duration::from_secs(3600)), Duration::from_secs(1));
    }
}

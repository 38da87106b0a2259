//! Bounds what is taken in a second. Pure: takes the time, and returns how long to wait.

use std::time::Duration;

/// Token bucket. Times count from a moment that the caller chooses.
#[derive(Debug)]
pub struct TokenBucket {
    tokens_per_second: f64,
    tokens_max: f64,
    tokens: f64,
    at: Duration,
}

impl TokenBucket {
    /// Makes a full bucket. `tokens_max`: how many are saved up.
    pub fn new(tokens_per_second: f64, tokens_max: f64, now: Duration) -> Self {
        Self { tokens_per_second, tokens_max, tokens: tokens_max, at: now }
    }

    /// Takes one token, if there is one.
    pub fn try_take_one(&mut self, now: Duration) -> bool {
        self.refill_tokens(now);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    /// Takes tokens, also more than there are. Returns how long to wait before using them: until
    /// they would have come. Only for a rate above 0.
    pub fn take_tokens(&mut self, count: u64, now: Duration) -> Duration {
        self.refill_tokens(now);
        self.tokens -= count as f64;
        if self.tokens >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(-self.tokens / self.tokens_per_second)
        }
    }

    /// Gives back tokens that were not needed.
    pub fn give_back(&mut self, count: u64) {
        self.tokens = (self.tokens + count as f64).min(self.tokens_max);
    }

    fn refill_tokens(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let refilled = self.tokens + passed.as_secs_f64() * self.tokens_per_second;
        self.tokens = refilled.min(self.tokens_max);
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
            let mut bucket = TokenBucket::new(rate as f64, rate as f64, Duration::ZERO);
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
        let mut bucket = TokenBucket::new(100.0, 100.0, Duration::ZERO);
        assert_eq!(bucket.take_tokens(300, Duration::ZERO), Duration::from_secs(2));
        bucket.give_back(250);
        assert_eq!(bucket.take_tokens(50, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.take_tokens(50, Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn nothing_is_saved_beyond_a_second() {
        let mut bucket = TokenBucket::new(100.0, 100.0, Duration::ZERO);
        bucket.give_back(1000);
        assert_eq!(bucket.take_tokens(200, Duration::from_secs(3600)), Duration::from_secs(1));
    }

    #[test]
    fn single_tokens_come_back_with_time_up_to_the_bound() {
        let seconds = Duration::from_secs_f64;
        let mut bucket = TokenBucket::new(1.0, 2.0, Duration::ZERO);
        assert!(bucket.try_take_one(seconds(0.0)) && bucket.try_take_one(seconds(0.0)));
        assert!(!bucket.try_take_one(seconds(0.0)) && !bucket.try_take_one(seconds(0.5)));
        assert!(bucket.try_take_one(seconds(1.0)));
        assert!(bucket.try_take_one(seconds(1000.0)) && bucket.try_take_one(seconds(1000.0)));
        assert!(!bucket.try_take_one(seconds(1000.0)));
    }
}

//! Owns the decision when a read is retried: one budget per UFS, and exponential back-off. The
//! budget keeps a struggling store from being hit harder the worse it gets. Pure: time and
//! randomness are arguments.

use std::time::{Duration, Instant};

use crate::settings::UfsRetriesSettings;

/// The budget of one UFS: a token bucket.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    tokens: f64,
    limits: UfsRetriesSettings,
    filled: Instant,
}

impl RetryBudget {
    pub(crate) fn new(limits: UfsRetriesSettings, now: Instant) -> Self {
        Self { tokens: f64::from(limits.budget_max), limits, filled: now }
    }

    /// Takes one retry out of the budget. Returns `false` if there is none.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        let refilled = self.tokens + since * self.limits.budget_per_second.max(0.0);
        self.tokens = refilled.min(f64::from(self.limits.budget_max));
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

impl UfsRetriesSettings {
    /// Returns the pause before try `tried + 1`, or `None` if there is no such try. `random` is in
    /// `0.0..1.0`.
    pub(crate) fn pause_after(
        &self,
        tried: u32,
        asked_for: Option<Duration>,
        random: f64,
    ) -> Option<Duration> {
        if tried >= self.attempts_max {
            return None;
        }
        let (first, pause_max) = (self.pause.0, self.pause_max.0);
        let bound = first.saturating_mul(1 << tried.saturating_sub(1).min(16)).min(pause_max);
        let drawn = bound.mul_f64(random.clamp(0.0, 1.0));
        match asked_for {
            Some(asked) if asked > pause_max => None,
            // Added, not the larger of the two. Otherwise all readers that were told the same would
            // come back at once.
            Some(asked) => Some((asked + drawn).min(pause_max.max(asked))),
            None => Some(drawn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use verbs3_settings::TimePeriod;

    const LIMITS: UfsRetriesSettings = UfsRetriesSettings {
        attempts_max: 4,
        budget_max: 2,
        budget_per_second: 1.0,
        pause: TimePeriod::from_millis(100),
        pause_max: TimePeriod::from_millis(300),
    };

    #[test]
    fn a_budget_that_is_spent_comes_back_with_time_up_to_its_bound() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(LIMITS, now);
        assert!(budget.take(now) && budget.take(now) && !budget.take(now));
        assert!(!budget.take(now + Duration::from_millis(500)));
        assert!(budget.take(now + Duration::from_millis(1000)));
        let much_later = now + Duration::from_secs(1000);
        assert!(budget.take(much_later) && budget.take(much_later) && !budget.take(much_later));
    }

    #[test]
    fn pauses_double_up_to_their_bound_and_end_with_the_attempts() {
        let pauses: Vec<_> = (1..=4).map(|tried| LIMITS.pause_after(tried, None, 1.0)).collect();
        let millis = |ms| Some(Duration::from_millis(ms));
        assert_eq!(pauses, [millis(100), millis(200), millis(300), None]);
        assert_eq!(LIMITS.pause_after(1, None, 0.0), millis(0));
    }

    #[test]
    fn a_ufs_that_asks_for_patience_gets_it_or_no_second_try() {
        let asked = |ms| LIMITS.pause_after(1, Some(Duration::from_millis(ms)), 0.5);
        assert_eq!(asked(200), Some(Duration::from_millis(250)));
        assert_eq!(asked(301), None);
    }
}

//! Owns the decision when a read is retried: one budget per UFS, and pauses that double. The budget
//! keeps a struggling store from being hit harder the worse it gets. Pure: time and randomness are
//! arguments.

use std::time::Duration;

use verbs3_pacing::{TokenBucket, doubled_pause};

use crate::settings::UfsRetriesSettings;

impl UfsRetriesSettings {
    /// Makes the budget of one UFS, full at the moment 0.
    pub(crate) fn make_budget(&self) -> TokenBucket {
        let per_second = self.budget_per_second.max(0.0);
        TokenBucket::new(per_second, f64::from(self.budget_max), Duration::ZERO)
    }

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
        let bound = doubled_pause(first, tried.saturating_sub(1).min(16), pause_max);
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

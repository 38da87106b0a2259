//! Bounds how often a stranger's doing is logged as a warning.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Least time between two warnings of one kind. Metrics count everything.
const WARNING_EVERY: Duration = Duration::from_secs(1);

/// The time of the last warning of one kind.
#[derive(Debug)]
pub struct RareWarning {
    last: Mutex<Option<Instant>>,
}

impl RareWarning {
    /// Makes one that has not warned yet. Const, for statics.
    pub const fn new() -> Self {
        Self { last: Mutex::new(None) }
    }

    /// Returns whether a warning may be logged now, and counts it as logged if so.
    pub fn may_warn(&self, now: Instant) -> bool {
        let mut last = self.last.lock();
        let may_warn = last.is_none_or(|last| now.saturating_duration_since(last) >= WARNING_EVERY);
        if may_warn {
            *last = Some(now);
        }
        may_warn
    }
}

impl Default for RareWarning {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_a_second_is_logged() {
        let (warning, start) = (RareWarning::new(), Instant::now());
        let at = |ms| warning.may_warn(start + Duration::from_millis(ms));
        assert_eq!(
            [at(0), at(1), at(999), at(1_000), at(1_500)],
            [true, false, false, true, false]
        );
    }
}

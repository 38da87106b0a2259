//! Owns pauses that double up to a bound.

use std::time::Duration;

/// The pauses between the tries of one thing: each is twice the one before, up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowingPause {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl GrowingPause {
    /// Begins with `min`.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// Returns the pause that comes next, and leaves it so.
    pub const fn peek_pause(&self) -> Duration {
        self.next
    }

    /// Takes the next pause. The one after it is twice as long.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.max);
        pause
    }

    /// Takes the next pause, shortened as [`jitter_pause`] does.
    pub fn next_jittered(&mut self, chance: f64) -> Duration {
        jitter_pause(self.next_pause(), chance)
    }

    /// Begins again with the shortest pause, because a try succeeded.
    pub fn reset_pause(&mut self) {
        self.next = self.min;
    }
}

/// Returns `first`, doubled so many times, and `max` at most.
pub fn doubled_pause(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(max)
}

/// Returns half of the pause (`chance` is 0) to all of it (1), so that not everybody comes back at
/// once.
pub fn jitter_pause(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_a_bound_until_a_try_succeeds() {
        let mut pause = GrowingPause::new(2 * SECOND, 10 * SECOND);
        let taken = [0.0, 1.0, 0.0, 1.0, 1.0].map(|chance| pause.next_jittered(chance));
        assert_eq!(taken, [1, 4, 4, 10, 10].map(Duration::from_secs));
        assert_eq!((pause.peek_pause(), pause.next_pause()), (10 * SECOND, 10 * SECOND));
        pause.reset_pause();
        assert_eq!((pause.next_pause(), pause.peek_pause()), (2 * SECOND, 4 * SECOND));
    }

    #[test]
    fn doubling_stops_at_the_bound_and_never_overflows() {
        for (times, seconds) in [(0, 1), (1, 2), (5, 32), (6, 60), (31, 60), (u32::MAX, 60)] {
            assert_eq!(doubled_pause(SECOND, times, 60 * SECOND).as_secs(), seconds, "{times}");
        }
        let mut pause = GrowingPause::new(Duration::MAX, Duration::MAX);
        assert_eq!((pause.next_pause(), pause.next_pause()), (Duration::MAX, Duration::MAX));
    }
}

//! The slowest that a sender may be. Owns the count of bytes against the time that was waited for
//! them: what somebody else is slow at does not count. Pure: the clock is the caller's.

use std::time::Duration;

use tokio::time::Instant;

/// What is demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateMin {
    /// 0: nothing.
    pub bytes_per_second: u64,
    /// Of waiting, after which it is looked at.
    pub window: Duration,
}

impl RateMin {
    /// Whether so many bytes in so much time of waiting are too few.
    pub(super) fn is_missed(&self, bytes: u64, waited: Duration) -> bool {
        (bytes as f64) < self.bytes_per_second as f64 * waited.as_secs_f64()
    }
}

/// Of one body.
#[derive(Debug)]
pub(super) struct RateFloor {
    min: RateMin,
    waited: Duration,
    bytes: u64,
    since: Option<Instant>,
}

impl RateFloor {
    /// Nothing has come and nobody is waited for yet.
    pub fn new(min: RateMin) -> Self {
        Self { min, waited: Duration::ZERO, bytes: 0, since: None }
    }

    /// The sender is waited for.
    pub fn begin_wait(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Some bytes have come. Says whether the sender is too slow.
    pub fn note_arrival(&mut self, bytes: u64, now: Instant) -> bool {
        self.bytes += bytes;
        let Some(since) = self.since.take() else { return false };
        self.waited += now.saturating_duration_since(since);
        if self.waited < self.min.window {
            return false;
        }
        let missed = self.min.is_missed(self.bytes, self.waited);
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIN: RateMin = RateMin { bytes_per_second: 100, window: Duration::from_secs(10) };

    /// Pieces of so many bytes, each waited for `begin_wait` and then used for `used`. How many came
    /// before it was too slow.
    fn pieces(bytes: u64, wait: Duration, used: Duration) -> Option<usize> {
        let (mut floor, mut now) = (RateFloor::new(MIN), Instant::now());
        (0..1000).find(|_| {
            floor.begin_wait(now);
            now += wait;
            let slow = floor.note_arrival(bytes, now);
            now += used;
            slow
        })
    }

    #[test]
    fn a_trickle_is_too_slow_and_who_is_waited_for_by_others_is_not() {
        assert_eq!(pieces(1, SECOND, Duration::ZERO), Some(9), "a window of waiting");
        assert_eq!(pieces(99, SECOND, Duration::ZERO), Some(9));
        assert_eq!(pieces(101, SECOND, Duration::ZERO), None);
        // A store that takes a minute for each piece.
        assert_eq!(pieces(101, SECOND, 60 * SECOND), None);
        let none = RateFloor::new(RateMin { bytes_per_second: 0, ..MIN }).min;
        assert!(!none.is_missed(0, 3600 * SECOND));
    }

    #[test]
    fn what_came_fast_before_does_not_count_later() {
        let (mut floor, mut now) = (RateFloor::new(MIN), Instant::now());
        assert!(!floor.note_arrival(1 << 30, now));
        let slow = (0..100).find(|_| {
            floor.begin_wait(now);
            now += SECOND;
            floor.note_arrival(1, now)
        });
        assert_eq!(slow, Some(19));
    }
}

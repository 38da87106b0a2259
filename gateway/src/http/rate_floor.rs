//! Owns the minimum rate of a sender: counts its bytes against the time that was spent waiting for
//! them. Others' delays don't count. Pure: the caller gives the clock.

use std::time::Duration;

use tokio::time::Instant;

/// A minimum rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateMin {
    /// 0: no minimum.
    pub bytes_per_second: u64,
    /// Time of waiting after which the rate is checked.
    pub window: Duration,
}

impl RateMin {
    /// Returns whether this many bytes are too few for this time of waiting.
    pub(super) fn is_missed(&self, bytes: u64, waited: Duration) -> bool {
        (bytes as f64) < self.bytes_per_second as f64 * waited.as_secs_f64()
    }
}

/// The rate of one body.
#[derive(Debug)]
pub(super) struct RateFloor {
    min: RateMin,
    waited: Duration,
    bytes: u64,
    since: Option<Instant>,
}

impl RateFloor {
    /// Makes the rate of a body of which nothing has come, and for which nobody waits yet.
    pub fn new(min: RateMin) -> Self {
        Self { min, waited: Duration::ZERO, bytes: 0, since: None }
    }

    /// Notes that somebody waits for the sender from now on.
    pub fn begin_wait(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Notes bytes that have come. Returns whether the sender is too slow.
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

    /// Gives pieces of `bytes`, each after a wait of `wait` and followed by `used`. Returns how
    /// many came before the sender was too slow.
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

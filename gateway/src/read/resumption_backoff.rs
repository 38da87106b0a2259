//! Decides when a body that has begun asks another source for its rest, and when it gives up. Pure:
//! the caller gives the time.

use std::time::Duration;

use tokio::time::Instant;
use verbs3_pacing::GrowingPause;

/// First pause. Each pause without a byte in between doubles.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause: a store that is back is found within it.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Failures of one part of a body since its last bytes came.
#[derive(Debug, Default)]
pub(super) struct ResumptionBackoff {
    /// Time of the first failure, and the pauses from then on.
    failing: Option<(Instant, GrowingPause)>,
}

impl ResumptionBackoff {
    pub(super) fn note_progress(&mut self) {
        self.failing = None;
    }

    /// Returns how long to wait before the next source is asked. `None`: nothing has come for
    /// `wait_max`.
    pub(super) fn next_pause(&mut self, now: Instant, wait_max: Duration) -> Option<Duration> {
        let begin = || (now, GrowingPause::new(PAUSE_MIN, PAUSE_MAX));
        let (since, pauses) = self.failing.get_or_insert_with(begin);
        let pause = pauses.next_pause();
        (now.duration_since(*since) + pause <= wait_max).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(5);

    #[test]
    fn pauses_double_until_the_wait_is_over() {
        let (mut resumption, mut now, mut pauses) =
            (ResumptionBackoff::default(), Instant::now(), Vec::new());
        while let Some(pause) = resumption.next_pause(now, WAIT_MAX) {
            now += pause;
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600]);
    }

    #[test]
    fn bytes_begin_the_wait_anew() {
        let (mut resumption, now) = (ResumptionBackoff::default(), Instant::now());
        assert_eq!(resumption.next_pause(now, WAIT_MAX), Some(PAUSE_MIN));
        resumption.note_progress();
        assert_eq!(resumption.next_pause(now + WAIT_MAX, WAIT_MAX), Some(PAUSE_MIN));
        assert_eq!(resumption.next_pause(now + WAIT_MAX * 2, WAIT_MAX), None);
    }

    #[test]
    fn no_wait_means_no_other_source() {
        assert_eq!(ResumptionBackoff::default().next_pause(Instant::now(), Duration::ZERO), None);
    }
}

//! Owns the pause before coordinators that do not answer are asked again. It grows each time and is
//! jittered, so that a cluster does not come back all at once.

use std::time::Duration;

pub(crate) struct CoordinatorBackoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl CoordinatorBackoff {
    pub(crate) const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// Starts again with the shortest pause, because somebody has answered.
    pub(crate) fn reset_delay(&mut self) {
        self.next = self.min;
    }

    /// Waits. May be cancelled; the next pause is longer all the same.
    pub(crate) async fn sleep_delay(&mut self) {
        tokio::time::sleep(self.next_delay(rand::random_range(0.5..1.0))).await;
    }

    fn next_delay(&mut self, part: f64) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause.mul_f64(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_until_somebody_answers() {
        let seconds = Duration::from_secs;
        let mut pause = CoordinatorBackoff::new(seconds(2), seconds(10));
        let taken = [0.5, 1.0, 0.5, 1.0, 1.0].map(|part| pause.next_delay(part));
        assert_eq!(taken, [1, 4, 4, 10, 10].map(seconds));
        pause.reset_delay();
        assert_eq!(pause.next_delay(1.0), seconds(2));
    }
}

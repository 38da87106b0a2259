//! The pause before a coordinator is asked again, while none answers: longer each time, and with
//! chance in it, so that a cluster does not come back all at once.

use std::time::Duration;

pub(crate) struct Pause {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Pause {
    pub(crate) const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// Somebody has answered.
    pub(crate) fn over(&mut self) {
        self.next = self.min;
    }

    /// Waits. May be cancelled: the next one is longer all the same.
    pub(crate) async fn rest(&mut self) {
        tokio::time::sleep(self.drawn(rand::random_range(0.5..1.0))).await;
    }

    fn drawn(&mut self, part: f64) -> Duration {
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
        let mut pause = Pause::new(seconds(2), seconds(10));
        let taken = [0.5, 1.0, 0.5, 1.0, 1.0].map(|part| pause.drawn(part));
        assert_eq!(taken, [1, 4, 4, 10, 10].map(seconds));
        pause.over();
        assert_eq!(pause.drawn(1.0), seconds(2));
    }
}

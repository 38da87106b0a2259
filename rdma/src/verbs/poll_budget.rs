//! Owns the decision whether a connection polls for its next message or sleeps until the NIC's
//! event.
//!
//! Pure: it is fed with time, and drives nothing. A wait begins when this side sends what the peer
//! answers, not when something arrives: the message that is to be met by a poll is then on its way.

use std::time::{Duration, Instant};

/// Waits that are remembered. Few, so that a worker that has become slow is soon slept for.
const WAITS_MAX: usize = 16;

/// A wait is polled for this many times the longest of the remembered ones.
const PATIENCE: u32 = 2;

/// How long a connection may poll now.
#[derive(Debug)]
pub(super) struct PollBudget {
    /// Most that one wait is polled for.
    longest: Duration,
    /// The last waits, in a ring. Those of a sleeper contain its waking.
    waits: [Duration; WAITS_MAX],
    recorded: usize,
    /// Begin of the wait in progress; `None` while nothing is expected.
    since: Option<Instant>,
    /// Calls of this side that are not answered.
    open_calls: usize,
    asleep: bool,
}

impl PollBudget {
    /// Makes the budget of a connection that polls for `longest` at most.
    pub(super) fn new(longest: Duration) -> Self {
        let waits = [Duration::ZERO; WAITS_MAX];
        Self { longest, waits, recorded: 0, since: None, open_calls: 0, asleep: false }
    }

    /// Records that a call was sent.
    pub(super) fn record_call(&mut self, now: Instant) {
        self.open_calls += 1;
        self.since.get_or_insert(now);
    }

    /// Records that an answer was sent. The next call may be the reaction to it.
    pub(super) fn record_answer(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Records that a frame came. `settles` says that it ends a call of this side.
    pub(super) fn record_arrival(&mut self, settles: bool, now: Instant) {
        if let Some(since) = self.since {
            self.waits[self.recorded % WAITS_MAX] = now.saturating_duration_since(since);
            self.recorded += 1;
        }
        self.open_calls = self.open_calls.saturating_sub(usize::from(settles));
        self.since = (self.open_calls > 0).then_some(now);
    }

    /// Returns true while polling is worth it.
    pub(super) fn may_poll(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) < self.poll_max())
    }

    /// Notes that the driver goes to sleep, unless polling is worth it. Returns whether it sleeps.
    pub(super) fn try_sleep(&mut self, now: Instant) -> bool {
        self.asleep = !self.may_poll(now);
        self.asleep
    }

    /// Notes that the driver is awake.
    pub(super) fn wake_up(&mut self) {
        self.asleep = false;
    }

    /// Returns true if the driver sleeps and should poll.
    pub(super) fn must_wake(&self, now: Instant) -> bool {
        self.asleep && self.may_poll(now)
    }

    /// Returns how long a wait is polled for: twice the longest of the last ones, apart from those
    /// that are too long to poll for. If more than half of them are, it is nothing.
    fn poll_max(&self) -> Duration {
        let known = &self.waits[..self.recorded.min(WAITS_MAX)];
        if known.is_empty() {
            return self.longest;
        }
        let worthy = known.iter().filter(|&&wait| wait <= self.longest * PATIENCE);
        if worthy.clone().count() * 2 < known.len() {
            return Duration::ZERO;
        }
        let longest = worthy.max().copied().unwrap_or_default();
        (longest * PATIENCE).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(100);

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// A budget whose last waits took these microseconds, and the time of the last arrival.
    fn after_waits(waits: &[u64]) -> (PollBudget, Instant) {
        let (mut budget, mut now) = (PollBudget::new(LONGEST), Instant::now());
        for &wait in waits {
            budget.record_call(now);
            now += micros(wait);
            budget.record_arrival(true, now);
        }
        (budget, now)
    }

    #[test]
    fn polling_begins_when_a_call_is_sent_and_ends_with_its_answer() {
        let (mut budget, now) = after_waits(&[]);
        assert!(!budget.may_poll(now), "nothing is expected");
        budget.record_call(now);
        assert!(budget.may_poll(now) && budget.may_poll(now + micros(99)));
        assert!(!budget.may_poll(now + LONGEST));
        budget.record_arrival(true, now + micros(10));
        assert!(!budget.may_poll(now + micros(10)));
    }

    #[test]
    fn a_wait_is_polled_for_twice_what_the_last_ones_took() {
        let (mut budget, now) = after_waits(&[10, 12, 9]);
        budget.record_call(now);
        assert!(budget.may_poll(now + micros(23)) && !budget.may_poll(now + micros(24)));
        let (mut budget, now) = after_waits(&[80; 3]);
        budget.record_call(now);
        assert!(budget.may_poll(now + micros(99)) && !budget.may_poll(now + LONGEST));
    }

    #[test]
    fn answers_that_take_too_long_are_slept_for() {
        let (mut budget, now) = after_waits(&[5000; 3]);
        budget.record_call(now);
        assert!(!budget.may_poll(now));
        // One in three is slow: the others are met, at the cost of a short poll.
        let (mut budget, now) = after_waits(&[10, 5000, 10]);
        budget.record_call(now);
        assert!(budget.may_poll(now + micros(19)) && !budget.may_poll(now + micros(20)));
    }

    #[test]
    fn a_peer_that_is_fast_again_is_polled_for_again() {
        let (mut budget, mut now) = after_waits(&[5000; WAITS_MAX]);
        for _ in 0..WAITS_MAX / 2 {
            budget.record_call(now);
            assert!(!budget.may_poll(now));
            now += micros(30);
            budget.record_arrival(true, now);
        }
        budget.record_call(now);
        assert!(budget.may_poll(now + micros(59)) && !budget.may_poll(now + micros(60)));
    }

    #[test]
    fn open_calls_keep_the_poll_going_from_answer_to_answer() {
        let (mut budget, now) = after_waits(&[]);
        budget.record_call(now);
        budget.record_call(now);
        budget.record_arrival(true, now + micros(10));
        assert!(budget.may_poll(now + micros(29)) && !budget.may_poll(now + micros(30)));
        budget.record_arrival(false, now + micros(40));
        assert!(budget.may_poll(now + micros(41)), "a part that is not the last");
        budget.record_arrival(true, now + micros(50));
        assert!(!budget.may_poll(now + micros(50)));
    }

    #[test]
    fn who_answers_polls_for_the_next_call() {
        let (mut budget, now) = after_waits(&[]);
        budget.record_arrival(false, now);
        assert!(!budget.may_poll(now), "it has something to do");
        budget.record_answer(now);
        assert!(budget.may_poll(now + micros(99)));
    }

    #[test]
    fn a_sleeper_is_woken_by_what_is_sent_once() {
        let (mut budget, now) = after_waits(&[]);
        assert!(budget.try_sleep(now) && !budget.must_wake(now));
        budget.record_call(now);
        assert!(budget.must_wake(now));
        budget.wake_up();
        assert!(!budget.must_wake(now) && !budget.try_sleep(now));
        assert!(budget.try_sleep(now + LONGEST) && !budget.must_wake(now + LONGEST));
    }
}

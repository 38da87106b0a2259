//! Owns the decision whether a thread that waits for an answer looks for it for a moment before it
//! sleeps: being put to sleep and woken takes longer than many answers do.
//!
//! Pure: it is told what waits took, and waits for nothing.

use std::time::Duration;

/// So many waits in a row have to be short, before the next ones are polled.
const SHORT_WAITS_MIN: u32 = 8;

/// The same where polls often miss: other processes want the CPUs, and take longer than an answer.
const SHORT_WAITS_MAX: u32 = 1024;

/// So many polls in a row may meet their answers before a wait reads the socket again: what else the
/// gateway says comes over it.
const POLLS_MAX: u32 = 1024;

/// A sleeper's wait contains its waking, so it counts as short up to this many times the poll.
const PATIENCE: u32 = 2;

/// How long a thread may look for its answer.
#[derive(Debug)]
pub(crate) struct AnswerPolling {
    /// Most that one wait is polled for.
    longest: Duration,
    /// Short waits since the last long one.
    short_waits: u32,
    /// How many of them are needed. A poll that misses doubles it, one that meets takes one off.
    short_waits_needed: u32,
    /// Polls since the socket was read.
    polls: u32,
}

impl AnswerPolling {
    /// Makes the polling of a connection that looks for an answer for `longest` at most. One CPU
    /// has nobody else who could answer meanwhile.
    pub(crate) fn new(longest: Duration) -> Self {
        let has_others = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        Self::for_cpus(if has_others { longest } else { Duration::ZERO })
    }

    fn for_cpus(longest: Duration) -> Self {
        Self { longest, short_waits: 0, short_waits_needed: SHORT_WAITS_MIN, polls: 0 }
    }

    /// Returns how long the next wait may be polled for.
    pub(crate) fn poll_budget(&self) -> Duration {
        let is_due = self.short_waits >= self.short_waits_needed && self.polls < POLLS_MAX;
        if is_due { self.longest } else { Duration::ZERO }
    }

    /// Notes whether a poll met its answer.
    pub(crate) fn note_poll(&mut self, has_met: bool) {
        self.polls += 1;
        if has_met {
            self.short_waits_needed = (self.short_waits_needed - 1).max(SHORT_WAITS_MIN);
        } else {
            self.short_waits = 0;
            self.short_waits_needed = (self.short_waits_needed * 2).min(SHORT_WAITS_MAX);
        }
    }

    /// Notes how long a thread slept until it was woken.
    pub(crate) fn note_sleep(&mut self, slept: Duration) {
        self.polls = 0;
        let is_short = slept <= self.longest * PATIENCE;
        self.short_waits = if is_short { self.short_waits.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(100);

    fn polling_after(slept: &[u64]) -> AnswerPolling {
        let mut polling = AnswerPolling::for_cpus(LONGEST);
        slept.iter().for_each(|&micros| polling.note_sleep(Duration::from_micros(micros)));
        polling
    }

    #[test]
    fn short_waits_in_a_row_are_polled() {
        assert_eq!(polling_after(&[]).poll_budget(), Duration::ZERO);
        assert_eq!(polling_after(&[200; 7]).poll_budget(), Duration::ZERO);
        assert_eq!(polling_after(&[200; 8]).poll_budget(), LONGEST);
    }

    #[test]
    fn a_long_wait_begins_anew() {
        let waits = [&[50; 8][..], &[201], &[50; 7]].concat();
        assert_eq!(polling_after(&waits).poll_budget(), Duration::ZERO);
        assert_eq!(polling_after(&[&waits[..], &[50]].concat()).poll_budget(), LONGEST);
    }

    #[test]
    fn polls_that_miss_become_rare_and_polls_that_meet_become_usual() {
        let short = Duration::from_micros(50);
        let mut polling = polling_after(&[50; 8]);
        let waits_until_poll = |polling: &mut AnswerPolling| {
            let mut waits = 0;
            while polling.poll_budget().is_zero() {
                polling.note_sleep(short);
                waits += 1;
            }
            waits
        };
        for expected in [16, 32, 64, 128, 256, 512, 1024, 1024] {
            polling.note_poll(false);
            assert_eq!(waits_until_poll(&mut polling), expected);
        }
        for _ in 0..3 {
            for _ in 1..POLLS_MAX {
                polling.note_poll(true);
                assert_eq!(polling.poll_budget(), LONGEST);
            }
            polling.note_poll(true);
            assert_eq!(waits_until_poll(&mut polling), 1, "the socket is read now and then");
        }
        polling.note_poll(false);
        assert_eq!(waits_until_poll(&mut polling), 16);
    }

    #[test]
    fn nothing_is_polled_where_that_was_not_wished() {
        let mut polling = AnswerPolling::for_cpus(Duration::ZERO);
        (0..100).for_each(|_| polling.note_sleep(Duration::ZERO));
        assert_eq!(polling.poll_budget(), Duration::ZERO);
    }
}

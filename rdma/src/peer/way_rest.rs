//! Owns the rests of one way to a peer (the shm socket, one rail): a pure state machine, fed with
//! time and chance.
//!
//! Tcp has its own damping (`backoff`). It is the last way, with no fallback, so its rests are
//! short.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use verbs3_pacing::{GrowingPause, jitter_pause};

use crate::settings::PeerSettings;

/// Pause between two attempts of a way that does not rest yet.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);

/// First pause after a peer said that it is full. Places come free within some handshakes.
const FULL_PAUSE_MIN: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct WayRestTracker {
    settings: PeerSettings,
    /// Times of errors that are not older than the window.
    errors: VecDeque<Instant>,
    last_error: Option<Instant>,
    /// No attempt before this time.
    until: Option<Instant>,
    resting: bool,
    /// The last rest; zero where there was none, or where the way has worked for long since.
    rest: Duration,
    well_since: Option<Instant>,
    /// Pauses while the peer is full. They stay below half of the shortest rest.
    full: GrowingPause,
    /// Said that the peer stays full.
    full_told: bool,
}

impl WayRestTracker {
    pub(super) fn new(settings: PeerSettings) -> Self {
        let full_max = settings.rest_min.0 / 2;
        Self {
            full: GrowingPause::new(FULL_PAUSE_MIN.min(full_max), full_max),
            full_told: false,
            settings,
            errors: VecDeque::new(),
            last_error: None,
            until: None,
            resting: false,
            rest: Duration::ZERO,
            well_since: None,
        }
    }

    /// Returns true while calls stay away: from the error that reached the bound until an attempt
    /// succeeds.
    #[cfg(test)]
    pub(super) fn is_resting(&self) -> bool {
        self.resting
    }

    /// Returns true if an attempt may be made now.
    pub(super) fn may_try(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Returns the time from which an attempt may be made; `None` means at any time.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.until
    }

    /// Records a failed attempt. Returns the rest that begins now, if one does. `chance` (0 to 1)
    /// lengthens it by up to a tenth, so that the peers of one broken switch do not come back in
    /// the same instant.
    pub(super) fn record_failure(&mut self, now: Instant, chance: f64) -> Option<Duration> {
        self.last_error = Some(now);
        let PeerSettings { rest_errors_max, rest_window, rest_min, rest_max, .. } = self.settings;
        let (rest_min, rest_max) = (rest_min.0, rest_max.0);
        if !self.resting {
            if self.well_since.is_some_and(|since| now.saturating_duration_since(since) >= rest_max)
            {
                self.rest = Duration::ZERO;
            }
            self.errors.push_back(now);
            self.errors.retain(|&at| now.saturating_duration_since(at) <= rest_window.0);
            if self.errors.len() < rest_errors_max as usize {
                self.until = Some(now + ATTEMPT_PAUSE);
                return None;
            }
        }
        self.errors.clear();
        self.resting = true;
        self.well_since = None;
        self.rest = self.rest.saturating_mul(2).clamp(rest_min, rest_max.max(rest_min));
        self.until = Some(now + self.rest.mul_f64(1.0 + chance.clamp(0.0, 1.0) / 10.0));
        Some(self.rest)
    }

    /// Records that the peer answered that it is full. The way works, so this is no error and
    /// brings no rest. `chance` (0 to 1) spreads the requesters that come at once. Returns whether
    /// pauses are at their longest now and nobody was told: once until an attempt succeeds.
    pub(super) fn record_full(&mut self, now: Instant, chance: f64) -> bool {
        let pause = self.full.next_pause();
        self.until = Some(now + jitter_pause(pause, chance));
        let stays_full = pause == self.full.peek_pause();
        stays_full && !std::mem::replace(&mut self.full_told, true)
    }

    /// Records the loss of a connection that was made at `since`. A connection older than the last
    /// error tells nothing new: several connections over one cable break together.
    pub(super) fn record_loss(
        &mut self,
        since: Instant,
        now: Instant,
        chance: f64,
    ) -> Option<Duration> {
        if self.last_error.is_some_and(|at| since < at) {
            return None;
        }
        let rest = self.record_failure(now, chance);
        if self.errors.len() == 1 {
            // It worked until now: the first break in a while is mended at once.
            self.until = None;
        }
        rest
    }

    /// Records that nothing came over a connection made at `since`. Acts like `record_loss`, but
    /// allows no attempt at once.
    pub(super) fn record_silence(
        &mut self,
        since: Instant,
        now: Instant,
        chance: f64,
    ) -> Option<Duration> {
        if self.last_error.is_some_and(|at| since < at) {
            return None;
        }
        self.record_failure(now, chance)
    }

    /// Records a successful attempt. Returns `true` when that ends a rest.
    pub(super) fn record_success(&mut self, now: Instant) -> bool {
        self.until = None;
        self.full.reset_pause();
        self.full_told = false;
        if self.resting {
            self.well_since = Some(now);
        }
        std::mem::take(&mut self.resting)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use verbs3_settings::TimePeriod;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn resting(start: Instant) -> WayRestTracker {
        let mut rest = WayRestTracker::new(PeerSettings::default());
        assert_eq!(
            (rest.record_failure(start, 0.0), rest.record_failure(start, 0.0)),
            (None, None)
        );
        assert_eq!(rest.record_failure(start, 0.0), Some(Duration::from_secs(30)));
        rest
    }

    #[test]
    fn three_errors_in_a_window_cause_a_rest_and_fewer_a_pause() {
        let (mut rest, t0) = (WayRestTracker::new(PeerSettings::default()), Instant::now());
        assert_eq!(rest.record_failure(t0, 0.0), None);
        assert!(!rest.may_try(t0) && rest.may_try(at(t0, 1)) && !rest.is_resting());
        assert_eq!(rest.record_failure(at(t0, 5), 0.0), None);
        // The first error has left the window.
        assert_eq!(rest.record_failure(at(t0, 11), 0.0), None);
        assert_eq!(rest.record_failure(at(t0, 12), 0.0), Some(Duration::from_secs(30)));
        assert!(rest.is_resting() && !rest.may_try(at(t0, 41)) && rest.may_try(at(t0, 42)));
    }

    #[test]
    fn rests_double_up_to_the_longest() {
        let t0 = Instant::now();
        let mut rest = resting(t0);
        let mut now = t0;
        for expected in [60, 120, 240, 300, 300] {
            now = rest.retry_at().unwrap();
            assert_eq!(rest.record_failure(now, 0.0), Some(Duration::from_secs(expected)));
        }
        assert!(!rest.may_try(at(now, 299)) && rest.may_try(at(now, 300)));
    }

    #[test]
    fn failing_soon_after_a_return_rests_longer_than_failing_late() {
        let t0 = Instant::now();
        for (well_for, expected) in [(10, 60), (299, 60), (300, 30)] {
            let mut rest = resting(t0);
            assert!(rest.record_success(at(t0, 30)) && !rest.is_resting());
            let again = at(t0, 30 + well_for);
            rest.record_failure(again, 0.0);
            rest.record_failure(again, 0.0);
            assert_eq!(
                rest.record_failure(again, 0.0),
                Some(Duration::from_secs(expected)),
                "well for {well_for} s"
            );
        }
    }

    #[test]
    fn the_first_break_is_mended_at_once_and_the_next_after_a_pause() {
        let (mut rest, t0) = (WayRestTracker::new(PeerSettings::default()), Instant::now());
        rest.record_loss(t0, at(t0, 5), 0.0);
        assert!(rest.may_try(at(t0, 5)));
        rest.record_success(at(t0, 5));
        rest.record_loss(at(t0, 6), at(t0, 7), 0.0);
        assert!(!rest.may_try(at(t0, 7)) && rest.may_try(at(t0, 8)));
    }

    #[test]
    fn connections_that_break_together_are_one_error() {
        let (mut rest, t0) = (WayRestTracker::new(PeerSettings::default()), Instant::now());
        for _ in 0..10 {
            assert_eq!(rest.record_loss(t0, at(t0, 5), 0.0), None);
        }
        assert_eq!(rest.record_loss(at(t0, 6), at(t0, 7), 0.0), None);
        assert_eq!(rest.record_loss(at(t0, 8), at(t0, 9), 0.0), Some(Duration::from_secs(30)));
        // What broke with it does not make it rest for longer.
        assert_eq!(rest.record_loss(at(t0, 8), at(t0, 10), 0.0), None);
    }

    #[test]
    fn a_full_peer_is_tried_after_growing_pauses_and_never_rests() {
        let (mut rest, t0) = (WayRestTracker::new(PeerSettings::default()), Instant::now());
        let mut now = t0;
        for expected in [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000] {
            let is_told = rest.record_full(now, 1.0);
            assert_eq!(is_told, expected == 15_000 && now - t0 < Duration::from_secs(30));
            assert_eq!(rest.retry_at(), Some(now + Duration::from_millis(expected)));
            assert!(!rest.may_try(now) && !rest.is_resting());
            now = rest.retry_at().unwrap();
        }
        assert!(!rest.record_full(now, 0.0));
        assert_eq!(rest.retry_at(), Some(now + Duration::from_millis(7500)), "half by chance");
        rest.record_success(now);
        assert!(!rest.record_full(now, 1.0));
        assert_eq!(rest.retry_at(), Some(now + Duration::from_millis(250)), "a place was free");
        // Errors count as if it had never been full.
        assert_eq!((rest.record_failure(now, 0.0), rest.record_failure(now, 0.0)), (None, None));
        rest.record_full(now, 0.0);
        assert!(!rest.is_resting());
        assert_eq!(rest.record_failure(now, 0.0), Some(Duration::from_secs(30)));
    }

    #[test]
    fn a_full_peer_ends_no_rest_and_begins_no_longer_one() {
        let t0 = Instant::now();
        let mut rest = resting(t0);
        rest.record_full(at(t0, 30), 1.0);
        assert!(rest.is_resting() && rest.may_try(at(t0, 31)));
        assert_eq!(rest.record_failure(at(t0, 31), 0.0), Some(Duration::from_secs(60)));
        assert!(rest.record_success(at(t0, 91)));
    }

    #[test]
    fn pauses_of_a_full_peer_stay_below_a_short_rest() {
        let rest_min = TimePeriod::from_millis(100);
        let settings = PeerSettings { rest_min, ..PeerSettings::default() };
        let (mut rest, t0) = (WayRestTracker::new(settings), Instant::now());
        for _ in 0..3 {
            rest.record_full(t0, 1.0);
            assert_eq!(rest.retry_at(), Some(t0 + Duration::from_millis(50)));
        }
    }

    proptest! {
        #[test]
        fn attempts_are_bounded_whatever_happens(
            steps in proptest::collection::vec((0u64..40_000, any::<bool>(), 0.0f64..1.0), 1..300),
        ) {
            let (mut rest, start) = (WayRestTracker::new(PeerSettings::default()), Instant::now());
            let (mut now, mut attempts) = (start, VecDeque::new());
            for (ms, works, chance) in steps {
                now += Duration::from_millis(ms);
                if !rest.may_try(now) {
                    let until = rest.retry_at().unwrap();
                    prop_assert!(until - now <= Duration::from_secs(330));
                    continue;
                }
                if works {
                    rest.record_success(now);
                    prop_assert!(rest.may_try(now) && !rest.is_resting());
                    attempts.clear();
                } else {
                    rest.record_failure(now, chance);
                    attempts.push_back(now);
                    attempts.retain(|&at| now - at <= Duration::from_secs(10));
                    prop_assert!(attempts.len() <= 3,
                        "more than three failed attempts in ten seconds");
                }
            }
        }
    }
}

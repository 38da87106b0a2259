//! Decides whether a folder is used now. Pure: takes the time, and returns what changed.
//!
//! Several errors within a short time make a folder rest, longer each time that it fails again.
//! After its rest it is tried again. A full disk is no failure: the folder goes on with its
//! segments, and asks for more a while later.

use std::time::Duration;

/// Errors within the window that make a folder rest. A rail uses the same numbers.
const ERRORS_MAX: usize = 3;
const WINDOW: Duration = Duration::from_secs(10);
const REST_MIN: Duration = Duration::from_secs(30);
const REST_MAX: Duration = Duration::from_secs(300);

/// How long after a full disk another segment is requested.
const FULL_FOR: Duration = Duration::from_secs(60);

/// A change of health that the caller should log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderHealthChange {
    Rests(Duration),
    Returned,
    Full,
    HasSpace,
}

/// The health of a folder. Times count from the process's start.
#[derive(Debug, Default)]
pub(super) struct FolderHealth {
    /// When the last errors happened.
    errors: Vec<Duration>,
    rest: Option<FolderRestPeriod>,
    full_until: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct FolderRestPeriod {
    until: Duration,
    length: Duration,
}

impl FolderHealth {
    pub(super) fn is_up(&self, now: Duration) -> bool {
        self.rest.is_none_or(|rest| rest.until <= now)
    }

    /// Returns whether the folder rests, or is being tried after a rest.
    pub(super) fn is_suspect(&self) -> bool {
        self.rest.is_some()
    }

    /// Returns whether more space may be requested.
    pub(super) fn may_grow(&self, now: Duration) -> bool {
        self.full_until.is_none_or(|until| until <= now)
    }

    pub(super) fn is_full(&self) -> bool {
        self.full_until.is_some()
    }

    pub(super) fn record_failure(&mut self, now: Duration) -> Option<FolderHealthChange> {
        if !self.is_up(now) {
            return None;
        }
        if self.rest.is_some() {
            return self.record_stall(now);
        }
        self.errors.retain(|&at| now.saturating_sub(at) <= WINDOW);
        self.errors.push(now);
        (self.errors.len() >= ERRORS_MAX).then(|| self.rest_for(now, REST_MIN))
    }

    /// Records a call that does not return. It counts as much as many failed calls.
    pub(super) fn record_stall(&mut self, now: Duration) -> Option<FolderHealthChange> {
        if !self.is_up(now) {
            return None;
        }
        let length = self.rest.map_or(REST_MIN, |rest| (rest.length * 2).min(REST_MAX));
        Some(self.rest_for(now, length))
    }

    pub(super) fn record_success(&mut self, now: Duration) -> Option<FolderHealthChange> {
        if !self.is_up(now) {
            return None;
        }
        self.rest.take().map(|_| {
            self.errors.clear();
            FolderHealthChange::Returned
        })
    }

    pub(super) fn record_full(&mut self, now: Duration) -> Option<FolderHealthChange> {
        self.full_until.replace(now + FULL_FOR).is_none().then_some(FolderHealthChange::Full)
    }

    pub(super) fn record_growth(&mut self) -> Option<FolderHealthChange> {
        self.full_until.take().map(|_| FolderHealthChange::HasSpace)
    }

    fn rest_for(&mut self, now: Duration, length: Duration) -> FolderHealthChange {
        self.errors.clear();
        self.rest = Some(FolderRestPeriod { until: now + length, length });
        FolderHealthChange::Rests(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn errors_far_apart_change_nothing() {
        let mut health = FolderHealth::default();
        for at in 0..20 {
            assert_eq!(health.record_failure(s(at * 6)), None, "at {at}");
        }
        assert!(health.is_up(s(200)));
    }

    #[test]
    fn a_failing_folder_rests_longer_each_time_and_then_returns() {
        let mut health = FolderHealth::default();
        assert_eq!((health.record_failure(s(0)), health.record_failure(s(1))), (None, None));
        assert_eq!(health.record_failure(s(2)), Some(FolderHealthChange::Rests(s(30))));
        assert!(!health.is_up(s(31)) && health.is_up(s(32)));
        // A failure of an operation that began before the rest says nothing new.
        assert_eq!((health.record_failure(s(3)), health.record_success(s(3))), (None, None));
        for (at, rest) in [(32, 60), (92, 120), (212, 240), (452, 300), (752, 300)] {
            assert_eq!(health.record_failure(s(at)), Some(FolderHealthChange::Rests(s(rest))));
        }
        assert_eq!(health.record_success(s(1052)), Some(FolderHealthChange::Returned));
        assert!(!health.is_suspect());
        assert_eq!((health.record_failure(s(1053)), health.record_success(s(1054))), (None, None));
    }

    #[test]
    fn a_folder_that_hangs_rests_at_once() {
        let mut health = FolderHealth::default();
        assert_eq!(health.record_stall(s(5)), Some(FolderHealthChange::Rests(s(30))));
        assert_eq!((health.record_stall(s(6)), health.is_up(s(6))), (None, false));
        assert_eq!(health.record_stall(s(40)), Some(FolderHealthChange::Rests(s(60))));
        assert_eq!(health.record_success(s(101)), Some(FolderHealthChange::Returned));
    }

    #[test]
    fn a_full_disk_is_told_of_once_and_asked_again_later() {
        let mut health = FolderHealth::default();
        assert_eq!(
            (health.record_full(s(0)), health.record_full(s(1))),
            (Some(FolderHealthChange::Full), None)
        );
        assert!(
            health.is_up(s(1))
                && !health.may_grow(s(60))
                && health.may_grow(s(61))
                && health.is_full()
        );
        assert_eq!(
            (health.record_growth(), health.record_growth()),
            (Some(FolderHealthChange::HasSpace), None)
        );
    }
}

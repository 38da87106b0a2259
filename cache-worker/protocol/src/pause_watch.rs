//! Detects time that a host's own clock did not count. A virtual machine that its hypervisor has
//! stopped resumes with the clock that it had. Sooner or later something (its agent, NTP) sets the
//! wall clock forward. Comparing the two clocks shows that leases may be over. Pure: callers pass
//! the clocks' readings.
//!
//! A wall clock that is set forward for another reason ends leases early, which costs a question
//! each. A wall clock that nobody sets shows nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Least step that counts, in nanoseconds. Smaller steps come from reading the two clocks one after
/// the other. Leases are much longer, and end a tenth early.
const STEP_NANOS_MIN: i64 = 20_000_000;
const UNSET: i64 = i64::MIN;

/// Total time that the wall clock gained over the host's own clock.
#[derive(Debug)]
pub struct PauseWatch {
    /// Wall clock minus own clock, as after the last step.
    offset: AtomicI64,
    missed: AtomicU64,
}

impl Default for PauseWatch {
    fn default() -> Self {
        Self::new()
    }
}

impl PauseWatch {
    /// Creates a watch without missed time. The first call of `missed_time` sets the offset that
    /// later calls compare with.
    pub const fn new() -> Self {
        Self { offset: AtomicI64::new(UNSET), missed: AtomicU64::new(0) }
    }

    /// Takes both clocks' readings of about one moment. Returns all the time that the own clock may
    /// have missed since the first call. Never returns less than before.
    pub fn missed_time(&self, own: Duration, wall: Duration) -> Duration {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        let now = nanos(wall).saturating_sub(nanos(own));
        let before = self.offset.load(Ordering::SeqCst);
        let step = if before == UNSET { 0 } else { now.saturating_sub(before) };
        if step >= STEP_NANOS_MIN {
            // The time is added before the offset changes, so nobody sees the new offset without
            // it. Two callers that see one step at once count it twice, which ends leases early and
            // is safe.
            self.missed.fetch_add(step.unsigned_abs(), Ordering::SeqCst);
        }
        if before == UNSET || step.abs() >= STEP_NANOS_MIN {
            let _ = self.offset.compare_exchange(before, now, Ordering::SeqCst, Ordering::SeqCst);
        }
        Duration::from_nanos(self.missed.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_the_wall_clock_leaps_by_is_counted_once() {
        let watch = PauseWatch::new();
        let day = ms(86_400_000);
        assert_eq!(watch.missed_time(ms(1000), day + ms(1000)), ms(0));
        assert_eq!(watch.missed_time(ms(5000), day + ms(5003)), ms(0), "read one after the other");
        // Stopped for ten seconds, and set right.
        assert_eq!(watch.missed_time(ms(5500), day + ms(15_500)), ms(10_000));
        assert_eq!(watch.missed_time(ms(9000), day + ms(19_000)), ms(10_000));
        assert_eq!(watch.missed_time(ms(9100), day + ms(19_200)), ms(10_100));
    }

    #[test]
    fn a_wall_clock_that_is_set_back_hides_no_later_pause() {
        let watch = PauseWatch::new();
        let day = ms(86_400_000);
        assert_eq!(watch.missed_time(ms(0), day), ms(0));
        assert_eq!(watch.missed_time(ms(1000), ms(1000)), ms(0));
        assert_eq!(watch.missed_time(ms(2000), ms(7000)), ms(5000));
        // Set right again: from 5 s beside the own clock to a day less 3 s.
        assert_eq!(watch.missed_time(ms(3000), day), ms(5000) + (day - ms(8000)));
    }
}

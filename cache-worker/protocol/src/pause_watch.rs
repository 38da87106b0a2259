//! Time that a host's own clock did not count: a virtual machine that its hypervisor has stopped
//! goes on with the clock that it had, and sooner or later something (its agent, NTP) sets the wall
//! clock forward. Who compares the two knows that leases may be over. Pure: is told what the clocks
//! say.
//!
//! A wall clock that is set forward for another reason ends leases early, which costs a question
//! each. One that nobody sets says nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Smaller steps are what reading two clocks one after the other makes of them. Leases are longer
/// by far, and end a tenth early.
const STEP_NANOS_MIN: i64 = 20_000_000;
const UNSET: i64 = i64::MIN;

/// What the wall clock has gone on by beside the host's own, in all.
#[derive(Debug)]
pub struct PauseWatch {
    /// The wall clock less the own one, as it was after the last step.
    offset: AtomicI64,
    missed: AtomicU64,
}

impl Default for PauseWatch {
    fn default() -> Self {
        Self::new()
    }
}

impl PauseWatch {
    /// No time is missed yet. The first call of `missed_time` sets the offset that later ones
    /// compare with.
    pub const fn new() -> Self {
        Self { offset: AtomicI64::new(UNSET), missed: AtomicU64::new(0) }
    }

    /// The clocks say so, at about one moment. All that the own clock may have missed since the
    /// first call; never less than before.
    pub fn missed_time(&self, own: Duration, wall: Duration) -> Duration {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        let now = nanos(wall).saturating_sub(nanos(own));
        let before = self.offset.load(Ordering::SeqCst);
        let step = if before == UNSET { 0 } else { now.saturating_sub(before) };
        if step >= STEP_NANOS_MIN {
            // First: nobody finds the new offset without the time. Two who see one step at once
            // count it twice, which is early and safe.
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

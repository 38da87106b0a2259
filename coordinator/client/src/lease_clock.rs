//! Owns time as leases count it: this host's, never set back, and counting while the host sleeps.
//!
//! `Instant` does not serve: its clock stands still while a host is suspended. A host that wakes up
//! must know that its lease is over.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use verbs3_protocol::PauseWatch;

/// Nanoseconds since this host was started. Meaningless on another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LeaseInstant(u64);

impl LeaseInstant {
    /// The moment that never comes.
    pub const END: Self = Self(u64::MAX);

    /// Creates the moment `nanos` nanoseconds after this host's start.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since this host's start.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment `duration` later, or the end of time.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns how long after `earlier` this is; zero if it is not later.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Source of time.
pub trait LeaseClock: Send + Sync + 'static {
    fn now(&self) -> LeaseInstant;

    /// Returns the latest that the time may be, because this host's own clock may have stood still.
    /// Use it for the end of one's own rights, never for waiting for others.
    fn latest_now(&self) -> LeaseInstant {
        self.now()
    }
}

/// Clock that several tasks share.
pub type SharedLeaseClock = Arc<dyn LeaseClock>;

/// The machine's clock that also counts sleep.
#[derive(Debug, Default, Clone, Copy)]
pub struct BootLeaseClock;

/// Shared by the whole process.
static PAUSES: PauseWatch = PauseWatch::new();

impl LeaseClock for BootLeaseClock {
    fn now(&self) -> LeaseInstant {
        LeaseInstant::default().saturating_add(read(ClockId::Boottime))
    }

    fn latest_now(&self) -> LeaseInstant {
        let (wall, own) = (read(ClockId::Realtime), read(ClockId::Boottime));
        LeaseInstant::default().saturating_add(own).saturating_add(PAUSES.missed_time(own, wall))
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Rounds up to milliseconds, so that the time is never shorter.
pub(crate) fn ceil_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

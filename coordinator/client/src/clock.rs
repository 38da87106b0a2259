//! Time as leases count it: this host's, never set back, and going on while the host sleeps.
//!
//! Not the clock of `Instant`, which stands still while a host is suspended: who wakes up must know
//! that its lease is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use verbs3_protocol::PauseWatch;

/// Nanoseconds since this host was started. Means nothing to another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

impl Moment {
    /// Never.
    pub const END: Self = Self(u64::MAX);

    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub fn nanos(self) -> u64 {
        self.0
    }

    /// The moment `duration` later, or the end of time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Moment;

    /// The latest that it may be, where this host's own clock may have stood still: for the ends of
    /// one's own rights, and never for what others are waited for.
    fn latest(&self) -> Moment {
        self.now()
    }
}

pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock that counts sleep, too.
#[derive(Debug, Default, Clone, Copy)]
pub struct BootClock;

/// Of this process.
static PAUSES: PauseWatch = PauseWatch::new();

impl Clock for BootClock {
    fn now(&self) -> Moment {
        Moment::default().after(read(ClockId::Boottime))
    }

    fn latest(&self) -> Moment {
        let (wall, own) = (read(ClockId::Realtime), read(ClockId::Boottime));
        Moment::default().after(own).after(PAUSES.missed(own, wall))
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// A clock that moves when it is told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    pub fn advance(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.nanos.load(Ordering::SeqCst))
    }
}

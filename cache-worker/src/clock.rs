//! Time, injected: what decides takes a [`Moment`], so that tests move time instead of sleeping.
//!
//! Deadlines of I/O belong to tokio and to the UFS client, not to this clock. It goes on while the host sleeps, which `Instant`
//! does not: who wakes up must know that its lease is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the clock began. Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

impl Moment {
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `duration` later, or the end of time.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it was not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Since the clock began.
    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds since the clock began, for coarse stamps.
    pub fn seconds(self) -> u32 {
        u32::try_from(self.0 / 1_000_000_000).unwrap_or(u32::MAX)
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Moment;
}

/// The machine's clock since it was started, sleep included.
#[derive(Debug)]
pub struct SystemClock {
    start: Duration,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: since_boot() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment::default().after(since_boot().saturating_sub(self.start))
    }
}

fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
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

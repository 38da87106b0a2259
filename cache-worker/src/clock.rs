//! Injected time: code that decides takes a [`WorkerInstant`], so tests move time instead of
//! sleeping.
//!
//! Deadlines of I/O belong to tokio and to the UFS client, not to this clock. This clock also
//! counts while the host sleeps, unlike `Instant`: after waking up, a worker must know that its
//! lease is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use verbs3_protocol::PauseWatch;

/// Nanoseconds since the clock began. Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WorkerInstant(u64);

impl WorkerInstant {
    /// Returns the moment `nanos` nanoseconds after the clock began.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the moment `duration` later, at most the end of time.
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns how long ago `earlier` was, or zero if it is not earlier.
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns nanoseconds since the clock began.
    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns whole seconds since the clock began, for coarse timestamps.
    pub fn as_secs(self) -> u32 {
        u32::try_from(self.0 / 1_000_000_000).unwrap_or(u32::MAX)
    }
}

/// The current time, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// The host's own clock. Use it for timeouts and for ages.
    pub now: WorkerInstant,
    /// The latest possible time, in case the host's own clock stood still. Use it to decide whether
    /// a lease is over.
    pub latest: WorkerInstant,
}

impl ClockReading {
    /// Returns how much time the host's own clock may have missed in all.
    pub(crate) fn missed(self) -> Duration {
        self.latest.duration_since(self.now)
    }
}

impl From<WorkerInstant> for ClockReading {
    /// Builds the reading of a clock that misses nothing.
    fn from(now: WorkerInstant) -> Self {
        Self { now, latest: now }
    }
}

/// A source of time.
pub trait WorkerClock: Send + Sync + 'static {
    fn now(&self) -> WorkerInstant;

    fn read_times(&self) -> ClockReading {
        self.now().into()
    }
}

/// The machine's clock since boot, including the time that the host slept.
#[derive(Debug)]
pub struct SystemClock {
    start: Duration,
    pauses: PauseWatch,
}

impl Default for SystemClock {
    fn default() -> Self {
        let clock = Self { start: since_boot(), pauses: PauseWatch::new() };
        clock.read_times();
        clock
    }
}

impl WorkerClock for SystemClock {
    fn now(&self) -> WorkerInstant {
        WorkerInstant::default().saturating_add(since_boot().saturating_sub(self.start))
    }

    fn read_times(&self) -> ClockReading {
        let (wall, own) = (read(ClockId::Realtime), since_boot());
        let now = WorkerInstant::default().saturating_add(own.saturating_sub(self.start));
        ClockReading { now, latest: now.saturating_add(self.pauses.missed_time(own, wall)) }
    }
}

fn since_boot() -> Duration {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// A clock that moves only when it is told to.
#[derive(Debug, Default)]
pub struct ManualWorkerClock {
    nanos: AtomicU64,
    missed: AtomicU64,
}

impl ManualWorkerClock {
    /// Moves the clock forward by `duration`. The present moment and the latest possible moment
    /// move alike.
    pub fn advance_time(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Simulates a host that was stopped for `duration`, and whose wall clock was corrected since.
    pub fn simulate_pause(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.missed.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl WorkerClock for ManualWorkerClock {
    fn now(&self) -> WorkerInstant {
        WorkerInstant(self.nanos.load(Ordering::SeqCst))
    }

    fn read_times(&self) -> ClockReading {
        let now = self.now();
        ClockReading {
            now,
            latest: now.saturating_add(Duration::from_nanos(self.missed.load(Ordering::SeqCst))),
        }
    }
}

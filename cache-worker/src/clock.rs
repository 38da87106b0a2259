//! Time, injected: what decides takes a [`WorkerInstant`], so that tests move time instead of sleeping.
//!
//! Deadlines of I/O belong to tokio and to the UFS client, not to this clock. It goes on while the
//! host sleeps, which `Instant` does not: who wakes up must know that its lease is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use verbs3_protocol::PauseWatch;

/// Nanoseconds since the clock began. Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WorkerInstant(u64);

impl WorkerInstant {
    /// The moment that lies `nanos` nanoseconds after the clock began.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `duration` later, or the end of time.
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it was not.
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Since the clock began.
    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds since the clock began, for coarse stamps.
    pub fn as_secs(self) -> u32 {
        u32::try_from(self.0 / 1_000_000_000).unwrap_or(u32::MAX)
    }
}

/// Now, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// By the host's own clock: for what others are waited for.
    pub now: WorkerInstant,
    /// The latest that it may be, where the host's own clock may have stood still: for the ends of
    /// rights.
    pub latest: WorkerInstant,
}

impl ClockReading {
    /// What the host's own clock may have missed, in all.
    pub(crate) fn missed(self) -> Duration {
        self.latest.duration_since(self.now)
    }
}

impl From<WorkerInstant> for ClockReading {
    /// Of a clock that misses nothing.
    fn from(now: WorkerInstant) -> Self {
        Self { now, latest: now }
    }
}

/// Where the time comes from.
pub trait WorkerClock: Send + Sync + 'static {
    fn now(&self) -> WorkerInstant;

    fn read_times(&self) -> ClockReading {
        self.now().into()
    }
}

/// The machine's clock since it was started, sleep included.
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

/// A clock that moves when it is told to.
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

    /// As if the host had been stopped for so long, and its wall clock set right since.
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

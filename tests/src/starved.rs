//! How long this machine kept a test from running: what a bound on time has to leave room for, and
//! no more. Owns a thread that wants to wake every few milliseconds, and counts by how much it is
//! late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(20);
/// Less is what any machine that does something has.
const NOTED: Duration = Duration::from_millis(20);

/// Counts until it is dropped.
pub struct Starved {
    late_us: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Starved {
    pub fn watch() -> Self {
        let (late_us, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ended) = (late_us.clone(), over.clone());
        // Ends by itself, a moment after the drop.
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                std::thread::sleep(EVERY);
                let late = began.elapsed().saturating_sub(EVERY);
                if late > NOTED {
                    counted.fetch_add(
                        u64::try_from(late.as_micros()).unwrap_or(u64::MAX),
                        Ordering::Relaxed,
                    );
                }
            }
        });
        Self { late_us, over }
    }

    /// All of it so far.
    pub fn time(&self) -> Duration {
        Duration::from_micros(self.late_us.load(Ordering::Relaxed))
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

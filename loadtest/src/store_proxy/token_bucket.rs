//! A token bucket, as arithmetic: it tells takers of bytes how long to wait. Clock injected.

use std::time::Duration;

/// Time whose bytes may pass at once after a rest; small beside what is measured, large beside a
/// frame.
const BURST: Duration = Duration::from_millis(10);

/// A bound on bytes per second with a burst of 10 ms.
#[derive(Debug)]
pub struct ProxyTokenBucket {
    bytes_per_second: f64,
    /// When all promised bytes have passed.
    free_at: Duration,
}

impl ProxyTokenBucket {
    /// Creates a full bucket. `bytes_per_second` must be above 0.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second as f64, free_at: Duration::ZERO }
    }

    /// Promises `bytes` at `now`, and returns the time at which they may pass.
    pub fn reserve_bytes(&mut self, now: Duration, bytes: u64) -> Duration {
        // Unused time is lost, except for the burst.
        let start = self.free_at.max(now.saturating_sub(BURST));
        self.free_at = start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takers_together_get_the_rate_and_no_more() {
        let mut bucket = ProxyTokenBucket::new(1_000_000);
        let mut now = Duration::ZERO;
        for _ in 0..1000 {
            // Two takers in turn, who both wait as they are told.
            let first = bucket.reserve_bytes(now, 4_000);
            let second = bucket.reserve_bytes(now, 6_000);
            assert!(first < second);
            now = now.max(second);
        }
        // 10 MB at 1 MB/s.
        assert!((now.as_secs_f64() - 10.0).abs() < 0.02, "{now:?}");
    }

    #[test]
    fn a_rest_saves_up_a_burst_only() {
        let mut bucket = ProxyTokenBucket::new(1_000_000);
        let later = Duration::from_secs(100);
        assert!(bucket.reserve_bytes(later, 10_000) <= later, "10 ms of rate pass at once");
        let next = bucket.reserve_bytes(later, 1_000_000);
        assert!((next - later).as_secs_f64() > 0.98, "the rest of the 100 s is lost");
    }
}

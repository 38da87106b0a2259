//! Bounds of a gateway's reads: bytes in flight, and reads that go to the UFS past the tier.
//!
//! A request waits for its first bytes before it holds any memory, and for no more than a bounded time; growing is tried,
//! never waited for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Unit of a semaphore that counts bytes: 1 KiB, so that 4 TiB fit its 32-bit count.
const UNIT_BYTES: u64 = 1 << 10;

/// Bytes in flight of all reads.
pub(super) struct Admission {
    bytes: Arc<Semaphore>,
    bytes_max: u64,
    wait_max: Duration,
}

/// Admitted bytes; given back on drop.
pub(super) struct Admitted {
    permit: OwnedSemaphorePermit,
}

impl Admission {
    pub(super) fn new(bytes_max: u64, wait_max: Duration) -> Self {
        let units = usize::try_from(bytes_max / UNIT_BYTES).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Self { bytes: Arc::new(Semaphore::new(units)), bytes_max, wait_max }
    }

    fn units(&self, bytes: u64) -> u32 {
        let units = bytes.min(self.bytes_max).div_ceil(UNIT_BYTES).max(1);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Waits up to the configured time. `None`: overloaded.
    pub(super) async fn enter(&self, bytes: u64) -> Option<Admitted> {
        if let Some(admitted) = self.try_enter(bytes) {
            return Some(admitted);
        }
        let turn = self.bytes.clone().acquire_many_owned(self.units(bytes));
        let permit = timeout(self.wait_max, turn).await.ok()?.ok()?;
        Some(Admitted { permit })
    }

    pub(super) fn try_enter(&self, bytes: u64) -> Option<Admitted> {
        let permit = self.bytes.clone().try_acquire_many_owned(self.units(bytes)).ok()?;
        Some(Admitted { permit })
    }

    pub(super) fn bytes_in_flight(&self) -> u64 {
        let free = self.bytes.available_permits() as u64 * UNIT_BYTES;
        self.bytes_max.saturating_sub(free)
    }
}

impl Admitted {
    /// Keeps `bytes` and gives the rest back.
    pub(super) fn shrink(&mut self, admission: &Admission, bytes: u64) {
        let keep = admission.units(bytes) as usize;
        let surplus = self.permit.num_permits().saturating_sub(keep);
        drop(self.permit.split(surplus));
    }
}

/// Reads of this gateway that go past the tier.
#[derive(Clone)]
pub(super) struct BypassPlaces {
    places: Arc<Semaphore>,
    wait_max: Duration,
}

impl BypassPlaces {
    pub(super) fn new(in_flight_max: usize, wait_max: Duration) -> Self {
        Self { places: Arc::new(Semaphore::new(in_flight_max.clamp(1, Semaphore::MAX_PERMITS))), wait_max }
    }

    /// `None`: none became free in time.
    pub(super) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        timeout(self.wait_max, self.places.clone().acquire_owned()).await.ok()?.ok()
    }

    pub(super) fn free(&self) -> usize {
        self.places.available_permits()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn over_the_bound_a_read_waits_a_bounded_time() {
        let admission = Admission::new(8 << 10, Duration::from_secs(1));
        let held = admission.enter(6 << 10).await.unwrap();
        assert!(admission.enter(3 << 10).await.is_none());
        assert_eq!(admission.bytes_in_flight(), 6 << 10);
        drop(held);
        assert!(admission.enter(3 << 10).await.is_some());
    }

    #[tokio::test]
    async fn what_a_read_does_not_need_is_given_back() {
        let admission = Admission::new(8 << 10, Duration::from_secs(1));
        let mut held = admission.enter(8 << 10).await.unwrap();
        held.shrink(&admission, 10);
        assert_eq!(admission.bytes_in_flight(), 1 << 10);
        held.shrink(&admission, 5 << 10);
        assert_eq!(admission.bytes_in_flight(), 1 << 10);
    }

    #[tokio::test]
    async fn a_read_larger_than_all_is_admitted_alone() {
        let admission = Admission::new(8 << 10, Duration::ZERO);
        let held = admission.enter(u64::MAX).await.unwrap();
        assert!(admission.try_enter(1).is_none());
        drop(held);
        assert!(admission.try_enter(1).is_some());
    }
}

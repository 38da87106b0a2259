//! Owns the bound on the memory of all requests' bodies. A body takes its memory before its first
//! byte is read, and gives it back with the request's end. Nobody waits: over the bound the request
//! is answered SlowDown.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit of the semaphore that counts bytes, so that 4 TiB fit its 32-bit count.
const UNIT_BYTES: u64 = 1024;

/// The memory for bodies of a gateway.
pub(crate) struct BodyBudget {
    memory: Arc<Semaphore>,
    bytes_max: u64,
    held: IntGauge,
}

/// Taken memory. Dropping it gives it back.
pub(crate) struct BodyPlace {
    _permit: OwnedSemaphorePermit,
    held: IntGauge,
    bytes: i64,
}

impl BodyBudget {
    /// Makes a budget. `held` counts the taken bytes. The bound is counted in KiB, and is at least
    /// 1 KiB.
    pub fn new(bytes_max: u64, held: IntGauge) -> Arc<Self> {
        let units = usize::try_from(bytes_max / UNIT_BYTES)
            .unwrap_or(usize::MAX)
            .clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self { memory: Arc::new(Semaphore::new(units)), bytes_max, held })
    }

    /// Takes memory. `None`: not enough is left. A body larger than the budget takes all of it.
    pub fn take_memory(&self, bytes: u64) -> Option<BodyPlace> {
        let units = u32::try_from(bytes.min(self.bytes_max).div_ceil(UNIT_BYTES).max(1)).ok()?;
        let permit = self.memory.clone().try_acquire_many_owned(units).ok()?;
        let bytes = i64::from(units) * UNIT_BYTES as i64;
        self.held.add(bytes);
        Some(BodyPlace { _permit: permit, held: self.held.clone(), bytes })
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        self.held.sub(self.bytes);
    }
}

/// One request's part of the budget.
pub(crate) struct BodyReservation {
    budget: Arc<BodyBudget>,
    bytes: u64,
    place: Mutex<Option<BodyPlace>>,
}

impl BodyReservation {
    /// Makes a reservation that takes nothing yet: an unproven caller holds no memory.
    pub fn new(budget: Arc<BodyBudget>, bytes: u64) -> Arc<Self> {
        Arc::new(Self { budget, bytes, place: Mutex::new(None) })
    }

    /// Takes the memory if the body has none yet. Returns whether it has it now.
    pub fn ensure_place(&self) -> bool {
        let mut place = self.place.lock();
        if place.is_none() {
            *place = self.budget.take_memory(self.bytes);
        }
        place.is_some()
    }

    /// Gives the memory back, because the body is gone.
    pub fn release_place(&self) {
        *self.place.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn over_the_bound_there_is_no_place_until_one_is_given_back() {
        let held = IntGauge::new("held", "held").unwrap();
        let budget = BodyBudget::new(8 << 10, held.clone());
        let first = BodyReservation::new(budget.clone(), 6 << 10);
        let second = BodyReservation::new(budget.clone(), 3 << 10);
        assert!(
            held.get() == 0
                && first.ensure_place()
                && first.ensure_place()
                && !second.ensure_place()
        );
        assert_eq!(held.get(), 6 << 10);
        first.release_place();
        assert!(second.ensure_place());
        drop((first, second));
        assert_eq!(held.get(), 0);
        assert!(budget.take_memory(u64::MAX).is_some(), "what is larger than all is taken alone");
    }
}

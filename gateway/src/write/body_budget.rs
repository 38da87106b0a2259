//! Memory for the bodies of requests. Owns the bound on all of them together: a body takes its
//! place before the first of it is read and gives it back with the request's end. Nobody waits:
//! over the bound the request is answered SlowDown.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit of the semaphore that counts bytes, so that 4 TiB fit its 32-bit count.
const UNIT_BYTES: u64 = 1024;

/// Of a gateway.
pub(crate) struct BodyBudget {
    memory: Arc<Semaphore>,
    bytes_max: u64,
    held: IntGauge,
}

/// Taken memory; given back on drop.
pub(crate) struct BodyPlace {
    _permit: OwnedSemaphorePermit,
    held: IntGauge,
    bytes: i64,
}

impl BodyBudget {
    /// `held` counts the bytes that are taken. The bound is counted in KiB, and is 1 KiB at least.
    pub fn new(bytes_max: u64, held: IntGauge) -> Arc<Self> {
        let units = usize::try_from(bytes_max / UNIT_BYTES)
            .unwrap_or(usize::MAX)
            .clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self { memory: Arc::new(Semaphore::new(units)), bytes_max, held })
    }

    /// `None`: there is not so much left. What is larger than all of it is alone.
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

/// One request's part of it.
pub(crate) struct BodyReservation {
    budget: Arc<BodyBudget>,
    bytes: u64,
    place: Mutex<Option<BodyPlace>>,
}

impl BodyReservation {
    /// Takes nothing yet: whoever has not proven who they are holds none of it.
    pub fn new(budget: Arc<BodyBudget>, bytes: u64) -> Arc<Self> {
        Arc::new(Self { budget, bytes, place: Mutex::new(None) })
    }

    /// Whether the body has its place, which is taken now if it has not.
    pub fn ensure_place(&self) -> bool {
        let mut place = self.place.lock();
        if place.is_none() {
            *place = self.budget.take_memory(self.bytes);
        }
        place.is_some()
    }

    /// Nothing of the body is held any more.
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

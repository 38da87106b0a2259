//! Owns the bounds of a gateway's reads: bytes in flight, and reads that go to the UFS past the
//! tier.
//!
//! A request waits for its first bytes before it holds any memory, and only for a bounded time. It
//! tries to grow, but never waits for that.

use std::sync::Arc;
use std::time::Duration;

use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use verbs3_doors::{KeyShare, KeyShares};

use crate::exchange::share_of;

/// Unit of a semaphore that counts bytes: 1 KiB, so that 4 TiB fit its 32-bit count.
const UNIT_BYTES: u64 = 1 << 10;

/// The bound on bytes in flight of all reads.
pub(super) struct ReadAdmission {
    bytes: Arc<Semaphore>,
    bytes_max: u64,
    wait_max: Duration,
    in_flight: IntGauge,
}

/// Admitted bytes. Dropping it gives them back.
pub(super) struct ReadBytesPermit {
    permit: OwnedSemaphorePermit,
    in_flight: IntGauge,
}

impl ReadAdmission {
    pub(super) fn new(bytes_max: u64, wait_max: Duration, in_flight: IntGauge) -> Self {
        let units = usize::try_from(bytes_max / UNIT_BYTES)
            .unwrap_or(usize::MAX)
            .clamp(1, Semaphore::MAX_PERMITS);
        Self { bytes: Arc::new(Semaphore::new(units)), bytes_max, wait_max, in_flight }
    }

    fn byte_units(&self, bytes: u64) -> u32 {
        let units = bytes.min(self.bytes_max).div_ceil(UNIT_BYTES).max(1);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Admits bytes; waits up to the configured time. `None`: overloaded.
    pub(super) async fn admit_bytes(&self, bytes: u64) -> Option<ReadBytesPermit> {
        if let Some(admitted) = self.try_enter(bytes) {
            return Some(admitted);
        }
        let turn = self.bytes.clone().acquire_many_owned(self.byte_units(bytes));
        let permit = timeout(self.wait_max, turn).await.ok()?.ok()?;
        Some(self.grant_permit(permit))
    }

    pub(super) fn try_enter(&self, bytes: u64) -> Option<ReadBytesPermit> {
        let permit = self.bytes.clone().try_acquire_many_owned(self.byte_units(bytes)).ok()?;
        Some(self.grant_permit(permit))
    }

    fn grant_permit(&self, permit: OwnedSemaphorePermit) -> ReadBytesPermit {
        self.in_flight.add(bytes_of(&permit));
        ReadBytesPermit { permit, in_flight: self.in_flight.clone() }
    }
}

fn bytes_of(permit: &OwnedSemaphorePermit) -> i64 {
    permit.num_permits() as i64 * UNIT_BYTES as i64
}

impl Drop for ReadBytesPermit {
    fn drop(&mut self) {
        self.in_flight.sub(bytes_of(&self.permit));
    }
}

impl ReadBytesPermit {
    /// Changes the held bytes to `bytes`: gives the rest back, or takes what is missing if it is
    /// free now. The first span goes on in any case: it has a landing or the UFS.
    pub(super) fn resize_permit(&mut self, admission: &ReadAdmission, bytes: u64) {
        let before = bytes_of(&self.permit);
        let (wanted, held) = (admission.byte_units(bytes) as usize, self.permit.num_permits());
        if wanted <= held {
            drop(self.permit.split(held - wanted));
        } else if let Ok(more) =
            admission.bytes.clone().try_acquire_many_owned((wanted - held) as u32)
        {
            self.permit.merge(more);
        }
        self.in_flight.add(bytes_of(&self.permit) - before);
    }
}

/// The places of this gateway's reads past the tier.
#[derive(Clone)]
pub(super) struct BypassPlaces {
    places: Arc<Semaphore>,
    /// Places that one of several identities may hold.
    shares: Arc<KeyShares<String>>,
    wait_max: Duration,
    in_flight: IntGauge,
}

/// A place among them. Dropping it gives it back.
pub(super) struct BypassPermit {
    _permit: OwnedSemaphorePermit,
    _share: Option<KeyShare<String>>,
    in_flight: IntGauge,
}

impl BypassPlaces {
    /// Makes the places. `share_percent`: part that one of several identities may hold.
    pub(super) fn new(
        in_flight_max: usize,
        share_percent: u32,
        wait_max: Duration,
        in_flight: IntGauge,
    ) -> Self {
        let in_flight_max = in_flight_max.clamp(1, Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(in_flight_max));
        Self {
            places,
            shares: KeyShares::new(share_of(in_flight_max, share_percent)),
            wait_max,
            in_flight,
        }
    }

    /// Takes a place. `None`: none became free in time, or `principal` holds its share. A single
    /// identity is not named.
    pub(super) async fn take_permit(&self, principal: Option<&str>) -> Option<BypassPermit> {
        let share = match principal {
            Some(name) => Some(self.shares.take_share(&name.to_owned())?),
            None => None,
        };
        let permit =
            timeout(self.wait_max, self.places.clone().acquire_owned()).await.ok()?.ok()?;
        self.in_flight.inc();
        Some(BypassPermit { _permit: permit, _share: share, in_flight: self.in_flight.clone() })
    }
}

impl Drop for BypassPermit {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn admission(wait_max: Duration) -> ReadAdmission {
        let gauge = IntGauge::new("bytes", "bytes").unwrap();
        ReadAdmission::new(8 << 10, wait_max, gauge)
    }

    #[tokio::test(start_paused = true)]
    async fn over_the_bound_a_read_waits_a_bounded_time() {
        let admission = admission(Duration::from_secs(1));
        let held = admission.admit_bytes(6 << 10).await.unwrap();
        assert!(admission.admit_bytes(3 << 10).await.is_none());
        assert_eq!(admission.in_flight.get(), 6 << 10);
        drop(held);
        assert!(admission.admit_bytes(3 << 10).await.is_some());
    }

    #[tokio::test]
    async fn a_read_holds_what_it_needs_as_far_as_there_is_room() {
        let admission = admission(Duration::from_secs(1));
        let mut held = admission.admit_bytes(8 << 10).await.unwrap();
        held.resize_permit(&admission, 10);
        assert_eq!(admission.in_flight.get(), 1 << 10);
        held.resize_permit(&admission, 5 << 10);
        assert_eq!(admission.in_flight.get(), 5 << 10);
        held.resize_permit(&admission, 80 << 10);
        assert_eq!(admission.in_flight.get(), 8 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_several_identities_leaves_places_for_others() {
        let places = BypassPlaces::new(
            10,
            80,
            Duration::from_secs(1),
            IntGauge::new("places", "places").unwrap(),
        );
        let mut held = Vec::new();
        while let Some(place) = places.take_permit(Some("greedy")).await {
            held.push(place);
        }
        assert_eq!(held.len(), 8);
        assert!(places.take_permit(Some("modest")).await.is_some());
        held.clear();
        while let Some(place) = places.take_permit(None).await {
            held.push(place);
        }
        assert_eq!(held.len(), 10, "who is alone has all");
    }

    #[tokio::test]
    async fn a_read_larger_than_all_is_admitted_alone() {
        let admission = admission(Duration::ZERO);
        let held = admission.admit_bytes(u64::MAX).await.unwrap();
        assert!(admission.try_enter(1).is_none());
        drop(held);
        assert!(admission.try_enter(1).is_some());
    }
}
